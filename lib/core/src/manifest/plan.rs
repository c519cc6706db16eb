//! `xt.plan/1`: the resolved whole. Everything that a run will do is in it, and nothing else may enter the run.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Manifest;
use crate::instant::Instant;
use crate::manifest::branch::Departure;
use crate::manifest::candidate::Candidate;
use crate::manifest::command::{Command, Hypothesis, Program};
use crate::manifest::dataset::Dataset;
use crate::manifest::encoding::Fitted;
use crate::manifest::evaluation::Evaluating;
use crate::manifest::intent::Intent;
use crate::manifest::run::Start;
use crate::tag;

crate::record! {
    /// The resolved whole: what exactly will run.
    pub struct Plan as tag::PLAN {
        /// What the run is for.
        mode: Mode,
        /// The hypothesis.
        candidate: Hypothesis,
        /// Its versioned fingerprint: seed, names and orchestration do not enter it.
        fingerprint: Digest,
        /// Seed of the run; all randomness derives from it.
        seed: u64,
        /// What is measured, and how; `null` for training.
        evaluation: Option<Evaluating>,
        /// The state of another run that it goes on from; `null` when it begins at the first step.
        departure: Option<Departure>,
        /// What its regime stands on.
        ground: Ground,
        /// The admitted data: what is learned from, or what is measured on; `null` for a command that reads none.
        dataset: Option<Dataset>,
        /// Every file that the trainer may read, sorted by digest.
        inputs: Vec<Input>,
        /// What was fitted on the training split alone to scale numbers, in the order of the columns; empty for text.
        fitted: Vec<Fitted>,
        /// What the run will count.
        work: Work,
        /// The program of a command, as it was found on the host; `null` for the trainer of this toolkit, whose files stand in the run record.
        program: Option<Program>,
        /// What it may use.
        intent: Intent,
        /// The whole environment of the trainer; nothing is inherited.
        environment: BTreeMap<String, String>,
        /// Digest of the request: two plans with the same one ask for the same side effect (X33, X87).
        request: Digest,
    }
}

crate::words! {
    /// What a run is for (T30–T33).
    pub enum Mode {
        /// The live trajectory.
        Mainline "mainline",
        /// An earlier trajectory, reproduced.
        Replay "replay",
        /// An earlier trajectory, reproduced with a look at every module at its first step that held a value which is not finite.
        Localization "localization",
        /// A trained model, measured on held-out data.
        Evaluation "evaluation",
        /// A matched continuation of a state of another run, up to a horizon.
        Branch "branch",
        /// The same as one cell of a grid of labels.
        Acquisition "acquisition",
    }
}

crate::record! {
    /// A file that the trainer may read.
    pub struct Input {
        /// SHA-256 of its bytes; also its name in the trainer's input folder (64 hexadecimal digits).
        digest: Digest,
        /// Its size in bytes.
        bytes: u64,
        /// What it is.
        role: Role,
    }
}

crate::words! {
    /// What an input is.
    pub enum Role {
        /// A member of the dataset.
        Data "data",
        /// A tokenizer file.
        Tokenizer "tokenizer",
        /// Trained parameters, to sample from or to measure.
        Model "model",
        /// What training begins from: parameters, and the document that says what they are.
        Base "base",
        /// A file of a command, such as a script.
        File "file",
    }
}

crate::record! {
    /// What a run will count. A command counts for itself: then all is 0 but the steps that it promises.
    pub struct Work {
        /// Tokens of the split, separators included; of records the records, of a table the rows, of images the images.
        tokens: u64,
        /// Samples of one epoch; for an evaluation, windows.
        samples_per_epoch: u64,
        /// Micro-batches of one epoch; for an evaluation, batches.
        micro_batches_per_epoch: u64,
        /// Optimiser steps of the whole run; for an evaluation, batches; for a command the lines of telemetry that it promises, 0 when it promises none.
        steps: u64,
    }
}

crate::choice! {
    /// What a regime stands on.
    pub enum Ground {
        /// Nothing, which is enough for the exact regime only.
        None "none" {},
        /// Nothing yet: the run is evidence for a calibration. It is never frozen, and so never measured nor decided on.
        Evidence "evidence" {},
        /// A calibration that covers the plan.
        Calibration "calibration" {
            /// Id of the `xt.calibration/1`.
            digest: Digest,
            /// From then on it counts no more.
            expires: Instant,
        },
    }
}

impl Plan {
    /// The candidate, when this plan is for the trainer of this toolkit.
    pub fn native(&self) -> Option<&Candidate> {
        self.candidate.native()
    }

    /// Candidate and dataset, when this plan is for the trainer of this toolkit.
    pub fn training(&self) -> Option<(&Candidate, &Dataset)> {
        self.native().zip(self.dataset.as_ref())
    }

    /// The command, when this plan is for a program brought as it is.
    pub fn command(&self) -> Option<&Command> {
        self.candidate.command()
    }

    /// Whether it is a branch, which ends at a horizon and never becomes a model itself.
    pub const fn is_branch(&self) -> bool {
        matches!(self.mode, Mode::Branch | Mode::Acquisition)
    }

    /// The id with which the chain of its trace begins: its own, or that of the first plan in the row of those that it goes on
    /// from.
    pub fn root(&self) -> Digest {
        self.departure.as_ref().map_or_else(|| self.id(), |departure| departure.root)
    }

    /// The last step that is due: a branch ends at its last horizon.
    pub fn due(&self) -> u64 {
        let last = self.departure.as_ref().and_then(|departure| Some((departure.step, departure.horizons.last()?)));
        last.map_or(self.work.steps, |(step, last)| step.saturating_add(*last))
    }

    /// What it goes on from, when it does not begin at the first step.
    pub fn start(&self) -> Option<Start> {
        self.departure.as_ref().map(|from| Start { run: from.run, snapshot: from.snapshot, step: from.step })
    }

    /// Id of the dataset.
    pub fn dataset_id(&self) -> Option<Digest> {
        self.dataset.as_ref().map(Manifest::id)
    }
}
