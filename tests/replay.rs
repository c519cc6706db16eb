//! `xt-replay`: equal is equal bit for bit, and what differs is named by step and component. The stand-in worker computes
//! nothing, but the same nothing each time; a true training run is replayed by the golden cases and the demo.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bench::{Bench, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::replay::{Component, Outcome, Replay};
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::trace::{Step, Trace, read_steps};
use xt_core::relpath::RelativePath;
use xt_store::{Store, archive};

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

/// The files of an archive, in order.
type Files = Vec<(String, Vec<u8>)>;

fn unpack(bytes: &[u8]) -> Files {
    let mut files = Vec::new();
    archive::read(bytes, &archive::Limits::default(), |path, _, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes).unwrap();
        files.push((path.to_string(), bytes));
        Ok::<(), archive::ArchiveError>(())
    })
    .unwrap();
    files
}

fn pack(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    let member = |(path, bytes): &'_ (String, Vec<u8>)| (RelativePath::new(path).unwrap(), bytes.clone());
    let members: Vec<(RelativePath, Vec<u8>)> = files.iter().map(member).collect();
    archive::write(&mut out, members.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64, bytes.as_slice())))
        .unwrap();
    out
}

fn file<'a>(files: &'a mut Files, path: &str) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(name, _)| name == path).unwrap_or_else(|| panic!("no {path}")).1
}

/// A bundle without a contradiction, of a run that never was: step `number` was changed, and chain, trace, run record and
/// every digest were made to fit.
fn forged(whole: &Files, number: u64, change: impl FnOnce(&mut Step)) -> Vec<u8> {
    let mut files = whole.clone();
    let plan = Plan::decode(&parse(file(&mut files, "manifests/plan.json")).unwrap()).unwrap();
    let (mut steps, bad) = read_steps(plan.id(), file(&mut files, "trace/steps.jsonl"));
    assert_eq!(bad, None);
    change(&mut steps[usize::try_from(number).unwrap() - 1]);
    let (mut chain, mut lines) = (plan.id(), String::new());
    for step in steps {
        let step = step.chain_to(chain);
        chain = step.chain;
        lines += &(step.write().canonical() + "\n");
    }
    let trace = Trace { plan: plan.id(), steps: STEPS, lines: Digest::of(lines.as_bytes()), chain };
    let mut run = Run::decode(&parse(file(&mut files, "manifests/run.json")).unwrap()).unwrap();
    let reference = run.trace.as_mut().unwrap();
    (reference.digest, reference.chain) = (trace.lines, chain);
    *file(&mut files, "trace/steps.jsonl") = lines.into_bytes();
    *file(&mut files, "manifests/trace.json") = trace.write().canonical().into_bytes();
    *file(&mut files, "manifests/run.json") = run.write().canonical().into_bytes();
    let mut bundle = Bundle::decode(&parse(file(&mut files, "bundle.json")).unwrap()).unwrap();
    (bundle.run, bundle.trace) = (run.id(), trace.id());
    for member in &mut bundle.members {
        let bytes = file(&mut files, member.file.path.as_str());
        (member.file.digest, member.file.bytes) = (Digest::of(bytes), bytes.len() as u64);
    }
    *file(&mut files, "bundle.json") = bundle.write().canonical().into_bytes();
    let mut sums: Vec<(String, String)> = files
        .iter()
        .filter(|(path, _)| path != "SHA256SUMS")
        .map(|(path, bytes)| (path.clone(), format!("{}  {path}\n", Digest::of(bytes).hex())))
        .collect();
    sums.sort();
    *file(&mut files, "SHA256SUMS") = sums.into_iter().map(|(_, line)| line).collect::<String>().into_bytes();
    pack(&files)
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
    let whole = unpack(&archive);
    let folder = tempfile::tempdir().unwrap();
    let changes: [(u64, Component, Change); 4] = [
        (1, Component::Gradients, |step| step.gradients = Digest::of(b"forged")),
        (5, Component::LearningRate, |step| step.learning_rate = xt_core::number::Finite::new(0.5).unwrap()),
        (7, Component::Parameters, |step| step.parameters = Digest::of(b"forged")),
        (12, Component::Optimizer, |step| step.optimizer = Digest::of(b"forged")),
    ];
    for (number, component, change) in changes {
        let bytes = forged(&whole, number, change);
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
fn every_pin_that_differs_is_listed_at_once() {
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
    file(&mut flipped, "model/model.safetensors")[50] ^= 1;
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
