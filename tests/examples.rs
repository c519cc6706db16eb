//! The examples on tables and images, from real data to the replay: one command each.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use xt_core::canonical::{Value, parse_all};
use xt_harness::Folder;

/// Runs the demo of an example; `None` when it cannot run here, with the reason printed.
fn demo(name: &str, data: &str, file: &str) -> Option<Folder> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Folder::new();
    if !xt_harness::programs().join("xt-train").is_file() {
        println!("not run here: xt-train is not built");
        return None;
    }
    let fetch = format!("python3 \"$ROOT/examples/fetch.py\" {data} \"$ROOT/.data/{file}\"");
    let fetched = folder.sh(&fetch).env("ROOT", root).run();
    if fetched.code != Some(0) {
        println!("not run here: the data cannot be fetched: {}", fetched.stderr.lines().last().unwrap_or_default());
        return None;
    }
    folder.sh(&format!("\"$ROOT/examples/{name}/demo\" \"$PWD/demo\"")).env("ROOT", root).run().expect(0);
    Some(folder)
}

fn documents(folder: &Folder, name: &str) -> Vec<Value> {
    parse_all(&fs::read(folder.at(format!("demo/{name}.json"))).unwrap()).unwrap()
}

/// The metric over everything.
fn metric(folder: &Folder, name: &str) -> f64 {
    let all = documents(folder, "evaluation");
    let evaluation = all.iter().find(|one| one.get("metrics").is_some()).unwrap();
    let Value::List(metrics) = evaluation.get("metrics").unwrap() else { panic!() };
    let whole =
        |one: &&Value| one.get("name").and_then(Value::as_str) == Some(name) && one.get("slice") == Some(&Value::Null);
    metrics.iter().find(whole).unwrap().get("value").unwrap().canonical().parse().unwrap()
}

fn assert_replayed(folder: &Folder) {
    let replay = documents(folder, "replay").remove(0);
    assert_eq!(replay.get("outcome").and_then(Value::as_str), Some("equal"));
    assert_eq!(replay.get("equal_steps"), replay.get("steps"));
}

#[test]
fn the_digits_are_told_apart_by_the_frozen_model_and_the_run_replays_bit_for_bit() {
    let Some(folder) = demo("digits", "digits", "digits.csv.gz") else { return };
    let accuracy = metric(&folder, "accuracy");
    assert!((0.97..1.0).contains(&accuracy), "{accuracy}");
    assert!(metric(&folder, "f1") > 0.96 && metric(&folder, "calibration_error") < 0.1);
    assert_replayed(&folder);
}

/// Adapters and a head beside a pretrained encoder; without the base there would be no model.
#[test]
fn spam_is_told_by_adapters_on_a_base_and_the_run_replays_bit_for_bit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let minilm = Folder::new()
        .sh("python3 \"$ROOT/examples/fetch.py\" minilm \"$ROOT/.data/minilm.whl\"")
        .env("ROOT", root)
        .run();
    if minilm.code != Some(0) {
        println!("not run here: the base cannot be fetched: {}", minilm.stderr.lines().last().unwrap_or_default());
        return;
    }
    let Some(folder) = demo("spam", "spam-assassin", "spam-assassin.tgz") else { return };
    let accuracy = metric(&folder, "accuracy");
    assert!((0.8..1.0).contains(&accuracy), "{accuracy}");
    assert_replayed(&folder);
}

#[test]
fn visits_are_estimated_better_than_by_their_mean_and_the_run_replays_bit_for_bit() {
    let Some(folder) = demo("visits", "randhie", "randhie.csv") else { return };
    let explained = metric(&folder, "r2");
    assert!((0.01..0.5).contains(&explained), "{explained}");
    assert!(metric(&folder, "mae") > 0.0);
    assert_replayed(&folder);
}

#[test]
fn a_python_program_measures_the_frozen_means_and_the_record_decides() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), Folder::new());
    if folder.sh("command -v python3").run().code != Some(0) {
        println!("not run here: there is no python3");
        return;
    }
    folder.sh("\"$ROOT/examples/python-measure/demo\" \"$PWD/demo\"").env("ROOT", root).run().expect(0);
    let accuracy = metric(&folder, "accuracy");
    assert!((0.85..1.0).contains(&accuracy), "{accuracy}");
    let decision = documents(&folder, "decision").remove(0);
    assert_eq!(decision.get("outcome").and_then(Value::as_str), Some("STOP_SUCCEEDED"));
}
