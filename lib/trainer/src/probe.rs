//! Counts of what each stage of a step held, taken before any clipping or repair.
//!
//! One pass over the bytes where they lie. The comparison is of integers, so that no NaN is dropped on the way, as a
//! maximum of floats would (row F-08).

use tch::{Kind, Tensor};
use xt_core::manifest::trace::{Stage, StageName};
use xt_core::number::Finite;
use xt_torch::memory::floats;
use xt_torch::wide::wide;

use crate::fault::TrainError;

/// Names kept of tensors that held a non-finite value.
const NAMES: usize = 8;
/// Values looked at together: so few stay in the nearest cache, also beside two other rows.
pub const BLOCK: usize = 2048;
/// Values looked at at once.
const LANES: usize = 32;
/// The bits of positive infinity: without the sign, every NaN lies above and every finite number below.
const INFINITY: u32 = 0x7f80_0000;

/// What one stage held so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    checked: u64,
    nan: u64,
    positive_infinite: u64,
    negative_infinite: u64,
    /// Bits of the largest finite magnitude.
    largest: u32,
    tensors: Vec<String>,
}

impl Counts {
    /// Counts the values of `tensor`, in binary32, binary16 or bfloat16.
    pub fn look(&mut self, name: &str, tensor: &Tensor) -> Result<(), TrainError> {
        if matches!(tensor.f_kind()?, Kind::Half | Kind::BFloat16) {
            // Every number of both is one of binary32.
            let wide = tensor.f_detach()?.f_to_kind(Kind::Float)?;
            self.look_at(|| name.to_string(), floats(&wide)?);
            return Ok(());
        }
        self.look_at(|| name.to_string(), floats(tensor)?);
        Ok(())
    }

    /// Counts `values`, which belong to the tensor that `name` gives the name of.
    pub fn look_at(&mut self, name: impl FnOnce() -> String, values: &[f32]) {
        let before = self.non_finite();
        self.checked += values.len() as u64;
        for block in values.chunks(BLOCK) {
            match wide(|| largest(block)) {
                largest if largest < INFINITY => self.largest = self.largest.max(largest),
                _ => block.iter().for_each(|value| self.count(*value)),
            }
        }
        if self.non_finite() > before && self.tensors.len() < NAMES {
            let name = name();
            if !self.tensors.contains(&name) {
                self.tensors.push(name);
            }
        }
    }

    /// Counts so many values that `glance` has seen, if all of them are finite. If not, it counts nothing and says so: then
    /// they must be looked at one tensor after the other.
    #[must_use]
    pub fn settle(&mut self, checked: u64, glance: Glance) -> bool {
        if glance.is_finite() {
            self.checked += checked;
            self.largest = self.largest.max(glance.largest);
        }
        glance.is_finite()
    }

    /// Counts so many values that are zero.
    pub const fn pass_zeros(&mut self, checked: u64) {
        self.checked += checked;
    }

    /// Counts whole numbers, such as tokens: all of them are finite.
    pub fn look_at_tokens(&mut self, tokens: &[i64]) {
        self.checked += tokens.len() as u64;
        #[expect(clippy::cast_precision_loss, reason = "tokens are below 2^24")]
        let largest = tokens.iter().copied().max().unwrap_or(0) as f32;
        self.largest = self.largest.max(magnitude(largest));
    }

    fn count(&mut self, value: f32) {
        match magnitude(value) {
            bits if bits < INFINITY => self.largest = self.largest.max(bits),
            INFINITY if value > 0.0 => self.positive_infinite += 1,
            INFINITY => self.negative_infinite += 1,
            _ => self.nan += 1,
        }
    }

    /// Values so far that are not finite.
    pub const fn non_finite(&self) -> u64 {
        self.nan + self.positive_infinite + self.negative_infinite
    }

    /// The counts as a part of a trace line.
    pub fn stage(&self, stage: StageName) -> Stage {
        let maximum = Finite::new(f64::from(f32::from_bits(self.largest)));
        Stage {
            stage,
            checked: self.checked,
            nan: self.nan,
            positive_infinite: self.positive_infinite,
            negative_infinite: self.negative_infinite,
            maximum: maximum.unwrap_or_else(|| unreachable!("only finite magnitudes are kept")),
            tensors: self.tensors.clone(),
        }
    }
}

/// What a pass that does something else with some values sees of them on its way, while they are in the cache: all there is
/// to count as long as they are finite, and otherwise that they are not. Zeros beside them change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Bits of the largest magnitude.
    largest: u32,
}

impl Glance {
    /// Sees `values`.
    pub fn see(&mut self, values: &[f32]) {
        self.largest = self.largest.max(wide(|| largest(values)));
    }

    /// Whether all that was seen is finite.
    pub const fn is_finite(self) -> bool {
        self.largest < INFINITY
    }
}

/// Bits of the largest magnitude, which reach those of infinity exactly when a value is not finite: the only pass over
/// values that are, in lanes and without a branch. Compared with a sign, which the narrowest vectors can.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn largest(values: &[f32]) -> u32 {
    let mut lanes = [0i32; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane = (*lane).max(magnitude(*value).cast_signed());
        }
    }
    let rest = rest.iter().map(|value| magnitude(*value)).max().unwrap_or(0);
    lanes.iter().map(|lane| lane.cast_unsigned()).fold(rest, u32::max)
}

