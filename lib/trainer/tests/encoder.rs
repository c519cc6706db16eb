//! The family encoder against numbers that transformers gave; see `reference/README.md`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use serde_json::Value;
use tch::{Reduction, Tensor};
use xt_core::manifest::candidate::{Decay, Model, Precision};
use xt_core::number::Finite;
use xt_core::verb::parameters::parameters as known;
use xt_data::labelled::FILLED;
use xt_torch::memory::floats;
use xt_trainer::model::{Network, blind, family};
use xt_trainer::parameters::Parameters;
use xt_trainer::precision::computing;
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

fn model(heads: u64) -> Model {
    let [dropout, layer_norm_epsilon, initializer_range] = [0.0, 1e-12, 0.02].map(|value| Finite::new(value).unwrap());
    Model::Encoder {
        layers: 2,
        heads,
        width: 16,
        inner: 20,
        context: 8,
        vocabulary: 11,
        segments: 2,
        outputs: 3,
        dropout,
        layer_norm_epsilon,
        initializer_range,
    }
}

fn filled(heads: u64) -> (Parameters, Box<dyn Network>) {
    let family = family(&model(heads)).unwrap();
    let mut parameters = Parameters::new(family.parameters(), Decay::All).unwrap();
    let spans = parameters.layout.spans().to_vec();
    for (salt, span) in spans.iter().enumerate() {
        let shift = if span.declared.name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
        let values: Vec<f32> = ramp(span.count, 100 + salt, 0.5).into_iter().map(|value| value + shift).collect();
        parameters.values.values_mut()[span.offset..span.offset + span.count].copy_from_slice(&values);
    }
    parameters.require_gradients(|_| true).unwrap();
    let network = family.network(&parameters).unwrap();
    (parameters, network)
}

/// Texts of six and four tokens in rows of `length` places.
fn texts(length: usize) -> Tensor {
    let row = |factor: usize, shift: usize, count: usize| {
        (0..length).map(move |i| if i < count { ((i * factor + shift) % 11) as f32 } else { FILLED })
    };
    let all: Vec<f32> = row(5, 3, 6).chain(row(7, 1, 4)).collect();
    Tensor::from_slice(&all).view([2, -1])
}

/// Also the names of the parameters, and the list that the compiler has of them.
#[test]
fn logits_loss_and_gradients_are_those_of_transformers() {
    let answers: Value = serde_json::from_str(include_str!("reference/encoder.json")).unwrap();
    let answers = answers.as_object().unwrap();
    assert_eq!(answers.len(), 2);
    for (heads, answer) in answers {
        let heads: u64 = heads.parse().unwrap();
        let (mut parameters, network) = filled(heads);
        let spans = parameters.layout.spans().to_vec();
        let names: Vec<&str> = spans.iter().map(|span| span.declared.name.as_str()).collect();
        assert_eq!(names, answer["names"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect::<Vec<_>>());
        let shape = |shape: &[i64]| shape.iter().map(|size| u64::try_from(*size).unwrap()).collect::<Vec<_>>();
        let declared: Vec<_> =
            spans.iter().map(|span| (span.declared.name.clone(), shape(&span.declared.shape))).collect();
        let listed: Vec<_> = known(&model(heads)).into_iter().map(|one| (one.name, one.shape)).collect();
        assert_eq!(declared, listed);
        let mut counts = Counts::default();
        let look = &mut |name: &str, tensor: &Tensor| counts.look(name, tensor);
        let logits = network.forward(&texts(7), None, look).unwrap();
        assert_close(floats(&logits).unwrap(), &answer["logits"], 1e-5, "logits");
        assert_eq!(counts.non_finite(), 0);
        let due = Tensor::from_slice(&[2i64, 0]);
        let loss = logits.cross_entropy_loss::<Tensor>(&due, None, Reduction::Mean, -100, 0.0);
        assert!((loss.double_value(&[]) - answer["loss"].as_f64().unwrap()).abs() < 1e-6, "{heads}");
        loss.backward();
        let gradients = parameters.take_gradients().unwrap();
        for (span, values) in spans.iter().zip(gradients.tensors()) {
            let name = &span.declared.name;
            assert_close(values.unwrap(), &answer["gradients"][name], 1e-5, &format!("{heads} {name}"));
        }
    }
}

/// How long the rows are changes nothing, not even a bit; one more token does.
#[test]
fn where_a_text_was_filled_up_nothing_looks() {
    let (_parameters, network) = filled(4);
    let logits = |seen: &Tensor| floats(&network.forward(seen, None, &mut blind).unwrap()).unwrap().to_vec();
    let base = logits(&texts(6));
    assert_eq!(logits(&texts(8)), base);
    // Alone, the shorter text is computed without any place behind it.
    let alone = logits(&texts(6).narrow(0, 1, 1));
    for (alone, beside) in alone.iter().zip(&base[3..]) {
        assert!((alone - beside).abs() < 1e-5, "{alone} {beside}");
    }
    let longer = texts(6);
    drop(longer.get(1).get(4).fill_(5.0));
    let changed = logits(&longer);
    assert_eq!(changed[..3], base[..3]);
    assert!((changed[3] - base[3]).abs() > 1e-3);
}

/// Autocast computes products in the narrow numbers: near the wide ones, and not equal to them.
#[test]
fn narrow_products_give_nearly_the_same_logits() {
    let (_parameters, network) = filled(4);
    let logits = |precision| {
        let found = computing(precision, || network.forward(&texts(6), None, &mut blind)).unwrap();
        floats(&found).unwrap().to_vec()
    };
    let wide = logits(Precision::Float32);
    for (precision, tolerance) in [(Precision::Float16, 0.05), (Precision::Bfloat16, 0.3)] {
        let narrow = logits(precision);
        assert_ne!(narrow, wide);
        for (narrow, wide) in narrow.iter().zip(&wide) {
            assert!((narrow - wide).abs() < tolerance, "{precision}: {narrow} {wide}");
        }
    }
}
