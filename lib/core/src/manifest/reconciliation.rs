//! `xt.reconciliation/1`: what was found about an attempt that the record does not know the end of, and what was done
//! about it (X38–X40). A view, made while it is done; it is never stored.

use alloc::string::String;

use crate::manifest::event::Level;
use crate::name::Name;
use crate::tag;
use crate::verb::settle::AttemptState;

crate::record! {
    /// What was found about an attempt, and what was done about it.
    pub struct Reconciliation as tag::RECONCILIATION {
        /// The attempt.
        attempt: Name,
        /// What kind of attempt it is.
        level: Level,
        /// Its experiment.
        experiment: Name,
        /// The operation that asked for it.
        operation: Name,
        /// What was found, and what was done.
        found: Found,
        /// Its state after that.
        state: AttemptState,
        /// Why it is left to a person; `null` when it is not.
        reason: Option<Reason>,
        /// The same in a sentence.
        why: String,
    }
}

crate::words! {
    /// What was found about an attempt, and what was done about it.
    pub enum Found {
        /// It runs under the supervisor in the record. Nothing was done.
        Adopted "adopted",
        /// It runs, and its supervisor was told again what had been asked of it.
        Told "told",
        /// It had ended, and its end is in the record now.
        Settled "settled",
        /// No runtime had ever got it; it was handed over now, under its recorded identity.
        Issued "issued",
        /// Its supervisor was gone before it came to start a worker; another one took over.
        Restarted "restarted",
        /// The record cannot tell what is right. Nothing was done.
        Escalated "escalated",
    }
}

crate::words! {
    /// Why an attempt is left to a person.
    pub enum Reason {
        /// Whether its supervisor runs cannot be seen from here.
        SupervisorUnseen "supervisor-unseen",
        /// The request made again from the record is not the one that was recorded.
        RequestDiffers "request-differs",
        /// Its plan, or an input of it, is not in the store or damaged.
        PlanMissing "plan-missing",
        /// There is no worker to start.
        WorkerMissing "worker-missing",
        /// The store or the record cannot be written: full, read-only or locked. Try again later.
        StoreFails "store-fails",
        /// Something in the folder of the run is not what it should be.
        FolderDamaged "folder-damaged",
    }
}
