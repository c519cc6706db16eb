//! Adam, with the decay added to the gradient or apart from it.

use super::Scale;
use crate::parameters::narrowed;

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
}

/// How far both moments are from being means: `1 - beta^t`, after `updates` updates.
fn corrections(settings: &Settings, updates: u64) -> [f64; 2] {
    #[expect(clippy::cast_precision_loss, reason = "counts of updates are far below 2^53")]
    [settings.beta1, settings.beta2].map(|beta| 1.0 - libm::pow(beta, updates as f64))
}

/// Algorithm 2 of Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, with the decay times the
/// learning rate, and with the correction of the second moment before epsilon is added, as in algorithm 1 of Kingma
/// and Ba, "Adam", ICLR 2015:
///
/// `w -= rate * decay * w`, `m += (1 - b1) * (g - m)`, `v = b2 * v + (1 - b2) * g * g`,
/// `w -= rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)`.
pub fn decoupled(values: &mut [f32], gradients: &[f32], moments: [&mut [f32]; 2], settings: &Settings, scale: Scale) {
    let corrections = corrections(settings, scale.updates);
    let keep = narrowed(1.0 - scale.rate * settings.decay);
    let (rate, root) = (narrowed(scale.rate / corrections[0]), narrowed(corrections[1].sqrt()));
    let (new1, beta2, new2, epsilon) = (
        narrowed(1.0 - settings.beta1),
        narrowed(settings.beta2),
        narrowed(1.0 - settings.beta2),
        narrowed(settings.epsilon),
    );
    let [first, second] = moments;
    for (((value, m), v), gradient) in values.iter_mut().zip(first).zip(second).zip(gradients) {
        let gradient = gradient * scale.factor;
        *m += new1 * (gradient - *m);
        *v = beta2 * *v + new2 * (gradient * gradient);
        *value = *value * keep - rate * (*m / (v.sqrt() / root + epsilon));
    }
}

/// Algorithm 1 of Kingma and Ba, ICLR 2015, after `g += decay * w`: the decay passes through both moments.
pub fn coupled(values: &mut [f32], gradients: &[f32], moments: [&mut [f32]; 2], settings: &Settings, scale: Scale) {
    let corrections = corrections(settings, scale.updates);
    let decay = narrowed(settings.decay);
    let (rate, root) = (narrowed(scale.rate / corrections[0]), narrowed(corrections[1].sqrt()));
    let (new1, beta2, new2, epsilon) = (
        narrowed(1.0 - settings.beta1),
        narrowed(settings.beta2),
        narrowed(1.0 - settings.beta2),
        narrowed(settings.epsilon),
    );
    let [first, second] = moments;
    for (((value, m), v), gradient) in values.iter_mut().zip(first).zip(second).zip(gradients) {
        let gradient = gradient * scale.factor + decay * *value;
        *m += new1 * (gradient - *m);
        *v = beta2 * *v + new2 * (gradient * gradient);
        *value -= rate * (*m / (v.sqrt() / root + epsilon));
    }
}
