//! Where the trace says that the first non-finite values are, against a dump of every tensor: a second forward and backward
//! pass over the same parameters and samples, in which each tensor by itself is asked whether it is finite.
#![allow(clippy::unwrap_used)]

#[path = "support/plan.rs"]
mod plan;

use std::collections::BTreeMap;
use std::fs;

use plan::{TEXT, model, plan, plan_of, sgd};
use tch::{Kind, Reduction, Tensor};
use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Clipping, Optimizer, Precision};
use xt_core::manifest::dataset::Format;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::{StageName, Step};
use xt_core::order::{Shape, Walk};
use xt_torch::switches::{self, Switches};
use xt_trainer::recorder::Hasher;
use xt_trainer::step::Trainer;

/// Adam without decay, whose second moment moves by 2^-53 of a squared gradient, and which divides by next to nothing.
const ADAM: &str = r#"{"kind":"adamw","learning_rate":1000,"beta1":0,"beta2":0.9999999999999999,"epsilon":1e-45,
    "weight_decay":0,"decay":"matrices"}"#;

/// What a second pass found that is not finite: tensors of each stage, in the order of the computation.
#[derive(Debug, Default, PartialEq)]
struct Dump {
    forward: Vec<String>,
    loss: bool,
    backward: Vec<String>,
    optimizer: Vec<String>,
}

fn finite(tensor: &Tensor) -> bool {
    bool::try_from(tensor.isfinite().all()).unwrap()
}

/// The parameters of `trainer`, each copied out by name.
fn parameters(trainer: &Trainer) -> BTreeMap<String, Tensor> {
    let state = &trainer.state.parameters;
    let copy = |span: &xt_trainer::layout::Span| {
        let values = Tensor::from_slice(span.of(state.values.values())).view(&span.declared.shape[..]);
        (span.declared.name.clone(), values.set_requires_grad(true))
    };
    state.layout.spans().iter().map(copy).collect()
}

/// Every tensor that the trace counts in its forward stage, by the name it has there; the last are the logits. Products are
/// made of what `kind` leaves of their operands.
fn forward(parameters: &BTreeMap<String, Tensor>, tokens: &Tensor, kind: Kind) -> Vec<(String, Tensor)> {
    let get = |name: &str| parameters[&format!("transformer.{name}")].shallow_clone();
    let (samples, time) = tokens.size2().unwrap();
    let width = get("wte.weight").size()[1];
    let product = |one: &Tensor, other: &Tensor| one.to_kind(kind).matmul(&other.to_kind(kind));
    let linear = |x: &Tensor, name: &str| {
        product(x, &get(&format!("{name}.weight"))) + get(&format!("{name}.bias")).to_kind(kind)
    };
    let normalised = |x: &Tensor, name: &str| {
        let (weight, bias) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
        x.layer_norm([width], Some(weight), Some(bias), 1e-5, false)
    };
    let x = get("wte.weight").index_select(0, &tokens.view(-1)).view([samples, time, width])
        + get("wpe.weight").narrow(0, 0, time);
    let mut seen = vec![("embedding".to_string(), x.shallow_clone())];
    let future = Tensor::ones([time, time], (Kind::Bool, tch::Device::Cpu)).triu(1);
    let mixed = linear(&normalised(&x, "h.0.ln_1"), "h.0.attn.c_attn").split(width, -1);
    let scores = product(&mixed[0], &mixed[1].transpose(1, 2)) / f64::from(u32::try_from(width).unwrap()).sqrt();
    let weights = scores.masked_fill(&future, f64::NEG_INFINITY).softmax(-1, None);
    // Not `+=`, which adds in place: the backward pass needs what was there, and the dump shows it.
    let x = &x + linear(&product(&weights, &mixed[2]), "h.0.attn.c_proj");
    let inner = linear(&normalised(&x, "h.0.ln_2"), "h.0.mlp.c_fc").gelu("tanh");
    let x = &x + linear(&inner, "h.0.mlp.c_proj");
    seen.push(("block.0".into(), x.shallow_clone()));
    let x = normalised(&x, "ln_f");
    seen.push(("normalised".into(), x.shallow_clone()));
    seen.push(("logits".into(), product(&x, &get("wte.weight").transpose(0, 1))));
    seen
}

