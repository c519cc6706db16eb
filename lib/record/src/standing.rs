//! What can be said of attempts now: what the record holds, and whether their supervisors run.

use xt_core::manifest::event::Level;
use xt_core::manifest::status::{Liveness, Observed, Status, Supervisor};
use xt_core::name::Name;
use xt_core::verb::settle::Machine as _;

use crate::error::RecordError;
use crate::query::{self, Attempt};
use crate::{Record, event, operation};

impl Record {
    /// What can be said of every attempt now, in the order of creation. Changes nothing.
    pub fn standing(&self) -> Result<Vec<Status>, RecordError> {
        self.attempts()?.iter().map(|attempt| self.standing_of(&attempt.id)).collect()
    }

    /// What can be said of one attempt now. Changes nothing.
    ///
    /// A supervisor records the end before it ends itself. So one that is gone although the attempt has not ended may
    /// have recorded the end between the two looks: the record is asked again, and only if it still knows of no end, it
    /// is lost.
    pub fn standing_of(&self, attempt: &Name) -> Result<Status, RecordError> {
        let status = self.look(attempt, None)?;
        if status.observed == Observed::Lost { self.look(attempt, status.supervisor.as_ref()) } else { Ok(status) }
    }

    /// Looks at the record, and at the supervisor unless it is the one that was found `gone`.
    fn look(&self, id: &Name, gone: Option<&Supervisor>) -> Result<Status, RecordError> {
        self.read(|transaction| {
            let unknown = |level, name: &Name| RecordError::Unknown { level, name: name.clone() };
            let attempt = query::attempt(transaction, id)?.ok_or_else(|| unknown(Level::Attempt, id))?;
            let operation = operation::operation(transaction, &attempt.operation)?
                .ok_or_else(|| unknown(Level::Operation, &attempt.operation))?;
            let run = query::run(transaction, &attempt.run)?.ok_or_else(|| unknown(Level::Run, &attempt.run))?;
            let node = query::node(transaction, &attempt.node)?.ok_or_else(|| unknown(Level::Node, &attempt.node))?;
            let experiment = query::experiment(transaction, &attempt.experiment)?
                .ok_or_else(|| unknown(Level::Experiment, &attempt.experiment))?;
            let last = event::last(transaction, attempt.level, id)?
                .ok_or_else(|| RecordError::Damaged { what: format!("no event tells of attempt {id}") })?;
            let liveness = liveness(&attempt, gone);
            Ok(Status {
                observed: observed(&attempt, liveness),
                why: why(&attempt, liveness),
                state: attempt.state,
                liveness,
                supervisor: attempt.process.as_ref().map(crate::Process::supervisor),
                run_record: attempt.run_record,
                last_event: last.sequence,
                last_event_at: last.at,
                operation: operation.id,
                operation_state: operation.state,
                run: run.id,
                run_state: run.state,
                node: node.id,
                node_state: node.state,
                experiment: experiment.id,
                experiment_state: experiment.state,
                fingerprint: attempt.fingerprint,
                seed: attempt.seed,
                plan: attempt.plan,
                request: attempt.request,
                level: attempt.level,
                retry_of: attempt.retry_of,
                attempt: attempt.id,
            })
        })
    }
}

fn liveness(attempt: &Attempt, gone: Option<&Supervisor>) -> Option<Liveness> {
    let process = attempt.process.as_ref().filter(|_| !attempt.state.is_terminal())?;
    let known = gone.is_some_and(|gone| *gone == process.supervisor());
    Some(if known { Liveness::Dead } else { process.liveness() })
}

fn observed(attempt: &Attempt, liveness: Option<Liveness>) -> Observed {
    match liveness {
        None if attempt.state.is_terminal() => Observed::Ended,
        None => Observed::Waiting,
        Some(Liveness::Alive) => Observed::Working,
        Some(Liveness::Dead) => Observed::Lost,
        Some(Liveness::Unknown) => Observed::Uncertain,
    }
}

fn why(attempt: &Attempt, liveness: Option<Liveness>) -> String {
    let Some(process) = attempt.process.as_ref().filter(|_| !attempt.state.is_terminal()) else {
        return match attempt.run_record {
            Some(digest) => format!("it ended as {}, by run record {digest}", attempt.state),
            None if attempt.state.is_terminal() => format!("it ended as {}, without a run record", attempt.state),
            None => "no supervisor has claimed it".into(),
        };
    };
    match liveness {
        Some(Liveness::Alive) => format!("its supervisor, {process}, runs"),
        Some(Liveness::Dead) => format!("its supervisor, {process}, is gone and recorded no end"),
        _ => format!("its supervisor, {process}, cannot be seen from here"),
    }
}
