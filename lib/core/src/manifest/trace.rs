//! `xt.trace/1` and its lines: one line a step, each chained to the one before.

use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::Field;
use crate::number::{Bits32, Finite};
use crate::tag;

crate::record! {
    /// Head of a trace; the lines are in `steps.jsonl`.
    pub struct Trace as tag::TRACE {
        /// Id of the plan.
        plan: Digest,
        /// Number of lines.
        steps: u64,
        /// SHA-256 of `steps.jsonl`.
        lines: Digest,
        /// `chain` of the last line; the plan's id when there is none.
        chain: Digest,
    }
}

crate::record! {
    /// One optimiser step.
    pub struct Step {
        /// Number of the step, from 1.
        step: u64,
        /// Epoch of its last micro-batch, from 0.
        epoch: u64,
        /// Micro-batches it took.
        micro_batches: u64,
        /// Digest of the sample numbers.
        samples: Digest,
        /// Learning rate of the update.
        learning_rate: Finite,
        /// Loss before the update; `null` when it is not finite.
        loss: Option<Finite>,
        /// Its bits.
        loss_bits: Bits32,
        /// Factor on the loss before the backward pass.
        loss_scale: Finite,
        /// Global 2-norm of the gradients before clipping; `null` when it is not finite.
        gradient_norm: Option<Finite>,
        /// Its bits.
        gradient_norm_bits: Bits32,
        /// Counts per stage, in the order input, forward, loss, backward, optimizer.
        stages: Vec<Stage>,
        /// Digest of all gradients before clipping, by name.
        gradients: Digest,
        /// Digest of all parameters after the update, by name.
        parameters: Digest,
        /// Digest of the optimiser's state after the update, by name.
        optimizer: Digest,
        /// Digest of the generator: seed and every counter.
        generator: Digest,
        /// Digest of the data cursor: the next sample that was not consumed.
        cursor: Digest,
        /// Whether the update was left out.
        skipped: bool,
        /// SHA-256 of the chain before and of this line without `chain`.
        chain: Digest,
    }
}

crate::record! {
    /// What one stage held at one step, counted before any clipping or repair.
    pub struct Stage {
        /// The stage.
        stage: StageName,
        /// Values looked at; 0 when the stage did not run.
        checked: u64,
        /// NaN among them.
        nan: u64,
        /// Positive infinities among them.
        positive_infinite: u64,
        /// Negative infinities among them.
        negative_infinite: u64,
        /// Largest magnitude among the finite ones.
        maximum: Finite,
        /// Tensors that held a non-finite value, at most 8.
        tensors: Vec<String>,
    }
}

crate::words! {
    /// A stage of a step.
    pub enum StageName {
        /// What enters the model.
        Input "input",
        /// What it computes.
        Forward "forward",
        /// The loss.
        Loss "loss",
        /// The gradients.
        Backward "backward",
        /// The parameters and the optimiser's state after the update.
        Optimizer "optimizer",
    }
}

impl Stage {
    /// Values that are not finite.
    pub const fn non_finite(&self) -> u64 {
        self.nan + self.positive_infinite + self.negative_infinite
    }
}

impl Step {
    /// The chain value that belongs to this line after `before`.
    pub fn chained(&self, before: Digest) -> Digest {
        let Value::Object(mut members) = self.write() else { return before };
        members.remove("chain");
        let mut hasher = crate::digest::Hasher::new();
        hasher.update(before.bytes());
        hasher.update(Value::Object(members).canonical().as_bytes());
        hasher.finish()
    }

    /// This line, chained to `before`.
    #[must_use]
    pub fn chain_to(mut self, before: Digest) -> Self {
        self.chain = self.chained(before);
        self
    }
}
