//! Optimisers, schedules, clipping and the model against numbers that PyTorch and transformers gave; see
//! `reference/README.md`.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

use serde_json::Value;
use tch::{Kind, Reduction, Tensor};
use xt_core::manifest::candidate::{Averaging, Curve, Decay, Group, Model, Objective, Optimizer, Schedule, Treatment};
use xt_core::number::Finite;
use xt_core::verb::parameters::parameters as parameters_of;
use xt_data::records::Sample;
use xt_torch::memory::{Flat, floats};
use xt_trainer::average::Average;
use xt_trainer::evaluate::losses;
use xt_trainer::gradients::Gradients;
use xt_trainer::layout::{Declared, Layout, Start};
use xt_trainer::model::gpt::{Gpt, Sizes, blind};
use xt_trainer::objective;
use xt_trainer::optim::{Optim, Update, clipping_factor, norm};
use xt_trainer::parameters::Parameters;
use xt_trainer::probe::Counts;
use xt_trainer::schedule::learning_rate;

fn numbers(path: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("reference/numbers.json")).unwrap();
    all.pointer(path).unwrap_or_else(|| panic!("{path}")).clone()
}

fn list(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// As `ramp` of make.py.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn ramp(count: usize, salt: usize, scale: f64) -> Vec<f32> {
    let integer = |i: usize| (i * 7919 + salt * 104_729) % 2001;
    (0..count).map(|i| ((integer(i) as f64 - 1000.0) / 1000.0 * scale) as f32).collect()
}

/// Fails unless each value is the expected one to `tolerance`, relative to the larger of it and 1.
fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}[{index}]: {found} for {expected}");
    }
}

fn finite(value: f64) -> Finite {
    Finite::new(value).unwrap()
}

fn layout() -> Layout {
    let declared = |name: &str, shape: &[i64]| Declared { name: name.into(), shape: shape.into(), start: Start::Zeros };
    Layout::new(vec![declared("a", &[3, 4]), declared("b", &[5])], Decay::Matrices)
}

/// A row in the layout of `layout`.
fn row(a: &[f32], b: &[f32]) -> Vec<f32> {
    let layout = layout();
    let mut row = vec![0.0; layout.length()];
    for (span, values) in layout.spans().iter().zip([a, b]) {
        row[span.offset..span.offset + span.count].copy_from_slice(values);
    }
    row
}

/// A row, tensor by tensor.
fn cut<'a>(layout: &Layout, row: &'a [f32]) -> Vec<Option<&'a [f32]>> {
    layout.spans().iter().map(|span| Some(span.of(row))).collect()
}

fn check_optimizer(name: &str, settings: &Optimizer) {
    let layout = layout();
    let mut optimizer = Optim::new(settings, &[], &layout).unwrap();
    let mut values = row(&ramp(12, 1, 1.0), &ramp(5, 2, 1.0));
    let answers = numbers(&format!("/optimisers/{name}"));
    for (step, answer) in answers.as_array().unwrap().iter().enumerate() {
        let gradients = row(&ramp(12, 10 + step, 0.5), &ramp(5, 20 + step, 0.5));
        let gradients = cut(&layout, &gradients);
        optimizer.update(&layout, &mut values, Update { gradients: &gradients, rate: 0.1, factor: 1.0 }, |_| ());
        for (span, key) in layout.spans().iter().zip(["a", "b"]) {
            assert_close(span.of(&values), &list(&answer[key]), 1e-6, &format!("{name} step {step} {key}"));
        }
    }
    assert_eq!(optimizer.updates(), 6);
    let gaps: f32 = values.iter().sum::<f32>() - layout.spans().iter().flat_map(|span| span.of(&values)).sum::<f32>();
    assert!(gaps.abs() < 1e-5, "the gaps of the row stay zero");
}

#[test]
fn adamw_takes_the_steps_of_pytorch() {
    let [learning_rate, beta1, beta2, epsilon, weight_decay] = [0.1, 0.9, 0.95, 1e-8, 0.1].map(finite);
    let decay = Decay::Matrices;
    check_optimizer("adamw", &Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, decay });
}

#[test]
fn adam_lion_and_adafactor_take_the_steps_of_pytorch() {
    let [learning_rate, beta1, beta2, epsilon, weight_decay] = [0.1, 0.9, 0.95, 1e-8, 0.1].map(finite);
    let decay = Decay::Matrices;
    check_optimizer("adam", &Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay, decay });
    check_optimizer("lion", &Optimizer::Lion { learning_rate, beta1, beta2, weight_decay, decay });
    let [decay_power, epsilon, minimum_scale, update_limit] = [0.7, 1e-4, 0.002, 1.0].map(finite);
    check_optimizer(
        "adafactor",
        &Optimizer::Adafactor { learning_rate, decay_power, epsilon, minimum_scale, update_limit, weight_decay, decay },
    );
}

