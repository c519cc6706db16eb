//! Rows of tables, images and texts with a class as samples: their numbers, scaled by what the plan says was fitted.

use std::path::Path;

use tch::Tensor;
use xt_core::manifest::candidate::{Candidate, Objective, Tokenizer};
use xt_core::manifest::dataset::Member;
use xt_core::manifest::encoding::Scaling;
use xt_core::manifest::plan::Plan;
use xt_core::verb::compile::members;
use xt_data::{Raw, Rows, Targets, Text};

use crate::augment::{Augment, Moment};
use crate::data::{Batch, Data};
use crate::fault::TrainError;
use crate::inputs;

/// The split of a plan as rows of numbers.
#[derive(Debug)]
pub struct RowsData {
    rows: Rows,
    /// How images are changed to train on them, if they are.
    augment: Option<Augment>,
    /// Whether classes are due as numbers, 0 or 1.
    binary: bool,
}

/// The members as they stand in their files.
pub(crate) fn raw(candidate: &Candidate, members: &[&Member], folder: &Path) -> Result<Raw, TrainError> {
    let files: Result<Vec<(&str, Vec<u8>)>, TrainError> =
        members.iter().map(|member| Ok((member.path.as_str(), inputs::read(folder, member.digest)?))).collect();
    let read = match &candidate.tokenizer {
        tokenizer @ Tokenizer::Labelled { .. } => {
            let text = Text::load(tokenizer, file(candidate, folder)?.as_deref())?;
            xt_data::labelled::read(tokenizer, &text, candidate.model.vocabulary(), &files?)
        }
        tokenizer => xt_data::rows::read(tokenizer, &files?),
    };
    read.map_err(TrainError::Data)
}

/// The bytes of the tokenizer file, where there is one.
pub(crate) fn file(candidate: &Candidate, folder: &Path) -> Result<Option<Vec<u8>>, TrainError> {
    candidate.tokenizer.digest().map(|digest| inputs::read(folder, digest)).transpose()
}

/// What is scaled.
pub(crate) const fn scaling(tokenizer: &Tokenizer) -> Scaling {
    match tokenizer {
        Tokenizer::Table { scaling, .. } | Tokenizer::Image { scaling, .. } | Tokenizer::Tensors { scaling, .. } => {
            *scaling
        }
        Tokenizer::Bytes {}
        | Tokenizer::HuggingFace { .. }
        | Tokenizer::Records { .. }
        | Tokenizer::Labelled { .. } => Scaling::None,
    }
}

impl RowsData {
    /// Reads the members of the plan's split from `folder`, fits again what scales them, and holds that against the plan.
    pub fn read(plan: &Plan, folder: &Path) -> Result<Self, TrainError> {
        let (candidate, dataset) = plan.training().ok_or(TrainError::Command)?;
        let raw = raw(candidate, &members(candidate, dataset), folder)?;
        let (expected, found) = (plan.work.samples_per_epoch, raw.samples() as u64);
        if expected != found {
            return Err(TrainError::Work { what: "samples in an epoch", expected, found });
        }
        let scaling = scaling(&candidate.tokenizer);
        if raw.fit(scaling).map_err(TrainError::Data)? != plan.fitted {
            return Err(TrainError::Fitted);
        }
        let augment = Augment::new(&candidate.tokenizer, &plan.fitted);
        Ok(Self { augment, ..Self::new(raw.scale(&plan.fitted, scaling), &candidate.objective) })
    }

    /// These rows, as the objective needs them.
    pub fn new(rows: Rows, objective: &Objective) -> Self {
        Self { rows, augment: None, binary: matches!(objective, Objective::BinaryCrossEntropy {}) }
    }

    /// A micro-batch whose inputs were changed by `change` before they become a tensor.
    fn filled(&self, samples: &[u64], change: impl FnOnce(&mut [f32])) -> Result<Batch, TrainError> {
        let places: Vec<usize> = samples.iter().map(|sample| usize::try_from(*sample).unwrap_or(usize::MAX)).collect();
        let width = self.rows.width;
        let mut seen = Vec::with_capacity(places.len().saturating_mul(width));
        for place in &places {
            let start = place.checked_mul(width).ok_or_else(|| self.missing(*place))?;
            let row = start.checked_add(width).and_then(|end| self.rows.values.get(start..end));
            seen.extend_from_slice(row.ok_or_else(|| self.missing(*place))?);
        }
        change(&mut seen);
        let shape = [places.len(), width].map(|size| i64::try_from(size).unwrap_or(i64::MAX));
        let due = self.due(&places)?;
        Ok(Batch { seen: Tensor::f_from_slice(&seen)?.f_view(shape)?, due, tokens: None })
    }

    fn due(&self, places: &[usize]) -> Result<Tensor, TrainError> {
        let missing = |place| self.missing(place);
        Ok(match &self.rows.targets {
            Targets::Numbers(all) => Tensor::f_from_slice(&picked(all, places).map_err(missing)?)?,
            Targets::Classes(all) if self.binary => {
                let classes = picked(all, places).map_err(missing)?;
                let ones: Vec<f32> = classes.iter().map(|class| if *class == 1 { 1.0 } else { 0.0 }).collect();
                Tensor::f_from_slice(&ones)?
            }
            Targets::Classes(all) => Tensor::f_from_slice(&picked(all, places).map_err(missing)?)?,
        })
    }

