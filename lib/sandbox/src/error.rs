//! What can go wrong before the trainer runs, and while it is watched.

use std::path::PathBuf;

use nix::errno::Errno;
use xt_core::fault::{Exit, Failure};
use xt_core::manifest::custody::Custody;
use xt_core::verb::doctor::advise;

/// Why there is no sandbox, or no trainer in it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A required control is not enforced. Nothing ran.
    #[error("the host does not enforce what the plan demands: {}", missing.join("; "))]
    Unenforced {
        /// The whole record.
        custody: Box<Custody>,
        /// Each required control that is not enforced, with the reason.
        missing: Vec<String>,
    },
    /// The sandbox stood, but the program could not be started. Nothing of it ran.
    #[error("{} did not start: {stage}: {errno}", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// What was being done.
        stage: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A library that the program needs lies neither among the admitted files nor in the system's folders.
    #[error("{} did not start: library {name} is not among the admitted files", program.display())]
    Library {
        /// The program.
        program: PathBuf,
        /// The library's name.
        name: String,
    },
    /// The policy contradicts itself.
    #[error("impossible policy: {0}")]
    Policy(String),
    /// A system call of the supervisor failed.
    #[error("{what}: {errno}")]
    System {
        /// What was being done.
        what: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The process that guards the trainer is gone without a report.
    #[error("the trainer's guard is gone without a report ({0})")]
    Lost(String),
}

impl Failure for SandboxError {
    fn exit(&self) -> Exit {
        match self {
            Self::Unenforced { .. } => Exit::Custody,
            Self::NotStarted { .. } | Self::Library { .. } => Exit::Workload,
            Self::Policy(_) => Exit::Bug,
            Self::System { .. } | Self::Lost(_) => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Unenforced { .. } => "custody.unenforced",
            Self::NotStarted { .. } => "trainer.not_started",
            Self::Library { .. } => "trainer.library",
            Self::Policy(_) => "custody.policy",
            Self::System { .. } => "custody.system",
            Self::Lost(_) => "custody.lost",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Unenforced { custody, .. } => advise(custody).into_iter().map(String::from).collect(),
            Self::NotStarted { errno: Errno::EACCES, .. } => vec![
                "started by root, the trainer runs as another user: program, libraries and inputs must be readable for others"
                    .into(),
            ],
            Self::Library { .. } => vec!["list the library, or install it where the system's loader looks".into()],
            _ => Vec::new(),
        }
    }
}

/// Says what was being done when a system call failed.
pub(crate) fn doing(what: &str) -> impl FnOnce(Errno) -> SandboxError + '_ {
    move |errno| SandboxError::System { what: what.into(), errno }
}

/// The error number inside an input or output error.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
