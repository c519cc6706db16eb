//! The verbs of `xt-log` that do something, and those that tell: experiments, waiting, cancelling, reconciling, stories.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::process::{Command, Output, Stdio};

use bench::{Bench, Ended, member};
use xt_core::canonical::{Value, parse_all};
use xt_core::field::Manifest as _;
use xt_core::manifest::run::Status;
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;

fn log(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-log"));
    command.args(arguments).env_clear().env("XT_STORE", bench.store_path());
    command.env("XT_TRAIN", env!("CARGO_BIN_EXE_xt-stand-in")).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn documents(output: &Output, code: i32) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    parse_all(&output.stdout).unwrap()
}

/// The code word of a refusal.
#[track_caller]
fn word(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(code), &b""[..]), "{stderr}");
    stderr.split_once("error[").and_then(|(_, rest)| rest.split_once(']')).unwrap().0.to_string()
}

const OBJECTIVE: &str = r#"{"primary":{"name":"eval_loss","direction":"minimize"},"target":0.5,"constraints":[]}"#;

#[test]
fn an_experiment_has_the_objective_it_was_made_with_and_no_other() {
    let bench = Bench::new();
    fs::write(bench.path("o.json"), OBJECTIVE).unwrap();
    fs::write(bench.path("other.json"), OBJECTIVE.replace("0.5", "0.6")).unwrap();
    fs::write(bench.path("bad.json"), OBJECTIVE.replace("minimize", "least")).unwrap();
    let [given, other, bad] = ["o.json", "other.json", "bad.json"].map(|name| bench.path(name));
    let new = |file: &std::path::Path| log(&bench, &["experiment", "new", file.to_str().unwrap(), "--name", "width"]);
    assert_eq!(word(&new(&bad), 10), "input.refused");
    let made = documents(&new(&given), 0).remove(0);
    assert_eq!((member(&made, "/experiment"), member(&made, "/status")), ("width", "created"));
    assert!(member(&made, "/objective").contains("eval_loss"));
    assert_eq!(documents(&new(&given), 0).remove(0), made, "the same again changes nothing");
    assert_eq!(word(&new(&other), 12), "experiment.objective");
    let unnamed = documents(&log(&bench, &["experiment", "new", given.to_str().unwrap()]), 0).remove(0);
    assert!(member(&unnamed, "/experiment").starts_with("exp-"));
    bench.run(&bench.plan("", 3), &["--experiment", "width"]).run(Status::Succeeded, 0);
    let waited = documents(&log(&bench, &["wait", "width"]), 0).remove(0);
    assert_eq!((member(&waited, "/status"), member(&waited, "/next_stage")), ("active", "evaluation"));
}

#[test]
fn waiting_ends_when_nothing_moves_and_says_what_would_move_it_on() {
    let bench = Bench::new();
    bench.detach(&bench.plan("slow 20", 20), &[]);
    let early = documents(&log(&bench, &["wait", "default", "--timeout", "0"]), 75).remove(0);
    assert_eq!((early.get("quiescent"), early.get("next_stage")), (Some(&Value::Bool(false)), Some(&Value::Null)));
    let quiet = documents(&log(&bench, &["wait", "default"]), 0).remove(0);
    assert_eq!(quiet.get("quiescent"), Some(&Value::Bool(true)));
    assert_eq!(member(&quiet, "/next_stage"), "evaluation");
    assert_eq!(member(&quiet, "/nodes/0/runs/0/attempts/0/state"), "succeeded");
    bench.run(&bench.plan("crash 2", 3), &["--experiment", "broken"]).run(Status::Failed, 14);
    let broken = documents(&log(&bench, &["wait", "broken"]), 0).remove(0);
    assert_eq!(member(&broken, "/next_stage"), "failure-handling");
    assert_eq!(word(&log(&bench, &["wait", "nobody"]), 10), "record.unknown");
}

