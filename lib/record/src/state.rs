//! Moving things through their states. Every move checks the edge table, writes the new state and appends the event, all
//! in the caller's transaction; what follows from a move is moved in the same one.

use rusqlite::Transaction;
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::action::ActionKind;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, Illegal, Machine, NodeState, RunState, legal};

use crate::error::RecordError;
use crate::event::{Entry, append};
use crate::process::Process;
use crate::query::{self, Attempt, RunRow};
use crate::{Record, action, lease, operation};

/// What the log calls it when an attempt is given another supervisor.
const RECLAIMED: &str = "reclaimed";

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
            known(transaction, attempt)
        })
    }

    /// Gives an attempt that never came further than `starting` another supervisor, in place of `gone`. Whoever calls
    /// this must know that `gone` does not run and started no worker: the record cannot.
    pub fn reclaim(
        &self,
        attempt: &Name,
        gone: &Process,
        process: &Process,
        now: Instant,
    ) -> Result<Attempt, RecordError> {
        self.write(|transaction| {
            let found = known(transaction, attempt)?;
            match found.process {
                Some(owner) if owner == *gone && found.state == AttemptState::Starting => {}
                Some(owner) => return Err(RecordError::Claimed { attempt: attempt.clone(), owner }),
                None => return Err(RecordError::Unknown { level: Level::Attempt, name: attempt.clone() }),
            }
            let payload = object([("process", process.supervisor().write()), ("gone", gone.supervisor().write())]);
            let (level, before) = (found.level, Some(found.state.word()));
            let entry = Entry { level, subject: attempt, before, after: None, word: RECLAIMED, payload: &payload };
            append(transaction, now, &entry)?;
            known(transaction, attempt)
        })
    }

    /// How often an attempt was given another supervisor.
    pub fn reclaims(&self, attempt: &Name) -> Result<u64, RecordError> {
        let sql = "SELECT count(*) FROM event WHERE subject = ?1 AND kind IN (?2, ?3)";
        let kinds = [Level::Attempt, Level::EvaluationAttempt].map(|level| format!("{level}.{RECLAIMED}"));
        let count: i64 = self.connection.query_row(sql, [attempt.as_str(), &kinds[0], &kinds[1]], |row| row.get(0))?;
        Ok(count.cast_unsigned())
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
    advance_attempt(transaction, attempt, to, now, payload)?;
    let because = object([("attempt", attempt.id.as_str().into())]);
    if to.is_terminal() {
        operation::close(transaction, &attempt.operation, to, now, &because)?;
        end_run(transaction, attempt, to, now, &because)?;
        // What was stopped for another run keeps what it has, so that nobody else gets it before it goes on.
        if to != AttemptState::Drained || action::open(transaction, ActionKind::Preempt, &attempt.id)?.is_none() {
            lease::release(transaction, &attempt.id, now, &because)?;
        }
        return action::settle(transaction, &attempt.id, to, now);
    }
    if attempt.state == AttemptState::INITIAL {
        operation::sent(transaction, &attempt.operation, now, &because)?;
    }
    if to == AttemptState::Starting {
        begin(transaction, attempt, now, &because)?;
    }
    Ok(())
}

/// The first start of an attempt starts its run, node and experiment; that of an evaluation begins to evaluate the node.
fn begin(transaction: &Transaction<'_>, attempt: &Attempt, now: Instant, because: &Value) -> Result<(), RecordError> {
    if let Some(run) = query::run(transaction, &attempt.run)?.filter(|run| run.state == RunState::Created) {
        advance_run(transaction, &run, RunState::Active, now, because)?;
    }
    if let Some(node) = query::node(transaction, &attempt.node)? {
        let steps: &[NodeState] = match (attempt.level, node.state) {
            (Level::Attempt, NodeState::Ready) => &[NodeState::Active],
            (Level::EvaluationAttempt, NodeState::Ready | NodeState::Deciding) => {
                &[NodeState::Active, NodeState::Evaluating]
            }
            (Level::EvaluationAttempt, NodeState::Active) => &[NodeState::Evaluating],
            _ => &[],
        };
        let mut from = node.state;
        for to in steps {
            advance(transaction, &node.id, from, *to, now, because)?;
            from = *to;
        }
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
    attempt: &Attempt,
    last: AttemptState,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let Some(run) = query::run(transaction, &attempt.run)? else { return Ok(()) };
    let attempts = attempt_states(transaction, &attempt.run)?;
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
    advance_run(transaction, &run, to, now, because)?;
    if run.level == Level::EvaluationRun && to == RunState::Succeeded {
        return evaluated(transaction, &attempt.node, run.cycle, now, because);
    }
    Ok(())
}

/// Takes a node on to its decision when every evaluation that was asked for in the cycle has succeeded (X57).
fn evaluated(
    transaction: &Transaction<'_>,
    node: &Name,
    cycle: Option<u64>,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let runs = query::runs_of_node(transaction, node)?;
    let runs: Vec<&RunRow> = runs.iter().filter(|run| run.cycle == cycle).collect();
    let done = |of: &RunRow| {
        let same = |run: &&&RunRow| (run.evaluation, run.subject, run.seed) == (of.evaluation, of.subject, of.seed);
        runs.iter().filter(same).any(|run| run.state == RunState::Succeeded)
    };
    let all = runs.iter().all(|run| done(run));
    match query::node(transaction, node)? {
        Some(found) if all && found.state == NodeState::Evaluating => {
            advance(transaction, node, found.state, NodeState::Deciding, now, because)
        }
        _ => Ok(()),
    }
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

/// Takes an attempt one step on, by the machine of its level.
fn advance_attempt(
    transaction: &Transaction<'_>,
    attempt: &Attempt,
    to: AttemptState,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    let (level, id, from) = (attempt.level, &attempt.id, attempt.state);
    step(transaction, (level, id), (from.word(), to.word()), now, payload)
}

/// Takes a run one step on, by the machine of its level.
pub fn advance_run(
    transaction: &Transaction<'_>,
    run: &RunRow,
    to: RunState,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    step(transaction, (run.level, &run.id), (run.state.word(), to.word()), now, payload)
}

/// Takes one thing one step on.
pub fn advance<S: Machine>(
    transaction: &Transaction<'_>,
    subject: &Name,
    from: S,
    to: S,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    step(transaction, (S::LEVEL, subject), (from.name(), to.name()), now, payload)
}

fn step(
    transaction: &Transaction<'_>,
    (level, subject): (Level, &Name),
    (from, to): (&'static str, &'static str),
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    if !legal(level, Some(from), to) {
        return Err(RecordError::Illegal { subject: subject.clone(), illegal: Illegal { level, from, to } });
    }
    append(transaction, now, &Entry { level, subject, before: Some(from), after: Some(to), word: to, payload })
}

/// Notes something new, in its initial state.
pub fn created<S: Machine>(
    transaction: &Transaction<'_>,
    subject: &Name,
    now: Instant,
    payload: &Value,
) -> Result<(), RecordError> {
    let word = S::INITIAL.name();
    append(transaction, now, &Entry { level: S::LEVEL, subject, before: None, after: Some(word), word, payload })
}
