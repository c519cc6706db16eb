//! The tools with the true worker, in custody, from data to decision: five seeds that end in a recorded decision, and runs
//! that became non-finite, which end in HOLD and in no bundle.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_core::canonical::{Value, parse, parse_all};
use xt_harness::{Folder, Outcome, programs};

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"tiny",
    "model":{"kind":"gpt","layers":1,"heads":1,"width":8,"inner":16,"context":16,"vocabulary":256,
        "dropout":0.0,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"records","file":null,"predicted":"completion","end":0,"long":"cut"},
    "data":{"dataset":"DATASET","split":"train","order":"sequential","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"adamw","learning_rate":0.01,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,
        "weight_decay":0.0,"decay":"matrices"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":{"kind":"none"},
    "batching":{"samples":2,"remainder":"keep","accumulation":1,"accumulation_remainder":"flush"},
    "length":{"kind":"steps","steps":12},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

const SPEC: &str = r#"{"schema":"xt.evaluation-spec/1","name":"held-out",
    "evaluator":{"kind":"next-token","batch":2,"resamples":200,"confidence":0.95},
    "parameters":"trained","data":{"dataset":"DATASET","split":"train"},"slices":"none",
    "leakage":{"minimum_bytes":8,"shared":"refuse"},"seed":11}"#;

const OBJECTIVE: &str = r#"{"primary":{"name":"loss","direction":"minimize"},"target":9.0,
    "constraints":[{"name":"accuracy","operator":">=","value":0.0}]}"#;

const TRAINED: [(&str, &str); 8] = [
    ("whale", " spout"),
    ("ship", " mast"),
    ("sea", " wide"),
    ("crew", " men"),
    ("deck", " rope"),
    ("hold", " oil"),
    ("Ahab", " leg"),
    ("sky", " grey"),
];

fn records(all: &[(&str, &str)]) -> String {
    let line =
        |(prompt, completion): &(&str, &str)| format!("{{\"prompt\":\"{prompt}\",\"completion\":\"{completion}\"}}\n");
    all.iter().map(line).collect()
}

/// A folder with a candidate over these records, held-out ones beside them, and a spec; `None` where the tools are not built.
fn world(trained: &[(&str, &str)], changes: &[(&str, &str)]) -> Option<Folder> {
    if !programs().join("xt-decide").is_file() {
        println!("not run here: the tools are not built");
        return None;
    }
    let folder = Folder::new();
    folder.write("train/a.jsonl", records(trained));
    folder.write("held/b.jsonl", records(&[("gull", " wing"), ("harpoon", " barb"), ("line", " tub")]));
    folder.write("objective.json", OBJECTIVE);
    let id = |name: &str| folder.xt("compile").args(["dataset", "--format", "jsonl", name]).run().expect(0).text("/id");
    let mut candidate = CANDIDATE.replace("DATASET", &id("train"));
    for (from, to) in changes {
        assert!(candidate.contains(from), "{from}");
        candidate = candidate.replace(from, to);
    }
    folder.write("candidate.json", candidate);
    folder.write("spec.json", SPEC.replace("DATASET", &id("held")));
    Some(folder)
}

fn sh(folder: &Folder, script: &str) -> Outcome {
    folder.sh(script).run()
}

// ---- five seeds ----

const LINE: &str = "xt-log experiment new objective.json --name width > /dev/null
    xt-compile --seed 1..5 candidate.json | xt-run --quiet --experiment width | xt-freeze > bundles.jsonl
    xt-compile evaluate spec.json < bundles.jsonl | xt-run --quiet --experiment width > measured.jsonl";
const DECIDE: &str = "xt-decide context width --every-seed | xt-decide --record";

/// The digests of what was measured and the losses, seed by seed.
fn measured(folder: &Folder) -> Vec<(String, f64)> {
    let all = parse_all(&fs::read(folder.at("measured.jsonl")).unwrap()).unwrap();
    let one = |evaluation: &Value| {
        let Some(Value::List(metrics)) = evaluation.get("metrics") else { panic!("{}", evaluation.canonical()) };
        let loss = metrics.iter().find(|metric| metric.get("name").and_then(Value::as_str) == Some("loss")).unwrap();
        let loss: f64 = loss.get("value").unwrap().canonical().parse().unwrap();
        (evaluation.get("measured").unwrap().canonical(), loss)
    };
    all.iter().map(one).collect()
}

