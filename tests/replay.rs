//! `xt-replay`: equal is equal bit for bit, and what differs is named by step and component. The stand-in worker computes
//! nothing, but the same nothing each time; a true training run is replayed by the golden cases and the demo.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/forge.rs"]
mod forge;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench::{Bench, wait_for};
use forge::{Forgery, pack, unpack};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::replay::{Component, Outcome, Replay};
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::trace::{Step, read_steps};
use xt_core::order::Walk;
use xt_core::verb::chain::shape;
use xt_core::verb::compile::{Tokens, compile};
use xt_store::Store;

const STEPS: u64 = 12;
const STAND_IN: &str = env!("CARGO_BIN_EXE_xt-stand-in");

/// How a tool ended.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn replay(&self) -> Replay {
        Replay::decode(&parse(self.stdout.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{faults}"))
    }
}

/// A tool in a folder, with its store there and nothing inherited.
fn tool(folder: &Path, program: &str, worker: &Path, arguments: &[&str], input: &[u8]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_clear().env("XT_TRAIN", worker);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn replay(folder: &Path, arguments: &[&str], input: &[u8]) -> Ended {
    tool(folder, env!("CARGO_BIN_EXE_xt-replay"), Path::new(STAND_IN), arguments, input)
}

/// A finished run in a store of its own, and the archive of its bundle.
struct Original {
    bench: Bench,
    run: Run,
    archive: Vec<u8>,
}

fn original() -> Original {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("", STEPS), &[]).run(Status::Succeeded, 0);
    let path = bench.path("model.tar.zst");
    let store = bench.store_path();
    let arguments = ["--store", store.to_str().unwrap(), "-o", path.to_str().unwrap()];
    let record = run.encode().canonical();
    let program = env!("CARGO_BIN_EXE_xt-freeze");
    tool(&bench.path(""), program, Path::new(STAND_IN), &arguments, record.as_bytes()).expect(0);
    let archive = fs::read(path).unwrap();
    Original { bench, run, archive }
}

/// A bundle without a contradiction, of a run that never was: step `number` was changed, and everything made to fit.
fn forged(archive: &[u8], number: u64, change: impl FnOnce(&mut Step)) -> Vec<u8> {
    let mut forgery = Forgery::of(archive);
    change(&mut forgery.steps[usize::try_from(number).unwrap() - 1]);
    forgery.seal()
}

#[test]
fn an_archive_is_replayed_in_an_empty_store_and_is_equal() {
    let Original { run, archive, .. } = original();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.tar.zst"), &archive).unwrap();
    let from_file = replay(folder.path(), &["--store", "one", "model.tar.zst"], b"").expect(0);
    assert_eq!(from_file.stderr, format!("replay: equal, {STEPS} of {STEPS} steps\n"));
    let report = from_file.replay();
    assert_eq!((report.run, report.plan, report.outcome), (run.id(), run.plan, Outcome::Equal));
    assert_eq!((report.steps, report.equal_steps, report.divergence.clone()), (STEPS, STEPS, None));
    assert_eq!(report.outputs.len(), run.artifacts.len());
    assert!(report.outputs.iter().all(xt_core::manifest::replay::OutputComparison::equal));
    assert!(report.allowed.is_empty());
    let store = Store::open(&folder.path().join("one")).unwrap();
    let replayed: Run = store.manifest(report.replayed).unwrap();
    assert_eq!((replayed.mode, replayed.plan, replayed.trace.clone()), (Mode::Replay, run.plan, run.trace.clone()));
    assert_ne!(replayed.id(), run.id(), "a replay is a run of its own");
    let from_stdin = replay(folder.path(), &["--store", "two", "-", "-o", "replay.json"], &archive).expect(0);
    assert_eq!(from_stdin.stdout, "");
    let written = fs::read(folder.path().join("replay.json")).unwrap();
    assert_eq!(Replay::decode(&parse(&written).unwrap()).unwrap().outcome, Outcome::Equal);
}

