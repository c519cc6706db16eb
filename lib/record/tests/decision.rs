//! Decisions: once for each cycle, on all its results and no others, in one commit with what follows.

use xt_core::digest::Digest;
use xt_core::fault::Failure as _;
use xt_core::field::object;
use xt_core::manifest::decision::{Operator, Outcome};
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::number::Finite;
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
        reached: None,
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

/// Row T73: what the exact regime has to be asked about is open until it has answered.
#[test]
fn what_is_escalated_stays_open_and_can_be_decided_later() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let open = Judgement { outcome: Some(Outcome::Escalate), decision: Digest::of(b"open"), ..judgement.clone() };
    assert!(matches!(record.decide(&open).unwrap(), Decided::New(_)));
    assert!(matches!(record.decide(&open).unwrap(), Decided::Existing(_)));
    assert_eq!(states(&record), (NodeState::Deciding, ExperimentState::Active));
    assert!(matches!(record.decide(&judgement).unwrap(), Decided::New(_)));
    let outcomes: Vec<_> = record.decisions(&judgement.node).unwrap().iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Escalate), Some(Outcome::StopSucceeded)]);
    assert_eq!(states(&record).0, NodeState::Completed);
    audit(&bench.path());
}

/// Row E-21.
#[test]
fn an_experiment_does_not_end_while_something_of_it_runs() {
    let bench = Bench::new();
    let (record, judgement) = evaluated(&bench, 1);
    let other = Submission { fingerprint: Digest::of(b"another candidate"), ..submission("other", None) };
    let alive = record.submit(&other).unwrap().attempt();
    assert_eq!(refused(&record, &judgement), (75, "decision.running"));
    assert_eq!(states(&record), (NodeState::Deciding, ExperimentState::Active));
    record.transition(&alive.id, AttemptState::Cancelled, at(5), &object([])).unwrap();
    record.decide(&judgement).unwrap();
    assert_eq!(states(&record), (NodeState::Completed, ExperimentState::Succeeded));
}

/// Trains and evaluates one more candidate, and gives what would be decided on it.
fn another(record: &Record, text: &str, outcome: Outcome, reached: f64) -> Judgement {
    let fingerprint = Digest::of(text.as_bytes());
    carry_out(record, &Submission { fingerprint, ..submission(text, None) }, AttemptState::Succeeded);
    let evaluation = Submission { fingerprint, ..evaluation(text, 0) };
    let results = vec![carry_out(record, &evaluation, AttemptState::Succeeded)];
    let nodes = record.status().unwrap().nodes;
    let node = nodes.into_iter().find(|node| node.fingerprint == fingerprint).unwrap();
    Judgement {
        experiment: node.experiment,
        node: node.id,
        cycle: 1,
        results,
        decision: Digest::of(format!("decision on {text}").as_bytes()),
        input_fingerprint: Digest::of(b"input"),
        outcome: Some(outcome),
        reached: Some((Operator::AtMost, Finite::new(reached).unwrap())),
        by: "a test".into(),
        now: at(9),
    }
}

/// Every order of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let longer = |shorter: Vec<usize>| {
        (0..count).map(move |place| {
            let mut longer = shorter.clone();
            longer.insert(place, count - 1);
            longer
        })
    };
    orders(count - 1).into_iter().flat_map(longer).collect()
}

/// Rows X71 and X72 for several candidates: what the same decisions make of an experiment does not depend on which of
/// them comes first.
#[test]
fn an_experiment_ends_alike_in_whatever_order_its_candidates_are_judged() {
    use Outcome::{Branch, Reject, StopFailed, StopSucceeded};
    for (candidates, end, best) in [
        (vec![(StopSucceeded, 0.3), (StopFailed, 0.9)], ExperimentState::Succeeded, Some("c0")),
        (vec![(StopSucceeded, 0.3), (StopSucceeded, 0.2)], ExperimentState::Succeeded, Some("c1")),
        (vec![(StopSucceeded, 0.3), (StopSucceeded, 0.3), (Reject, 0.1)], ExperimentState::Succeeded, Some("c0")),
        (vec![(StopFailed, 0.8), (StopFailed, 0.9)], ExperimentState::Failed, None),
        (vec![(StopFailed, 0.8), (Reject, 0.1)], ExperimentState::Failed, None),
        (vec![(StopFailed, 0.8), (Branch, 0.7), (Reject, 0.1)], ExperimentState::Failed, None),
        (vec![(Branch, 0.7), (Reject, 0.1)], ExperimentState::Active, None),
    ] {
        for order in orders(candidates.len()) {
            let bench = Bench::new();
            let record = bench.record();
            let judged = |(place, (outcome, reached)): (usize, &(Outcome, f64))| {
                another(&record, &format!("c{place}"), *outcome, *reached)
            };
            let judgements: Vec<Judgement> = candidates.iter().enumerate().map(judged).collect();
            for (count, place) in order.iter().enumerate() {
                record.decide(&judgements[*place]).unwrap();
                let state = record.status().unwrap().experiments[0].state;
                let failed_early = state == ExperimentState::Failed && count + 1 < order.len();
                assert!(!failed_early, "{order:?}: a candidate is not judged yet");
            }
            let found = record.status().unwrap().experiments[0].state;
            assert_eq!(found, end, "{candidates:?} {order:?}");
            let named = record.best(&judgements[0].experiment).unwrap();
            let place = named.map(|best| judgements.iter().position(|made| made.node == best).unwrap());
            assert_eq!(place.map(|place| format!("c{place}")).as_deref(), best, "{candidates:?} {order:?}");
            audit(&bench.path());
        }
    }
}

/// Row E-21: a missed target of one candidate does not end what another one still runs for.
#[test]
fn a_candidate_that_still_runs_keeps_its_experiment_open_whatever_the_others_come_to() {
    let bench = Bench::new();
    let record = bench.record();
    let missed = another(&record, "missed", Outcome::StopFailed, 0.9);
    let other = Submission { fingerprint: Digest::of(b"running"), ..submission("running", None) };
    let alive = record.submit(&other).unwrap().attempt();
    record.decide(&missed).unwrap();
    assert_eq!(states(&record), (NodeState::Rejected, ExperimentState::Active));
    record.transition(&alive.id, AttemptState::Cancelled, at(5), &object([])).unwrap();
    let met = another(&record, "running", Outcome::StopSucceeded, 0.2);
    record.decide(&met).unwrap();
    assert_eq!(states(&record), (NodeState::Rejected, ExperimentState::Succeeded));
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
