//! The crash matrix: `kill -9` of client, supervisor, both, and everything at once, before each system call by which they
//! change the disk or start a process. After `xt-log reconcile` each workload was started once, as it counts itself;
//! nothing claims a success that did not happen; and the record follows from its events. Between two such steps, one
//! moment is different, and has a test of its own: when a process is about to become the workload.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/scene.rs"]
mod scene;

use std::fs;
use std::time::Duration;

use bench::{processes_of, runs, wait_for};
use scene::{Scene, XT_LOG, has_strace, kill_9, matrix, supervisors_on, was_killed};
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_runtime::{Clock, Runtime};

#[test]
fn a_client_killed_at_any_step_of_submitting_leaves_one_workload_or_a_wish_that_is_carried_out() {
    if !has_strace() {
        return;
    }
    let points = matrix("submit, client killed", 1, |point| {
        let scene = Scene::new("", 3);
        let plan = scene.bench.path("plan.json");
        let arguments = ["--detach", "--operation-id", "op-a", plan.to_str().unwrap()];
        let output = scene.tampered(env!("CARGO_BIN_EXE_xt-run"), &arguments, "SIGKILL", point).output().unwrap();
        if !was_killed(&output) {
            assert!(output.status.success(), "{output:?}");
            return None;
        }
        // Nobody asks again: reconciling alone must do, unless the wish was never recorded.
        let recorded = scene.bench.store_path().join("record.db").exists();
        let recorded = recorded && !scene.bench.record().attempts().unwrap().is_empty();
        if recorded {
            scene.reconcile();
        } else {
            scene.ask_again();
        }
        let state = scene.settled(&format!("point {point}"));
        assert_eq!((scene.starts(), state), (1, AttemptState::Succeeded), "point {point}");
        Some(state)
    });
    assert!(points >= 15, "{points}");
}

#[test]
fn a_supervisor_killed_at_any_step_of_a_run_is_replaced_or_its_run_told_as_it_was() {
    if !has_strace() {
        return;
    }
    let mut kept = 0;
    let points = matrix("run, supervisor killed", 1, |point| {
        let scene = Scene::new("", 3);
        let attempt = scene.ordered();
        let mut supervisor = scene.supervisor(&attempt, point);
        let pid = supervisor.stopped()?;
        let held = scene.hold_still(&[pid]);
        supervisor.kill(pid, &[], &held);
        let found = scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        scene.started_once(state, point);
        assert!(matches!(state, AttemptState::Succeeded | AttemptState::Lost), "point {point}: {state}");
        kept += usize::from(found == ["settled"] && state == AttemptState::Succeeded);
        Some(state)
    });
    println!("{kept} of them had ended well, unrecorded, and are recorded as that");
    assert!(points >= 20 && kept > 0, "{points} {kept}");
}

