//! Where a step first held a value that is not finite, tensor by tensor: the same computation again, from the same
//! parameters, samples and draws, with a look at everything that a module gives and at the gradient of it.

use tch::Tensor;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::incident::{LastFinite, Located};
use xt_core::manifest::trace::{Stage, StageName};
use xt_core::order::MicroBatch;
use xt_torch::memory::Flat;

use crate::augment::Moment;
use crate::data::Data;
use crate::dropout::Dropout;
use crate::fault::TrainError;
use crate::gradients::Gradients;
use crate::layout::Layout;
use crate::model::Network;
use crate::parameters::Parameters;
use crate::probe::Counts;
use crate::state::Memory;
use crate::{objective, precision};

/// What a step is computed from.
#[derive(Clone, Copy)]
pub struct Computed<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// Its model.
    pub model: &'a dyn Network,
    /// Its data.
    pub data: &'a dyn Data,
    /// Its parameters before the step.
    pub parameters: &'a Parameters,
    /// Seed of every draw.
    pub seed: u64,
}

/// A tensor by name, with its counts.
type Counted = (String, Stage);

impl Computed<'_> {
    /// The first tensor of one micro-batch that is not finite. Its loss counts by `share`; without one, nothing of it is
    /// predicted.
    pub fn of_batch(
        &self,
        number: u64,
        micro_batch: &MicroBatch,
        dropout: Option<&Dropout>,
        share: Option<f64>,
    ) -> Result<Option<Located>, TrainError> {
        let moment = Moment { seed: self.seed, time: micro_batch.number };
        let batch = self.data.training_batch(&micro_batch.samples, moment)?;
        let mut input = Counts::default();
        batch.look(&mut input)?;
        let input = input.stage(StageName::Input);
        if input.non_finite() > 0 {
            let name = input.tensors.first().cloned().unwrap_or_default();
            return Ok(place(&[(name, input)], number, |_| "input".into()));
        }
        let mut given: Vec<(String, Tensor)> = Vec::new();
        let outputs = precision::computing(self.candidate.precision, || {
            self.model.forward(&batch.seen, dropout, &mut |name, tensor| {
                given.push((name.to_string(), tensor.shallow_clone()));
                Ok(())
            })
        })?;
        let forward = counted(StageName::Forward, given.iter().map(|(name, tensor)| (name.clone(), tensor)))?;
        if let Some(found) = place(&forward, number, module_of) {
            return Ok(Some(found));
        }
        let Some(share) = share else { return Ok(None) };
        let loss = objective::loss(&self.candidate.objective, &outputs, &batch.due)?;
        let of_loss = counted(StageName::Loss, [("loss".to_string(), &loss)].into_iter())?;
        if let Some(found) = place(&of_loss, number, |_| "loss".into()) {
            return Ok(Some(found));
        }
        #[expect(clippy::float_cmp, reason = "the only micro-batch of a step counts as it is")]
        let loss = if share == 1.0 { loss } else { loss.f_mul_scalar(share)? };
        self.backward(number, &loss, &given)
    }

    /// The first gradient that is not finite: those of what the modules gave from the last to the first, then those of
    /// parameters, for which the computation has no one order.
    fn backward(&self, number: u64, loss: &Tensor, given: &[(String, Tensor)]) -> Result<Option<Located>, TrainError> {
        let trained = given.iter().rev().filter(|(_, tensor)| tensor.requires_grad());
        let (mut names, mut tensors): (Vec<String>, Vec<Tensor>) =
            trained.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).unzip();
        let modules = names.len();
        for span in self.parameters.layout.spans() {
            let tensor = self.parameters.tensor(&span.declared.name)?;
            if tensor.requires_grad() {
                names.push(span.declared.name.clone());
                tensors.push(tensor);
            }
        }
        let gradients = Tensor::f_run_backward(&[loss], &tensors, false, false)?;
        let all = names.into_iter().zip(&gradients).enumerate();
        let known: Vec<(usize, (String, &Tensor))> = all.filter(|(_, (_, gradient))| gradient.defined()).collect();
        let parameters = known.iter().position(|(index, _)| *index >= modules).unwrap_or(known.len());
        let counts = counted(StageName::Backward, known.into_iter().map(|(_, one)| one))?;
        let found = place(&counts[..parameters], number, module_of);
        Ok(found.or_else(|| place(&counts[parameters..], number, owner_of)))
    }
}

