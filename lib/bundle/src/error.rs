//! How freezing, verifying and importing fail.

use std::io;

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_store::StoreError;
use xt_store::archive::ArchiveError;

/// Why a bundle could not be made, read or taken in.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive breaks a rule, or could not be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The run may not be frozen; every reason.
    #[error("run {run} is not frozen: {faults}")]
    Unbound {
        /// Id of the run.
        run: Digest,
        /// Every reason.
        faults: Faults,
    },
    /// The bundle does not verify, so it is not taken in; everything that is wrong.
    #[error("{name} is refused: {faults}")]
    Refused {
        /// The archive.
        name: String,
        /// Everything that is wrong.
        faults: Faults,
    },
    /// What is named as a base is none; everything that is wrong.
    #[error("{name} is no base: {faults}")]
    NoBase {
        /// The folder or bundle.
        name: String,
        /// Everything that is wrong.
        faults: Faults,
    },
    /// There is something where a bundle is to be written.
    #[error("{path} exists; a bundle is exported into a new folder")]
    Exists {
        /// The folder.
        path: String,
    },
    /// A read or write failed.
    #[error("cannot {verb} {name}: {source}")]
    Stream {
        /// What was tried.
        verb: &'static str,
        /// On what.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl BundleError {
    /// A function for `map_err` that says what was tried and on what.
    pub(crate) fn stream(verb: &'static str, name: &str) -> impl FnOnce(io::Error) -> Self + use<> {
        let name = name.to_string();
        move |source| Self::Stream { verb, name, source }
    }
}

/// What helps when a run may not be frozen: its status stands in the message of the fault about it.
fn way_on(faults: &Faults) -> Option<&'static str> {
    let status = &faults.0.iter().find(|fault| fault.code == "bundle.status")?.message;
    Some(if status.contains("this one is drained") {
        "`xt-run --resume ATTEMPT` lets it go on to its end; freeze the run that comes of it"
    } else if status.contains("this one is held") {
        "a held run is never frozen: `xt-triage --run RUN` says where the first non-finite value is; then change the \
         candidate, and compile and run it anew"
    } else {
        "`xt-run --retry ATTEMPT` tries it again, as a new attempt"
    })
}

impl Failure for BundleError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Archive(error) => error.exit(),
            Self::Unbound { .. } => Exit::Quarantined,
            Self::Refused { .. } | Self::NoBase { .. } | Self::Exists { .. } => Exit::Refused,
            Self::Stream { .. } => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Store(error) => error.word(),
            Self::Archive(error) => error.word(),
            Self::Unbound { .. } => "bundle.refused",
            Self::Refused { .. } => "bundle.invalid",
            Self::NoBase { .. } => "base.refused",
            Self::Exists { .. } => "output.exists",
            Self::Stream { .. } => "bundle.stream",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Store(error) => error.hints(),
            Self::Archive(error) => error.hints(),
            Self::Unbound { faults, .. } => way_on(faults).map(Into::into).into_iter().collect(),
            Self::Refused { .. } => vec!["nothing of it was taken in; `xt-freeze verify` lists the same faults".into()],
            Self::NoBase { .. } => vec![
                "a base is a folder with model.safetensors and config.json, or a frozen bundle: its archive, or its id"
                    .into(),
            ],
            Self::Exists { .. } | Self::Stream { .. } => Vec::new(),
        }
    }

    fn faults(&self) -> Option<&Faults> {
        match self {
            Self::Store(error) => error.faults(),
            Self::Unbound { faults, .. } | Self::Refused { faults, .. } | Self::NoBase { faults, .. } => Some(faults),
            Self::Archive(_) | Self::Exists { .. } | Self::Stream { .. } => None,
        }
    }
}