#[test]
fn cancelling_an_experiment_stops_all_of_its_work_and_none_of_others() {
    let bench = Bench::new();
    let mine: Vec<Name> = [1, 2].map(|_| bench.detach(&bench.plan("slow 20", 3000), &["--experiment", "mine"])).into();
    let other = bench.detach(&bench.plan("slow 20", 3000), &["--experiment", "other"]);
    let action = documents(&log(&bench, &["cancel", "mine"]), 0).remove(0);
    assert_eq!(member(&action, "/level"), "experiment");
    let Some(Value::List(operations)) = action.get("operations") else { panic!("{action:?}") };
    assert_eq!(operations.len(), 2, "one for each attempt that is alive");
    let quiet = documents(&log(&bench, &["wait", "mine"]), 0).remove(0);
    assert_eq!((member(&quiet, "/status"), quiet.get("next_stage")), ("cancelled", Some(&Value::Null)));
    for attempt in &mine {
        assert_eq!(bench.record().attempt(attempt).unwrap().unwrap().state, AttemptState::Cancelled);
        // What it did is kept: its telemetry as a trace, its logs.
        let ended = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap());
        let run = ended.run(Status::Cancelled, 14);
        assert_eq!(run.cause, "xt-log cancel");
        assert_eq!(run.trace.map(|trace| trace.steps), Some(run.progress.steps).filter(|steps| *steps > 0));
    }
    assert!(matches!(
        bench.record().attempt(&other).unwrap().unwrap().state,
        AttemptState::Running | AttemptState::Starting
    ));
    let events = bench.record().events(0).unwrap().len();
    documents(&log(&bench, &["cancel", "mine"]), 0);
    let shown = documents(&log(&bench, &["show", member(&action, "/action")]), 0).remove(0);
    assert_eq!(member(&shown, "/state"), "done");
    assert!(bench.record().events(0).unwrap().len() <= events + 2, "at most that it came too late");
    let refused = bench.run(&bench.plan("", 3), &["--experiment", "mine"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(12), ""), "{}", refused.stderr);
    documents(&log(&bench, &["cancel", "other"]), 0);
    documents(&log(&bench, &["wait", "other"]), 0);
}

#[test]
fn a_cancel_asked_twice_is_one_action_with_one_operation() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("slow 20", 3000), &[]);
    let children: Vec<_> = (0..6).map(|_| bench.xt_run(&["--cancel", attempt.as_str()]).spawn().unwrap()).collect();
    for child in children {
        Ended::of(child.wait_with_output().unwrap()).run(Status::Cancelled, 0);
    }
    let actions = bench.record().actions().unwrap();
    assert_eq!((actions.len(), actions[0].operations.len()), (1, 1), "{actions:?}");
    assert_eq!(actions[0].state.to_string(), "done");
    let events = bench.record().events(0).unwrap();
    assert!(events.iter().all(|event| !event.kind.as_str().contains("cancelling")));
}

#[test]
fn a_retry_runs_the_same_again_and_is_refused_where_there_is_nothing_to_retry() {
    let bench = Bench::new();
    let first = bench.run(&bench.plan("crash 2", 3), &[]).run(Status::Failed, 14);
    let second =
        Ended::of(bench.xt_run(&["--retry", first.attempt.as_str()]).output().unwrap()).run(Status::Failed, 14);
    assert_ne!((&second.attempt, &second.operation, second.id()), (&first.attempt, &first.operation, first.id()));
    assert_eq!((second.plan, second.request, second.seed), (first.plan, first.request, first.seed));
    let shown = documents(&log(&bench, &["show", second.attempt.as_str()]), 0).remove(0);
    assert_eq!(member(&shown, "/retry_of"), first.attempt.as_str());
    let good = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let refused = bench.xt_run(&["--retry", good.attempt.as_str()]).output().unwrap();
    assert_eq!(word(&refused, 12), "attempt.no-retry");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("it succeeded"));
    let alive = bench.detach(&bench.plan("slow 20", 3000), &[]);
    let refused = bench.xt_run(&["--retry", alive.as_str()]).output().unwrap();
    assert_eq!(word(&refused, 12), "attempt.no-retry");
    Ended::of(bench.xt_run(&["--cancel", alive.as_str()]).output().unwrap()).run(Status::Cancelled, 0);
    let again = bench.xt_run(&["--detach", "--retry", alive.as_str()]).output().unwrap();
    assert!(again.status.success());
    let again = String::from_utf8(again.stdout).unwrap();
    Ended::of(bench.xt_run(&["--cancel", again.trim()]).output().unwrap()).run(Status::Cancelled, 0);
}

