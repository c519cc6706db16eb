//! How a plan becomes a supervised workload, and how it is followed, cancelled and closed.
//!
//! [`Runtime::submit_or_get`] records the wish and starts a supervisor, which owns the run from then on: this process may
//! end at any time. [`Runtime::observe`] follows by files in the folder of the run and closes what nobody owns any more.
//! A tool that submits must call [`supervise_if_asked`] before anything else, since the supervisor is the same program.
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;

mod actions;
mod capture;
mod clock;
mod command;
mod conclude;
pub mod digests;
mod ending;
mod error;
mod folder;
mod foreground;
mod last_words;
mod launch;
mod ledger;
mod lines;
mod listing;
mod loader;
mod lost;
mod outcome;
mod pinned;
mod preempt;
pub mod program;
mod readable;
mod reconcile;
mod repeat;
mod request;
mod resources;
mod resume;
mod run_documents;
mod run_snapshots;
mod runtime;
mod sample;
mod scope;
mod secrets;
mod sight;
mod signals;
mod stored_snapshots;
mod stream;
mod supervise;
mod telemetry;
mod unpacked;
mod watch;
pub mod worker;

pub use clock::Clock;
pub use error::RuntimeError;
pub use folder::Folder;
pub use foreground::{Followed, Role, Unfinished, follow, wait};
pub use last_words::LastWords;
pub use ledger::Disagreement;
pub use reconcile::FindWorker;
pub use repeat::{Contradiction, Original, last_state, pins};
pub use request::Request;
pub use run_documents::{Cancel, Ended, Finished, Launched, Order, Started};
pub use runtime::{Next, Runtime, Sight, Turn};
pub use sample::{SampleEnd, Sampling, sample, writes};
pub use scope::Scope;
pub use secrets::{SecretFile, Secrets};
pub use signals::Signals;
pub use stored_snapshots::{keep_snapshot, taken};
pub use supervise::{FLAG, supervise_if_asked};
pub use telemetry::{Follower, Telemetry};
pub use unpacked::unpack;
pub use watch::GRACE;