/// What a sample shows and what is due for it, made here from the text, and not by the trainer.
type Pair = (Vec<i64>, Vec<i64>);

fn window(sample: usize, context: usize) -> Pair {
    let bytes: Vec<i64> = TEXT.bytes().map(i64::from).collect();
    let start = sample * context;
    (bytes[start..start + context].into(), bytes[start + 1..=start + context].into())
}

/// The second pass over what the next step will see, before it is taken.
fn dump(plan: &Plan, trainer: &Trainer, walk: &mut Walk, pair: &dyn Fn(usize) -> Pair) -> Dump {
    let batches = walk.step(trainer.state.steps);
    let (mut seen, mut due) = (Vec::<i64>::new(), Vec::<i64>::new());
    for sample in &batches[0].samples {
        let (one, other) = pair(usize::try_from(*sample).unwrap());
        seen.extend(one);
        due.extend(other);
    }
    let candidate = plan.native().unwrap();
    let context = i64::try_from(candidate.model.context()).unwrap();
    let kind = match candidate.precision {
        Precision::Float32 => Kind::Float,
        Precision::Float16 | Precision::Float16Scaled => Kind::Half,
        Precision::Bfloat16 => Kind::BFloat16,
    };
    let parameters = parameters(trainer);
    let tensors = forward(&parameters, &Tensor::from_slice(&seen).view([-1, context]), kind);
    let bad = tensors.iter().filter(|(_, tensor)| !finite(tensor)).map(|(name, _)| name.clone()).collect();
    let logits = tensors.last().unwrap().1.view([-1, 256]).to_kind(Kind::Float);
    let loss = logits.cross_entropy_loss::<Tensor>(&Tensor::from_slice(&due), None, Reduction::Mean, -100, 0.0);
    loss.backward();
    let gradients = parameters.iter().filter(|(_, tensor)| !finite(&tensor.grad()));
    let backward: Vec<String> = gradients.map(|(name, _)| name.clone()).collect();
    let optimizer = if backward.is_empty() { moments(plan, &parameters) } else { Vec::new() };
    Dump { forward: bad, loss: !finite(&loss), backward, optimizer }
}

/// The second moments of Adam that a clipped gradient makes non-finite.
fn moments(plan: &Plan, parameters: &BTreeMap<String, Tensor>) -> Vec<String> {
    if !matches!(plan.native().unwrap().optimizer, Optimizer::AdamW { .. }) {
        return Vec::new();
    }
    let squares = |tensor: &Tensor| f64::try_from(tensor.grad().to_kind(Kind::Double).square().sum(Kind::Double));
    let norm = parameters.values().map(|tensor| squares(tensor).unwrap()).sum::<f64>().sqrt();
    let factor = match &plan.native().unwrap().clipping {
        Clipping::None {} => 1.0,
        Clipping::Norm { maximum } => (maximum.get() / (norm + 1e-6)).min(1.0),
        Clipping::Value { .. } => panic!("no plan here clips by value"),
    };
    let square = |tensor: &Tensor| (tensor.grad() * factor).square();
    let bad = parameters.iter().filter(|(_, tensor)| !finite(&square(tensor)));
    bad.map(|(name, _)| format!("second_moment/{name}")).collect()
}

/// Takes steps until the trace counts something that is not finite, and gives that step and the dump of it. Every step
/// before has a clean dump.
fn until_non_finite(plan: &Plan) -> (Step, Dump) {
    let context = usize::try_from(plan.native().unwrap().model.context()).unwrap();
    until_non_finite_in(plan, TEXT, &|sample| window(sample, context))
}

