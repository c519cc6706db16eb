//! `xt-log` on real stores: what it prints of a record, and that it leaves the record alone.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::slice::from_ref;

use tempfile::TempDir;
use xt_core::canonical::{Value, parse, parse_all};
use xt_core::digest::Digest;
use xt_core::field::{Manifest as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::event::Event;
use xt_core::manifest::status::{Liveness, Observed, Status};
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;
use xt_record::{Attempt, FORMAT, Process, Record, Submission};
use xt_store::Store;

/// A fresh store with a record.
struct Bench {
    folder: TempDir,
    record: Record,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        Self { record: Record::open(&store.record_path()).unwrap(), folder }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn submit(&self, seed: u64) -> Attempt {
        let submission = Submission {
            experiment: Name::new("default").unwrap(),
            fingerprint: Digest::of(b"candidate"),
            seed,
            plan: Digest::of(format!("plan {seed}").as_bytes()),
            request: Digest::of(format!("request {seed}").as_bytes()),
            operation: None,
            subject: None,
            scope: None,
            now: at(0),
        };
        self.record.submit(&submission).unwrap().attempt()
    }

    /// An attempt that `process` runs.
    fn running(&self, seed: u64, process: &Process) -> Name {
        let attempt = self.submit(seed).id;
        self.record.claim(&attempt, process, at(1)).unwrap();
        self.record.transition(&attempt, AttemptState::Running, at(2), &object([])).unwrap();
        attempt
    }

    fn log(&self, arguments: &[&str]) -> Output {
        log(&self.store(), arguments).output().unwrap()
    }

    fn statuses(&self, arguments: &[&str]) -> Vec<Status> {
        documents(&self.log(arguments)).iter().map(|value| Status::decode(value).unwrap()).collect()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_unix(1_800_000_000 + seconds).unwrap()
}

fn log(store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-log"));
    command.env_clear().arg("--store").arg(store).args(arguments).stdin(Stdio::null());
    command
}

/// The documents of a successful answer: one canonical line each, and nothing on standard error.
fn documents(output: &Output) -> Vec<Value> {
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    let documents = parse_all(&output.stdout).unwrap();
    let lines: String = documents.iter().map(|value| value.canonical() + "\n").collect();
    assert_eq!(lines.as_bytes(), output.stdout);
    documents
}

/// Exit code, and the code word on standard error; standard output must be empty.
fn refusal(output: &Output) -> (Option<i32>, String) {
    assert_eq!(output.stdout, b"");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let word = text.split_once("error[").and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_string());
    (output.status.code(), word.unwrap_or(text))
}

/// Every file of the store that belongs to the record, with its bytes; the index of the log is a cache.
fn files(store: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(store).unwrap().map(|entry| entry.unwrap());
    let records = entries.filter(|e| e.file_name().to_string_lossy().starts_with("record.db"));
    let mut files: Vec<_> = records
        .map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read(e.path()).unwrap()))
        .filter(|(name, _)| !name.ends_with("-shm"))
        .collect();
    files.sort();
    files
}

struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn process(&self) -> Process {
        Process::of(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn events_come_in_order_whole_and_from_where_they_were_asked_for() {
    let bench = Bench::new();
    bench.running(1, &Process::own().unwrap());
    let recorded = bench.record.events(0).unwrap();
    let events = |arguments: &[&str]| -> Vec<Event> {
        documents(&bench.log(arguments)).iter().map(|value| Event::decode(value).unwrap()).collect()
    };
    assert_eq!(events(&["events"]), recorded);
    assert_eq!(events(&["events", "--after", "5"]), recorded[5..]);
    assert_eq!(events(&["events", "--after", "18446744073709551615"]), []);
}

#[test]
fn an_attempt_is_followed_from_waiting_to_working_to_ended() {
    let bench = Bench::new();
    let attempt = bench.submit(3).id;
    let one = || bench.statuses(&["status"]).remove(0);
    assert_eq!((one().observed, one().liveness, one().supervisor), (Observed::Waiting, None, None));
    let sleeper = Sleeper::new();
    bench.record.claim(&attempt, &sleeper.process(), at(1)).unwrap();
    bench.record.transition(&attempt, AttemptState::Running, at(2), &object([])).unwrap();
    assert_eq!((one().state, one().observed), (AttemptState::Running, Observed::Working));
    assert_eq!(one().liveness, Some(Liveness::Alive));
    assert_eq!(one().supervisor, Some(sleeper.process().supervisor()));
    let digest = Digest::of(b"run record");
    bench.record.settle(&attempt, AttemptState::Failed, &digest, at(3)).unwrap();
    drop(sleeper);
    let ended = one();
    assert_eq!((ended.state, ended.observed, ended.liveness), (AttemptState::Failed, Observed::Ended, None));
    assert_eq!((ended.run_record, ended.seed, ended.last_event_at), (Some(digest), 3, at(3)));
}

#[test]
fn a_dead_supervisor_means_lost_a_hidden_one_uncertain_and_reading_changes_nothing() {
    let bench = Bench::new();
    let mut stranger = Sleeper::new();
    let gone = Sleeper::new().process();
    let recycled = Process { start_time: stranger.process().start_time - 100, ..stranger.process() };
    let rebooted = Process { boot_id: "6d1f0d22-0000-4000-8000-000000000000".into(), ..stranger.process() };
    let hidden = Process { namespace: stranger.process().namespace + 1, ..gone.clone() };
    let expected = [
        (stranger.process(), Liveness::Alive, Observed::Working),
        (gone, Liveness::Dead, Observed::Lost),
        (recycled, Liveness::Dead, Observed::Lost),
        (rebooted, Liveness::Dead, Observed::Lost),
        (hidden, Liveness::Unknown, Observed::Uncertain),
    ];
    for (seed, (process, ..)) in (0..).zip(&expected) {
        bench.running(seed, process);
    }
    let before = (bench.record.events(0).unwrap(), bench.record.status().unwrap());
    let found = bench.statuses(&["status"]);
    for (status, (process, liveness, observed)) in found.iter().zip(&expected) {
        assert_eq!((status.liveness, status.observed), (Some(*liveness), *observed), "{process:?}");
        assert_eq!(status.state, AttemptState::Running, "the record is told as it is");
        assert!(status.why.contains(&process.pid.to_string()), "{}", status.why);
    }
    assert_eq!(found.len(), expected.len());
    assert_eq!((bench.record.events(0).unwrap(), bench.record.status().unwrap()), before);
    assert!(stranger.0.try_wait().unwrap().is_none(), "the stranger lives on");
}

#[test]
fn reading_leaves_every_byte_of_the_record() {
    let bench = Bench::new();
    bench.running(1, &Sleeper::new().process());
    let store = bench.store();
    // Open, as while a run goes on; and closed.
    let open = files(&store);
    assert_eq!(open.len(), 2, "the log lies beside the record");
    for arguments in [&["status"][..], &["events"], &["show", "op-1"]] {
        documents(&bench.log(arguments));
    }
    assert_eq!(files(&store), open);
    let Bench { folder, record } = bench;
    drop(record);
    let closed = files(&store);
    assert_eq!(documents(&log(&store, &["status"]).output().unwrap()).len(), 1);
    assert_eq!(files(&store)[0], closed[0]);
    drop(folder);
}

#[test]
fn show_finds_attempts_by_any_id_of_theirs() {
    let bench = Bench::new();
    let first = bench.submit(1);
    let second = bench.running(2, &Process::own().unwrap());
    let digest = Digest::of(b"run record");
    bench.record.settle(&second, AttemptState::Succeeded, &digest, at(3)).unwrap();
    let ids =
        |id: &str| -> Vec<Name> { bench.statuses(&["show", id]).into_iter().map(|status| status.attempt).collect() };
    for id in [&first.id, &first.operation, &first.run] {
        assert_eq!(ids(id.as_str()), from_ref(&first.id));
    }
    for id in [first.plan.to_string(), Digest::of(b"plan 1").to_string()] {
        assert_eq!(ids(&id), from_ref(&first.id));
    }
    assert_eq!(ids(&digest.to_string()), from_ref(&second));
    assert_eq!(ids(first.node.as_str()), [first.id.clone(), second.clone()]);
    assert_eq!(ids("default"), [first.id, second]);
    assert_eq!(refusal(&bench.log(&["show", "att-none"])), (Some(10), "record.unknown".into()));
    assert_eq!(refusal(&bench.log(&["show", "no id"])), (Some(2), "usage".into()));
}

#[test]
fn a_follower_prints_each_event_once_and_ends_when_its_reader_does() {
    let bench = Bench::new();
    bench.submit(1);
    let mut follower = log(&bench.store(), &["events", "--follow", "--after", "2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || Event::decode(&parse(lines.next().unwrap().unwrap().as_bytes()).unwrap()).unwrap();
    let mut seen: Vec<u64> = (3..=7).map(|_| next().sequence).collect();
    for seed in 2..5 {
        bench.submit(seed);
        // Node and experiment are there already: a run, an operation, an attempt.
        seen.extend((0..3).map(|_| next().sequence));
    }
    assert_eq!(seen, (3..=16).collect::<Vec<u64>>());
    drop(lines);
    assert_eq!(refusal(&follower.wait_with_output().unwrap()), (Some(20), "system.write".into()));
}

#[test]
fn a_newer_record_is_refused_and_left_as_it_is() {
    let bench = Bench::new();
    bench.submit(1);
    let store = bench.store();
    let Bench { folder, record } = bench;
    drop(record);
    let path = store.join("record.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[60..64].copy_from_slice(&(FORMAT + 1).to_be_bytes());
    fs::write(&path, bytes).unwrap();
    let before = files(&store);
    for arguments in [&["status"][..], &["events"], &["show", "op-1"]] {
        assert_eq!(refusal(&log(&store, arguments).output().unwrap()), (Some(10), "record.newer".into()));
    }
    assert_eq!(files(&store), before);
    assert!(!store.join("record.db-shm").exists());
    drop(folder);
}

#[test]
fn without_store_or_record_there_is_no_answer_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    assert_eq!(refusal(&log(&store, &["status"]).output().unwrap()).0, Some(11));
    assert!(!store.exists());
    Store::open_or_create(&store).unwrap();
    assert_eq!(refusal(&log(&store, &["events"]).output().unwrap()), (Some(11), "record.absent".into()));
    assert_eq!(files(&store), []);
}

#[test]
fn a_writer_in_the_middle_of_a_change_does_not_hold_up_a_reader() {
    let bench = Bench::new();
    bench.submit(1);
    let raw = rusqlite::Connection::open(bench.store().join("record.db")).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE; UPDATE attempt SET state = 'starting';").unwrap();
    assert_eq!(bench.statuses(&["status"])[0].state, AttemptState::Requested);
    raw.execute_batch("ROLLBACK").unwrap();
}
