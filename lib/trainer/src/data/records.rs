//! Records of JSON Lines as samples: each a row of tokens, filled up behind its end.

use std::path::Path;

use tch::Tensor;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::Member;
use xt_core::manifest::plan::Plan;
use xt_core::verb::compile::members;
use xt_data::records::Sample;
use xt_data::{Records, Text};

use crate::data::{Batch, Data};
use crate::fault::TrainError;
use crate::inputs;
use crate::objective::NO_TARGET;

/// The split of a plan as records.
#[derive(Debug)]
pub struct RecordsData {
    samples: Vec<Sample>,
    context: usize,
}

/// These files as records, and the tokenizer file when there is one.
pub(crate) fn read(
    candidate: &Candidate,
    members: &[&Member],
    folder: &Path,
) -> Result<(Records, Option<Vec<u8>>), TrainError> {
    let tokenizer = candidate.tokenizer.digest().map(|digest| inputs::read(folder, digest)).transpose()?;
    let text = Text::load(&candidate.tokenizer, tokenizer.as_deref())?;
    let files: Result<Vec<(&str, Vec<u8>)>, TrainError> =
        members.iter().map(|member| Ok((member.path.as_str(), inputs::read(folder, member.digest)?))).collect();
    let records = xt_data::records::read(&candidate.tokenizer, &text, &candidate.model, &files?);
    Ok((records.map_err(TrainError::Data)?, tokenizer))
}

impl RecordsData {
    /// Reads the members of the plan's split from `folder`, in the order of the dataset. Also gives the tokenizer file,
    /// when there is one.
    pub fn read(plan: &Plan, folder: &Path) -> Result<(Self, Option<Vec<u8>>), TrainError> {
        let (candidate, dataset) = plan.training().ok_or(TrainError::Command)?;
        let (records, tokenizer) = read(candidate, &members(candidate, dataset), folder)?;
        let context = usize::try_from(candidate.model.context()).unwrap_or(usize::MAX);
        let data = Self { samples: records.samples, context };
        let (expected, found) = (plan.work.samples_per_epoch, data.samples());
        if expected != found {
            return Err(TrainError::Work { what: "records", expected, found });
        }
        Ok((data, tokenizer))
    }

    fn sample(&self, sample: u64) -> Result<&Sample, TrainError> {
        let found = usize::try_from(sample).ok().and_then(|place| self.samples.get(place));
        let expected = sample.saturating_add(1);
        found.ok_or_else(|| TrainError::Work { what: "records", expected, found: self.samples() })
    }
}

/// What a model of this context sees of a record, and what is due: a token behind each, or that none is predicted.
pub(crate) fn row(tokens: &[u32], first: usize, context: usize) -> (Vec<i64>, Vec<i64>) {
    let seen = (0..context).map(|place| tokens.get(place).map_or(0, |token| i64::from(*token)));
    let predicted = |place: usize| tokens.get(place).filter(|_| place >= first);
    let due = (1..=context).map(|place| predicted(place).map_or(NO_TARGET, |token| i64::from(*token)));
    (seen.collect(), due.collect())
}

impl Data for RecordsData {
    fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    fn predictions(&self, samples: &[u64]) -> Result<u64, TrainError> {
        samples.iter().map(|sample| Ok(self.sample(*sample)?.predicted())).sum()
    }

    fn batch(&self, samples: &[u64]) -> Result<Batch, TrainError> {
        let (mut seen, mut due, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for sample in samples {
            let Sample { tokens: record, first } = self.sample(*sample)?;
            let (one, other) = row(record, *first, self.context);
            seen.extend(one);
            due.extend(other);
            tokens.extend(record.iter().take(self.context).copied().map(i64::from));
        }
        let shape = [samples.len(), self.context].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        Ok(Batch {
            seen: Tensor::f_from_slice(&seen)?.f_view(shape)?,
            due: Tensor::f_from_slice(&due)?,
            tokens: Some(tokens),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> RecordsData {
        let sample = |tokens: &[u32], first| Sample { tokens: tokens.into(), first };
        RecordsData { samples: vec![sample(&[5, 6, 7, 8], 2), sample(&[9, 9], 4), sample(&[1, 2, 3], 1)], context: 3 }
    }

    /// Worked out by hand: the prompt of the first is 5 6, that of the second was cut before its completion.
    #[test]
    fn what_is_due_is_the_completion_and_what_is_filled_up_is_not_counted() {
        let data = data();
        let batch = data.batch(&[0, 1, 2]).unwrap();
        assert_eq!(Vec::<i64>::try_from(batch.seen.view(-1)).unwrap(), [5, 6, 7, 9, 9, 0, 1, 2, 3]);
        let no = NO_TARGET;
        assert_eq!(Vec::<i64>::try_from(&batch.due).unwrap(), [no, 7, 8, no, no, no, 2, 3, no]);
        assert_eq!(batch.tokens.unwrap(), [5, 6, 7, 9, 9, 1, 2, 3]);
        assert_eq!(data.predictions(&[0, 2]).unwrap(), 4);
        assert_eq!(data.predictions(&[1]).unwrap(), 0);
        assert!(data.batch(&[3]).is_err() && data.predictions(&[3]).is_err());
    }
}
