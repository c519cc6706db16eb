//! Reading the record: what there is and in which state.

use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};
use xt_core::digest::Digest;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, ExperimentState, NodeState, RunState};

use crate::Record;
use crate::error::RecordError;
use crate::process::Process;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentRow {
    /// Its name.
    pub id: Name,
    /// Its state.
    pub state: ExperimentState,
    /// What it is after, as canonical JSON; `None` when nobody said.
    pub objective: Option<String>,
}

/// A node: one candidate within an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its id.
    pub id: Name,
    /// Its experiment.
    pub experiment: Name,
    /// Fingerprint of the candidate.
    pub fingerprint: Digest,
    /// Its state.
    pub state: NodeState,
}

/// A run: one candidate with one seed, or one evaluation of it. After it has ended, the same asked for again is another
/// run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Its id.
    pub id: Name,
    /// `run` or `evaluation-run`.
    pub level: Level,
    /// Its node.
    pub node: Name,
    /// Its seed.
    pub seed: u64,
    /// Its state; an evaluation run has the same states.
    pub state: RunState,
    /// What an evaluation run evaluates.
    pub subject: Option<Digest>,
    /// How: the request digest of its plan.
    pub evaluation: Option<Digest>,
    /// Its evaluation cycle, from 1.
    pub cycle: Option<u64>,
}

/// An attempt: one workload in a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its id, never used twice. It is also the name of its folder in `runs/`.
    pub id: Name,
    /// `attempt` or `evaluation-attempt`.
    pub level: Level,
    /// The operation that asked for it.
    pub operation: Name,
    /// Its experiment.
    pub experiment: Name,
    /// Its node.
    pub node: Name,
    /// Its run.
    pub run: Name,
    /// Fingerprint of the candidate.
    pub fingerprint: Digest,
    /// Seed of the run.
    pub seed: u64,
    /// Id of the plan.
    pub plan: Digest,
    /// Request digest of the plan.
    pub request: Digest,
    /// What is asked for beside the plan, as canonical JSON; `None` for all of the plan and nothing else.
    pub scope: Option<String>,
    /// Its state; those of an evaluation attempt are among these.
    pub state: AttemptState,
    /// The attempt that this one is a retry of.
    pub retry_of: Option<Name>,
    /// Its supervisor; `None` before one has claimed it.
    pub process: Option<Process>,
    /// Id of its run record; `None` before it has ended, or when it ended without one.
    pub run_record: Option<Digest>,
}

/// Everything that has a state, each list in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// The experiments.
    pub experiments: Vec<ExperimentRow>,
    /// Their nodes.
    pub nodes: Vec<NodeRow>,
    /// Their runs.
    pub runs: Vec<RunRow>,
    /// Their attempts.
    pub attempts: Vec<Attempt>,
}

impl Record {
    /// The attempt with this id.
    pub fn attempt(&self, id: &Name) -> Result<Option<Attempt>, RecordError> {
        attempt(&self.connection, id)
    }

    /// The attempt that this operation is about.
    pub fn attempt_of_operation(&self, operation: &Name) -> Result<Option<Attempt>, RecordError> {
        let sql = format!("{ATTEMPTS} WHERE attempt.id = (SELECT attempt FROM operation WHERE id = ?1)");
        one(&self.connection, &sql, operation, read_attempt)
    }

    /// Every attempt, in the order of creation.
    pub fn attempts(&self) -> Result<Vec<Attempt>, RecordError> {
        all(&self.connection, &format!("{ATTEMPTS} ORDER BY attempt.number"), &[], read_attempt)
    }

