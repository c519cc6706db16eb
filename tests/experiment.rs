//! How runs come to belong to an experiment: by what their plan was compiled for, or by what is said when they are run.
//! Programs that do nothing are run, so that no worker is needed.
#![allow(clippy::unwrap_used)]

use xt_core::canonical::Value;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_harness::{Folder, Outcome};

/// A program that does nothing. `NAME` is not part of what makes it the hypothesis that it is; `RATE` is.
const NOTHING: &str = r#"{"schema":"xt.candidate/1","name":"nothing",
    "trainer":{"kind":"command","executable":"/bin/true","arguments":[],"environment":{},"roots":[],"files":{},"threads":1},
    "parameters":{"rate":RATE},"data":null,"steps":null,"regime":"exact"}"#;

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("candidate.json", NOTHING.replace("RATE", "0.5"));
    folder.write("other.json", NOTHING.replace("RATE", "0.25"));
    folder
}

#[track_caller]
fn plan(outcome: Outcome) -> Plan {
    Plan::decode(&outcome.expect(0).document()).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The experiments of all attempts, in the order of creation.
fn experiments(folder: &Folder) -> Vec<String> {
    let rows = folder.xt("log").arg("status").run().expect(0).documents();
    rows.iter().map(|row| row.get("experiment").and_then(Value::as_str).unwrap().to_string()).collect()
}

#[track_caller]
fn refused(outcome: &Outcome, code: i32, word: &str) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{}", outcome.stderr);
    assert!(outcome.stderr.contains(&format!("error[{word}]")), "{}", outcome.stderr);
}

#[test]
fn runs_are_counted_under_the_experiment_that_their_plan_was_compiled_for() {
    let folder = folder();
    folder.sh("xt-compile --experiment width candidate.json | xt-run").run().expect(0);
    folder.sh("xt-compile other.json | xt-run").run().expect(0);
    assert_eq!(experiments(&folder), ["width", "default"], "the second is the control");
    let quiet = folder.xt("log").args(["wait", "width"]).run().expect(0);
    assert_eq!(quiet.document().pointer("/nodes/0/state").and_then(Value::as_str), Some("active"));
    let events = folder.xt("log").arg("events").run().expect(0).documents();
    let kinds: Vec<&str> = events.iter().map(|event| event.get("kind").and_then(Value::as_str).unwrap()).collect();
    let first = ["experiment.created", "node.created", "node.planned", "node.compiled", "node.ready", "run.created"];
    assert_eq!(kinds[..6], first, "what it is for is in the record before anything is asked for");
    folder.xt("log").args(["rebuild", "--check"]).run().expect(0);
}

#[test]
fn a_plan_is_the_same_whatever_it_is_for_and_the_store_is_touched_only_when_it_is_for_something() {
    let folder = folder();
    let compile = |arguments: &[&str]| folder.xt("compile").args(arguments).arg("candidate.json").run().expect(0);
    let plain = compile(&[]);
    assert!(!folder.at(".xt").exists());
    assert_eq!(compile(&["--experiment", "width"]).stdout, plain.stdout);
    assert!(folder.at(".xt/record.db").exists());
    assert_eq!(compile(&["--experiment", "depth"]).stdout, plain.stdout);
    assert_ne!(compile(&["--experiment", "depth", "--seed", "1"]).stdout, plain.stdout, "the control");
    // Compiling again notes nothing new.
    let events = || folder.xt("log").arg("events").run().expect(0).documents().len();
    let before = events();
    compile(&["--experiment", "width"]);
    assert_eq!(events(), before);
}

#[test]
fn a_plan_that_is_for_two_experiments_is_run_for_the_one_that_is_named() {
    let folder = folder();
    let text = folder.xt("compile").args(["--experiment", "width", "candidate.json"]).run().expect(0).stdout;
    folder.xt("compile").args(["--experiment", "depth", "candidate.json"]).run().expect(0);
    let ambiguous = folder.xt("run").input(text.clone()).run();
    refused(&ambiguous, 10, "experiment.ambiguous");
    assert!(ambiguous.stderr.contains("width, depth") && ambiguous.stderr.contains("--experiment"));
    folder.xt("run").args(["--experiment", "depth"]).input(text.clone()).run().expect(0);
    // One that has ended does not count.
    folder.xt("log").args(["cancel", "width"]).run().expect(0);
    folder.xt("run").input(text).run().expect(0);
    assert_eq!(experiments(&folder), ["depth", "depth"]);
}

