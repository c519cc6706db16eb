//! Actions: asked for, carried out by operations, closed by what really happened.

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};
use xt_core::field::object;
use xt_core::manifest::action::{Action, ActionKind};
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{ActionState, AttemptState, ExperimentState, NodeState, OperationState, RunState};
use xt_record::{Asked, Record, Wish};

use crate::bench::{Bench, at, audit, name, nobody, submission};

fn wish(kind: ActionKind, level: Level, target: &Name) -> Wish {
    Wish { kind, level, target: target.clone(), by: "a test".into(), now: at(5) }
}

fn cancel(attempt: &Name) -> Wish {
    wish(ActionKind::Cancel, Level::Attempt, attempt)
}

/// An attempt that runs, of the request `text`.
fn running(record: &Record, text: &str, seed: u64) -> Name {
    let attempt = record.submit(&xt_record::Submission { seed, ..submission(text, None) }).unwrap().attempt().id;
    record.claim(&attempt, &nobody(), at(1)).unwrap();
    record.transition(&attempt, AttemptState::Running, at(2), &object([])).unwrap();
    attempt
}

fn new(asked: Asked) -> Action {
    match asked {
        Asked::New(action) => action,
        other => panic!("{other:?}"),
    }
}

fn end(record: &Record, attempt: &Name, state: AttemptState) {
    record.settle(attempt, state, &Digest::of(b"record"), at(9)).unwrap();
}

fn action(record: &Record, id: &Name) -> Action {
    record.action(id).unwrap().unwrap()
}

#[test]
fn a_cancel_is_recorded_with_its_operation_and_done_when_the_attempt_ends_by_it() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = running(&record, "a", 1);
    let asked = new(record.ask(&cancel(&attempt)).unwrap());
    assert_eq!((asked.state, asked.by.as_str(), asked.at), (ActionState::Active, "a test", at(5)));
    let [step] = &asked.operations[..] else { panic!("{asked:?}") };
    assert_eq!((step.state, &step.attempt, step.outcome), (OperationState::Intended, &attempt, None));
    assert_eq!(record.attempt(&attempt).unwrap().unwrap().state, AttemptState::Running, "nothing is being cancelled");
    record.sent(&step.operation, at(6)).unwrap();
    record.sent(&step.operation, at(6)).unwrap();
    assert_eq!(action(&record, &asked.action).operations[0].state, OperationState::Sent);
    end(&record, &attempt, AttemptState::Cancelled);
    let done = action(&record, &asked.action);
    assert_eq!((done.state, done.operations[0].state), (ActionState::Done, OperationState::Done));
    assert_eq!(done.operations[0].outcome, Some(AttemptState::Cancelled));
    audit(&bench.path());
}

#[test]
fn asking_again_while_one_is_open_records_nothing() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = running(&record, "a", 1);
    let first = new(record.ask(&cancel(&attempt)).unwrap());
    let before = record.events(0).unwrap();
    let Asked::Open(again) = record.ask(&cancel(&attempt)).unwrap() else { panic!("not open") };
    assert_eq!((again, record.events(0).unwrap()), (first, before));
    // The control: another kind is another action.
    new(record.ask(&wish(ActionKind::Drain, Level::Attempt, &attempt)).unwrap());
}

#[test]
fn an_end_that_was_seen_beats_a_cancel_that_is_pending() {
    for state in [AttemptState::Succeeded, AttemptState::Failed, AttemptState::Exhausted, AttemptState::Lost] {
        let bench = Bench::new();
        let record = bench.record();
        let attempt = running(&record, "a", 1);
        let asked = new(record.ask(&cancel(&attempt)).unwrap());
        end(&record, &attempt, state);
        let closed = action(&record, &asked.action);
        assert_eq!(closed.state, ActionState::Superseded, "{state}");
        assert_eq!(closed.operations[0].outcome, Some(state));
        assert_eq!(record.attempt(&attempt).unwrap().unwrap().state, state);
        audit(&bench.path());
    }
}

