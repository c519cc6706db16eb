//! Operations: what is asked of a runtime. The intent is in the record before the runtime is asked (X18–X20, X29–X35).

use rusqlite::{Connection, Row, Transaction, params};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::object;
use xt_core::instant::Instant;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, Machine, NodeState, OperationState, RunState};

use crate::Record;
use crate::error::RecordError;
use crate::query::{self, Attempt, NodeRow, RunRow};
use crate::state::{advance, created};

/// A workload that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The experiment it belongs to; created when new.
    pub experiment: Name,
    /// Fingerprint of the candidate.
    pub fingerprint: Digest,
    /// Seed of the run.
    pub seed: u64,
    /// Id of the plan.
    pub plan: Digest,
    /// Request digest of the plan: what makes two submissions the same one.
    pub request: Digest,
    /// The operation id; `None` mints one.
    pub operation: Option<Name>,
    /// The time.
    pub now: Instant,
}

/// The answer to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is new; its intent is now in the record.
    New(Attempt),
    /// The operation id is known with the same request; this is its attempt, whatever has become of it.
    Existing(Attempt),
}

impl Submitted {
    /// The attempt, new or not.
    pub fn attempt(self) -> Attempt {
        match self {
            Self::New(attempt) | Self::Existing(attempt) => attempt,
        }
    }
}

/// Something asked of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its id.
    pub id: Name,
    /// What is asked, such as `submit`.
    pub kind: Name,
    /// Request digest.
    pub request: Digest,
    /// The attempt it is about.
    pub attempt: Name,
    /// Its state.
    pub state: OperationState,
    /// What came of it: the state in which the attempt ended.
    pub outcome: Option<AttemptState>,
}

const SUBMIT: &str = "submit";

impl Record {
    /// Records the wish for a workload, or finds the workload that this operation id already stands for.
    pub fn submit(&self, submission: &Submission) -> Result<Submitted, RecordError> {
        self.write(|transaction| {
            if let Some(id) = &submission.operation
                && let Some(known) = operation(transaction, id)?
            {
                return existing(transaction, known, submission.request);
            }
            let experiment = experiment(transaction, submission)?;
            let node = node(transaction, &experiment, submission)?;
            let run = run(transaction, &node, submission)?;
            intend(transaction, &run, submission).map(Submitted::New)
        })
    }

    /// The operation with this id.
    pub fn operation(&self, id: &Name) -> Result<Option<Operation>, RecordError> {
        operation(&self.connection, id)
    }
}

pub fn operation(connection: &Connection, id: &Name) -> Result<Option<Operation>, RecordError> {
    query::one(connection, "SELECT * FROM operation WHERE id = ?1", id, read)
}

fn read(row: &Row<'_>) -> Result<Operation, RecordError> {
    let outcome = query::optional_name(row, "outcome")?;
    Ok(Operation {
        id: query::name(row, "id")?,
        kind: query::name(row, "kind")?,
        request: query::digest(row, "request")?,
        attempt: query::name(row, "attempt")?,
        state: query::word(row, "state", OperationState::parse)?,
        outcome: outcome.and_then(|word| AttemptState::parse(word.as_str())),
    })
}

fn existing(transaction: &Transaction<'_>, known: Operation, asked: Digest) -> Result<Submitted, RecordError> {
    if known.request != asked {
        return Err(RecordError::Conflict { operation: known.id, recorded: known.request, asked });
    }
    let attempt = query::attempt(transaction, &known.attempt)?;
    attempt.map(Submitted::Existing).ok_or(RecordError::Unknown { level: Level::Attempt, name: known.attempt })
}

fn experiment(transaction: &Transaction<'_>, submission: &Submission) -> Result<Name, RecordError> {
    let id = &submission.experiment;
    if let Some(known) = query::experiment(transaction, id)? {
        open(id, known.state)?;
    } else {
        insert(transaction, ExperimentState::INITIAL, id, &[])?;
        created::<ExperimentState>(transaction, id, submission.now, &object([]))?;
    }
    Ok(id.clone())
}

/// The node of the candidate. A new one is planned and ready at once: the plan is what is being submitted.
fn node(transaction: &Transaction<'_>, experiment: &Name, submission: &Submission) -> Result<Name, RecordError> {
    let fingerprint = submission.fingerprint.to_string();
    if let Some(known) = find_node(transaction, experiment, &fingerprint)? {
        open(&known.id, known.state)?;
        return Ok(known.id);
    }
    let id = number_name("node", Some(&submission.fingerprint), next(transaction, Level::Node)?);
    let members = [("experiment", experiment.as_str()), ("fingerprint", fingerprint.as_str())];
    insert(transaction, NodeState::INITIAL, &id, &members)?;
    created::<NodeState>(transaction, &id, submission.now, &payload(&members))?;
    let plan = payload(&[("plan", &submission.plan.to_string())]);
    for (from, to) in [(NodeState::Created, NodeState::Planned), (NodeState::Planned, NodeState::Ready)] {
        advance(transaction, &id, from, to, submission.now, &plan)?;
    }
    Ok(id)
}

fn find_node(
    transaction: &Transaction<'_>,
    experiment: &Name,
    fingerprint: &str,
) -> Result<Option<NodeRow>, RecordError> {
    let mut statement = transaction.prepare_cached("SELECT * FROM node WHERE experiment = ?1 AND fingerprint = ?2")?;
    let mut rows = statement.query([experiment.as_str(), fingerprint])?;
    rows.next()?.map(query::read_node).transpose()
}

