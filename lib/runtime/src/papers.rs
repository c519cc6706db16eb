//! The small documents in the folder of a run: what is to be done, who does it, who asks to stop, how it ended.

use alloc::collections::BTreeMap;
use alloc::string::String;

use xt_core::digest::Digest;
use xt_core::instant::Instant;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::run::{Stack, Status};
use xt_core::name::Name;

/// Tag of [`Order`].
pub const ORDER: &str = "xt.run-order/1";
/// Tag of [`Started`].
pub const STARTED: &str = "xt.run-started/1";
/// Tag of [`Launched`].
pub const LAUNCHED: &str = "xt.run-launched/1";
/// Tag of [`Cancel`].
pub const CANCEL: &str = "xt.run-cancel/1";
/// Tag of [`Finished`].
pub const FINISHED: &str = "xt.run-finished/1";

xt_core::record! {
    /// What a supervisor is to do.
    pub struct Order as ORDER {
        /// The attempt.
        attempt: Name,
        /// What the run is for.
        mode: Mode,
        /// Stop after this step; `null` takes all.
        to_step: Option<u64>,
        /// Path of the worker.
        worker: String,
    }
}

xt_core::record! {
    /// Who supervises, from when on.
    pub struct Started as STARTED {
        /// The attempt.
        attempt: Name,
        /// Process number of the supervisor.
        pid: u64,
        /// Its start time, in clock ticks after boot.
        start_time: u64,
        /// Identity of the boot.
        boot_id: String,
        /// When it took the attempt.
        at: Instant,
    }
}

xt_core::record! {
    /// What the worker was started on and in.
    pub struct Launched as LAUNCHED {
        /// The attempt.
        attempt: Name,
        /// What it runs on.
        stack: Stack,
        /// Its isolation.
        custody: Custody,
        /// Its whole environment.
        environment: BTreeMap<String, String>,
    }
}

xt_core::record! {
    /// Someone asks to stop.
    pub struct Cancel as CANCEL {
        /// The attempt.
        attempt: Name,
        /// Who or what asks, such as `SIGINT to xt-run`.
        by: String,
        /// When.
        at: Instant,
    }
}

xt_core::record! {
    /// How it ended. Written last: when it is there, everything else is.
    pub struct Finished as FINISHED {
        /// The attempt.
        attempt: Name,
        /// Id of the run record.
        run: Digest,
        /// How it ended.
        status: Status,
        /// When.
        at: Instant,
    }
}
