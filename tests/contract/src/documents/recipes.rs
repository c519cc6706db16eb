//! Candidates whose recipes differ.

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::{Candidate, Clipping, Curve, Decay, Model, Optimizer, Schedule};

use super::{dataset, number};

/// Candidates with the optimisers, schedules and clippings that the first ones lack.
pub fn candidates(like: impl Fn(&str, Digest) -> Candidate) -> Vec<Candidate> {
    let [learning_rate, beta1, beta2, weight_decay] = [0.002, 0.85, 0.97, 0.03].map(number);
    let decay = Decay::Matrices;
    let stable =
        |curve| Schedule::WarmupStableDecay { warmup_steps: 2, decay_steps: 4, final_fraction: number(0.05), curve };
    let adafactor = Optimizer::Adafactor {
        learning_rate,
        decay_power: number(0.7),
        epsilon: number(1e-7),
        minimum_scale: number(0.002),
        update_limit: number(1.5),
        weight_decay,
        decay,
    };
    let recipes = [
        (
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon: number(2e-8), weight_decay, decay },
            Schedule::Step { warmup_steps: 1, every: 4, factor: number(0.5) },
        ),
        (
            Optimizer::Lion { learning_rate, beta1, beta2, weight_decay, decay },
            Schedule::InverseSquareRoot { warmup_steps: 2, timescale_steps: 5 },
        ),
        (adafactor.clone(), stable(Curve::Linear)),
        (adafactor, stable(Curve::OneMinusRoot)),
    ];
    let named = (4..).zip(recipes).map(|(n, (optimizer, schedule))| {
        let clipping = Clipping::Value { maximum: number(0.4) };
        Candidate { optimizer, schedule, clipping, ..like(&format!("recipe-{n}"), dataset().id()) }
    });
    named.chain([llama(like("llama", dataset().id()))]).collect()
}

/// The same for a llama.
fn llama(like: Candidate) -> Candidate {
    let model = Model::Llama {
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        width: 24,
        inner: 40,
        context: 16,
        vocabulary: 260,
        tied: true,
        rotary_base: number(500.0),
        dropout: number(0.05),
        rms_norm_epsilon: number(2e-6),
        initializer_range: number(0.03),
    };
    Candidate { model, ..like }
}
