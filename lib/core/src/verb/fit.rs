//! Do the parts of a candidate fit together: model, what it reads, what is minimised, and the form of the files?

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use crate::fault::Faults;
use crate::manifest::candidate::{Base, Candidate, Model, Objective, Tokenizer};
use crate::manifest::dataset::{Dataset, Format};
use crate::manifest::encoding::{Column, Holds, Scaling, Target};
use crate::manifest::evaluation::Evaluator;
use crate::manifest::network::{Convolution, ModuleTensor};
use crate::verb::groups::handling;

/// Notes a model whose sizes do not fit each other, or what it reads.
pub(crate) fn model(candidate: &Candidate, faults: &mut Faults) {
    match (&candidate.model, &candidate.tokenizer) {
        (
            Model::Gpt { .. } | Model::Llama { .. },
            Tokenizer::Bytes {} | Tokenizer::HuggingFace { .. } | Tokenizer::Records { .. },
        )
        | (Model::Encoder { .. }, Tokenizer::Labelled { .. })
        | (Model::Mlp { .. }, Tokenizer::Table { .. } | Tokenizer::Image { .. } | Tokenizer::Tensors { .. })
        | (Model::TorchScript { .. }, Tokenizer::Table { .. } | Tokenizer::Image { .. } | Tokenizer::Tensors { .. })
        | (Model::Cnn { .. }, Tokenizer::Image { .. } | Tokenizer::Tensors { .. }) => {}
        (model, tokenizer) => {
            let message = format!("a model `{}` does not read what `{}` gives", model.word(), tokenizer.word());
            return faults.add("/tokenizer/kind", "model.data", message);
        }
    }
    match &candidate.model {
        Model::Gpt { .. } | Model::Llama { .. } | Model::Encoder { .. } => {}
        Model::Mlp { widths, .. } => check_widths(widths, faults),
        Model::TorchScript { .. } => check_module(candidate, faults),
        Model::Cnn { channels, height, width, convolutions, widths, .. } => {
            check_widths(widths, faults);
            behind(convolutions, [*height, *width], faults);
            let shape = [*channels, *height, *width];
            match candidate.tokenizer.image() {
                Some(given) if given == shape => {}
                Some([channels, height, width]) => {
                    let message =
                        format!("the model reads images of {shape:?}, the data are {channels}, {height}, {width}");
                    faults.add("/model", "model.shape", message);
                }
                None => {
                    let message = "the model reads images: expected three dimensions, channels, height and width";
                    faults.add("/tokenizer/shape", "model.shape", message);
                }
            }
        }
    }
    if matches!(candidate.model, Model::TorchScript { .. }) != matches!(candidate.base, Base::Module { .. }) {
        let message = "a model `torchscript` has its parameters from a base `module`, and no other model has";
        faults.add("/base/kind", "base.form", message);
    }
    ends(candidate, faults);
}

/// No module has more values: they take 8 GiB.
const MODULE: u64 = 1 << 31;

/// Notes tensors of a module that cannot be, and buffers that would be trained.
fn check_module(candidate: &Candidate, faults: &mut Faults) {
    let Model::TorchScript { parameters, buffers, .. } = &candidate.model else { return };
    if parameters.is_empty() {
        faults.add("/model/parameters", "model.shape", "a module without parameters learns nothing");
    }
    let values = |tensor: &ModuleTensor| tensor.shape.iter().try_fold(1, |all: u64, size| all.checked_mul(*size));
    let all = parameters.iter().chain(buffers).try_fold(0, |all: u64, tensor| all.checked_add(values(tensor)?));
    if all.is_none_or(|all| all > MODULE) {
        faults.add("/model", "model.shape", format!("its tensors hold more than {MODULE} values in all"));
    }
    let mut seen = BTreeSet::new();
    for (list, tensors) in [("parameters", parameters), ("buffers", buffers)] {
        for (index, ModuleTensor { name, shape }) in tensors.iter().enumerate() {
            let at = format!("/model/{list}/{index}");
            if name.is_empty() || !seen.insert(name) {
                faults.add(format!("{at}/name"), "model.name", format!("{name:?} is empty, or stands here twice"));
            }
            if shape.contains(&0) {
                faults.add(format!("{at}/shape"), "model.shape", "a dimension of 0 holds nothing");
            }
            let trained = handling(&candidate.optimizer, &candidate.groups, name, shape.len()).is_some();
            if list == "buffers" && trained {
                let message = format!("{name:?} is no parameter: the first group that fits it must be `frozen`");
                faults.add("/groups", "groups.buffer", message);
            }
        }
    }
}

