//! Stochastic gradient descent, with and without momentum.

use super::Scale;
use crate::parameters::narrowed;

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

/// `w -= rate * (g + decay * w)`.
pub fn plain(values: &mut [f32], gradients: &[f32], settings: &Settings, scale: Scale) {
    let (rate, decay) = (narrowed(scale.rate), narrowed(settings.decay));
    for (value, gradient) in values.iter_mut().zip(gradients) {
        *value -= rate * (gradient * scale.factor + decay * *value);
    }
}

/// As PyTorch writes it: `g += decay * w`; the buffer `b` is the first gradient and then `b = momentum * b + g`; the step
/// is along `b`, or along `g + momentum * b` (Nesterov, as Sutskever et al., ICML 2013, put it); `w -= rate * step`.
pub fn momentum(values: &mut [f32], gradients: &[f32], buffer: &mut [f32], settings: &Settings, scale: Scale) {
    let (rate, momentum, decay) = (narrowed(scale.rate), narrowed(settings.momentum), narrowed(settings.decay));
    let first_update = scale.updates == 1;
    for ((value, buffer), gradient) in values.iter_mut().zip(buffer).zip(gradients) {
        let gradient = gradient * scale.factor + decay * *value;
        *buffer = if first_update { gradient } else { momentum * *buffer + gradient };
        *value -= rate * if settings.nesterov { gradient + momentum * *buffer } else { *buffer };
    }
}
