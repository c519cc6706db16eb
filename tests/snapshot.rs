//! Snapshots, drained and resumed runs, partial replays: taken from a worker at work, found again, and held against the
//! trace. The stand-in worker computes nothing, but the same nothing each time; the true one trains at the end.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/forge.rs"]
mod forge;
#[path = "support/training.rs"]
mod training;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bench::{Bench, Ended, wait_for};
use training::{True, tool};
use xt_core::canonical::{Value, parse, parse_all};
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest};
use xt_core::instant::Instant;
use xt_core::manifest::candidate::Early;
use xt_core::manifest::intent::Profile;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::replay::{Component, Outcome, Replay, TraceDiff};
use xt_core::manifest::run::{Run, Status, StopReason, Taken, TraceReference};
use xt_core::manifest::snapshot::{Snapshot, SnapshotDiff};
use xt_core::manifest::trace::{StageName, Step, read_steps};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::compile::{Tokens, compile};
use xt_core::verb::settle::{AttemptState, RunState};
use xt_core::verb::snapshot::part;
use xt_core::verb::weights::{self, views};
use xt_record::{Process, Record, Submission};
use xt_store::Store;

const STEPS: u64 = 12;
const STAND_IN: &str = env!("CARGO_BIN_EXE_xt-stand-in");

