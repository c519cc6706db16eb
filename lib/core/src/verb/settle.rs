//! The state machines: what may follow what, as plain tables (X12–X14). Every pair that is not in a table is refused.
//!
//! Three rules hold in all of them: nothing follows itself, nothing follows a terminal state, and whatever is not yet
//! at its end can fail or be cancelled. There is no state for "being cancelled": a cancel is an [`ActionState`] beside
//! the work, and what the work itself reports stays its truth (X48, X90).

use crate::manifest::event::Level;
use crate::manifest::run::Status;

/// A step that its machine does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{level} cannot go from {from} to {to}")]
pub struct Illegal {
    /// The machine.
    pub level: Level,
    /// State before.
    pub from: &'static str,
    /// State asked for.
    pub to: &'static str,
}

/// The states of one kind of thing and the steps between them.
pub trait Machine: Copy + PartialEq + 'static {
    /// What has these states.
    const LEVEL: Level;
    /// Where it begins.
    const INITIAL: Self;
    /// Every step there is.
    const EDGES: &'static [(Self, Self)];

    /// The state as a word.
    fn name(self) -> &'static str;

    /// Checks the step from this state to `to`.
    fn step(self, to: Self) -> Result<(), Illegal> {
        if Self::EDGES.contains(&(self, to)) {
            return Ok(());
        }
        Err(Illegal { level: Self::LEVEL, from: self.name(), to: to.name() })
    }

    /// Whether nothing can follow.
    fn is_terminal(self) -> bool {
        Self::EDGES.iter().all(|(from, _)| *from != self)
    }
}

/// Whether the machine of `level` allows the step, by the words of its states; `None` before it is the beginning.
pub fn legal(level: Level, before: Option<&str>, after: &str) -> bool {
    let allows = match level {
        Level::Experiment => allows::<ExperimentState>,
        Level::Node => allows::<NodeState>,
        Level::Run => allows::<RunState>,
        Level::Attempt => allows::<AttemptState>,
        Level::EvaluationRun => allows::<EvaluationRunState>,
        Level::EvaluationAttempt => allows::<EvaluationAttemptState>,
        Level::Operation => allows::<OperationState>,
        Level::Action => allows::<ActionState>,
        Level::Lease => allows::<LeaseState>,
    };
    allows(before, after)
}

fn allows<S: Machine>(before: Option<&str>, after: &str) -> bool {
    match before {
        None => S::INITIAL.name() == after,
        Some(before) => S::EDGES.iter().any(|(from, to)| from.name() == before && to.name() == after),
    }
}

/// Declares a machine: `machine! { State, Level::X, starts Initial: From => [To, …]; … }`.
macro_rules! machine {
    ($state:ident, $level:expr, starts $initial:ident: $($from:ident => [$($to:ident),+];)+) => {
        impl Machine for $state {
            const LEVEL: Level = $level;
            const INITIAL: Self = Self::$initial;
            const EDGES: &'static [(Self, Self)] = &[$($((Self::$from, Self::$to),)+)+];

            fn name(self) -> &'static str {
                self.word()
            }
        }
    };
}

crate::words! {
    /// States of an experiment.
    pub enum ExperimentState {
        /// Known, nothing started.
        Created "created",
        /// Work is going on, or may be asked for.
        Active "active",
        /// No new work for now.
        Paused "paused",
        /// Its objective is met.
        Succeeded "succeeded",
        /// It cannot go on.
        Failed "failed",
        /// Someone ended it.
        Cancelled "cancelled",
        /// Its budget ran out.
        Exhausted "exhausted",
    }
}

machine! { ExperimentState, Level::Experiment, starts Created:
    Created => [Active, Cancelled];
    Active => [Paused, Succeeded, Failed, Cancelled, Exhausted];
    Paused => [Active, Failed, Cancelled];
}