fn check_widths(widths: &[u64], faults: &mut Faults) {
    for (index, width) in widths.iter().enumerate().filter(|(_, width)| !(1..=1_048_576).contains(*width)) {
        let message = format!("expected a number from 1 to 1048576, found {width}");
        faults.add(format!("/model/widths/{index}"), "field.range", message);
    }
}

/// Height and width behind all convolutions; notes the first one behind which nothing is left.
pub fn behind(convolutions: &[Convolution], mut size: [u64; 2], faults: &mut Faults) -> [u64; 2] {
    for (index, convolution) in convolutions.iter().enumerate() {
        let [Some(height), Some(width)] = size.map(|size| convolution.behind(size)) else {
            let message = format!("nothing is left of {} x {} pixels behind it", size[0], size[1]);
            faults.add(format!("/model/convolutions/{index}"), "model.shape", message);
            return size;
        };
        size = [height, width];
    }
    size
}

/// Notes inputs and outputs of a model that are not those of its data and objective.
fn ends(candidate: &Candidate, faults: &mut Faults) {
    let (Some((inputs, outputs)), Some(given)) = (candidate.model.ends(), candidate.tokenizer.inputs()) else { return };
    if let Tokenizer::Labelled { start, end, .. } = &candidate.tokenizer {
        let least = 1 + [start, end].into_iter().flatten().count() as u64;
        if !(least..=inputs).contains(&given) {
            let message = format!("expected {least} to {inputs}, the context of the model, found {given}");
            faults.add("/tokenizer/length", "model.shape", message);
        }
    } else if inputs != given {
        let message = format!("the model has {inputs} inputs, the data give {given}");
        let at = if matches!(candidate.model, Model::TorchScript { .. }) { "/model/shape" } else { "/model/inputs" };
        faults.add(at, "model.shape", message);
    }
    let due = match (&candidate.objective, candidate.tokenizer.target()) {
        (Objective::CrossEntropy { .. }, Some(Target::Classes(classes))) => Some(classes),
        (Objective::BinaryCrossEntropy {}, Some(Target::Classes(2)))
        | (Objective::MeanSquaredError {} | Objective::Huber { .. }, Some(Target::Number)) => Some(1),
        _ => None,
    };
    if let Some(due) = due.filter(|due| *due != outputs) {
        let message = format!("the model has {outputs} outputs, its objective and target need {due}");
        faults.add("/model/outputs", "model.shape", message);
    }
}

/// Notes an objective that the target does not have.
pub(crate) fn objective(candidate: &Candidate, faults: &mut Faults) {
    let text = candidate.tokenizer.inputs().is_none();
    let wrong = match (&candidate.objective, candidate.tokenizer.target()) {
        (Objective::NextToken { .. }, _) if text => None,
        (Objective::NextToken { .. }, _) => Some("only text has a next token"),
        _ if text => Some("of text the next token is learned: next-token-cross-entropy"),
        // A table without one target is noted as such.
        (_, None)
        | (Objective::CrossEntropy { .. }, Some(Target::Classes(_)))
        | (Objective::MeanSquaredError {} | Objective::Huber { .. }, Some(Target::Number)) => None,
        (Objective::BinaryCrossEntropy {}, Some(Target::Classes(classes))) => {
            (classes != 2).then_some("it needs a target with two classes")
        }
        (Objective::CrossEntropy { .. } | Objective::BinaryCrossEntropy {}, Some(Target::Number)) => {
            Some("it needs a target with classes, and the target is a number")
        }
        (Objective::MeanSquaredError {} | Objective::Huber { .. }, Some(Target::Classes(_))) => {
            Some("it needs a target that is a number, and the target has classes")
        }
    };
    if let Some(why) = wrong {
        faults.add("/objective/kind", "objective.target", why);
    }
    if let Objective::Huber { delta } = &candidate.objective {
        super::compile::single("/objective/delta", delta.get(), faults);
    }
}

