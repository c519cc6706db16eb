//! How tools fail: exit codes, kinds of failure, and refusals that list every fault at once.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::canonical::Value;
use crate::field::Manifest;
use crate::manifest::refusal::Refusal;

/// How a tool ended. One table for all tools; every manual page prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done; the answer is yes.
    Yes,
    /// Done; the answer is no.
    No,
    /// The command line is wrong.
    Usage,
    /// Done; no answer can be given.
    Undecided,
    /// The input is refused.
    Refused,
    /// An object of the store is missing or damaged.
    Store,
    /// The operation id or cycle already carries something else.
    Conflict,
    /// The host cannot enforce what the plan demands.
    Custody,
    /// The workload failed, was killed, was cancelled or ran out of its budget.
    Workload,
    /// Incomplete, so no bundle.
    Quarantined,
    /// The system refused a read, write or flush.
    System,
    /// A bug in the tool.
    Bug,
    /// Not now: leased or locked.
    NotNow,
    /// Stopped at a step boundary on request; resumable.
    Drained,
}

impl Exit {
    /// Every way to end, in the order of the codes.
    pub const ALL: [Self; 14] = [
        Self::Yes,
        Self::No,
        Self::Usage,
        Self::Undecided,
        Self::Refused,
        Self::Store,
        Self::Conflict,
        Self::Custody,
        Self::Workload,
        Self::Quarantined,
        Self::System,
        Self::Bug,
        Self::NotNow,
        Self::Drained,
    ];

    /// The number the process exits with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Undecided => 3,
            Self::Refused => 10,
            Self::Store => 11,
            Self::Conflict => 12,
            Self::Custody => 13,
            Self::Workload => 14,
            Self::Quarantined => 15,
            Self::System => 20,
            Self::Bug => 70,
            Self::NotNow => 75,
            Self::Drained => 76,
        }
    }

    /// What the code means, as the manual pages print it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Yes => "done; the answer is yes (trained, equal, target met, bundle frozen, verified)",
            Self::No => {
                "done; the answer is no (replay diverged, rejected, does not verify); the manifest is on stdout"
            }
            Self::Usage => "the command line is wrong",
            Self::Undecided => "done; no answer can be given (undecided, deferred, cannot compare)",
            Self::Refused => "the input is refused; every reason is on stderr",
            Self::Store => "an object of the store is missing or damaged",
            Self::Conflict => {
                "this operation id already carries another request, or the cycle is already decided differently"
            }
            Self::Custody => "the kernel or host cannot enforce what the plan demands; nothing ran",
            Self::Workload => {
                "the workload failed, was killed or cancelled, was held on a non-finite value or on a loss above the limit of its plan, or ran out of its budget; the run record is on stdout"
            }
            Self::Quarantined => "incomplete, so no bundle",
            Self::System => "a read, write or flush failed; stdout closed or full",
            Self::Bug => "a bug in the tool",
            Self::NotNow => "not now: resources are leased or a lock is held; try again",
            Self::Drained => "drained: stopped at a step boundary on request, resumable",
        }
    }
}

/// A refusal lists so many faults.
pub const MOST_FAULTS: usize = 1000;

/// One thing wrong with an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer (RFC 6901) to the field, empty for the whole document.
    pub pointer: String,
    /// Stable code word, such as `field.missing`.
    pub code: &'static str,
    /// A sentence that names value and expectation.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = if self.pointer.is_empty() { "(document)" } else { &self.pointer };
        write!(f, "{pointer}: {} [{}]", self.message, self.code)
    }
}

/// All that is wrong with an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Nothing wrong so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes one more fault; after [`MOST_FAULTS`] only that there are more, so that a hostile input of a million wrong
    /// fields does not make a million sentences.
    pub fn add(&mut self, pointer: impl Into<String>, code: &'static str, message: impl Into<String>) {
        match self.0.len() {
            0..MOST_FAULTS => self.0.push(Fault { pointer: pointer.into(), code, message: message.into() }),
            MOST_FAULTS => {
                let message = alloc::format!("there are more than these {MOST_FAULTS} faults");
                self.0.push(Fault { pointer: String::new(), code: "faults.more", message });
            }
            _ => {}
        }
    }

    /// A refusal with a single fault.
    pub fn one(pointer: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let mut faults = Self::new();
        faults.add(pointer, code, message);
        faults
    }

    /// The same faults with the pointer's document named in front: `dataset#/members/0`.
    #[must_use]
    pub fn within(mut self, document: &str) -> Self {
        for fault in &mut self.0 {
            fault.pointer = alloc::format!("{document}#{}", fault.pointer);
        }
        self
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` if nothing is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The refusal as the document `xt.refusal/1`, with its `id`.
    pub fn to_value(&self) -> Value {
        Refusal::from(self).encode()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl core::error::Error for Faults {}

/// What every error of this project can say about itself: which exit code it means and its stable code word.
pub trait Failure: core::error::Error {
    /// The exit code of a tool that ends with this error.
    fn exit(&self) -> Exit;

    /// Stable code word, such as `store.missing`.
    fn word(&self) -> &'static str;

    /// What a person can do about it; one line each.
    fn hints(&self) -> Vec<String> {
        Vec::new()
    }

    /// The refusal inside, when there is one.
    fn faults(&self) -> Option<&Faults> {
        None
    }
}

impl Failure for Faults {
    fn exit(&self) -> Exit {
        Exit::Refused
    }

    fn word(&self) -> &'static str {
        "input.refused"
    }

    fn faults(&self) -> Option<&Faults> {
        Some(self)
    }
}
