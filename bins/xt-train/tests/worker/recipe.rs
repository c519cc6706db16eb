//! Parts of a recipe by the real worker: groups of parameters, averages, and what they leave alone.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Step;
use xt_core::verb::weights::Weights;
use xt_trainer::state::State;

use crate::desk::{Desk, Left, plan};

const WEIGHTS: &str = "model/model.safetensors";
const AVERAGED: &str = "model/averaged/model.safetensors";
const NONE: &str = r#""averaging":{"kind":"none"}"#;
const EXPONENTIAL: &str = r#""averaging":{"kind":"exponential","decay":0.9,"first_step":2}"#;

fn train(plan: &Plan) -> Left {
    let left = Desk::new(plan).train(plan, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

/// The bytes of each tensor.
fn tensors(file: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let stored = SafeTensors::deserialize(file).unwrap();
    stored.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec())).collect()
}

/// What the parameters are before the first step.
fn start(plan: &Plan) -> BTreeMap<String, Vec<u8>> {
    let state = State::first(plan.native().unwrap(), plan.seed, None).unwrap();
    let (layout, values) = state.parameters.memory();
    let bytes = |row: &[f32]| row.iter().flat_map(|value| value.to_le_bytes()).collect();
    layout.spans().iter().map(|span| (span.declared.name.clone(), bytes(span.of(values.values())))).collect()
}

#[test]
fn frozen_parameters_do_not_move_in_a_single_bit_and_the_others_do() {
    let groups = r#""groups":[{"pattern":"*.attn.*","treatment":{"kind":"frozen"}},
        {"pattern":"transformer.w?e.weight","treatment":{"kind":"frozen"}}]"#;
    for optimizer in [None, Some(r#""optimizer":{"kind":"lion","beta1":0.9,"beta2":0.99,"#)] {
        let swap = optimizer.map(|to| {
            (r#""optimizer":{"kind":"adamw","learning_rate":0.003,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"#, to)
        });
        let rate = swap.map(|_| (r#""weight_decay":0.1"#, r#""learning_rate":0.001,"weight_decay":0.1"#));
        let changes: Vec<(&str, &str)> = [("\"groups\":[]", groups)].into_iter().chain(swap).chain(rate).collect();
        let plan = plan(&changes, 1);
        let (before, after) = (start(&plan), tensors(&train(&plan).output(WEIGHTS)));
        assert_eq!(before.len(), after.len());
        for (name, values) in &before {
            let frozen = name.contains(".attn.") || name.contains(".wte.") || name.contains(".wpe.");
            assert_eq!(*values == after[name], frozen, "{name}");
        }
    }
}

/// The gradients of frozen parameters are neither in the norm nor in the digest; a rate of its own reaches its group only.
#[test]
fn a_group_with_another_rate_changes_the_run_and_one_with_the_same_values_does_not() {
    let group = |factor: &str, decay: &str| {
        format!(
            r#""groups":[{{"pattern":"*","treatment":{{"kind":"trained","learning_rate_factor":{factor},"weight_decay":{decay}}}}}]"#
        )
    };
    let weights = |groups: &str| train(&plan(&[("\"groups\":[]", groups)], 1)).output(WEIGHTS);
    let base = weights("\"groups\":[]");
    assert_eq!(weights(&group("1", "null")), base);
    assert_ne!(weights(&group("0.5", "null")), base);
    assert_ne!(weights(&group("1", "0.1")), base, "biases decay now, too");
}

fn without_average(step: &Step) -> Step {
    let mut step = step.clone();
    (step.averaged, step.chain) = (None, step.samples);
    (step.optimizer, step.stages) = (step.samples, Vec::new());
    step
}

#[test]
fn an_average_is_traced_saved_and_leaves_the_training_as_it_is() {
    let (with, without) = (plan(&[(NONE, EXPONENTIAL)], 1), plan(&[], 1));
    let (averaged, plain) = (train(&with), train(&without));
    assert_eq!(averaged.output(WEIGHTS), plain.output(WEIGHTS));
    assert!(!plain.wrote(AVERAGED) && plain.told().iter().all(|step| step.averaged.is_none()));
    let file = averaged.output(AVERAGED);
    assert_ne!(file, averaged.output(WEIGHTS));
    assert_eq!(averaged.output("model/averaged/config.json"), averaged.output("model/config.json"));
    let steps = averaged.told();
    assert_eq!(steps.last().unwrap().averaged, Some(Weights::of(&file).unwrap()));
    // A copy up to the first step, something else from then on.
    let copies: Vec<bool> = steps.iter().map(|step| step.averaged == Some(step.parameters)).collect();
    assert_eq!(copies[..3], [true, true, false]);
    let rest = |steps: &[Step]| steps.iter().map(without_average).collect::<Vec<_>>();
    assert_eq!(rest(&steps), rest(&plain.told()));
    assert_ne!(steps[3].optimizer, plain.told()[3].optimizer);
}

#[test]
fn a_snapshot_holds_the_average_and_one_without_it_is_refused() {
    let each = Cadence { every: Some(1), keep: None, last: false };
    let plan = plan(&[(NONE, EXPONENTIAL)], 1);
    let whole = Desk::new(&plan).train_part(&plan, None, &each, None);
    let shot = whole.shot(&plan, 5);
    assert!(shot.snapshot.optimizer.tensors.iter().any(|tensor| tensor.name.starts_with("averaged/transformer.")));
    let resumed = Desk::new(&plan).train_part(&plan, None, &each, Some(&shot));
    assert_eq!(resumed.told(), whole.told()[5..]);
    assert_eq!(resumed.output(AVERAGED), whole.output(AVERAGED));
    let mut fewer = BTreeMap::new();
    for (name, bytes) in tensors(&shot.optimizer) {
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let shape = shot.snapshot.optimizer.tensors.iter().find(|tensor| tensor.name == name).unwrap().shape.clone();
        if name != "averaged/transformer.ln_f.bias" {
            fewer.insert(name, (shape, values));
        }
    }
    let parameters = shot.parameters.clone();
    let poorer = shot.with(parameters, xt_core::verb::weights::file(&fewer));
    let left = Desk::new(&plan).train_part(&plan, None, &each, Some(&poorer));
    assert!(left.failure().contains("it has no tensor averaged/transformer.ln_f.bias"), "{}", left.failure());
}

/// Smoothing and the z-loss change what is minimised from the first step on.
#[test]
fn smoothing_and_the_z_loss_show_in_the_first_loss() {
    let first = |objective: &str| {
        let plan = plan(&[("\"label_smoothing\":0.0,\"z_loss\":0.0", objective)], 1);
        train(&plan).told()[0].loss_bits.value()
    };
    let plain = first("\"label_smoothing\":0.0,\"z_loss\":0.0");
    let z_loss = first("\"label_smoothing\":0.0,\"z_loss\":0.01");
    assert!(z_loss > plain + 0.1, "the logarithm of 256 equal terms squared is about 31: {z_loss} {plain}");
    assert_ne!(first("\"label_smoothing\":0.3,\"z_loss\":0.0"), plain);
}
