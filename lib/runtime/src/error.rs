//! How launching, supervising and observing fail.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::manifest::replay::PinDifference;
use xt_core::name::Name;

/// How launching, supervising and observing fail.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] xt_store::StoreError),
    /// The record failed.
    #[error(transparent)]
    Record(#[from] xt_record::RecordError),
    /// The sandbox failed, or there is none that the plan accepts.
    #[error(transparent)]
    Sandbox(#[from] xt_sandbox::SandboxError),
    /// A request that cannot be run.
    #[error("{0}")]
    Refused(Faults),
    /// A worker that was to write text did not.
    #[error("the worker wrote no more: {0}")]
    Silent(String),
    /// The sandbox gave no streams of the worker.
    #[error("the sandbox gave no standard output and error of the worker")]
    NoStreams,
    /// A file of a run failed.
    #[error("cannot {verb} {path}: {source}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A call to the system failed.
    #[error("{call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// Why it failed.
        source: Errno,
    },
    /// There is no worker where one is looked for.
    #[error("there is no worker at {}", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" nor at "))]
    NoWorker(Vec<PathBuf>),
    /// The worker or a library of it cannot be used.
    #[error("the worker {path} cannot be used: {why}")]
    Worker {
        /// The worker.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The worker or a library of it became another one after it was hashed.
    #[error("{} changed after it was hashed, so the record would name bytes that did not run", .0.display())]
    Altered(PathBuf),
    /// A file or folder that a command needs cannot be used.
    #[error("{} {why}", .path.display())]
    Root {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// The program of a command is not what its plan pins.
    #[error("the program is not what the plan pins: {}", .0.iter().map(|pin| format!("{} was {}, now {}", pin.what, pin.recorded, pin.now)).collect::<Vec<_>>().join("; "))]
    Pins(Vec<PinDifference>),
    /// A file of a run folder holds something else than it should.
    #[error("{path} is damaged: {faults}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        faults: Faults,
    },
    /// Inputs of a plan are not in the store.
    #[error("not in the store: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    MissingInputs(Vec<Digest>),
    /// The supervisor did not come up.
    #[error("the supervisor of {attempt} did not come up: {why}")]
    Supervisor {
        /// The attempt.
        attempt: Name,
        /// What it said.
        why: String,
    },
    /// Whether the supervisor of an attempt lives cannot be seen from here.
    #[error("whether {supervisor} still runs {attempt} cannot be seen from here")]
    Unseen {
        /// The attempt.
        attempt: Name,
        /// Its supervisor.
        supervisor: String,
    },
    /// The wish for an attempt was recorded, and no supervisor ever got it.
    #[error("{attempt} was asked for by operation {operation}, and no supervisor ever got it")]
    Unreceived {
        /// The attempt.
        attempt: Name,
        /// The operation.
        operation: Name,
    },
    /// The request made again from plan and order is not the one that was recorded, so it is not sent (X35).
    #[error("the request made again for {attempt} is {rebuilt}, which is not the one in the record")]
    OtherRequest {
        /// The attempt.
        attempt: Name,
        /// Its digest.
        rebuilt: Digest,
    },
    /// A record says that an attempt ended but names no run record.
    #[error("{0} ended, but the record names no run record for it")]
    NoRun(Name),
    /// The person asked to stop waiting.
    #[error("{0} was left to its supervisor, which did not stop it in time")]
    Left(Name),
}

/// Notes that `verb` failed on `path`.
pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RuntimeError + use<> {
    let path = path.to_owned();
    move |source| RuntimeError::File { verb, path, source }
}

/// Notes that a call failed.
pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> RuntimeError {
    move |source| RuntimeError::System { call, source }
}

impl Failure for RuntimeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Record(error) => error.exit(),
            Self::Sandbox(error) => error.exit(),
            Self::Refused(_) => Exit::Refused,
            Self::MissingInputs(_) => Exit::Store,
            Self::Unseen { .. } | Self::Unreceived { .. } => Exit::NotNow,
            Self::OtherRequest { .. } => Exit::Conflict,
            Self::Silent(_) | Self::Left(_) => Exit::Workload,
            _ => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Store(error) => error.word(),
            Self::Record(error) => error.word(),
            Self::Sandbox(error) => error.word(),
            Self::Refused(_) => "input.refused",
            Self::Silent(_) => "run.silent",
            Self::NoStreams => "run.streams",
            Self::File { .. } => "run.file",
            Self::System { .. } => "run.system",
            Self::NoWorker(_) => "worker.missing",
            Self::Worker { .. } => "worker.unusable",
            Self::Altered(_) => "worker.altered",
            Self::Root { .. } => "command.root",
            Self::Pins(_) => "command.pins",
            Self::Damaged { .. } => "run.damaged",
            Self::MissingInputs(_) => "store.missing",
            Self::Supervisor { .. } => "run.supervisor",
            Self::Unseen { .. } => "run.unseen",
            Self::Unreceived { .. } => "run.unreceived",
            Self::OtherRequest { .. } => "run.other-request",
            Self::NoRun(_) => "run.no-record",
            Self::Left(_) => "run.left",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Store(error) => error.hints(),
            Self::Record(error) => error.hints(),
            Self::Sandbox(error) => error.hints(),
            Self::NoWorker(_) => {
                vec!["build it with `cargo build -p xt-train`, or name it with --worker PATH or XT_TRAIN".into()]
            }
            Self::MissingInputs(_) => {
                vec![
                    "--store or XT_STORE names another store; `xt-compile dataset` takes data in, also that of a thin bundle, \
                     and `xt-store put` any other file"
                        .into(),
                ]
            }
            Self::Unreceived { attempt, operation } => vec![
                format!("run its plan again with --operation-id {operation}: that starts this attempt, and no other"),
                "or start it, and whatever else was not received, with `xt-log reconcile`".into(),
                format!("or give it up with --cancel {attempt}"),
            ],
            Self::Unseen { .. } => {
                vec!["ask again where it was started: the same machine, the same container".into()]
            }
            Self::Supervisor { .. } => vec!["log/supervisor in the folder of the run may say more".into()],
            _ => Vec::new(),
        }
    }

    fn faults(&self) -> Option<&Faults> {
        match self {
            Self::Store(error) => error.faults(),
            Self::Refused(faults) => Some(faults),
            _ => None,
        }
    }
}
