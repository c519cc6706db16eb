//! Moving things through their states. Every move checks the edge table, writes the new state and appends the event, all
//! in the caller's transaction; what follows from a move is moved in the same one.

use rusqlite::{Transaction, params};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, Machine, NodeState, RunState};

use crate::error::RecordError;
use crate::event::{Entry, append};
use crate::process::Process;
use crate::query::{self, Attempt};
use crate::{Record, operation};

impl Record {
    /// Takes an attempt one step on, with `payload` in its event. An end that has a run record belongs to
    /// [`Record::settle`]; an end without one, such as a cancel before anything was started, can be given here.
    pub fn transition(
        &self,
        attempt: &Name,
        to: AttemptState,
        now: Instant,
        payload: &Value,
    ) -> Result<Attempt, RecordError> {
        self.write(|transaction| {
            move_attempt(transaction, &known(transaction, attempt)?, to, now, payload)?;
            known(transaction, attempt)
        })
    }

    /// Gives an attempt its supervisor and takes it to `starting`. Claiming again as the same process changes nothing;
    /// as another process it is refused, so no workload has two supervisors.
    pub fn claim(&self, attempt: &Name, process: &Process, now: Instant) -> Result<Attempt, RecordError> {
        self.write(|transaction| {
            let found = known(transaction, attempt)?;
            match found.process {
                Some(owner) if owner == *process => return known(transaction, attempt),
                Some(owner) => return Err(RecordError::Claimed { attempt: attempt.clone(), owner }),
                None => {}
            }
            let payload = object([("process", process.supervisor().write())]);
            move_attempt(transaction, &found, AttemptState::Starting, now, &payload)?;
            transaction.execute(
                "UPDATE attempt SET pid = ?2, start_time = ?3, boot_id = ?4, namespace = ?5 WHERE id = ?1",
                params![
                    attempt.as_str(),
                    process.pid,
                    process.start_time.cast_signed(),
                    process.boot_id,
                    process.namespace.cast_signed()
                ],
            )?;
            known(transaction, attempt)
        })
    }

    /// Ends an attempt with its run record, closes its operation and moves its run, all in one commit. Doing it again
    /// with the same end and run record changes nothing; with others it is refused, and the record keeps what it has.
    ///
    /// The run ends when no attempt of it is alive: `succeeded` if any attempt succeeded, otherwise by this end. After
    /// `lost` and `drained` it stays `active`: the truth is unknown, or there is more to come. The node stays too: only
    /// evaluation, decision and cancellation take it further.
    pub fn settle(
        &self,
        attempt: &Name,
        to: AttemptState,
        run_record: &Digest,
        now: Instant,
    ) -> Result<Attempt, RecordError> {
        if !to.is_terminal() {
            return Err(RecordError::NoEnd { attempt: attempt.clone(), state: to });
        }
        self.write(|transaction| {
            let found = known(transaction, attempt)?;
            if found.state == to && found.run_record == Some(*run_record) {
                return Ok(found);
            }
            if found.state.is_terminal() {
                let (state, recorded) = (found.state, found.run_record);
                return Err(RecordError::Settled { attempt: found.id, state, recorded });
            }
            let payload = object([("run_record", run_record.to_string().as_str().into())]);
            move_attempt(transaction, &found, to, now, &payload)?;
            transaction.execute(
                "UPDATE attempt SET run_record = ?2 WHERE id = ?1",
                params![attempt.as_str(), run_record.to_string()],
            )?;
            known(transaction, attempt)
        })
    }
}

fn known(transaction: &Transaction<'_>, attempt: &Name) -> Result<Attempt, RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Attempt, name: attempt.clone() };
    query::attempt(transaction, attempt)?.ok_or_else(unknown)
}

