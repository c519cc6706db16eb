//! Records of JSON Lines in the real worker: the loss on completions alone, a batch without any, restored, measured.
#![expect(clippy::cast_precision_loss, reason = "small counts")]

use std::collections::BTreeMap;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::{Field, Manifest};
use xt_core::fingerprint;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::evaluation::{
    Evaluator, HeldOut, Leakage, Measure, Metrics, Parameters, Part, Shared, Slices, Spec, Subject, Window,
};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::{StageName, Step};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Tokens, check, compile};
use xt_core::verb::evaluate::{Comparison, Found, METRICS, SAMPLES, compile as compile_evaluation};

use crate::desk::{Desk, Left};

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"records",
    "model":{"kind":"gpt","layers":1,"heads":2,"width":16,"inner":32,"context":16,"vocabulary":256,
        "dropout":0.0,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"records","file":null,"predicted":"completion","end":0,"long":"cut"},
    "data":{"dataset":"DATASET","split":"train","order":"sequential","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"adamw","learning_rate":0.01,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,
        "weight_decay":0.0,"decay":"matrices"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},
    "clipping":{"kind":"norm","maximum":1},
    "batching":{"samples":1,"remainder":"keep","accumulation":2,"accumulation_remainder":"flush"},
    "length":{"kind":"epochs","epochs":2},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

/// A prompt as long as the context: its completion is cut off.
const LONG: &str = "a prompt that fills it";

/// The records of a split: two a step.
pub const CLEAN: [(&str, &str); 8] = [
    ("whale", " spout"),
    ("ship", " mast"),
    ("sea", " wide"),
    ("crew", " men"),
    ("deck", " rope"),
    ("hold", " oil"),
    ("Ahab", " leg"),
    ("sky", " grey"),
];

/// The same with these records of which nothing is left to predict.
fn masked(places: &[usize]) -> Vec<(&'static str, &'static str)> {
    let one = |(place, record)| if places.contains(&place) { (LONG, " lost") } else { record };
    CLEAN.into_iter().enumerate().map(one).collect()
}

fn file(records: &[(&str, &str)]) -> String {
    let text = |text: &str| Value::String(text.into()).canonical();
    let line = |(prompt, completion): &(&str, &str)| {
        format!("{{\"prompt\":{},\"completion\":{}}}\n", text(prompt), text(completion))
    };
    records.iter().map(line).collect()
}

fn dataset(file: &str) -> Dataset {
    let path = RelativePath::new("records.jsonl").unwrap();
    let offered = [Offered { path, digest: Digest::of(file.as_bytes()), bytes: file.len() as u64 }];
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
    admit(Format::Jsonl, &offered, &BTreeMap::new(), splitting).unwrap()
}

/// The plan of the test candidate for these records, with replacements in its text.
pub fn plan(records: &[(&str, &str)], changes: &[(&str, &str)]) -> Plan {
    let dataset = dataset(&file(records));
    let mut text = CANDIDATE.replace("DATASET", &dataset.id().to_string());
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let candidate = Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap();
    let (intent, mut faults) = (Intent::default_for(1), xt_core::fault::Faults::new());
    check(&candidate, &dataset, &intent, &mut faults);
    faults.or(()).unwrap();
    let tokens = Tokens { vocabulary: 256, count: records.len() as u64, tokenizer_bytes: 0 };
    compile(candidate, dataset, intent, 1, tokens).unwrap()
}

/// A place for it, with its file.
pub fn desk(plan: &Plan, records: &[(&str, &str)]) -> Desk {
    let desk = Desk::new(plan);
    desk.give(file(records).as_bytes());
    desk
}

fn train(records: &[(&str, &str)], changes: &[(&str, &str)]) -> (Plan, Left) {
    let plan = plan(records, changes);
    let left = desk(&plan, records).train(&plan, None);
    (plan, left)
}

fn stages(step: &Step) -> Vec<(StageName, u64)> {
    step.stages.iter().map(|stage| (stage.stage, stage.non_finite())).collect()
}

