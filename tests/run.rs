//! Real runs of a stand-in worker: what a run record says about every way in which a run can end.

#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bench::{Bench, Ended, processes_of, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::Model;
use xt_core::manifest::command::Hypothesis;
use xt_core::manifest::custody::State;
use xt_core::manifest::intent::{Floor, Profile};
use xt_core::manifest::network::Activation;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::trace::read_steps;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::bind::{CONFIGURATION, WEIGHTS};
use xt_core::verb::compile::{self, Tokens};
use xt_core::verb::settle::AttemptState;
use xt_runtime::{Order, Request};

/// Everything that the stand-in writes.
const ALL: [&str; 4] = [CONFIGURATION, WEIGHTS, "model/starts", "trace/steps.jsonl"];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn paths(files: &[xt_core::manifest::Artifact]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

/// The plan with another seed, compiled anew.
fn with_seed(plan: &Plan, seed: u64) -> Plan {
    let tokens = Tokens { vocabulary: 256, count: plan.work.tokens, tokenizer_bytes: 0 };
    let (candidate, dataset) = (plan.native().unwrap().clone(), plan.dataset.clone().unwrap());
    compile::compile(candidate, dataset, plan.intent.clone(), seed, tokens).unwrap()
}

/// Nothing of a run that did not succeed is where a bundle could take it from, and its folder is empty of outputs.
fn is_in_quarantine(bench: &Bench, run: &Run, expected: &[&str]) {
    assert!(run.artifacts.is_empty());
    assert_eq!(paths(&run.quarantined), expected);
    let folder = bench.store_path().join("quarantine").join(run.attempt.as_str());
    for file in &run.quarantined {
        let bytes = std::fs::read(folder.join(file.path.as_str())).unwrap();
        assert_eq!((Digest::of(&bytes), bytes.len() as u64), (file.digest, file.bytes));
        let is_trace = file.path.as_str() == "trace/steps.jsonl";
        assert!(is_trace || !bench.store().contains(file.digest).unwrap(), "{} is an object", file.path);
    }
    assert!(!bench.run_folder(&run.attempt).join("out").exists());
}

#[test]
fn a_run_that_succeeds_leaves_its_outputs_trace_custody_and_record_in_the_store() {
    let bench = Bench::new();
    let plan = bench.plan("", 12);
    let ended = bench.run(&plan, &[]);
    let run = ended.run(Status::Succeeded, 0);
    assert_eq!(ended.stdout, run.encode().canonical() + "\n", "one canonical line with its id");
    assert_eq!((run.progress.steps, run.progress.updates, run.progress.completed), (12, 12, true));
    assert_eq!((run.plan, run.request, run.fingerprint), (plan.id(), plan.request, plan.fingerprint));
    let store = bench.store();
    assert_eq!(store.manifest::<Run>(run.id()).unwrap(), run);
    assert_eq!(paths(&run.artifacts), [CONFIGURATION, WEIGHTS, "model/starts"]);
    for file in &run.artifacts {
        assert_eq!(store.size(file.digest).unwrap(), Some(file.bytes));
    }
    let trace = run.trace.clone().unwrap();
    let (steps, bad) = read_steps(plan.id(), &store.get(trace.digest).unwrap());
    assert_eq!((steps.len(), bad, steps[11].chain), (12, None, trace.chain));
    assert_eq!(bench.custody(&run).overall, State::Enforced);
    let stack = run.stack.clone().unwrap();
    assert_eq!(stack.worker, Digest::of(&std::fs::read(env!("CARGO_BIN_EXE_xt-stand-in")).unwrap()));
    assert!(stack.libraries.iter().any(|library| library.name == "libc.so.6"));
    assert_eq!(store.get(run.logs.stdout.digest).unwrap(), b"stand-in: 12 steps\n");
    let attempt = bench.attempt();
    assert_eq!((attempt.state, attempt.run_record), (AttemptState::Succeeded, Some(run.id())));
    let folder = bench.run_folder(&attempt.id);
    assert!(folder.join("finished.json").exists() && !folder.join("in").exists() && !folder.join("out").exists());
    let reference = store.reference(&format!("runs/{}", attempt.id)).unwrap().unwrap();
    assert_eq!(reference.digest, run.id());
}

#[test]
fn two_runs_of_one_plan_agree_in_everything_but_figures_and_another_seed_does_not() {
    let bench = Bench::new();
    let plan = bench.plan("", 5);
    let runs = [&plan, &plan, &with_seed(&plan, 8)].map(|plan| bench.run(plan, &[]).run(Status::Succeeded, 0));
    let identity = |run: &Run| (run.trace.clone(), run.artifacts.clone(), run.stack.clone(), run.custody);
    assert_eq!(identity(&runs[0]), identity(&runs[1]));
    assert_ne!(runs[0].attempt, runs[1].attempt, "a retry is another attempt");
    assert_ne!(runs[0].trace, runs[2].trace);
    assert_ne!(runs[0].artifacts, runs[2].artifacts);
    assert_eq!(runs[0].fingerprint, runs[2].fingerprint, "the seed is no part of the candidate");
}

#[test]
fn a_second_run_reads_no_file_of_the_worker_again_and_says_so_and_a_worker_that_changed_is_another_stack() {
    let bench = Bench::new();
    let plan = bench.plan("", 2);
    let worker = bench.path("worker");
    std::fs::copy(bench::STAND_IN, &worker).unwrap();
    // What was written a moment ago is not kept.
    std::thread::sleep(Duration::from_secs(4));
    let ran = || bench.run(&plan, &["--worker", worker.to_str().unwrap()]).run(Status::Succeeded, 0);
    let [first, second] = [ran(), ran()];
    let files = 1 + first.stack.as_ref().unwrap().libraries.len() as u64;
    assert_eq!([&first, &second].map(|run| run.observed.digests_cached), [Some(0), Some(files)]);
    assert_eq!(first.stack, second.stack);
    let time = std::fs::metadata(&worker).unwrap().modified().unwrap();
    let mut file = std::fs::File::options().append(true).open(&worker).unwrap();
    file.write_all(&[0]).unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    let third = ran();
    assert_eq!(third.observed.digests_cached, Some(files - 1), "its old time does not hide the change");
    assert_ne!(third.stack.unwrap().worker, first.stack.unwrap().worker);
}

#[test]
fn a_worker_that_reports_completion_and_then_fails_has_failed() {
    for (behaviour, code, signal) in [
        ("exit-after-report 1", Some(1), None),
        ("abort-after-report", None, Some(6)),
        ("kill-after-report", None, Some(9)),
    ] {
        let bench = Bench::new();
        let run = bench.run(&bench.plan(behaviour, 12), &[]).run(Status::Failed, 14);
        assert_eq!((run.exit.code, run.exit.signal), (code, signal), "{behaviour}");
        assert!(run.progress.completed && run.cause.contains("although completion was reported"), "{}", run.cause);
        is_in_quarantine(&bench, &run, &ALL);
        assert_eq!(bench.attempt().state, AttemptState::Failed);
    }
}

#[test]
fn a_clean_exit_without_a_whole_report_of_completion_has_failed() {
    for (behaviour, steps, outputs) in [("exit-early 3", 3, &["model/starts"][..]), ("cut-report", 12, &ALL)] {
        let bench = Bench::new();
        let run = bench.run(&bench.plan(behaviour, 12), &[]).run(Status::Failed, 14);
        assert_eq!((run.exit.code, run.progress.steps, run.progress.completed), (Some(0), steps, false), "{behaviour}");
        is_in_quarantine(&bench, &run, outputs);
    }
    let bench = Bench::new();
    let run = bench.run(&bench.plan("cut-report", 2), &[]).run(Status::Failed, 14);
    assert!(run.cause.contains("no whole line"), "{}", run.cause);
}

#[test]
fn telemetry_that_cannot_be_true_fails_the_run_at_once_and_what_came_before_is_kept() {
    for (behaviour, cause) in
        [("break-chain 4", "the chain breaks at step 4"), ("leave-out 4", "step 5 came where step 4")]
    {
        let bench = Bench::new();
        let plan = bench.plan(behaviour, 12);
        let run = bench.run(&plan, &[]).run(Status::Failed, 14);
        assert!(run.cause.contains(cause), "{}", run.cause);
        let trace = run.trace.unwrap();
        let (steps, bad) = read_steps(plan.id(), &bench.store().get(trace.digest).unwrap());
        assert_eq!((steps.len(), bad, steps[2].chain), (3, None, trace.chain));
    }
}

#[test]
fn a_worker_that_says_what_its_plan_does_not_is_not_believed() {
    for (behaviour, cause) in [
        ("not-ready", "said `step` before it was ready"),
        ("other-threads", "reports 2 threads, the plan says 1"),
        ("other-samples", "reports 311 samples an epoch, the plan says 312"),
        ("garbage", "line 1 of the telemetry is no message"),
        ("endless-line", "longer than 1048576 bytes"),
        ("text", "said `text` in a training run"),
        ("twice-ready", "said `ready` a second time"),
        ("other-count", "reports 4 steps at its end, the plan says 3"),
        ("talk-after-report", "said `failed` after it had ended"),
    ] {
        let bench = Bench::new();
        let run = bench.run(&bench.plan(behaviour, 3), &[]).run(Status::Failed, 14);
        assert!(run.cause.starts_with("the telemetry cannot be true") && run.cause.contains(cause), "{}", run.cause);
        assert!(run.artifacts.is_empty());
    }
}

#[test]
fn steps_without_a_single_update_are_no_success_and_a_held_run_says_where() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("skip-updates", 6), &[]).run(Status::Failed, 14);
    assert_eq!((run.progress.steps, run.progress.updates, run.progress.skipped), (6, 0, 6));
    assert!(run.cause.contains("made an update"), "{}", run.cause);
    let bench = Bench::new();
    let run = bench.run(&bench.plan("held 4", 6), &[]).run(Status::Held, 14);
    assert_eq!((run.progress.steps, run.cause.as_str()), (3, "at step 4: the loss is not finite"));
    is_in_quarantine(&bench, &run, &["model/starts"]);
}

