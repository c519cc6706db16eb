//! The dynamic scale of the loss: Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2, with the numbers of
//! PyTorch's `GradScaler`.

use xt_core::manifest::candidate::{Decay, Precision};

use crate::fault::TrainError;
use crate::layout::{Declared, Layout, Start};
use crate::optim::Row;

/// What the names of its tensors begin with.
pub const PREFIX: &str = "loss_scaler/";
/// The first scale.
const FIRST: f32 = 65536.0;
/// So many steps without an overflow, and the scale doubles.
const INTERVAL: f32 = 2000.0;
/// The scale grows no further: its product with a loss stays a number of binary32.
const LARGEST: f32 = 16_777_216.0 * 65536.0;

/// The scale and the steps since it changed: a part of the state, kept as a row, so that it is saved, hashed, compared and
/// restored as every other. Both are small whole numbers or powers of two, which binary32 holds exactly.
#[derive(Debug)]
pub struct Scaler {
    row: Row,
    /// Places of scale and count in the row.
    places: [usize; 2],
}

impl Scaler {
    /// The scaler before the first step; `None` where the candidate scales no loss.
    pub fn new(precision: Precision) -> Result<Option<Self>, TrainError> {
        if precision != Precision::Float16Scaled {
            return Ok(None);
        }
        let declared =
            ["scale", "steps"].map(|name| Declared { name: name.into(), shape: vec![1], start: Start::Zeros });
        let layout = Layout::new(declared.into(), Decay::All);
        let [scale, steps] = layout.spans() else { return Err(TrainError::Model("a scaler has two values".into())) };
        let places = [scale.offset, steps.offset];
        let mut row = Row::zeros(PREFIX, layout)?;
        row.values.values_mut()[places[0]] = FIRST;
        Ok(Some(Self { row, places }))
    }

    /// Everything it remembers. Taken apart without `..`: a new field does not compile until someone decides whether it is
    /// remembered.
    pub const fn memory(&self) -> &Row {
        let Self { row, places: _ } = self;
        row
    }

    /// The same, to be filled from a snapshot.
    pub const fn memory_mut(&mut self) -> &mut Row {
        let Self { row, places: _ } = self;
        row
    }

    /// What the loss is multiplied by.
    pub fn scale(&self) -> f32 {
        self.row.values.values()[self.places[0]]
    }

    /// After a step: halves the scale where gradients overflowed, and doubles it after many steps in which they did not.
    pub fn after(&mut self, overflowed: bool) {
        let [scale, steps] = self.places;
        let values = self.row.values.values_mut();
        if overflowed {
            values[scale] = (values[scale] / 2.0).max(1.0);
            values[steps] = 0.0;
        } else {
            values[steps] += 1.0;
            if values[steps] >= INTERVAL {
                values[scale] = (values[scale] * 2.0).min(LARGEST);
                values[steps] = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_halves_at_an_overflow_and_doubles_after_two_thousand_steps_without_one() {
        assert!(Scaler::new(Precision::Float16).unwrap().is_none());
        let mut scaler = Scaler::new(Precision::Float16Scaled).unwrap().unwrap();
        assert_eq!(scaler.scale(), 65536.0);
        scaler.after(true);
        (0..1999).for_each(|_| scaler.after(false));
        assert_eq!(scaler.scale(), 32768.0);
        scaler.after(false);
        assert_eq!(scaler.scale(), 65536.0);
        // An overflow begins the count anew.
        (0..1999).for_each(|_| scaler.after(false));
        scaler.after(true);
        (0..1999).for_each(|_| scaler.after(false));
        assert_eq!(scaler.scale(), 32768.0);
        (0..40).for_each(|_| scaler.after(true));
        assert_eq!(scaler.scale(), 1.0, "it does not vanish");
    }
}