crate::words! {
    /// States of a node: one candidate within an experiment.
    pub enum NodeState {
        /// Known.
        Created "created",
        /// A plan of it exists.
        Planned "planned",
        /// A plan of it was admitted.
        Ready "ready",
        /// Runs of it were started.
        Active "active",
        /// Its results are being measured.
        Evaluating "evaluating",
        /// Its measurements are being judged.
        Deciding "deciding",
        /// Judged, and accepted.
        Completed "completed",
        /// Judged, and not accepted; nothing broke.
        Rejected "rejected",
        /// Broke before it could be judged.
        Failed "failed",
        /// Someone ended it.
        Cancelled "cancelled",
    }
}

machine! { NodeState, Level::Node, starts Created:
    Created => [Planned, Failed, Cancelled];
    Planned => [Ready, Failed, Cancelled];
    Ready => [Active, Failed, Cancelled];
    Active => [Evaluating, Failed, Cancelled];
    Evaluating => [Deciding, Failed, Cancelled];
    Deciding => [Active, Completed, Rejected, Failed, Cancelled];
}

crate::words! {
    /// States of a run: one candidate with one seed.
    pub enum RunState {
        /// Asked for.
        Created "created",
        /// An attempt was started.
        Active "active",
        /// An attempt succeeded.
        Succeeded "succeeded",
        /// The last attempt ended without success.
        Failed "failed",
        /// Someone ended it.
        Cancelled "cancelled",
    }
}

machine! { RunState, Level::Run, starts Created:
    Created => [Active, Failed, Cancelled];
    Active => [Succeeded, Failed, Cancelled];
}

crate::words! {
    /// States of an attempt: one workload in a runtime. The ends are the words of `xt.run/1`.
    pub enum AttemptState {
        /// The intent is recorded; no runtime was asked yet.
        Requested "requested",
        /// A runtime has it, and it waits for resources.
        Queued "queued",
        /// A supervisor has it and prepares the trainer.
        Starting "starting",
        /// The trainer runs.
        Running "running",
        /// The trainer writes a checkpoint at a step boundary.
        Checkpointing "checkpointing",
        /// Its supervisor was gone, and another is taking over.
        Recovering "recovering",
        /// Completion was reported and the exit was clean, and both agree with the plan.
        Succeeded "succeeded",
        /// The trainer failed.
        Failed "failed",
        /// Someone asked it to stop.
        Cancelled "cancelled",
        /// A budget ran out.
        Exhausted "exhausted",
        /// A stop condition held it: a non-finite stage, or a training loss above its limit.
        Held "held",
        /// The trainer never started.
        NotStarted "not-started",
        /// Nobody saw how it ended.
        Lost "lost",
        /// Stopped at a step boundary on request; another attempt can go on from there.
        Drained "drained",
    }
}

machine! { AttemptState, Level::Attempt, starts Requested:
    Requested => [Queued, Starting, Failed, Cancelled, NotStarted, Lost];
    Queued => [Starting, Failed, Cancelled, NotStarted, Lost, Drained];
    Starting => [Running, Failed, Cancelled, Exhausted, NotStarted, Lost, Drained];
    Running => [Checkpointing, Recovering, Succeeded, Failed, Cancelled, Exhausted, Held, Lost, Drained];
    Checkpointing => [Running, Recovering, Failed, Cancelled, Exhausted, Lost, Drained];
    Recovering => [Running, Failed, Cancelled, Exhausted, Lost, Drained];
}

impl From<Status> for AttemptState {
    fn from(status: Status) -> Self {
        match status {
            Status::Succeeded => Self::Succeeded,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
            Status::Exhausted => Self::Exhausted,
            Status::Held => Self::Held,
            Status::Drained => Self::Drained,
            Status::NotStarted => Self::NotStarted,
            Status::Lost => Self::Lost,
        }
    }
}

crate::words! {
    /// States of an evaluation run: one trained model with one held-out set.
    pub enum EvaluationRunState {
        /// Asked for.
        Created "created",
        /// An attempt was started.
        Active "active",
        /// An attempt succeeded.
        Succeeded "succeeded",
        /// The last attempt ended without success.
        Failed "failed",
        /// Someone ended it.
        Cancelled "cancelled",
    }
}

machine! { EvaluationRunState, Level::EvaluationRun, starts Created:
    Created => [Active, Failed, Cancelled];
    Active => [Succeeded, Failed, Cancelled];
}