/// The run of the seed that has not ended, or a new one: what has ended stays as it ended.
fn run(transaction: &Transaction<'_>, node: &Name, submission: &Submission) -> Result<Name, RecordError> {
    let seed = submission.seed.to_string();
    if let Some(known) = last_run(transaction, node, &seed)?.filter(|run| !run.state.is_terminal()) {
        return Ok(known.id);
    }
    let id = number_name("run", Some(&submission.fingerprint), next(transaction, Level::Run)?);
    insert(transaction, RunState::INITIAL, &id, &[("node", node.as_str()), ("seed", &seed)])?;
    let created_with = object([("node", node.as_str().into()), ("seed", submission.seed.into())]);
    created::<RunState>(transaction, &id, submission.now, &created_with)?;
    Ok(id)
}

fn last_run(transaction: &Transaction<'_>, node: &Name, seed: &str) -> Result<Option<RunRow>, RecordError> {
    let sql = "SELECT * FROM run WHERE node = ?1 AND seed = ?2 ORDER BY number DESC LIMIT 1";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut rows = statement.query([node.as_str(), seed])?;
    rows.next()?.map(query::read_run).transpose()
}

/// Writes the operation and the attempt it asks for.
fn intend(transaction: &Transaction<'_>, run: &Name, submission: &Submission) -> Result<Attempt, RecordError> {
    let id = number_name("att", Some(&submission.plan), next(transaction, Level::Attempt)?);
    let operation = match &submission.operation {
        Some(given) => given.clone(),
        None => mint(transaction)?,
    };
    let (plan, request) = (submission.plan.to_string(), submission.request.to_string());
    let asked = [("kind", SUBMIT), ("request", request.as_str()), ("attempt", id.as_str())];
    insert(transaction, OperationState::INITIAL, &operation, &asked)?;
    created::<OperationState>(transaction, &operation, submission.now, &payload(&asked))?;
    let members = [("run", run.as_str()), ("operation", operation.as_str()), ("plan", &plan), ("request", &request)];
    insert(transaction, AttemptState::INITIAL, &id, &members)?;
    created::<AttemptState>(transaction, &id, submission.now, &payload(&members))?;
    query::attempt(transaction, &id)?.ok_or(RecordError::Unknown { level: Level::Attempt, name: id })
}

/// An operation id that nobody has used.
fn mint(transaction: &Transaction<'_>) -> Result<Name, RecordError> {
    let mut number = next(transaction, Level::Operation)?;
    loop {
        let id = number_name("op", None, number);
        if operation(transaction, &id)?.is_none() {
            return Ok(id);
        }
        number += 1;
    }
}

/// Notes that the runtime has it.
pub fn sent(transaction: &Transaction<'_>, id: &Name, now: Instant, because: &Value) -> Result<(), RecordError> {
    advance(transaction, id, OperationState::Intended, OperationState::Sent, now, because)
}

/// Closes an operation with the end of its attempt. An end that nobody saw leaves it open, as uncertain.
pub fn close(
    transaction: &Transaction<'_>,
    id: &Name,
    end: AttemptState,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Operation, name: id.clone() };
    let from = operation(transaction, id)?.ok_or_else(unknown)?.state;
    let to = match (end, from) {
        (AttemptState::Lost, _) => OperationState::Uncertain,
        (AttemptState::Cancelled, OperationState::Intended) => OperationState::Withdrawn,
        (AttemptState::NotStarted, _) => OperationState::Failed,
        _ => OperationState::Done,
    };
    transaction.execute("UPDATE operation SET outcome = ?2 WHERE id = ?1", [id.as_str(), end.word()])?;
    let mut payload = because.clone();
    if let Value::Object(members) = &mut payload {
        members.insert("outcome".into(), end.word().into());
    }
    advance(transaction, id, from, to, now, &payload)
}

/// Refuses new work under something that has ended.
fn open<S: Machine>(subject: &Name, state: S) -> Result<(), RecordError> {
    if state.is_terminal() {
        return Err(RecordError::Closed { level: S::LEVEL, subject: subject.clone(), state: state.name() });
    }
    Ok(())
}

/// Writes a row with its initial state. Columns are names in this file, never input.
fn insert<S: Machine>(
    transaction: &Transaction<'_>,
    state: S,
    id: &Name,
    members: &[(&str, &str)],
) -> Result<(), RecordError> {
    let columns: Vec<&str> = ["id", "state"].into_iter().chain(members.iter().map(|(column, _)| *column)).collect();
    let places = vec!["?"; columns.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({places})", S::LEVEL, columns.join(", "));
    let head = [id.as_str(), state.name()];
    let values = head.into_iter().chain(members.iter().map(|(_, value)| *value));
    transaction.prepare_cached(&sql)?.execute(rusqlite::params_from_iter(values))?;
    Ok(())
}

fn payload(members: &[(&str, &str)]) -> Value {
    Value::Object(members.iter().map(|(key, value)| ((*key).to_string(), (*value).into())).collect())
}

/// The next number at this level; rows are never deleted, so no number comes twice.
fn next(transaction: &Transaction<'_>, level: Level) -> Result<i64, RecordError> {
    let sql = format!("SELECT coalesce(max(number), 0) + 1 FROM {level}");
    Ok(transaction.prepare_cached(&sql)?.query_row(params![], |row| row.get(0))?)
}

/// Such as `att-0123456789ab-7`: what it is, the first 12 digits of a digest, and its number in the record.
fn number_name(head: &str, digest: Option<&Digest>, number: i64) -> Name {
    let middle = digest.map_or_else(String::new, |digest| format!("{}-", &digest.hex()[..12]));
    let text = format!("{head}-{middle}{number}");
    Name::new(&text).unwrap_or_else(|| unreachable!("letters, digits and hyphens, fewer than 128"))
}