#[test]
fn client_and_supervisor_killed_together_leave_a_run_that_others_settle() {
    if !has_strace() {
        return;
    }
    let points = matrix("run, client and supervisor killed", 3, |point| {
        let scene = Scene::new("", 3);
        let attempt = scene.ordered();
        let mut supervisor = scene.supervisor(&attempt, point);
        let pid = supervisor.stopped()?;
        let mut client = scene.bench.xt_run(&["--attach", attempt.as_str()]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let held = scene.hold_still(&[pid]);
        supervisor.kill(pid, &[client.id()], &held);
        client.wait().unwrap();
        scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        scene.started_once(state, point);
        Some(state)
    });
    assert!(points >= 7, "{points}");
}

#[test]
fn everything_killed_at_once_leaves_a_run_that_others_settle() {
    if !has_strace() {
        return;
    }
    let points = matrix("run, every process killed", 3, |point| {
        let scene = Scene::new("", 3);
        let attempt = scene.ordered();
        let mut supervisor = scene.supervisor(&attempt, point + 1);
        let pid = supervisor.stopped()?;
        let mut client = scene.bench.xt_run(&["--attach", attempt.as_str()]).spawn().unwrap();
        let mut all = scene.hold_still(&[pid]);
        all.push(client.id());
        supervisor.kill(pid, &all, &[]);
        client.wait().unwrap();
        wait_for("the end of all", || all.iter().all(|pid| !runs(*pid)).then_some(()));
        scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        scene.started_once(state, point);
        Some(state)
    });
    assert!(points >= 7, "{points}");
}

/// A run that goes on until it is told to stop, or for a minute should a test fail.
fn hanging() -> Scene {
    Scene::new("slow 20", 3000)
}

fn running(scene: &Scene) -> Name {
    let plan = scene.bench.path("plan.json");
    let arguments = ["--detach", "--operation-id", "op-a", "--worker", scene.worker.to_str().unwrap()];
    let mut command = scene.bench.xt_run(&arguments);
    let output = command.arg(plan).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let attempt = scene.bench.attempt().id;
    wait_for("the run", || scene.under_way(&attempt).then_some(()));
    attempt
}

#[test]
fn a_client_killed_at_any_step_of_cancelling_leaves_a_wish_that_is_carried_out_or_none() {
    if !has_strace() {
        return;
    }
    let points = matrix("cancel, client killed", 1, |point| {
        let scene = hanging();
        let attempt = running(&scene);
        let output =
            scene.tampered(env!("CARGO_BIN_EXE_xt-run"), &["--cancel", attempt.as_str()], "SIGKILL", point).output();
        let met = was_killed(&output.unwrap());
        if met && scene.bench.record().actions().unwrap().is_empty() {
            // The wish was never recorded, so the run goes on, and it can be asked again.
            assert!(!scene.bench.attempt().state.is_terminal());
            assert!(scene.bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap().status.success());
        }
        scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        assert_eq!((scene.starts(), state), (1, AttemptState::Cancelled), "point {point}");
        let actions = scene.bench.record().actions().unwrap();
        assert!(actions.iter().all(|action| action.state.is_terminal()) && actions.len() == 1, "{actions:?}");
        met.then_some(state)
    });
    assert!(points >= 5, "{points}");
}

#[test]
fn a_client_killed_at_any_step_of_cancelling_an_experiment_leaves_it_whole() {
    if !has_strace() {
        return;
    }
    let points = matrix("cancel of an experiment, client killed", 1, |point| {
        let scene = hanging();
        running(&scene);
        let met = was_killed(&scene.tampered(XT_LOG, &["cancel", "default"], "SIGKILL", point).output().unwrap());
        if met && scene.bench.record().actions().unwrap().is_empty() {
            scene.log(&["cancel", "default"]);
        }
        scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        assert_eq!((scene.starts(), state), (1, AttemptState::Cancelled), "point {point}");
        let experiment = scene.bench.record().status().unwrap().experiments.remove(0);
        assert_eq!(experiment.state.to_string(), "cancelled");
        met.then_some(state)
    });
    assert!(points >= 3, "{points}");
}

/// Kills a supervisor before its call number `point`, in a run that is told to stop by `wish` as soon as it runs. Gives
/// what is left, how it ended, and whether the supervisor came to that call.
///
/// Its first calls are those of every run. One that is killed there is replaced, and the other one is told to stop.
fn killed_after(wish: &str, point: usize) -> (Scene, AttemptState, bool) {
    let scene = hanging();
    let attempt = scene.ordered();
    let mut supervisor = scene.supervisor(&attempt, point);
    let ran = wait_for("the run or the stop", || {
        if scene.under_way(&attempt) { Some(true) } else { supervisor.look().map(|_| false) }
    });
    let runtime = Runtime::new(&scene.bench.store_path(), Clock::system()).unwrap();
    if ran {
        let ask = if wish == "--cancel" { Runtime::cancel } else { Runtime::drain };
        ask(&runtime, &attempt, "the test").unwrap();
    }
    let stopped = supervisor.stopped();
    if let Some(pid) = stopped {
        let held = scene.hold_still(&[pid]);
        supervisor.kill(pid, &[], &held);
    } else {
        assert!(!was_killed(&supervisor.ended()));
    }
    scene.reconcile();
    if !ran {
        wait_for("the other run or its end", || {
            let ended = scene.bench.record().attempt(&attempt).unwrap().unwrap().state.is_terminal();
            (ended || scene.under_way(&attempt)).then_some(())
        });
        scene.bench.xt_run(&[wish, attempt.as_str()]).output().unwrap();
    }
    let state = scene.settled(&format!("{wish}, point {point}"));
    scene.started_once(state, point);
    (scene, state, stopped.is_some())
}

#[test]
fn a_supervisor_killed_at_any_step_after_a_cancel_never_claims_success() {
    if !has_strace() {
        return;
    }
    let points = matrix("cancel, supervisor killed", 2, |point| {
        let (_, state, met) = killed_after("--cancel", point);
        assert!(matches!(state, AttemptState::Cancelled | AttemptState::Lost), "point {point}: {state}");
        met.then_some(state)
    });
    assert!(points >= 10, "{points}");
}

#[test]
fn a_client_killed_at_any_step_of_draining_leaves_a_wish_that_is_carried_out_or_none() {
    if !has_strace() {
        return;
    }
    let points = matrix("drain, client killed", 1, |point| {
        let scene = hanging();
        let attempt = running(&scene);
        let output =
            scene.tampered(env!("CARGO_BIN_EXE_xt-run"), &["--drain", attempt.as_str()], "SIGKILL", point).output();
        let met = was_killed(&output.unwrap());
        if met && scene.bench.record().actions().unwrap().is_empty() {
            assert!(!scene.bench.attempt().state.is_terminal());
            assert_eq!(scene.bench.xt_run(&["--drain", attempt.as_str()]).output().unwrap().status.code(), Some(76));
        }
        scene.reconcile();
        let state = scene.settled(&format!("point {point}"));
        assert_eq!((scene.starts(), state), (1, AttemptState::Drained), "point {point}");
        let actions = scene.bench.record().actions().unwrap();
        assert!(actions.iter().all(|action| action.state.is_terminal()) && actions.len() == 1, "{actions:?}");
        met.then_some(state)
    });
    assert!(points >= 5, "{points}");
}

#[test]
fn a_supervisor_killed_at_any_step_after_a_drain_never_claims_more_than_it_stored() {
    if !has_strace() {
        return;
    }
    let mut drained = 0;
    let points = matrix("drain, supervisor killed", 2, |point| {
        let (scene, state, met) = killed_after("--drain", point);
        assert!(matches!(state, AttemptState::Drained | AttemptState::Lost), "point {point}: {state}");
        let record = scene.bench.attempt().run_record.unwrap();
        let run: xt_core::manifest::run::Run = scene.bench.store().manifest(record).unwrap();
        if state == AttemptState::Drained {
            // What it can go on from is there, whole.
            let last = run.snapshots.iter().max_by_key(|taken| taken.step).unwrap();
            assert_eq!(last.step, run.progress.steps, "point {point}");
            scene.bench.store().get(last.snapshot).unwrap();
            drained += usize::from(met);
        }
        met.then_some(state)
    });
    println!("{drained} of them had drained, and are recorded as that");
    assert!(points >= 10 && drained > 0, "{points} {drained}");
}

/// How much is killed with a client that was stopped at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reach {
    /// The client and the supervisor.
    Both,
    /// Every process there is, workers too.
    Everything,
}

