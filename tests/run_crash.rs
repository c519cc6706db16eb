//! `kill -9` of every process of a run, at every moment: one workload for one operation, and never a lie in the record.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bench::{Bench, Ended, processes_of, runs, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::field::Manifest as _;
use xt_core::manifest::run::Status;
use xt_core::manifest::trace::read_steps;
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;
use xt_record::{Attempt, Process};
use xt_runtime::{Clock, Runtime};

fn kill_9(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
}

fn supervisor(attempt: &Attempt) -> u32 {
    attempt.process.as_ref().unwrap().pid
}

/// A copy of the stand-in under a name of its own, so that its processes can be told from those of other tests.
fn own_worker(bench: &Bench) -> (String, std::path::PathBuf) {
    let name = format!("stand-in-{}", bench.path("").components().next_back().unwrap().as_os_str().to_str().unwrap());
    let path = bench.path(&name);
    std::fs::copy(env!("CARGO_BIN_EXE_xt-stand-in"), &path).unwrap();
    (path.to_str().unwrap().into(), Path::new("/xt/bin").join(name))
}

#[test]
fn a_killed_xt_run_leaves_a_run_that_goes_on_finishes_and_settles_by_itself() {
    let bench = Bench::new();
    let mut child = bench.start(&bench.plan("slow 40", 40), &[]);
    let attempt = bench.until(AttemptState::Running, 5);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(bench.status(), ("running".into(), "working".into()), "the supervisor goes on");
    bench.until(AttemptState::Succeeded, 42);
    wait_for("finished.json", || bench.run_folder(&attempt.id).join("finished.json").exists().then_some(()));
    assert_eq!(bench.status(), ("succeeded".into(), "ended".into()));
    let run = Ended::of(bench.xt_run(&["--attach", attempt.id.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!(run.progress.steps, 40);
    wait_for("the end of the supervisor", || (!runs(supervisor(&attempt))).then_some(()));
}

#[test]
fn a_killed_supervisor_takes_its_worker_with_it_and_the_run_is_lost_for_everyone() {
    let bench = Bench::new();
    let (worker, inside) = own_worker(&bench);
    let plan = bench.plan("slow 40", 1000);
    let child = bench.start(&plan, &["--operation-id", "nightly", "--worker", &worker]);
    let attempt = bench.until(AttemptState::Running, 5);
    assert_eq!(processes_of(&inside).len(), 1, "the control: the worker can be seen");
    kill_9(supervisor(&attempt));
    wait_for("the end of the worker", || processes_of(&inside).is_empty().then_some(()));
    // Whoever follows closes it; whoever only reads says the same before and after.
    assert_eq!(bench.status().1, "lost");
    let run = Ended::of(child.wait_with_output().unwrap()).run(Status::Lost, 14);
    assert!(run.cause.contains("was gone, and nobody saw how the run ended"), "{}", run.cause);
    assert_eq!((run.exit.code, run.exit.signal, run.observed.wall_nanoseconds), (None, None, None));
    assert!(run.stack.is_some() && run.custody.is_some() && run.progress.steps >= 4 && !run.progress.completed);
    assert!(run.artifacts.is_empty());
    assert_eq!(bench.status(), ("lost".into(), "ended".into()));
    let again = bench.run(&plan, &["--operation-id", "nightly"]).run(Status::Lost, 14);
    assert_eq!(again.id(), run.id(), "the same operation gives what is recorded; a retry needs another");
    bench.run(&bench.plan("", 3), &["--operation-id", "another"]).run(Status::Succeeded, 0);
}

#[test]
fn of_a_torn_telemetry_whole_lines_count_and_the_tail_does_not() {
    let bench = Bench::new();
    let plan = bench.plan("hang 4", 12);
    let attempt = bench.detach(&plan, &[]);
    let claimed = bench.until(AttemptState::Running, 5);
    kill_9(supervisor(&claimed));
    let path = bench.run_folder(&attempt).join("telemetry.jsonl");
    std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"kind\":\"step\",\"li").unwrap();
    let run = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap()).run(Status::Lost, 14);
    let trace = run.trace.unwrap();
    let (steps, bad) = read_steps(plan.id(), &bench.store().get(trace.digest).unwrap());
    assert_eq!((steps.len(), bad, run.progress.steps), (4, None, 4));
}

#[test]
fn a_worker_that_someone_kills_has_failed() {
    let bench = Bench::new();
    let (worker, inside) = own_worker(&bench);
    let child = bench.start(&bench.plan("hang 3", 12), &["--worker", &worker]);
    bench.until(AttemptState::Running, 4);
    for pid in processes_of(&inside) {
        kill_9(pid);
    }
    let run = Ended::of(child.wait_with_output().unwrap()).run(Status::Failed, 14);
    assert_eq!(run.exit.signal, Some(9));
}

#[test]
fn a_supervisor_that_is_told_to_stop_cancels_its_run() {
    let bench = Bench::new();
    let child = bench.start(&bench.plan("hang 3", 12), &[]);
    let attempt = bench.until(AttemptState::Running, 4);
    kill(Pid::from_raw(supervisor(&attempt).cast_signed()), Signal::SIGTERM).unwrap();
    let run = Ended::of(child.wait_with_output().unwrap()).run(Status::Cancelled, 14);
    assert_eq!(run.cause, "SIGTERM to the supervisor");
}

#[test]
fn xt_run_killed_at_any_moment_and_asked_again_gives_one_workload() {
    let mut recorded_early = 0;
    for delay in (0..160).step_by(8) {
        let bench = Bench::new();
        let plan = bench.plan("", 3);
        let mut child = bench.start(&plan, &["--operation-id", "nightly"]);
        std::thread::sleep(Duration::from_millis(delay));
        // It may have ended already.
        child.kill().ok();
        child.wait().unwrap();
        recorded_early += bench.record().attempts().unwrap().len();
        let run = bench.run(&plan, &["--operation-id", "nightly"]).run(Status::Succeeded, 0);
        assert_eq!(bench.attempt().id, run.attempt, "one attempt, killed after {delay} ms");
        let starts = run.artifacts.iter().find(|file| file.path.as_str() == "model/starts").unwrap();
        assert_eq!(bench.store().get(starts.digest).unwrap(), b"1", "killed after {delay} ms");
    }
    assert!(recorded_early > 0, "the control: some were killed after the intent was recorded");
}

/// An attempt that was recorded and claimed by `process`, which may have started a worker.
fn claimed_by(bench: &Bench, process: &Process) -> Name {
    let attempt = bench.intend(&bench.plan("", 3), "op-a");
    let now = xt_core::instant::Instant::from_unix(1).unwrap();
    bench.record().claim(&attempt.id, process, now).unwrap();
    std::fs::create_dir_all(bench.run_folder(&attempt.id)).unwrap();
    std::fs::write(bench.run_folder(&attempt.id).join("lock"), "1").unwrap();
    attempt.id
}

#[test]
fn a_process_number_is_no_identity_and_a_stranger_is_never_touched() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let process = Process::of(sleeper.id()).unwrap();
    let strangers = [
        Process { start_time: process.start_time - 1, ..process.clone() },
        Process { boot_id: "00000000-0000-0000-0000-000000000000".into(), ..process.clone() },
    ];
    for stranger in &strangers {
        let bench = Bench::new();
        let attempt = claimed_by(&bench, stranger);
        let ended = Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap());
        ended.run(Status::Lost, 1);
    }
    let bench = Bench::new();
    let attempt = claimed_by(&bench, &process);
    let runtime = Runtime::new(&bench.store_path(), Clock::system()).unwrap();
    assert_eq!(runtime.reconcile(&attempt).unwrap().state, AttemptState::Starting, "the control: alive is not lost");
    assert!(runs(sleeper.id()));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(runtime.reconcile(&attempt).unwrap().state, AttemptState::Lost);
}

