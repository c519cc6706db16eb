//! `xt.inventory/1`: what a host has to give to runs, as its operator declares it; `xt.resources/1`: what it has, what is
//! taken and by whom, and what can be seen of it now (L14–L20). The second is a view; it is never stored.

use alloc::string::String;
use alloc::vec::Vec;

use crate::field::Range;
use crate::instant::Instant;
use crate::name::Name;
use crate::number::Finite;
use crate::tag;
use crate::verb::settle::LeaseState;

crate::record! {
    /// What a host has to give to runs, and on which terms.
    pub struct Inventory as tag::INVENTORY {
        /// Processor cores that all runs together may ask for.
        cores: u64 [Range::from(1.0).to(4096.0)],
        /// Bytes of memory that all runs together may ask for.
        memory_bytes: u64 [Range::from(1_048_576.0).to(1e15)],
        /// Bytes of outputs that all runs together may ask for.
        storage_bytes: u64 [Range::from(1_048_576.0).to(1e15)],
        /// Accelerators by name; each is given to one run at a time.
        accelerators: Vec<Name>,
        /// What no run may have for now, whatever is free.
        policy: Policy,
    }
}

crate::record! {
    /// What the operator says about runs that ask for something.
    pub struct Policy {
        /// What happens to every run.
        admission: Admission,
        /// Conflict domains whose runs are postponed.
        postponed: Vec<Name>,
        /// Conflict domains whose runs are refused.
        refused: Vec<Name>,
        /// Memory that must stay free beside what a run asks for, in bytes.
        spare_memory_bytes: u64,
        /// Room that must stay free on the disk of the store beside what a run asks for, in bytes.
        spare_storage_bytes: u64,
        /// Runs are postponed while the load of the last minute is above this many times the processors; `null` never.
        highest_load: Option<Finite> [Range::above(0.0)],
        /// Why; for whoever is postponed or refused.
        reason: String,
    }
}

impl Policy {
    /// No restriction.
    pub const OPEN: Self = Self {
        admission: Admission::Open,
        postponed: Vec::new(),
        refused: Vec::new(),
        spare_memory_bytes: 0,
        spare_storage_bytes: 0,
        highest_load: None,
        reason: String::new(),
    };
}

crate::words! {
    /// What happens to runs that ask to start.
    pub enum Admission {
        /// They start when there is room.
        Open "open",
        /// None starts for now.
        Postpone "postpone",
        /// None starts.
        Refuse "refuse",
    }
}

crate::record! {
    /// What a host has, what is taken, and what can be seen of it now.
    pub struct Resources as tag::RESOURCES {
        /// What there is to give.
        inventory: Inventory,
        /// Whether the operator declared that; otherwise it was detected, and only conflict domains are kept apart.
        declared: bool,
        /// What can be seen now.
        observed: Observation,
        /// What is taken.
        leases: Vec<Lease>,
    }
}

crate::record! {
    /// What can be seen of a host now; `null` is what cannot be seen.
    pub struct Observation {
        /// When.
        at: Instant,
        /// Bytes of memory that could be had without swapping.
        free_memory_bytes: Option<u64>,
        /// Bytes free on the disk of the store.
        free_storage_bytes: Option<u64>,
        /// Processes that ran or waited for a processor, on average over the last minute.
        load: Option<Finite>,
        /// Processors.
        processors: u64,
    }
}

crate::record! {
    /// What one attempt has.
    pub struct Lease {
        /// Its id.
        lease: Name,
        /// The attempt.
        attempt: Name,
        /// Its state.
        state: LeaseState,
        /// Processor cores.
        cores: u64,
        /// Bytes of memory.
        memory_bytes: u64,
        /// Bytes of outputs.
        storage_bytes: u64,
        /// Accelerators, by name.
        accelerators: Vec<Name>,
        /// Conflict domains: nobody else has these meanwhile.
        domains: Vec<Name>,
        /// What is known of whoever has it, and how to get it back, in a sentence.
        why: String,
    }
}
