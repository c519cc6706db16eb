//! What happened: states, events and operations in one SQLite file, `record.db` in the folder of the store.
//!
//! The record is the truth (X08–X11): nothing important lives in memory only. Each change of a state and its event
//! commit together or not at all; the intent of an operation is committed before a runtime is asked for anything.
//! The log of events is the whole truth: every other table follows from it and can be made again from it.
//! Times are inputs. Any number of processes may write at once; they take turns.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod action;
mod decision;
mod error;
mod event;
mod experiment;
mod experiment_end;
mod fold;
mod lease;
mod operation;
mod planning;
mod process;
mod query;
mod quiescence;
mod schema;
mod standing;
mod state;

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use action::{Asked, Wish};
pub use decision::{Decided, DecisionFault, DecisionRow, Judgement};
pub use error::RecordError;
pub use fold::Rebuilt;
pub use lease::Claim;
pub use operation::{Operation, Submission, Submitted};
pub use planning::Compiled;
pub use process::Process;
pub use query::{Attempt, ExperimentRow, NodeRow, Overview, RunRow};
pub use schema::{APPLICATION_ID, FORMAT};
pub use xt_core::manifest::status::Liveness;

/// Name of the file within the folder of the store.
pub const FILE_NAME: &str = "record.db";

/// How long a process waits for its turn before it says "not now".
const PATIENCE: Duration = Duration::from_secs(10);

/// The record of one store, open.
#[derive(Debug)]
pub struct Record {
    connection: Connection,
}

impl Record {
    /// Opens the record at `path`, the file itself, and creates it when there is none. The folder must exist.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        Self::open_to_write(path).map_err(RecordError::when_writing)
    }

    fn open_to_write(path: &Path) -> Result<Self, RecordError> {
        if schema::format(path)?.is_none() {
            schema::create(path)?;
        }
        let record = Self { connection: schema::connect(path)? };
        record.wait_at_most(PATIENCE)?;
        if record.format(path)? < FORMAT {
            schema::migrate(&record.connection)?;
        }
        Ok(record)
    }

    /// Opens the record at `path` for reading; works on a read-only disk too. Every method that writes will fail.
    pub fn open_read_only(path: &Path) -> Result<Self, RecordError> {
        if schema::format(path)?.is_none() {
            return Err(RecordError::Absent { path: path.into() });
        }
        let record = Self { connection: schema::connect_read_only(path, PATIENCE)? };
        match record.format(path)? {
            FORMAT => Ok(record),
            found => Err(RecordError::Older { path: path.into(), found, supported: FORMAT }),
        }
    }

    /// Sets how long to wait for other processes before [`RecordError::Locked`]; 10 seconds unless set.
    pub fn wait_at_most(&self, patience: Duration) -> Result<(), RecordError> {
        Ok(self.connection.busy_timeout(patience)?)
    }

    /// A newer version may have its mark in the write-ahead log still, where the file's head does not show it.
    fn format(&self, path: &Path) -> Result<u32, RecordError> {
        let found: u32 = self.connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        schema::supported(path, found)
    }

    /// Runs `work` in one transaction that holds the write lock from its start, so that what it reads stays true.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, RecordError>) -> Result<T, RecordError> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    /// Runs `work` on one state of the record, whatever others write meanwhile.
    fn read<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, RecordError>) -> Result<T, RecordError> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Deferred)?;
        work(&transaction)
    }
}
