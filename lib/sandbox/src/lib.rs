//! Isolation of the trainer, and the evidence for it.
//!
//! [`start`] builds a sandbox around a program, has every control tried out from inside by a process that is what the
//! program will be, compares each attempt with the same one made outside, and lets the program go only if every
//! required control was seen to hold. What was seen is an `xt.custody/1` record.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admit;
mod brought;
mod cache;
mod canary;
mod child;
mod collect;
mod doctor;
mod elf;
mod ending;
mod error;
mod evidence;
mod filter;
mod group;
mod guard;
mod identity;
mod limits;
mod mapped;
mod namespace;
mod opened;
mod outside;
mod parent;
mod policy;
mod probe;
mod processor;
mod reader;
mod rules;
mod search;
mod sys;
mod wire;

pub use admit::system_library;
pub use collect::{Collected, Outputs, Taken};
pub use doctor::doctor;
pub use elf::{Needs, needs};
pub use ending::{Calls, Ending};
pub use error::SandboxError;
pub use group::Counters;
pub use mapped::Mapped;
pub use parent::{Running, start, start_marking};
pub use policy::{Brought, INPUTS, LIBRARIES, Limits, OUTPUTS, PROGRAMS, Policy, Root};
pub use reader::Reader;
pub use search::Search;
pub use sys::{give_way, inherited, stream_was_closed};
