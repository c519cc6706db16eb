//! Lion: steps of one size along a sign.

use xt_torch::wide::wide;

use super::{Scale, Stretch};
use crate::parameters::narrowed;
use crate::probe::BLOCK;

/// The constants of Lion.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Share of the momentum in the mixture.
    pub beta1: f64,
    /// Decay of the momentum.
    pub beta2: f64,
    /// How strongly these weights decay.
    pub decay: f64,
}

/// What one update multiplies by.
#[derive(Clone, Copy, Debug)]
struct Factors {
    gradient: f32,
    rate: f32,
    /// What of a weight is kept.
    keep: f32,
    beta1: f32,
    new1: f32,
    beta2: f32,
    new2: f32,
}

/// Program 1 of Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, with the decay times the
/// learning rate: `w -= rate * decay * w`, `w -= rate * sign(b1 * m + (1 - b1) * g)`, `m = b2 * m + (1 - b2) * g`; `seen` is
/// shown each block of weights and momentum behind it.
pub fn update(
    stretch: Stretch<'_>,
    momentum: &mut [f32],
    settings: &Settings,
    scale: Scale,
    mut seen: impl FnMut(&[f32]),
) {
    let Stretch { values, gradients } = stretch;
    let by = Factors {
        gradient: scale.factor,
        rate: narrowed(scale.rate),
        keep: narrowed(1.0 - scale.rate * settings.decay),
        beta1: narrowed(settings.beta1),
        new1: narrowed(1.0 - settings.beta1),
        beta2: narrowed(settings.beta2),
        new2: narrowed(1.0 - settings.beta2),
    };
    let blocks = values.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK)).zip(momentum.chunks_mut(BLOCK));
    for ((values, gradients), momentum) in blocks {
        wide(|| block(values, gradients, momentum, by));
        [&*values, momentum].into_iter().for_each(&mut seen);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn block(values: &mut [f32], gradients: &[f32], momentum: &mut [f32], by: Factors) {
    for ((value, momentum), gradient) in values.iter_mut().zip(momentum).zip(gradients) {
        let gradient = gradient * by.gradient;
        let mixture = by.beta1 * *momentum + by.new1 * gradient;
        *value = *value * by.keep - by.rate * sign(mixture);
        *momentum = by.beta2 * *momentum + by.new2 * gradient;
    }
}

/// 0 for both zeros, and NaN for NaN: a step that is unknown must not look like one that is 0.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn sign(value: f32) -> f32 {
    if value == 0.0 || value.is_nan() { value } else { value.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_of_nothing_is_nothing_and_of_nan_is_nan() {
        assert_eq!([-2.0, -0.0, 0.0, 3.0, f32::NEG_INFINITY].map(sign), [-1.0, 0.0, 0.0, 1.0, -1.0]);
        assert!(sign(f32::NAN).is_nan());
    }
}
