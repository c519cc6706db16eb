//! `xt.action/1`: something a person asked for, the operations that carry it out, and what came of it (X21). A view, made
//! for each reader; it is never stored.

use alloc::vec::Vec;

use crate::instant::Instant;
use crate::manifest::event::Level;
use crate::name::Name;
use crate::tag;
use crate::verb::settle::{ActionState, AttemptState, OperationState};

crate::record! {
    /// Something a person asked for.
    pub struct Action as tag::ACTION {
        /// Its id.
        action: Name,
        /// What is asked for.
        kind: ActionKind,
        /// What kind of thing it is asked of.
        level: Level,
        /// Of which.
        target: Name,
        /// Who or what asks, such as `SIGINT to xt-run`.
        by: alloc::string::String,
        /// When it was asked.
        at: Instant,
        /// Its state.
        state: ActionState,
        /// The operations that carry it out, one for each attempt that was alive.
        operations: Vec<Step>,
    }
}

crate::record! {
    /// One operation of an action.
    pub struct Step {
        /// The operation.
        operation: Name,
        /// The attempt it is about.
        attempt: Name,
        /// State of the operation.
        state: OperationState,
        /// The state in which the attempt ended; `null` while it is alive.
        outcome: Option<AttemptState>,
    }
}

crate::words! {
    /// What can be asked for.
    pub enum ActionKind {
        /// Stop the work for good.
        Cancel "cancel",
        /// Stop at the next step boundary, so that the work can go on from there later.
        Drain "drain",
        /// The same, so that another run can start; what it has is kept for it until it goes on.
        Preempt "preempt",
    }
}
