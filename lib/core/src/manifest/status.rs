//! `xt.status/1`: what the record says of an attempt, and what can be seen of it now. A view, made for each reader; it is
//! never stored.

use alloc::string::String;

use crate::digest::Digest;
use crate::instant::Instant;
use crate::manifest::event::Level;
use crate::name::Name;
use crate::tag;
use crate::verb::settle::{AttemptState, ExperimentState, NodeState, OperationState, RunState};

crate::record! {
    /// What the record says of an attempt, and what can be seen of it now.
    pub struct Status as tag::STATUS {
        /// The attempt.
        attempt: Name,
        /// What kind of attempt it is.
        level: Level,
        /// Its state in the record.
        state: AttemptState,
        /// What can be said of it now; reading it never changes the record.
        observed: Observed,
        /// Why that is said, in a sentence.
        why: String,
        /// Whether its supervisor runs; `null` when it has none or has ended.
        liveness: Option<Liveness>,
        /// The process that supervises it, or did; `null` before one has claimed it.
        supervisor: Option<Supervisor>,
        /// Id of its run record; `null` before it has ended, or when it ended without one.
        run_record: Option<Digest>,
        /// Place in the log of the last event about it.
        last_event: u64,
        /// When that event was written.
        last_event_at: Instant,
        /// The attempt that this one is a retry of; `null` for most.
        retry_of: Option<Name>,
        /// The operation that asked for it.
        operation: Name,
        /// State of the operation.
        operation_state: OperationState,
        /// Its run.
        run: Name,
        /// State of the run.
        run_state: RunState,
        /// Its node.
        node: Name,
        /// State of the node.
        node_state: NodeState,
        /// Its experiment.
        experiment: Name,
        /// State of the experiment.
        experiment_state: ExperimentState,
        /// Fingerprint of the candidate.
        fingerprint: Digest,
        /// Seed of the run.
        seed: u64,
        /// Id of the plan.
        plan: Digest,
        /// Request digest of the plan.
        request: Digest,
    }
}

crate::words! {
    /// What can be said of an attempt now.
    pub enum Observed {
        /// No supervisor has claimed it.
        Waiting "waiting",
        /// Its supervisor runs.
        Working "working",
        /// It has ended; its state says how.
        Ended "ended",
        /// Its supervisor is gone, and nobody recorded an end.
        Lost "lost",
        /// Its supervisor cannot be seen from here.
        Uncertain "uncertain",
    }
}

crate::words! {
    /// What can be said about a process now.
    pub enum Liveness {
        /// It runs: number, start time, boot and namespace are the same.
        Alive "alive",
        /// It has ended: the number is free or belongs to a process with another start time, or the boot is over.
        Dead "dead",
        /// It cannot be seen from here: another namespace, or no permission.
        Unknown "unknown",
    }
}

crate::record! {
    /// One process of one boot of one machine (X88).
    pub struct Supervisor {
        /// Its number, within its namespace.
        pid: u64,
        /// Clock ticks from boot to its start.
        start_time: u64,
        /// Id of the boot.
        boot_id: String,
        /// Inode of the namespace that the number belongs to.
        namespace: u64,
    }
}