    /// The attempts that a person can mean by `text`: that with this id; else those with this run record; else those of this
    /// run, node or experiment, or with this plan; else those of this operation, in the order of creation. The id of an
    /// operation is whatever its asker chose, so it never takes the place of a name that the record gave.
    pub fn attempts_named(&self, text: &str) -> Result<Vec<Attempt>, RecordError> {
        for named in [
            "attempt.id = ?1",
            "attempt.run_record = ?1",
            "?1 IN (attempt.run, run.node, node.experiment, attempt.plan)",
            "attempt.operation = ?1",
        ] {
            let sql = format!("{ATTEMPTS} WHERE {named} ORDER BY attempt.number");
            let found = all(&self.connection, &sql, &[text], read_attempt)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The experiment of this name.
    pub fn experiment(&self, id: &Name) -> Result<Option<ExperimentRow>, RecordError> {
        experiment(&self.connection, id)
    }

    /// The run with this id.
    pub fn run(&self, id: &Name) -> Result<Option<RunRow>, RecordError> {
        run(&self.connection, id)
    }

    /// Everything that has a state, as it was at one moment.
    pub fn status(&self) -> Result<Overview, RecordError> {
        self.read(|transaction| {
            Ok(Overview {
                experiments: all(transaction, "SELECT * FROM experiment ORDER BY number", &[], read_experiment)?,
                nodes: all(transaction, "SELECT * FROM node ORDER BY number", &[], read_node)?,
                runs: all(transaction, "SELECT * FROM run ORDER BY number", &[], read_run)?,
                attempts: all(transaction, &format!("{ATTEMPTS} ORDER BY attempt.number"), &[], read_attempt)?,
            })
        })
    }
}

const ATTEMPTS: &str = "SELECT attempt.*, run.node, run.seed, node.experiment, node.fingerprint FROM attempt
    JOIN run ON run.id = attempt.run JOIN node ON node.id = run.node";

pub fn attempt(connection: &Connection, id: &Name) -> Result<Option<Attempt>, RecordError> {
    one(connection, &format!("{ATTEMPTS} WHERE attempt.id = ?1"), id, read_attempt)
}

/// The nodes of an experiment.
pub fn nodes_of_experiment(connection: &Connection, id: &Name) -> Result<Vec<NodeRow>, RecordError> {
    all(connection, "SELECT * FROM node WHERE experiment = ?1 ORDER BY number", &[id.as_str()], read_node)
}

/// The attempts of an experiment.
pub fn attempts_of_experiment(connection: &Connection, id: &Name) -> Result<Vec<Attempt>, RecordError> {
    let sql = format!("{ATTEMPTS} WHERE node.experiment = ?1 ORDER BY attempt.number");
    all(connection, &sql, &[id.as_str()], read_attempt)
}

/// The attempts at the same: at one request for one node.
pub fn attempts_at(connection: &Connection, node: &Name, request: Digest) -> Result<Vec<Attempt>, RecordError> {
    let sql = format!("{ATTEMPTS} WHERE run.node = ?1 AND attempt.request = ?2 ORDER BY attempt.number");
    all(connection, &sql, &[node.as_str(), &request.to_string()], read_attempt)
}

/// The runs of a node, evaluation runs too.
pub fn runs_of_node(connection: &Connection, node: &Name) -> Result<Vec<RunRow>, RecordError> {
    all(connection, "SELECT * FROM run WHERE node = ?1 ORDER BY number", &[node.as_str()], read_run)
}

pub fn experiment(connection: &Connection, id: &Name) -> Result<Option<ExperimentRow>, RecordError> {
    one(connection, "SELECT * FROM experiment WHERE id = ?1", id, read_experiment)
}

pub fn node(connection: &Connection, id: &Name) -> Result<Option<NodeRow>, RecordError> {
    one(connection, "SELECT * FROM node WHERE id = ?1", id, read_node)
}

pub fn run(connection: &Connection, id: &Name) -> Result<Option<RunRow>, RecordError> {
    one(connection, "SELECT * FROM run WHERE id = ?1", id, read_run)
}

type Reader<T> = fn(&Row<'_>) -> Result<T, RecordError>;

pub fn one<T>(connection: &Connection, sql: &str, id: &Name, read: Reader<T>) -> Result<Option<T>, RecordError> {
    let found = connection.prepare_cached(sql)?.query_row([id.as_str()], |row| Ok(read(row))).optional()?;
    found.transpose()
}

pub fn all<T>(connection: &Connection, sql: &str, given: &[&str], read: Reader<T>) -> Result<Vec<T>, RecordError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params_from_iter(given))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

pub fn read_experiment(row: &Row<'_>) -> Result<ExperimentRow, RecordError> {
    Ok(ExperimentRow {
        id: name(row, "id")?,
        state: word(row, "state", ExperimentState::parse)?,
        objective: row.get("objective")?,
    })
}

pub fn read_node(row: &Row<'_>) -> Result<NodeRow, RecordError> {
    Ok(NodeRow {
        id: name(row, "id")?,
        experiment: name(row, "experiment")?,
        fingerprint: digest(row, "fingerprint")?,
        state: word(row, "state", NodeState::parse)?,
    })
}

pub fn read_run(row: &Row<'_>) -> Result<RunRow, RecordError> {
    Ok(RunRow {
        id: name(row, "id")?,
        level: word(row, "level", Level::parse)?,
        node: name(row, "node")?,
        seed: word(row, "seed", |text| text.parse().ok())?,
        state: word(row, "state", RunState::parse)?,
        subject: optional(row, "subject", |text| text.parse().ok())?,
        evaluation: optional(row, "evaluation", |text| text.parse().ok())?,
        cycle: optional(row, "cycle", |text| text.parse().ok())?,
    })
}

fn read_attempt(row: &Row<'_>) -> Result<Attempt, RecordError> {
    Ok(Attempt {
        id: name(row, "id")?,
        level: word(row, "level", Level::parse)?,
        operation: name(row, "operation")?,
        experiment: name(row, "experiment")?,
        node: name(row, "node")?,
        run: name(row, "run")?,
        fingerprint: digest(row, "fingerprint")?,
        seed: word(row, "seed", |text| text.parse().ok())?,
        plan: digest(row, "plan")?,
        request: digest(row, "request")?,
        scope: row.get("scope")?,
        state: word(row, "state", AttemptState::parse)?,
        retry_of: optional_name(row, "retry_of")?,
        process: optional(row, "process", Process::parse)?,
        run_record: optional(row, "run_record", |text| text.parse().ok())?,
    })
}

/// The text in `column`, read by `parse`.
pub fn word<T>(row: &Row<'_>, column: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, RecordError> {
    let text: String = row.get(column)?;
    parse(&text).ok_or_else(|| damaged(row, column))
}

fn optional<T>(row: &Row<'_>, column: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, RecordError> {
    let text: Option<String> = row.get(column)?;
    text.map(|text| parse(&text).ok_or_else(|| damaged(row, column))).transpose()
}

pub fn name(row: &Row<'_>, column: &str) -> Result<Name, RecordError> {
    word(row, column, Name::new)
}

pub fn optional_name(row: &Row<'_>, column: &str) -> Result<Option<Name>, RecordError> {
    optional(row, column, Name::new)
}

pub fn digest(row: &Row<'_>, column: &str) -> Result<Digest, RecordError> {
    word(row, column, |text| text.parse().ok())
}

/// The whole number in `column`; stored as the 64 bits that it has.
pub fn unsigned(row: &Row<'_>, column: &str) -> Result<u64, RecordError> {
    Ok(row.get::<_, i64>(column)?.cast_unsigned())
}

/// The fault of a row that holds what it cannot hold.
pub fn damaged(row: &Row<'_>, column: &str) -> RecordError {
    let found = row.get::<_, rusqlite::types::Value>(column);
    RecordError::Damaged { what: format!("column {column} holds {found:?}") }
}
