//! Which samples each optimiser step sees: counting and walking, pure, so that the step count a plan promises is the
//! step count a run takes.

use alloc::vec::Vec;

use crate::digest::{Digest, Hasher};
use crate::manifest::candidate::{AccumulationRemainder, BatchRemainder, Batching, Length, Order};
use crate::manifest::trace::Cursor;
use crate::random::Stream;

/// The logical shape of a run, worked out before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Samples in one epoch.
    pub samples: u64,
    /// Micro-batches in one epoch.
    pub micro_batches: u64,
    /// Optimiser steps of the whole run.
    pub steps: u64,
    batching: Batching,
    order: Order,
}

/// Why data and recipe do not make a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRun {
    /// No sample.
    #[error("the split holds no sample")]
    NoSample,
    /// Fewer samples than one batch, and short batches are dropped.
    #[error("the split holds {samples} samples, fewer than one batch of {batch}, and short batches are dropped")]
    NoBatch {
        /// Samples.
        samples: u64,
        /// Samples of a batch.
        batch: u64,
    },
    /// Fewer micro-batches than one accumulation.
    #[error("{micro_batches} micro-batches never fill one accumulation of {accumulation}")]
    NoStep {
        /// Micro-batches of the run or, under `drop`, of an epoch.
        micro_batches: u64,
        /// Micro-batches of a step.
        accumulation: u64,
    },
    /// More than the counters hold.
    #[error("the number of steps does not fit into 64 bits")]
    TooMany,
}

/// One micro-batch: where it stands and which samples it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Number of the micro-batch over all epochs, counted from 0: the logical time of what is drawn for it.
    pub number: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Micro-batch within the epoch, counted from 0.
    pub index: u64,
    /// Sample numbers within the split, in order.
    pub samples: Vec<u64>,
}

impl Shape {
    /// The shape of a run over `samples` samples.
    pub fn new(samples: u64, batching: Batching, order: Order, length: &Length) -> Result<Self, NoRun> {
        if samples == 0 {
            return Err(NoRun::NoSample);
        }
        let batch = batching.samples;
        let micro_batches = match batching.remainder {
            BatchRemainder::Drop => samples / batch,
            BatchRemainder::Keep => samples.div_ceil(batch),
        };
        if micro_batches == 0 {
            return Err(NoRun::NoBatch { samples, batch });
        }
        let accumulation = batching.accumulation;
        let of_epoch = |epochs: u64| match batching.accumulation_remainder {
            AccumulationRemainder::Flush => micro_batches.div_ceil(accumulation).checked_mul(epochs),
            AccumulationRemainder::Drop => (micro_batches / accumulation).checked_mul(epochs),
            AccumulationRemainder::Carry => micro_batches.checked_mul(epochs).map(|all| all / accumulation),
        };
        let steps = match *length {
            Length::Steps { steps } if batching.accumulation_remainder != AccumulationRemainder::Drop => steps,
            Length::Steps { steps } => {
                if of_epoch(1) == Some(0) {
                    0
                } else {
                    steps
                }
            }
            Length::Epochs { epochs } => of_epoch(epochs).ok_or(NoRun::TooMany)?,
        };
        if steps == 0 {
            return Err(NoRun::NoStep { micro_batches, accumulation });
        }
        // The number of the micro-batch after the last one must be countable, too.
        let epochs = micro_batches.checked_add(accumulation).ok_or(NoRun::TooMany)?;
        steps.checked_add(1).and_then(|steps| steps.checked_mul(epochs)).ok_or(NoRun::TooMany)?;
        Ok(Self { samples, micro_batches, steps, batching, order })
    }

    /// Number of the first micro-batch of step `step` (from 0), counted over all epochs, and how many it takes.
    pub fn micro_batches_of(&self, step: u64) -> (u64, u64) {
        let (all, accumulation) = (self.micro_batches, self.batching.accumulation);
        match self.batching.accumulation_remainder {
            AccumulationRemainder::Carry => (step * accumulation, accumulation),
            AccumulationRemainder::Drop => {
                let per_epoch = all / accumulation;
                (step / per_epoch * all + step % per_epoch * accumulation, accumulation)
            }
            AccumulationRemainder::Flush => {
                let per_epoch = all.div_ceil(accumulation);
                let within = step % per_epoch * accumulation;
                (step / per_epoch * all + within, accumulation.min(all - within))
            }
        }
    }
}

