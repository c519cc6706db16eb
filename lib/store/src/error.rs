//! How the store fails.

use std::io;
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no store in this directory.
    #[error("there is no store at {}", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The directory was written by another version, or its FORMAT file is damaged. Nothing else of it was read.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The FORMAT file.
        path: PathBuf,
        /// What it says that this version does not know.
        problem: String,
    },
    /// A directory that is no store and holds other things, so no store is made in it.
    #[error("{} is no store and holds {entry:?}; a store is made only in a directory of its own", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Something in it.
        entry: String,
    },
    /// No object has this digest.
    #[error("the store holds no object {digest}")]
    Missing {
        /// The digest asked for.
        digest: Digest,
    },
    /// The object is listed, but its bytes are not what they should be.
    #[error("object {digest} is damaged in pack {pack}: {problem}")]
    Damaged {
        /// The object.
        digest: Digest,
        /// Digest that names the pack.
        pack: Digest,
        /// What is wrong with it.
        problem: String,
    },
    /// The system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Inputs that the store does not take, all of them; the pointer of each fault is the path of the file.
    #[error("{0}")]
    Input(Faults),
    /// A reference name that is no safe relative path.
    #[error("{name:?} is no name for a reference: {problem}")]
    ReferenceName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file in `refs/` or `pins/` that does not hold a reference.
    #[error("the reference {name} cannot be read: {problem}")]
    ReferenceDamaged {
        /// Its name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Named objects that cannot be read, so that it is not known what they lead to. Nothing was removed.
    #[error("{digest}{} cannot be read, so it is not known what else is needed; nothing was removed", others_text(*.others))]
    Unreadable {
        /// One of them.
        digest: Digest,
        /// How many more there are.
        others: u64,
    },
    /// Names that stand for other objects in the other store.
    #[error("{} there: {names}", if names.contains(", ") { "these names stand for other objects" } else { "this name stands for another object" })]
    Taken {
        /// The names, separated by commas.
        names: String,
    },
    /// The object exists, but it is not the document asked for.
    #[error("object {digest} is not the document that was expected: {faults}")]
    Document {
        /// The object.
        digest: Digest,
        /// Everything that is wrong with it.
        faults: Faults,
    },
}

fn others_text(others: u64) -> String {
    if others == 0 { String::new() } else { format!(" (and {others} more)") }
}

impl StoreError {
    /// A function for `map_err` that adds what was tried and where.
    pub(crate) fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::System { action, path, source }
    }
}

impl Failure for StoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::Absent { .. }
            | Self::Missing { .. }
            | Self::Damaged { .. }
            | Self::Unreadable { .. }
            | Self::ReferenceDamaged { .. } => Exit::Store,
            Self::Taken { .. } => Exit::Conflict,
            Self::Format { .. }
            | Self::Foreign { .. }
            | Self::Input(_)
            | Self::Document { .. }
            | Self::ReferenceName { .. } => Exit::Refused,
            Self::System { .. } => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "store.absent",
            Self::Format { .. } => "store.format",
            Self::Foreign { .. } => "store.foreign",
            Self::Missing { .. } => "store.missing",
            Self::Damaged { .. } => "store.damaged",
            Self::System { .. } => "store.system",
            Self::Unreadable { .. } => "store.unreadable",
            Self::Taken { .. } => "reference.taken",
            Self::Input(_) => "input.refused",
            Self::ReferenceName { .. } => "reference.name",
            Self::ReferenceDamaged { .. } => "reference.damaged",
            Self::Document { .. } => "store.document",
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Absent { .. } => {
                "--store or XT_STORE names a store; `xt-compile dataset` and `xt-store put` make one"
            }
            Self::Format { .. } => {
                "use the version of xt that wrote it, or a later one; nothing in it was read or touched"
            }
            Self::Missing { .. } => "`xt-store ls` lists what is in this store; --store or XT_STORE names another",
            Self::Damaged { .. } => "put the same bytes again to heal it; `xt-store verify` lists all damage",
            Self::Unreadable { .. } => {
                "`xt-store verify` says what names it; mend it with --repair-from, or remove its names, and try again"
            }
            Self::Taken { .. } => "nothing was named; remove those names there first, or copy under other names",
            Self::System { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "nothing of this write is visible; free some space and try again"
            }
            Self::System { action: "take a lease in" | "make a directory in" | "write a pack in", source, .. }
                if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                "a store that can only be read will do for `xt-store get`, `ls` and `verify`, for `xt-log` and `xt-freeze verify`; \
                 to write, name another with --store or XT_STORE"
            }
            _ => return Vec::new(),
        };
        vec![hint.to_owned()]
    }

    fn faults(&self) -> Option<&Faults> {
        match self {
            Self::Input(faults) | Self::Document { faults, .. } => Some(faults),
            _ => None,
        }
    }
}
