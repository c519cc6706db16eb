//! Stochastic gradient descent, with and without momentum.

use xt_torch::wide::wide;

use super::{Scale, Stretch};
use crate::parameters::narrowed;
use crate::probe::BLOCK;

/// The constants of the descent.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Momentum.
    pub momentum: f64,
    /// Whether the momentum looks ahead.
    pub nesterov: bool,
    /// How strongly these weights decay.
    pub decay: f64,
}

/// What one update multiplies by.
#[derive(Clone, Copy, Debug)]
struct Factors {
    gradient: f32,
    rate: f32,
    momentum: f32,
    decay: f32,
}

impl Factors {
    fn of(settings: &Settings, scale: Scale) -> Self {
        Self {
            gradient: scale.factor,
            rate: narrowed(scale.rate),
            momentum: narrowed(settings.momentum),
            decay: narrowed(settings.decay),
        }
    }
}

/// `w -= rate * (g + decay * w)`; `seen` is shown each block of weights behind it.
pub fn plain(stretch: Stretch<'_>, settings: &Settings, scale: Scale, mut seen: impl FnMut(&[f32])) {
    let Stretch { values, gradients } = stretch;
    let by = Factors::of(settings, scale);
    for (values, gradients) in values.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK)) {
        wide(|| plain_block(values, gradients, by));
        seen(values);
    }
}

/// As PyTorch writes it: `g += decay * w`; the buffer `b` is the first gradient and then `b = momentum * b + g`; the step
/// is along `b`, or along `g + momentum * b` (Nesterov, as Sutskever et al., ICML 2013, put it); `w -= rate * step`. `seen`
/// is shown each block of weights and buffer behind it.
pub fn momentum(
    stretch: Stretch<'_>,
    buffer: &mut [f32],
    settings: &Settings,
    scale: Scale,
    mut seen: impl FnMut(&[f32]),
) {
    let Stretch { values, gradients } = stretch;
    let by = Factors::of(settings, scale);
    let (first_update, nesterov) = (scale.updates == 1, settings.nesterov);
    let blocks = values.chunks_mut(BLOCK).zip(gradients.chunks(BLOCK)).zip(buffer.chunks_mut(BLOCK));
    for ((values, gradients), buffer) in blocks {
        match (first_update, nesterov) {
            (false, false) => wide(|| momentum_block::<false, false>(values, gradients, buffer, by)),
            (false, true) => wide(|| momentum_block::<false, true>(values, gradients, buffer, by)),
            (true, false) => wide(|| momentum_block::<true, false>(values, gradients, buffer, by)),
            (true, true) => wide(|| momentum_block::<true, true>(values, gradients, buffer, by)),
        }
        [&*values, buffer].into_iter().for_each(&mut seen);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn plain_block(values: &mut [f32], gradients: &[f32], by: Factors) {
    for (value, gradient) in values.iter_mut().zip(gradients) {
        *value -= by.rate * (gradient * by.gradient + by.decay * *value);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn momentum_block<const FIRST: bool, const NESTEROV: bool>(
    values: &mut [f32],
    gradients: &[f32],
    buffer: &mut [f32],
    by: Factors,
) {
    for ((value, buffer), gradient) in values.iter_mut().zip(buffer).zip(gradients) {
        let gradient = gradient * by.gradient + by.decay * *value;
        *buffer = if FIRST { gradient } else { by.momentum * *buffer + gradient };
        *value -= by.rate * if NESTEROV { gradient + by.momentum * *buffer } else { *buffer };
    }
}