crate::words! {
    /// States of an evaluation attempt. It writes no checkpoints, so it cannot be drained: it is repeated.
    pub enum EvaluationAttemptState {
        /// The intent is recorded; no runtime was asked yet.
        Requested "requested",
        /// A runtime has it, and it waits for resources.
        Queued "queued",
        /// A supervisor has it and prepares the worker.
        Starting "starting",
        /// The worker runs.
        Running "running",
        /// Completion was reported and the exit was clean, and both agree with the plan.
        Succeeded "succeeded",
        /// The worker failed.
        Failed "failed",
        /// Someone asked it to stop.
        Cancelled "cancelled",
        /// A budget ran out.
        Exhausted "exhausted",
        /// The worker never started.
        NotStarted "not-started",
        /// Nobody saw how it ended.
        Lost "lost",
    }
}

machine! { EvaluationAttemptState, Level::EvaluationAttempt, starts Requested:
    Requested => [Queued, Starting, Failed, Cancelled, NotStarted, Lost];
    Queued => [Starting, Failed, Cancelled, NotStarted, Lost];
    Starting => [Running, Failed, Cancelled, Exhausted, NotStarted, Lost];
    Running => [Succeeded, Failed, Cancelled, Exhausted, Lost];
}

crate::words! {
    /// States of an operation: something asked of a runtime (X18–X20).
    pub enum OperationState {
        /// Recorded, before the runtime is asked.
        Intended "intended",
        /// The runtime has it.
        Sent "sent",
        /// Its outcome could not be seen, and the record cannot tell it (X40).
        Uncertain "uncertain",
        /// Carried out; what came of it is its outcome.
        Done "done",
        /// The runtime had it and could not carry it out.
        Failed "failed",
        /// The runtime refused it (X91).
        Rejected "rejected",
        /// Taken back before the runtime had it.
        Withdrawn "withdrawn",
    }
}

// A crash can hide that it was sent, so an intent can be found carried out.
machine! { OperationState, Level::Operation, starts Intended:
    Intended => [Sent, Uncertain, Done, Failed, Rejected, Withdrawn];
    Sent => [Uncertain, Done, Failed, Rejected];
    Uncertain => [Sent, Done, Failed, Rejected];
}

crate::words! {
    /// States of an action: something a person asked for, carried out by operations (X21).
    pub enum ActionState {
        /// Recorded.
        Requested "requested",
        /// Its operations are under way.
        Active "active",
        /// Carried out.
        Done "done",
        /// The work came to its own end first (X90).
        Superseded "superseded",
        /// It could not be carried out.
        Failed "failed",
    }
}

machine! { ActionState, Level::Action, starts Requested:
    Requested => [Active, Done, Superseded, Failed];
    Active => [Done, Superseded, Failed];
}

crate::words! {
    /// States of a lease: what an attempt has of its host.
    pub enum LeaseState {
        /// The attempt has it.
        Held "held",
        /// Free again.
        Released "released",
    }
}