/// Samples in a row of `tokens` tokens: windows of `context` + 1 tokens, one every `context` tokens, so that each token
/// but the first is predicted once. Tokens after the last whole window are not used.
pub const fn samples_per_epoch(tokens: u64, context: u64) -> u64 {
    match tokens.saturating_sub(1).checked_div(context) {
        Some(samples) => samples,
        None => 0,
    }
}

/// Walks the micro-batches of a run, keeping the order of one epoch at a time.
#[derive(Clone, Debug)]
pub struct Walk {
    shape: Shape,
    seed: u64,
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    number: u64,
    order: Vec<u64>,
    digest: Digest,
}

impl Walk {
    /// The walk of the run with `seed`.
    pub const fn new(shape: Shape, seed: u64) -> Self {
        Self { shape, seed, epoch: None }
    }

    /// The micro-batches of optimiser step `step`, counted from 0.
    pub fn step(&mut self, step: u64) -> Vec<MicroBatch> {
        let (first, count) = self.shape.micro_batches_of(step);
        (first..first + count).map(|number| self.micro_batch(number)).collect()
    }

    /// Where the walk stands after `steps` steps.
    pub fn cursor(&mut self, steps: u64) -> Cursor {
        let (number, _) = self.shape.micro_batches_of(steps);
        let (epoch, micro_batch) = (number / self.shape.micro_batches, number % self.shape.micro_batches);
        let order = self.epoch(epoch).digest;
        Cursor { epoch, micro_batch, sample: micro_batch * self.shape.batching.samples, order }
    }

    /// Number of the first micro-batch after `steps` steps, over all epochs.
    pub fn next_micro_batch(&self, steps: u64) -> u64 {
        self.shape.micro_batches_of(steps).0
    }

    fn micro_batch(&mut self, number: u64) -> MicroBatch {
        let (epoch, index) = (number / self.shape.micro_batches, number % self.shape.micro_batches);
        let from = index * self.shape.batching.samples;
        let to = (from + self.shape.batching.samples).min(self.shape.samples);
        #[expect(clippy::cast_possible_truncation, reason = "samples are held in memory, so they fit")]
        let samples = self.epoch(epoch).order[from as usize..to as usize].to_vec();
        MicroBatch { number, epoch, index, samples }
    }

    fn epoch(&mut self, number: u64) -> &Epoch {
        let (shape, seed) = (self.shape, self.seed);
        let known = self.epoch.take().filter(|epoch| epoch.number == number);
        self.epoch.insert(known.unwrap_or_else(|| Epoch::new(shape, seed, number)))
    }
}

impl Epoch {
    fn new(shape: Shape, seed: u64, number: u64) -> Self {
        let order = match shape.order {
            Order::Shuffled => Stream::new(seed, "order", number).permutation(shape.samples),
            Order::Sequential => (0..shape.samples).collect(),
        };
        let mut hasher = Hasher::new();
        for sample in &order {
            hasher.update(&sample.to_le_bytes());
        }
        Self { number, digest: hasher.finish(), order }
    }
}

