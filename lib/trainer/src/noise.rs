//! Noise on the weights, added once when a branch leaves from a state.

use xt_core::manifest::branch::Noise;
use xt_core::random::Stream;

use crate::normal::normal;
use crate::parameters::narrowed;
use crate::state::State;

/// Adds normal deviates to all parameters: each tensor has draws of its own, with a standard deviation relative to the root
/// of the mean square of its values. Sums are in binary64 and in the order of memory, so no processor changes a bit.
pub fn add(state: &mut State, noise: &Noise) {
    let memory = state.memory_mut();
    let values = memory.values.values_mut();
    for (place, span) in (0..).zip(memory.layout.spans()) {
        let values = &mut values[span.offset..span.offset + span.count];
        let squares: f64 = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
        #[expect(clippy::cast_precision_loss, reason = "no tensor has 2^53 values")]
        let scale = noise.relative.get() * (squares / values.len().max(1) as f64).sqrt();
        let draws = Stream::new(noise.seed, "weight-noise", place);
        for (index, value) in (0..).zip(values) {
            *value = narrowed(f64::from(*value) + scale * normal(&draws, index));
        }
    }
}