/// The line of the design, with the true worker: train, freeze, measure and decide.
#[test]
fn five_seeds_end_in_a_recorded_decision_and_again_in_the_same_one() {
    let Some(folder) = world(&TRAINED, &[]) else { return };
    sh(&folder, LINE).expect(0);
    let found = measured(&folder);
    assert_eq!(found.len(), 5);
    let different: std::collections::BTreeSet<&String> = found.iter().map(|(digest, _)| digest).collect();
    assert_eq!(different.len(), 5, "seeds differ");
    let first = sh(&folder, DECIDE).expect(0);
    assert_eq!(first.text("/outcome"), "STOP_SUCCEEDED");
    assert!(first.stderr.contains("recorded as event"), "{}", first.stderr);
    // What stands for five seeds is the worst of them, as the evaluations themselves have it.
    let worst = found.iter().map(|(_, loss)| *loss).fold(f64::MIN, f64::max);
    assert!(first.stdout.contains(&format!("{worst:?}")), "{worst}: {}", first.stdout);
    let again = sh(&folder, DECIDE).expect(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.contains("recorded before as event"), "{}", again.stderr);
    sh(&folder, "xt-log rebuild --check").expect(0);
    // In a store of its own everything that was measured comes out again, to the bit, and so does the outcome.
    fs::rename(folder.at(".xt"), folder.at("first")).unwrap();
    for name in ["train", "held"] {
        folder.xt("compile").args(["dataset", "--format", "jsonl", name]).run().expect(0);
    }
    sh(&folder, LINE).expect(0);
    assert_eq!(measured(&folder), found);
    assert_eq!(sh(&folder, DECIDE).expect(0).text("/outcome"), "STOP_SUCCEEDED");
}

// ---- runs that became non-finite ----

/// Trains, and asks for a report and for a bundle.
fn report(folder: &Folder) -> (Outcome, Outcome) {
    let run = sh(folder, "xt-compile candidate.json | xt-run --quiet > run.json");
    let report = folder.xt("triage").args(["--run", "run.json"]).run();
    let frozen = folder.xt("freeze").arg("run.json").run();
    assert_eq!(run.code == Some(0), frozen.code == Some(0), "{}{}", run.stderr, frozen.stderr);
    (report, frozen)
}

#[test]
fn a_run_whose_batch_predicts_nothing_is_held_at_the_loss_and_freezes_no_bundle() {
    let mut masked = TRAINED;
    (masked[4], masked[5]) = (("a prompt that fills it", " lost"), ("another that fills it", " lost"));
    let Some(folder) = world(&masked, &[]) else { return };
    let (report, frozen) = report(&folder);
    let report = report.expect(1);
    let text = |pointer: &str| report.text(pointer);
    assert_eq!((text("/decision"), text("/earliest_nonfinite_stage")), ("HOLD".into(), "loss".into()));
    assert_eq!(text("/action"), "hold-and-inspect-objective-reduction");
    assert_eq!(report.document().pointer("/recorded/first_nonfinite_step"), Some(&3u64.into()));
    assert!(frozen.code == Some(15) && frozen.stdout.is_empty(), "{frozen:?}");
    // The clean control goes on, and freezes.
    let Some(clean) = world(&TRAINED, &[]) else { return };
    let (report, frozen) = self::report(&clean);
    assert_eq!(report.expect(0).text("/decision"), "CONTINUE_BOUNDED_DIAGNOSTICS");
    frozen.expect(0);
    // A held-out record of which nothing is predicted is refused before anything is measured.
    clean.sh("xt-freeze run.json > bundle.json").run().expect(0);
    clean.write("held/b.jsonl", records(&[("gull", " wing"), ("a prompt that fills it", " lost")]));
    let held = clean.xt("compile").args(["dataset", "--format", "jsonl", "held"]).run().expect(0).text("/id");
    clean.write("spec.json", SPEC.replace("DATASET", &held));
    let refused = clean.xt("compile").args(["evaluate", "spec.json", "bundle.json"]).run().expect(10);
    assert!(refused.stderr.contains("evaluation.masked") && refused.stderr.contains("record 2"), "{}", refused.stderr);
}

/// In binary32 the same candidate is clean.
#[test]
fn a_run_that_leaves_binary16_is_held_at_the_forward_stage_and_freezes_no_bundle() {
    let large = [("\"initializer_range\":0.02", "\"initializer_range\":10"), ("\"inner\":16", "\"inner\":65536")];
    let half = ("\"precision\":\"float32\"", "\"precision\":\"float16\"");
    let Some(folder) = world(&TRAINED, &[large[0], large[1], half]) else { return };
    let (report, frozen) = report(&folder);
    let report = report.expect(1);
    assert_eq!(report.text("/earliest_nonfinite_stage"), "forward");
    let first = report.document().pointer("/recorded/first_nonfinite_step").and_then(number).unwrap();
    assert!(first <= 2, "{first}");
    assert!(frozen.code == Some(15) && frozen.stdout.is_empty(), "{frozen:?}");
    let Some(wide) = world(&TRAINED, &large) else { return };
    let (report, frozen) = self::report(&wide);
    assert_eq!(report.expect(0).text("/decision"), "CONTINUE_BOUNDED_DIAGNOSTICS");
    frozen.expect(0);
}