#[test]
fn a_held_run_is_repeated_when_it_is_held_again_at_the_same_step() {
    let bench = Bench::new();
    let held = bench.run(&bench.plan("held-after 3", STEPS), &[]).run(Status::Held, 14);
    let store = bench.store_path();
    let id = held.id().to_string();
    let report = replay(&bench.path(""), &["--store", store.to_str().unwrap(), &id], b"").expect(0);
    assert_eq!(report.replay().outcome, Outcome::Equal);
    let steps = held.progress.steps;
    let told = format!("replay: equal, {steps} of {steps} steps, and held like the recorded run at step ");
    assert!(report.stderr.starts_with(&told), "{}", report.stderr);
    // What was held is never frozen, and it is said what to do instead.
    let frozen = tool(
        &bench.path(""),
        env!("CARGO_BIN_EXE_xt-freeze"),
        Path::new(STAND_IN),
        &["--store", store.to_str().unwrap(), &id],
        b"",
    );
    assert!(frozen.code == Some(15) && frozen.stderr.contains("hint: a held run is never frozen"), "{}", frozen.stderr);
}

#[test]
fn a_run_record_and_a_bundle_are_found_in_the_store() {
    let Original { bench, run, .. } = original();
    let store = bench.store_path();
    let store = store.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = run.encode().canonical();
    replay(folder.path(), &["--store", store], record.as_bytes()).expect(0);
    replay(folder.path(), &["--store", store, &run.id().to_string()], b"").expect(0);
    let bundles: Vec<Digest> = bench
        .store()
        .references()
        .unwrap()
        .iter()
        .filter(|r| r.name.as_str().starts_with("bundles/"))
        .map(|r| r.digest)
        .collect();
    assert_eq!(bundles.len(), 1);
    assert_eq!(
        replay(folder.path(), &["--store", store, &bundles[0].to_string()], b"").expect(0).replay().run,
        run.id()
    );
    // The control: a record that the store does not hold.
    let other = Run { cause: "another".into(), ..run };
    replay(folder.path(), &["--store", store], other.encode().canonical().as_bytes()).expect(11);
}

#[test]
fn a_partial_replay_compares_the_first_steps_and_no_outputs() {
    let Original { archive, .. } = original();
    let folder = tempfile::tempdir().unwrap();
    let ended = replay(folder.path(), &["--to", "5", "-"], &archive).expect(0);
    assert_eq!(ended.stderr, "replay: equal, 5 of 5 steps\n");
    let report = ended.replay();
    assert_eq!((report.steps, report.equal_steps, report.outputs.len()), (5, 5, 0));
    let refused = replay(folder.path(), &["--to", "13", "-"], &archive).expect(10);
    assert!(refused.stderr.contains("replay.step"), "{}", refused.stderr);
    replay(folder.path(), &["--to", "0", "-"], &archive).expect(2);
}

type Change = fn(&mut Step);

/// The hard case: nothing contradicts anything, so it verifies, and only doing it again tells.
#[test]
fn a_forged_step_is_found_by_doing_it_again_and_named_with_its_component() {
    let Original { archive, .. } = original();
    let folder = tempfile::tempdir().unwrap();
    let changes: [(u64, Component, Change); 4] = [
        (1, Component::Gradients, |step| step.gradients = Digest::of(b"forged")),
        (5, Component::LearningRate, |step| step.learning_rate = xt_core::number::Finite::new(0.5).unwrap()),
        (7, Component::Parameters, |step| step.parameters = Digest::of(b"forged")),
        (12, Component::Optimizer, |step| step.optimizer = Digest::of(b"forged")),
    ];
    for (number, component, change) in changes {
        let bytes = forged(&archive, number, change);
        let name = format!("{number}.tar.zst");
        fs::write(folder.path().join(&name), &bytes).unwrap();
        let program = env!("CARGO_BIN_EXE_xt-freeze");
        tool(folder.path(), program, Path::new(STAND_IN), &["verify", &name], b"").expect(0);
        let store = format!("store-{number}");
        let output = format!("{number}.json");
        let ended = replay(folder.path(), &["--store", &store, &name, "-o", &output], b"").expect(1);
        assert!(
            ended.stderr.contains(&format!("replay: diverged at step {number}: {component}: ")),
            "{}",
            ended.stderr
        );
        assert!(!folder.path().join(output).exists(), "no target is left where the answer is no");
        let report = ended.replay();
        let divergence = report.divergence.unwrap();
        assert_eq!((report.outcome, report.equal_steps), (Outcome::Diverged, number - 1));
        assert_eq!((divergence.step, divergence.component), (number, component));
        assert_ne!(divergence.recorded, divergence.replayed);
        if number < STEPS / 2 {
            let replayed: Run = Store::open(&folder.path().join(&store)).unwrap().manifest(report.replayed).unwrap();
            assert_eq!(replayed.mode, Mode::Replay);
        }
        // Before the forged step, all is as it was.
        if number > 1 {
            let before = (number - 1).to_string();
            replay(folder.path(), &["--store", &store, "--to", &before, &name], b"").expect(0);
        }
    }
}

