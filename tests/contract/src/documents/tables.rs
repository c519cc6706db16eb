//! Candidates, datasets, plans and specs of records, tables and images.

use std::collections::BTreeMap;

use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::manifest::candidate::{
    Base, Candidate, Group, LongRecord, Model, Objective, Precision, Predicted, Tokenizer, Treatment,
};
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::encoding::{Augmentation, Column, Fitted, Holds, Missing, NonFiniteCells, Scaling};
use xt_core::manifest::evaluation::{Evaluator, Overlap, Part, Shared, Slices, Spec, Subject};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::network::{Activation, Convolution, ModuleTensor};
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Seen, Tokens, compile_seen};
use xt_core::verb::evaluate::{self, Found};

use super::{candidate, digest, number, path, spec};

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| String::from(*text)).collect()
}

fn dataset(format: Format, files: &[&str]) -> Dataset {
    let offered: Vec<Offered> =
        files.iter().map(|at| Offered { path: path(at), digest: digest(at), bytes: 400 }).collect();
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
    admit(format, &offered, &BTreeMap::new(), splitting).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A dataset of each form that is no text.
pub fn datasets() -> Vec<Dataset> {
    let mut bytes = dataset(Format::Bytes, &["a.bin"]);
    bytes.splitting.group_by = GroupBy::Folder;
    let images = dataset(Format::Idx, &["x-images-idx3", "x-labels-idx1"]);
    vec![
        dataset(Format::Csv, &["a.csv"]),
        images,
        bytes,
        dataset(Format::Jsonl, &["a.jsonl"]),
        dataset(Format::Png, &["t/no/1.png", "t/yes/1.png"]),
        dataset(Format::Safetensors, &["a.safetensors"]),
        dataset(Format::Npy, &["x-images.npy", "x-labels.npy"]),
    ]
}

fn table(target: Holds, scaling: Scaling) -> Tokenizer {
    let column = |name: &str, holds| Column { name: name.into(), holds };
    let columns = vec![
        column("x", Holds::Number { missing: Missing::Fill, non_finite: NonFiniteCells::Keep }),
        column("z", Holds::Category { levels: texts(&["a", "b"]), missing: Missing::Refuse }),
        column("t", target),
        column("id", Holds::Id {}),
        column("note", Holds::Ignored {}),
    ];
    Tokenizer::Table { columns, scaling }
}

fn mlp(outputs: u64, activation: Activation) -> Model {
    let (dropout, initializer_gain) = (number(0.25), number(1.4));
    Model::Mlp { inputs: 3, widths: vec![8, 4], outputs, activation, dropout, initializer_gain }
}

fn cnn() -> Model {
    Model::Cnn {
        channels: 1,
        height: 8,
        width: 6,
        convolutions: vec![Convolution { channels: 4, kernel: 3, stride: 1, padding: 1, pool: 2 }],
        widths: vec![5],
        outputs: 2,
        activation: Activation::Gelu,
        dropout: number(0.25),
        initializer_gain: number(1.4),
    }
}

/// Candidates that read records, in binary32 and in binary16.
fn of_records() -> Vec<Candidate> {
    let tokenizers = [
        Tokenizer::Records { file: None, predicted: Predicted::Completion, end: Some(0), long: LongRecord::Refuse },
        Tokenizer::Records {
            file: Some(digest("tokenizer.json")),
            predicted: Predicted::All,
            end: None,
            long: LongRecord::Cut,
        },
    ];
    let made = (1..).zip(tokenizers).map(|(n, tokenizer)| {
        let dataset = datasets().swap_remove(3).id();
        let mut made = Candidate { tokenizer, ..candidate(&format!("records-{n}"), dataset) };
        (made.data.separator, made.precision) = (None, if n == 1 { Precision::Float32 } else { Precision::Float16 });
        made
    });
    made.collect()
}

/// A candidate of each family, objective, form of the data and scaling.
pub fn candidates() -> Vec<Candidate> {
    let [csv, idx, png, tensors] = [0, 1, 4, 5].map(|index| datasets().swap_remove(index).id());
    let levels = texts(&["no", "yes"]);
    let keep = NonFiniteCells::Refuse;
    let image = |levels, augmentation| Tokenizer::Image {
        channels: 1,
        height: 8,
        width: 6,
        classes: 2,
        levels,
        scaling: Scaling::Inputs,
        augmentation,
    };
    let changed = Augmentation { shift: 1, mirror: true, cut_out: 3 };
    let of_tensors = |shape: &[u64], classes| Tokenizer::Tensors {
        inputs: "x".into(),
        shape: shape.into(),
        targets: "y".into(),
        classes,
        scaling: Scaling::None,
    };
    let all = [
        (
            csv,
            mlp(1, Activation::Relu),
            table(Holds::TargetNumber { non_finite: keep }, Scaling::InputsAndTarget),
            Objective::MeanSquaredError {},
        ),
        (
            csv,
            mlp(1, Activation::Tanh),
            table(Holds::TargetNumber { non_finite: keep }, Scaling::None),
            Objective::Huber { delta: number(0.5) },
        ),
        (
            csv,
            mlp(2, Activation::Relu),
            table(Holds::TargetCategory { levels: levels.clone() }, Scaling::Inputs),
            Objective::CrossEntropy { label_smoothing: number(0.1), z_loss: number(0.0001) },
        ),
        (
            csv,
            mlp(1, Activation::Relu),
            table(Holds::TargetCategory { levels: levels.clone() }, Scaling::Inputs),
            Objective::BinaryCrossEntropy {},
        ),
        (idx, cnn(), image(None, Augmentation::NONE), plain()),
        (png, cnn(), image(Some(levels), changed), plain()),
        (tensors, cnn(), of_tensors(&[1, 8, 6], Some(2)), plain()),
        (tensors, mlp(1, Activation::Relu), of_tensors(&[3], None), Objective::MeanSquaredError {}),
    ];
    let made = (1..).zip(all).map(|(n, (dataset, model, tokenizer, objective))| {
        let mut made = Candidate { model, tokenizer, objective, ..candidate(&format!("table-{n}"), dataset) };
        made.data.separator = None;
        made
    });
    made.chain(of_records()).chain(of_labels()).chain([of_a_module(tensors, of_tensors(&[3], Some(2)))]).collect()
}

/// A candidate whose model is a module of TorchScript.
fn of_a_module(dataset: Digest, tokenizer: Tokenizer) -> Candidate {
    let tensor = |name: &str, shape: &[u64]| ModuleTensor { name: name.into(), shape: shape.into() };
    let (parameters, buffers) =
        (vec![tensor("last.weight", &[2, 3])], vec![tensor("count", &[]), tensor("mean", &[2])]);
    let model = Model::TorchScript { shape: vec![3], outputs: 2, parameters, buffers };
    let base = Base::Module { digest: digest("module.pt") };
    let frozen = |name: &str| Group { pattern: name.into(), treatment: Treatment::Frozen {} };
    let groups = ["count", "mean"].map(frozen).into();
    let mut made = Candidate { model, base, tokenizer, objective: plain(), groups, ..candidate("module", dataset) };
    made.data.separator = None;
    made
}

/// Classes without smoothing.
fn plain() -> Objective {
    Objective::CrossEntropy { label_smoothing: number(0.0), z_loss: number(0.0) }
}

/// Candidates that read texts with a class, in bfloat16 and in binary32.
fn of_labels() -> Vec<Candidate> {
    let made = [(3, None, Precision::Bfloat16), (0, Some(260), Precision::Float16Scaled)].into_iter().map(
        |(at, end, precision)| {
            let tokenizer = Tokenizer::Labelled {
                file: end.map(|_| digest("tokenizer.json")),
                levels: texts(&["ham", "spam"]),
                start: end.map(|end| end + 1),
                end,
                length: 12,
                long: LongRecord::Cut,
            };
            let model = Model::Encoder {
                layers: 2,
                heads: 3,
                width: 24,
                inner: 40,
                context: 16,
                vocabulary: 262,
                segments: 2,
                outputs: 2,
                dropout: number(0.05),
                layer_norm_epsilon: number(1e-12),
                initializer_range: number(0.03),
            };
            let objective = plain();
            let dataset = datasets().swap_remove(at).id();
            let mut made =
                Candidate { model, tokenizer, objective, precision, ..candidate(&format!("label-{at}"), dataset) };
            made.data.separator = None;
            made
        },
    );
    made.collect()
}

/// A plan for each of the candidates; a text is nowhere among them.
pub fn plans() -> Vec<Plan> {
    let tokens = Tokens { vocabulary: 0, count: 50, tokenizer_bytes: 0 };
    let fitted = Fitted { column: String::from("x"), count: 49, mean: number(0.75), deviation: number(1.5) };
    let plan = |candidate: Candidate| {
        let dataset = datasets().into_iter().find(|dataset| dataset.id() == candidate.data.dataset);
        let dataset = dataset.unwrap_or_else(|| panic!("no dataset"));
        let base = candidate.base.files().map(|[digest, _]| Input { digest, bytes: 9000, role: Role::Base });
        let seen = Seen { tokens, fitted: vec![fitted.clone()], base: base.into_iter().collect() };
        compile_seen(candidate, dataset, Intent::default_for(1), 7, seen).unwrap_or_else(|faults| panic!("{faults}"))
    };
    let plans: Vec<Plan> = candidates().into_iter().map(plan).collect();
    plans.iter().cloned().chain(plans.iter().take(3).skip(1).map(measuring)).collect()
}

/// The plan that measures what was trained by `trained`, on the same files.
fn measuring(trained: &Plan) -> Plan {
    let (Some(candidate), Some(dataset)) = (trained.native().cloned(), trained.dataset.clone()) else {
        panic!("a plan of a table");
    };
    let regression = matches!(candidate.objective, Objective::Huber { .. });
    let mut spec = specs().swap_remove(usize::from(regression));
    spec.leakage.shared = Shared::Disclose;
    spec.data.dataset = dataset.id();
    let parts = evaluate::members(&spec, &dataset).into_iter();
    let parts: Vec<Part> = parts.map(|member| Part { path: member.path.clone(), tokens: 40 }).collect();
    let (files, shared) = (parts.len() as u64, Shared::Disclose);
    let overlap = Overlap { shared, files, shared_files: 1, examples: 40, shared_examples: 2 };
    let subject = Subject { candidate: trained.fingerprint, name: candidate.name.clone(), ..super::trained() };
    let fitted = trained.fitted.clone();
    let found = Found { subject, weights_bytes: 4096, tokenizer_bytes: 0, parts, overlap, fitted, base: Vec::new() };
    let intent = trained.intent.clone();
    evaluate::compile(spec, candidate, dataset, intent, found).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Specs of the evaluators for what is no text.
pub fn specs() -> Vec<Spec> {
    let (batch, resamples, confidence) = (8, 500, number(0.95));
    let evaluators = [
        Evaluator::Classification { batch, resamples, confidence, bins: 10 },
        Evaluator::Regression { batch, resamples, confidence },
    ];
    evaluators.map(|evaluator| Spec { evaluator, ..spec(Slices::None, Shared::Refuse) }).into()
}
