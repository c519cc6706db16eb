//! The crash matrix for requests that ask for more than a plan: states to be kept, a start at a stored state, a last step.
//! Whatever step `kill -9` comes at, the record alone says all that was asked for, and that is what is carried out.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/scene.rs"]
mod scene;

use bench::Ended;
use scene::{Scene, has_strace, was_killed};
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::snapshot::Cadence;
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_record::Attempt;

const XT_RUN: &str = env!("CARGO_BIN_EXE_xt-run");
const XT_REPLAY: &str = env!("CARGO_BIN_EXE_xt-replay");

/// The run of the only attempt that was not there `before`.
#[track_caller]
fn settled(scene: &Scene, before: &[Attempt], point: usize) -> (Run, AttemptState) {
    let new = || {
        let mut attempts = scene.bench.record().attempts().unwrap();
        attempts.retain(|attempt| before.iter().all(|known| known.id != attempt.id));
        attempts
    };
    // A replay is counted under an experiment of its own.
    let waited = scene.log(&["wait", new()[0].experiment.as_str(), "--timeout", "60"]);
    assert_eq!(waited.status.code(), Some(0), "point {point}: {waited:?}");
    let attempts = new();
    assert_eq!(attempts.len(), 1, "point {point}: {attempts:?}");
    let state = attempts[0].state;
    assert!(state.is_terminal(), "point {point}: {state}");
    let checked = scene.log(&["rebuild", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "point {point}: {}", String::from_utf8_lossy(&checked.stdout));
    (scene.bench.store().manifest(attempts[0].run_record.unwrap()).unwrap(), state)
}

/// What is killed: a tool and its arguments, once what it needs is there.
struct Asking {
    program: &'static str,
    arguments: Vec<String>,
}

/// Kills the tool that `prepare` gives before each of its calls, and has `check` look at the run that came of it. What was
/// never recorded is asked for again, as somebody does who got no answer.
fn every_step(name: &str, prepare: impl Fn(&Scene) -> Option<Asking>, check: impl Fn(&Run)) -> usize {
    // What is to be stopped half way may come to its end first on a busy machine: then it is tried again.
    let ready = || {
        let tried = (0..20).find_map(|_| {
            let scene = Scene::new("slow 10", 12);
            prepare(&scene).map(|asking| (scene, asking))
        });
        tried.unwrap()
    };
    let (scene, Asking { program, arguments }) = ready();
    let calls = scene.calls(program, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut points, mut by_reconciling) = (0, 0);
    for (point, call) in calls.iter().enumerate() {
        let (scene, Asking { program, arguments }) = ready();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (before, started) = (scene.bench.record().attempts().unwrap(), scene.starts());
        let output = scene.killed_at(program, &arguments, call);
        if !was_killed(&output) {
            // It looks more or less often, as the machine goes.
            assert!(output.status.success(), "{call:?}: {output:?}");
            continue;
        }
        let known = scene.bench.record().attempts().unwrap();
        let unclaimed = known.iter().any(|attempt| attempt.process.is_none());
        if known.len() > before.len() {
            scene.reconcile();
        } else {
            let again = scene.tool(program, &arguments);
            assert!(again.status.success(), "{again:?}");
        }
        let (run, state) = settled(&scene, &before, point);
        assert_eq!((state, scene.starts() - started), (AttemptState::Succeeded, 1), "{call:?}: {}", run.cause);
        check(&run);
        (points, by_reconciling) = (points + 1, by_reconciling + usize::from(unclaimed));
    }
    println!(
        "{name}: {points} points, {by_reconciling} of them recorded and without a supervisor; all carried out once"
    );
    assert!(by_reconciling >= 5, "{by_reconciling} of {calls:?}");
    points
}

fn texts(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_string()).collect()
}

fn worker(scene: &Scene) -> &str {
    scene.worker.to_str().unwrap()
}

