//! The complete state of a run between two steps.
//!
//! Everything that a later step depends on is a field here, or follows from the plan and `steps`: learning rate, random
//! draws and order of the data are functions of the number of the step. There is no other place that remembers.

use xt_core::digest::Digest;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::trace::{Cursor, Generator};
use xt_core::order::Walk;
use xt_core::random::GENERATOR;

use crate::fault::TrainError;
use crate::layout;
use crate::model::gpt::Sizes;
use crate::optim::Optim;
use crate::parameters::Parameters;

/// The complete state of a run between two steps.
#[derive(Debug)]
pub struct State {
    /// The parameters. The model has no buffers.
    pub parameters: Parameters,
    /// The optimiser with its moments and its count of updates.
    pub optimizer: Optim,
    /// Steps taken, skipped ones included: the logical time, the place in the schedule, and the place in the data.
    pub steps: u64,
    /// Seed of every draw.
    pub seed: u64,
}

impl State {
    /// The state before the first step.
    pub fn first(candidate: &Candidate, seed: u64) -> Result<Self, TrainError> {
        use xt_core::manifest::candidate::Optimizer::{AdamW, Sgd};
        let (AdamW { decay, .. } | Sgd { decay, .. }) = &candidate.optimizer;
        let mut parameters = Parameters::new(Sizes::of(&candidate.model)?.parameters(), *decay)?;
        parameters.initialise(seed);
        let optimizer = Optim::new(&candidate.optimizer, &parameters.layout)?;
        Ok(Self { parameters, optimizer, steps: 0, seed })
    }

    /// Digest of all parameters by name.
    pub fn parameters_digest(&self) -> Digest {
        layout::digest(&self.parameters.layout, &[("", &self.parameters.values)])
    }

    /// Digest of the optimiser's state by name.
    pub fn optimizer_digest(&self) -> Digest {
        self.optimizer.digest(&self.parameters.layout)
    }

    /// The random generator: it counts micro-batches and remembers nothing else.
    pub fn generator(&self, walk: &Walk) -> Generator {
        Generator { algorithm: GENERATOR.into(), seed: self.seed, micro_batch: walk.next_micro_batch(self.steps) }
    }

    /// The next sample that was not consumed.
    pub fn cursor(&self, walk: &mut Walk) -> Cursor {
        walk.cursor(self.steps)
    }
}
