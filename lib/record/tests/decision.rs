//! Decisions: once for each cycle, on all its results and no others, in one commit with what follows.

use xt_core::digest::Digest;
use xt_core::fault::Failure as _;
use xt_core::field::object;
use xt_core::manifest::decision::Outcome;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, NodeState};
use xt_record::{Decided, Judgement, Record, RecordError, Submission};

use crate::bench::{Bench, at, audit, name, nobody, submission};

fn carry_out(record: &Record, submission: &Submission, end: AttemptState) -> Name {
    let attempt = record.submit(submission).unwrap().attempt();
    record.claim(&attempt.id, &nobody(), at(1)).unwrap();
    record.transition(&attempt.id, AttemptState::Running, at(2), &object([])).unwrap();
    record.settle(&attempt.id, end, &Digest::of(attempt.id.as_str().as_bytes()), at(3)).unwrap();
    attempt.run
}

fn evaluation(text: &str, seed: u64) -> Submission {
    let bundle = Digest::of(format!("bundle {seed}").as_bytes());
    Submission { subject: Some(bundle), ..submission(&format!("{text} {seed}"), None) }
}

/// A candidate that was trained and evaluated with so many seeds, and what would be decided on it.
fn evaluated(bench: &Bench, seeds: u64) -> (Record, Judgement) {
    let record = bench.record();
    carry_out(&record, &submission("train", None), AttemptState::Succeeded);
    let results =
        (0..seeds).map(|seed| carry_out(&record, &evaluation("loss", seed), AttemptState::Succeeded)).collect();
    let node = record.status().unwrap().nodes[0].clone();
    let judgement = Judgement {
        experiment: node.experiment,
        node: node.id,
        cycle: 1,
        results,
        decision: Digest::of(b"decision"),
        input_fingerprint: Digest::of(b"input"),
        outcome: Some(Outcome::StopSucceeded),
        by: "a test".into(),
        now: at(9),
    };
    (record, judgement)
}

fn states(record: &Record) -> (NodeState, ExperimentState) {
    let overview = record.status().unwrap();
    (overview.nodes[0].state, overview.experiments[0].state)
}

fn refused(record: &Record, judgement: &Judgement) -> (u8, &'static str) {
    let events = record.events(0).unwrap().len();
    let error: RecordError = record.decide(judgement).unwrap_err();
    assert_eq!(record.events(0).unwrap().len(), events, "a refusal leaves nothing");
    (error.exit().code(), error.word())
}

/// Rows X71 and X72.
#[test]
fn each_outcome_has_its_own_effects_and_only_a_stop_ends_the_experiment() {
    for (outcome, node, experiment) in [
        (Outcome::StopSucceeded, NodeState::Completed, ExperimentState::Succeeded),
        (Outcome::StopFailed, NodeState::Rejected, ExperimentState::Failed),
        (Outcome::Reject, NodeState::Rejected, ExperimentState::Active),
        (Outcome::Branch, NodeState::Rejected, ExperimentState::Active),
    ] {
        let bench = Bench::new();
        let (record, judgement) = evaluated(&bench, 1);
        assert_eq!(states(&record), (NodeState::Deciding, ExperimentState::Active));
        let row = record.decide(&Judgement { outcome: Some(outcome), ..judgement }).unwrap().row();
        assert_eq!(states(&record), (node, experiment), "{outcome}");
        assert_eq!((row.cycle, row.outcome, row.by.as_str(), row.at), (1, Some(outcome), "a test", at(9)));
        let best = record.events(row.sequence).unwrap().into_iter().find(|event| event.level == Level::Experiment);
        let best = best.and_then(|event| event.payload.get("best").and_then(|best| best.as_str().map(String::from)));
        assert_eq!(best.is_some(), outcome == Outcome::StopSucceeded);
        audit(&bench.path());
    }
}

/// Rows X83 to X85.
#[test]
fn the_same_decision_again_changes_nothing_and_another_one_is_a_conflict() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 2);
    let first = record.decide(&judgement).unwrap();
    assert!(matches!(first, Decided::New(_)));
    let events = record.events(0).unwrap().len();
    let again = bench.record().decide(&Judgement { now: at(99), ..judgement.clone() }).unwrap();
    assert_eq!(again, Decided::Existing(first.row()));
    assert_eq!(record.events(0).unwrap().len(), events);
    let other = Judgement { decision: Digest::of(b"other"), outcome: Some(Outcome::Reject), ..judgement };
    assert_eq!(refused(&record, &other), (12, "decision.decided"));
    assert_eq!(states(&record), (NodeState::Completed, ExperimentState::Succeeded));
}