    fn missing(&self, place: usize) -> TrainError {
        TrainError::Work {
            what: "samples in an epoch",
            expected: (place as u64).saturating_add(1),
            found: self.samples(),
        }
    }
}

fn picked<T: Copy>(all: &[T], places: &[usize]) -> Result<Vec<T>, usize> {
    places.iter().map(|place| all.get(*place).copied().ok_or(*place)).collect()
}

impl Data for RowsData {
    fn samples(&self) -> u64 {
        match &self.rows.targets {
            Targets::Numbers(all) => all.len() as u64,
            Targets::Classes(all) => all.len() as u64,
        }
    }

    fn batch(&self, samples: &[u64]) -> Result<Batch, TrainError> {
        self.filled(samples, |_| ())
    }

    fn training_batch(&self, samples: &[u64], moment: Moment) -> Result<Batch, TrainError> {
        self.filled(samples, |values| {
            if let Some(augment) = &self.augment {
                augment.apply(moment, values);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> Objective {
        let none = xt_core::number::Finite::new(0.0).unwrap();
        Objective::CrossEntropy { label_smoothing: none, z_loss: none }
    }

    fn data(targets: Targets, objective: &Objective) -> RowsData {
        RowsData::new(Rows { width: 3, values: (0u8..12).map(f32::from).collect(), targets }, objective)
    }

    #[test]
    fn a_batch_holds_the_rows_asked_for_in_their_order_with_what_is_due() {
        let data = data(Targets::Classes(vec![0, 1, 2, 3]), &classes());
        assert_eq!(data.samples(), 4);
        let batch = data.batch(&[2, 0]).unwrap();
        assert_eq!(batch.seen.size(), [2, 3]);
        assert_eq!(Vec::<f32>::try_from(batch.seen.view(-1)).unwrap(), [6.0, 7.0, 8.0, 0.0, 1.0, 2.0]);
        assert_eq!(Vec::<i64>::try_from(&batch.due).unwrap(), [2, 0]);
        assert!(data.batch(&[4]).is_err());
        assert!(data.batch(&[u64::MAX]).is_err());
    }

    #[test]
    fn two_classes_are_due_as_numbers_where_one_output_tells_them_apart() {
        let data = data(Targets::Classes(vec![0, 1, 1, 0]), &Objective::BinaryCrossEntropy {});
        assert_eq!(Vec::<f32>::try_from(data.batch(&[1, 3]).unwrap().due).unwrap(), [1.0, 0.0]);
    }

    /// What evaluates asks for a batch, and what trains for a training batch.
    #[test]
    fn images_are_changed_in_batches_to_train_on_and_in_no_others() {
        let image = |augmentation| Tokenizer::Image {
            channels: 1,
            height: 1,
            width: 3,
            classes: 4,
            levels: None,
            scaling: Scaling::None,
            augmentation,
        };
        let mut data = data(Targets::Classes(vec![0, 1, 2, 3]), &classes());
        let all = [0, 1, 2, 3];
        let seen = |batch: Batch| Vec::<f32>::try_from(batch.seen.view(-1)).unwrap();
        let training = |data: &RowsData, time| seen(data.training_batch(&all, Moment { seed: 1, time }).unwrap());
        let plain = seen(data.batch(&all).unwrap());
        assert_eq!(training(&data, 0), plain);
        data.augment = Augment::new(&image(Augmentation { mirror: true, ..Augmentation::NONE }), &[]);
        assert!((0..9).any(|time| training(&data, time) != plain));
        assert_eq!(seen(data.batch(&all).unwrap()), plain);
    }

    /// Row N-03, and what enters the model is counted: inputs and a target that is a number.
    #[test]
    fn batches_are_aligned_and_a_value_that_is_not_finite_is_counted_as_input() {
        let mut data = data(Targets::Numbers(vec![1.0, f32::NAN, 2.0, 3.0]), &Objective::MeanSquaredError {});
        for sample in 0..4 {
            let batch = data.batch(&[sample]).unwrap();
            assert_eq!((batch.seen.data_ptr() as usize % 64, batch.due.data_ptr() as usize % 64), (0, 0));
        }
        let non_finite = |data: &RowsData, sample| {
            let mut counts = Counts::default();
            data.batch(&[sample]).unwrap().look(&mut counts).unwrap();
            counts.non_finite()
        };
        assert_eq!([0, 1, 2].map(|sample| non_finite(&data, sample)), [0, 1, 0]);
        data.rows.values[0] = f32::INFINITY;
        assert_eq!([0, 1, 2].map(|sample| non_finite(&data, sample)), [1, 1, 0]);
    }

    use crate::probe::Counts;
    use xt_core::manifest::encoding::Augmentation;
}
