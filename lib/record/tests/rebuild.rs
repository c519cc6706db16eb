//! The log is the whole truth: every table follows from it, and what differs is found and put right.

use rusqlite::Connection;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};
use xt_core::field::object;
use xt_core::manifest::action::ActionKind;
use xt_core::manifest::event::Level;
use xt_core::verb::settle::AttemptState;
use xt_record::{FORMAT, Record, Wish};

use crate::bench::{Bench, at, audit, name, nobody, submission};

/// A record in which something of everything has happened.
fn lively() -> Bench {
    let bench = Bench::new();
    let record = bench.record();
    record.new_experiment(&name("x"), &object([("target", 1u64.into())]), at(0)).unwrap();
    for (text, end) in [("a", AttemptState::Failed), ("b", AttemptState::Cancelled), ("c", AttemptState::Lost)] {
        let attempt = record.submit(&submission(text, None)).unwrap().attempt().id;
        record.claim(&attempt, &nobody(), at(1)).unwrap();
        let (kind, level) = (ActionKind::Cancel, Level::Attempt);
        record.ask(&Wish { kind, level, target: attempt.clone(), by: "a test".into(), now: at(2) }).unwrap();
        record.settle(&attempt, end, &Digest::of(text.as_bytes()), at(3)).unwrap();
        record.retry(&attempt, None, None, at(4)).unwrap();
    }
    bench
}

fn dump(bench: &Bench) -> Vec<(String, String)> {
    let raw = Connection::open(bench.path()).unwrap();
    let mut found = Vec::new();
    for table in ["experiment", "node", "run", "attempt", "operation", "action"] {
        let mut statement = raw.prepare(&format!("SELECT * FROM {table} ORDER BY number")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap()));
            found.push((table.to_string(), cells.collect::<Vec<_>>().join("|")));
        }
    }
    found
}

#[test]
fn the_tables_made_from_the_log_in_a_second_database_are_the_tables() {
    let bench = lively();
    let found = bench.record().check().unwrap();
    assert_eq!(found.differences, [""; 0]);
    assert!(found.rows >= 15 && found.events >= 40, "{found:?}");
    assert_eq!(found.rows, dump(&bench).len() as u64);
}

#[test]
fn every_tampering_with_a_table_is_found_by_name_and_put_right() {
    let tamperings = [
        ("UPDATE attempt SET state = 'succeeded' WHERE number = 1", "state is succeeded"),
        ("UPDATE attempt SET run_record = NULL WHERE number = 1", "run_record is nothing"),
        ("UPDATE operation SET outcome = 'succeeded' WHERE number = 2", "outcome is succeeded"),
        ("UPDATE experiment SET objective = '{}' WHERE id = 'x'", "objective is {}"),
        ("DELETE FROM action WHERE number = 3", "is missing"),
        ("INSERT INTO experiment (id, state) VALUES ('ghost', 'active')", "no event tells of experiment ghost"),
        ("UPDATE run SET seed = '8'", "seed is 8"),
    ];
    for (sql, expected) in tamperings {
        let bench = lively();
        let before = dump(&bench);
        let raw = Connection::open(bench.path()).unwrap();
        raw.pragma_update(None, "foreign_keys", false).unwrap();
        raw.execute(sql, []).unwrap();
        drop(raw);
        let found = bench.record().check().unwrap();
        assert!(found.differences.iter().any(|text| text.contains(expected)), "{sql}: {:?}", found.differences);
        assert_ne!(dump(&bench), before, "checking changes nothing");
        assert_eq!(bench.record().rebuild().unwrap(), found);
        assert_eq!(dump(&bench), before, "{sql}");
        audit(&bench.path());
    }
}