/// Stops a client before its call number `point` and kills it there, together with others; whether it came to that call.
fn killed_together(scene: &Scene, program: &str, arguments: &[&str], point: usize, reach: Reach) -> bool {
    let mut tool = scene.stopping(program, arguments, point);
    let Some(client) = tool.stopped() else {
        tool.ended();
        return false;
    };
    let held = scene.hold_still(&[client]);
    let supervisors = supervisors_on(scene);
    let killed = if reach == Reach::Everything { &held } else { &supervisors };
    tool.kill(client, killed, &held);
    wait_for("the end of all", || killed.iter().all(|pid| !runs(*pid)).then_some(()));
    true
}

#[test]
fn whoever_is_killed_together_with_a_client_that_submits_leaves_one_workload() {
    if !has_strace() {
        return;
    }
    for reach in [Reach::Both, Reach::Everything] {
        let points = matrix(&format!("submit, {reach:?} killed"), 2, |point| {
            let scene = Scene::new("", 3);
            let plan = scene.bench.path("plan.json");
            let arguments = ["--operation-id", "op-a", plan.to_str().unwrap()];
            if !killed_together(&scene, env!("CARGO_BIN_EXE_xt-run"), &arguments, point, reach) {
                return None;
            }
            let recorded = scene.bench.store_path().join("record.db").exists();
            if recorded && !scene.bench.record().attempts().unwrap().is_empty() {
                scene.reconcile();
            } else {
                scene.ask_again();
            }
            let state = scene.settled(&format!("{reach:?} {point}"));
            scene.started_once(state, point);
            assert!(matches!(state, AttemptState::Succeeded | AttemptState::Lost), "{reach:?} {point}: {state}");
            Some(state)
        });
        assert!(points >= 7, "{points}");
    }
}