/// Row F-01: the mean over no prediction is 0/0. The records 4 and 5 make step 3.
#[test]
fn a_step_of_which_nothing_is_predicted_is_held_at_the_loss_and_leaves_no_model() {
    let records = masked(&[4, 5]);
    let (plan, left) = train(&records, &[]);
    assert_eq!(left.code, Some(3), "{}", left.stderr);
    let Some(Message::Held { step, reason }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
    assert_eq!(*step, 3);
    assert!(reason.contains("the stage loss holds 2 NaN") && reason.ends_with("in loss"), "{reason}");
    let steps = left.steps(&plan);
    let (last, before) = (&steps[2], &steps[1]);
    let found = stages(last);
    assert_eq!(found[..3], [(StageName::Input, 0), (StageName::Forward, 0), (StageName::Loss, 2)]);
    assert_eq!(last.stages[4].checked, 0, "the optimiser did not run");
    assert!(last.skipped && last.loss.is_none() && last.loss_bits.value().is_nan());
    assert_eq!((last.parameters, last.optimizer), (before.parameters, before.optimizer));
    assert!(stages(before).iter().all(|(_, bad)| *bad == 0));
    assert!(!left.wrote("model/model.safetensors"));
}

/// The controls: no such record, one such record in a step beside another, and the same records with every token predicted.
#[test]
fn a_step_with_a_prediction_goes_on_whatever_is_masked_beside_it() {
    let (plan, clean) = train(&CLEAN, &[]);
    assert_eq!(clean.code, Some(0), "{}", clean.stderr);
    assert_eq!(clean.steps(&plan).len(), 8);
    let halves = masked(&[4, 7]);
    let (plan, half) = train(&halves, &[]);
    assert_eq!(half.code, Some(0), "{}", half.stderr);
    let steps = half.steps(&plan);
    assert!(steps.iter().all(|step| stages(step).iter().all(|(_, bad)| *bad == 0)));
    // The loss of that step is that of its other record alone.
    assert_eq!(steps[2].stages[2].checked, 1);
    let (plan, all) = train(&masked(&[4, 5]), &[("\"predicted\":\"completion\"", "\"predicted\":\"all\"")]);
    assert_eq!(all.code, Some(0), "{}", all.stderr);
    assert_eq!(all.steps(&plan).len(), 8);
}

/// Two samples in one micro-batch give the mean over all of their predictions, as two micro-batches of one do.
#[test]
fn the_loss_is_the_mean_over_the_predictions_of_a_step_however_it_is_cut() {
    let (one, apart) = train(&CLEAN, &[]);
    let together = [("\"samples\":1", "\"samples\":2"), ("\"accumulation\":2", "\"accumulation\":1")];
    let (other, together) = train(&CLEAN, &together);
    let (one, other) = (apart.steps(&one), together.steps(&other));
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(&other) {
        let difference = one.loss.unwrap().get() - other.loss.unwrap().get();
        assert!(difference.abs() < 1e-4, "{difference}");
    }
    // A control: completions differ in length, so a mean of means is something else at the first step.
    let mean = |record: usize| {
        let (plan, left) = train(&CLEAN[record..=record], &[("\"epochs\":2", "\"epochs\":1")]);
        left.steps(&plan)[0].loss.unwrap().get()
    };
    let (first, second) = (mean(0), mean(1));
    let (weighted, plain) = ((7.0 * first + 6.0 * second) / 13.0, f64::midpoint(first, second));
    let found = one[0].loss.unwrap().get();
    assert!((found - weighted).abs() < 1e-5 && (plain - weighted).abs() > 1e-5, "{found} {weighted} {plain}");
}

#[test]
fn records_go_on_bit_for_bit_from_a_snapshot_in_a_new_process_and_z_loss_knows_what_is_predicted() {
    let z_loss = [("\"z_loss\":0.0", "\"z_loss\":0.1")];
    let plan = plan(&CLEAN, &z_loss);
    let each = Cadence { every: Some(1), keep: None, last: false };
    let straight = desk(&plan, &CLEAN).train_part(&plan, None, &each, None);
    assert_eq!(straight.code, Some(0), "{}", straight.stderr);
    let resumed = desk(&plan, &CLEAN).train_part(&plan, None, &each, Some(&straight.shot(&plan, 3)));
    assert_eq!(resumed.told(), straight.told()[3..]);
    // A longer context fills records up further and changes no loss, with the z-loss or without.
    let first = |changes: &[(&str, &str)]| {
        let (plan, left) = train(&CLEAN, changes);
        left.steps(&plan)[0].loss.unwrap().get()
    };
    let wide = ("\"context\":16", "\"context\":20");
    let same = first(&[z_loss[0]]) - first(&[z_loss[0], wide]);
    let more = first(&[z_loss[0]]) - first(&[]);
    // Positions are drawn with the context, so the weights are not the same to the bit.
    assert!(same.abs() < 0.05 && more > 1.0, "{same} {more}");
}

/// Measures trained parameters on held-out records.
pub fn measured(trained: &Plan, weights: &[u8], records: &[(&str, &str)]) -> Left {
    let dataset = dataset(&file(records));
    let spec = Spec {
        name: Name::new("held-out").unwrap(),
        evaluator: Evaluator::NextToken { batch: 3, resamples: 200, confidence: Finite::new(0.9).unwrap() },
        parameters: Parameters::Trained,
        data: HeldOut { dataset: dataset.id(), split: Name::new("train").unwrap() },
        slices: Slices::None,
        leakage: Leakage { minimum_bytes: 4, shared: Shared::Refuse },
        seed: 1,
    };
    let candidate = trained.native().unwrap().clone();
    let mut comparison = Comparison::new(&spec);
    comparison.held_out(file(records).as_bytes(), []);
    let path = RelativePath::new("records.jsonl").unwrap();
    let found = Found {
        subject: Subject {
            bundle: Digest::of(b"bundle"),
            run: Digest::of(b"run"),
            candidate: fingerprint::candidate(&candidate),
            name: candidate.name.clone(),
            seed: trained.seed,
            weights: Digest::of(weights),
        },
        weights_bytes: weights.len() as u64,
        tokenizer_bytes: 0,
        parts: vec![Part { path, tokens: records.len() as u64 }],
        overlap: comparison.overlap(),
        fitted: Vec::new(),
        base: Vec::new(),
    };
    let plan = compile_evaluation(spec, candidate, dataset, trained.intent.clone(), found).unwrap();
    let desk = desk(&plan, records);
    desk.give(weights);
    desk.evaluate(&plan)
}

const HELD_OUT: [(&str, &str); 4] = [("gull", " wing"), ("harpoon", " barb"), ("", "a text"), ("line", " tub")];

#[test]
fn held_out_records_are_measured_on_their_completions_and_one_without_any_is_an_error() {
    let (plan, left) = train(&CLEAN, &[]);
    let weights = left.output("model/model.safetensors");
    let left = measured(&plan, &weights, &HELD_OUT);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let text = String::from_utf8(left.output(SAMPLES)).unwrap();
    let read =
        |line: &str| Window::read(&parse(line.as_bytes()).unwrap(), "", &mut xt_core::fault::Faults::new()).unwrap();
    let windows: Vec<Window> = text.lines().map(read).collect();
    assert_eq!(windows.iter().map(|window| window.tokens).collect::<Vec<_>>(), [6, 6, 6, 5]);
    let metrics: Vec<Measure> = Metrics::decode(&parse(&left.output(METRICS)).unwrap()).unwrap().metrics;
    let loss = metrics.iter().find(|measure| measure.name == "loss").unwrap();
    let mean = windows.iter().map(|window| window.loss.get()).sum::<f64>()
        / windows.iter().map(|window| window.tokens as f64).sum::<f64>();
    assert!((loss.value.get() - mean).abs() < 1e-12 && loss.sample_count == 4);
    let mut masked = HELD_OUT;
    masked[1] = (LONG, " lost");
    let left = measured(&plan, &weights, &masked);
    assert_eq!(left.code, Some(1), "{}", left.stderr);
    assert!(left.failure().contains("sample 1 has no token that is predicted"), "{}", left.failure());
    assert!(!left.wrote(METRICS) && !left.wrote(SAMPLES));
}