/// The bits without the sign: they order as the magnitudes do.
const fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_both_infinities_are_counted_apart_wherever_they_stand() {
        let mut values = vec![0.5f32; 3 * BLOCK + 7];
        let last = values.len() - 1;
        values[0] = f32::NAN;
        values[1] = -f32::NAN;
        values[2] = f32::from_bits(0x7f80_0001); // a signalling NaN
        values[BLOCK - 1] = f32::INFINITY;
        values[BLOCK] = f32::NEG_INFINITY;
        values[last] = f32::NEG_INFINITY;
        values[last - 1] = -7.5;
        let mut counts = Counts::default();
        counts.look_at(|| "x".into(), &values);
        let stage = counts.stage(StageName::Forward);
        assert_eq!(
            (stage.checked, stage.nan, stage.positive_infinite, stage.negative_infinite),
            (values.len() as u64, 3, 1, 2)
        );
        assert_eq!((stage.maximum.get(), stage.tensors), (7.5, vec!["x".to_string()]));
    }

    /// Lanes and blocks against one value after the other, with bits of every kind at every place.
    #[test]
    fn counts_are_those_of_a_plain_loop_whatever_the_bits() {
        let mut words = vec![0u32; 70_000];
        xt_core::random::Stream::new(1, "probe", 0).fill(&mut words);
        for (rare, length) in [(3, 1), (50, 15), (50, 16), (50, 17), (3_000, BLOCK + 5), (40_000, 70_000)] {
            let ordinary = |word: u32| if word.is_multiple_of(rare) { word | INFINITY } else { word & !0x4000_0000 };
            let values: Vec<f32> = words[..length].iter().map(|word| f32::from_bits(ordinary(*word))).collect();
            let mut counts = Counts::default();
            counts.look_at(String::new, &values);
            let stage = counts.stage(StageName::Forward);
            assert_eq!(stage.nan, values.iter().filter(|value| value.is_nan()).count() as u64);
            let infinite = |sign: f32| values.iter().filter(|value| **value == sign * f32::INFINITY).count() as u64;
            assert_eq!((stage.positive_infinite, stage.negative_infinite), (infinite(1.0), infinite(-1.0)));
            let finite = values.iter().filter(|value| value.is_finite()).map(|value| value.abs());
            assert_eq!(stage.maximum.get(), f64::from(finite.fold(0.0, f32::max)));
        }
    }

    #[test]
    fn finite_values_are_finite_up_to_the_largest_and_down_to_denormals() {
        let mut counts = Counts::default();
        counts.look_at(|| "x".into(), &[f32::MAX, f32::MIN, f32::from_bits(1), -0.0]);
        assert_eq!(counts.non_finite(), 0);
        assert_eq!(counts.stage(StageName::Loss).maximum.get(), f64::from(f32::MAX));
        assert!(counts.stage(StageName::Loss).tensors.is_empty());
        assert_eq!(Counts::default().stage(StageName::Loss).maximum.get(), 0.0);
    }

    #[test]
    fn a_glance_settles_what_is_finite_and_nothing_else() {
        let mut values = vec![0.25f32; BLOCK + 77];
        values[BLOCK + 70] = -3.5;
        let glance = |values: &[f32]| {
            let mut glance = Glance::default();
            values.chunks(1000).for_each(|part| glance.see(part));
            glance
        };
        let (mut looked, mut settled) = (Counts::default(), Counts::default());
        looked.look_at(String::new, &values);
        assert!(settled.settle(values.len() as u64, glance(&values)));
        assert_eq!(settled, looked);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 31, BLOCK, BLOCK + 76] {
                let mut values = values.clone();
                values[at] = bad;
                assert!(!settled.settle(values.len() as u64, glance(&values)), "{bad} at {at}");
            }
        }
        assert_eq!(settled, looked, "what is not finite settles nothing");
    }

    #[test]
    fn at_most_eight_names_are_kept_each_once() {
        let mut counts = Counts::default();
        for name in 0..20 {
            counts.look_at(|| format!("x.{}", name / 2), &[f32::NAN]);
        }
        assert_eq!(counts.stage(StageName::Forward).tensors.len(), 8);
        assert_eq!(counts.stage(StageName::Forward).nan, 20);
        assert_eq!(counts.stage(StageName::Forward).tensors[1], "x.1");
    }

    #[test]
    fn binary16_is_counted_as_what_it_holds() {
        let mut counts = Counts::default();
        let half = Tensor::from_slice(&[65504.0f32, 65519.0, 65520.0, -1e6, f32::NAN]).to_kind(Kind::Half);
        counts.look("x", &half).unwrap();
        let stage = counts.stage(StageName::Forward);
        assert_eq!((stage.checked, stage.nan, stage.positive_infinite, stage.negative_infinite), (5, 1, 1, 1));
        assert_eq!(stage.maximum.get(), 65504.0);
    }

    #[test]
    fn tensors_are_looked_at_in_place_and_odd_ones_are_refused() {
        let mut counts = Counts::default();
        counts.look("x", &Tensor::from_slice(&[1.0f32, f32::NAN])).unwrap();
        assert_eq!(counts.non_finite(), 1);
        assert!(counts.look("y", &Tensor::from_slice(&[1i64])).is_err());
    }
}