#[test]
fn a_worker_that_cannot_be_started_is_not_started_and_the_record_says_why() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let script = bench.path("script");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    let own = |file: &str, mode: u32| {
        let path = bench.path(file);
        std::fs::copy(env!("CARGO_BIN_EXE_xt-stand-in"), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let lacking = own("lacking", 0o755);
    let bytes = std::fs::read(&lacking).unwrap();
    std::fs::write(&lacking, replaced(&bytes, b"libgcc_s.so.1\0", b"libnone_.so.1\0")).unwrap();
    let cases = [(own("not-executable", 0o644), "EACCES"), (script, "ELF program"), (lacking, "libnone_.so.1")];
    for (worker, why) in cases {
        let mut command = bench.xt_run(&["--worker", worker.to_str().unwrap(), &bench.write("plan.json", &plan)]);
        let run = Ended::of(command.output().unwrap()).run(Status::NotStarted, 14);
        assert!(run.cause.contains(why), "{}", run.cause);
        assert_eq!((run.trace, run.custody, run.progress.steps, run.exit.code), (None, None, 0, None));
    }
}

#[test]
fn a_worker_that_is_named_and_is_not_there_is_said_before_anything_is_recorded() {
    let bench = Bench::new();
    let plan = bench.write("plan.json", &bench.plan("", 3));
    for (arguments, named) in [(vec!["--worker", "/no/such/worker"], "/no/such/worker"), (vec![], "/no/other/worker")] {
        let mut command = bench.xt_run(&arguments);
        let ended = Ended::of(command.arg(&plan).env("XT_TRAIN", "/no/other/worker").output().unwrap());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(20), ""));
        assert!(
            ended.stderr.contains(&format!("error[worker.missing]: there is no worker at {named}")),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
    }
    assert!(bench.record().attempts().unwrap().is_empty());
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    [&bytes[..at], to, &bytes[at + from.len()..]].concat()
}

