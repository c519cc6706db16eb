//! Many processes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use xt_record::{Record, RecordError, Submitted};

use crate::bench::{Bench, another, audit, given, said, submission};

const OPERATIONS: &str = "XT_TEST_OPERATIONS";

/// Submits under each operation id given, opening the record anew each time, and says what came back.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn submit_all() {
    for operation in std::env::var(OPERATIONS).unwrap().split(' ') {
        let record = Record::open(&given()).unwrap();
        let given = Some(operation).filter(|given| *given != "-");
        let (new, attempt) = match record.submit(&submission(operation, given)).unwrap() {
            Submitted::New(attempt) => ("new", attempt.id),
            Submitted::Existing(attempt) => ("existing", attempt.id),
        };
        println!("> {operation} {attempt} {new}");
    }
}

#[test]
fn twenty_processes_make_one_attempt_for_each_operation_in_a_record_that_did_not_exist() {
    let bench = Bench::new();
    let children: Vec<_> = (0..20)
        .map(|own| {
            let operations = format!("shared-a shared-b own-{own} - shared-{}", own % 5);
            let mut command = another("crowd::submit_all", &bench.path());
            command.env(OPERATIONS, operations).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut answers: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in said(&output.stdout) {
            let words: Vec<&str> = line.split(' ').collect();
            answers.entry(words[0].into()).or_default().push((words[1].into(), words[2].into()));
        }
    }
    let minted = answers.remove("-").unwrap();
    assert_eq!(minted.iter().map(|(attempt, _)| attempt).collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(answers.len(), 2 + 20 + 5);
    for (operation, answers) in &answers {
        let attempts: BTreeSet<_> = answers.iter().map(|(attempt, _)| attempt).collect();
        assert_eq!(attempts.len(), 1, "{operation}");
        assert_eq!(answers.iter().filter(|(_, new)| new == "new").count(), 1, "{operation}");
    }
    assert_eq!(answers["shared-a"].len(), 20);
    let attempts = bench.record().attempts().unwrap();
    assert_eq!(attempts.len(), 2 + 20 + 5 + 20);
    let operations: BTreeSet<_> = attempts.iter().map(|attempt| &attempt.operation).collect();
    assert_eq!(operations.len(), attempts.len());
    audit(&bench.path());
    let left: Vec<_> = std::fs::read_dir(bench.path().parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn opening_succeeds_at_any_moment_while_others_open_grow_and_close_the_record() {
    // Whoever closes last writes the log into the file: page by page, the head first.
    let bench = Bench::new();
    let operations: Vec<String> = (0..60).map(|number| format!("op-{number}")).collect();
    let mut writer = another("crowd::submit_all", &bench.path())
        .env(OPERATIONS, operations.join(" "))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut opened = 0;
    while writer.try_wait().unwrap().is_none() {
        match Record::open_read_only(&bench.path()) {
            Err(RecordError::Absent { .. }) => {}
            record => opened += usize::from(record.unwrap().attempts().is_ok()),
        }
    }
    assert!(writer.wait().unwrap().success());
    assert!(opened > 60, "opened {opened} times");
    assert_eq!(bench.record().attempts().unwrap().len(), operations.len());
    audit(&bench.path());
}

/// Tries to have the file for itself alone, and says whether it could.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn take_over() {
    let raw = rusqlite::Connection::open(given()).unwrap();
    raw.busy_timeout(std::time::Duration::ZERO).unwrap();
    raw.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
    println!("> {}", if raw.execute_batch("BEGIN EXCLUSIVE").is_ok() { "taken" } else { "refused" });
}

#[test]
fn an_open_record_keeps_its_lock_while_others_in_the_same_process_come_and_go() {
    // Closing any file handle drops all locks of its process on that file; another process could then take down the log
    // that this one still writes to.
    let bench = Bench::new();
    let take_over = || said(&another("crowd::take_over", &bench.path()).output().unwrap().stdout);
    let record = bench.record();
    record.submit(&submission("first", None)).unwrap();
    drop(Record::open_read_only(&bench.path()).unwrap());
    drop(bench.record());
    assert_eq!(take_over(), ["refused"]);
    record.submit(&submission("second", None)).unwrap();
    drop(record);
    assert_eq!(take_over(), ["taken"]);
    audit(&bench.path());
}