/// Notes columns that cannot be.
pub(crate) fn columns(candidate: &Candidate, faults: &mut Faults) {
    let (columns, scaling) = match &candidate.tokenizer {
        Tokenizer::Table { columns, scaling } => (columns.as_slice(), scaling),
        Tokenizer::Image { scaling, .. } => {
            image(&candidate.tokenizer, faults);
            (&[][..], scaling)
        }
        Tokenizer::Tensors { inputs, shape, targets, scaling, .. } => {
            if inputs == targets {
                let message = format!("the targets cannot be the tensor of the inputs, {inputs:?}");
                faults.add("/tokenizer/targets", "tensor.name", message);
            }
            if shape.contains(&0) {
                faults.add("/tokenizer/shape", "tensor.shape", "a dimension of 0 holds nothing");
            }
            (&[][..], scaling)
        }
        Tokenizer::Records { .. } => (&[][..], &Scaling::None),
        Tokenizer::Labelled { levels, .. } => {
            check_levels(levels, "/tokenizer/levels", faults);
            (&[][..], &Scaling::None)
        }
        _ => return,
    };
    if candidate.data.separator.is_some() {
        faults.add("/data/separator", "data.separator", "only text is joined with a separator; declare null");
    }
    if *scaling == Scaling::InputsAndTarget && candidate.tokenizer.target() != Some(Target::Number) {
        faults.add("/tokenizer/scaling", "tokenizer.scaling", "the target is no number, and a class is not scaled");
    }
    let Tokenizer::Table { .. } = &candidate.tokenizer else { return };
    let mut names = BTreeSet::new();
    for (index, Column { name, holds }) in columns.iter().enumerate() {
        let at = format!("/tokenizer/columns/{index}");
        if !names.insert(name) {
            faults.add(format!("{at}/name"), "column.twice", format!("the column {name:?} is declared a second time"));
        }
        if let Holds::Category { levels, .. } | Holds::TargetCategory { levels } = holds {
            check_levels(levels, &format!("{at}/holds/levels"), faults);
        }
    }
    let count = |wanted: fn(&Column) -> bool| columns.iter().filter(|column| wanted(column)).count();
    let targets = count(|column| column.target().is_some());
    if targets != 1 {
        let message = format!("a table has one target column, and {targets} are declared");
        faults.add("/tokenizer/columns", "column.target", message);
    }
    if count(|column| matches!(column.holds, Holds::Id {})) > 1 {
        faults.add("/tokenizer/columns", "column.id", "a row has one name: at most one column is `id`");
    }
    if candidate.tokenizer.inputs() == Some(0) {
        faults.add("/tokenizer/columns", "column.input", "no column is an input");
    }
}

/// Notes classes of images and changes of them that cannot be.
fn image(tokenizer: &Tokenizer, faults: &mut Faults) {
    let Tokenizer::Image { height, width, classes, levels, augmentation, .. } = tokenizer else { return };
    if let Some(levels) = levels {
        check_levels(levels, "/tokenizer/levels", faults);
        if levels.len() as u64 != *classes {
            let message = format!("{} folders are named for {classes} classes", levels.len());
            faults.add("/tokenizer/levels", "column.levels", message);
        }
    }
    let shift = augmentation.shift;
    if shift >= *height.min(width) {
        let message = format!("a shift of {shift} moves all of an image of {height} x {width} out of sight");
        faults.add("/tokenizer/augmentation/shift", "image.augmentation", message);
    }
}

