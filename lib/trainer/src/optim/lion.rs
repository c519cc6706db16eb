//! Lion: steps of one size along a sign.

use super::Scale;
use crate::parameters::narrowed;

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

/// Program 1 of Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, with the decay times the
/// learning rate: `w -= rate * decay * w`, `w -= rate * sign(b1 * m + (1 - b1) * g)`, `m = b2 * m + (1 - b2) * g`.
pub fn update(values: &mut [f32], gradients: &[f32], momentum: &mut [f32], settings: &Settings, scale: Scale) {
    let (rate, keep) = (narrowed(scale.rate), narrowed(1.0 - scale.rate * settings.decay));
    let (beta1, new1) = (narrowed(settings.beta1), narrowed(1.0 - settings.beta1));
    let (beta2, new2) = (narrowed(settings.beta2), narrowed(1.0 - settings.beta2));
    for ((value, momentum), gradient) in values.iter_mut().zip(momentum).zip(gradients) {
        let gradient = gradient * scale.factor;
        let mixture = beta1 * *momentum + new1 * gradient;
        *value = *value * keep - rate * sign(mixture);
        *momentum = beta2 * *momentum + new2 * gradient;
    }
}

/// 0 for both zeros, and NaN for NaN: a step that is unknown must not look like one that is 0.
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
