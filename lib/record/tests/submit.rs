//! Submission, the life of an attempt, and its end.

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};
use xt_core::field::object;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, NodeState, OperationState, RunState};
use xt_record::{Record, RecordError, Submitted};

use crate::bench::{Bench, at, name, nobody, submission};

fn kinds(record: &Record, after: u64) -> Vec<String> {
    record.events(after).unwrap().iter().map(|event| event.kind.to_string()).collect()
}

#[test]
fn a_submission_leaves_its_intent_and_all_that_it_creates_in_one_go() {
    let bench = Bench::new();
    let record = bench.record();
    let Submitted::New(attempt) = record.submit(&submission("a", None)).unwrap() else { panic!("not new") };
    assert_eq!(attempt.operation.as_str(), "op-1");
    assert_eq!(attempt.id.as_str(), format!("att-{}-1", &Digest::of(b"plan a").hex()[..12]));
    assert_eq!((attempt.state, attempt.process.clone(), attempt.run_record), (AttemptState::Requested, None, None));
    assert_eq!(
        kinds(&record, 0),
        [
            "experiment.created",
            "node.created",
            "node.planned",
            "node.ready",
            "run.created",
            "operation.intended",
            "attempt.requested"
        ]
    );
    assert_eq!(record.attempt(&attempt.id).unwrap(), Some(attempt.clone()));
    assert_eq!(record.attempt_of_operation(&attempt.operation).unwrap(), Some(attempt.clone()));
    assert_eq!(record.attempts().unwrap(), [attempt]);
    assert_eq!(record.attempt(&name("att-none")).unwrap(), None);
}

#[test]
fn a_whole_life_moves_everything_and_every_event_says_before_and_after() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt();
    record.claim(&attempt.id, &nobody(), at(1)).unwrap();
    record.transition(&attempt.id, AttemptState::Running, at(2), &object([])).unwrap();
    let ended = record.settle(&attempt.id, AttemptState::Succeeded, &Digest::of(b"record"), at(3)).unwrap();
    assert_eq!(ended.process, Some(nobody()));
    assert_eq!(ended.run_record, Some(Digest::of(b"record")));
    let later = [
        "attempt.starting",
        "operation.sent",
        "run.active",
        "node.active",
        "experiment.active",
        "attempt.running",
        "attempt.succeeded",
        "operation.done",
        "run.succeeded",
    ];
    assert_eq!(kinds(&record, 7), later);
    let status = record.status().unwrap();
    assert_eq!(status.experiments[0].state, ExperimentState::Active);
    assert_eq!(status.nodes[0].state, NodeState::Active);
    assert_eq!(status.runs[0].state, RunState::Succeeded);
    let operation = record.operation(&attempt.operation).unwrap().unwrap();
    assert_eq!((operation.state, operation.outcome), (OperationState::Done, Some(AttemptState::Succeeded)));
    let last = record.events(13).unwrap();
    assert_eq!(last[0].before, Some(name("running")));
    assert_eq!(last[0].after, Some(name("succeeded")));
    assert_eq!(last[0].payload.get("run_record").and_then(Value::as_str).unwrap(), Digest::of(b"record").to_string());
}

#[test]
fn the_same_operation_id_finds_its_workload_and_another_request_is_a_conflict_that_changes_nothing() {
    let bench = Bench::new();
    let record = bench.record();
    let first = record.submit(&submission("a", Some("mine"))).unwrap().attempt();
    assert_eq!(record.submit(&submission("a", Some("mine"))).unwrap(), Submitted::Existing(first.clone()));
    // Also after its end: the recorded result is the answer (E-02).
    record.transition(&first.id, AttemptState::Cancelled, at(1), &object([])).unwrap();
    let again = record.submit(&submission("a", Some("mine"))).unwrap();
    assert!(matches!(again, Submitted::Existing(attempt) if attempt.state == AttemptState::Cancelled));
    let before = record.events(0).unwrap();
    let refused = record.submit(&submission("b", Some("mine"))).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "operation.conflict"));
    let text = refused.to_string();
    for request in ["request a", "request b"] {
        assert!(text.contains(&Digest::of(request.as_bytes()).to_string()), "{text}");
    }
    assert_eq!(record.events(0).unwrap(), before);
}