#[test]
fn no_worker_anywhere_is_said_before_anything_is_recorded() {
    let bench = Bench::new();
    let plan = bench.write("plan.json", &bench.plan("", 3));
    let alone = bench.path("xt-run");
    std::fs::copy(env!("CARGO_BIN_EXE_xt-run"), &alone).unwrap();
    let mut command = std::process::Command::new(alone);
    let output = command.arg(plan).env_clear().env("XT_STORE", bench.store_path()).output().unwrap();
    let ended = Ended::of(output);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(20), ""));
    assert!(ended.stderr.contains("error[worker.missing]") && ended.stderr.contains("hint: "), "{}", ended.stderr);
    assert!(bench.record().attempts().unwrap().is_empty());
}

#[test]
fn what_a_worker_leaves_running_is_killed_counted_and_does_not_keep_anyone_waiting() {
    let bench = Bench::new();
    let begun = Instant::now();
    let run = bench.run(&bench.plan("daemon", 3), &[]).run(Status::Succeeded, 0);
    assert_eq!(run.observed.survivors_killed, Some(1));
    assert!(begun.elapsed() < Duration::from_mins(1));
    let run = bench.run(&bench.plan("children 2000", 3), &[]).run(Status::Succeeded, 0);
    assert_eq!(run.observed.survivors_killed, Some(0));
}

#[test]
fn a_signal_to_the_foreground_cancels_the_run_and_the_record_names_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let bench = Bench::new();
        let child = bench.start(&bench.plan("hang 3", 12), &[]);
        let attempt = bench.until(AttemptState::Running, 4);
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let run = Ended::of(child.wait_with_output().unwrap()).run(Status::Cancelled, 14);
        assert_eq!(run.cause, format!("{signal} to xt-run"));
        assert_eq!((run.exit.signal, run.progress.steps), (Some(15), 3));
        assert_eq!(bench.record().attempt(&attempt.id).unwrap().unwrap().state, AttemptState::Cancelled);
        is_in_quarantine(&bench, &run, &["model/starts"]);
    }
}