/// Takes an attempt one step on, and everything that follows from it.
fn move_attempt(
    transaction: &Transaction<'_>,
    attempt: &Attempt,
    to: AttemptState,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    advance(transaction, &attempt.id, attempt.state, to, now, payload)?;
    let because = object([("attempt", attempt.id.as_str().into())]);
    if to.is_terminal() {
        operation::close(transaction, &attempt.operation, to, now, &because)?;
        return end_run(transaction, &attempt.run, to, now, &because);
    }
    if attempt.state == AttemptState::INITIAL {
        operation::sent(transaction, &attempt.operation, now, &because)?;
    }
    if to == AttemptState::Starting {
        begin(transaction, attempt, now, &because)?;
    }
    Ok(())
}

/// The first start of an attempt starts its run, node and experiment.
fn begin(transaction: &Transaction<'_>, attempt: &Attempt, now: Instant, because: &Value) -> Result<(), RecordError> {
    if query::run(transaction, &attempt.run)?.is_some_and(|run| run.state == RunState::Created) {
        advance(transaction, &attempt.run, RunState::Created, RunState::Active, now, because)?;
    }
    if query::node(transaction, &attempt.node)?.is_some_and(|node| node.state == NodeState::Ready) {
        advance(transaction, &attempt.node, NodeState::Ready, NodeState::Active, now, because)?;
    }
    let experiment = query::experiment(transaction, &attempt.experiment)?;
    if experiment.is_some_and(|experiment| experiment.state == ExperimentState::Created) {
        let (from, to) = (ExperimentState::Created, ExperimentState::Active);
        advance(transaction, &attempt.experiment, from, to, now, because)?;
    }
    Ok(())
}

/// Ends a run when no attempt of it is alive any more.
fn end_run(
    transaction: &Transaction<'_>,
    id: &Name,
    last: AttemptState,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let Some(run) = query::run(transaction, id)? else { return Ok(()) };
    let attempts = attempt_states(transaction, id)?;
    if run.state.is_terminal() || !attempts.iter().all(|state| state.is_terminal()) {
        return Ok(());
    }
    let last = if attempts.contains(&AttemptState::Succeeded) { AttemptState::Succeeded } else { last };
    let to = match last {
        AttemptState::Succeeded => RunState::Succeeded,
        AttemptState::Cancelled => RunState::Cancelled,
        AttemptState::Lost | AttemptState::Drained => return Ok(()),
        _ => RunState::Failed,
    };
    advance(transaction, id, run.state, to, now, because)
}

fn attempt_states(transaction: &Transaction<'_>, run: &Name) -> Result<Vec<AttemptState>, RecordError> {
    let mut statement = transaction.prepare_cached("SELECT state FROM attempt WHERE run = ?1")?;
    let mut rows = statement.query([run.as_str()])?;
    let mut states = Vec::new();
    while let Some(row) = rows.next()? {
        states.push(query::word(row, "state", AttemptState::parse)?);
    }
    Ok(states)
}

/// Takes one thing one step on and appends the event.
pub fn advance<S: Machine>(
    transaction: &Transaction<'_>,
    subject: &Name,
    from: S,
    to: S,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    from.step(to).map_err(|illegal| RecordError::Illegal { subject: subject.clone(), illegal })?;
    let sql = format!("UPDATE {} SET state = ?2 WHERE id = ?1 AND state = ?3", S::LEVEL);
    let changed = transaction.prepare_cached(&sql)?.execute([subject.as_str(), to.name(), from.name()])?;
    if changed != 1 {
        return Err(RecordError::Damaged { what: format!("{} {subject} is not {}", S::LEVEL, from.name()) });
    }
    let before = Some(from.name());
    append(transaction, now, &Entry { level: S::LEVEL, subject, before, after: to.name(), payload })
}

/// Appends the event of something new, which the caller has written in its initial state.
pub fn created<S: Machine>(
    transaction: &Transaction<'_>,
    subject: &Name,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    append(transaction, now, &Entry { level: S::LEVEL, subject, before: None, after: S::INITIAL.name(), payload })
}
