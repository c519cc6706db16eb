//! The error every tool ends with.

use std::io;
use std::path::PathBuf;

use xt_core::canonical::ParseError;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};

/// Any failure of any crate, ready to be reported.
#[derive(Debug)]
pub struct Error(pub Box<dyn Failure>);

impl<E: Failure + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

/// Failures of reading arguments and documents and of writing results.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A file or stream cannot be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// What was read.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A result cannot be written.
    #[error("cannot write {name}: {source}")]
    Write {
        /// What was written.
        name: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A text is not strict JSON.
    #[error("{name}: {source}")]
    Parse {
        /// Where the text came from.
        name: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// An archive was given where a document is due.
    #[error("{0} is an archive, not a document")]
    Archive(String),
    /// A document was given where an archive is due.
    #[error("{0} is a document, not an archive")]
    Document(String),
    /// What looks like a digest is none, and is no file either.
    #[error("{0} is no digest: that is sha256: and 64 of the digits 0-9 and a-f; and there is no file of this name")]
    NoDigest(String),
    /// There is no document where at least one is due.
    #[error("{0} holds no document")]
    NoDocument(String),
    /// There are several documents where one is due.
    #[error("{name} holds {count} documents where one is due")]
    Several {
        /// Where they came from.
        name: String,
        /// How many.
        count: usize,
    },
    /// A digest was given, but nothing with it is known.
    #[error("{0} is not in the store")]
    Unknown(Digest),
    /// A name was given, and nothing is called so.
    #[error("{0}")]
    NotThere(String),
    /// Something is to be written where something is.
    #[error("{0} exists and is not written over; name a new one")]
    Exists(String),
    /// No time.
    #[error("{0:?} is no time; write 2026-11-29T12:00:00Z or seconds since 1970")]
    Time(String),
    /// Something given on the command line cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The output has no folder or name to rename into.
    #[error("cannot write to {}: it names no file", .0.display())]
    NoFile(PathBuf),
}

impl Failure for CliError {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } | Self::Write { .. } | Self::NoFile(_) => Exit::System,
            Self::Parse { .. }
            | Self::Archive(_)
            | Self::Document(_)
            | Self::NoDocument(_)
            | Self::Several { .. }
            | Self::Exists(_) => Exit::Refused,
            Self::Unknown(_) | Self::NotThere(_) => Exit::Store,
            Self::NoDigest(_) | Self::Time(_) | Self::Usage(_) => Exit::Usage,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Read { .. } => "system.read",
            Self::Write { .. } => "system.write",
            Self::NoFile(_) => "system.no-file",
            Self::Parse { .. } => "input.json",
            Self::Archive(_) => "input.archive",
            Self::Document(_) => "input.document",
            Self::NoDocument(_) => "input.empty",
            Self::Several { .. } => "input.several",
            Self::Unknown(_) => "store.missing",
            Self::NotThere(_) => "store.no-such-name",
            Self::Exists(_) => "output.exists",
            Self::NoDigest(_) | Self::Time(_) | Self::Usage(_) => "usage",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoDocument(_) => vec!["an earlier command of the pipeline may have failed".into()],
            Self::Archive(_) => vec![
                "`xt-freeze import ARCHIVE` takes it into the store and prints its bundle, which names its plan, its run and \
                 all else by digests that can be given then (archives end in .tar.zst, compressed by zstd)"
                    .into(),
            ],
            Self::Document(_) => {
                vec!["give the archive itself, which ends in .tar.zst, or the digest of a bundle in the store".into()]
            }
            Self::Unknown(_) => vec!["--store DIR or XT_STORE says which store is meant; xt-store ls lists it".into()],
            Self::NotThere(_) => vec!["--store DIR or XT_STORE says which store is meant".into()],
            _ => Vec::new(),
        }
    }
}