#[test]
fn a_fifo_is_no_worker_and_nobody_waits_for_it() {
    let bench = Bench::new();
    let pipe = bench.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let run = bench.run(&bench.plan("", 3), &["--worker", pipe.to_str().unwrap()]).run(Status::NotStarted, 14);
    assert!(run.cause.contains("no regular file"), "{}", run.cause);
}

#[test]
fn a_signal_to_someone_who_looks_on_does_not_touch_the_run() {
    let bench = Bench::new();
    let mut owner = bench.start(&bench.plan("hang 3", 12), &[]);
    let attempt = bench.until(AttemptState::Running, 4);
    let mut onlooker = bench.xt_run(&["--attach", attempt.id.as_str()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(onlooker.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(onlooker.wait().unwrap().code(), Some(128 + 2));
    assert_eq!(bench.record().attempt(&attempt.id).unwrap().unwrap().state, AttemptState::Running);
    // The control: the same signal to the one who started the run does stop it.
    kill(Pid::from_raw(owner.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(owner.wait().unwrap().code(), Some(14));
}

#[test]
fn a_worker_that_ignores_signals_is_killed_after_the_grace_time() {
    let bench = Bench::new();
    let child = bench.start(&bench.plan("hang-ignoring 3", 12), &[]);
    bench.until(AttemptState::Running, 4);
    let begun = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let run = Ended::of(child.wait_with_output().unwrap()).run(Status::Cancelled, 14);
    assert_eq!(run.exit.signal, Some(9));
    assert!(begun.elapsed() >= Duration::from_secs(3) && begun.elapsed() < Duration::from_mins(1));
}

#[test]
fn a_run_that_is_cancelled_before_it_starts_never_starts() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let attempt = bench.intend(&plan, "op-a");
    let run = Ended::of(bench.xt_run(&["--cancel", attempt.id.as_str()]).output().unwrap()).run(Status::Cancelled, 0);
    assert_eq!((run.cause.as_str(), &run.trace), ("before it started: xt-run --cancel", &None));
    let again = bench.run(&plan, &["--operation-id", "op-a"]).run(Status::Cancelled, 14);
    assert_eq!(again.id(), run.id(), "the same operation gives what is recorded");
    assert_eq!(bench.telemetry(&attempt.id), 0);
}

#[test]
fn cancelling_twice_records_nothing_new_and_cancelling_what_has_ended_changes_nothing() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("hang 3", 12), &[]);
    bench.until(AttemptState::Running, 4);
    let cancel = || Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap());
    let first = cancel().run(Status::Cancelled, 0);
    let events = bench.record().events(0).unwrap().len();
    assert_eq!(cancel().run(Status::Cancelled, 0).id(), first.id());
    assert_eq!(bench.record().events(0).unwrap().len(), events);
    let done = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let late = Ended::of(bench.xt_run(&["--cancel", done.attempt.as_str()]).output().unwrap());
    assert_eq!(late.run(Status::Succeeded, 1).id(), done.id());
}

#[test]
fn a_cancel_that_comes_when_all_is_done_is_noted_and_changes_nothing_unless_the_worker_hangs() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("linger-after-report 1", 3), &[]);
    bench.until(AttemptState::Running, 5);
    let run = Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 1);
    assert!(run.cause.ends_with("a request to cancel came, and changed nothing"), "{}", run.cause);
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("linger-after-report 300", 3), &[]);
    bench.until(AttemptState::Running, 5);
    let run = Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap()).run(Status::Cancelled, 0);
    assert_eq!((run.progress.completed, run.exit.signal), (true, Some(9)));
}

#[test]
fn a_crash_while_being_cancelled_stays_a_crash() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("crash-when-told 50", 200), &[]);
    bench.until(AttemptState::Running, 3);
    let run = Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap()).run(Status::Failed, 1);
    assert_eq!(run.exit.signal, Some(6));
    assert!(run.cause.contains("signal 6") && run.cause.contains("request to cancel"), "{}", run.cause);
}

#[test]
fn a_wall_clock_budget_ends_a_run_that_hangs() {
    let bench = Bench::new();
    let plan = bench.plan_with("hang 2", 12, |intent| intent.resources.duration_seconds = 1);
    let run = bench.run(&plan, &[]).run(Status::Exhausted, 14);
    assert_eq!(run.cause, "the wall-clock budget of 1 s ran out");
    assert_eq!(run.progress.steps, 2);
    assert!(run.observed.wall_nanoseconds.unwrap() >= 1_000_000_000);
    is_in_quarantine(&bench, &run, &["model/starts"]);
}