#[test]
fn a_log_that_cannot_be_true_is_refused_by_the_number_of_its_event() {
    for (sql, expected) in [
        ("DELETE FROM event WHERE sequence = 5", "event 5 is not in the log"),
        (
            "UPDATE event SET after = 'succeeded' WHERE kind = 'attempt.starting'",
            "cannot go from requested to succeeded",
        ),
        ("UPDATE event SET payload = '{}' WHERE kind = 'node.created'", "event "),
        ("UPDATE event SET subject = 'other' WHERE kind = 'run.active'", "run other is not created"),
    ] {
        let bench = lively();
        let before = dump(&bench);
        Connection::open(bench.path()).unwrap().execute(sql, []).unwrap();
        for refused in [bench.record().check().unwrap_err(), bench.record().rebuild().unwrap_err()] {
            assert_eq!((refused.exit(), refused.word()), (Exit::Store, "record.damaged"));
            assert!(refused.to_string().contains(expected), "{sql}: {refused}");
        }
        assert_eq!(dump(&bench), before);
    }
}

/// The tables of format 1, as that version made them.
const FORMAT_1: &str = "
CREATE TABLE experiment (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL) STRICT;
CREATE TABLE node (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    experiment TEXT NOT NULL REFERENCES experiment (id), fingerprint TEXT NOT NULL, UNIQUE (experiment, fingerprint)) STRICT;
CREATE TABLE run (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    node TEXT NOT NULL REFERENCES node (id), seed TEXT NOT NULL) STRICT;
CREATE INDEX run_of_node ON run (node, seed);
CREATE TABLE operation (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    kind TEXT NOT NULL, request TEXT NOT NULL, outcome TEXT,
    attempt TEXT NOT NULL REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED) STRICT;
CREATE TABLE attempt (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    run TEXT NOT NULL REFERENCES run (id), operation TEXT NOT NULL UNIQUE REFERENCES operation (id),
    plan TEXT NOT NULL, request TEXT NOT NULL,
    pid INTEGER, start_time INTEGER, boot_id TEXT, namespace INTEGER, run_record TEXT) STRICT;
CREATE INDEX attempt_of_run ON attempt (run);
INSERT INTO experiment SELECT number, id, state FROM new.experiment;
INSERT INTO node SELECT number, id, state, experiment, fingerprint FROM new.node;
INSERT INTO run SELECT number, id, state, node, seed FROM new.run;
INSERT INTO operation SELECT number, id, state, kind, request, outcome, attempt FROM new.operation;
INSERT INTO attempt SELECT number, id, state, run, operation, plan, request, 1, 2, 'b', 3, run_record FROM new.attempt;
CREATE TABLE event (sequence INTEGER PRIMARY KEY, at INTEGER NOT NULL, level TEXT NOT NULL, subject TEXT NOT NULL,
    kind TEXT NOT NULL, before TEXT, after TEXT, payload TEXT NOT NULL) STRICT;
CREATE INDEX event_of_subject ON event (level, subject);
INSERT INTO event SELECT * FROM new.event;
";

#[test]
fn a_record_of_format_1_is_taken_to_this_format_by_its_log_and_reading_alone_leaves_it() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", Some("mine"))).unwrap().attempt();
    record.claim(&attempt.id, &nobody(), at(1)).unwrap();
    record.settle(&attempt.id, AttemptState::Failed, &Digest::of(b"1"), at(2)).unwrap();
    let (events, status) = (record.events(0).unwrap(), record.status().unwrap());
    let old = bench.path().with_file_name("old.db");
    let raw = Connection::open(&old).unwrap();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    raw.execute("ATTACH ?1 AS new", [bench.path().to_str().unwrap()]).unwrap();
    raw.execute_batch(FORMAT_1).unwrap();
    raw.execute_batch(&format!("PRAGMA application_id = {}; PRAGMA user_version = 1", xt_record::APPLICATION_ID))
        .unwrap();
    drop(raw);
    let bytes = std::fs::read(&old).unwrap();
    let refused = Record::open_read_only(&old).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Refused, "record.older"));
    assert_eq!(std::fs::read(&old).unwrap(), bytes);
    let migrated = Record::open(&old).unwrap();
    assert_eq!((migrated.events(0).unwrap(), migrated.status().unwrap()), (events, status));
    let version: u32 =
        Connection::open(&old).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, FORMAT);
    audit(&old);
    Record::open_read_only(&old).unwrap();
}
