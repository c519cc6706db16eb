//! `xt.candidate/1` of the other form: a program that trains, brought as it is. What the program does inside is its own
//! affair; what enters it is declared here, down to its arguments (issue 3, 7).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, Range, object, wrong_type};
use crate::manifest::candidate::{Candidate, Precision, Regime};
use crate::manifest::run::Library;
use crate::name::Name;
use crate::tag;

crate::record! {
    /// A program that trains, brought as it is: what it is, what it is told, and what it may read.
    pub struct Command as tag::CANDIDATE {
        /// What people call it; not part of its identity.
        name: Name,
        /// The program.
        trainer: Trainer,
        /// Free parameters: a JSON object of any form, handed to the program as the file `XT_PARAMETERS`.
        parameters: Parameters,
        /// What it learns from; `null` when it reads no data.
        data: Option<CommandData>,
        /// Lines of telemetry that it promises, one a step; `null` promises no number.
        steps: Option<u64>,
        /// Which claim of reproducibility it makes.
        regime: Regime,
    }
}

crate::choice! {
    /// The program that trains. A candidate without this field is one for the trainer of this toolkit.
    pub enum Trainer {
        /// A program of the host, and everything that it loads.
        Command "command" {
            /// Absolute path of the program, a 64-bit ELF file. The plan pins its bytes and those of the libraries it loads.
            executable: String,
            /// Its arguments. `${XT_FILES}` and the other places that xt(7) lists are replaced by where they lie.
            arguments: Vec<String>,
            /// Variables for the program beside those that xt(7) lists; names that begin with `XT_` or `LD_` are not free.
            environment: BTreeMap<String, String>,
            /// Files and folders of the host that it needs beside its libraries. It finds them where they lie on the host; the plan pins every byte.
            roots: Vec<Root>,
            /// Files from the store, by the relative path at which the program finds them in `XT_FILES`: scripts and configuration.
            files: BTreeMap<String, Digest>,
            /// Threads that it computes with; told as `XT_THREADS` and in the variables that numeric libraries read.
            threads: u64 [Range::from(1.0).to(1024.0)],
        },
    }
}

crate::record! {
    /// A file or folder of the host that the program needs.
    pub struct Root {
        /// Its absolute path.
        path: String,
        /// Whether the program may start programs that lie in it.
        execute: bool,
    }
}

crate::record! {
    /// What the program learns from.
    pub struct CommandData {
        /// Id of the `xt.dataset/1`.
        dataset: Digest,
        /// Which split of it; `null` for all of them.
        split: Option<Name>,
    }
}

crate::record! {
    /// The program of a plan as it was found on the host: every file that it can load, by content.
    pub struct Program {
        /// The program.
        executable: Pin,
        /// The libraries that it and the programs in its roots load, and the loader, sorted by path.
        libraries: Vec<Pin>,
        /// The roots, in the order of the candidate.
        roots: Vec<PinnedRoot>,
    }
}

crate::record! {
    /// A file of the host by path and content.
    pub struct Pin {
        /// Its absolute path.
        path: String,
        /// SHA-256 of its bytes.
        digest: Digest,
    }
}

crate::record! {
    /// A root by path and content.
    pub struct PinnedRoot {
        /// Its absolute path.
        path: String,
        /// SHA-256 of its listing: one canonical JSON object a line for each folder, file and symbolic link in it, sorted by path.
        digest: Digest,
        /// Whether the program may start programs that lie in it.
        execute: bool,
        /// Files in it.
        files: u64,
        /// Their bytes.
        bytes: u64,
    }
}

/// A JSON object of any form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(pub BTreeMap<String, Value>);

impl Field for Parameters {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        if let Value::Object(members) = value {
            return Some(Self(members.clone()));
        }
        wrong_type(value, "an object", at, faults);
        None
    }

    fn write(&self) -> Value {
        Value::Object(self.0.clone())
    }

    fn schema() -> Value {
        object([("type", "object".into())])
    }
}

