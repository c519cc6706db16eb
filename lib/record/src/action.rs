//! Actions: what people ask for, carried out by one operation for each attempt that is alive (X21, X47–X50, X90).
//!
//! Nothing is "being cancelled": the work keeps its state until its own end is seen, and that end closes the operations
//! about it, and they close the action. An end that came by itself beats the wish.

use rusqlite::{Connection, Row, Transaction};
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::action::{Action, ActionKind, Step};
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{ActionState, AttemptState, ExperimentState, Machine, NodeState, OperationState, RunState};

use crate::error::RecordError;
use crate::operation::{self, Operation, mint};
use crate::query::{self, Attempt};
use crate::state::{advance, advance_run, created};
use crate::{Record, event};

/// Something that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// What.
    pub kind: ActionKind,
    /// Of what kind of thing: an experiment or an attempt.
    pub level: Level,
    /// Of which.
    pub target: Name,
    /// Who or what asks.
    pub by: String,
    /// The time.
    pub now: Instant,
}

/// The answer to a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is in the record now, with its operations.
    New(Action),
    /// The same was asked before and is not closed yet; nothing new is recorded (X50).
    Open(Action),
    /// What it was asked of had ended before. The first such wish is recorded, as superseded; later ones are not.
    Ended,
}

impl Record {
    /// Records a wish and an operation for each attempt that it concerns and that is alive.
    pub fn ask(&self, wish: &Wish) -> Result<Asked, RecordError> {
        self.write(|transaction| {
            if let Some(open) = open(transaction, wish.kind, &wish.target)? {
                return view(transaction, &open).map(Asked::Open);
            }
            let (ended, live) = concerned(transaction, wish)?;
            if ended && known(transaction, wish)? {
                return Ok(Asked::Ended);
            }
            let action = record(transaction, wish)?;
            if ended {
                close(transaction, &action, ActionState::Requested, ActionState::Superseded, wish.now)?;
                return Ok(Asked::Ended);
            }
            let to = ActionState::Active;
            advance(transaction, &action, ActionState::Requested, to, wish.now, &object([]))?;
            for attempt in &live {
                intend(transaction, wish, &action, attempt)?;
            }
            if live.is_empty() {
                finish(transaction, &action, wish.now)?;
            }
            view(transaction, &action).map(Asked::New)
        })
    }

    /// Notes that the runtime has an operation, unless it is further already.
    pub fn sent(&self, operation: &Name, now: Instant) -> Result<(), RecordError> {
        self.write(|transaction| {
            let found = operation::operation(transaction, operation)?;
            match found.map(|found| found.state) {
                Some(OperationState::Intended) => operation::sent(transaction, operation, now, &object([])),
                _ => Ok(()),
            }
        })
    }

    /// The action with this id.
    pub fn action(&self, id: &Name) -> Result<Option<Action>, RecordError> {
        self.read(|transaction| match kind_of(transaction, id)? {
            Some(_) => view(transaction, id).map(Some),
            None => Ok(None),
        })
    }

    /// Every action, in the order in which they were asked for.
    pub fn actions(&self) -> Result<Vec<Action>, RecordError> {
        self.read(|transaction| {
            let ids = names(transaction, "SELECT id FROM action ORDER BY number", &[])?;
            ids.iter().map(|id| view(transaction, id)).collect()
        })
    }
}

/// Whether what is asked of has ended, and the attempts that are alive.
fn concerned(transaction: &Transaction<'_>, wish: &Wish) -> Result<(bool, Vec<Attempt>), RecordError> {
    let unknown = || RecordError::Unknown { level: wish.level, name: wish.target.clone() };
    let (ended, attempts) = if wish.level == Level::Experiment {
        let experiment = query::experiment(transaction, &wish.target)?.ok_or_else(unknown)?;
        (experiment.state.is_terminal(), query::attempts_of_experiment(transaction, &wish.target)?)
    } else {
        let attempt = query::attempt(transaction, &wish.target)?.ok_or_else(unknown)?;
        (attempt.state.is_terminal(), vec![attempt])
    };
    Ok((ended, attempts.into_iter().filter(|attempt| !attempt.state.is_terminal()).collect()))
}

/// The action of this kind about `target` that is not closed.
pub fn open(connection: &Connection, kind: ActionKind, target: &Name) -> Result<Option<Name>, RecordError> {
    let sql = "SELECT id FROM action WHERE target = ?1 AND kind = ?2 AND state IN ('requested', 'active')";
    Ok(names(connection, sql, &[target.as_str(), kind.word()])?.pop())
}

fn known(connection: &Connection, wish: &Wish) -> Result<bool, RecordError> {
    let sql = "SELECT id FROM action WHERE target = ?1 AND kind = ?2";
    Ok(!names(connection, sql, &[wish.target.as_str(), wish.kind.word()])?.is_empty())
}

fn record(transaction: &Transaction<'_>, wish: &Wish) -> Result<Name, RecordError> {
    let id = operation::number_name("act", None, operation::next(transaction, Level::Action)?);
    let payload = object([
        ("kind", wish.kind.write()),
        ("level", wish.level.write()),
        ("target", wish.target.write()),
        ("by", wish.by.write()),
    ]);
    created::<ActionState>(transaction, &id, wish.now, &payload)?;
    Ok(id)
}