#[test]
fn a_worker_that_takes_too_much_memory_is_exhausted_or_fails_but_never_succeeds() {
    let bench = Bench::new();
    let plan = bench.plan_with("memory 300000000", 3, |intent| intent.resources.memory_bytes = 100_000_000);
    let run = bench.run(&plan, &[]).runs().remove(0);
    let custody = bench.custody(&run);
    let memory = custody.controls.iter().find(|control| control.id == "limit.memory").unwrap();
    let expected = if run.observed.out_of_memory_kills.unwrap_or(0) > 0 { Status::Exhausted } else { Status::Failed };
    assert_eq!(run.status, expected, "{}", run.cause);
    assert!(memory.state != State::Enforced || !run.artifacts.iter().any(|_| true));
    let fits = bench.plan_with("memory 1000000", 3, |intent| intent.resources.memory_bytes = 100_000_000);
    bench.run(&fits, &[]).run(Status::Succeeded, 0);
}

#[test]
fn a_flood_of_output_is_cut_at_the_cap_and_counted() {
    let bench = Bench::new();
    let plan = bench.plan_with("flood 10000000", 3, |intent| intent.resources.log_bytes = 100_000);
    let run = bench.run(&plan, &[]).run(Status::Succeeded, 0);
    let flood = 10_000_000 / 4096 * 4096 + "stand-in: 3 steps\n".len() as u64;
    assert_eq!((run.logs.stdout.bytes, run.logs.stdout.dropped), (100_000, flood - 100_000));
    assert_eq!(bench.store().size(run.logs.stdout.digest).unwrap(), Some(100_000));
}

#[test]
fn outputs_that_have_no_plain_name_or_were_not_reported_are_refused() {
    for (behaviour, cause) in
        [("odd-name", "feed"), ("unreported-output", "extra"), ("other-trace", "trace/steps.jsonl is not what")]
    {
        let bench = Bench::new();
        let run = bench.run(&bench.plan(behaviour, 3), &[]).run(Status::Failed, 14);
        assert!(run.cause.contains("the outputs are refused") && run.cause.contains(cause), "{}", run.cause);
        assert!(run.artifacts.is_empty() && paths(&run.quarantined).contains(&WEIGHTS));
    }
}

#[test]
fn one_operation_id_is_one_workload_however_many_ask_at_once() {
    let bench = Bench::new();
    let plan = bench.plan("slow 50", 10);
    let file = bench.write("plan.json", &plan);
    let ask = || bench.xt_run(&["--operation-id", "nightly", &file]).spawn().unwrap();
    let children: Vec<_> = (0..4).map(|_| ask()).collect();
    let runs: Vec<Run> = children
        .into_iter()
        .map(|child| Ended::of(child.wait_with_output().unwrap()).run(Status::Succeeded, 0))
        .collect();
    assert!(runs.iter().all(|run| run.id() == runs[0].id()));
    let again = bench.run(&plan, &["--operation-id", "nightly"]).run(Status::Succeeded, 0);
    assert_eq!(again.id(), runs[0].id());
    assert_eq!(bench.attempt().operation, name("nightly"));
    let starts = runs[0].artifacts.iter().find(|file| file.path.as_str() == "model/starts").unwrap();
    assert_eq!(bench.store().get(starts.digest).unwrap(), b"1", "the worker counted its starts");
    assert_eq!(bench.telemetry(&runs[0].attempt), 12);
    bench.run(&plan, &["--operation-id", "another"]).run(Status::Succeeded, 0);
    assert_eq!(bench.record().attempts().unwrap().len(), 2);
}

#[test]
fn an_operation_id_that_carries_another_request_is_a_conflict_with_both_digests() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    bench.run(&plan, &["--operation-id", "nightly"]).run(Status::Succeeded, 0);
    let other = with_seed(&plan, 8);
    let ended = bench.run(&other, &["--operation-id", "nightly"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(12), ""));
    assert!(ended.stderr.contains(&plan.request.to_string()) && ended.stderr.contains(&other.request.to_string()));
    assert_eq!(bench.record().attempts().unwrap().len(), 1);
}

#[test]
fn several_plans_run_one_after_the_other_and_one_bad_plan_stops_them_all_before_the_first() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let plans = [&plan, &with_seed(&plan, 8)].map(|plan| plan.encode().canonical());
    let feed = |text: &str| {
        let mut child = bench.xt_run(&[]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        Ended::of(child.wait_with_output().unwrap())
    };
    let bad = plans[1].replace("\"steps\":3", "\"steps\":4");
    let ended = feed(&format!("{}{bad}", plans[0]));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(10), ""), "{}", ended.stderr);
    assert!(bench.record().attempts().unwrap().is_empty());
    let ended = feed(&plans.join("\n"));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.runs().iter().map(|run| run.seed).collect::<Vec<_>>(), [7, 8]);
}

