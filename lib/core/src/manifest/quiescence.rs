//! `xt.quiescence/1`: an experiment in which nothing moves any more, and what would move it on (X41–X46). A view; it is
//! never stored.

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::manifest::event::Level;
use crate::name::Name;
use crate::tag;
use crate::verb::quiesce::Stage;
use crate::verb::settle::{AttemptState, ExperimentState, NodeState, RunState};

crate::record! {
    /// An experiment, whether anything in it moves, and what would move it on.
    pub struct Quiescence as tag::QUIESCENCE {
        /// The experiment.
        experiment: Name,
        /// Its own state. Nothing that moves is not the same as finished.
        status: ExperimentState,
        /// Whether all work that can be done now is settled and its telemetry is in the record.
        quiescent: bool,
        /// What would move it on; advice and no state. `null` when it has ended, while something moves, and when there is
        /// no candidate yet.
        next_stage: Option<Stage>,
        /// What it is after, as canonical JSON; `null` when nobody said.
        objective: Option<String>,
        /// Place in the log of the last event.
        last_event: u64,
        /// Its candidates.
        nodes: Vec<Node>,
    }
}

crate::record! {
    /// A candidate of the experiment.
    pub struct Node {
        /// Its id.
        node: Name,
        /// Fingerprint of the candidate.
        fingerprint: Digest,
        /// Its state.
        state: NodeState,
        /// Its runs and evaluation runs.
        runs: Vec<Run>,
    }
}

crate::record! {
    /// A run or an evaluation run of a candidate.
    pub struct Run {
        /// Its id.
        run: Name,
        /// Which of the two it is.
        level: Level,
        /// Its seed.
        seed: u64,
        /// Its state.
        state: RunState,
        /// What an evaluation run evaluates; `null` for training.
        subject: Option<Digest>,
        /// Its evaluation cycle; `null` for training.
        cycle: Option<u64>,
        /// Its attempts.
        attempts: Vec<Try>,
    }
}

crate::record! {
    /// An attempt at a run.
    pub struct Try {
        /// Its id.
        attempt: Name,
        /// Its state.
        state: AttemptState,
        /// Id of its run record; `null` before it has ended, or when it ended without one.
        run_record: Option<Digest>,
    }
}
