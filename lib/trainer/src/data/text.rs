//! Plain text as samples: windows of `context` + 1 tokens, one every `context` tokens, over the members of a split.

use std::path::Path;

use tch::Tensor;
use xt_core::manifest::plan::Plan;
use xt_core::order::samples_per_epoch;
use xt_core::verb::compile::members;
use xt_data::{Corpus, Text};

use crate::data::{Batch, Data};
use crate::fault::TrainError;
use crate::inputs;

/// The split of a plan as one row of tokens.
#[derive(Debug)]
pub struct TextData {
    tokens: Vec<u32>,
    context: usize,
}

impl TextData {
    /// Reads the members of the plan's split from `folder`, in the order of the dataset. Also gives the tokenizer file,
    /// when there is one.
    pub fn read(plan: &Plan, folder: &Path) -> Result<(Self, Option<Vec<u8>>), TrainError> {
        let (Some(candidate), Some(dataset)) = (plan.native(), &plan.dataset) else { return Err(TrainError::Command) };
        let tokenizer = candidate.tokenizer.digest().map(|digest| inputs::read(folder, digest)).transpose()?;
        let text = Text::load(&candidate.tokenizer, tokenizer.as_deref())?;
        let vocabulary = candidate.model.vocabulary();
        let mut corpus = Corpus::new(&text, dataset.format, candidate.data.separator, vocabulary)?;
        let mut tokens = Vec::new();
        for member in members(candidate, dataset) {
            let bytes = inputs::read(folder, member.digest)?;
            tokens.extend(corpus.add(&member.path.to_string(), &bytes)?);
        }
        let context = usize::try_from(candidate.model.context()).unwrap_or(usize::MAX);
        let data = Self { tokens, context };
        data.check(plan)?;
        Ok((data, tokenizer))
    }

    /// The plan's promises against what was found.
    fn check(&self, plan: &Plan) -> Result<(), TrainError> {
        for (what, expected, found) in [
            ("tokens", plan.work.tokens, self.tokens.len() as u64),
            ("samples in an epoch", plan.work.samples_per_epoch, self.samples()),
        ] {
            if expected != found {
                return Err(TrainError::Work { what, expected, found });
            }
        }
        Ok(())
    }

    /// Tokens that one sample predicts.
    pub const fn context(&self) -> usize {
        self.context
    }

    fn window(&self, sample: u64) -> Result<&[u32], TrainError> {
        let start = usize::try_from(sample).ok().and_then(|sample| sample.checked_mul(self.context));
        let window = start.and_then(|start| self.tokens.get(start..=start.checked_add(self.context)?));
        window.ok_or(TrainError::Work { what: "samples in an epoch", expected: sample + 1, found: self.samples() })
    }
}

impl Data for TextData {
    fn samples(&self) -> u64 {
        samples_per_epoch(self.tokens.len() as u64, self.context as u64)
    }

    /// A micro-batch of these samples, copied into fresh contiguous tensors: the address of the data changes some sums
    /// (row N-03), and fresh tensors are always aligned alike.
    fn batch(&self, samples: &[u64]) -> Result<Batch, TrainError> {
        let (mut seen, mut due) = (Vec::new(), Vec::new());
        for sample in samples {
            let window = self.window(*sample)?;
            seen.extend(window[..self.context].iter().copied().map(i64::from));
            due.extend(window[1..].iter().copied().map(i64::from));
        }
        let shape = [samples.len(), self.context].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        Ok(Batch {
            seen: Tensor::f_from_slice(&seen)?.f_view(shape)?,
            due: Tensor::f_from_slice(&due)?,
            tokens: Some(seen),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_by_one_token_so_that_each_is_predicted_once() {
        let data = TextData { tokens: (10..20).collect(), context: 3 };
        assert_eq!(data.samples(), 3);
        let batch = data.batch(&[2, 0]).unwrap();
        assert_eq!(Vec::<i64>::try_from(batch.seen.view(-1)).unwrap(), [16, 17, 18, 10, 11, 12]);
        assert_eq!(Vec::<i64>::try_from(&batch.due).unwrap(), [17, 18, 19, 11, 12, 13]);
        assert!(data.batch(&[3]).is_err());
    }

    /// Row N-03.
    #[test]
    fn n_03_batches_are_fresh_contiguous_and_aligned_wherever_the_sample_lies() {
        let data = TextData { tokens: (0..1000).collect(), context: 7 };
        for sample in 0..20 {
            let batch = data.batch(&[sample]).unwrap();
            assert!(batch.seen.is_contiguous() && batch.due.is_contiguous());
            assert_eq!((batch.seen.data_ptr() as usize % 64, batch.due.data_ptr() as usize % 64), (0, 0));
        }
    }
}