machine! { LeaseState, Level::Lease, starts Held:
    Held => [Released];
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec::Vec;

    /// Holds a machine against a table written out by hand: `from: to to …` lines, the first state being the initial
    /// one. Looks at the whole product and gives (states, edges).
    fn check<S: Machine + core::fmt::Debug>(all: &[S], table: &str) -> (usize, usize) {
        let expected: BTreeSet<(&str, &str)> = table
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .flat_map(|(from, to)| to.split(' ').map(move |to| (from, to)))
            .collect();
        for (from, to) in all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to))) {
            let legal = expected.contains(&(from.name(), to.name()));
            assert_eq!(from.step(to).is_ok(), legal, "{} {from:?} -> {to:?}", S::LEVEL);
            assert_eq!(super::legal(S::LEVEL, Some(from.name()), to.name()), legal, "{} {from:?} -> {to:?}", S::LEVEL);
            assert_eq!(super::legal(S::LEVEL, None, to.name()), to == S::INITIAL, "{} begins as {to:?}", S::LEVEL);
            assert!(!legal || (from != to && !from.is_terminal()), "{} {from:?} -> {to:?}", S::LEVEL);
        }
        assert_eq!(S::EDGES.len(), expected.len(), "{}: an edge is there twice", S::LEVEL);
        let ends: Vec<&S> = all.iter().filter(|state| state.is_terminal()).collect();
        assert!(!ends.is_empty() && !S::INITIAL.is_terminal());
        assert_eq!(table.trim().split(':').next(), Some(S::INITIAL.name()));
        assert_eq!(reachable::<S>().len(), all.len(), "{}: a state cannot be reached", S::LEVEL);
        (all.len(), expected.len())
    }

    fn reachable<S: Machine>() -> Vec<S> {
        let mut seen = alloc::vec![S::INITIAL];
        let mut next = 0;
        while let Some(state) = seen.get(next).copied() {
            for (_, to) in S::EDGES.iter().filter(|(from, _)| *from == state) {
                if !seen.contains(to) {
                    seen.push(*to);
                }
            }
            next += 1;
        }
        seen
    }

    #[test]
    fn experiments_nodes_and_runs_take_exactly_the_steps_of_their_tables() {
        let experiment = check(
            ExperimentState::ALL,
            "created: active cancelled
             active: paused succeeded failed cancelled exhausted
             paused: active cancelled failed",
        );
        assert_eq!(experiment, (7, 10));
        let node = check(
            NodeState::ALL,
            "created: planned failed cancelled
             planned: ready failed cancelled
             ready: active failed cancelled
             active: evaluating failed cancelled
             evaluating: deciding failed cancelled
             deciding: active completed rejected failed cancelled",
        );
        assert_eq!(node, (10, 8 + 12));
        let table = "created: active cancelled failed
                     active: succeeded failed cancelled";
        assert_eq!(check(RunState::ALL, table), (5, 6));
        assert_eq!(check(EvaluationRunState::ALL, table), (5, 6));
    }

    #[test]
    fn attempts_take_exactly_the_steps_of_their_tables() {
        let attempt = check(
            AttemptState::ALL,
            "requested: queued starting failed cancelled not-started lost
             queued: starting failed cancelled drained not-started lost
             starting: running failed cancelled drained not-started exhausted lost
             running: checkpointing recovering succeeded failed cancelled drained exhausted held lost
             checkpointing: running recovering failed cancelled drained exhausted lost
             recovering: running failed cancelled drained exhausted lost",
        );
        // Progress, failed or cancelled from each live state, drained from each that a runtime has; then what this
        // project tells apart beyond that: not-started, exhausted, held, lost.
        assert_eq!(attempt, (14, 10 + 12 + 5 + 3 + 4 + 1 + 6));
        let evaluation = check(
            EvaluationAttemptState::ALL,
            "requested: queued starting failed cancelled not-started lost
             queued: starting failed cancelled not-started lost
             starting: running failed cancelled not-started exhausted lost
             running: succeeded failed cancelled exhausted lost",
        );
        assert_eq!(evaluation, (10, 22));
    }

    #[test]
    fn operations_and_actions_take_exactly_the_steps_of_their_tables() {
        let operation = check(
            OperationState::ALL,
            "intended: sent uncertain done failed rejected withdrawn
             sent: uncertain done failed rejected
             uncertain: sent done failed rejected",
        );
        assert_eq!(operation, (7, 14));
        let action = check(
            ActionState::ALL,
            "requested: active done superseded failed
             active: done superseded failed",
        );
        assert_eq!(action, (5, 7));
        assert_eq!(check(LeaseState::ALL, "held: released"), (2, 1));
    }

    #[test]
    fn every_status_of_a_run_record_is_the_end_of_an_attempt_with_the_same_word() {
        for status in Status::ALL {
            let state = AttemptState::from(*status);
            assert!(state.is_terminal());
            assert_eq!(state.word(), status.word());
        }
        let ends = AttemptState::ALL.iter().filter(|state| state.is_terminal()).count();
        assert_eq!(ends, Status::ALL.len());
    }

    #[test]
    fn a_refused_step_names_level_and_both_states() {
        let refused = RunState::Failed.step(RunState::Active).err().map(|illegal| illegal.to_string());
        assert_eq!(refused.as_deref(), Some("run cannot go from failed to active"));
    }
}