#[test]
fn a_supervisor_that_cannot_be_seen_from_here_is_neither_alive_nor_dead() {
    let bench = Bench::new();
    let elsewhere = Process { namespace: 1, ..Process::own().unwrap() };
    let attempt = claimed_by(&bench, &elsewhere);
    let ended = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("error[run.unseen]"), "{}", ended.stderr);
    assert_eq!(bench.attempt().state, AttemptState::Starting, "the record says what it knows");
    // It holds the lock of the run: so it lives, and whoever follows goes on waiting.
    std::fs::create_dir_all(bench.run_folder(&attempt)).unwrap();
    let lock = std::fs::File::create(bench.run_folder(&attempt).join("lock")).unwrap();
    lock.lock().unwrap();
    let mut child = bench.xt_run(&["--attach", attempt.as_str()]).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        assert!(child.try_wait().unwrap().is_none(), "it does not give up on a supervisor that lives");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_supervisor_killed_between_the_record_and_its_last_file_has_settled_all_the_same() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    std::fs::remove_file(bench.run_folder(&run.attempt).join("finished.json")).unwrap();
    let again = Ended::of(bench.xt_run(&["--attach", run.attempt.as_str()]).output().unwrap());
    assert_eq!(again.run(Status::Succeeded, 0).id(), run.id());
}

#[test]
fn a_supervisor_killed_at_any_moment_leaves_success_or_loss_and_nothing_between() {
    let (mut lost, mut whole) = (0, 0);
    for delay in (0..150).step_by(5) {
        let bench = Bench::new();
        let mut child = bench.start(&bench.plan("slow 5", 5), &[]);
        let process =
            wait_for("a claim", || bench.record().attempts().unwrap().first().and_then(|a| a.process.clone()));
        std::thread::sleep(Duration::from_millis(delay));
        // It may have ended already.
        kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL).ok();
        // A process of the run that outlived its supervisor would hold the lock, and nobody could say how it ended.
        wait_for("the end of whoever follows", || child.try_wait().unwrap());
        let ended = Ended::of(child.wait_with_output().unwrap());
        let run = ended.runs().remove(0);
        match run.status {
            Status::Lost => lost += 1,
            Status::Succeeded => whole += 1,
            other => panic!("{other}: {}", run.cause),
        }
        assert_eq!(bench.attempt().run_record, Some(run.id()));
        assert_eq!(run.artifacts.is_empty(), run.status == Status::Lost);
        assert_eq!(bench.status().0, run.status.to_string());
    }
    assert!(lost > 0, "{lost} lost, {whole} whole");
}
