//! The learning rate of each step.
//!
//! Pure: the rate follows from the number of the step alone, so there is no state to store, to restore or to advance
//! twice (rows ).

use std::f64::consts::PI;

use xt_core::manifest::candidate::{Curve, Schedule};

/// The learning rate of step `step` (from 1) of a run of `steps` steps.
///
/// The rise is `peak * step / warmup_steps`, so the last step of it is at the peak; without a rise the first step is.
/// After it, `n` steps behind the peak, with `p` going from 0 at the peak to 1 at the last step:
///
/// - constant: `peak`;
/// - linear: `peak * (1 - p * (1 - final))`;
/// - cosine: `peak * (final + (1 - final) * (1 + cos(pi * p)) / 2)`, equation 5 of Loshchilov and Hutter, "SGDR", ICLR 2017;
/// - step: `peak * factor ^ floor(n / every)`, the step decay of He et al., "Deep Residual Learning", CVPR 2016;
/// - inverse square root: `peak * sqrt(t / (t + n))`, equation 3 of Vaswani et al., "Attention Is All You Need", NeurIPS 2017,
///   where `t` is the length of the rise;
/// - warmup-stable-decay (Hu et al., "MiniCPM", 2024): `peak`, and with `q` going from 0 to 1 over the last `decay_steps`
///   steps `peak * (final + (1 - final) * (1 - q))`, or with `sqrt(q)` for `q` (Haegele et al., "Scaling Laws and
///   Compute-Optimal Training Beyond Fixed Training Durations", NeurIPS 2024).
///
/// Cosine and power are those of the `libm` crate, the same on every machine.
#[expect(clippy::cast_precision_loss, reason = "step numbers are far below 2^53")]
pub fn learning_rate(schedule: &Schedule, peak: f64, step: u64, steps: u64) -> f64 {
    let warmup = schedule.warmup_steps();
    if step < warmup {
        return peak * (step as f64 / warmup as f64);
    }
    let at_peak = warmup.max(1);
    let behind = step.saturating_sub(at_peak);
    let progress = (behind as f64 / steps.saturating_sub(at_peak).max(1) as f64).min(1.0);
    match schedule {
        Schedule::Constant { .. } => peak,
        Schedule::Linear { final_fraction, .. } => peak * (1.0 - progress * (1.0 - final_fraction.get())),
        Schedule::Cosine { final_fraction, .. } => {
            let last = final_fraction.get();
            peak * (last + (1.0 - last) * 0.5 * (1.0 + libm::cos(PI * progress)))
        }
        Schedule::Step { every, factor, .. } => peak * libm::pow(factor.get(), (behind / every) as f64),
        Schedule::InverseSquareRoot { timescale_steps, .. } => {
            let scale = *timescale_steps as f64;
            peak * (scale / (scale + behind as f64)).sqrt()
        }
        Schedule::WarmupStableDecay { decay_steps, final_fraction, curve, .. } => {
            let fallen = (step + decay_steps).saturating_sub(steps) as f64 / *decay_steps as f64;
            let fallen = match curve {
                Curve::Linear => fallen,
                Curve::OneMinusRoot => fallen.sqrt(),
            };
            peak * (1.0 - fallen * (1.0 - final_fraction.get()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xt_core::number::Finite;

    fn rates(schedule: &Schedule, steps: u64) -> Vec<f64> {
        (1..=steps).map(|step| learning_rate(schedule, 1.0, step, steps)).collect()
    }

    fn fraction(value: f64) -> Finite {
        Finite::new(value).unwrap()
    }

    #[test]
    fn the_rise_ends_at_the_peak_and_constant_stays_there() {
        assert_eq!(rates(&Schedule::Constant { warmup_steps: 4 }, 6), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(rates(&Schedule::Constant { warmup_steps: 0 }, 2), [1.0, 1.0]);
    }

    #[test]
    fn linear_and_cosine_end_at_their_fraction_at_the_last_step() {
        let linear = Schedule::Linear { warmup_steps: 2, final_fraction: fraction(0.5) };
        assert_eq!(rates(&linear, 6), [0.5, 1.0, 0.875, 0.75, 0.625, 0.5]);
        let linear = Schedule::Linear { warmup_steps: 0, final_fraction: fraction(0.0) };
        assert_eq!(rates(&linear, 5), [1.0, 0.75, 0.5, 0.25, 0.0]);
        let cosine = rates(&Schedule::Cosine { warmup_steps: 1, final_fraction: fraction(0.0) }, 5);
        let expected = [1.0, 0.853_553_390_593_273_7, 0.5, 0.146_446_609_406_726_24, 0.0];
        assert!(cosine.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-15), "{cosine:?}");
    }

    #[test]
    fn a_rise_as_long_as_the_run_never_falls() {
        for warmup_steps in [3, 4] {
            let rates = rates(&Schedule::Linear { warmup_steps, final_fraction: fraction(0.0) }, 3);
            assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
        }
        assert_eq!(rates(&Schedule::Cosine { warmup_steps: 0, final_fraction: fraction(0.0) }, 1), [1.0]);
    }

    #[test]
    fn steps_fall_at_once_and_the_inverse_square_root_starts_at_the_peak() {
        let step = Schedule::Step { warmup_steps: 2, every: 2, factor: fraction(0.5) };
        assert_eq!(rates(&step, 7), [0.5, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25]);
        let root = Schedule::InverseSquareRoot { warmup_steps: 4, timescale_steps: 4 };
        assert_eq!(rates(&root, 16)[3..], (4..=16).map(|step| (4.0 / f64::from(step)).sqrt()).collect::<Vec<_>>());
        let root = Schedule::InverseSquareRoot { warmup_steps: 0, timescale_steps: 3 };
        assert_eq!((rates(&root, 10)[0], rates(&root, 10)[9]), (1.0, 0.5));
    }

    #[test]
    fn a_stable_rate_falls_over_the_last_steps_alone() {
        let stable = |curve| Schedule::WarmupStableDecay {
            warmup_steps: 2,
            decay_steps: 4,
            final_fraction: fraction(0.0),
            curve,
        };
        assert_eq!(rates(&stable(Curve::Linear), 8), [0.5, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]);
        assert_eq!(rates(&stable(Curve::OneMinusRoot), 8)[3..6], [1.0, 0.5, 1.0 - 0.5f64.sqrt()]);
        assert_eq!(rates(&stable(Curve::OneMinusRoot), 8)[7], 0.0);
    }
}