#[test]
fn a_failed_run_among_several_is_the_exit_code_and_the_others_still_run() {
    let bench = Bench::new();
    let plans = [bench.plan("exit-early 1", 3), bench.plan("", 3)];
    let files = [bench.write("a.json", &plans[0]), bench.write("b.json", &plans[1])];
    let out = bench.path("runs.json");
    let ended = Ended::of(bench.xt_run(&[&files[0], &files[1], "-o", out.to_str().unwrap()]).output().unwrap());
    assert_eq!(ended.code, Some(14));
    assert_eq!(ended.runs().iter().map(|run| run.status).collect::<Vec<_>>(), [Status::Failed, Status::Succeeded]);
    assert!(!out.exists(), "a file appears only when every run succeeded");
    let ended = Ended::of(bench.xt_run(&[&files[1], "-o", out.to_str().unwrap()]).output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""));
    assert!(std::fs::read_to_string(&out).unwrap().contains("\"status\":\"succeeded\""));
}

#[test]
fn a_detached_run_goes_on_alone_and_can_be_followed_later() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("slow 30", 20), &[]);
    let followed = Ended::of(bench.xt_run(&["--attach", attempt.as_str(), "--progress", "plain"]).output().unwrap());
    let run = followed.run(Status::Succeeded, 0);
    assert_eq!(run.attempt, attempt);
    assert!(followed.stderr.contains("20/20"), "{}", followed.stderr);
    let late = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap());
    assert_eq!(late.run(Status::Succeeded, 0).id(), run.id());
    let unknown = Ended::of(bench.xt_run(&["--attach", "att-none-1"]).output().unwrap());
    assert_ne!(unknown.code, Some(0));
    assert_eq!(unknown.stdout, "");
}

#[test]
fn a_control_that_the_host_cannot_enforce_stops_the_run_before_it_starts() {
    let bench = Bench::new();
    let plan = bench.plan_with("", 3, |intent| {
        intent.isolation.floor.insert("limit.memory".into(), Floor::Required);
    });
    let file = bench.write("plan.json", &plan);
    // Nobody may make control groups; so may not whoever runs this test without root.
    hand_over(bench.store_path().parent().unwrap());
    let mut command = bench.xt_run(&[&file]);
    if nix::unistd::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
    }
    let run = Ended::of(command.output().unwrap()).run(Status::NotStarted, 13);
    assert!(run.cause.contains("limit.memory"), "{}", run.cause);
    let custody = bench.custody(&run);
    assert_ne!(custody.overall, State::Enforced);
    assert_eq!(run.trace, None);
}

fn hand_over(folder: &Path) {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    std::os::unix::fs::chown(folder, Some(65534), Some(65534)).unwrap();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder).unwrap() {
            hand_over(&entry.unwrap().path());
        }
    }
}

#[test]
fn a_trained_model_writes_text_in_the_same_custody_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let sample = |arguments: &[&str]| {
        let id = run.id().to_string();
        let arguments: Vec<&str> = ["sample", id.as_str()].iter().chain(arguments).copied().collect();
        Ended::of(bench.xt_run(&arguments).output().unwrap())
    };
    let text = sample(&["--prompt", "Once", "--tokens", "4", "--seed", "3"]);
    assert_eq!((text.code, text.stdout.as_str()), (Some(0), "Once 3 4 5 6\n"), "{}", text.stderr);
    assert_ne!(sample(&["--prompt", "Once", "--tokens", "4", "--seed", "4"]).stdout, text.stdout);
    assert_eq!(std::fs::read_dir(bench.store_path().join("runs")).unwrap().count(), 1);
    let empty = sample(&["--prompt", ""]);
    assert_eq!((empty.code, empty.stdout.as_str()), (Some(2), ""));
    assert!(empty.stderr.contains("at least one character"), "{}", empty.stderr);
    let failed = bench.run(&bench.plan("exit-early 1", 3), &[]).run(Status::Failed, 14);
    let refused = Ended::of(bench.xt_run(&["sample", &failed.id().to_string()]).output().unwrap());
    mute(&bench, &run);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(10), ""));
}