/// Somebody's operation id was the name of another's attempt, and a cancel by that name stopped the wrong run.
#[test]
fn an_operation_id_never_takes_the_place_of_a_name_that_the_record_gave() {
    let bench = Bench::new();
    let record = bench.record();
    let first = record.submit(&submission("a", None)).unwrap().attempt();
    let named = |text: &str| -> Vec<Name> {
        record.attempts_named(text).unwrap().into_iter().map(|attempt| attempt.id).collect()
    };
    let mut ids = Vec::new();
    for name in [first.id.as_str(), first.run.as_str(), "default", "mine"] {
        let other = submission(&format!("as {name}"), Some(name));
        ids.push(record.submit(&other).unwrap().attempt().id);
    }
    assert_eq!(named(first.id.as_str()), std::slice::from_ref(&first.id));
    assert!(named(first.run.as_str()).contains(&first.id));
    assert_eq!(named("default").len(), 5, "all are under the experiment of that name");
    assert_eq!(named("mine"), ids[3..], "an id of its own means its operation");
}

#[test]
fn a_retry_is_a_new_attempt_and_what_has_ended_stays_as_it_ended() {
    let bench = Bench::new();
    let record = bench.record();
    let first = record.submit(&submission("a", None)).unwrap().attempt();
    record.claim(&first.id, &nobody(), at(1)).unwrap();
    record.settle(&first.id, AttemptState::Failed, &Digest::of(b"1"), at(2)).unwrap();
    let second = record.submit(&submission("a", None)).unwrap().attempt();
    assert_ne!((&first.id, &first.operation, &first.run), (&second.id, &second.operation, &second.run));
    assert_eq!(first.node, second.node);
    assert!(second.id.as_str().ends_with("-2"));
    let status = record.status().unwrap();
    assert_eq!(status.runs.iter().map(|run| run.state).collect::<Vec<_>>(), [RunState::Failed, RunState::Created]);
    assert_eq!(status.attempts[0].state, AttemptState::Failed);
}

#[test]
fn settling_again_is_no_change_and_settling_otherwise_is_refused() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    record.claim(&attempt, &nobody(), at(1)).unwrap();
    let digest = Digest::of(b"record");
    let ended = record.settle(&attempt, AttemptState::Failed, &digest, at(2)).unwrap();
    let before = record.events(0).unwrap();
    assert_eq!(record.settle(&attempt, AttemptState::Failed, &digest, at(3)).unwrap(), ended);
    for (to, digest) in [(AttemptState::Failed, Digest::of(b"other")), (AttemptState::Succeeded, digest)] {
        let refused = record.settle(&attempt, to, &digest, at(3)).unwrap_err();
        assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "attempt.settled"));
    }
    let refused = record.settle(&attempt, AttemptState::Running, &digest, at(3)).unwrap_err();
    assert_eq!(refused.word(), "attempt.no-end");
    assert_eq!(record.events(0).unwrap(), before);
}

#[test]
fn an_attempt_has_one_supervisor() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    record.claim(&attempt, &nobody(), at(1)).unwrap();
    let before = record.events(0).unwrap();
    record.claim(&attempt, &nobody(), at(2)).unwrap();
    let mut other = nobody();
    other.start_time -= 1;
    let refused = record.claim(&attempt, &other, at(2)).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "attempt.claimed"));
    assert_eq!(record.events(0).unwrap(), before);
}

#[test]
fn an_illegal_step_is_refused_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    let before = (record.events(0).unwrap(), record.status().unwrap());
    for to in [AttemptState::Requested, AttemptState::Running, AttemptState::Succeeded, AttemptState::Drained] {
        let refused = record.transition(&attempt, to, at(1), &object([])).unwrap_err();
        assert!(matches!(refused, RecordError::Illegal { .. }), "{refused}");
    }
    let unknown = record.transition(&name("att-none"), AttemptState::Starting, at(1), &object([])).unwrap_err();
    assert_eq!(unknown.word(), "record.unknown");
    assert_eq!((record.events(0).unwrap(), record.status().unwrap()), before);
}

#[test]
fn a_run_with_an_attempt_alive_does_not_end_and_one_success_is_a_success() {
    let bench = Bench::new();
    let record = bench.record();
    let attempts: Vec<_> = (0..3).map(|_| record.submit(&submission("a", None)).unwrap().attempt().id).collect();
    for attempt in &attempts {
        record.claim(attempt, &nobody(), at(1)).unwrap();
    }
    let state = || record.status().unwrap().runs[0].state;
    record.transition(&attempts[0], AttemptState::Running, at(2), &object([])).unwrap();
    record.settle(&attempts[0], AttemptState::Succeeded, &Digest::of(b"0"), at(3)).unwrap();
    record.settle(&attempts[1], AttemptState::Lost, &Digest::of(b"1"), at(3)).unwrap();
    assert_eq!(state(), RunState::Active);
    record.settle(&attempts[2], AttemptState::Failed, &Digest::of(b"2"), at(3)).unwrap();
    assert_eq!(state(), RunState::Succeeded);
    assert_eq!(record.status().unwrap().runs.len(), 1);
}

