//! The family llama against numbers that transformers gave; see `reference/README.md`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use serde_json::Value;
use tch::{Reduction, Tensor};
use xt_core::manifest::candidate::{Decay, Model};
use xt_core::number::Finite;
use xt_core::verb::parameters::parameters as known;
use xt_torch::memory::floats;
use xt_trainer::model::{Network, blind, family};
use xt_trainer::parameters::Parameters;
use xt_trainer::probe::Counts;

/// As `ramp` of make.py.
fn ramp(count: usize, salt: usize, scale: f64) -> Vec<f32> {
    let integer = |i: usize| (i * 7919 + salt * 104_729) % 2001;
    (0..count).map(|i| ((integer(i) as f64 - 1000.0) / 1000.0 * scale) as f32).collect()
}

/// Fails unless each value is the expected one to `tolerance`, relative to the larger of it and 1.
fn assert_close(found: &[f32], expected: &Value, tolerance: f64, what: &str) {
    let expected = expected.as_array().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected.as_f64().unwrap();
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}[{index}]: {found} for {expected}");
    }
}

/// As `KINDS` of llama.py.
fn model(kind: &str) -> Model {
    let (heads, key_value_heads, tied, base) = match kind {
        "grouped" => (4, 2, false, 10_000.0),
        "single" => (2, 1, true, 500.0),
        _ => (2, 2, false, 10_000.0),
    };
    let [rotary_base, dropout, rms_norm_epsilon, initializer_range] =
        [base, 0.0, 1e-5, 0.02].map(|value| Finite::new(value).unwrap());
    Model::Llama {
        layers: 2,
        heads,
        key_value_heads,
        width: 16,
        inner: 20,
        context: 6,
        vocabulary: 11,
        tied,
        rotary_base,
        dropout,
        rms_norm_epsilon,
        initializer_range,
    }
}

fn filled(kind: &str) -> (Parameters, Box<dyn Network>) {
    let family = family(&model(kind)).unwrap();
    let mut parameters = Parameters::new(family.parameters(), Decay::All).unwrap();
    let spans = parameters.layout.spans().to_vec();
    for (salt, span) in spans.iter().enumerate() {
        let shift = if span.declared.name.contains("norm") { 1.0 } else { 0.0 };
        let values: Vec<f32> = ramp(span.count, 100 + salt, 0.5).into_iter().map(|value| value + shift).collect();
        parameters.values.values_mut()[span.offset..span.offset + span.count].copy_from_slice(&values);
    }
    parameters.require_gradients(|_| true).unwrap();
    let network = family.network(&parameters).unwrap();
    (parameters, network)
}

/// Also the names of the parameters, and the list that the compiler has of them.
#[test]
fn logits_loss_and_gradients_are_those_of_transformers() {
    let answers: Value = serde_json::from_str(include_str!("reference/llama.json")).unwrap();
    let answers = answers.as_object().unwrap();
    assert_eq!(answers.len(), 3);
    for (kind, answer) in answers {
        let (mut parameters, network) = filled(kind);
        let spans = parameters.layout.spans().to_vec();
        let names: Vec<&str> = spans.iter().map(|span| span.declared.name.as_str()).collect();
        assert_eq!(names, answer["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect::<Vec<_>>());
        let shape = |shape: &[i64]| shape.iter().map(|size| u64::try_from(*size).unwrap()).collect::<Vec<_>>();
        let declared: Vec<_> =
            spans.iter().map(|span| (span.declared.name.clone(), shape(&span.declared.shape))).collect();
        let listed: Vec<_> = known(&model(kind)).into_iter().map(|one| (one.name, one.shape)).collect();
        assert_eq!(declared, listed);
        let row = |factor: i64, shift: i64| (0..7).map(move |i| (i * factor + shift) % 11);
        let windows: Vec<Vec<i64>> = vec![row(5, 3).collect(), row(7, 1).collect()];
        let seen: Vec<i64> = windows.iter().flat_map(|window| window[..6].to_vec()).collect();
        let due: Vec<i64> = windows.iter().flat_map(|window| window[1..].to_vec()).collect();
        let mut counts = Counts::default();
        let look = &mut |name: &str, tensor: &Tensor| counts.look(name, tensor);
        let logits = network.forward(&Tensor::from_slice(&seen).view([2, 6]), None, look).unwrap();
        assert_close(floats(&logits).unwrap(), &answer["logits"], 1e-5, kind);
        assert_eq!(counts.non_finite(), 0);
        let loss = logits.cross_entropy_loss::<Tensor>(&Tensor::from_slice(&due), None, Reduction::Mean, -100, 0.0);
        assert!((loss.double_value(&[]) - answer["loss"].as_f64().unwrap()).abs() < 1e-6, "{kind}");
        loss.backward();
        let gradients = parameters.take_gradients().unwrap();
        for (span, values) in spans.iter().zip(gradients.tensors()) {
            let name = &span.declared.name;
            assert_close(values.unwrap(), &answer["gradients"][name], 1e-5, &format!("{kind} {name}"));
        }
    }
}

/// A later token changes no earlier logit, and a window shorter than the context gives the same logits.
#[test]
fn a_position_does_not_see_the_future() {
    for kind in ["grouped", "single"] {
        let (_parameters, network) = filled(kind);
        let logits = |tokens: &[i64]| {
            let logits = network.forward(&Tensor::from_slice(tokens).view([1, -1]), None, &mut blind).unwrap();
            floats(&logits).unwrap().to_vec()
        };
        let (base, changed) = (logits(&[1, 2, 3, 4, 5, 6]), logits(&[1, 2, 3, 4, 9, 9]));
        assert_eq!(base[..44], changed[..44]);
        assert_ne!(base[44..], changed[44..]);
        // Where a token stands counts, although no position was learned.
        assert_ne!(logits(&[1, 2, 3, 4])[33..44], logits(&[2, 1, 3, 4])[33..44]);
        for (short, long) in logits(&[1, 2, 3, 4]).iter().zip(&base) {
            assert!((short - long).abs() < 1e-5, "{short} {long}");
        }
    }
}
