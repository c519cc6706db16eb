//! The small documents in the folder of a run: what is to be done, who does it, who asks to stop, how it ended.

use alloc::collections::BTreeMap;
use alloc::string::String;

use xt_core::digest::Digest;
use xt_core::instant::Instant;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::run::{AtFault, Observed, ProcessExit, Progress, Stack, Status};
use xt_core::name::Name;

/// Tag of [`Order`].
pub const ORDER: &str = "xt.run-order/1";
/// Tag of [`Started`].
pub const STARTED: &str = "xt.run-started/1";
/// Tag of [`Launched`].
pub const LAUNCHED: &str = "xt.run-launched/1";
/// Tag of [`Cancel`].
pub const CANCEL: &str = "xt.run-cancel/1";
/// Tag of [`Ended`].
pub const ENDED: &str = "xt.run-ended/1";
/// Tag of [`Finished`].
pub const FINISHED: &str = "xt.run-finished/1";

xt_core::record! {
    /// How a supervisor is to do what the record asks for.
    pub struct Order as ORDER {
        /// The attempt.
        attempt: Name,
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
    /// Someone asks to stop, for good or at the next step boundary.
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
    /// What the supervisor knows of the end, written before anything is stored or recorded: should it get no further,
    /// whoever reconciles closes the run with this, and no known end is ever called lost.
    pub struct Ended as ENDED {
        /// The attempt.
        attempt: Name,
        /// What the run was for.
        mode: Mode,
        /// How it ended.
        status: Status,
        /// Who or what is at fault.
        at_fault: AtFault,
        /// Why.
        cause: String,
        /// How the worker's process ended.
        exit: ProcessExit,
        /// What it did.
        progress: Progress,
        /// Chain of the last step.
        chain: Digest,
        /// What it ran on.
        stack: Option<Stack>,
        /// Its isolation.
        custody: Option<Custody>,
        /// Its whole environment.
        environment: BTreeMap<String, String>,
        /// Figures of this run.
        observed: Observed,
        /// Bytes of standard output beyond the cap.
        stdout_dropped: u64,
        /// Bytes of standard error beyond the cap.
        stderr_dropped: u64,
        /// When it was started.
        started: Instant,
        /// When it ended.
        finished: Instant,
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
