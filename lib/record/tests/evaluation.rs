//! Evaluation runs and attempts: the same life, their own machines, and cycles that never mix.

use xt_core::digest::Digest;
use xt_core::field::object;
use xt_core::manifest::event::Level;
use xt_core::verb::settle::{AttemptState, NodeState, RunState};
use xt_record::{Attempt, Record, Submission};

use crate::bench::{Bench, at, audit, nobody, submission};

fn evaluation(text: &str) -> Submission {
    Submission { subject: Some(Digest::of(b"bundle")), ..submission(text, None) }
}

fn started(record: &Record, submission: &Submission) -> Attempt {
    let attempt = record.submit(submission).unwrap().attempt();
    record.claim(&attempt.id, &nobody(), at(1)).unwrap();
    record.transition(&attempt.id, AttemptState::Running, at(2), &object([])).unwrap();
    attempt
}

fn end(record: &Record, attempt: &Attempt, state: AttemptState) {
    record.settle(&attempt.id, state, &Digest::of(attempt.id.as_str().as_bytes()), at(3)).unwrap();
}

#[test]
fn a_candidate_goes_from_training_through_evaluation_to_its_decision() {
    let bench = Bench::new();
    let record = bench.record();
    let node = || record.status().unwrap().nodes[0].state;
    end(&record, &started(&record, &submission("train", None)), AttemptState::Succeeded);
    assert_eq!(node(), NodeState::Active);
    let loss = started(&record, &evaluation("loss"));
    let accuracy = started(&record, &evaluation("accuracy"));
    assert_eq!((loss.level, node()), (Level::EvaluationAttempt, NodeState::Evaluating));
    end(&record, &loss, AttemptState::Succeeded);
    assert_eq!(node(), NodeState::Evaluating, "one of two is not all");
    end(&record, &accuracy, AttemptState::Succeeded);
    assert_eq!(node(), NodeState::Deciding);
    let runs = record.status().unwrap().runs;
    let cycles: Vec<_> = runs.iter().map(|run| (run.level, run.cycle)).collect();
    let evaluation_run = (Level::EvaluationRun, Some(1));
    assert_eq!(cycles, [(Level::Run, None), evaluation_run, evaluation_run]);
    assert_eq!(record.events(0).unwrap().iter().filter(|event| event.level == Level::EvaluationAttempt).count(), 8);
    audit(&bench.path());
}

#[test]
fn evaluating_again_is_a_new_cycle_and_a_broken_evaluation_waits_for_its_retry() {
    let bench = Bench::new();
    let record = bench.record();
    let node = || record.status().unwrap().nodes[0].state;
    end(&record, &started(&record, &submission("train", None)), AttemptState::Succeeded);
    end(&record, &started(&record, &evaluation("loss")), AttemptState::Succeeded);
    assert_eq!(node(), NodeState::Deciding);
    let broken = started(&record, &evaluation("loss"));
    assert_eq!(node(), NodeState::Evaluating);
    end(&record, &broken, AttemptState::Failed);
    assert_eq!(node(), NodeState::Evaluating, "a failure measures nothing");
    let runs = || record.status().unwrap().runs;
    assert_eq!((runs()[2].state, runs()[2].cycle), (RunState::Failed, Some(2)));
    end(&record, &started(&record, &evaluation("loss")), AttemptState::Succeeded);
    assert_eq!((node(), runs()[3].cycle), (NodeState::Deciding, Some(2)));
    audit(&bench.path());
}

#[test]
fn an_evaluation_attempt_takes_only_the_steps_of_its_own_machine() {
    let bench = Bench::new();
    let record = bench.record();
    let attempt = started(&record, &evaluation("loss"));
    for state in [AttemptState::Checkpointing, AttemptState::Drained, AttemptState::Held] {
        let refused = record.transition(&attempt.id, state, at(3), &object([])).unwrap_err();
        assert_eq!(xt_core::fault::Failure::word(&refused), "record.illegal", "{state}");
    }
    // The control: a training attempt takes the first of them.
    let attempt = started(&record, &submission("train", None));
    record.transition(&attempt.id, AttemptState::Checkpointing, at(3), &object([])).unwrap();
}
