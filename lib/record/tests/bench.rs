//! What the tests share: a folder with a record in it, and things to put there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use xt_core::digest::Digest;
use xt_core::instant::Instant;
use xt_core::name::Name;
use xt_record::{FILE_NAME, Process, Record, Submission};

/// A fresh folder.
pub struct Bench(TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join(FILE_NAME)
    }

    pub fn record(&self) -> Record {
        Record::open(&self.path()).unwrap()
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn at(seconds: u64) -> Instant {
    Instant::from_unix(1_800_000_000 + seconds).unwrap()
}

/// A submission of a request made of `text`, under the operation id given.
pub fn submission(text: &str, operation: Option<&str>) -> Submission {
    Submission {
        experiment: name("default"),
        fingerprint: Digest::of(b"candidate"),
        seed: 7,
        plan: Digest::of(format!("plan {text}").as_bytes()),
        request: Digest::of(format!("request {text}").as_bytes()),
        operation: operation.map(name),
        subject: None,
        scope: None,
        now: at(0),
    }
}

/// A supervisor that is nobody.
pub fn nobody() -> Process {
    Process { pid: 4_000_000, start_time: u64::MAX, boot_id: "none".to_string(), namespace: 1 }
}

/// This program again, as another process that runs the ignored test `part` on the record at `path`.
pub fn another(part: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", part]).env(PATH, path).stdin(Stdio::null());
    command
}

const PATH: &str = "XT_TEST_RECORD";

/// The record that [`another`] was called with.
pub fn given() -> PathBuf {
    std::env::var_os(PATH).unwrap().into()
}

/// What a part printed: lines that begin with `> `.
pub fn said(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    text.lines().filter_map(|line| Some(line.split_once("> ")?.1.to_string())).collect()
}

/// Holds the events against the states: the log has no gaps, each entry goes on where the one before ended, by the edge
/// tables, and what it leads to is what the tables hold. Gives the number of events.
pub fn audit(path: &Path) -> u64 {
    let record = Record::open(path).unwrap();
    let mut states: BTreeMap<(String, String), String> = BTreeMap::new();
    let events = record.events(0).unwrap();
    for (event, sequence) in events.iter().zip(1..) {
        assert_eq!(event.sequence, sequence, "a gap in the log");
        let subject = (event.level.to_string(), event.subject.to_string());
        // What changes no state leaves the subject where it is.
        let after = event.after.as_ref().or(event.before.as_ref()).unwrap();
        let before = states.insert(subject, after.to_string());
        assert_eq!(before, event.before.as_ref().map(ToString::to_string), "{event:?}");
    }
    let raw = rusqlite::Connection::open(path).unwrap();
    let sound: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    // Evaluations are in the tables of runs and attempts.
    states = states.into_iter().map(|((level, id), state)| ((level.replace("evaluation-", ""), id), state)).collect();
    let mut held = BTreeMap::new();
    for level in ["experiment", "node", "run", "attempt", "operation", "action", "lease"] {
        let mut rows = raw.prepare(&format!("SELECT id, state FROM {level}")).unwrap();
        let rows = rows.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
        held.extend(rows.map(|row| row.unwrap()).map(|(id, state)| ((level.to_string(), id), state)));
    }
    assert_eq!(states, held);
    let rebuilt = record.check().unwrap();
    assert_eq!((rebuilt.differences, rebuilt.events), (Vec::<String>::new(), events.len() as u64));
    events.len() as u64
}