#[test]
fn a_replay_that_has_diverged_is_stopped_and_not_run_to_its_end() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("slow 30", 100), &[]).run(Status::Succeeded, 0);
    let store = bench.store();
    let (mut steps, _) = read_steps(run.plan, &store.get(run.trace.as_ref().unwrap().digest).unwrap());
    steps[1].gradients = Digest::of(b"forged");
    let (mut chain, mut lines) = (run.plan, String::new());
    for step in steps {
        let step = step.chain_to(chain);
        chain = step.chain;
        lines += &(step.write().canonical() + "\n");
    }
    let mut forged = run.clone();
    let reference = forged.trace.as_mut().unwrap();
    (reference.digest, reference.chain) = (store.put(lines.as_bytes()).unwrap(), chain);
    store.put_manifest(&forged).unwrap();
    let path = bench.store_path();
    let ended = replay(&bench.path(""), &["--store", path.to_str().unwrap(), &forged.id().to_string()], b"").expect(1);
    let replayed: Run = store.manifest(ended.replay().replayed).unwrap();
    assert_eq!(replayed.status, Status::Cancelled, "{}", replayed.cause);
    assert!(replayed.progress.steps < 60, "{}", replayed.progress.steps);
}

/// A worker that is another program only by one byte behind its end.
fn another_worker(folder: &Path) -> PathBuf {
    let path = folder.join("another-worker");
    let mut bytes = fs::read(STAND_IN).unwrap();
    bytes.push(0);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn another_stack_is_refused_with_every_difference_before_anything_computes() {
    let Original { run, archive, .. } = original();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let worker = another_worker(folder.path());
    let program = env!("CARGO_BIN_EXE_xt-replay");
    let refused = tool(folder.path(), program, &worker, &["-"], &archive).expect(10);
    assert_eq!(refused.stdout, "");
    let recorded = run.stack.as_ref().unwrap().worker.to_string();
    assert!(refused.stderr.contains("worker differs") && refused.stderr.contains(&recorded), "{}", refused.stderr);
    assert_eq!(refused.stderr.matches("[replay.pin]").count(), 1, "{}", refused.stderr);
    let runs = folder.path().join(".xt/runs");
    assert_eq!(fs::read_dir(runs).unwrap().count(), 0, "nothing ran");
    let allowed = tool(folder.path(), program, &worker, &["--ignore-stack", "-"], &archive).expect(0);
    let report = allowed.replay();
    assert_eq!(report.allowed.iter().map(|pin| pin.what.as_str()).collect::<Vec<_>>(), ["worker"]);
    assert!(allowed.stderr.contains("on another stack than"), "{}", allowed.stderr);
}

/// Row N-01 and T96: everything that differs at once.
#[test]
fn n_01_every_pin_that_differs_is_listed_at_once() {
    let Original { bench, run, .. } = original();
    let store = bench.store();
    let mut other = run;
    other.environment.insert("OMP_NUM_THREADS".into(), "2".into());
    let stack = other.stack.as_mut().unwrap();
    stack.processor = "Example 3000".into();
    stack.processor_features = Digest::of(b"");
    stack.system = "linux vax".into();
    stack.libraries[0].digest = Digest::of(b"");
    let library = stack.libraries[0].name.clone();
    store.put_manifest(&other).unwrap();
    let path = bench.store_path();
    let arguments = ["--store", path.to_str().unwrap(), "--refusals", "json", &other.id().to_string()];
    let refused = replay(&bench.path(""), &arguments, b"").expect(10);
    for what in
        ["processor differs", "processor features differs", "system differs", &format!("library {library} differs")]
    {
        assert!(refused.stderr.contains(what), "{what}: {}", refused.stderr);
    }
    assert!(refused.stderr.contains("OMP_NUM_THREADS: recorded 2, now 1"), "{}", refused.stderr);
    let document = parse(refused.stdout.as_bytes()).unwrap();
    assert_eq!(document.get("schema").and_then(xt_core::canonical::Value::as_str), Some("xt.refusal/1"));
}

/// What only the worker can say about itself is compared when it is ready.
#[test]
fn a_worker_that_reports_another_version_is_refused() {
    let Original { bench, run, .. } = original();
    let mut other = run;
    other.stack.as_mut().unwrap().reported.as_mut().unwrap().version = "9.9.9".into();
    let store = bench.store();
    store.put_manifest(&other).unwrap();
    let path = bench.store_path();
    let arguments = ["--store", path.to_str().unwrap(), &other.id().to_string()];
    let refused = replay(&bench.path(""), &arguments, b"").expect(10);
    assert!(refused.stderr.contains("version differs: recorded 9.9.9, now stand-in"), "{}", refused.stderr);
    let arguments = ["--store", path.to_str().unwrap(), "--ignore-stack", &other.id().to_string()];
    assert_eq!(replay(&bench.path(""), &arguments, b"").expect(0).replay().allowed.len(), 1);
}

#[test]
fn outputs_that_differ_after_equal_steps_are_named() {
    let Original { bench, run, .. } = original();
    let store = bench.store();
    let mut other = run;
    let config = other.artifacts.iter_mut().find(|file| file.path.as_str() == "model/config.json").unwrap();
    config.digest = store.put(b"{\"forged\":true}").unwrap();
    store.put_manifest(&other).unwrap();
    let path = bench.store_path();
    let arguments = ["--store", path.to_str().unwrap(), &other.id().to_string()];
    let ended = replay(&bench.path(""), &arguments, b"").expect(1);
    assert_eq!(ended.stderr, "replay: diverged after 12 equal steps: outputs model/config.json\n");
    let report = ended.replay();
    assert_eq!((report.outcome, report.divergence.clone(), report.equal_steps), (Outcome::Diverged, None, STEPS));
    assert_eq!(report.outputs.iter().filter(|file| !file.equal()).count(), 1);
}

/// Equal steps would lend a record their weight, so one that its own evidence contradicts is refused before they count.
#[test]
fn a_record_that_contradicts_its_evidence_is_refused_however_equal_its_steps() {
    let Original { bench, run, .. } = original();
    let store = bench.store();
    let refuse = |what: &str, change: &dyn Fn(&mut Run)| {
        let mut other = run.clone();
        change(&mut other);
        store.put_manifest(&other).unwrap();
        let path = bench.store_path();
        let arguments = ["--store", path.to_str().unwrap(), &other.id().to_string()];
        let ended = replay(&bench.path(""), &arguments, b"");
        assert_eq!((ended.code, ended.stderr.contains(what)), (Some(10), true), "{what}: {}", ended.stderr);
    };
    let lines = store.get(run.trace.as_ref().unwrap().digest).unwrap();
    let half: Vec<u8> = lines.split_inclusive(|byte| *byte == b'\n').take(6).flatten().copied().collect();
    let chain = read_steps(run.plan, &half).0.last().unwrap().chain;
    store.put(&half).unwrap();
    refuse("run#/progress/steps", &|run| {
        let trace = run.trace.as_mut().unwrap();
        (trace.digest, trace.steps, trace.chain) = (Digest::of(&half), 6, chain);
    });
    refuse("run#/artifacts", &|run| run.status = Status::Failed);
    refuse("run#/seed", &|run| run.seed += 5);
    refuse("run#/trace/chain", &|run| run.trace.as_mut().unwrap().chain = Digest::of(b"another"));
    refuse("run#/stack", &|run| run.stack.as_mut().unwrap().reported = None);
    // The control: the record as it is.
    let path = bench.store_path();
    replay(&bench.path(""), &["--store", path.to_str().unwrap(), &run.id().to_string()], b"").expect(0);
}

#[test]
fn a_bundle_document_that_its_evidence_does_not_give_is_refused() {
    let Original { bench, .. } = original();
    let references = bench.store().references().unwrap();
    let digest = references.iter().find(|r| r.name.as_str().starts_with("bundles/")).unwrap().digest;
    let path = bench.store_path();
    let arguments = ["--store", path.to_str().unwrap(), "-"];
    let mut bundle: Bundle = bench.store().manifest(digest).unwrap();
    replay(&bench.path(""), &arguments, bundle.encode().canonical().as_bytes()).expect(0);
    bundle.fingerprint = Digest::of(b"another");
    bundle.members.clear();
    let refused = replay(&bench.path(""), &arguments, bundle.encode().canonical().as_bytes()).expect(10);
    assert!(refused.stderr.contains("bundle#/fingerprint") && refused.stderr.contains("bundle#/members"));
}

#[test]
fn a_failed_run_is_replayed_as_far_as_it_was_recorded() {
    let bench = Bench::new();
    let failed = bench.run(&bench.plan("crash 5", STEPS), &[]);
    let run = failed.run(Status::Failed, 14);
    let path = bench.store_path();
    let path = path.to_str().unwrap();
    let ended = replay(&bench.path(""), &["--store", path, "--to", "4"], run.encode().canonical().as_bytes()).expect(0);
    assert_eq!(ended.stderr, "replay: equal, 4 of 4 steps\n");
    // The fifth step crashes again, as it did.
    let again = replay(&bench.path(""), &["--store", path], run.encode().canonical().as_bytes()).expect(14);
    let report = again.replay();
    assert_eq!((report.outcome, report.steps), (Outcome::Incomplete, 5));
    assert!(again.stderr.contains("replay: incomplete"), "{}", again.stderr);
}

#[test]
fn a_signal_stops_a_replay_and_leaves_a_report() {
    let bench = Bench::new();
    let run = bench.run(&bench.plan("slow 20", 100), &[]).run(Status::Succeeded, 0);
    let path = bench.store_path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-replay"));
    command.args(["--store", path.to_str().unwrap(), &run.id().to_string()]).env_clear().env("XT_TRAIN", STAND_IN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for("a second attempt with steps", || {
        let attempts = bench.record().attempts().unwrap();
        attempts.into_iter().find(|attempt| attempt.id != run.attempt && bench.telemetry(&attempt.id) >= 5)
    });
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(14), "{}", String::from_utf8_lossy(&output.stderr));
    let report = Replay::decode(&parse(&output.stdout).unwrap()).unwrap();
    assert_eq!(report.outcome, Outcome::Incomplete);
    assert!(report.equal_steps >= 4 && report.equal_steps < 100, "{}", report.equal_steps);
}

#[test]
fn data_that_is_not_there_is_a_failure_of_the_store() {
    let Original { bench, run, .. } = original();
    let path = bench.store_path();
    let thin = bench.path("thin.tar.zst");
    let program = env!("CARGO_BIN_EXE_xt-freeze");
    let arguments =
        ["--store", path.to_str().unwrap(), "--size", "thin", "-o", thin.to_str().unwrap(), &run.id().to_string()];
    tool(&bench.path(""), program, Path::new(STAND_IN), &arguments, b"").expect(0);
    let folder = tempfile::tempdir().unwrap();
    let failed = replay(folder.path(), &[thin.to_str().unwrap()], b"").expect(11);
    assert!(failed.stderr.contains("store.missing"), "{}", failed.stderr);
    // With the data in the store it is replayed.
    Store::open(&folder.path().join(".xt")).unwrap().put(&[b'a'; 5000]).unwrap();
    replay(folder.path(), &[thin.to_str().unwrap()], b"").expect(0);
}

#[test]
fn wrong_archives_and_documents_are_refused_and_nothing_runs() {
    let Original { archive, .. } = original();
    let mut flipped = unpack(&archive);
    let weights = flipped.iter_mut().find(|(path, _)| path == "model/model.safetensors").unwrap();
    weights.1[50] ^= 1;
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("one bit of the weights", pack(&flipped), "model/model.safetensors"),
        ("cut", archive[..archive.len() - 7].to_vec(), "(archive)"),
        ("a frame to be skipped", [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0][..], &archive].concat(), "(archive)"),
        ("nothing", Vec::new(), "input.empty"),
        ("another document", b"{\"schema\":\"xt.event/1\"}".to_vec(), "schema.unknown"),
        ("two documents", b"{} {}".to_vec(), "input.several"),
        ("no document", b"\x00\x01\x02\x03\x04".to_vec(), "input.json"),
    ];
    for (name, bytes, words) in cases {
        let folder = tempfile::tempdir().unwrap();
        Store::open_or_create(&folder.path().join(".xt")).unwrap();
        let refused = replay(folder.path(), &["-"], &bytes).expect(10);
        assert!(refused.stderr.contains(words) && refused.stdout.is_empty(), "{name}: {}", refused.stderr);
        assert_eq!(Store::open(&folder.path().join(".xt")).unwrap().list().unwrap(), [], "{name}");
        assert_eq!(fs::read_dir(folder.path().join(".xt/runs")).unwrap().count(), 0, "{name}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn a_frozen_model_speaks_from_its_archive() {
    let Original { archive, .. } = original();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model.tar.zst"), archive).unwrap();
    let arguments = ["sample", "model.tar.zst", "--prompt", "Call me", "--tokens", "3", "--seed", "1"];
    let spoken = tool(folder.path(), env!("CARGO_BIN_EXE_xt-run"), Path::new(STAND_IN), &arguments, b"").expect(0);
    assert_eq!(spoken.stdout, "Call me 1 2 3\n");
}

/// A true training run by the true worker, frozen; `None` where the worker is not built.
fn trained() -> Option<(Run, Vec<u8>)> {
    let worker = xt_harness::programs().join("xt-train");
    if !worker.is_file() {
        println!("not run here: xt-train is not built");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/train/in");
    for name in ["text.txt", "candidate.json"] {
        fs::copy(golden.join(name), folder.path().join(name)).unwrap();
    }
    let xt = |program: &str, arguments: &[&str], input: &[u8]| {
        tool(folder.path(), program, &worker, arguments, input).expect(0).stdout
    };
    xt(env!("CARGO_BIN_EXE_xt-compile"), &["dataset", "text.txt"], b"");
    let plan = xt(env!("CARGO_BIN_EXE_xt-compile"), &["candidate.json"], b"");
    let run = xt(env!("CARGO_BIN_EXE_xt-run"), &[], plan.as_bytes());
    xt(env!("CARGO_BIN_EXE_xt-freeze"), &["-o", "model.tar.zst"], run.as_bytes());
    let run = Run::decode(&parse(run.as_bytes()).unwrap()).unwrap();
    Some((run, fs::read(folder.path().join("model.tar.zst")).unwrap()))
}

/// The archive in a folder of its own, replayed there by the true worker.
fn replayed(archive: &[u8]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let worker = xt_harness::programs().join("xt-train");
    tool(folder.path(), env!("CARGO_BIN_EXE_xt-replay"), &worker, &["-"], archive)
}

/// The archive verified in an empty folder.
fn verified(archive: &[u8]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    tool(folder.path(), env!("CARGO_BIN_EXE_xt-freeze"), Path::new(STAND_IN), &["verify"], archive)
}

#[test]
fn a_true_training_run_comes_out_bit_for_bit_in_an_empty_store() {
    let Some((run, archive)) = trained() else { return };
    verified(&archive).expect(0);
    let report = replayed(&archive).expect(0);
    let steps = run.progress.steps;
    assert_eq!(report.stderr, format!("replay: equal, {steps} of {steps} steps\n"));
    assert!(report.replay().outputs.iter().all(xt_core::manifest::replay::OutputComparison::equal));
    // The control: the same run, forged at one step without a contradiction.
    let forged = forged(&archive, 5, |step| step.gradients = Digest::of(b"forged"));
    verified(&forged).expect(0);
    let report = replayed(&forged).expect(1).replay();
    let divergence = report.divergence.unwrap();
    assert_eq!((divergence.step, divergence.component, report.equal_steps), (5, Component::Gradients, 4));
}

#[test]
fn one_bit_of_a_weight_is_found_however_well_the_rest_was_made_to_fit() {
    let Some((run, archive)) = trained() else { return };
    let mut forgery = Forgery::of(&archive);
    let weights = forgery.files.get_mut("model/model.safetensors").unwrap();
    let last = weights.len() - 1;
    weights[last] ^= 1;
    let digest = xt_core::verb::weights::Weights::of(weights).unwrap();
    let report = verified(&forgery.seal()).expect(1);
    assert!(
        report.stderr.contains("model/model.safetensors") && report.stderr.contains("bundle.weights"),
        "{}",
        report.stderr
    );
    // Whoever makes the trace fit as well must be told by the replay.
    let mut forgery = Forgery::of(&archive);
    forgery.files.get_mut("model/model.safetensors").unwrap()[last] ^= 1;
    forgery.steps.last_mut().unwrap().parameters = digest;
    let sealed = forgery.seal();
    verified(&sealed).expect(0);
    let divergence = replayed(&sealed).expect(1).replay().divergence.unwrap();
    assert_eq!((divergence.step, divergence.component), (run.progress.steps, Component::Parameters));
    assert_eq!(divergence.differing, [Component::Parameters]);
}

#[test]
fn one_bit_of_the_data_is_found_by_learning_from_it_again() {
    let Some((_, archive)) = trained() else { return };
    let mut forgery = Forgery::of(&archive);
    let (old, mut bytes) = forgery.data.pop_first().unwrap();
    bytes[10] ^= 1;
    let (new, tokens) = (Digest::of(&bytes), forgery.plan.work.tokens);
    forgery.data.insert(new, bytes);
    let mut dataset = forgery.plan.dataset.clone().unwrap();
    dataset.members.iter_mut().filter(|member| member.digest == old).for_each(|member| member.digest = new);
    let mut candidate = forgery.plan.native().unwrap().clone();
    candidate.data.dataset = dataset.id();
    let tokens = Tokens { vocabulary: 256, count: tokens, tokenizer_bytes: 0 };
    forgery.plan = compile(candidate, dataset, forgery.plan.intent.clone(), forgery.plan.seed, tokens).unwrap();
    // The first step that learns from the changed byte: it stands in the first sample.
    let mut walk = Walk::new(shape(&forgery.plan).unwrap(), forgery.plan.seed);
    let learns = |step: &u64| walk.step(step - 1).iter().any(|batch| batch.samples.contains(&0));
    let first = (1..=forgery.plan.work.steps).find(learns).unwrap();
    let sealed = forgery.seal();
    verified(&sealed).expect(0);
    let divergence = replayed(&sealed).expect(1).replay().divergence.unwrap();
    assert_eq!((divergence.step, divergence.component), (first, Component::Loss), "{divergence:?}");
}

#[test]
fn one_value_of_the_plan_is_found_at_the_first_step_it_changes() {
    let Some((_, archive)) = trained() else { return };
    let mut forgery = Forgery::of(&archive);
    let plan = forgery.plan.clone();
    let mut candidate = plan.native().unwrap().clone();
    let xt_core::manifest::candidate::Optimizer::AdamW { beta2, .. } = &mut candidate.optimizer else {
        panic!("adamw")
    };
    *beta2 = xt_core::number::Finite::new(0.98).unwrap();
    let tokens = Tokens { vocabulary: 256, count: plan.work.tokens, tokenizer_bytes: 0 };
    forgery.plan = compile(candidate, plan.dataset.unwrap(), plan.intent, plan.seed, tokens).unwrap();
    let sealed = forgery.seal();
    verified(&sealed).expect(0);
    let divergence = replayed(&sealed).expect(1).replay().divergence.unwrap();
    assert_eq!((divergence.step, divergence.component), (1, Component::Optimizer), "{divergence:?}");
}