/// The same over another file, of whose samples `pair` says what they show.
fn until_non_finite_in(plan: &Plan, file: &str, pair: &dyn Fn(usize) -> Pair) -> (Step, Dump) {
    // The dump computes attention by products, as the trainer does under the pins of these plans.
    switches::set(Switches { sdp_flash: false, ..switches::get().unwrap() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(Digest::of(file.as_bytes()).hex()), file).unwrap();
    let (data, _) = xt_trainer::data::read(plan, folder.path()).unwrap();
    let shape = Shape::new(
        data.samples(),
        plan.native().unwrap().batching,
        plan.native().unwrap().data.order,
        &plan.native().unwrap().length,
    );
    let mut walk = Walk::new(shape.unwrap(), plan.seed);
    let mut trainer = Trainer::new(plan.clone(), data, None).unwrap();
    loop {
        let found = dump(plan, &trainer, &mut walk, pair);
        let step = trainer.step(&Hasher::here()).unwrap().finish().unwrap();
        if step.stages.iter().any(|stage| stage.non_finite() > 0) {
            return (step, found);
        }
        assert_eq!(found, Dump::default(), "step {} is clean in the trace and not in the dump", step.step);
        assert!(step.step < plan.work.steps, "nothing became non-finite");
    }
}

fn tensors(step: &Step, stage: StageName) -> &[String] {
    &step.stages.iter().find(|found| found.stage == stage).unwrap().tensors
}

fn earliest(step: &Step) -> StageName {
    step.stages.iter().find(|stage| stage.non_finite() > 0).unwrap().stage
}

const NONE: &str = r#"{"kind":"none"}"#;

#[test]
fn an_exploding_rate_shows_in_the_forward_stage_where_the_dump_has_it() {
    let (step, dump) = until_non_finite(&plan(&model(16, 8, "0.02"), &sgd(300.0, 10.0), NONE));
    assert_eq!(earliest(&step), StageName::Forward);
    assert!(step.skipped && !dump.forward.is_empty());
    assert_eq!(tensors(&step, StageName::Forward), dump.forward);
}

/// Row F-04: the loss is a number, its slope is not.
#[test]
fn finite_losses_with_slopes_that_are_not_show_in_the_backward_stage() {
    let (step, dump) = until_non_finite(&plan(&model(4, 32, "0.01"), &sgd(22.0, 0.0), NONE));
    assert_eq!(earliest(&step), StageName::Backward);
    assert_eq!((dump.forward.len(), dump.loss), (0, false));
    let named = tensors(&step, StageName::Backward);
    assert_eq!(named, &dump.backward[..named.len()], "the first eight of them");
    assert!(step.skipped && step.loss.is_some());
}

/// Sixteen records a step; those of the second step are cut before their completions.
fn records() -> Vec<(String, String)> {
    let long =
        |number: usize| ("a prompt of fourteen ".to_string() + &"and more ".repeat(number % 3 + 1), "lost".to_string());
    let short = |number| (format!("{number} whales"), format!(" and {} ships", number + 1));
    (0..48).map(|number| if (16..32).contains(&number) { long(number) } else { short(number) }).collect()
}

/// What a record shows in a context, and what is due: the completion alone.
fn masked(records: &[(String, String)], sample: usize, context: usize) -> Pair {
    let (prompt, completion) = &records[sample];
    let bytes: Vec<i64> = prompt.bytes().chain(completion.bytes()).take(context + 1).map(i64::from).collect();
    let at = |place: usize| bytes.get(place).copied();
    let due = |place: usize| if place < prompt.len() { -100 } else { at(place).unwrap_or(-100) };
    ((0..context).map(|place| at(place).unwrap_or(0)).collect(), (1..=context).map(due).collect())
}

/// Row F-01: the mean over no prediction. Every value on the way to it is a number.
#[test]
fn a_batch_of_which_nothing_is_predicted_shows_in_the_loss_stage() {
    let records = records();
    let line = |(prompt, completion): &(String, String)| {
        format!("{{\"prompt\":\"{prompt}\",\"completion\":\"{completion}\"}}\n")
    };
    let file: String = records.iter().map(line).collect();
    let (model, optimizer) = (model(16, 20, "0.02"), sgd(0.1, 0.0));
    let tokenizer = |predicted: &str| {
        format!(r#"{{"kind":"records","file":null,"predicted":"{predicted}","end":null,"long":"cut"}}"#)
    };
    let plan = |predicted: &str| {
        let changes = [("MODEL", model.as_str()), ("OPTIMIZER", &optimizer), ("CLIPPING", NONE)];
        let tokenizer = tokenizer(predicted);
        plan_of(Format::Jsonl, (&file, 48), &[&changes[..], &[(r#"{"kind":"bytes"}"#, tokenizer.as_str())]].concat())
    };
    let (step, dump) = until_non_finite_in(&plan("completion"), &file, &|sample| masked(&records, sample, 20));
    assert_eq!((step.step, earliest(&step)), (2, StageName::Loss));
    assert_eq!((dump.forward.len(), dump.loss), (0, true));
    assert!(step.skipped && step.loss_bits.value().is_nan());
    assert_eq!(tensors(&step, StageName::Backward).is_empty(), dump.backward.is_empty());
    // The control: all tokens of the same records predicted.
    let due = |sample: usize| {
        let (seen, _) = masked(&records, sample, 20);
        let all = records[sample].0.len() + records[sample].1.len();
        let next = |place: usize| if place < all { seen.get(place).copied() } else { Some(-100) };
        let last = (records[sample].0.clone() + &records[sample].1).as_bytes().get(20).copied().map_or(-100, i64::from);
        (seen.clone(), (1..=20).map(|place| next(place).unwrap_or(last)).collect())
    };
    let plan = plan("all");
    let clean = std::panic::catch_unwind(|| until_non_finite_in(&plan, &file, &due));
    assert_eq!(clean.unwrap_err().downcast_ref::<&str>(), Some(&"nothing became non-finite"));
}

/// Row F-14 without a scale: products that leave binary16 and not binary32.
#[test]
fn products_that_leave_binary16_show_in_the_forward_stage_where_the_dump_has_them() {
    let (model, optimizer) = (model(16, 8, "10").replace("\"inner\":8", "\"inner\":65536"), sgd(1e-9, 0.0));
    let plan = |precision: &str| {
        let changes =
            [("MODEL", model.as_str()), ("OPTIMIZER", &optimizer), ("CLIPPING", NONE), ("float32", precision)];
        plan_of(Format::Text, (TEXT, TEXT.len() as u64), &changes)
    };
    let (step, dump) = until_non_finite(&plan("float16"));
    assert_eq!((step.step, earliest(&step)), (1, StageName::Forward));
    assert!(step.skipped && !dump.forward.is_empty());
    assert_eq!(tensors(&step, StageName::Forward), dump.forward);
    let plan = plan("float32");
    let clean = std::panic::catch_unwind(|| until_non_finite(&plan));
    assert_eq!(clean.unwrap_err().downcast_ref::<&str>(), Some(&"nothing became non-finite"));
}

/// As near to row F-01 as a loss without masks comes: every logit is a number, and so is each token's loss; their sum
/// is not.
#[test]
fn a_reduction_that_overflows_shows_in_the_loss_stage() {
    let optimizer = ADAM.replace("\"beta1\":0", "\"beta1\":0.9").replace("1e-45", "1e-42");
    let clipping = r#"{"kind":"norm","maximum":1e10}"#;
    let (step, dump) = until_non_finite(&plan(&model(1, 32, "1e-16"), &optimizer, clipping));
    assert_eq!((earliest(&step), dump.forward.len(), dump.loss), (StageName::Loss, 0, true));
    assert_eq!(step.loss, None);
    assert!(step.stages[1].maximum.get() > 1e35, "{:?}", step.stages[1]);
}

/// Every gradient is a number, and its square is not: nothing before the update saw it.
#[test]
fn an_update_that_overflows_shows_in_the_optimizer_stage() {
    let (step, dump) = until_non_finite(&plan(&model(1, 32, "1e-15"), ADAM, NONE));
    assert_eq!(earliest(&step), StageName::Optimizer);
    assert_eq!((dump.forward.len(), dump.loss, dump.backward.len(), step.skipped), (0, false, 0, false));
    assert!(!dump.optimizer.is_empty());
    assert_eq!(tensors(&step, StageName::Optimizer), dump.optimizer);
}

/// A control: with a rate that suits the model nothing becomes non-finite, in the trace or in the dump.
#[test]
fn a_clean_run_is_clean_in_every_tensor_of_every_step() {
    let plan = plan(&model(16, 8, "0.02"), &sgd(0.1, 0.0), NONE);
    let clean = std::panic::catch_unwind(|| until_non_finite(&plan));
    assert_eq!(clean.unwrap_err().downcast_ref::<&str>(), Some(&"nothing became non-finite"));
}
