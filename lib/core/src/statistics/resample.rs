//! Chance with a declared seed: bootstrap intervals, and sign flips where there are too many to look at all of them.

use alloc::vec::Vec;

use super::signs::{Shares, slack};
use super::{float, sum};
use crate::random::Stream;

/// The percentile interval of the mean at `level` from `count` resamples (Efron, "Bootstrap Methods: Another Look at the
/// Jackknife", Annals of Statistics 1979). Quantiles are interpolated between order statistics as by definition 7 of
/// Hyndman and Fan ("Sample Quantiles in Statistical Packages", The American Statistician 1996).
///
/// Value number i of resample number r is the one at ⌊word(r·n + i) · n / 2^64⌋ of the stream `bootstrap`.
pub fn bootstrap(values: &[f64], seed: u64, count: usize, level: f64) -> (f64, f64) {
    let stream = Stream::new(seed, "bootstrap", 0);
    let size = values.len();
    let mut means: Vec<f64> = (0..count)
        .map(|turn| {
            let drawn = (0..size).map(|place| values[below(stream.word((turn * size + place) as u64), size)]);
            drawn.sum::<f64>() / float(size)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (sample_quantile(&means, 0.5 * level), sample_quantile(&means, 1.0 - 0.5 * level))
}

/// The random word as a place in a list of `size`.
#[expect(clippy::cast_possible_truncation, reason = "the high word of the product is below `size`")]
pub(crate) fn below(word: u64, size: usize) -> usize {
    ((u128::from(word) * size as u128) >> 64) as usize
}

/// The quantile of sorted values.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within the list")]
fn sample_quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * float(sorted.len() - 1);
    let whole = libm::floor(place);
    let low = sorted[whole as usize];
    let high = sorted[(whole as usize + 1).min(sorted.len() - 1)];
    low + (high - low) * (place - whole)
}

/// The sign-flip test by `count` random draws. The observed signs count as one draw more, so that no p is 0 (Phipson and
/// Smyth, "Permutation P-values Should Never Be Zero", Statistical Applications in Genetics and Molecular Biology 2010).
///
/// Bit i of draw number r is bit i mod 64 of word r·⌈n/64⌉ + ⌊i/64⌋ of the stream `sign-flip`; 1 turns the sign.
pub fn sign_flips(values: &[f64], seed: u64, count: usize) -> Shares {
    let stream = Stream::new(seed, "sign-flip", 0);
    let words = values.len().div_ceil(64);
    let (observed, slack) = (sum(values), slack(values));
    let (mut at_least, mut as_far) = (1usize, 1usize);
    for turn in 0..count {
        let mut total = 0.0;
        for (block, chunk) in values.chunks(64).enumerate() {
            let word = stream.word((turn * words + block) as u64);
            for (place, value) in chunk.iter().enumerate() {
                total += if word >> place & 1 == 1 { -value } else { *value };
            }
        }
        at_least += usize::from(total >= observed - slack);
        as_far += usize::from(total.abs() >= observed.abs() - slack);
    }
    Shares { at_least: float(at_least) / float(count + 1), as_far: float(as_far) / float(count + 1) }
}
