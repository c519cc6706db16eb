//! The complete state of a run between two steps.
//!
//! Everything that a later step depends on is a field here, or follows from the plan and `steps`: learning rate, random
//! draws and order of the data are functions of the number of the step. There is no other place that remembers.

use xt_core::digest::Digest;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::trace::{Cursor, Generator};
use xt_core::order::Walk;
use xt_core::random::GENERATOR;
use xt_core::verb::snapshot::optimizer_digest;
use xt_torch::memory::Flat;

use crate::adapter;
use crate::average::Average;
use crate::base;
use crate::early::EarlyStop;
use crate::fault::TrainError;
use crate::layout::{self, Layout};
use crate::optim::{Optim, Row};
use crate::parameters::Parameters;
use crate::scaler::Scaler;

/// The complete state of a run between two steps.
#[derive(Debug)]
pub struct State {
    /// The parameters. The model has no buffers.
    pub parameters: Parameters,
    /// The optimiser with its moments and its count of updates.
    pub optimizer: Optim,
    /// An average of the parameters, if one is kept.
    pub average: Option<Average>,
    /// The scale of the loss, if it is scaled.
    pub scaler: Option<Scaler>,
    /// What decides whether the run stops early, if anything does.
    pub early: Option<EarlyStop>,
    /// Steps taken, skipped ones included: the logical time, the place in the schedule, and the place in the data.
    pub steps: u64,
    /// Seed of every draw.
    pub seed: u64,
}

/// Everything there is to remember of a run.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Where each parameter lies in every row.
    pub layout: &'a Layout,
    /// Values of the parameters.
    pub values: &'a Flat,
    /// The rows of the optimiser, and those of average, scaler and early stop if there are such, sorted by prefix.
    pub rows: Vec<&'a Row>,
    /// Updates that the optimiser made.
    pub updates: u64,
    /// Steps taken.
    pub steps: u64,
    /// Seed of every draw.
    pub seed: u64,
}

/// Everything there is to restore of a run.
#[derive(Debug)]
pub struct MemoryMut<'a> {
    /// Where each parameter lies in every row.
    pub layout: &'a Layout,
    /// Values of the parameters.
    pub values: &'a mut Flat,
    /// The rows of the optimiser, and those of average, scaler and early stop if there are such, sorted by prefix.
    pub rows: Vec<&'a mut Row>,
    /// Updates that the optimiser made.
    pub updates: &'a mut u64,
    /// Steps taken.
    pub steps: &'a mut u64,
}

impl State {
    /// The state before the first step; `base` holds the parameters that it begins from, if it does.
    pub fn first(candidate: &Candidate, seed: u64, base: Option<&[u8]>) -> Result<Self, TrainError> {
        let decay = candidate.optimizer.decay();
        let mut parameters = adapter::parameters(&candidate.model, &candidate.base, decay, base)?;
        // A draw depends on no other, so those that the base fills need not be made.
        parameters.initialise_some(seed, |name| base.is_none() || !base::fills(&candidate.base, name));
        if let Some(file) = base {
            base::fill(&mut parameters, &candidate.base, file)?;
        }
        Self::around(candidate, seed, parameters)
    }

    /// A state to be filled from a snapshot, which holds everything: nothing is drawn for it.
    pub fn unfilled(candidate: &Candidate, seed: u64, base: Option<&[u8]>) -> Result<Self, TrainError> {
        let decay = candidate.optimizer.decay();
        Self::around(candidate, seed, adapter::parameters(&candidate.model, &candidate.base, decay, base)?)
    }

    fn around(candidate: &Candidate, seed: u64, parameters: Parameters) -> Result<Self, TrainError> {
        let optimizer = Optim::new(&candidate.optimizer, &candidate.groups, &parameters.layout)?;
        let average = Average::new(&candidate.averaging, &parameters)?;
        let scaler = Scaler::new(candidate.precision)?;
        let early = EarlyStop::new(&candidate.stops.early)?;
        Ok(Self { parameters, optimizer, average, scaler, early, steps: 0, seed })
    }

    /// Everything there is to remember of a run, to be written. Taken apart without `..`: a new field does not compile
    /// until someone decides where it is written (row R-19).
    pub fn memory(&self) -> Memory<'_> {
        let Self { parameters, optimizer, average, scaler, early, steps, seed } = self;
        let ((layout, values), (rows, updates)) = (parameters.memory(), optimizer.memory());
        let beside = average.iter().map(Average::memory).chain(scaler.iter().map(Scaler::memory));
        let mut rows: Vec<&Row> = beside.chain(early.iter().map(EarlyStop::memory)).chain(rows).collect();
        rows.sort_by_key(|row| row.prefix);
        Memory { layout, values, rows, updates, steps: *steps, seed: *seed }
    }

    /// The same, to be filled from a snapshot. The seed is the plan's, and a snapshot with another one is refused.
    pub fn memory_mut(&mut self) -> MemoryMut<'_> {
        let Self { parameters, optimizer, average, scaler, early, steps, seed: _ } = self;
        let ((layout, values), (rows, updates)) = (parameters.memory_mut(), optimizer.memory_mut());
        let beside = average.iter_mut().map(Average::memory_mut).chain(scaler.iter_mut().map(Scaler::memory_mut));
        let mut rows: Vec<&mut Row> = beside.chain(early.iter_mut().map(EarlyStop::memory_mut)).chain(rows).collect();
        rows.sort_by_key(|row| row.prefix);
        MemoryMut { layout, values, rows, updates, steps }
    }

    /// Digest of all parameters by name.
    pub fn parameters_digest(&self) -> Digest {
        layout::digest(&self.parameters.layout, &[("", &self.parameters.values)])
    }

    /// Digest of the optimiser's state, and of average, scaler and early stop where there are such, by name.
    pub fn optimizer_digest(&self) -> Digest {
        let Memory { rows, updates, .. } = self.memory();
        optimizer_digest(layout::digest_of(rows.into_iter().map(Row::part)), updates)
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