/// Digest of the sample numbers of a step: each as 8 little-endian bytes, micro-batch by micro-batch, each preceded by
/// its epoch and length.
pub fn samples_digest(batches: &[MicroBatch]) -> Digest {
    let mut hasher = Hasher::new();
    for batch in batches {
        hasher.update(&batch.epoch.to_le_bytes());
        hasher.update(&(batch.samples.len() as u64).to_le_bytes());
        for sample in &batch.samples {
            hasher.update(&sample.to_le_bytes());
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn shape(
        samples: u64,
        batch: u64,
        accumulation: u64,
        remainder: AccumulationRemainder,
        length: &Length,
    ) -> Result<Shape, NoRun> {
        let batching = Batching {
            samples: batch,
            accumulation,
            remainder: BatchRemainder::Keep,
            accumulation_remainder: remainder,
        };
        Shape::new(samples, batching, Order::Sequential, length)
    }

    #[test]
    fn windows_overlap_by_one_token_and_the_rest_is_left() {
        let counts = [0, 1, 4, 5, 8, 9, 12].map(|tokens| samples_per_epoch(tokens, 4));
        assert_eq!(counts, [0, 0, 0, 1, 1, 2, 2]);
    }

    /// Row R-03: five micro-batches an epoch, accumulation of two, three epochs.
    #[test]
    fn the_accumulation_remainder_is_flushed_carried_or_dropped_as_declared() {
        let epochs = Length::Epochs { epochs: 3 };
        let spans = |remainder| {
            let shape = shape(10, 2, 2, remainder, &epochs).unwrap();
            (0..shape.steps).map(|step| shape.micro_batches_of(step)).collect::<Vec<_>>()
        };
        assert_eq!(
            spans(AccumulationRemainder::Flush),
            [(0, 2), (2, 2), (4, 1), (5, 2), (7, 2), (9, 1), (10, 2), (12, 2), (14, 1)]
        );
        assert_eq!(spans(AccumulationRemainder::Drop), [(0, 2), (2, 2), (5, 2), (7, 2), (10, 2), (12, 2)]);
        assert_eq!(spans(AccumulationRemainder::Carry), [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2), (10, 2), (12, 2)]);
    }

    #[test]
    fn an_epoch_holds_each_sample_once_and_no_two_epochs_share_an_order() {
        let batching = Batching {
            samples: 4,
            accumulation: 1,
            remainder: BatchRemainder::Keep,
            accumulation_remainder: AccumulationRemainder::Flush,
        };
        let shape = Shape::new(18, batching, Order::Shuffled, &Length::Epochs { epochs: 3 }).unwrap();
        let mut walk = Walk::new(shape, 7);
        let epochs: Vec<Vec<u64>> = (0..3)
            .map(|epoch| (0..5).flat_map(|i| walk.step(epoch * 5 + i)).flat_map(|batch| batch.samples).collect())
            .collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..18).collect::<Vec<u64>>());
        }
        assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2]);
    }

    /// Rows: one spelling of the boundary, and the order of the right epoch.
    #[test]
    fn the_cursor_after_an_epoch_is_the_start_of_the_next() {
        let batching = Batching {
            samples: 4,
            accumulation: 1,
            remainder: BatchRemainder::Keep,
            accumulation_remainder: AccumulationRemainder::Flush,
        };
        let shape = Shape::new(18, batching, Order::Shuffled, &Length::Epochs { epochs: 2 }).unwrap();
        let mut walk = Walk::new(shape, 7);
        let places: Vec<(u64, u64, u64)> =
            (0..6).map(|steps| walk.cursor(steps)).map(|c| (c.epoch, c.micro_batch, c.sample)).collect();
        assert_eq!(places, [(0, 0, 0), (0, 1, 4), (0, 2, 8), (0, 3, 12), (0, 4, 16), (1, 0, 0)]);
        assert_eq!(walk.cursor(1).order, walk.cursor(4).order);
        assert_ne!(walk.cursor(4).order, walk.cursor(5).order);
        assert_ne!(Walk::new(shape, 8).cursor(1).order, walk.cursor(1).order);
    }

    #[test]
    fn a_run_whose_micro_batches_cannot_be_counted_is_refused() {
        let carry = AccumulationRemainder::Carry;
        let long = Length::Steps { steps: 1_000_000_000_000_000 };
        assert_eq!(shape(10, 1, 1_048_576, carry, &long), Err(NoRun::TooMany));
        assert!(shape(10, 1, 4, carry, &long).is_ok());
    }

    #[test]
    fn what_makes_no_run_is_named() {
        let drop = AccumulationRemainder::Drop;
        assert_eq!(shape(0, 2, 1, drop, &Length::Steps { steps: 1 }), Err(NoRun::NoSample));
        assert_eq!(
            shape(4, 4, 2, drop, &Length::Steps { steps: 9 }),
            Err(NoRun::NoStep { micro_batches: 1, accumulation: 2 })
        );
        let carried = shape(4, 4, 2, AccumulationRemainder::Carry, &Length::Epochs { epochs: 1 });
        assert_eq!(carried, Err(NoRun::NoStep { micro_batches: 1, accumulation: 2 }));
    }

    #[test]
    fn the_digest_of_samples_sees_order_and_borders() {
        let batch = |samples: Vec<u64>| MicroBatch { number: 0, epoch: 0, index: 0, samples };
        let together = samples_digest(&[batch(vec![1, 2])]);
        assert_ne!(together, samples_digest(&[batch(vec![2, 1])]));
        assert_ne!(together, samples_digest(&[batch(vec![1]), batch(vec![2])]));
    }
}