/// A hypothesis of either form: a candidate for the trainer of this toolkit, or a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hypothesis {
    /// For the trainer of this toolkit.
    Native(Box<Candidate>),
    /// For a program brought as it is.
    Command(Box<Command>),
}

impl Hypothesis {
    /// What people call it.
    pub const fn name(&self) -> &Name {
        match self {
            Self::Native(candidate) => &candidate.name,
            Self::Command(command) => &command.name,
        }
    }

    /// Which claim of reproducibility it makes.
    pub const fn regime(&self) -> Regime {
        match self {
            Self::Native(candidate) => candidate.regime,
            Self::Command(command) => command.regime,
        }
    }

    /// In which numbers it computes; a command does not say.
    pub const fn precision(&self) -> Option<Precision> {
        match self {
            Self::Native(candidate) => Some(candidate.precision),
            Self::Command(_) => None,
        }
    }

    /// Threads that it computes with.
    pub const fn threads(&self) -> u64 {
        match self {
            Self::Native(candidate) => candidate.execution.threads,
            Self::Command(command) => command.trainer.threads(),
        }
    }

    /// Id of the dataset that it names.
    pub fn dataset(&self) -> Option<Digest> {
        match self {
            Self::Native(candidate) => Some(candidate.data.dataset),
            Self::Command(command) => command.data.as_ref().map(|data| data.dataset),
        }
    }

    /// The candidate, if it is one for the trainer of this toolkit.
    pub fn native(&self) -> Option<&Candidate> {
        match self {
            Self::Native(candidate) => Some(candidate),
            Self::Command(_) => None,
        }
    }

    /// The command, if it is one.
    pub fn command(&self) -> Option<&Command> {
        match self {
            Self::Native(_) => None,
            Self::Command(command) => Some(command),
        }
    }
}

impl Pin {
    /// As a stack lists it: by the last part of its path.
    pub fn library(&self) -> Library {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        Library { name: name.into(), digest: self.digest }
    }
}

impl Trainer {
    /// Threads that it computes with.
    pub const fn threads(&self) -> u64 {
        let Self::Command { threads, .. } = self;
        *threads
    }

    /// Files from the store.
    pub const fn files(&self) -> &BTreeMap<String, Digest> {
        let Self::Command { files, .. } = self;
        files
    }
}

impl From<Candidate> for Hypothesis {
    fn from(candidate: Candidate) -> Self {
        Self::Native(Box::new(candidate))
    }
}

impl From<Command> for Hypothesis {
    fn from(command: Command) -> Self {
        Self::Command(Box::new(command))
    }
}

/// The field `trainer` tells the two forms apart; in the native form it is absent.
impl Field for Hypothesis {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let Value::Object(members) = value else {
            wrong_type(value, "an object", at, faults);
            return None;
        };
        let Some(trainer) = members.get("trainer") else {
            return Candidate::read(value, at, faults).map(Self::from);
        };
        if let Some(kind) = trainer.get("kind").and_then(Value::as_str).filter(|kind| *kind != "command") {
            let message = format!(
                "expected command, found {kind:?}; a candidate for the trainer of this toolkit has no field `trainer`"
            );
            faults.add(format!("{at}/trainer/kind"), "field.choice", message);
            return None;
        }
        Command::read(value, at, faults).map(Self::from)
    }

    fn write(&self) -> Value {
        match self {
            Self::Native(candidate) => candidate.write(),
            Self::Command(command) => command.write(),
        }
    }

    fn schema() -> Value {
        object([
            ("oneOf", Value::List(Vec::from([Candidate::schema(), Command::schema()]))),
            ("description", "One training hypothesis: a candidate for the trainer of this toolkit, or, with the field `trainer`, a program brought as it is.".into()),
        ])
    }
}

impl Manifest for Hypothesis {
    const TAG: &'static str = tag::CANDIDATE;
}
