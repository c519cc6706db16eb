//! An average of the parameters that is kept beside them: a part of the state that training does not look at.

use xt_core::digest::Digest;
use xt_core::manifest::candidate::Averaging;
use xt_torch::wide::wide;

use crate::fault::TrainError;
use crate::layout;
use crate::optim::Row;
use crate::parameters::{Parameters, narrowed};
use crate::probe::BLOCK;

/// An exponential moving average of the parameters.
#[derive(Debug)]
pub struct Average {
    /// Share of the average that stays in an update.
    decay: f64,
    /// Up to this step the average is a copy.
    first_step: u64,
    /// The average, in the layout of the parameters.
    row: Row,
}

impl Average {
    /// The average before the first step, a copy of `parameters`; `None` where the candidate keeps none.
    pub fn new(averaging: &Averaging, parameters: &Parameters) -> Result<Option<Self>, TrainError> {
        let Averaging::Exponential { decay, first_step } = averaging else { return Ok(None) };
        let mut row = Row::zeros("averaged/", parameters.layout.clone())?;
        row.values.values_mut().copy_from_slice(parameters.values.values());
        Ok(Some(Self { decay: decay.get(), first_step: *first_step, row }))
    }

    /// Everything it remembers; decay and first step are the plan's. Taken apart without `..`: a new field does not compile
    /// until someone decides whether it is remembered.
    pub const fn memory(&self) -> &Row {
        let Self { decay: _, first_step: _, row } = self;
        row
    }

    /// The same, to be filled from a snapshot.
    pub const fn memory_mut(&mut self) -> &mut Row {
        let Self { decay: _, first_step: _, row } = self;
        row
    }

    /// Takes in the parameters after the update of `step`: `a += (1 - decay) * (w - a)`, as PyTorch's
    /// `get_ema_multi_avg_fn` moves it; a copy up to the first step. `seen` is shown what the average then holds.
    pub fn take_in(&mut self, step: u64, values: &[f32], mut seen: impl FnMut(&[f32])) {
        let share = (step > self.first_step).then(|| narrowed(1.0 - self.decay));
        for (average, values) in self.row.values.values_mut().chunks_mut(BLOCK).zip(values.chunks(BLOCK)) {
            match share {
                None => average.copy_from_slice(values),
                Some(share) => wide(|| follow(average, values, share)),
            }
            seen(average);
        }
    }

    /// Digest of the average by the parameters' names.
    pub fn digest(&self) -> Digest {
        layout::digest(&self.row.layout, &[("", &self.row.values)])
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn follow(average: &mut [f32], values: &[f32], share: f32) {
    for (average, value) in average.iter_mut().zip(values) {
        *average += share * (value - *average);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Declared, Start};
    use xt_core::manifest::candidate::Decay;
    use xt_core::number::Finite;

    #[test]
    fn the_average_copies_up_to_its_first_step_and_then_follows() {
        let declared = Declared { name: "a".into(), shape: vec![2], start: Start::Ones };
        let mut parameters = Parameters::new(vec![declared], Decay::All).unwrap();
        parameters.initialise(1);
        assert!(Average::new(&Averaging::None {}, &parameters).unwrap().is_none());
        let averaging = Averaging::Exponential { decay: Finite::new(0.75).unwrap(), first_step: 2 };
        let mut average = Average::new(&averaging, &parameters).unwrap().unwrap();
        let mut seen = vec![average.memory().values.values()[0]];
        for (step, value) in (1..).zip([3.0f32, 5.0, 9.0, 9.0]) {
            average.take_in(step, &vec![value; parameters.layout.length()], |_| ());
            seen.push(average.memory().values.values()[0]);
        }
        assert_eq!(seen, [1.0, 3.0, 5.0, 6.0, 6.75]);
    }
}