#[test]
fn sgd_with_and_without_momentum_takes_the_steps_of_pytorch() {
    for (name, momentum, nesterov) in [("sgd", 0.0, false), ("momentum", 0.9, false), ("nesterov", 0.9, true)] {
        let [learning_rate, momentum, weight_decay] = [0.1, momentum, 0.1].map(finite);
        check_optimizer(
            name,
            &Optimizer::Sgd { learning_rate, momentum, nesterov, weight_decay, decay: Decay::Matrices },
        );
    }
}

/// A group with half the rate and a decay of its own, one that is frozen, and the average of all after each update.
#[test]
fn groups_and_averages_are_those_of_pytorch_and_frozen_values_stay() {
    let group = |pattern: &str, treatment| Group { pattern: pattern.into(), treatment };
    let half = Treatment::Trained { learning_rate_factor: finite(0.5), weight_decay: Some(finite(0.3)) };
    let [learning_rate, beta1, beta2, epsilon, weight_decay] = [0.1, 0.9, 0.95, 1e-8, 0.1].map(finite);
    let decay = Decay::Matrices;
    let settings = Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, decay };
    let declared = |name: &str, shape: &[i64]| Declared { name: name.into(), shape: shape.into(), start: Start::Zeros };
    for frozen in [false, true] {
        let mut groups = vec![group("a", half.clone())];
        groups.extend(frozen.then(|| group("?", Treatment::Frozen {})));
        let mut parameters =
            Parameters::new(vec![declared("a", &[3, 4]), declared("b", &[5])], Decay::Matrices).unwrap();
        let start = row(&ramp(12, 1, 1.0), &ramp(5, 2, 1.0));
        parameters.values.values_mut().copy_from_slice(&start);
        let mut optimizer = Optim::new(&settings, &groups, &parameters.layout).unwrap();
        let averaging = Averaging::Exponential { decay: finite(0.8), first_step: 1 };
        let mut average = Average::new(&averaging, &parameters).unwrap().unwrap();
        for step in 0..6 {
            let gradients = row(&ramp(12, 10 + step, 0.5), &ramp(5, 20 + step, 0.5));
            let update = Update { gradients: &cut(&parameters.layout, &gradients), rate: 0.1, factor: 1.0 };
            optimizer.update(&parameters.layout, parameters.values.values_mut(), update, |_| ());
            average.take_in(step as u64 + 1, parameters.values.values(), |_| ());
            for (part, found) in [("values", &parameters.values), ("averages", &average.memory().values)] {
                let answer = numbers(&format!("/grouped/{part}/{step}"));
                let (a, b) = (&parameters.layout.spans()[0], &parameters.layout.spans()[1]);
                assert_close(a.of(found.values()), &list(&answer["a"]), 1e-6, &format!("{part} {step} a"));
                if frozen {
                    assert_eq!(b.of(found.values()), b.of(&start));
                } else {
                    assert_close(b.of(found.values()), &list(&answer["b"]), 1e-6, &format!("{part} {step} b"));
                    assert_ne!(b.of(found.values()), b.of(&start));
                }
            }
        }
    }
}

#[test]
fn schedules_give_the_rates_of_pytorch() {
    let (warmup_steps, peak) = (4, 0.5);
    let stable =
        |curve| Schedule::WarmupStableDecay { warmup_steps, decay_steps: 5, final_fraction: finite(0.1), curve };
    let cases = [
        ("constant", Schedule::Constant { warmup_steps }),
        ("linear", Schedule::Linear { warmup_steps, final_fraction: finite(0.2) }),
        ("cosine", Schedule::Cosine { warmup_steps, final_fraction: finite(0.1) }),
        ("step", Schedule::Step { warmup_steps, every: 3, factor: finite(0.3) }),
        ("inverse-square-root", Schedule::InverseSquareRoot { warmup_steps, timescale_steps: 6 }),
        ("inverse-square-root-as-vaswani", Schedule::InverseSquareRoot { warmup_steps, timescale_steps: 4 }),
        ("warmup-stable-decay-linear", stable(Curve::Linear)),
        ("warmup-stable-decay-one-minus-root", stable(Curve::OneMinusRoot)),
    ];
    for (name, schedule) in cases {
        let rates = list(&numbers(&format!("/schedules/{name}")));
        for (step, expected) in (1..).zip(&rates) {
            let found = learning_rate(&schedule, peak, step, rates.len() as u64);
            assert!((found - expected).abs() < 1e-14, "{name} step {step}: {found} for {expected}");
        }
        assert!(rates.len() >= 10 && (name == "constant" || rates[9] < 0.49), "{name}: {rates:?}");
    }
}

