//! What can go wrong with the record.

use std::path::PathBuf;

use rusqlite::ErrorCode;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, Illegal};

use crate::decision::DecisionFault;
use crate::process::Process;

/// What can go wrong with the record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is no record to read.
    #[error("there is no record at {path}")]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not a record of this toolkit")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer version. Nothing but its head was read, and nothing was changed.
    #[error("{path} has format {found}; this version reads formats up to {supported}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this version knows.
        supported: u32,
    },
    /// The file has the format of an older version, and was opened for reading only.
    #[error("{path} has the older format {found}; reading it needs format {supported}")]
    Older {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The format of this version.
        supported: u32,
    },
    /// Another process held the lock for longer than this one waits.
    #[error("the record is locked by another process")]
    Locked,
    /// The record was opened for reading, or the disk or its permissions allow no writes.
    #[error(
        "the record of this store can only be read here: its disk is read-only, or its folder belongs to somebody else"
    )]
    ReadOnly,
    /// The operation id stands for another request.
    #[error("operation {operation} carries the request {recorded}, not {asked}")]
    Conflict {
        /// The operation id.
        operation: Name,
        /// Request digest in the record.
        recorded: Digest,
        /// Request digest asked for now.
        asked: Digest,
    },
    /// The operation id stands for the same request under another experiment.
    #[error("operation {operation} belongs to experiment {recorded}, not {asked}")]
    Elsewhere {
        /// The operation id.
        operation: Name,
        /// The experiment in the record.
        recorded: Name,
        /// The experiment named now.
        asked: Name,
    },
    /// What new work was asked for is being cancelled.
    #[error("{level} {subject} is being cancelled by action {action} and takes no new work")]
    Closing {
        /// What kind of thing.
        level: Level,
        /// Which.
        subject: Name,
        /// The action.
        action: Name,
    },
    /// What is asked for cannot be had now.
    #[error("not now: {}", reasons.join("; "))]
    Postponed {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// What is asked for cannot be had here.
    #[error("not on this host: {}", reasons.join("; "))]
    Unavailable {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// An attempt cannot be retried.
    #[error("{attempt} cannot be retried: {}", reasons.join("; "))]
    NoRetry {
        /// The attempt.
        attempt: Name,
        /// Every reason.
        reasons: Vec<String>,
    },
    /// A plan was compiled for several experiments.
    #[error("plan {plan} was compiled for several experiments: {}", experiments.join(", "))]
    Ambiguous {
        /// The plan.
        plan: Digest,
        /// The experiments that it was compiled for and that have not ended.
        experiments: Vec<String>,
    },
    /// An experiment of this name has another objective.
    #[error("experiment {experiment} has another objective: {recorded}")]
    Objective {
        /// The experiment.
        experiment: Name,
        /// Its objective, or that it has none.
        recorded: String,
    },
    /// Another supervisor has the attempt.
    #[error("attempt {attempt} belongs to {owner}")]
    Claimed {
        /// The attempt.
        attempt: Name,
        /// Its supervisor.
        owner: Process,
    },
    /// The attempt has ended already, in another way.
    #[error(
        "attempt {attempt} has ended: {state}, run record {}",
        recorded.map_or_else(|| "none".to_string(), |digest| digest.to_string())
    )]
    Settled {
        /// The attempt.
        attempt: Name,
        /// How it ended.
        state: AttemptState,
        /// Its run record.
        recorded: Option<Digest>,
    },
    /// An attempt was to be ended with a state that is no end.
    #[error("attempt {attempt} cannot end as {state}, which is no end")]
    NoEnd {
        /// The attempt.
        attempt: Name,
        /// The state.
        state: AttemptState,
    },
    /// The state machine does not allow the step.
    #[error("{subject}: {illegal}")]
    Illegal {
        /// What was to change.
        subject: Name,
        /// The step.
        illegal: Illegal,
    },
    /// What new work was asked for has come to its end.
    #[error("{level} {subject} is {state} and takes no new work")]
    Closed {
        /// What kind of thing.
        level: Level,
        /// Which.
        subject: Name,
        /// Its state.
        state: &'static str,
    },
    /// The record knows nothing of that name.
    #[error("the record knows no {level} {name}")]
    Unknown {
        /// What kind of thing.
        level: Level,
        /// The name.
        name: Name,
    },
    /// The record holds something it cannot hold.
    #[error("the record is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
    /// The system refused a file operation.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A decision is not recorded.
    #[error("{0}")]
    Decision(DecisionFault),
    /// SQLite refused.
    #[error("SQLite: {0}")]
    Sqlite(rusqlite::Error),
}

