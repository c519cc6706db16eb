//! `xt.event/1`: one entry of the event log (T95, X15–X17).

use crate::canonical::Value;
use crate::instant::Instant;
use crate::name::Name;
use crate::tag;

crate::record! {
    /// One entry of the event log.
    pub struct Event as tag::EVENT {
        /// Its place in the log, from 1; the log has no gaps.
        sequence: u64,
        /// When it was written, by the writer's clock. Order is by sequence, never by this.
        at: Instant,
        /// What it is about.
        subject: Name,
        /// What kind of thing the subject is.
        level: Level,
        /// What happened, such as `attempt.running`.
        kind: Name,
        /// State before; `null` when the subject was new.
        before: Option<Name>,
        /// State after; `null` when no state changed.
        after: Option<Name>,
        /// Everything else.
        payload: Value,
    }
}

crate::words! {
    /// What has states and events (X12).
    pub enum Level {
        /// An objective and the work towards it.
        Experiment "experiment",
        /// One candidate within an experiment.
        Node "node",
        /// One candidate with one seed.
        Run "run",
        /// One workload in a runtime.
        Attempt "attempt",
        /// One trained model with one held-out set.
        EvaluationRun "evaluation-run",
        /// One evaluation workload in a runtime.
        EvaluationAttempt "evaluation-attempt",
        /// Something asked of a runtime.
        Operation "operation",
        /// Something asked for by a person.
        Action "action",
        /// What an attempt has of its host.
        Lease "lease",
    }
}