#[test]
fn clipping_by_value_gives_the_gradients_of_pytorch() {
    let flat = |values: &[f32]| Some(Flat::of(Tensor::from_slice(values)).unwrap());
    let mut gradients = Gradients::new(layout(), vec![flat(&ramp(12, 3, 4.0)), flat(&ramp(5, 4, 4.0))]);
    gradients.clip(1.5);
    for (values, key) in gradients.tensors().into_iter().zip(["a", "b"]) {
        assert_close(values.unwrap(), &list(&numbers("/clipped_values")[key]), 0.0, key);
    }
}

#[test]
fn clipping_gives_the_norm_and_the_gradients_of_pytorch() {
    let answer = numbers("/clipping");
    let gradients = row(&ramp(12, 3, 4.0), &ramp(5, 4, 4.0));
    let found = norm([gradients.as_slice()].into_iter(), |_| ());
    assert!((found / answer["norm"].as_f64().unwrap() - 1.0).abs() < 1e-6);
    let factor = clipping_factor(found, 1.0);
    let clipped: Vec<f32> = gradients.iter().map(|value| value * factor).collect();
    for (span, key) in layout().spans().iter().zip(["a", "b"]) {
        assert_close(span.of(&clipped), &list(&answer[key]), 1e-6, key);
    }
    assert_eq!(clipping_factor(0.5, 1.0), 1.0);
    assert_eq!(clipping_factor(f64::INFINITY, 1.0), 1.0);
    assert_eq!(clipping_factor(f64::NAN, 1.0), 1.0);
}

fn model() -> Model {
    Model::Gpt {
        layers: 2,
        heads: 2,
        width: 8,
        inner: 20,
        context: 6,
        vocabulary: 11,
        dropout: finite(0.0),
        layer_norm_epsilon: finite(1e-5),
        initializer_range: finite(0.02),
    }
}

fn sizes() -> Sizes {
    Sizes::of(&model()).unwrap()
}

/// The weights of make.py.
fn gpt_parameters() -> Parameters {
    let mut parameters = Parameters::new(sizes().parameters(), Decay::All).unwrap();
    let spans = parameters.layout.spans().to_vec();
    let values = parameters.values.values_mut();
    for (salt, span) in spans.iter().enumerate() {
        let name = &span.declared.name;
        let shift = if name.contains(".ln_") && name.ends_with("weight") { 1.0 } else { 0.0 };
        let ramp = ramp(span.count, 100 + salt, 0.5).into_iter().map(|value| value + shift);
        values[span.offset..span.offset + span.count].iter_mut().zip(ramp).for_each(|(to, from)| *to = from);
    }
    parameters
}

#[test]
fn names_are_those_of_transformers() {
    let parameters = gpt_parameters();
    let names: Vec<&str> = parameters.layout.spans().iter().map(|span| span.declared.name.as_str()).collect();
    let expected = numbers("/gpt/names");
    assert_eq!(names, expected.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>());
}

#[test]
fn logits_loss_and_gradients_are_those_of_transformers() {
    let mut parameters = gpt_parameters();
    parameters.require_gradients(|_| true).unwrap();
    let model = Gpt::new(sizes(), &parameters).unwrap();
    let row = |factor: i64, shift: i64| (0..7).map(move |i| (i * factor + shift) % 11);
    let windows: Vec<Vec<i64>> = vec![row(5, 3).collect(), row(7, 1).collect()];
    let seen: Vec<i64> = windows.iter().flat_map(|window| window[..6].to_vec()).collect();
    let due: Vec<i64> = windows.iter().flat_map(|window| window[1..].to_vec()).collect();
    let mut counts = Counts::default();
    let logits = model
        .forward(&Tensor::from_slice(&seen).view([2, 6]), None, &mut |name, tensor| counts.look(name, tensor))
        .unwrap();
    assert_close(floats(&logits).unwrap(), &list(&numbers("/gpt/logits")), 1e-5, "logits");
    assert_eq!(counts.non_finite(), 0);
    let loss = logits.cross_entropy_loss::<Tensor>(&Tensor::from_slice(&due), None, Reduction::Mean, -100, 0.0);
    assert!((loss.double_value(&[]) - numbers("/gpt/loss").as_f64().unwrap()).abs() < 1e-6);
    loss.backward();
    let (expected, gradients) = (numbers("/gpt/gradients"), parameters.take_gradients().unwrap());
    for (span, values) in parameters.layout.spans().iter().zip(gradients.tensors()) {
        let name = &span.declared.name;
        assert_close(values.unwrap(), &list(&expected[name]), 1e-5, name);
    }
}

