//! The families mlp and cnn, and the losses of what is no text, against numbers that PyTorch gave; see
//! `reference/README.md`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use serde_json::Value;
use tch::Tensor;
use xt_core::manifest::candidate::{Decay, Model, Objective};
use xt_core::manifest::network::{Activation, Convolution};
use xt_core::number::Finite;
use xt_torch::memory::floats;
use xt_trainer::model::{blind, family};
use xt_trainer::objective::{loss, losses};
use xt_trainer::parameters::Parameters;

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

fn finite(value: f64) -> Finite {
    Finite::new(value).unwrap()
}

fn model(kind: &str, activation: Activation, outputs: u64) -> Model {
    let (dropout, initializer_gain) = (finite(0.0), finite(1.0));
    if kind == "mlp" {
        return Model::Mlp { inputs: 4, widths: vec![6, 5], outputs, activation, dropout, initializer_gain };
    }
    let convolutions = vec![
        Convolution { channels: 3, kernel: 3, stride: 1, padding: 1, pool: 2 },
        Convolution { channels: 4, kernel: 2, stride: 2, padding: 0, pool: 1 },
    ];
    let (channels, height, width, widths) = (2, 8, 5, vec![5]);
    Model::Cnn { channels, height, width, convolutions, widths, outputs, activation, dropout, initializer_gain }
}

fn objective(name: &str) -> Objective {
    match name {
        "cross-entropy" => Objective::CrossEntropy { label_smoothing: finite(0.0), z_loss: finite(0.0) },
        "smoothed" => Objective::CrossEntropy { label_smoothing: finite(0.1), z_loss: finite(0.01) },
        "binary-cross-entropy" => Objective::BinaryCrossEntropy {},
        "mean-squared-error" => Objective::MeanSquaredError {},
        _ => Objective::Huber { delta: finite(0.5) },
    }
}

fn outputs(name: &str) -> u64 {
    if ["cross-entropy", "smoothed"].contains(&name) { 3 } else { 1 }
}

fn due(name: &str) -> Tensor {
    match name {
        "cross-entropy" | "smoothed" => Tensor::from_slice(&[0i64, 2, 1, 1, 2]),
        "binary-cross-entropy" => Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0, 1.0]),
        _ => Tensor::from_slice(&ramp(5, 7, 2.0)),
    }
}

/// The compiler's list of parameters, which patterns are held against, is the trainer's.
fn check_names(model: &Model, parameters: &Parameters) {
    let declared =
        parameters.layout.spans().iter().map(|span| (span.declared.name.clone(), span.declared.shape.clone()));
    let listed = xt_core::verb::parameters::parameters(model).into_iter();
    let listed = listed.map(|one| (one.name, one.shape.iter().map(|size| i64::try_from(*size).unwrap()).collect()));
    assert_eq!(declared.collect::<Vec<_>>(), listed.collect::<Vec<_>>());
}

#[test]
fn outputs_losses_and_gradients_are_those_of_pytorch() {
    let answers: Value = serde_json::from_str(include_str!("reference/families.json")).unwrap();
    let answers = answers.as_object().unwrap();
    assert_eq!(answers.len(), 30, "two families, five losses, three activations");
    for (key, answer) in answers {
        let [kind, name, activation] = key.split('/').collect::<Vec<_>>().try_into().unwrap();
        let activation = Activation::parse(activation).unwrap();
        let family = family(&model(kind, activation, outputs(name))).unwrap();
        let mut parameters = Parameters::new(family.parameters(), Decay::All).unwrap();
        check_names(&model(kind, activation, outputs(name)), &parameters);
        let spans = parameters.layout.spans().to_vec();
        for (salt, span) in spans.iter().enumerate() {
            let values = ramp(span.count, 100 + salt, 0.5);
            parameters.values.values_mut()[span.offset..span.offset + span.count].copy_from_slice(&values);
        }
        parameters.require_gradients(|_| true).unwrap();
        let network = family.network(&parameters).unwrap();
        let seen = if kind == "mlp" { ramp(20, 50, 1.0) } else { ramp(400, 60, 1.0) };
        let outputs = network.forward(&Tensor::from_slice(&seen).view([5, -1]), None, &mut blind).unwrap();
        assert_close(floats(&outputs).unwrap(), &answer["outputs"], 1e-5, key);
        let loss = loss(&objective(name), &outputs, &due(name)).unwrap();
        assert_close(&[loss.double_value(&[]) as f32], &Value::Array(vec![answer["loss"].clone()]), 1e-6, key);
        loss.backward();
        let expected = answer["gradients"].as_object().unwrap();
        assert_eq!(expected.len(), spans.len(), "{key}");
        let gradients = parameters.take_gradients().unwrap();
        for (span, values) in spans.iter().zip(gradients.tensors()) {
            let name = &span.declared.name;
            assert_close(values.unwrap(), &expected[name], 1e-5, &format!("{key} {name}"));
        }
    }
}

/// Evaluations measure the plain loss, whatever was smoothed for training.
#[test]
fn losses_of_single_samples_are_neither_smoothed_nor_added_to() {
    let outputs = Tensor::from_slice(&ramp(15, 3, 2.0)).view([5, -1]);
    let single = |name: &str| losses(&objective(name), &outputs, &due(name)).unwrap();
    assert_eq!(single("smoothed"), single("cross-entropy"));
    let mean = |name: &str| loss(&objective(name), &outputs, &due(name)).unwrap().double_value(&[]);
    assert!((mean("smoothed") - mean("cross-entropy")).abs() > 0.01);
}

/// The losses of single samples, of which evaluations are made, have the mean that is minimised.
#[test]
fn losses_of_single_samples_have_the_mean_that_is_minimised() {
    for name in ["cross-entropy", "binary-cross-entropy", "mean-squared-error", "huber"] {
        let outputs = Tensor::from_slice(&ramp(if name == "cross-entropy" { 15 } else { 5 }, 3, 2.0)).view([5, -1]);
        let single = losses(&objective(name), &outputs, &due(name)).unwrap();
        let mean = loss(&objective(name), &outputs, &due(name)).unwrap().double_value(&[]);
        let single = floats(&single).unwrap();
        assert_eq!(single.len(), 5, "{name}");
        assert!((single.iter().map(|loss| f64::from(*loss)).sum::<f64>() / 5.0 - mean).abs() < 1e-6, "{name}");
    }
}