/// A model that writes no text is refused before anything is started: there is no worker where one would be looked for.
#[track_caller]
fn mute(bench: &Bench, run: &Run) {
    let store = bench.store();
    let mut plan: Plan = store.manifest(run.plan).unwrap();
    let Hypothesis::Native(candidate) = &mut plan.candidate else { panic!() };
    candidate.model = Model::Mlp {
        inputs: 4,
        widths: vec![8],
        outputs: 3,
        activation: Activation::Relu,
        dropout: Finite::new(0.0).unwrap(),
        initializer_gain: Finite::new(1.0).unwrap(),
    };
    let other = Run { plan: store.put_manifest(&plan).unwrap(), ..run.clone() };
    store.put_manifest(&other).unwrap();
    let sample =
        |id: String| Ended::of(bench.xt_run(&["sample", &id, "--worker", "/nowhere/xt-train"]).output().unwrap());
    let refused = sample(other.id().to_string());
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(10), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("makes 3 numbers of 4, and writes no text"), "{}", refused.stderr);
    let control = sample(run.id().to_string());
    assert!(control.code != Some(10) && control.stderr.contains("/nowhere/xt-train"), "{}", control.stderr);
}

#[test]
fn inputs_that_are_not_in_the_store_are_named_before_anything_is_recorded() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let empty = bench.path("empty");
    let mut command = bench.xt_run(&[&bench.write("plan.json", &plan)]);
    let ended = Ended::of(command.env("XT_STORE", &empty).output().unwrap());
    assert_eq!(ended.code, Some(11));
    assert!(ended.stderr.contains(&plan.inputs[0].digest.to_string()), "{}", ended.stderr);
    assert!(!empty.join("record.db").exists());
}

#[test]
fn a_fixed_time_stands_in_the_record_and_durations_still_pass() {
    let bench = Bench::new();
    let ended = bench.run(&bench.plan("slow 20", 3), &["--now", "2001-02-03T04:05:06Z"]);
    let run = ended.run(Status::Succeeded, 0);
    assert_eq!([run.started, run.finished].map(|i| i.to_string()), ["2001-02-03T04:05:06Z"; 2]);
    assert!(run.observed.wall_nanoseconds.unwrap() > 60_000_000);
}

#[test]
fn the_worker_sees_only_the_environment_of_the_plan() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let mut command = bench.xt_run(&[&bench.write("plan.json", &plan)]);
    let ended = Ended::of(command.env("SECRET_TOKEN", "x").env("LD_PRELOAD_OF_TEST", "y").output().unwrap());
    let run = ended.run(Status::Succeeded, 0);
    let mut expected = plan.environment.clone();
    expected.insert("XT_INPUTS".into(), "/xt/in".into());
    expected.insert("XT_OUTPUTS".into(), "/xt/out".into());
    assert_eq!(run.environment, expected);
    let custody = bench.custody(&run);
    assert_eq!(custody.environment, expected.into_keys().collect::<Vec<_>>());
}

#[test]
fn the_weaker_profiles_run_only_when_asked_for_by_name_and_the_record_says_so() {
    for profile in [Profile::InContainer, Profile::None] {
        let bench = Bench::new();
        // The trainer is another user when root starts it, and sees the host's paths.
        open_up(&bench.path(""));
        let plan = bench.plan_with("daemon", 3, |intent| {
            intent.isolation.profile = profile;
            // What these profiles cannot do must be given up by name.
            for control in CONTROLS {
                intent.isolation.floor.insert(control.into(), Floor::Preferred);
            }
        });
        let ended = bench.run(&plan, &[]);
        let run = ended.run(Status::Succeeded, 0);
        assert_eq!((run.isolation, bench.custody(&run).profile), (profile, profile));
        assert_eq!(paths(&run.artifacts), [CONFIGURATION, WEIGHTS, "model/starts"]);
        assert_eq!(run.observed.survivors_killed, Some(1));
        assert!(!bench.run_folder(&run.attempt).join("work").exists());
        let other = Bench::new();
        open_up(&other.path(""));
        let isolation = plan.intent.isolation.clone();
        let failed = other.plan_with("exit-after-report 1", 3, |intent| intent.isolation = isolation);
        is_in_quarantine(&other, &other.run(&failed, &[]).run(Status::Failed, 14), &ALL);
    }
}

/// Every control of the sandbox.
const CONTROLS: [&str; 14] = [
    "calls.filtered",
    "credentials.none",
    "descriptors.closed",
    "environment.built",
    "filesystem.read",
    "filesystem.write",
    "limit.cpu",
    "limit.files",
    "limit.memory",
    "limit.processes",
    "limit.storage",
    "network.none",
    "privileges.none",
    "process.isolated",
];