#[test]
fn a_client_killed_while_it_asks_for_states_to_be_kept_gets_them_kept() {
    if !has_strace() {
        return;
    }
    let prepare = |scene: &Scene| {
        let plan = scene.bench.path("plan.json");
        let arguments = ["--detach", "--operation-id", "op-a", "--snapshot-every", "4", "--snapshot-keep", "2"];
        Some(Asking { program: XT_RUN, arguments: texts(&[&arguments[..], &[plan.to_str().unwrap()]].concat()) })
    };
    let points = every_step("states to be kept, client killed", prepare, |run| {
        assert_eq!(run.cadence, Cadence { every: Some(4), keep: Some(2), last: false });
        assert_eq!(run.snapshots.iter().map(|taken| taken.step).collect::<Vec<_>>(), [8, 12]);
    });
    assert!(points >= 10, "{points}");
}

/// A run of the scene that kept its states, in the foreground.
fn ran(scene: &Scene) -> Run {
    let plan = scene.bench.path("plan.json");
    let arguments = ["--worker", worker(scene), "--snapshot-every", "4", plan.to_str().unwrap()];
    Ended::of(scene.bench.xt_run(&arguments).output().unwrap()).run(Status::Succeeded, 0)
}

#[test]
fn a_client_killed_while_it_asks_to_go_on_goes_on_from_the_same_state() {
    if !has_strace() {
        return;
    }
    let prepare = |scene: &Scene| {
        let plan = scene.bench.path("plan.json");
        let arguments = ["--detach", "--worker", worker(scene), "--snapshot-every", "4", plan.to_str().unwrap()];
        let output = scene.bench.xt_run(&arguments).output().unwrap();
        let attempt = String::from_utf8(output.stdout).unwrap().trim().to_string();
        bench::wait_for("the first state", || {
            let name = xt_core::name::Name::new(&attempt).unwrap();
            (scene.bench.telemetry(&name) >= 6).then_some(())
        });
        let ended = scene.bench.xt_run(&["--cancel", &attempt]).output().unwrap();
        let asking = || Asking { program: XT_RUN, arguments: texts(&["--detach", "--resume", &attempt]) };
        ended.status.success().then(asking)
    };
    let points = every_step("going on, client killed", prepare, |run| {
        let start = run.start.clone().unwrap();
        assert!(start.step >= 4 && start.step < 12, "{start:?}");
        assert_eq!((run.progress.steps, run.trace.as_ref().unwrap().steps), (12, 12));
    });
    assert!(points >= 10, "{points}");
}

#[test]
fn a_replay_killed_while_it_asks_for_a_part_has_asked_for_that_part() {
    if !has_strace() {
        return;
    }
    let prepare = |scene: &Scene| {
        let id = ran(scene).id().to_string();
        Some(Asking { program: XT_REPLAY, arguments: texts(&["--from", "4", "--to", "9", &id]) })
    };
    let points = every_step("part of a replay, client killed", prepare, |run| {
        assert_eq!((run.mode, run.progress.planned), (Mode::Replay, 9));
        assert_eq!((run.start.as_ref().unwrap().step, run.progress.steps), (4, 9));
    });
    assert!(points >= 10, "{points}");
}

/// The control: what was not recorded cannot be carried out. A record without the scope sends nothing.
#[test]
fn a_record_that_has_lost_what_was_asked_for_beside_the_plan_is_left_to_a_person() {
    let scene = Scene::new("", 6);
    let request = xt_runtime::Request::new(scene.plan.clone(), xt_core::name::Name::new("default").unwrap());
    let request = xt_runtime::Request { cadence: Cadence { every: Some(2), keep: None, last: false }, ..request };
    scene.bench.intend_request(&request, "op-a");
    let raw = rusqlite::Connection::open(scene.bench.store().record_path()).unwrap();
    raw.execute("UPDATE attempt SET scope = NULL", []).unwrap();
    let found = scene.log(&["reconcile"]);
    assert_eq!(found.status.code(), Some(3), "{found:?}");
    assert!(String::from_utf8_lossy(&found.stdout).contains("request-differs"));
    assert!(scene.log(&["rebuild"]).status.success(), "the log has it still");
    let found = scene.log(&["reconcile"]);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let (run, _) = settled(&scene, &[], 0);
    assert_eq!(run.snapshots.iter().map(|taken| taken.step).collect::<Vec<_>>(), [2, 4, 6]);
}