fn check_levels(levels: &[String], at: &str, faults: &mut Faults) {
    if levels.len() < 2 {
        faults.add(at, "column.levels", format!("expected at least two levels, found {}", levels.len()));
    }
    let mut seen = BTreeSet::new();
    for (index, level) in levels.iter().enumerate() {
        if level.is_empty() {
            faults.add(format!("{at}/{index}"), "column.levels", "an empty cell is a missing value and no level");
        } else if !seen.insert(level) {
            faults.add(format!("{at}/{index}"), "column.levels", format!("{level:?} stands here a second time"));
        }
    }
}

/// Notes files that cannot be read in the declared way.
pub(crate) fn format(candidate: &Candidate, dataset: &Dataset, faults: &mut Faults) {
    let message = match (&candidate.tokenizer, dataset.format) {
        (Tokenizer::Bytes {}, Format::Text | Format::Bytes)
        | (Tokenizer::HuggingFace { .. }, Format::Text)
        | (Tokenizer::Records { .. }, Format::Jsonl)
        | (Tokenizer::Labelled { .. }, Format::Jsonl | Format::Csv)
        | (Tokenizer::Table { .. }, Format::Csv)
        | (Tokenizer::Image { levels: None, .. }, Format::Idx | Format::Npy)
        | (Tokenizer::Image { levels: Some(_), .. }, Format::Png)
        | (Tokenizer::Tensors { .. }, Format::Safetensors) => return,
        (Tokenizer::Image { levels: None, .. }, Format::Png) => {
            "the dataset holds png in folders: declare their names as `levels`, in the order of the classes".into()
        }
        (Tokenizer::Image { levels: Some(_), .. }, format @ (Format::Idx | Format::Npy)) => {
            format!("the dataset holds {format}, whose labels are numbers and no folders: declare `levels` as null")
        }
        (_, Format::Bytes) => "the dataset holds bytes, which only the tokenizer `bytes` reads".into(),
        (tokenizer, Format::Jsonl) => {
            format!(
                "the dataset holds jsonl, which `{}` does not read; `records` and `labelled` do, see xt-manifest(5)",
                tokenizer.word()
            )
        }
        (tokenizer, format) => format!("the dataset holds {format}, which `{}` does not read", tokenizer.word()),
    };
    faults.add("/tokenizer", "tokenizer.format", message);
}

/// Notes an evaluator that measures something else than what the model gives.
pub(crate) fn evaluator(evaluator: &Evaluator, objective: &Objective, faults: &mut Faults) {
    let due = match objective {
        Objective::NextToken { .. } => "next-token",
        Objective::CrossEntropy { .. } | Objective::BinaryCrossEntropy {} => "classification",
        Objective::MeanSquaredError {} | Objective::Huber { .. } => "regression",
    };
    if evaluator.program().is_none() && evaluator.word() != due {
        let message = format!("a model trained for {} is measured by `{due}`", objective.word());
        faults.add("/evaluator/kind", "evaluation.evaluator", message);
    }
}

/// The names of the classes of a target: its levels, or the numbers of the classes of images.
pub fn classes(tokenizer: &Tokenizer) -> alloc::vec::Vec<String> {
    match tokenizer {
        Tokenizer::Table { columns, .. } => columns
            .iter()
            .find_map(
                |column| if let Holds::TargetCategory { levels } = &column.holds { Some(levels.clone()) } else { None },
            )
            .unwrap_or_default(),
        Tokenizer::Labelled { levels, .. } | Tokenizer::Image { levels: Some(levels), .. } => levels.clone(),
        Tokenizer::Image { classes, .. } | Tokenizer::Tensors { classes: Some(classes), .. } => {
            (0..*classes).map(|class| format!("{class}")).collect()
        }
        Tokenizer::Bytes {}
        | Tokenizer::HuggingFace { .. }
        | Tokenizer::Records { .. }
        | Tokenizer::Tensors { classes: None, .. } => alloc::vec::Vec::new(),
    }
}