/// Rows X52, X78 and X79.
#[test]
fn a_decision_is_made_on_every_result_of_the_last_cycle_and_on_no_other() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 3);
    let with = |results: Vec<Name>| Judgement { results, ..judgement.clone() };
    let all = judgement.results.clone();
    assert_eq!(refused(&record, &with(all[1..].to_vec())), (10, "decision.left-out"));
    assert_eq!(refused(&record, &with([&all[..], &all[..1]].concat())), (10, "decision.duplicate"));
    assert_eq!(refused(&record, &with([&all[..], &[name("run-of-another")]].concat())), (10, "decision.outside"));
    let later = Judgement { cycle: 2, ..judgement.clone() };
    assert_eq!(refused(&record, &later), (10, "decision.other-cycle"));
    let foreign = Judgement { experiment: name("another"), ..judgement.clone() };
    assert_eq!(refused(&record, &foreign), (10, "decision.foreign"));
    let nobody = Judgement { node: name("node-9"), ..judgement.clone() };
    assert_eq!(refused(&record, &nobody), (10, "record.unknown"));
    // What was measured before is measured again: a new cycle, which old results never satisfy.
    let again = carry_out(&record, &evaluation("loss", 0), AttemptState::Succeeded);
    assert_eq!(refused(&record, &judgement), (10, "decision.other-cycle"));
    assert_eq!(refused(&record, &Judgement { cycle: 2, ..judgement.clone() }), (10, "decision.outside"));
    record.decide(&Judgement { cycle: 2, results: vec![again], ..judgement }).unwrap();
    audit(&bench.path());
}

#[test]
fn a_candidate_that_is_still_evaluated_is_not_decided_yet() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let running = record.submit(&evaluation("accuracy", 0)).unwrap().attempt();
    record.claim(&running.id, &nobody(), at(4)).unwrap();
    assert_eq!(refused(&record, &judgement), (75, "decision.unfinished"));
    record.transition(&running.id, AttemptState::Running, at(5), &object([])).unwrap();
    record.settle(&running.id, AttemptState::Succeeded, &Digest::of(b"r"), at(6)).unwrap();
    assert_eq!(refused(&record, &judgement), (10, "decision.left-out"));
    let results = [judgement.results.clone(), vec![running.run]].concat();
    record.decide(&Judgement { results, ..judgement }).unwrap();
}

/// Row X82.
#[test]
fn what_cannot_be_decided_is_noted_once_and_can_be_decided_later() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let open = Judgement { outcome: None, decision: Digest::of(b"open"), ..judgement.clone() };
    assert!(matches!(record.decide(&open).unwrap(), Decided::New(_)));
    let events = record.events(0).unwrap().len();
    assert!(matches!(record.decide(&open).unwrap(), Decided::Existing(_)));
    assert_eq!((record.events(0).unwrap().len(), states(&record).0), (events, NodeState::Deciding));
    assert!(matches!(record.decide(&judgement).unwrap(), Decided::New(_)));
    let outcomes: Vec<_> = record.decisions(&judgement.node).unwrap().iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [None, Some(Outcome::StopSucceeded)]);
    audit(&bench.path());
}

/// Row E-21.
#[test]
fn an_experiment_does_not_end_while_something_of_it_runs() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let other = Submission { fingerprint: Digest::of(b"another candidate"), ..submission("other", None) };
    let alive = record.submit(&other).unwrap().attempt();
    for outcome in [Outcome::StopSucceeded, Outcome::StopFailed] {
        let stop = Judgement { outcome: Some(outcome), ..judgement.clone() };
        assert_eq!(refused(&record, &stop), (75, "decision.running"));
    }
    assert_eq!(states(&record), (NodeState::Deciding, ExperimentState::Active));
    record.transition(&alive.id, AttemptState::Cancelled, at(5), &object([])).unwrap();
    record.decide(&judgement).unwrap();
    assert_eq!(states(&record), (NodeState::Completed, ExperimentState::Succeeded));
}

#[test]
fn an_experiment_has_one_promotion_and_the_same_again_changes_nothing() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let promote = |text: &str| {
        let (id, bundle) = (Digest::of(text.as_bytes()), Digest::of(b"bundle"));
        record.promote(&judgement.experiment, id, (&judgement.node, bundle), "a test", at(10))
    };
    assert_eq!(record.promotion(&judgement.experiment).unwrap(), None);
    assert_eq!((promote("one").unwrap(), promote("one").unwrap()), (true, false));
    assert_eq!(promote("two").unwrap_err().word(), "decision.promoted");
    assert_eq!(record.promotion(&judgement.experiment).unwrap(), Some(Digest::of(b"one")));
    audit(&bench.path());
}
