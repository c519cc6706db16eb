//! Where the trace says that the first non-finite values are, against a dump of every tensor: a second forward and backward
//! pass over the same parameters and samples, in which each tensor by itself is asked whether it is finite.
#![allow(clippy::unwrap_used)]

#[path = "support/plan.rs"]
mod plan;

use std::collections::BTreeMap;
use std::fs;

use plan::{TEXT, model, plan, sgd};
use tch::{Kind, Reduction, Tensor};
use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Clipping, Optimizer};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::{StageName, Step};
use xt_core::order::{Shape, Walk};
use xt_trainer::data::Data;
use xt_trainer::data::text::TextData;
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

/// Every tensor that the trace counts in its forward stage, by the name it has there; the last are the logits.
fn forward(parameters: &BTreeMap<String, Tensor>, tokens: &Tensor) -> Vec<(String, Tensor)> {
    let get = |name: &str| parameters[&format!("transformer.{name}")].shallow_clone();
    let (samples, time) = tokens.size2().unwrap();
    let width = get("wte.weight").size()[1];
    let linear = |x: &Tensor, name: &str| x.matmul(&get(&format!("{name}.weight"))) + get(&format!("{name}.bias"));
    let normalised = |x: &Tensor, name: &str| {
        let (weight, bias) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
        x.layer_norm([width], Some(weight), Some(bias), 1e-5, false)
    };
    let x = get("wte.weight").index_select(0, &tokens.view(-1)).view([samples, time, width])
        + get("wpe.weight").narrow(0, 0, time);
    let mut seen = vec![("embedding".to_string(), x.shallow_clone())];
    let future = Tensor::ones([time, time], (Kind::Bool, tch::Device::Cpu)).triu(1);
    let mixed = linear(&normalised(&x, "h.0.ln_1"), "h.0.attn.c_attn").split(width, -1);
    let scores = mixed[0].matmul(&mixed[1].transpose(1, 2)) / f64::from(u32::try_from(width).unwrap()).sqrt();
    let weights = scores.masked_fill(&future, f64::NEG_INFINITY).softmax(-1, None);
    // Not `+=`, which adds in place: the backward pass needs what was there, and the dump shows it.
    let x = &x + linear(&weights.matmul(&mixed[2]), "h.0.attn.c_proj");
    let inner = linear(&normalised(&x, "h.0.ln_2"), "h.0.mlp.c_fc").gelu("tanh");
    let x = &x + linear(&inner, "h.0.mlp.c_proj");
    seen.push(("block.0".into(), x.shallow_clone()));
    let x = normalised(&x, "ln_f");
    seen.push(("normalised".into(), x.shallow_clone()));
    seen.push(("logits".into(), x.matmul(&get("wte.weight").transpose(0, 1))));
    seen
}

/// The second pass over what step `number` will see, before it is taken.
fn dump(plan: &Plan, trainer: &Trainer, walk: &mut Walk, context: usize) -> Dump {
    let batches = walk.step(trainer.state.steps);
    let bytes: Vec<i64> = TEXT.bytes().map(i64::from).collect();
    let (mut seen, mut due) = (Vec::<i64>::new(), Vec::<i64>::new());
    for sample in &batches[0].samples {
        let start = usize::try_from(*sample).unwrap() * context;
        seen.extend(&bytes[start..start + context]);
        due.extend(&bytes[start + 1..=start + context]);
    }
    let context = i64::try_from(context).unwrap();
    let parameters = parameters(trainer);
    let tensors = forward(&parameters, &Tensor::from_slice(&seen).view([-1, context]));
    let bad = tensors.iter().filter(|(_, tensor)| !finite(tensor)).map(|(name, _)| name.clone()).collect();
    let logits = tensors.last().unwrap().1.view([-1, 256]);
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
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(Digest::of(TEXT.as_bytes()).hex()), TEXT).unwrap();
    let (data, _) = TextData::read(plan, folder.path()).unwrap();
    let shape = Shape::new(
        data.samples(),
        plan.native().unwrap().batching,
        plan.native().unwrap().data.order,
        &plan.native().unwrap().length,
    );
    let mut walk = Walk::new(shape.unwrap(), plan.seed);
    let context = data.context();
    let mut trainer = Trainer::new(plan.clone(), Box::new(data)).unwrap();
    loop {
        let found = dump(plan, &trainer, &mut walk, context);
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

/// Row F-01, as near as a loss without masks comes to it: every logit is a number, and so is each token's loss; their sum
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