#[test]
fn a_rate_that_explodes_is_held_and_an_ordinary_one_goes_on() {
    let recipe = "{\"kind\":\"adamw\",\"learning_rate\":0.01,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.0,\"decay\":\"matrices\"}";
    let exploding = "{\"kind\":\"sgd\",\"learning_rate\":1000,\"momentum\":0,\"nesterov\":false,\"weight_decay\":10,\"decay\":\"all\"}";
    let long = ("\"steps\":12", "\"steps\":30");
    let Some(folder) = world(&TRAINED, &[(recipe, exploding), long]) else { return };
    let (report, frozen) = report(&folder);
    let report = report.expect(1);
    assert_eq!(report.text("/earliest_nonfinite_stage"), "forward");
    assert_eq!(report.document().pointer("/recorded/status"), Some(&Value::String("held".into())));
    assert_eq!(frozen.code, Some(15));
}

/// The report on a document that no tool wrote is refused; so the reports above are about these runs.
#[test]
fn a_record_that_the_store_does_not_hold_has_no_report() {
    let Some(folder) = world(&TRAINED, &[]) else { return };
    sh(&folder, "xt-compile candidate.json | xt-run --quiet > run.json").expect(0);
    let run = fs::read_to_string(folder.at("run.json")).unwrap();
    let Value::Object(mut members) = parse(run.as_bytes()).unwrap() else { panic!() };
    members.remove("id");
    members.insert("attempt".into(), "elsewhere".into());
    folder.write("run.json", Value::Object(members).canonical());
    let refused = folder.xt("triage").args(["--run", "run.json"]).run();
    assert!(refused.code == Some(11) && refused.stdout.is_empty(), "{refused:?}");
}

// ---- module and tensor ----

/// The repetition begins at the last stored state before the step, runs in custody, and leaves a record of its own.
#[test]
fn the_module_and_tensor_of_an_explosion_are_named_by_a_repetition_in_custody() {
    let recipe = "{\"kind\":\"adamw\",\"learning_rate\":0.01,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.0,\"decay\":\"matrices\"}";
    let exploding = "{\"kind\":\"sgd\",\"learning_rate\":1000,\"momentum\":0,\"nesterov\":false,\"weight_decay\":10,\"decay\":\"all\"}";
    let Some(folder) = world(&TRAINED, &[(recipe, exploding), ("\"steps\":12", "\"steps\":30")]) else { return };
    sh(&folder, "xt-compile candidate.json | xt-run --quiet --snapshot-every 2 > run.json").expect(14);
    let plain = folder.xt("triage").args(["--run", "run.json"]).run().expect(1);
    assert_eq!(plain.document().pointer("/recorded/localized"), Some(&Value::Null));
    let found = folder.xt("triage").args(["--localize", "run.json"]).run().expect(1);
    let text = |pointer: &str| found.text(pointer);
    assert_eq!(text("/earliest_nonfinite_stage"), text("/recorded/localized/first/stage"));
    let step = found.document().pointer("/recorded/first_nonfinite_step").and_then(number).unwrap();
    let from = found.document().pointer("/recorded/localized/from").and_then(number).unwrap();
    assert!(from > 0 && from < step && step - from <= 2, "{from} {step}");
    let place = text("/recorded/localized/first/module");
    assert!(found.stderr.contains(&format!("in module {place}: forward,")), "{}", found.stderr);
    let counted = found.document().pointer("/recorded/stages/1/tensors/0").and_then(Value::as_str).unwrap().to_string();
    assert!(place.starts_with(&counted), "{place} {counted}");
    // The record of the repetition is in the store: another mode, the same plan, full isolation.
    let replayed = text("/recorded/localized/replayed");
    let record = folder.xt("store").args(["get", &replayed]).run().expect(0);
    assert_eq!((record.text("/mode"), record.text("/plan")), ("localization".into(), text("/recorded/plan")));
    assert_ne!(record.document().pointer("/custody"), Some(&Value::Null));
    // Beyond what was localized, the report is the same.
    let whole = |outcome: &Outcome| {
        let Value::Object(mut members) = outcome.document() else { panic!() };
        members.remove("id");
        if let Some(Value::Object(recorded)) = members.get_mut("recorded") {
            recorded.remove("localized");
        }
        Value::Object(members)
    };
    assert_eq!(whole(&plain), whole(&found));
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Integer(number) = value { number.to_u64() } else { None }
}

#[test]
fn a_clean_run_says_that_there_is_nothing_to_localize_and_repeats_nothing() {
    let Some(folder) = world(&TRAINED, &[]) else { return };
    sh(&folder, "xt-compile candidate.json | xt-run --quiet > run.json").expect(0);
    let events = || sh(&folder, "xt-log events | wc -l").expect(0).stdout;
    let before = events();
    let clean = folder.xt("triage").args(["--localize", "run.json"]).run().expect(0);
    assert_eq!(clean.text("/decision"), "CONTINUE_BOUNDED_DIAGNOSTICS");
    assert!(clean.stderr.contains("there is nothing to localize"), "{}", clean.stderr);
    assert_eq!(clean.document().pointer("/recorded/localized"), Some(&Value::Null));
    assert_eq!(events(), before, "nothing ran");
    // A run record without a flag is no incident, and the message says which flag it needs.
    let hinted = folder.xt("triage").arg("run.json").run().expect(10);
    assert!(hinted.stderr.contains("xt-triage --run FILE"), "{}", hinted.stderr);
}
