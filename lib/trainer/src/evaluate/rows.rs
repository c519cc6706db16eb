//! Measures a trained model on held-out rows or images: classes by answers, numbers by estimates.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use xt_core::field::Field;
use xt_core::manifest::candidate::{Candidate, Objective};
use xt_core::manifest::encoding::{Fitted, Scaling};
use xt_core::manifest::evaluation::{Answer, Estimate, Evaluating, Measure};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::measure::classification::classification;
use xt_core::verb::measure::regression::regression;
use xt_core::verb::{evaluate, fit};
use xt_data::{Raw, Targets};
use xt_torch::memory::floats;

use crate::data::rows::{RowsData, raw, scaling};
use crate::data::{Batch, Data};
use crate::evaluate::{Slices, finite_outputs};
use crate::fault::TrainError;
use crate::model::Network;
use crate::objective;
use crate::telemetry::Telemetry;

/// Held-out samples, and where each stands.
#[derive(Debug)]
pub struct HeldOut {
    data: RowsData,
    /// Targets as they stand in the files.
    targets: Targets,
    places: Vec<(RelativePath, u64)>,
    /// What the target was scaled by, if it was.
    scale: Option<Fitted>,
}

/// A class that a model answers, with its probability.
type Chosen = (u64, f64);

impl HeldOut {
    /// Reads the held-out files and scales them by what was fitted on the training data.
    pub fn read(plan: &Plan, evaluating: &Evaluating, folder: &Path) -> Result<Self, TrainError> {
        let (candidate, dataset) = plan.training().ok_or(TrainError::Command)?;
        let raw = raw(candidate, &evaluate::members(&evaluating.spec, dataset), folder)?;
        let mut places = Vec::new();
        for (part, found) in evaluating.parts.iter().zip(&raw.counts) {
            if part.tokens != *found {
                let (expected, found) = (part.tokens, *found);
                return Err(TrainError::Work { what: "samples in a held-out file", expected, found });
            }
            places.extend((0..*found).map(|row| (part.path.clone(), row)));
        }
        let (expected, found) = (plan.work.samples_per_epoch, places.len() as u64);
        if expected != found {
            return Err(TrainError::Work { what: "samples", expected, found });
        }
        let Raw { targets, target, .. } = &raw;
        let scaling = scaling(&candidate.tokenizer);
        let scaled = scaling == Scaling::InputsAndTarget;
        let scale = plan.fitted.iter().find(|fitted| scaled && fitted.column == *target).cloned();
        let targets = targets.clone();
        let data = RowsData::new(raw.scale(&plan.fitted, scaling), &candidate.objective);
        Ok(Self { data, targets, places, scale })
    }

    /// Samples.
    pub fn samples(&self) -> u64 {
        self.places.len() as u64
    }

    /// Runs all samples through the model; gives the metrics and a line for each sample.
    pub fn measure<W: Write>(
        &self,
        (model, candidate): (&dyn Network, &Candidate),
        evaluating: &Evaluating,
        slices: &Slices<'_>,
        telemetry: &mut Telemetry<W>,
    ) -> Result<(Vec<Measure>, String), TrainError> {
        let (mut answers, mut estimates) = (Vec::new(), Vec::new());
        let all: Vec<u64> = (0..self.samples()).collect();
        let size = usize::try_from(evaluating.spec.evaluator.batch()).unwrap_or(usize::MAX).max(1);
        for (number, samples) in (1..).zip(all.chunks(size)) {
            let start = Instant::now();
            let batch = self.data.batch(samples)?;
            match &self.targets {
                Targets::Classes(due) => {
                    self.answer(model, &candidate.objective, &batch, (samples, due), &mut answers)?;
                }
                Targets::Numbers(due) => self.estimate(model, &batch, (samples, due), &mut estimates)?,
            }
            let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            telemetry.say(&Message::Measured { batch: number, nanoseconds })?;
        }
        let spec = &evaluating.spec;
        Ok(match &self.targets {
            Targets::Classes(_) => {
                let classes = fit::classes(&candidate.tokenizer);
                let measures = classification(spec, &classes, &answers, |answer| slices.of(&answer.path))?;
                (measures, lines(&answers))
            }
            Targets::Numbers(_) => {
                (regression(spec, &estimates, |estimate| slices.of(&estimate.path))?, lines(&estimates))
            }
        })
    }

