//! What is learned from, one file per kind of data.

pub mod records;
pub mod rows;
pub mod text;

use std::fmt::Debug;
use std::path::Path;

use tch::Tensor;
use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::plan::Plan;

use crate::augment::Moment;
use crate::data::records::RecordsData;
use crate::data::rows::RowsData;
use crate::data::text::TextData;
use crate::fault::TrainError;
use crate::probe::Counts;

/// Samples of a split, by number.
pub trait Data: Debug {
    /// Samples of one epoch.
    fn samples(&self) -> u64;

    /// Predictions of these samples, or a number in proportion to them: micro-batches count by it.
    fn predictions(&self, samples: &[u64]) -> Result<u64, TrainError> {
        Ok(samples.len() as u64)
    }

    /// A micro-batch of these samples, in fresh tensors that are contiguous and aligned.
    fn batch(&self, samples: &[u64]) -> Result<Batch, TrainError>;

    /// The same to train on: changed at random where the candidate says so.
    fn training_batch(&self, samples: &[u64], _moment: Moment) -> Result<Batch, TrainError> {
        self.batch(samples)
    }
}

/// Fresh tensors for one micro-batch.
#[derive(Debug)]
pub struct Batch {
    /// What the model sees: tokens (samples, context), or numbers (samples, inputs).
    pub seen: Tensor,
    /// What is due: one whole number (a token, a class) or one number a prediction.
    pub due: Tensor,
    /// All tokens of the batch that are read, to count; `None` where `seen` holds numbers.
    pub tokens: Option<Vec<i64>>,
}

impl Batch {
    /// Counts everything that enters the model or is held against it.
    pub fn look(&self, counts: &mut Counts) -> Result<(), TrainError> {
        match &self.tokens {
            Some(tokens) => counts.look_at_tokens(tokens),
            None => counts.look("inputs", &self.seen)?,
        }
        if self.due.kind() == tch::Kind::Float { counts.look("target", &self.due) } else { Ok(()) }
    }
}

/// A split, and the bytes of the tokenizer file when there is one.
pub type Split = (Box<dyn Data>, Option<Vec<u8>>);

/// Reads the plan's split from `folder`. Also gives the tokenizer file, when there is one.
pub fn read(plan: &Plan, folder: &Path) -> Result<Split, TrainError> {
    let candidate = plan.native().ok_or(TrainError::Command)?;
    if candidate.tokenizer.inputs().is_some() {
        return Ok((Box::new(RowsData::read(plan, folder)?), rows::file(candidate, folder)?));
    }
    if let Tokenizer::Records { .. } = &candidate.tokenizer {
        let (data, tokenizer) = RecordsData::read(plan, folder)?;
        return Ok((Box::new(data), tokenizer));
    }
    let (data, tokenizer) = TextData::read(plan, folder)?;
    Ok((Box::new(data), tokenizer))
}
