//! Retries: another attempt at the same, when there is a reason for one.

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};
use xt_core::verb::settle::AttemptState;
use xt_record::RecordError;

use crate::bench::{Bench, at, audit, name, nobody, submission};

#[test]
fn a_retry_asks_for_the_same_under_a_new_identity_and_names_what_it_retries() {
    let bench = Bench::new();
    let record = bench.record();
    let first = record.submit(&submission("a", Some("mine"))).unwrap().attempt();
    record.claim(&first.id, &nobody(), at(1)).unwrap();
    record.settle(&first.id, AttemptState::Failed, &Digest::of(b"1"), at(2)).unwrap();
    let second = record.retry(&first.id, None, None, at(3)).unwrap();
    assert_eq!((second.plan, second.request, second.seed), (first.plan, first.request, first.seed));
    assert_eq!(second.retry_of.as_ref(), Some(&first.id));
    assert_ne!((&second.id, &second.operation), (&first.id, &first.operation));
    assert_eq!(record.attempt(&first.id).unwrap().unwrap().run_record, Some(Digest::of(b"1")), "history stays");
    audit(&bench.path());
}

#[test]
fn a_retry_is_refused_with_every_reason_while_something_is_alive_or_has_succeeded() {
    let bench = Bench::new();
    let record = bench.record();
    let attempts: Vec<_> = (0..3).map(|_| record.submit(&submission("a", None)).unwrap().attempt().id).collect();
    for attempt in &attempts {
        record.claim(attempt, &nobody(), at(1)).unwrap();
    }
    record.settle(&attempts[0], AttemptState::Failed, &Digest::of(b"0"), at(2)).unwrap();
    record.transition(&attempts[1], AttemptState::Running, at(2), &xt_core::field::object([])).unwrap();
    record.settle(&attempts[1], AttemptState::Succeeded, &Digest::of(b"1"), at(2)).unwrap();
    let before = record.events(0).unwrap();
    let refused = record.retry(&attempts[0], None, None, at(3)).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "attempt.no-retry"));
    let RecordError::NoRetry { reasons, .. } = refused else { panic!() };
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons[0].contains("succeeded") && reasons[1].contains("is starting"), "{reasons:?}");
    assert_eq!(record.events(0).unwrap(), before);
    assert_eq!(record.retry(&name("att-none"), None, None, at(3)).unwrap_err().word(), "record.unknown");
}

#[test]
fn the_same_operation_id_under_another_experiment_is_a_conflict_that_names_both() {
    let bench = Bench::new();
    let record = bench.record();
    record.submit(&submission("a", Some("mine"))).unwrap();
    let before = record.events(0).unwrap();
    let elsewhere = xt_record::Submission { experiment: name("other"), ..submission("a", Some("mine")) };
    let refused = record.submit(&elsewhere).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "operation.elsewhere"));
    assert!(refused.to_string().contains("default") && refused.to_string().contains("other"), "{refused}");
    assert_eq!(record.events(0).unwrap(), before);
}

#[test]
fn an_attempt_that_never_came_to_start_a_worker_can_be_given_to_another_supervisor() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    record.claim(&attempt, &nobody(), at(1)).unwrap();
    let mut other = nobody();
    other.pid = 3_999_999;
    let refused = record.reclaim(&attempt, &other, &other, at(2)).unwrap_err();
    assert_eq!(refused.word(), "attempt.claimed", "only the owner can be replaced");
    let taken = record.reclaim(&attempt, &nobody(), &other, at(2)).unwrap();
    assert_eq!(
        (taken.process, taken.state, record.reclaims(&attempt).unwrap()),
        (Some(other.clone()), AttemptState::Starting, 1)
    );
    record.transition(&attempt, AttemptState::Running, at(3), &xt_core::field::object([])).unwrap();
    assert_eq!(record.reclaim(&attempt, &other, &nobody(), at(4)).unwrap_err().word(), "attempt.claimed");
    audit(&bench.path());
}

#[test]
fn an_experiment_has_one_objective() {
    let bench = Bench::new();
    let record = bench.record();
    let objective = |target: f64| {
        let target = xt_core::number::Finite::new(target).unwrap();
        xt_core::field::object([("target", xt_core::canonical::Value::Float(target))])
    };
    let first = record.new_experiment(&name("x"), &objective(0.5), at(1)).unwrap();
    assert_eq!(first.objective.as_deref(), Some("{\"target\":0.5}"));
    assert_eq!(record.new_experiment(&name("x"), &objective(0.5), at(2)).unwrap(), first);
    let refused = record.new_experiment(&name("x"), &objective(0.6), at(2)).unwrap_err();
    assert_eq!((refused.exit(), refused.word()), (Exit::Conflict, "experiment.objective"));
    record.submit(&submission("a", None)).unwrap();
    assert_eq!(
        record.new_experiment(&name("default"), &objective(0.5), at(3)).unwrap_err().word(),
        "experiment.objective"
    );
    audit(&bench.path());
}