    fn answer(
        &self,
        model: &dyn Network,
        objective: &Objective,
        batch: &Batch,
        (samples, due): (&[u64], &[i64]),
        answers: &mut Vec<Answer>,
    ) -> Result<(), TrainError> {
        let outputs = finite_outputs(model, &batch.seen, "held-out samples")?;
        let losses = objective::losses(objective, &outputs, &batch.due)?;
        let outputs = floats(&outputs)?;
        let width = outputs.len().checked_div(samples.len()).unwrap_or(1).max(1);
        for ((sample, loss), outputs) in samples.iter().zip(floats(&losses)?).zip(outputs.chunks(width)) {
            let (path, row, place) = self.place(*sample)?;
            let (answer, probability) = if width == 1 { chosen_of_two(outputs[0]) } else { chosen(outputs) };
            let finite = |value, what| Finite::new(value).ok_or(TrainError::NoMetric { window: *sample, what });
            answers.push(Answer {
                sample: *sample,
                path,
                row,
                due: u64::try_from(due[place]).unwrap_or(0),
                answer,
                probability: finite(probability, "probability")?,
                loss: finite(f64::from(*loss), "loss")?,
            });
        }
        Ok(())
    }

    fn estimate(
        &self,
        model: &dyn Network,
        batch: &Batch,
        (samples, due): (&[u64], &[f32]),
        estimates: &mut Vec<Estimate>,
    ) -> Result<(), TrainError> {
        let outputs = finite_outputs(model, &batch.seen, "held-out samples")?;
        for (sample, output) in samples.iter().zip(floats(&outputs)?) {
            let (path, row, place) = self.place(*sample)?;
            let output = f64::from(*output);
            let answer = self.scale.as_ref().map_or(output, |scale| output * scale.deviation.get() + scale.mean.get());
            let finite = |value, what| Finite::new(value).ok_or(TrainError::NoMetric { window: *sample, what });
            let (due, answer) = (finite(f64::from(due[place]), "target")?, finite(answer, "estimate")?);
            estimates.push(Estimate { sample: *sample, path, row, due, answer });
        }
        Ok(())
    }

    /// File, number in the file, and number over all files, which all targets have.
    fn place(&self, sample: u64) -> Result<(RelativePath, u64, usize), TrainError> {
        let place = usize::try_from(sample).unwrap_or(usize::MAX);
        let missing = TrainError::Work { what: "samples", expected: sample + 1, found: self.samples() };
        let (path, row) = self.places.get(place).ok_or(missing)?;
        Ok((path.clone(), *row, place))
    }
}

/// The class of the largest logit, the first one of equals, and its probability by the softmax.
fn chosen(logits: &[f32]) -> Chosen {
    let answer = super::likeliest(logits);
    let largest = f64::from(logits[answer]);
    let all: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - largest)).sum();
    (answer as u64, 1.0 / all)
}

/// The second class where its logit is above 0, and the probability of the answer by the logistic function.
fn chosen_of_two(logit: f32) -> Chosen {
    (u64::from(logit > 0.0), 1.0 / (1.0 + libm::exp(-f64::from(logit.abs()))))
}

fn lines<F: Field>(all: &[F]) -> String {
    all.iter().map(|one| one.write().canonical() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_is_that_of_the_answer() {
        assert_eq!(chosen(&[0.0, 0.0]), (0, 0.5));
        let (class, probability) = chosen(&[1.0, 3.0, 2.0]);
        let all = 1f64.exp() + 2f64.exp() + 3f64.exp();
        assert!(class == 1 && (probability - 3f64.exp() / all).abs() < 1e-15);
        assert_eq!(chosen_of_two(0.0), (0, 0.5));
        let (class, probability) = chosen_of_two(-2.0);
        assert!(class == 0 && (probability - 1.0 / (1.0 + (-2f64).exp())).abs() < 1e-15);
        assert_eq!(chosen_of_two(2.0), (1, probability));
    }
}