/// The list that patterns are held against before anything runs is that of the model.
#[test]
fn the_parameters_that_the_compiler_knows_are_those_of_the_model() {
    let mut declared: Vec<(String, Vec<u64>)> = sizes()
        .parameters()
        .into_iter()
        .map(|one| (one.name, one.shape.iter().map(|size| u64::try_from(*size).unwrap()).collect()))
        .collect();
    declared.sort();
    let known: Vec<(String, Vec<u64>)> =
        parameters_of(&model()).into_iter().map(|parameter| (parameter.name, parameter.shape)).collect();
    assert_eq!(known, declared);
}

#[test]
fn smoothed_labels_and_the_z_loss_give_the_loss_and_gradients_of_pytorch() {
    let loss_of = |label_smoothing, z_loss| {
        let mut parameters = gpt_parameters();
        parameters.require_gradients(|_| true).unwrap();
        let model = Gpt::new(sizes(), &parameters).unwrap();
        let row = |factor: i64, shift: i64| (0..7).map(move |i| (i * factor + shift) % 11);
        let windows: Vec<Vec<i64>> = vec![row(5, 3).collect(), row(7, 1).collect()];
        let seen: Vec<i64> = windows.iter().flat_map(|window| window[..6].to_vec()).collect();
        let due: Vec<i64> = windows.iter().flat_map(|window| window[1..].to_vec()).collect();
        let logits = model.forward(&Tensor::from_slice(&seen).view([2, 6]), None, &mut blind).unwrap();
        let objective = Objective::NextToken { label_smoothing: finite(label_smoothing), z_loss: finite(z_loss) };
        let loss = objective::loss(&objective, &logits, &Tensor::from_slice(&due)).unwrap();
        loss.backward();
        let gradients = parameters.take_gradients().unwrap();
        (loss.double_value(&[]), parameters.layout, gradients)
    };
    let (loss, layout, gradients) = loss_of(0.1, 0.01);
    assert!((loss - numbers("/gpt/smoothed_loss").as_f64().unwrap()).abs() < 1e-6, "{loss}");
    let expected = numbers("/gpt/smoothed_gradients");
    for (span, values) in layout.spans().iter().zip(gradients.tensors()) {
        let name = &span.declared.name;
        assert_close(values.unwrap(), &list(&expected[name]), 1e-5, name);
    }
    let plain = numbers("/gpt/loss").as_f64().unwrap();
    assert!((loss_of(0.0, 0.0).0 - plain).abs() < 1e-6);
    assert!((loss_of(0.1, 0.0).0 - plain).abs() > 1e-3 && (loss_of(0.0, 0.01).0 - plain).abs() > 1e-3);
}

/// What an evaluation measures is the same loss, and the same answers, window by window and with a window too short.
#[test]
fn evaluated_losses_and_answers_are_those_of_transformers() {
    let parameters = gpt_parameters();
    let model = Gpt::new(sizes(), &parameters).unwrap();
    let row = |factor: u32, shift: u32| -> Vec<u32> { (0..7).map(|i| (i * factor + shift) % 11).collect() };
    let (first, second) = (row(5, 3), row(7, 1));
    let window = |tokens: &[u32]| Sample { tokens: tokens.into(), first: 1 };
    let found = losses((&model, &self::model()), &[&window(&first), &window(&second)]).unwrap();
    let mean = (found[0].0 + found[1].0) / 12.0;
    assert!((mean - numbers("/gpt/loss").as_f64().unwrap()).abs() < 1e-6, "{mean}");
    let logits = list(&numbers("/gpt/logits"));
    let likeliest = |row: &[f64]| (0..11u32).max_by(|a, b| row[*a as usize].total_cmp(&row[*b as usize])).unwrap();
    let due = first[1..].iter().chain(&second[1..]);
    let right = logits.chunks(11).zip(due).filter(|(row, due)| likeliest(row) == **due).count() as u64;
    assert_eq!(found[0].1 + found[1].1, right);
    let short = losses((&model, &self::model()), &[&window(&first[..4]), &window(&second)]).unwrap();
    assert!(short[0].0 < found[0].0 && short[1] == found[1], "{short:?} {found:?}");
}

/// The position of a token must not see later ones: changing a later token changes no earlier logit.
#[test]
fn a_position_does_not_see_the_future() {
    let parameters = gpt_parameters();
    let model = Gpt::new(sizes(), &parameters).unwrap();
    let logits = |tokens: [i64; 6]| {
        let logits = model.forward(&Tensor::from_slice(&tokens).view([1, 6]), None, &mut blind).unwrap();
        Vec::<f32>::try_from(logits.view(-1).to_kind(Kind::Float)).unwrap()
    };
    let (base, changed) = (logits([1, 2, 3, 4, 5, 6]), logits([1, 2, 3, 4, 9, 9]));
    assert_eq!(base[..44], changed[..44]);
    assert_ne!(base[44..], changed[44..]);
}
