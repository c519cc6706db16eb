//! What the worker is asked to do, and what it says while doing it. Neither is stored as a document: a job arrives on
//! a descriptor, messages leave on another, one line each.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::candidate::{Base, Execution, Model, Tokenizer};
use crate::manifest::incident::Located;
use crate::manifest::plan::Plan;
use crate::manifest::snapshot::{Cadence, Snapshot};
use crate::manifest::trace::{Cursor, Generator, Metric, Step};
use crate::number::Finite;

crate::choice! {
    /// What the worker is asked to do. Inputs lie in `XT_INPUTS`, each named by the 64 digits of its digest; outputs go to `XT_OUTPUTS`.
    pub enum Job {
        /// Train by a plan.
        Train "train" {
            /// The plan.
            plan: Box<Plan>,
            /// Stop after this step, for a partial replay; `null` takes all.
            to_step: Option<u64>,
            /// When to write snapshots.
            cadence: Cadence,
            /// The state to go on from, whose files are among the inputs; `null` begins at the first step.
            from: Option<Box<Snapshot>>,
            /// Whether to look at every module at the first step at which a value is not finite.
            locate: bool,
        },
        /// Measure a trained model by a plan.
        Evaluate "evaluate" {
            /// The plan.
            plan: Box<Plan>,
        },
        /// Write text with a trained model.
        Sample "sample" {
            /// The model.
            model: Box<Model>,
            /// What it began from; adapters stand on it, and other models do not need it any more.
            base: Box<Base>,
            /// Digest of `model.safetensors`.
            weights: Digest,
            /// Its tokenizer.
            tokenizer: Tokenizer,
            /// On what, and with which arithmetic.
            execution: Execution,
            /// What to go on from.
            prompt: String,
            /// Tokens to write.
            tokens: u64 [Range::from(1.0).to(1e6)],
            /// Divides the logits; 0 always takes the likeliest token.
            temperature: Finite [Range::from(0.0).to(100.0)],
            /// Seed of the draws.
            seed: u64,
        },
    }
}

crate::choice! {
    /// What the worker says.
    pub enum Message {
        /// It has read its job and loaded its inputs.
        Ready "ready" {
            /// Version of the worker.
            version: String,
            /// Samples it found in one epoch; must agree with the plan.
            samples_per_epoch: u64,
            /// Trainable parameters.
            parameters: u64,
            /// Vector instructions in use, as the tensor library reports them.
            cpu_capability: String,
            /// Threads in use.
            threads: u64,
        },
        /// A step is done; the line of the trace.
        Step "step" {
            /// The line.
            line: Box<Step>,
            /// Nanoseconds the step took; no part of the trace.
            nanoseconds: u64,
        },
        /// Where the first value of the step that was just told is not finite.
        Located "located" {
            /// The step.
            step: u64,
            /// The place.
            place: Box<Located>,
        },
        /// A batch of an evaluation is done.
        Measured "measured" {
            /// Its number, from 1.
            batch: u64,
            /// Nanoseconds it took.
            nanoseconds: u64,
        },
        /// The complete state after a step lies in `snapshots/`, in the folder named by the number of the step.
        Snapshot "snapshot" {
            /// Steps taken, skipped ones included.
            step: u64,
            /// Updates made by the optimiser.
            updates: u64,
            /// The random generator.
            generator: Generator,
            /// The next sample that was not consumed.
            cursor: Cursor,
            /// Nanoseconds that the boundary waited; the copy is made beside the next step. No part of the state.
            nanoseconds: u64,
        },
        /// It was asked to stop at a step boundary, and the state there lies in `snapshots/`.
        Drained "drained" {
            /// Steps taken.
            step: u64,
            /// Files written that are not snapshots, relative to the output folder.
            outputs: Vec<String>,
        },
        /// A line of telemetry of a command, once the supervisor has chained it.
        Metric "metric" {
            /// The line of the trace.
            line: Box<Metric>,
        },
        /// A stop condition holds the run at this step.
        Held "held" {
            /// The step.
            step: u64,
            /// Why.
            reason: String,
        },
        /// A stretch of sampled text.
        Text "text" {
            /// The text.
            text: String,
        },
        /// All is done and written.
        Completed "completed" {
            /// Steps taken, or batches measured.
            steps: u64,
            /// Files written, relative to the output folder.
            outputs: Vec<String>,
        },
        /// It cannot go on.
        Failed "failed" {
            /// Why.
            reason: String,
            /// Whether what is trained or measured made it impossible, as by numbers that are not finite; else what trains or measures did.
            of_model: bool,
        },
    }
}