#[test]
fn a_cancel_that_comes_after_the_end_is_noted_once_and_changes_nothing() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = running(&record, "a", 1);
    end(&record, &attempt, AttemptState::Succeeded);
    let status = record.status().unwrap();
    assert_eq!(record.ask(&cancel(&attempt)).unwrap(), Asked::Ended);
    let after = record.events(0).unwrap();
    assert_eq!(record.actions().unwrap()[0].state, ActionState::Superseded);
    assert_eq!(record.ask(&cancel(&attempt)).unwrap(), Asked::Ended);
    assert_eq!((record.events(0).unwrap(), record.status().unwrap()), (after, status));
}

#[test]
fn an_experiment_is_cancelled_when_the_last_of_its_work_has_ended_and_not_before() {
    let bench = Bench::new();
    let record = bench.record();
    let attempts = [running(&record, "a", 1), running(&record, "b", 2), running(&record, "c", 3)];
    end(&record, &attempts[0], AttemptState::Succeeded);
    let asked = new(record.ask(&wish(ActionKind::Cancel, Level::Experiment, &name("default"))).unwrap());
    let about: Vec<&Name> = asked.operations.iter().map(|step| &step.attempt).collect();
    assert_eq!(about, [&attempts[1], &attempts[2]], "one operation for each attempt that is alive");
    let state = || record.experiment(&name("default")).unwrap().unwrap().state;
    let refused = record.submit(&submission("d", None)).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "record.closing"));
    end(&record, &attempts[1], AttemptState::Cancelled);
    assert_eq!(state(), ExperimentState::Active);
    end(&record, &attempts[2], AttemptState::Succeeded);
    assert_eq!(state(), ExperimentState::Cancelled);
    assert_eq!(action(&record, &asked.action).state, ActionState::Done);
    let runs: Vec<RunState> = record.status().unwrap().runs.iter().map(|run| run.state).collect();
    assert_eq!(runs, [RunState::Succeeded, RunState::Cancelled, RunState::Succeeded], "what succeeded has succeeded");
    assert_eq!(record.status().unwrap().nodes[0].state, NodeState::Cancelled);
    assert_eq!(record.submit(&submission("e", None)).unwrap_err().word(), "record.closed");
    audit(&bench.path());
}

#[test]
fn an_experiment_without_live_work_is_cancelled_at_once() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = running(&record, "a", 1);
    end(&record, &attempt, AttemptState::Lost);
    let asked = new(record.ask(&wish(ActionKind::Cancel, Level::Experiment, &name("default"))).unwrap());
    assert_eq!((asked.state, asked.operations.len()), (ActionState::Done, 0));
    let status = record.status().unwrap();
    assert_eq!(status.experiments[0].state, ExperimentState::Cancelled);
    assert_eq!(status.runs[0].state, RunState::Cancelled);
    assert_eq!(record.ask(&wish(ActionKind::Cancel, Level::Experiment, &name("default"))).unwrap(), Asked::Ended);
    audit(&bench.path());
}

#[test]
fn a_drain_is_done_by_draining_and_superseded_by_any_other_end() {
    for (state, closed) in [
        (AttemptState::Drained, ActionState::Done),
        (AttemptState::Succeeded, ActionState::Superseded),
        (AttemptState::Cancelled, ActionState::Superseded),
    ] {
        let bench = Bench::new();
        let record = bench.record();
        let attempt = running(&record, "a", 1);
        let asked = new(record.ask(&wish(ActionKind::Drain, Level::Attempt, &attempt)).unwrap());
        end(&record, &attempt, state);
        assert_eq!(action(&record, &asked.action).state, closed, "{state}");
    }
}

#[test]
fn what_nobody_knows_cannot_be_cancelled() {
    let bench = Bench::new();
    let record = bench.record();
    let before = record.events(0).unwrap();
    for wish in [cancel(&name("att-none")), wish(ActionKind::Cancel, Level::Experiment, &name("none"))] {
        assert_eq!(record.ask(&wish).unwrap_err().word(), "record.unknown");
    }
    assert_eq!(record.events(0).unwrap(), before);
}