impl RecordError {
    /// What an error means for whoever opened the record to write, after its head was read: SQLite cannot open the files
    /// beside it, which it makes.
    pub(crate) fn when_writing(self) -> Self {
        match self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => Self::ReadOnly,
            other => other,
        }
    }
}

impl From<rusqlite::Error> for RecordError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // The last one is the answer of a write-ahead log that stays contended through all of SQLite's retries.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
                Self::Locked
            }
            Some(ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged { what: error.to_string() },
            _ => Self::Sqlite(error),
        }
    }
}

impl Failure for RecordError {
    fn exit(&self) -> Exit {
        match self {
            Self::Absent { .. } | Self::Damaged { .. } => Exit::Store,
            Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Unknown { .. }
            | Self::Unavailable { .. }
            | Self::Ambiguous { .. } => Exit::Refused,
            Self::Decision(fault) => fault.exit(),
            Self::Locked | Self::Postponed { .. } => Exit::NotNow,
            Self::Conflict { .. }
            | Self::Elsewhere { .. }
            | Self::Closing { .. }
            | Self::NoRetry { .. }
            | Self::Objective { .. }
            | Self::Claimed { .. }
            | Self::Settled { .. }
            | Self::Illegal { .. }
            | Self::Closed { .. } => Exit::Conflict,
            Self::NoEnd { .. } => Exit::Bug,
            Self::ReadOnly | Self::Io { .. } | Self::Sqlite(_) => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "record.absent",
            Self::Foreign { .. } => "record.foreign",
            Self::Newer { .. } => "record.newer",
            Self::Older { .. } => "record.older",
            Self::Decision(fault) => fault.word(),
            Self::Locked => "record.locked",
            Self::ReadOnly => "record.read-only",
            Self::Conflict { .. } => "operation.conflict",
            Self::Elsewhere { .. } => "operation.elsewhere",
            Self::Closing { .. } => "record.closing",
            Self::Postponed { .. } => "lease.postponed",
            Self::Unavailable { .. } => "lease.unavailable",
            Self::NoRetry { .. } => "attempt.no-retry",
            Self::Objective { .. } => "experiment.objective",
            Self::Ambiguous { .. } => "experiment.ambiguous",
            Self::Claimed { .. } => "attempt.claimed",
            Self::Settled { .. } => "attempt.settled",
            Self::NoEnd { .. } => "attempt.no-end",
            Self::Illegal { .. } => "record.illegal",
            Self::Closed { .. } => "record.closed",
            Self::Unknown { .. } => "record.unknown",
            Self::Damaged { .. } => "record.damaged",
            Self::Io { .. } => "record.io",
            Self::Sqlite(_) => "record.failed",
        }
    }

    fn hints(&self) -> Vec<String> {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let hint = match self {
            Self::Absent { .. } => "name the store with --store or XT_STORE; `xt-run` creates its record",
            Self::Newer { .. } => "use the version that wrote it, or another store",
            Self::Older { .. } => "`xt-log rebuild` takes it to the new format; nothing is lost",
            Self::Postponed { .. } => "`xt-log resources` says who has what; --wait waits for it",
            Self::Unavailable { .. } => "`xt-log resources` says what there is; ask for less in the intent",
            Self::Closed { level: Level::Experiment, .. } => {
                "what has ended takes in nothing new: name another experiment with --experiment; `xt-log wait` tells how \
                 this one ended"
            }
            Self::Locked => "try again; another process is writing",
            Self::ReadOnly => READ_ONLY,
            Self::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) => READ_ONLY,
            Self::Conflict { .. } => "use a new operation id for a new request",
            Self::Elsewhere { .. } => "use a new operation id to run the same request under another experiment",
            Self::Ambiguous { .. } => "say which with --experiment",
            Self::Objective { .. } => "give the new objective a new name",
            Self::Decision(DecisionFault::Running { .. }) => "wait for it, or stop it with `xt-log cancel`",
            Self::Decision(DecisionFault::OtherCycle { .. }) => "`xt-decide context` assembles the last cycle",
            Self::Unknown { .. } => {
                "`xt-log status` lists what there is; of a bundle, a state or any other object `xt-log lineage` tells \
                 what it came from"
            }
            _ => return Vec::new(),
        };
        vec![hint.to_string()]
    }
}

/// What can be done with a store that cannot be written.
const READ_ONLY: &str = "reading works: `xt-log events`, `status`, `show` and `why`, `xt-store get` and `verify`, `xt-freeze \
                         verify`; to run, decide or settle, name a store that can be written with --store or XT_STORE";
