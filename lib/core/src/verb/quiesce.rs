//! What would move an experiment on, once nothing in it moves by itself (X43–X46).

use crate::manifest::event::Level;
use crate::manifest::quiescence::{Node, Run};
use crate::verb::settle::{AttemptState, ExperimentState, Machine as _, NodeState, RunState};

crate::words! {
    /// The work that would move an experiment on.
    pub enum Stage {
        /// A candidate is to be decided on.
        Decision "decision",
        /// A trained candidate has not been evaluated, or not to the end.
        Evaluation "evaluation",
        /// Every candidate was rejected on its merits, so another one is needed.
        Planning "planning",
        /// Something failed, was cancelled or lost, which establishes nothing about the candidate.
        FailureHandling "failure-handling",
    }
}

/// Whether nothing of these candidates is under way or still to be started.
pub fn is_quiescent(nodes: &[Node]) -> bool {
    let attempts = nodes.iter().flat_map(|node| &node.runs).flat_map(|run| &run.attempts);
    attempts.into_iter().all(|attempt| attempt.state.is_terminal())
}

/// The work that would move a quiescent experiment on; `None` when it has ended, and when it has no candidate.
///
/// A rejection is a scientific outcome, a failure is none: beside something that failed, rejected candidates do not lead
/// to planning.
pub fn next_stage(experiment: ExperimentState, nodes: &[Node]) -> Option<Stage> {
    if experiment.is_terminal() {
        return None;
    }
    let any = |stage: Stage| nodes.iter().any(|node| wants(node) == Some(stage));
    let order = [Stage::Decision, Stage::Evaluation, Stage::FailureHandling, Stage::Planning];
    order.into_iter().find(|stage| any(*stage))
}

/// What a candidate by itself would want.
fn wants(node: &Node) -> Option<Stage> {
    match node.state {
        NodeState::Deciding => Some(Stage::Decision),
        NodeState::Rejected => Some(Stage::Planning),
        NodeState::Failed | NodeState::Cancelled => Some(Stage::FailureHandling),
        NodeState::Completed => None,
        NodeState::Evaluating => Some(if evaluation_broke(node) { Stage::FailureHandling } else { Stage::Evaluation }),
        _ if trained(node) => Some(Stage::Evaluation),
        _ => node.runs.iter().any(broke).then_some(Stage::FailureHandling),
    }
}

fn trained(node: &Node) -> bool {
    node.runs.iter().any(|run| run.level == Level::Run && run.state == RunState::Succeeded)
}

/// Whether the last evaluation cycle has an evaluation that came to nothing.
fn evaluation_broke(node: &Node) -> bool {
    let last = node.runs.iter().filter_map(|run| run.cycle).max();
    let of_last = |run: &&Run| run.cycle.is_some() && run.cycle == last;
    let done = |of: &Run| {
        let same = |run: &&Run| run.cycle == last && (run.subject, run.seed) == (of.subject, of.seed);
        node.runs.iter().filter(same).any(|run| run.state == RunState::Succeeded)
    };
    node.runs.iter().filter(of_last).any(|run| broke(run) && !done(run))
}

/// Whether a run came to nothing, as far as anybody knows.
fn broke(run: &Run) -> bool {
    match run.state {
        RunState::Failed | RunState::Cancelled => true,
        RunState::Succeeded => false,
        RunState::Created | RunState::Active => {
            run.attempts.last().is_some_and(|last| matches!(last.state, AttemptState::Lost | AttemptState::Drained))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::manifest::quiescence::Try;
    use crate::name::Name;
    use alloc::vec;
    use alloc::vec::Vec;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn run(state: RunState, attempt: AttemptState) -> Run {
        let attempts = vec![Try { attempt: name("att-1"), state: attempt, run_record: None }];
        Run { run: name("run-1"), level: Level::Run, seed: 1, state, subject: None, cycle: None, attempts }
    }

    fn evaluation(cycle: u64, state: RunState) -> Run {
        let subject = Some(Digest::of(b"bundle"));
        Run { level: Level::EvaluationRun, subject, cycle: Some(cycle), ..run(state, AttemptState::Failed) }
    }

    fn node(state: NodeState, runs: Vec<Run>) -> Node {
        Node { node: name("node-1"), fingerprint: Digest::of(b"candidate"), state, runs }
    }

    fn stage(nodes: &[Node]) -> Option<Stage> {
        next_stage(ExperimentState::Active, nodes)
    }

    #[test]
    fn each_stage_comes_from_its_own_situation() {
        let succeeded = run(RunState::Succeeded, AttemptState::Succeeded);
        let failed = run(RunState::Failed, AttemptState::Failed);
        let lost = run(RunState::Active, AttemptState::Lost);
        for (node, expected) in [
            (node(NodeState::Active, vec![succeeded.clone()]), Some(Stage::Evaluation)),
            (node(NodeState::Active, vec![failed.clone(), succeeded.clone()]), Some(Stage::Evaluation)),
            (node(NodeState::Evaluating, vec![succeeded.clone()]), Some(Stage::Evaluation)),
            (node(NodeState::Deciding, vec![succeeded.clone()]), Some(Stage::Decision)),
            (node(NodeState::Rejected, vec![succeeded.clone()]), Some(Stage::Planning)),
            (node(NodeState::Completed, vec![succeeded]), None),
            (node(NodeState::Active, vec![failed]), Some(Stage::FailureHandling)),
            (node(NodeState::Active, vec![lost]), Some(Stage::FailureHandling)),
            (node(NodeState::Cancelled, vec![]), Some(Stage::FailureHandling)),
        ] {
            assert_eq!(stage(core::slice::from_ref(&node)), expected, "{node:?}");
        }
        assert_eq!(stage(&[]), None);
    }

    #[test]
    fn an_evaluation_that_broke_is_a_failure_until_another_one_succeeds() {
        let broken = evaluation(2, RunState::Failed);
        let old = evaluation(1, RunState::Failed);
        let with = |runs| stage(&[node(NodeState::Evaluating, runs)]);
        assert_eq!(with(vec![broken.clone()]), Some(Stage::FailureHandling));
        assert_eq!(with(vec![broken, evaluation(2, RunState::Succeeded)]), Some(Stage::Evaluation));
        assert_eq!(with(vec![old, evaluation(2, RunState::Created)]), Some(Stage::Evaluation), "another cycle");
    }

    #[test]
    fn a_failure_beside_a_rejection_is_a_failure_and_an_ended_experiment_wants_nothing() {
        let rejected = node(NodeState::Rejected, vec![]);
        let failed = node(NodeState::Failed, vec![]);
        assert_eq!(stage(&[rejected.clone(), failed.clone()]), Some(Stage::FailureHandling));
        assert_eq!(stage(&[rejected.clone(), node(NodeState::Deciding, vec![]), failed]), Some(Stage::Decision));
        for ended in ExperimentState::ALL.iter().filter(|state| state.is_terminal()) {
            assert_eq!(next_stage(*ended, core::slice::from_ref(&rejected)), None);
        }
    }

    #[test]
    fn only_work_that_has_ended_is_quiet() {
        for state in AttemptState::ALL {
            let nodes = [node(NodeState::Active, vec![run(RunState::Active, *state)])];
            assert_eq!(is_quiescent(&nodes), state.is_terminal(), "{state}");
        }
        assert!(is_quiescent(&[]));
    }
}