#[test]
fn an_end_that_nobody_saw_leaves_run_and_operation_open() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt();
    record.claim(&attempt.id, &nobody(), at(1)).unwrap();
    record.transition(&attempt.id, AttemptState::Lost, at(2), &object([])).unwrap();
    assert_eq!(record.status().unwrap().runs[0].state, RunState::Active);
    assert_eq!(record.operation(&attempt.operation).unwrap().unwrap().state, OperationState::Uncertain);
}

#[test]
fn ids_given_by_people_and_minted_ids_never_meet() {
    let bench = Bench::new();
    let record = bench.record();
    for given in ["op-1", "op-3", "op-4"] {
        record.submit(&submission(given, Some(given))).unwrap();
    }
    let minted: Vec<_> =
        (0..3).map(|_| record.submit(&submission("m", None)).unwrap().attempt().operation.to_string()).collect();
    assert_eq!(minted, ["op-5", "op-6", "op-7"]);
    assert_eq!(record.submit(&submission("x", Some("op-6"))).unwrap_err().word(), "operation.conflict");
}

#[test]
fn a_closed_experiment_or_node_takes_no_new_work() {
    let bench = Bench::new();
    let record = bench.record();
    record.submit(&submission("a", None)).unwrap();
    for (table, state) in [("experiment", "cancelled"), ("node", "rejected")] {
        let raw = rusqlite::Connection::open(bench.path()).unwrap();
        let old: String = raw.query_row(&format!("SELECT state FROM {table}"), [], |row| row.get(0)).unwrap();
        raw.execute(&format!("UPDATE {table} SET state = ?1"), [state]).unwrap();
        let refused = record.submit(&submission("a", None)).unwrap_err();
        assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "record.closed"), "{refused}");
        raw.execute(&format!("UPDATE {table} SET state = ?1"), [old]).unwrap();
    }
    record.submit(&submission("a", None)).unwrap();
}

#[test]
fn what_succeeded_before_an_experiment_ended_is_given_again_and_nothing_new() {
    let bench = Bench::new();
    let record = bench.record();
    let asked = submission("a", None);
    let mut attempts = Vec::new();
    for end in [AttemptState::Succeeded, AttemptState::Failed] {
        let Submitted::New(attempt) = record.submit(&asked).unwrap() else { panic!("the control: it is open") };
        record.claim(&attempt.id, &nobody(), at(1)).unwrap();
        record.transition(&attempt.id, AttemptState::Running, at(1), &object([])).unwrap();
        record.settle(&attempt.id, end, &Digest::of(b"r"), at(2)).unwrap();
        attempts.push(attempt.id);
    }
    for table in ["experiment", "node"] {
        let raw = rusqlite::Connection::open(bench.path()).unwrap();
        let old: String = raw.query_row(&format!("SELECT state FROM {table}"), [], |row| row.get(0)).unwrap();
        raw.execute(&format!("UPDATE {table} SET state = 'cancelled'"), []).unwrap();
        let before = record.events(0).unwrap();
        let Submitted::Existing(known) = record.submit(&asked).unwrap() else { panic!("{table}: new work") };
        assert_eq!(known.id, attempts[0], "{table}: the one that succeeded");
        // Another request, and one that is to have a name of its own, are new work.
        for other in [submission("b", None), submission("a", Some("op-named"))] {
            assert_eq!(record.submit(&other).unwrap_err().word(), "record.closed", "{table}");
        }
        assert_eq!(record.events(0).unwrap(), before, "{table}");
        raw.execute(&format!("UPDATE {table} SET state = ?1"), [old]).unwrap();
    }
}

#[test]
fn order_is_by_sequence_when_the_clock_goes_backwards() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    let early = xt_core::instant::Instant::from_unix(5).unwrap();
    record.claim(&attempt, &nobody(), early).unwrap();
    record.settle(&attempt, AttemptState::Failed, &Digest::of(b"r"), at(9)).unwrap();
    let events = record.events(0).unwrap();
    assert!(events.iter().zip(1..).all(|(event, sequence)| event.sequence == sequence));
    let times: Vec<u64> = events.iter().map(|event| event.at.unix()).collect();
    assert!(!times.is_sorted(), "the clock went backwards in this test");
    assert_eq!(events.last().unwrap().kind.as_str(), "run.failed");
    assert_eq!(record.events(3).unwrap(), events[3..]);
    assert_eq!(record.events_at_most(3, 2).unwrap(), events[3..5]);
    assert_eq!(record.events(u64::MAX).unwrap(), []);
}