#[track_caller]
fn document<M: Manifest>(ended: &Ended, code: i32) -> M {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    M::decode(&parse(ended.stdout.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A bench with the stand-in worker.
struct Place(Bench);

impl Place {
    fn tool(&self, name: &str, arguments: &[&str]) -> Ended {
        tool(&self.0.store_path(), name, Path::new(STAND_IN), arguments)
    }

    fn snapshot(&self, arguments: &[&str]) -> Snapshot {
        document(&self.tool("snapshot", arguments), 0)
    }
}

/// A finished run with a state after every `every` steps.
fn ran(every: u64, more: &[&str]) -> (Place, Run, String) {
    let bench = Bench::new();
    let (plan, every) = (bench.plan("", STEPS), every.to_string());
    let arguments: Vec<&str> = ["--snapshot-every", &every].into_iter().chain(more.iter().copied()).collect();
    let run = bench.run(&plan, &arguments).run(Status::Succeeded, 0);
    let id = run.id().to_string();
    (Place(bench), run, id)
}

fn steps_of(store: &Store, run: &Run) -> Vec<Step> {
    let (steps, bad) = read_steps(run.plan, &store.get(run.trace.as_ref().unwrap().digest).unwrap());
    assert_eq!(bad, None);
    steps
}

#[test]
fn a_run_stores_its_states_while_it_works_and_its_trace_is_what_it_is_without() {
    let (place, run, _) = ran(3, &[]);
    let plain = place.0.run(&place.0.plan("", STEPS), &[]).run(Status::Succeeded, 0);
    assert_eq!(run.trace, plain.trace);
    assert_eq!((run.artifacts.clone(), run.plan, run.fingerprint), (plain.artifacts, plain.plan, plain.fingerprint));
    assert_ne!(run.request, Digest::of(b""), "the request of the plan stands in the record");
    assert_eq!(run.snapshots.iter().map(|taken| taken.step).collect::<Vec<_>>(), [3, 6, 9, 12]);
    assert_eq!(plain.snapshots, []);
    let steps = steps_of(&place.0.store(), &run);
    for taken in &run.snapshots {
        let snapshot: Snapshot = place.0.store().manifest(taken.snapshot).unwrap();
        let line = &steps[usize::try_from(taken.step).unwrap() - 1];
        assert_eq!(
            (snapshot.step, snapshot.chain, snapshot.parameters.digest),
            (taken.step, line.chain, line.parameters)
        );
        assert_eq!(snapshot.stack, run.stack.clone().unwrap());
        assert_eq!(place.0.store().get(snapshot.parameters.file).unwrap().len() as u64, snapshot.parameters.bytes);
    }
    let last: Snapshot = place.0.store().manifest(run.snapshots[3].snapshot).unwrap();
    let model = run.artifacts.iter().find(|file| file.path.as_str() == "model/model.safetensors").unwrap();
    assert_eq!(last.parameters.file, model.digest, "the state after the last step is the model: stored once");
}

#[test]
fn only_the_latest_states_are_kept_when_so_many_are_asked_for() {
    let (place, run, id) = ran(2, &["--snapshot-keep", "2"]);
    assert_eq!(run.snapshots.iter().map(|taken| taken.step).collect::<Vec<_>>(), [10, 12]);
    let listed = place.tool("snapshot", &["ls", &id]);
    let lines: Vec<Value> = parse_all(listed.stdout.as_bytes()).unwrap();
    assert_eq!(lines, run.snapshots.iter().map(xt_core::field::Field::write).collect::<Vec<_>>());
    let usage = place.0.run(&place.0.plan("", STEPS), &["--snapshot-keep", "2"]);
    assert_eq!(usage.code, Some(2), "what is kept belongs to what is taken: {}", usage.stderr);
}

/// Rows: whatever is stored by the way, in whatever run, the same state is the same document.
#[test]
fn a_state_that_is_not_stored_is_computed_again_and_is_the_one_that_would_have_been() {
    let (place, _, id) = ran(5, &[]);
    let every = place.0.run(&place.0.plan("", STEPS), &["--snapshot-every", "1"]).run(Status::Succeeded, 0);
    let stored: BTreeMap<u64, Digest> = every.snapshots.iter().map(|taken| (taken.step, taken.snapshot)).collect();
    let before = place.0.record().attempts().unwrap().len();
    for (step, begin) in [(7, 5), (3, 0), (12, 10)] {
        let text = step.to_string();
        let ended = place.tool("snapshot", &[&id, "--step", &text]);
        let snapshot: Snapshot = document(&ended, 0);
        assert_eq!(snapshot.id(), stored[&step]);
        assert!(
            ended.stderr.contains(&format!("computed again from step {begin}, {} steps", step - begin)),
            "{}",
            ended.stderr
        );
        // Now it is stored, so asking again runs nothing.
        assert_eq!(place.snapshot(&[&id, "--step", &text]), snapshot);
    }
    assert_eq!(place.snapshot(&[&id, "--step", "10"]).id(), stored[&10]);
    let attempts = place.0.record().attempts().unwrap();
    assert_eq!(attempts.len(), before + 3, "each was computed once");
    let refused = place.tool("snapshot", &[&id, "--step", "13"]);
    assert_eq!(refused.code, Some(10));
    assert!(refused.stderr.contains("snapshot.step"), "{}", refused.stderr);
}

#[test]
fn a_state_that_comes_out_otherwise_than_the_trace_says_is_no_answer() {
    let (place, run, _) = ran(100, &[]);
    let forged = forge(&place.0.store(), &run, 7, |step| step.parameters = Digest::of(b"forged"));
    let ended = place.tool("snapshot", &[&forged.id().to_string(), "--step", "7"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("snapshot.trace") && ended.stderr.contains("snapshot#/parameters"),
        "{}",
        ended.stderr
    );
}

#[test]
fn states_are_shown_compared_verified_and_exported() {
    let (place, run, id) = ran(4, &[]);
    let [first, second] = [0, 1].map(|index| run.snapshots[index].snapshot.to_string());
    let shown = place.tool("snapshot", &["show", &first]);
    assert_eq!(document::<Snapshot>(&shown, 0).step, 4);
    assert!(shown.stderr.contains("after step 4 (4 updates, 4 micro-batches)"), "{}", shown.stderr);
    let same: SnapshotDiff = document(&place.tool("snapshot", &["diff", &first, &first]), 0);
    assert!(same.equal && same.fields.is_empty() && same.tensors.iter().all(|tensor| tensor.equal));
    let ended = place.tool("snapshot", &["diff", &first, &second]);
    let diff: SnapshotDiff = document(&ended, 1);
    assert_eq!(diff.fields.iter().map(|field| field.field.as_str()).collect::<Vec<_>>()[0], "/chain");
    let tensor = &diff.tensors[0];
    assert_eq!((tensor.part.as_str(), tensor.name.as_str(), tensor.elements), ("parameters", "made.up", 32));
    assert!(tensor.differing > 20 && tensor.largest_ulp.is_some() && tensor.largest_difference.is_some());
    assert!(ended.stderr.contains("parameters made.up: "), "{}", ended.stderr);
    assert_eq!(place.tool("snapshot", &["verify", "--run", &id, &first]).code, Some(0));
    let other = place.0.run(&Plan { ..place.0.plan("other", STEPS) }, &[]).run(Status::Succeeded, 0);
    let refuted = place.tool("snapshot", &["verify", "--run", &other.id().to_string(), &first]);
    assert_eq!(refuted.code, Some(1), "{}", refuted.stderr);
    assert!(refuted.stderr.contains("snapshot#/chain"), "{}", refuted.stderr);
    let folder = place.0.path("exported");
    let exported = place.tool("snapshot", &["export", &first, folder.to_str().unwrap()]);
    assert_eq!(exported.code, Some(0), "{}", exported.stderr);
    let snapshot: Snapshot = place.0.store().manifest(run.snapshots[0].snapshot).unwrap();
    assert_eq!(Digest::of(&fs::read(folder.join("model.safetensors")).unwrap()), snapshot.parameters.file);
    let config = parse(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    assert_eq!(config.get("model_type").and_then(Value::as_str), Some("gpt2"));
    let again = place.tool("snapshot", &["export", &first, folder.to_str().unwrap()]);
    assert_eq!(again.code, Some(20), "nothing is overwritten: {}", again.stderr);
}

/// Stores a record like `run` with one step changed and all lines chained anew.
fn forge(store: &Store, run: &Run, number: u64, change: impl FnOnce(&mut Step)) -> Run {
    let mut steps = steps_of(store, run);
    change(&mut steps[usize::try_from(number).unwrap() - 1]);
    let lines = chained(run.plan, &mut steps);
    with_trace(store, run, &steps, lines.as_bytes())
}

fn chained(plan: Digest, steps: &mut [Step]) -> String {
    let (mut chain, mut lines) = (plan, String::new());
    for step in steps {
        *step = step.clone().chain_to(chain);
        chain = step.chain;
        lines += &(step.write().canonical() + "\n");
    }
    lines
}

fn with_trace(store: &Store, run: &Run, steps: &[Step], lines: &[u8]) -> Run {
    let mut forged = run.clone();
    let (digest, chain) = (store.put(lines).unwrap(), steps.last().unwrap().chain);
    forged.trace = Some(TraceReference { digest, steps: steps.len() as u64, chain });
    store.put_manifest(&forged).unwrap();
    forged
}

// ---- drained and resumed ----

/// Starts `plan` slowly, drains it once it has taken some steps, and gives its attempt.
fn drained(bench: &Bench, plan: &Plan, arguments: &[&str]) -> (Name, Run) {
    let attempt = bench.detach(plan, arguments);
    wait_for("some steps", || (bench.telemetry(&attempt) > 5).then_some(()));
    let ended = Ended::of(bench.xt_run(&["--drain", attempt.as_str()]).output().unwrap());
    (attempt, ended.run(Status::Drained, 76))
}

#[test]
fn a_drained_run_goes_on_as_another_attempt_and_is_what_it_would_have_been() {
    let bench = Bench::new();
    let plan = bench.plan("slow 20", 40);
    let (attempt, part) = drained(&bench, &plan, &[]);
    let steps = part.progress.steps;
    assert!(steps > 3 && steps < 40, "{steps}");
    assert_eq!((part.snapshots.len(), part.snapshots[0].step), (1, steps));
    assert_eq!((part.artifacts.len(), part.exit.code), (0, Some(4)));
    assert!(part.cause.contains(&format!("drained after step {steps} of 40")), "{}", part.cause);
    let record = bench.record().attempt(&attempt).unwrap().unwrap();
    assert_eq!(record.state, AttemptState::Drained);
    let resumed = Ended::of(bench.xt_run(&["--resume", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    let whole = Bench::new();
    let undisturbed = whole.run(&plan, &[]).run(Status::Succeeded, 0);
    assert_eq!(resumed.trace, undisturbed.trace, "one trace, as if nothing had happened");
    assert_eq!(resumed.progress.steps, 40);
    let models = |run: &Run| {
        run.artifacts.iter().filter(|file| file.path.as_str().contains("safetensors")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(models(&resumed), models(&undisturbed));
    let start = resumed.start.clone().unwrap();
    assert_eq!((start.run, start.step, start.snapshot), (part.id(), steps, part.snapshots[0].snapshot));
    let attempts = bench.record().attempts().unwrap();
    assert_eq!(
        attempts.iter().map(|attempt| attempt.state).collect::<Vec<_>>(),
        [AttemptState::Drained, AttemptState::Succeeded]
    );
    assert_eq!(attempts[0].run, attempts[1].run, "one run, two attempts");
    // Asking again starts nothing.
    let again = Ended::of(bench.xt_run(&["--resume", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!(again.id(), resumed.id());
    assert_eq!(bench.record().attempts().unwrap().len(), 2);
    let run = bench.record().standing_of(&attempts[1].id).unwrap();
    assert_eq!(run.run_state, RunState::Succeeded);
}

/// Without a file system of its own a worker writes into a folder of the host, and the rest is the same.
#[test]
fn a_run_without_isolation_is_drained_and_resumed_alike() {
    let bench = Bench::new();
    let plan = bench.plan_with("slow 20", 40, |intent| intent.isolation.profile = Profile::None);
    let (attempt, part) = drained(&bench, &plan, &["--snapshot-every", "3"]);
    assert_eq!(part.isolation, Profile::None);
    let resumed = Ended::of(bench.xt_run(&["--resume", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    let undisturbed = Bench::new().run(&plan, &[]).run(Status::Succeeded, 0);
    assert_eq!(resumed.trace, undisturbed.trace);
    assert!(!bench.run_folder(&attempt).join("snapshots").exists(), "what was taken is not kept twice");
}

#[test]
fn a_run_is_drained_and_resumed_more_than_once_and_freezes() {
    let bench = Bench::new();
    let plan = bench.plan("slow 15", 60);
    let (first, _) = drained(&bench, &plan, &["--snapshot-every", "7"]);
    let resume = bench.xt_run(&["--resume", first.as_str(), "--detach"]).output().unwrap();
    let second = Name::new(String::from_utf8(resume.stdout).unwrap().trim()).unwrap();
    wait_for("some steps", || (bench.telemetry(&second) > 5).then_some(()));
    let part = Ended::of(bench.xt_run(&["--drain", second.as_str()]).output().unwrap()).run(Status::Drained, 76);
    assert!(part.start.is_some() && part.progress.steps > part.start.as_ref().unwrap().step);
    let resumed = Ended::of(bench.xt_run(&["--resume", second.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    let undisturbed = Bench::new().run(&plan, &[]).run(Status::Succeeded, 0);
    assert_eq!(resumed.trace, undisturbed.trace);
    assert_eq!(resumed.cadence.every, Some(7), "a resumed run keeps its cadence");
    let place = Place(bench);
    let frozen = place.tool("freeze", &[&resumed.id().to_string()]);
    assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
    let replayed: Replay = document(&place.tool("replay", &[&resumed.id().to_string()]), 0);
    assert_eq!((replayed.outcome, replayed.equal_steps, replayed.from), (Outcome::Equal, 60, 0));
}

/// A plan of 40 steps that stops after step 25: the stand-in's losses are 1 over the number of the step.
fn stopping(bench: &Bench, behaviour: &str) -> Plan {
    let plan = bench.plan(behaviour, 40);
    let mut candidate = plan.native().unwrap().clone();
    let number = |value| Finite::new(value).unwrap();
    candidate.stops.early = Early::TrainingLoss {
        window: 5,
        target: Some(number(0.044)),
        patience: None,
        minimum_improvement: number(0.0),
        limit: None,
    };
    let tokens = Tokens { vocabulary: 256, count: plan.work.tokens, tokenizer_bytes: 0 };
    compile(candidate, plan.dataset.clone().unwrap(), plan.intent.clone(), plan.seed, tokens).unwrap()
}

#[test]
fn a_run_that_its_losses_stop_is_drained_resumed_frozen_and_replayed_as_one_that_was_not_disturbed() {
    let bench = Bench::new();
    let undisturbed = bench.run(&stopping(&bench, "slow 20"), &[]).run(Status::Succeeded, 0);
    assert_eq!((undisturbed.progress.steps, undisturbed.progress.planned), (25, 40));
    let stopped = undisturbed.progress.stopped.clone().unwrap();
    assert_eq!((stopped.step, stopped.reason), (25, StopReason::Target));
    assert!(undisturbed.cause.starts_with("stopped early after step 25 of at most 40"), "{}", undisturbed.cause);
    let other = Bench::new();
    let (attempt, part) = drained(&other, &stopping(&other, "slow 20"), &[]);
    assert!(part.progress.steps < 25 && part.progress.stopped.is_none(), "{:?}", part.progress);
    let resumed = Ended::of(other.xt_run(&["--resume", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!((resumed.trace.clone(), &resumed.progress), (undisturbed.trace.clone(), &undisturbed.progress));
    let place = Place(other);
    let frozen = place.tool("freeze", &[&resumed.id().to_string()]);
    assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
    let replayed: Replay = document(&place.tool("replay", &[&resumed.id().to_string()]), 0);
    assert_eq!((replayed.outcome, replayed.equal_steps), (Outcome::Equal, 25));
    assert!(!replayed.outputs.is_empty(), "the model is compared, too");
    // The control: whoever goes on behind the step that ends the run has failed.
    let bench = Bench::new();
    let run = bench.run(&stopping(&bench, "run-on"), &[]).run(Status::Failed, 14);
    assert!(run.cause.contains("step 26 came, and the run stops early after step 25: target"), "{}", run.cause);
}

#[test]
fn a_run_that_comes_to_its_end_is_not_held_up_by_a_drain_and_what_has_ended_is_not_resumed() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("slow 5", 8), &[]);
    wait_for("its last steps", || (bench.telemetry(&attempt) >= 9).then_some(()));
    let ended = Ended::of(bench.xt_run(&["--drain", attempt.as_str()]).output().unwrap());
    ended.run(Status::Succeeded, 0);
    let refused = Ended::of(bench.xt_run(&["--resume", attempt.as_str()]).output().unwrap());
    assert_eq!(refused.code, Some(10), "{}", refused.stderr);
    assert!(refused.stderr.contains("resume.status"), "{}", refused.stderr);
    let failed = bench.run(&bench.plan("crash 3", 8), &[]).run(Status::Failed, 14);
    let refused = Ended::of(bench.xt_run(&["--resume", failed.attempt.as_str()]).output().unwrap());
    assert!(refused.code == Some(10) && refused.stderr.contains("resume.none"), "{}", refused.stderr);
}

/// What a run has stored outlives it: a crash of the worker leaves the states before it.
#[test]
fn a_run_that_crashed_goes_on_from_its_last_state() {
    let bench = Bench::new();
    let plan = bench.plan("crash 8", 12);
    let crashed = bench.run(&plan, &["--snapshot-every", "3"]).run(Status::Failed, 14);
    assert_eq!(crashed.snapshots.iter().map(|taken| taken.step).collect::<Vec<_>>(), [3, 6]);
    // The stand-in crashes at its eighth step whenever it takes it.
    let again =
        Ended::of(bench.xt_run(&["--resume", crashed.attempt.as_str()]).output().unwrap()).run(Status::Failed, 14);
    assert_eq!((again.start.as_ref().unwrap().step, again.progress.steps), (6, 8));
    assert_eq!(steps_of(&bench.store(), &again), steps_of(&bench.store(), &crashed));
}

/// kill -9 of the supervisor: the states are in the store already, and the run is resumed from them.
#[test]
fn a_run_whose_supervisor_was_killed_goes_on_from_its_last_state() {
    let bench = Bench::new();
    let plan = bench.plan("slow 20", 30);
    let attempt = bench.detach(&plan, &["--snapshot-every", "4"]);
    wait_for("two states", || (xt_runtime::taken(&bench.store(), &attempt).unwrap().len() >= 2).then_some(()));
    let process = bench.record().attempt(&attempt).unwrap().unwrap().process.unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(process.pid).unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let lost = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap()).run(Status::Lost, 14);
    assert!(lost.snapshots.len() >= 2, "{:?}", lost.snapshots);
    let resumed = Ended::of(bench.xt_run(&["--resume", attempt.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!(resumed.trace, Bench::new().run(&plan, &[]).run(Status::Succeeded, 0).trace);
}

/// Row L99 of the weaknesses: a resume compares what it runs on, as a replay does.
#[test]
fn a_resume_on_another_stack_is_refused_with_every_difference() {
    let bench = Bench::new();
    let (attempt, _) = drained(&bench, &bench.plan("slow 20", 40), &[]);
    let other = bench.path("other-worker");
    let mut bytes = fs::read(STAND_IN).unwrap();
    bytes.push(0);
    fs::write(&other, bytes).unwrap();
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused =
        Ended::of(bench.xt_run(&["--resume", attempt.as_str(), "--worker", other.to_str().unwrap()]).output().unwrap());
    assert_eq!(refused.code, Some(10), "{}", refused.stderr);
    assert!(refused.stderr.contains("worker differs"), "{}", refused.stderr);
    assert_eq!(bench.record().attempts().unwrap().len(), 1, "nothing was started");
}

// ---- replays of a part ----

#[test]
fn a_replay_begins_at_the_nearest_stored_state_and_says_where() {
    let (place, run, id) = ran(4, &[]);
    let exact = place.tool("replay", &["--from", "8", &id]);
    let report: Replay = document(&exact, 0);
    assert_eq!((report.from, report.steps, report.equal_steps), (8, STEPS, 4));
    assert_eq!(report.snapshot, Some(run.snapshots[1].snapshot));
    assert_eq!(exact.stderr, "replay: equal, 4 steps from the state after step 8 on\n");
    let replayed: Run = place.0.store().manifest(report.replayed).unwrap();
    assert_eq!((replayed.mode, replayed.trace.clone()), (Mode::Replay, run.trace.clone()));
    let nearest = place.tool("replay", &["--from", "7", "--to", "10", &id]);
    let report: Replay = document(&nearest, 0);
    assert_eq!((report.from, report.steps, report.equal_steps), (4, 10, 6));
    assert!(
        nearest.stderr.starts_with("replay: no state after step 7 is stored; it begins after step 4\n"),
        "{}",
        nearest.stderr
    );
    let none = place.tool("replay", &["--from", "3", "--to", "3", &id]);
    assert_eq!(none.code, Some(10), "{}", none.stderr);
    // A forged step before the start is not seen; one behind it is.
    let forged = forge(&place.0.store(), &run, 10, |step| step.gradients = Digest::of(b"forged"));
    let parted: Replay = document(&place.tool("replay", &["--from", "8", &forged.id().to_string()]), 1);
    assert_eq!(parted.divergence.unwrap().step, 10);
}

#[test]
fn an_audit_replays_parts_drawn_from_the_trace_and_states_its_cost() {
    let (place, run, id) = ran(2, &[]);
    let ended = place.tool("replay", &["--audit", "2", &id]);
    let report: Replay = document(&ended, 0);
    let audit = report.audit.unwrap();
    assert_eq!((audit.segments.len(), audit.of, audit.steps, audit.of_steps), (2, 6, 4, STEPS));
    assert!(
        ended.stderr.contains("audited 2 of 6 parts, 4 of 12 steps; a single bad part is met with a chance of 33 %"),
        "{}",
        ended.stderr
    );
    let again: Replay = document(&place.tool("replay", &["--audit", "2", &id]), 0);
    let places =
        |audit: &xt_core::manifest::replay::Audit| audit.segments.iter().map(|s| (s.from, s.to)).collect::<Vec<_>>();
    assert_eq!(places(&again.audit.unwrap()), places(&audit), "the same trace draws the same parts");
    let all: Replay = document(&place.tool("replay", &["--audit", "99", &id]), 0);
    assert_eq!(all.audit.unwrap().steps, STEPS);
    // The control: with every part drawn, a forged step is met.
    let forged = forge(&place.0.store(), &run, 7, |step| step.gradients = Digest::of(b"forged"));
    let parted: Replay = document(&place.tool("replay", &["--audit", "99", &forged.id().to_string()]), 1);
    assert_eq!((parted.outcome, parted.divergence.unwrap().step), (Outcome::Diverged, 7));
}

#[test]
fn two_recorded_traces_are_compared_and_drawn_without_running_anything() {
    let (place, run, id) = ran(100, &[]);
    let forged = forge(&place.0.store(), &run, 7, |step| step.gradients = Digest::of(b"forged"));
    let svg = place.0.path("parted.svg");
    let arguments = ["diff", &id, &forged.id().to_string(), "--svg", svg.to_str().unwrap()];
    let diff: TraceDiff = document(&place.tool("replay", &arguments), 1);
    assert_eq!((diff.equal_steps, diff.same_plan, diff.outcome), (6, true, Outcome::Diverged));
    assert_eq!(diff.divergence.unwrap().component, Component::Gradients);
    assert_eq!(
        diff.components.iter().map(|c| (c.component, c.first_step, c.steps)).collect::<Vec<_>>(),
        [(Component::Gradients, 7, 1)]
    );
    assert!(fs::read_to_string(svg).unwrap().contains("part at step 7: gradients"));
    document::<TraceDiff>(&place.tool("replay", &["diff", &id, &id]), 0);
    let part: Replay = document(&place.tool("replay", &["--to", "5", &id]), 0);
    let shorter: TraceDiff = document(&place.tool("replay", &["diff", &id, &part.replayed.to_string()]), 3);
    assert_eq!((shorter.equal_steps, shorter.first_steps, shorter.second_steps), (5, STEPS, 5));
    assert_eq!(place.0.record().attempts().unwrap().len(), 2, "one run and one replay; comparing ran nothing");
}

// ---- one planted bit, with the true worker ----

/// Flips one bit of one element of a tensor in the file of a snapshot.
fn flipped(file: &[u8], name: &str, element: usize) -> Vec<u8> {
    let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<f32>>();
    let mut all: BTreeMap<String, (Vec<u64>, Vec<f32>)> =
        views(file).unwrap().into_iter().map(|view| (view.name, (view.shape, values(view.values)))).collect();
    let value = &mut all.get_mut(name).unwrap().1[element];
    *value = f32::from_bits(value.to_bits() ^ 1);
    weights::file(&all)
}

const TENSOR: &str = "transformer.h.0.mlp.c_fc.weight";

/// One bit of a tensor of the parameters, then one of the moments, in states early and late: each is found by itself.
#[test]
fn one_bit_planted_in_a_stored_state_is_found_with_step_stage_and_tensor() {
    let Some(place) = True::new(&["--snapshot-every", "2"]) else { return };
    let (store, id) = (place.store(), place.run().id().to_string());
    let clean: Replay = document(&place.tool("replay", &["--localize", &id]), 0);
    assert_eq!(clean.localization, None, "nothing is found where there is nothing");
    let most = u64::from(place.run().progress.steps.ilog2() + 1);
    let moment = format!("first_moment/{TENSOR}");
    for (state, name, element) in [(2, TENSOR, 5), (0, moment.as_str(), 3), (3, "transformer.wte.weight", 0)] {
        let taken = place.run().snapshots[state].clone();
        let mut snapshot: Snapshot = store.manifest(taken.snapshot).unwrap();
        let planted_in = if name == moment { &mut snapshot.optimizer } else { &mut snapshot.parameters };
        let bytes = flipped(&store.get(planted_in.file).unwrap(), name, element);
        *planted_in = part(&bytes).unwrap();
        store.put(&bytes).unwrap();
        let planted = store.put_manifest(&snapshot).unwrap();
        let reference = format!("snapshots/{}/{:012}", place.run().attempt, taken.step);
        store.set_reference(&reference, planted, "planted").unwrap();
        let report: Replay = document(&place.tool("replay", &["--localize", &id]), 0);
        let found = report.localization.unwrap();
        assert_eq!((found.step, found.stage, found.tensor.as_deref()), (taken.step, StageName::Optimizer, Some(name)));
        assert_eq!((found.module.as_deref(), found.differing), (name.rsplit_once('.').map(|(module, _)| module), 1));
        let tensor = &found.tensors[0];
        assert_eq!(
            (tensor.differing, tensor.first_at, tensor.largest_ulp),
            (1, Some(u64::try_from(element).unwrap()), Some(1))
        );
        assert!(found.restores <= most, "{} restores", found.restores);
        println!(
            "planted state: step {}, {name}, {} restores (at most {most}), {} steps again",
            found.step, found.restores, found.steps_again
        );
        // Nobody goes on from such a state: it is passed over.
        if taken.step < place.run().progress.steps {
            let report: Replay = document(&place.tool("replay", &["--from", &taken.step.to_string(), &id]), 0);
            assert!(report.from < taken.step);
        }
        store.set_reference(&reference, taken.snapshot, "as it was").unwrap();
    }
}

/// A run in which one bit flipped at step k, as a fault of the machine would do it: all lines after it follow from the flip.
#[test]
fn one_bit_that_flipped_during_a_run_is_found_with_step_stage_and_tensor() {
    let Some(place) = True::new(&["--snapshot-every", "2"]) else { return };
    let store = place.store();
    let steps = steps_of(&store, place.run());
    let taken = place.run().snapshots[1].clone();
    let at = usize::try_from(taken.step).unwrap();
    let mut snapshot: Snapshot = store.manifest(taken.snapshot).unwrap();
    let bytes = flipped(&store.get(snapshot.parameters.file).unwrap(), TENSOR, 7);
    snapshot.parameters = part(&bytes).unwrap();
    store.put(&bytes).unwrap();
    // The run up to the flip, then what a worker really makes of the flipped state.
    let mut lines = steps[..at].to_vec();
    lines[at - 1].parameters = snapshot.parameters.digest;
    let head = chained(place.run().plan, &mut lines);
    snapshot.chain = lines[at - 1].chain;
    let planted = store.put_manifest(&snapshot).unwrap();
    let attempt = lost(&store, place.run(), |broken| {
        let mut broken = with_trace(&store, broken, &lines, head.as_bytes());
        broken.status = Status::Lost;
        (broken.artifacts, broken.snapshots) = (Vec::new(), vec![Taken { step: taken.step, snapshot: planted }]);
        broken
    });
    let record = place.tool("run", &["--resume", attempt.as_str()]).run(Status::Succeeded, 0);
    assert_ne!(record.trace, place.run().trace, "the flip is in all lines that follow");
    xt_runtime::keep_snapshot(&store, &record.attempt, &Taken { step: taken.step, snapshot: planted }, "planted")
        .unwrap();
    let ended = place.tool("replay", &["--localize", &record.id().to_string()]);
    let report: Replay = document(&ended, 1);
    let found = report.localization.unwrap();
    assert_eq!((found.step, found.stage, found.tensor.as_deref()), (taken.step, StageName::Optimizer, Some(TENSOR)));
    assert_eq!((found.differing, found.tensors[0].first_at, found.tensors[0].largest_ulp), (1, Some(7), Some(1)));
    let most = u64::from(record.progress.steps.ilog2() + 1);
    assert!(found.restores <= most, "{} restores", found.restores);
    println!(
        "flipped bit: step {}, {}, {} restores (at most {most}), {} steps again",
        found.step, TENSOR, found.restores, found.steps_again
    );
}

/// An attempt of the plan of `run` that is lost, with a record that `change` makes of it.
fn lost(store: &Store, run: &Run, change: impl FnOnce(&Run) -> Run) -> Name {
    let (record, now) = (Record::open(&store.record_path()).unwrap(), Instant::from_unix(1).unwrap());
    let submission = Submission {
        experiment: Name::new("flipped").unwrap(),
        fingerprint: run.fingerprint,
        seed: run.seed,
        plan: run.plan,
        request: run.request,
        subject: None,
        scope: None,
        operation: None,
        now,
    };
    let attempt = record.submit(&submission).unwrap().attempt().id;
    record.claim(&attempt, &Process::own().unwrap(), now).unwrap();
    let changed = change(&Run { attempt: attempt.clone(), ..run.clone() });
    store.put_manifest(&changed).unwrap();
    record.settle(&attempt, AttemptState::Lost, &changed.id(), now).unwrap();
    attempt
}

/// The same for a true training run; and a stranger with the archive alone sees that both parts were kept alike, and comes
/// to the same bits from the first step on.
#[test]
fn a_true_run_that_was_drained_and_resumed_freezes_and_replays_in_an_empty_store() {
    const MANY: u64 = 300;
    let Some(place) = True::compiled(MANY) else { return };
    let undisturbed = place.tool("run", &["plan.json"]).run(Status::Succeeded, 0);
    let started = place.tool("run", &["--detach", "plan.json"]);
    let attempt = started.stdout.trim().to_string();
    let telemetry = place.store_path().join("runs").join(&attempt).join("telemetry.jsonl");
    let lines = || fs::read_to_string(&telemetry).unwrap_or_default().lines().count();
    wait_for("some steps", || (lines() > 10).then_some(()));
    let part = place.tool("run", &["--drain", &attempt]).run(Status::Drained, 76);
    assert!(part.progress.steps < MANY, "{}", part.progress.steps);
    let unfrozen = place.tool("freeze", &[&part.id().to_string()]);
    assert_eq!(unfrozen.code, Some(15));
    assert!(unfrozen.stderr.contains("hint: `xt-run --resume"), "{}", unfrozen.stderr);
    let resumed = place.tool("run", &["--resume", &attempt]).run(Status::Succeeded, 0);
    assert_eq!((&resumed.trace, &resumed.artifacts), (&undisturbed.trace, &undisturbed.artifacts));
    println!(
        "drained after step {} of {MANY}; the trace is {:?}",
        part.progress.steps,
        resumed.trace.as_ref().unwrap().chain
    );
    let archive = place.folder.path().join("model.tar.zst");
    let name = archive.to_str().unwrap();
    let frozen = place.tool("freeze", &["-o", name, &resumed.id().to_string()]);
    assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
    let stranger = tempfile::tempdir().unwrap();
    let worker = xt_harness::programs().join("xt-train");
    let elsewhere = |name: &str, arguments: &[&str]| tool(&stranger.path().join("store"), name, &worker, arguments);
    assert_eq!(elsewhere("freeze", &["verify", name]).code, Some(0));
    let report: Replay = document(&elsewhere("replay", &[name]), 0);
    assert_eq!((report.outcome, report.from, report.equal_steps), (Outcome::Equal, 0, MANY));
    refuse_without_the_part_before(&fs::read(&archive).unwrap(), &elsewhere);
}

/// The control: the same archive without the papers of its first part, and with a control of that part that was not
/// enforced, does not verify.
fn refuse_without_the_part_before(archive: &[u8], elsewhere: &dyn Fn(&str, &[&str]) -> Ended) {
    let folder = tempfile::tempdir().unwrap();
    let files = forge::unpack(archive);
    let before: Vec<&String> = files.iter().map(|(path, _)| path).filter(|path| path.contains("/before/1/")).collect();
    assert_eq!(before.len(), 3, "{before:?}");
    let mut without = files.clone();
    without.retain(|(path, _)| !path.contains("/before/1/custody"));
    let mut weaker = files.clone();
    let custody = weaker.iter_mut().find(|(path, _)| path.contains("/before/1/custody")).unwrap();
    let text = String::from_utf8(custody.1.clone()).unwrap();
    assert!(text.contains("\"state\":\"enforced\""));
    custody.1 = text.replacen("\"state\":\"enforced\"", "\"state\":\"unavailable\"", 1).into_bytes();
    for (name, changed, word) in [("without", without, "member.missing"), ("weaker", weaker, "before/1/custody")] {
        let path = folder.path().join(name);
        fs::write(&path, forge::pack(&changed)).unwrap();
        let refused = elsewhere("freeze", &["verify", path.to_str().unwrap()]);
        assert!(
            refused.code == Some(1) && refused.stderr.contains(word),
            "{name}: {:?} {}",
            refused.code,
            refused.stderr
        );
    }
}

/// The files of the state after `step`, as its snapshot names them.
fn parameters_of(place: &Place, run: &Run, step: u64) -> Digest {
    let taken = run.snapshots.iter().find(|taken| taken.step == step).unwrap();
    place.0.store().manifest::<Snapshot>(taken.snapshot).unwrap().parameters.file
}

fn steps_listed(place: &Place, id: &str) -> Vec<u64> {
    let listed = place.tool("snapshot", &["ls", id]);
    let lines = parse_all(listed.stdout.as_bytes()).unwrap();
    lines.iter().map(|line| Taken::read(line, "", &mut xt_core::fault::Faults::new()).unwrap().step).collect()
}

#[test]
fn given_up_states_go_but_for_one_in_k_and_are_computed_again_when_asked_for() {
    let (place, run, id) = ran(2, &[]);
    let lost = parameters_of(&place, &run, 10);
    let pinned = run.snapshots.iter().find(|taken| taken.step == 8).unwrap().snapshot.to_string();
    assert_eq!(place.tool("store", &["pin", &pinned]).code, Some(0));
    let evict = ["gc", "--older-than", "0s", "--evict", "replayable", "--keep-every", "3"];
    let named = |ended: &Ended| {
        let report = parse(ended.stdout.as_bytes()).unwrap();
        let Some(Value::Integer(count)) = report.pointer("/named/objects") else { panic!("{}", ended.stdout) };
        count.to_u64().unwrap()
    };
    let all = named(&place.tool("store", &["gc", "--older-than", "0s"]));
    let look = place.tool("store", &evict);
    assert!(named(&look) + 3 <= all, "{} {all}", look.stdout);
    assert_eq!(look.code, Some(0), "{}", look.stderr);
    assert!(look.stderr.contains("3 states can be given up"), "{}", look.stderr);
    assert_eq!(steps_listed(&place, &id), [2, 4, 6, 8, 10, 12], "control: a look changes nothing");
    let done = place.tool("store", &[&evict[..], &["--apply"]].concat());
    assert!(done.code == Some(0) && done.stderr.contains("3 states given up"), "{}", done.stderr);
    assert_eq!(steps_listed(&place, &id), [6, 8, 12], "one in three, what is pinned, and the last");
    assert_eq!(place.tool("store", &["verify"]).code, Some(0), "what was given up is no damage");
    let again = place.tool("snapshot", &[&id, "--step", "10"]);
    let snapshot: Snapshot = document(&again, 0);
    assert!(again.stderr.contains("computed again from step 8, 2 steps"), "{}", again.stderr);
    assert_eq!(snapshot.parameters.file, lost);
    assert_eq!(Digest::of(&place.0.store().get(lost).unwrap()), lost);
    let kept = place.tool("store", &["gc", "--apply", "--older-than", "0s"]);
    assert_eq!((kept.code, steps_listed(&place, &id)), (Some(0), vec![6, 8, 10, 12]));
    assert_eq!(place.tool("store", &["gc", "--evict", "replayable"]).code, Some(2), "how many are kept must be said");
}

#[test]
fn a_damaged_state_is_computed_again_and_nothing_else_will_do() {
    let (place, run, _) = ran(3, &[]);
    let digest = parameters_of(&place, &run, 9);
    let bytes = place.0.store().get(digest).unwrap();
    let packs = fs::read_dir(place.0.store_path().join("packs")).unwrap().map(|entry| entry.unwrap().path());
    let spoiled = packs.filter(|path| {
        let mut pack = fs::read(path).unwrap();
        // The digest stands 48 bytes before the stored bytes of its record.
        let found = pack.windows(32).position(|bytes| bytes == digest.bytes());
        path.extension().is_some_and(|suffix| suffix == "pack")
            && found.is_some_and(|at| {
                pack[at + 48 + 20] ^= 1;
                fs::write(path, pack).is_ok()
            })
    });
    assert_eq!(spoiled.count(), 1);
    let control = place.tool("store", &["verify"]);
    assert!(control.code == Some(1) && control.stdout.contains(&digest.to_string()), "{}", control.stdout);
    let mended = place.tool("store", &["verify", "--repair-by-replay"]);
    assert_eq!(mended.code, Some(0), "{} {}", mended.stdout, mended.stderr);
    assert!(mended.stdout.contains(&format!("\"repaired\":[\"{digest}\"]")), "{}", mended.stdout);
    assert_eq!(place.0.store().get(digest).unwrap(), bytes);
    let attempts = place.0.record().attempts().unwrap();
    assert_eq!(attempts.len(), 2, "one replay, from the sound state before it");
}
