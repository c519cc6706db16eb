//! Why an archive is refused.

use std::io;

use xt_core::fault::{Exit, Failure};
use xt_core::relpath::NotAPath;

/// Why an archive cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive breaks a rule. Nothing of it should be kept.
    #[error("archive entry {entry:?}: {rule}")]
    Refused {
        /// Name of the entry, with odd characters escaped when shown; `(end)` for what follows the entries.
        entry: String,
        /// The rule.
        rule: Rule,
    },
    /// A member gave more or fewer bytes than it had been announced with.
    #[error("{path} was announced with {announced} bytes and has {found}")]
    Length {
        /// Path of the member.
        path: String,
        /// The size given with it.
        announced: u64,
        /// How many bytes there were, at least.
        found: u64,
    },
    /// The system refused a read or write.
    #[error("cannot {action} the archive: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What archives must keep to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// The path is not a safe relative path.
    #[error("{0}")]
    Path(NotAPath),
    /// The path is not UTF-8.
    #[error("a path must be UTF-8")]
    Text,
    /// The path has a component that is kept for tools.
    #[error("a path may not have a component `.git` or one that starts with `.xt`")]
    Reserved,
    /// Two entries of one name.
    #[error("there is an earlier entry of this name")]
    Duplicate,
    /// Two names that are one on some file systems.
    #[error("on some file systems this is the same name as {0:?}")]
    Collision(String),
    /// A path that is a file in one entry and a folder in another.
    #[error("the path is a file in one entry and a folder in another")]
    FileAndFolder,
    /// A symbolic or hard link.
    #[error("links are not allowed")]
    Link,
    /// A directory, device or FIFO.
    #[error("{0} is not a regular file")]
    Special(&'static str),
    /// A sparse file, whose size is a claim.
    #[error("sparse files are not allowed")]
    Sparse,
    /// A kind of entry that ustar does not have.
    #[error("unknown kind of entry {0:?}")]
    Kind(char),
    /// Settings for all later entries.
    #[error("global extended headers are not allowed")]
    Global,
    /// Another way to write long names.
    #[error("GNU long names are not allowed; long names stand in pax headers")]
    GnuName,
    /// Two extended headers for one entry, or one for none.
    #[error("an extended header must be followed by its file")]
    Extension,
    /// An extended header longer than a path and a size need.
    #[error("an extended header of {0} bytes is longer than {max}", max = super::form::MAX_EXTENSION)]
    ExtensionLong(u64),
    /// An extended header that cannot be taken apart.
    #[error("the extended header is malformed")]
    ExtensionForm,
    /// An extended header that says something else than path and size.
    #[error("the extended header may say path and size, not {0:?}")]
    ExtensionKey(String),
    /// The header's checksum is wrong.
    #[error("the checksum of the header is wrong")]
    Checksum,
    /// The header is not the one form of this path and size.
    #[error("the header differs from the form of these archives in {0}")]
    Form(&'static str),
    /// The bytes that fill up the last block of a file are not zero.
    #[error("the padding is not zero")]
    Padding,
    /// The tar ends inside an entry.
    #[error("the archive is cut here")]
    Cut,
    /// The tar ends without its two zero blocks.
    #[error("the two zero blocks at the end are missing")]
    NoEnd,
    /// The tar goes on behind its two zero blocks.
    #[error("there is something behind the two zero blocks of the end")]
    Trailing,
    /// zstd cannot read the frame.
    #[error("zstd: {0}")]
    Zstd(String),
    /// No zstd frame.
    #[error("this is no zstd frame")]
    NotZstd,
    /// A skippable frame, before or behind the archive.
    #[error("skippable zstd frames are not allowed")]
    Skippable,
    /// A second frame.
    #[error("a second zstd frame follows")]
    SecondFrame,
    /// Other bytes behind the frame.
    #[error("there are bytes behind the zstd frame")]
    BehindFrame,
    /// More entries than allowed.
    #[error("there are more than {0} entries")]
    Entries(u64),
    /// A file that is much longer than what is listed of it.
    #[error("it is announced with {announced} bytes, and {listed} are listed")]
    Excess {
        /// In the header.
        announced: u64,
        /// In the list.
        listed: u64,
    },
    /// More bytes than allowed.
    #[error("the files have more than {0} bytes together")]
    Bytes(u64),
}

impl ArchiveError {
    pub(super) fn refused(entry: &str, rule: Rule) -> Self {
        Self::Refused { entry: entry.to_owned(), rule }
    }
}

impl Failure for ArchiveError {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused { .. } | Self::Length { .. } => Exit::Refused,
            Self::System { .. } => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Refused { rule, .. } => rule.word(),
            Self::Length { .. } => "archive.length",
            Self::System { .. } => "archive.system",
        }
    }
}

impl Rule {
    /// Stable code word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Path(_) | Self::Text => "archive.path",
            Self::Reserved => "archive.reserved",
            Self::Duplicate => "archive.duplicate",
            Self::Collision(_) | Self::FileAndFolder => "archive.collision",
            Self::Link => "archive.link",
            Self::Special(_) | Self::Sparse | Self::Kind(_) => "archive.kind",
            Self::Global
            | Self::GnuName
            | Self::Extension
            | Self::ExtensionLong(_)
            | Self::ExtensionForm
            | Self::ExtensionKey(_) => "archive.extension",
            Self::Checksum => "archive.checksum",
            Self::Form(_) | Self::Padding => "archive.form",
            Self::Cut | Self::NoEnd => "archive.cut",
            Self::Trailing | Self::SecondFrame | Self::Skippable | Self::BehindFrame => "archive.trailing",
            Self::Zstd(_) | Self::NotZstd => "archive.zstd",
            Self::Entries(_) | Self::Bytes(_) | Self::Excess { .. } => "archive.limit",
        }
    }
}