/// Writes the operation that asks the runtime about one attempt.
fn intend(transaction: &Transaction<'_>, wish: &Wish, action: &Name, attempt: &Attempt) -> Result<(), RecordError> {
    let id = mint(transaction)?;
    let asked = [("attempt", attempt.id.write()), ("kind", wish.kind.write())];
    let request = object([("projection", "xt.action-request/1".into()), asked[0].clone(), asked[1].clone()]).digest();
    let [attempt, kind] = asked;
    let payload = object([attempt, kind, ("action", action.write()), ("request", request.write())]);
    created::<OperationState>(transaction, &id, wish.now, &payload)
}

/// Closes every operation that asked something of `attempt`, which has ended as `end`, and the actions behind them.
pub fn settle(
    transaction: &Transaction<'_>,
    attempt: &Name,
    end: AttemptState,
    now: Instant,
) -> Result<(), RecordError> {
    let sql = "SELECT id FROM operation WHERE attempt = ?1 AND action IS NOT NULL
               AND state IN ('intended', 'sent', 'uncertain') ORDER BY number";
    for id in names(transaction, sql, &[attempt.as_str()])? {
        let Some(operation) = operation::operation(transaction, &id)? else { continue };
        let payload = object([("attempt", attempt.write()), ("outcome", end.write())]);
        advance(transaction, &id, operation.state, OperationState::Done, now, &payload)?;
        if let Some(action) = operation.action {
            let sql = "SELECT id FROM operation WHERE action = ?1 AND state IN ('intended', 'sent', 'uncertain')";
            if names(transaction, sql, &[action.as_str()])?.is_empty() {
                finish(transaction, &action, now)?;
            }
        }
    }
    Ok(())
}

/// Closes an action whose operations are all closed. An experiment that was to be cancelled is cancelled now, when
/// nothing of it runs any more (X49).
fn finish(transaction: &Transaction<'_>, id: &Name, now: Instant) -> Result<(), RecordError> {
    let action = view(transaction, id)?;
    if action.level == Level::Experiment {
        if action.kind == ActionKind::Cancel {
            cancel_experiment(transaction, &action.target, id, now)?;
        }
        return close(transaction, id, action.state, ActionState::Done, now);
    }
    let wished = match action.kind {
        ActionKind::Cancel => AttemptState::Cancelled,
        ActionKind::Drain | ActionKind::Preempt => AttemptState::Drained,
    };
    let obeyed = action.operations.iter().any(|step| step.outcome == Some(wished));
    let to = if obeyed { ActionState::Done } else { ActionState::Superseded };
    close(transaction, id, action.state, to, now)
}

fn close(
    transaction: &Transaction<'_>,
    id: &Name,
    from: ActionState,
    to: ActionState,
    now: Instant,
) -> Result<(), RecordError> {
    advance(transaction, id, from, to, now, &object([]))
}

fn cancel_experiment(transaction: &Transaction<'_>, id: &Name, action: &Name, now: Instant) -> Result<(), RecordError> {
    let because = object([("action", action.write())]);
    let nodes = names(transaction, "SELECT id FROM node WHERE experiment = ?1 ORDER BY number", &[id.as_str()])?;
    for node in nodes.iter().filter_map(|node| query::node(transaction, node).transpose()) {
        let node = node?;
        let runs = names(transaction, "SELECT id FROM run WHERE node = ?1 ORDER BY number", &[node.id.as_str()])?;
        for run in runs.iter().filter_map(|run| query::run(transaction, run).transpose()) {
            let run = run?;
            if !run.state.is_terminal() {
                advance_run(transaction, &run, RunState::Cancelled, now, &because)?;
            }
        }
        if !node.state.is_terminal() {
            advance(transaction, &node.id, node.state, NodeState::Cancelled, now, &because)?;
        }
    }
    match query::experiment(transaction, id)? {
        Some(found) if !found.state.is_terminal() => {
            advance(transaction, id, found.state, ExperimentState::Cancelled, now, &because)
        }
        _ => Ok(()),
    }
}

/// The action as a document.
fn view(connection: &Connection, id: &Name) -> Result<Action, RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Action, name: id.clone() };
    let first = event::first(connection, Level::Action, id)?.ok_or_else(unknown)?;
    let sql = "SELECT id FROM operation WHERE action = ?1 ORDER BY number";
    let mut operations = Vec::new();
    for operation in names(connection, sql, &[id.as_str()])? {
        operations.extend(operation::operation(connection, &operation)?.map(step));
    }
    let row = query::one(connection, "SELECT * FROM action WHERE id = ?1", id, read)?.ok_or_else(unknown)?;
    let (kind, level, target, by, state) = row;
    Ok(Action { action: id.clone(), kind, level, target, by, at: first.at, state, operations })
}

fn step(operation: Operation) -> Step {
    Step { operation: operation.id, attempt: operation.attempt, state: operation.state, outcome: operation.outcome }
}

fn kind_of(connection: &Connection, id: &Name) -> Result<Option<ActionKind>, RecordError> {
    let read = |row: &Row<'_>| query::word(row, "kind", ActionKind::parse);
    query::one(connection, "SELECT kind FROM action WHERE id = ?1", id, read)
}

fn read(row: &Row<'_>) -> Result<(ActionKind, Level, Name, String, ActionState), RecordError> {
    Ok((
        query::word(row, "kind", ActionKind::parse)?,
        query::word(row, "level", Level::parse)?,
        query::name(row, "target")?,
        row.get("by")?,
        query::word(row, "state", ActionState::parse)?,
    ))
}

/// The names that `sql` gives.
pub fn names(connection: &Connection, sql: &str, given: &[&str]) -> Result<Vec<Name>, RecordError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(given))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(query::name(row, "id")?);
    }
    Ok(found)
}