/// Each tensor with its counts.
fn counted<'a>(
    stage: StageName,
    tensors: impl Iterator<Item = (String, &'a Tensor)>,
) -> Result<Vec<Counted>, TrainError> {
    let count = |(name, tensor): (String, &Tensor)| {
        let mut counts = Counts::default();
        counts.look(&name, &tensor.f_contiguous()?)?;
        Ok((name, counts.stage(stage)))
    };
    tensors.map(count).collect()
}

/// The first of these tensors that is not finite.
fn place(tensors: &[Counted], micro_batch: u64, module: impl Fn(&str) -> String) -> Option<Located> {
    let before = tensors.iter().position(|(_, stage)| stage.non_finite() > 0)?;
    let (name, stage) = &tensors[before];
    let last = before.checked_sub(1).map(|index| &tensors[index]);
    Some(Located {
        stage: stage.stage,
        module: module(name),
        tensor: name.clone(),
        micro_batch,
        checked: stage.checked,
        nan: stage.nan,
        positive_infinite: stage.positive_infinite,
        negative_infinite: stage.negative_infinite,
        maximum: stage.maximum,
        before: before as u64,
        last_finite: last.map(|(name, stage)| LastFinite { tensor: name.clone(), maximum: stage.maximum }),
    })
}

/// The module that gave a tensor: `block.0` gives itself, `block.0/attention.out` is given by `block.0.attention`.
fn module_of(name: &str) -> String {
    match name.split_once('/') {
        Some((block, part)) => {
            let module = part.rsplit_once('.').map_or(part, |(module, _)| module);
            format!("{block}.{module}")
        }
        None => name.into(),
    }
}

/// The module that holds a parameter: its name without the last part.
fn owner_of(name: &str) -> String {
    name.rsplit_once('.').map_or(name, |(module, _)| module).into()
}

/// The first row of an update that is not finite: parameters, then the state of the optimiser.
pub fn in_update(memory: &Memory<'_>) -> Option<Located> {
    let rows = [("", memory.layout, memory.values)].into_iter();
    let rows = rows.chain(memory.rows.iter().map(|row| (row.prefix, &row.layout, &row.values)));
    let counts: Vec<Counted> =
        rows.flat_map(|(prefix, layout, row)| of_row(StageName::Optimizer, prefix, layout, row)).collect();
    place(&counts, 0, owner_of)
}

/// The first gradient that only the sum over the micro-batches made infinite.
pub fn in_sum(gradients: &Gradients, micro_batches: u64) -> Option<Located> {
    let counts = gradients.counts().map(|(name, counts)| (name.to_string(), counts.stage(StageName::Backward)));
    place(&counts.collect::<Vec<Counted>>(), micro_batches.saturating_sub(1), owner_of)
}

fn of_row(stage: StageName, prefix: &str, layout: &Layout, row: &Flat) -> Vec<Counted> {
    let count = |span: &crate::layout::Span| {
        let (name, mut counts) = (format!("{prefix}{}", span.declared.name), Counts::default());
        counts.look_at(|| name.clone(), span.of(row.values()));
        let stage = counts.stage(stage);
        (name, stage)
    };
    layout.spans().iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_named_by_what_gives_or_holds_a_tensor() {
        assert_eq!(module_of("block.0/attention.out"), "block.0.attention");
        assert_eq!(module_of("block.0/inner"), "block.0.inner");
        assert_eq!(module_of("logits"), "logits");
        assert_eq!(owner_of("transformer.h.0.attn.c_attn.weight"), "transformer.h.0.attn.c_attn");
    }

    #[test]
    fn the_first_tensor_counts_and_the_one_before_it_is_named() {
        let tensors =
            [[1.0f32, -3.0], [f32::INFINITY, 2.0], [f32::NAN, f32::NAN]].map(|values| Tensor::from_slice(&values));
        let named = ["a", "b/c.d", "e"].into_iter().map(String::from).zip(&tensors);
        let counts = counted(StageName::Forward, named).unwrap();
        let found = place(&counts, 4, module_of).unwrap();
        assert_eq!((found.module.as_str(), found.tensor.as_str(), found.micro_batch), ("b.c", "b/c.d", 4));
        assert_eq!((found.checked, found.nan, found.positive_infinite, found.maximum.get()), (2, 0, 1, 2.0));
        let last = found.last_finite.unwrap();
        assert_eq!((found.before, last.tensor.as_str(), last.maximum.get()), (1, "a", 3.0));
        assert_eq!(place(&counts[..1], 0, module_of), None);
    }
}