fn open_up(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_store_whose_path_is_not_utf_8_holds_runs_like_any_other() {
    use std::os::unix::ffi::OsStrExt as _;
    let bench = Bench::new();
    let odd = bench.path("").join(std::ffi::OsStr::from_bytes(b"st\xffore"));
    std::fs::rename(bench.store_path(), &odd).unwrap();
    let file = bench.write("plan.json", &bench.plan("", 3));
    let output = bench.xt_run(&[&file]).env("XT_STORE", &odd).output().unwrap();
    Ended::of(output).run(Status::Succeeded, 0);
}

#[test]
fn what_no_supervisor_ever_got_says_so_and_is_started_by_asking_again() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let attempt = bench.intend(&plan, "op-a");
    let ended = Ended::of(bench.xt_run(&["--attach", attempt.id.as_str()]).output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""));
    assert!(ended.stderr.contains("--operation-id op-a"), "{}", ended.stderr);
    let run = bench.run(&plan, &["--operation-id", "op-a"]).run(Status::Succeeded, 0);
    assert_eq!(run.attempt, attempt.id);
}

#[test]
fn a_partial_replay_is_a_run_of_the_same_plan_that_stops_where_it_was_told_to() {
    let bench = Bench::new();
    let plan = bench.plan("", 6);
    let whole = bench.run(&plan, &[]).run(Status::Succeeded, 0);
    let request = Request::new(plan.clone(), Name::new("default").unwrap());
    let request = Request { mode: Mode::Replay, to_step: Some(2), ..request };
    let attempt = bench.intend_request(&request, "op-a");
    let order = Order { attempt: attempt.id.clone(), worker: env!("CARGO_BIN_EXE_xt-stand-in").into() };
    std::fs::create_dir_all(bench.run_folder(&attempt.id).join("log")).unwrap();
    std::fs::create_dir_all(bench.run_folder(&attempt.id).join("in")).unwrap();
    std::fs::create_dir_all(bench.run_folder(&attempt.id).join("work")).unwrap();
    std::fs::write(bench.run_folder(&attempt.id).join("order.json"), order.encode().canonical()).unwrap();
    let run = Ended::of(bench.xt_run(&["--attach", attempt.id.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!((run.mode, run.progress.planned, run.progress.steps), (Mode::Replay, 2, 2));
    let lines = |run: &Run| bench.store().get(run.trace.as_ref().unwrap().digest).unwrap();
    assert!(lines(&whole).starts_with(&lines(&run)), "the chain begins alike");
}

#[test]
fn an_output_that_grows_past_the_storage_budget_is_exhausted() {
    let bench = Bench::new();
    let small = |intent: &mut xt_core::manifest::intent::Intent| intent.resources.storage_bytes = 2 << 20;
    let run = bench.run(&bench.plan_with("disk 5000000", 3, small), &[]).run(Status::Exhausted, 14);
    assert!(run.cause.starts_with("no room was left for its outputs"), "{}", run.cause);
    bench.run(&bench.plan_with("slow 0", 3, small), &[]).run(Status::Succeeded, 0);
}

#[test]
fn many_runs_at_once_on_one_store_lose_nothing() {
    let bench = Bench::new();
    let plan = bench.plan("slow 5", 5);
    let files: Vec<String> =
        (0..12).map(|seed| bench.write(&format!("{seed}.json"), &with_seed(&plan, seed))).collect();
    let children: Vec<_> = files.iter().map(|file| bench.xt_run(&[file]).spawn().unwrap()).collect();
    let mut seeds: Vec<u64> = children
        .into_iter()
        .map(|child| Ended::of(child.wait_with_output().unwrap()).run(Status::Succeeded, 0).seed)
        .collect();
    seeds.sort_unstable();
    assert_eq!(seeds, (0..12).collect::<Vec<u64>>());
    let attempts = bench.record().attempts().unwrap();
    assert!(attempts.len() == 12 && attempts.iter().all(|attempt| attempt.state == AttemptState::Succeeded));
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure_of_the_tool_and_not_of_the_run() {
    let bench = Bench::new();
    let file = bench.write("plan.json", &bench.plan("", 3));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = bench.xt_run(&[&file]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(20));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"));
    assert_eq!(bench.attempt().state, AttemptState::Succeeded);
}

#[test]
fn nothing_of_a_run_is_left_running() {
    let bench = Bench::new();
    let own = bench.path("own-stand-in");
    std::fs::copy(env!("CARGO_BIN_EXE_xt-stand-in"), &own).unwrap();
    let mut command =
        bench.xt_run(&["--worker", own.to_str().unwrap(), &bench.write("plan.json", &bench.plan("daemon", 3))]);
    Ended::of(command.output().unwrap()).run(Status::Succeeded, 0);
    wait_for("the end of every process", || processes_of(Path::new("/xt/bin/own-stand-in")).is_empty().then_some(()));
    let supervisor = bench.attempt().process.unwrap().pid;
    wait_for("the end of the supervisor", || (!bench::runs(supervisor)).then_some(()));
    let value =
        xt_core::canonical::parse(&std::fs::read(bench.run_folder(&bench.attempt().id).join("started.json")).unwrap());
    assert!(matches!(value, Ok(Value::Object(_))));
}