#[test]
fn whoever_is_killed_together_with_a_client_that_cancels_or_drains_leaves_the_truth() {
    if !has_strace() {
        return;
    }
    for (verb, wished) in [("--cancel", AttemptState::Cancelled), ("--drain", AttemptState::Drained)] {
        for reach in [Reach::Both, Reach::Everything] {
            let points = matrix(&format!("{verb}, {reach:?} killed"), 1, |point| {
                let scene = hanging();
                let attempt = running(&scene);
                let arguments = [verb, attempt.as_str()];
                if !killed_together(&scene, env!("CARGO_BIN_EXE_xt-run"), &arguments, point, reach) {
                    return None;
                }
                scene.reconcile();
                let state = scene.settled(&format!("{verb} {reach:?} {point}"));
                scene.started_once(state, point);
                assert!(state == wished || state == AttemptState::Lost, "{verb} {reach:?} {point}: {state}");
                let actions = scene.bench.record().actions().unwrap();
                assert!(actions.iter().all(|action| action.state.is_terminal()), "{actions:?}");
                Some(state)
            });
            assert!(points >= 5, "{points}");
        }
    }
}

/// A start and its record are two acts, and nothing makes them one: whoever comes after a crash between the mark and the
/// first act of the workload cannot tell whether it did anything. Starting it again could be the second time; so it is
/// lost, as it would be a moment later, and a person can retry it.
#[test]
fn a_workload_killed_between_its_mark_and_its_first_act_is_lost_and_never_started_again_by_itself() {
    let scene = Scene::new("late 60000", 3);
    let plan = scene.bench.path("plan.json");
    let arguments = ["--detach", "--operation-id", "op-a", "--worker", scene.worker.to_str().unwrap()];
    let mut command = scene.bench.xt_run(&arguments);
    assert!(command.arg(plan).output().unwrap().status.success());
    wait_for("the mark", || (scene.is_marked() && !processes_of(&scene.worker).is_empty()).then_some(()));
    let all: Vec<u32> = supervisors_on(&scene).into_iter().chain(processes_of(&scene.worker)).collect();
    for pid in &all {
        kill_9(*pid);
    }
    wait_for("the end of all", || all.iter().all(|pid| !runs(*pid)).then_some(()));
    scene.reconcile();
    assert_eq!((scene.settled("lost"), scene.starts()), (AttemptState::Lost, 0));
    let attempt = scene.bench.attempt();
    let retried = scene.bench.xt_run(&["--retry", attempt.id.as_str(), "--detach"]).output().unwrap();
    assert!(retried.status.success(), "{retried:?}");
    let attempts = scene.bench.record().attempts().unwrap();
    assert_eq!(attempts.len(), 2, "a person's wish is another attempt");
    assert!(scene.bench.xt_run(&["--cancel", attempts[1].id.as_str()]).output().unwrap().status.success());
}

#[test]
fn a_killed_freeze_leaves_no_half_bundle_and_can_be_done_again() {
    if !has_strace() {
        return;
    }
    let mut scene = Scene::new("", 3);
    // Only a run in full isolation is frozen. It counts its starts in a file of its own.
    scene.plan = scene.bench.plan("", 3);
    scene.bench.write("plan.json", &scene.plan);
    let run = scene.ask_again();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    fs::write(scene.bench.path("run.json"), &run.stdout).unwrap();
    let file = scene.bench.path("run.json");
    let freeze = |output: &str| -> Vec<String> { ["-o", output, file.to_str().unwrap()].map(String::from).to_vec() };
    let target = scene.bench.path("model.tar.zst");
    let program = env!("CARGO_BIN_EXE_xt-freeze");
    let points = matrix("freeze, killed", 1, |point| {
        let arguments = freeze(target.to_str().unwrap());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = scene.tampered(program, &arguments, "SIGKILL", point).output().unwrap();
        if !was_killed(&output) {
            return None;
        }
        if target.exists() {
            // What has its name is whole.
            let verified = scene.tool(program, &["verify", target.to_str().unwrap()]);
            assert_eq!(verified.status.code(), Some(0), "point {point}: {verified:?}");
            fs::remove_file(&target).unwrap();
        }
        Some(scene.settled(&format!("point {point}")))
    });
    assert!(points >= 4, "{points}");
    assert!(target.exists(), "the last freeze was not killed");
    let run = run.runs().remove(0);
    let starts = run.artifacts.iter().find(|file| file.path.as_str() == "model/starts").unwrap();
    assert_eq!(scene.bench.store().get(starts.digest).unwrap(), b"1");
}
