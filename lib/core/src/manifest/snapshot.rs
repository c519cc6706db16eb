//! `xt.snapshot/1`: the complete state of a run between two steps (T14, T91, X92–X98).
//!
//! Its identity is that of the state: whoever comes to the same state of the same plan on the same stack gets the same
//! document, whether it was written by the way, on request, or computed again from an earlier one. Which run took it
//! stands in the record of that run.

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::run::Stack;
use crate::manifest::trace::{Cursor, Generator};
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// The complete state of a run between two steps. Restoring it and going on gives the lines that the run itself gave.
    pub struct Snapshot as tag::SNAPSHOT {
        /// Id of the plan.
        plan: Digest,
        /// Optimiser steps taken, skipped ones included: the logical time, and the place in the schedule. Micro-batches are counted by `generator` and `cursor`.
        step: u64 [Range::from(1.0)],
        /// Updates made: steps less those whose update was left out.
        updates: u64,
        /// The random generator.
        generator: Generator,
        /// The next sample that was not consumed.
        cursor: Cursor,
        /// `chain` of the line of the trace for this step: it fixes every line before it.
        chain: Digest,
        /// The parameters, as `model.safetensors`.
        parameters: Part,
        /// The optimiser's rows of state, as `optimizer.safetensors`, and the averaged parameters where an average is kept; without a tensor when there are none.
        optimizer: Part,
        /// What it was computed on; it is restored on the same only.
        stack: Stack,
    }
}

crate::record! {
    /// The tensors of one part of a state, in a file.
    pub struct Part {
        /// SHA-256 of the file.
        file: Digest,
        /// Its size in bytes.
        bytes: u64,
        /// Digest of the tensors by name, shape and value, as lines of a trace state it for parameters.
        digest: Digest,
        /// The tensors, sorted by name.
        tensors: Vec<TensorState>,
    }
}

crate::record! {
    /// One tensor; its values are 32-bit floats, little-endian.
    pub struct TensorState {
        /// Its name.
        name: String,
        /// Its dimensions.
        shape: Vec<u64>,
        /// SHA-256 of its values.
        digest: Digest,
    }
}

crate::record! {
    /// When a run writes snapshots. Only between steps, and never with an effect on what is learned.
    pub struct Cadence {
        /// After each step whose number is a multiple of this; `null` for none.
        every: Option<u64> [Range::from(1.0)],
        /// Of those, how many of the latest are kept; `null` for all.
        keep: Option<u64> [Range::from(1.0)],
        /// Also after the last step that is taken.
        last: bool,
    }
}

impl Cadence {
    /// No snapshots.
    pub const NONE: Self = Self { every: None, keep: None, last: false };

    /// Whether one is due after `step`, where `last` is the last step to be taken.
    pub fn due(&self, step: u64, last: u64) -> bool {
        self.every.is_some_and(|every| step.is_multiple_of(every)) || (self.last && step == last)
    }
}

crate::record! {
    /// How two snapshots differ.
    pub struct SnapshotDiff as tag::SNAPSHOT_DIFF {
        /// Id of the first.
        first: Digest,
        /// Id of the second.
        second: Digest,
        /// Whether they hold the same state; what it was computed on does not count.
        equal: bool,
        /// Fields beside the tensors that differ.
        fields: Vec<FieldDifference>,
        /// Every tensor of either, sorted by part and name.
        tensors: Vec<TensorDifference>,
    }
}

crate::record! {
    /// A field that differs.
    pub struct FieldDifference {
        /// JSON pointer to it.
        field: String,
        /// In the first.
        first: String,
        /// In the second.
        second: String,
    }
}

crate::record! {
    /// One tensor, compared bit by bit.
    pub struct TensorDifference {
        /// Part of the state: `parameters` or `optimizer`.
        part: String,
        /// Its name.
        name: String,
        /// Whether both have it, in the same shape, with the same bits.
        equal: bool,
        /// Its elements; 0 when it cannot be compared, because one has none or another shape.
        elements: u64,
        /// Elements whose bits differ.
        differing: u64,
        /// Place of the first of them, counted in memory order from 0; `null` when there is none.
        first_at: Option<u64>,
        /// Elements among them where one side is not finite: they have no distance.
        not_finite: u64,
        /// Largest difference in value; `null` when no differing pair is finite.
        largest_difference: Option<Finite>,
        /// Largest distance in units in the last place: binary32 numbers that lie between, plus one; `null` as above. The two zeros are 0 apart.
        largest_ulp: Option<u64>,
        /// Why it cannot be compared; empty when it can.
        problem: String,
    }
}
