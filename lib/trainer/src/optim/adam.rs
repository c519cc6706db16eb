//! Adam, with the decay added to the gradient or apart from it.

use xt_torch::wide::wide;

use super::{Scale, Stretch};
use crate::parameters::narrowed;
use crate::probe::BLOCK;

/// The constants of Adam.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// How strongly these weights decay.
    pub decay: f64,
    /// Whether the decay is added to the gradient.
    pub coupled: bool,
}

/// What one update multiplies by.
#[derive(Clone, Copy, Debug)]
struct Factors {
    gradient: f32,
    /// What of a weight is kept, or what of it is added to the gradient.
    decay: f32,
    rate: f32,
    /// Square root of how far the second moment is from being a mean.
    root: f32,
    new1: f32,
    beta2: f32,
    new2: f32,
    epsilon: f32,
}

impl Factors {
    fn of(settings: &Settings, scale: Scale) -> Self {
        // How far both moments are from being means, after so many updates.
        #[expect(clippy::cast_precision_loss, reason = "counts of updates are far below 2^53")]
        let corrections = [settings.beta1, settings.beta2].map(|beta| 1.0 - libm::pow(beta, scale.updates as f64));
        let kept = 1.0 - scale.rate * settings.decay;
        Self {
            gradient: scale.factor,
            decay: narrowed(if settings.coupled { settings.decay } else { kept }),
            rate: narrowed(scale.rate / corrections[0]),
            root: narrowed(corrections[1].sqrt()),
            new1: narrowed(1.0 - settings.beta1),
            beta2: narrowed(settings.beta2),
            new2: narrowed(1.0 - settings.beta2),
            epsilon: narrowed(settings.epsilon),
        }
    }
}

/// Updates a stretch, block by block; `seen` is shown each block of weights and moments behind it.
pub fn update(
    stretch: Stretch<'_>,
    moments: [&mut [f32]; 2],
    settings: &Settings,
    scale: Scale,
    mut seen: impl FnMut(&[f32]),
) {
    let Stretch { values, gradients } = stretch;
    let factors = Factors::of(settings, scale);
    let [first, second] = moments.map(|row| row.chunks_mut(BLOCK));
    let blocks = values.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK)).zip(first).zip(second);
    for (((values, gradients), first), second) in blocks {
        if settings.coupled {
            wide(|| coupled(values, gradients, first, second, factors));
        } else {
            wide(|| decoupled(values, gradients, first, second, factors));
        }
        [&*values, first, second].into_iter().for_each(&mut seen);
    }
}

/// Algorithm 2 of Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, with the decay times the
/// learning rate, and with the correction of the second moment before epsilon is added, as in algorithm 1 of Kingma
/// and Ba, "Adam", ICLR 2015:
///
/// `w -= rate * decay * w`, `m += (1 - b1) * (g - m)`, `v = b2 * v + (1 - b2) * g * g`,
/// `w -= rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn decoupled(values: &mut [f32], gradients: &[f32], first: &mut [f32], second: &mut [f32], by: Factors) {
    for (((value, m), v), gradient) in values.iter_mut().zip(first).zip(second).zip(gradients) {
        let gradient = gradient * by.gradient;
        *m += by.new1 * (gradient - *m);
        *v = by.beta2 * *v + by.new2 * (gradient * gradient);
        *value = *value * by.decay - by.rate * (*m / (v.sqrt() / by.root + by.epsilon));
    }
}

/// Algorithm 1 of Kingma and Ba, ICLR 2015, after `g += decay * w`: the decay passes through both moments.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn coupled(values: &mut [f32], gradients: &[f32], first: &mut [f32], second: &mut [f32], by: Factors) {
    for (((value, m), v), gradient) in values.iter_mut().zip(first).zip(second).zip(gradients) {
        let gradient = gradient * by.gradient + by.decay * *value;
        *m += by.new1 * (gradient - *m);
        *v = by.beta2 * *v + by.new2 * (gradient * gradient);
        *value -= by.rate * (*m / (v.sqrt() / by.root + by.epsilon));
    }
}