#[test]
fn reconciling_hands_over_what_no_runtime_got_and_leaves_to_people_what_is_not_the_same() {
    let bench = Bench::new();
    let attempt = bench.intend(&bench.plan("", 3), "op-a").id;
    let found = documents(&log(&bench, &["reconcile"]), 0);
    assert_eq!(
        (found.len(), member(&found[0], "/found"), member(&found[0], "/attempt")),
        (1, "issued", attempt.as_str())
    );
    documents(&log(&bench, &["wait", "default"]), 0);
    assert_eq!(bench.attempt().state, AttemptState::Succeeded);
    assert_eq!(documents(&log(&bench, &["reconcile"]), 0), [], "nothing is left to do");

    // A record that has come to ask for something else than what was submitted sends nothing.
    let bench = Bench::new();
    bench.intend(&bench.plan("", 3), "op-a");
    let raw = rusqlite::Connection::open(bench.store().record_path()).unwrap();
    let scope = r#"{"cadence":{"every":null,"keep":null,"last":false},"from":null,"mode":"mainline","to_step":2}"#;
    raw.execute("UPDATE attempt SET scope = ?1", [scope]).unwrap();
    let found = documents(&log(&bench, &["reconcile"]), 3).remove(0);
    assert_eq!((member(&found, "/found"), member(&found, "/reason")), ("escalated", "request-differs"));
    assert_eq!(bench.attempt().state, AttemptState::Requested, "nothing was started");
    assert_eq!(documents(&log(&bench, &["wait", "default"]), 3).len(), 1, "and waiting does not hide it");

    // A plan that is gone cannot be run again.
    let bench = Bench::new();
    bench.intend(&bench.plan("", 3), "op-a");
    let raw = rusqlite::Connection::open(bench.store().record_path()).unwrap();
    let nowhere = format!("sha256:{}", "0".repeat(64));
    raw.execute("UPDATE attempt SET plan = ?1", [nowhere]).unwrap();
    let found = documents(&log(&bench, &["reconcile"]), 3).remove(0);
    assert_eq!(member(&found, "/reason"), "plan-missing");
    let checked = documents(&log(&bench, &["rebuild", "--check"]), 1).remove(0);
    assert_eq!(checked.get("identical"), Some(&Value::Bool(false)));
    documents(&log(&bench, &["rebuild"]), 0);
    assert_eq!(documents(&log(&bench, &["rebuild", "--check"]), 0)[0].get("identical"), Some(&Value::Bool(true)));
    assert_eq!(
        member(&documents(&log(&bench, &["reconcile"]), 0)[0], "/found"),
        "issued",
        "what the log says is right"
    );
    documents(&log(&bench, &["wait", "default"]), 0);
}

#[test]
fn a_story_tells_what_ran_on_what_and_how_it_ended_and_makes_nothing_up() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("crash 2", 3), &[]).run(Status::Failed, 14);
    let told = log(&bench, &["why", run.attempt.as_str()]);
    let story = String::from_utf8(told.stdout).unwrap();
    for part in ["candidate \"tiny\"", "seed 7", "3 steps", "isolation was full", "failed", "2 of 3 steps", &run.cause]
    {
        assert!(story.contains(part), "{part}: {story}");
    }
    assert_eq!(story.lines().count(), 1, "one paragraph");
    assert!(story.contains("no network was admitted"), "{story}");
    let waiting = bench.intend(&bench.plan("", 4), "op-a").id;
    let story = String::from_utf8(log(&bench, &["why", waiting.as_str()]).stdout).unwrap();
    assert!(story.contains("It has not begun") && !story.contains("ended"), "{story}");
    for verb in ["why", "status", "show"] {
        assert_eq!(word(&log(&bench, &[verb, "nobody"]), 10), "record.unknown", "{verb}");
    }
    assert_eq!(documents(&log(&bench, &["status", "default"]), 0).len(), 2, "the control");
}

#[test]
fn a_run_is_named_by_its_record_in_a_file_and_a_file_of_something_else_is_nothing() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    bench.run(&bench.plan("", 4), &[]).run(Status::Succeeded, 0);
    let path = bench.store_path().with_file_name("run.json");
    fs::write(&path, run.encode().canonical()).unwrap();
    let file = path.to_str().unwrap();
    for verb in ["status", "show"] {
        let by_file = documents(&log(&bench, &[verb, file]), 0);
        assert_eq!(by_file, documents(&log(&bench, &[verb, run.attempt.as_str()]), 0), "{verb}");
        assert_eq!(by_file.len(), 1, "{verb}: not those of the other run");
    }
    assert_eq!(log(&bench, &["why", file]).stdout, log(&bench, &["why", run.attempt.as_str()]).stdout);
    fs::write(&path, "{}").unwrap();
    assert_eq!(word(&log(&bench, &["why", file]), 10), "record.unknown");
}

#[test]
fn a_status_is_a_table_on_a_terminal_and_json_lines_elsewhere() {
    let bench = Bench::new();
    bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let mut command = Command::new("script");
    let line = format!("'{}' status", env!("CARGO_BIN_EXE_xt-log"));
    command.args(["-qec", &line, "/dev/null"]).env("XT_STORE", bench.store_path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("ATTEMPT") && lines[1].contains("succeeded"), "{text}");
    assert_eq!(documents(&log(&bench, &["status"]), 0).len(), 1);
    assert_eq!(documents(&log(&bench, &["status", "default"]), 0).len(), 1);
}