#[test]
fn an_experiment_that_has_ended_takes_no_plans() {
    let folder = folder();
    folder.xt("compile").args(["--experiment", "width", "candidate.json"]).run().expect(0);
    folder.xt("log").args(["cancel", "width"]).run().expect(0);
    let compile = |file: &str| folder.xt("compile").args(["--experiment", "width", file]).run();
    refused(&compile("other.json"), 12, "record.closed");
    let plain = folder.xt("compile").arg("candidate.json").run().expect(0).stdout;
    let outcome = folder.xt("run").input(plain).run();
    refused(&outcome, 12, "record.closed");
    assert!(outcome.stderr.contains("--experiment"), "it says what to do: {}", outcome.stderr);
    assert!(experiments(&folder).is_empty());
}

#[test]
fn an_experiment_with_an_objective_is_found_by_its_id() {
    let folder = folder();
    let objective = r#"{"primary":{"name":"eval_loss","direction":"minimize"},"target":0.5,"constraints":[]}"#;
    folder.write("objective.json", objective);
    let id = folder.xt("log").args(["experiment", "new", "objective.json"]).run().expect(0).text("/experiment");
    assert!(id.starts_with("exp-"), "{id}");
    folder.sh(&format!("xt-compile --seed 1..2 --experiment {id} candidate.json | xt-run")).run().expect(0);
    assert_eq!(experiments(&folder), [id.clone(), id.clone()]);
    let found = folder.xt("log").args(["wait", &id]).run().expect(0);
    assert!(found.text("/objective").contains("eval_loss"), "it was made before, and not again");
}

#[test]
fn an_experiment_that_is_named_by_an_id_must_be_there() {
    let folder = folder();
    for id in [format!("sha256:{}", "0".repeat(64)).as_str(), "exp-0123456789ab"] {
        let compiled = folder.xt("compile").args(["--experiment", id, "candidate.json"]).run();
        refused(&compiled, 10, "record.unknown");
        let plan = folder.xt("compile").arg("candidate.json").run().expect(0).stdout;
        refused(&folder.xt("run").args(["--experiment", id]).input(plan).run(), 10, "record.unknown");
    }
    assert_eq!(experiments(&folder), Vec::<String>::new());
    // The control: a name of one's own makes an experiment.
    folder.xt("compile").args(["--experiment", "exp-width", "candidate.json"]).run().expect(0);
}

#[test]
fn an_operation_id_is_one_request_in_one_experiment() {
    let folder = folder();
    let first = folder.xt("compile").arg("candidate.json").run().expect(0).stdout;
    let second = folder.xt("compile").arg("other.json").run().expect(0).stdout;
    let run = |arguments: &[&str], plan: &str| {
        folder.xt("run").args(["--operation-id", "op-a"]).args(arguments).input(plan).run()
    };
    let record = run(&["--experiment", "width"], &first).expect(0).stdout;
    // Whoever names no experiment asks for the run that the id stands for.
    assert_eq!(run(&[], &first).expect(0).stdout, record);
    assert_eq!(run(&["--experiment", "width"], &first).expect(0).stdout, record);
    refused(&run(&["--experiment", "depth"], &first), 12, "operation.elsewhere");
    refused(&run(&["--experiment", "width"], &second), 12, "operation.conflict");
    refused(&run(&[], &second), 12, "operation.conflict");
    assert_eq!(experiments(&folder), ["width"], "nothing else was started");
    let named = plan(folder.xt("compile").args(["--experiment", "depth", "candidate.json"]).run());
    assert_eq!(
        run(&[], &named.encode().canonical()).expect(0).stdout,
        record,
        "the id is stronger than what it is for"
    );
}
