//! Candidates whose recipes differ.

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::{Adapter, Base, Candidate, Clipping, Curve, Decay, Model, Optimizer, Schedule};

use super::{dataset, digest, number};

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
    named.chain([llama(like("llama", dataset().id()))]).chain(based(&like)).collect()
}

/// Candidates that begin from a bundle and from a file of parameters, with adapters and without.
fn based(like: &impl Fn(&str, Digest) -> Candidate) -> Vec<Candidate> {
    let texts = |all: &[&str]| all.iter().map(|text| String::from(*text)).collect();
    let lora = Adapter::Lora {
        rank: 3,
        alpha: number(4.5),
        dropout: number(0.05),
        targets: texts(&["*.attn.c_attn"]),
        saved: texts(&["*.ln_f.*"]),
    };
    let both = [("plain", Adapter::None {}), ("lora", lora)];
    let bases = both.into_iter().flat_map(|(name, adapter)| {
        let adapter = Box::new(adapter);
        let (digest, weights) = (digest("bundle"), digest("weights"));
        let bundle = Base::Bundle { digest, weights, adapter: adapter.clone() };
        let file = Base::Safetensors {
            digest: super::digest("model.safetensors"),
            configuration: super::digest("config.json"),
            prefix: String::from("transformer."),
            fresh: texts(&["*.ln_f.*"]),
            unused: texts(&["h.*.attn.bias"]),
            adapter,
        };
        [(format!("bundle-{name}"), bundle), (format!("file-{name}"), file)]
    });
    bases.map(|(name, base)| Candidate { base, ..like(&name, dataset().id()) }).collect()
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
