//! What an update shows on its way is everything that it leaves, so that a glance at it counts as a look at every tensor.
#![allow(clippy::unwrap_used)]

use xt_core::canonical::parse;
use xt_core::fault::Faults;
use xt_core::field::Field;
use xt_core::manifest::candidate::{Decay, Group, Optimizer, Treatment};
use xt_trainer::layout::{Declared, Layout, Start};
use xt_trainer::optim::{Optim, Update, norm};
use xt_trainer::probe::Glance;

const OPTIMIZERS: [&str; 7] = [
    r#"{"kind":"adamw","learning_rate":0.1,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"weight_decay":0.1,"decay":"matrices"}"#,
    r#"{"kind":"adam","learning_rate":0.1,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"weight_decay":0.1,"decay":"all"}"#,
    r#"{"kind":"lion","learning_rate":0.1,"beta1":0.9,"beta2":0.95,"weight_decay":0.1,"decay":"matrices"}"#,
    r#"{"kind":"sgd","learning_rate":0.1,"momentum":0,"nesterov":false,"weight_decay":0.1,"decay":"matrices"}"#,
    r#"{"kind":"sgd","learning_rate":0.1,"momentum":0.9,"nesterov":false,"weight_decay":0.1,"decay":"all"}"#,
    r#"{"kind":"sgd","learning_rate":0.1,"momentum":0.9,"nesterov":true,"weight_decay":0.1,"decay":"matrices"}"#,
    r#"{"kind":"adafactor","learning_rate":0.1,"decay_power":0.8,"epsilon":1e-4,"minimum_scale":0.001,"update_limit":1,
        "weight_decay":0.1,"decay":"matrices"}"#,
];

fn optimizer(text: &str) -> Optimizer {
    let mut faults = Faults::new();
    let read = Optimizer::read(&parse(text.as_bytes()).unwrap(), "", &mut faults);
    read.filter(|_| faults.is_empty()).unwrap()
}

/// Matrices and vectors, none of which fills its place up, and one that is larger than what is looked at together.
fn layout() -> Layout {
    let shapes = [("a", vec![3, 5]), ("b", vec![70, 71]), ("c", vec![19]), ("d", vec![5, 5]), ("e", vec![3])];
    let declared = |(name, shape): (&str, Vec<i64>)| Declared { name: name.into(), shape, start: Start::Zeros };
    Layout::new(shapes.map(declared).into(), Decay::Matrices)
}

/// A row of numbers of which no two are equal.
fn row(layout: &Layout, from: f32) -> Vec<f32> {
    let (mut row, mut next) = (vec![0.0; layout.length()], from);
    for span in layout.spans() {
        for value in &mut row[span.offset..span.offset + span.count] {
            *value = next;
            next += 0.001;
        }
    }
    row
}

/// The gradients of a row that are not `frozen`, tensor by tensor.
fn cut<'a>(layout: &Layout, row: &'a [f32], frozen: &[&str]) -> Vec<Option<&'a [f32]>> {
    let trained = |name: &str| !frozen.contains(&name);
    layout.spans().iter().map(|span| trained(&span.declared.name).then(|| span.of(row))).collect()
}

/// The bits of all that is not zero, sorted.
fn sorted<'a>(rows: impl Iterator<Item = &'a [f32]>) -> Vec<u32> {
    let mut bits: Vec<u32> = rows.flatten().filter(|value| **value != 0.0).map(|value| value.to_bits()).collect();
    bits.sort_unstable();
    bits
}

fn groups(frozen: &[&str]) -> Vec<Group> {
    frozen.iter().map(|name| Group { pattern: (*name).into(), treatment: Treatment::Frozen {} }).collect()
}

#[test]
fn an_update_shows_each_value_that_it_leaves_once() {
    let layout = layout();
    for (text, frozen) in OPTIMIZERS.iter().flat_map(|text| [&[][..], &["b"], &["a", "e"]].map(|frozen| (text, frozen)))
    {
        let mut optimizer = Optim::new(&optimizer(text), &groups(frozen), &layout).unwrap();
        let (mut values, gradients) = (row(&layout, 1.0), row(&layout, -2.0));
        for _ in 0..3 {
            let mut shown: Vec<f32> = Vec::new();
            let update = Update { gradients: &cut(&layout, &gradients, frozen), rate: 0.1, factor: 0.5 };
            optimizer.update(&layout, &mut values, update, |block| shown.extend(block));
            let rows = optimizer.memory().0.iter().map(|row| row.values.values());
            assert_eq!(
                sorted([&shown[..]].into_iter()),
                sorted([&values[..]].into_iter().chain(rows)),
                "{text} {frozen:?}"
            );
        }
    }
}

/// Wherever a value is not finite, also where no update comes, in a frozen parameter.
#[test]
fn a_glance_at_an_update_sees_what_is_not_finite_in_every_tensor() {
    let layout = layout();
    for (text, frozen) in OPTIMIZERS.iter().flat_map(|text| [&[][..], &["b"], &["a", "e"]].map(|frozen| (text, frozen)))
    {
        let finite_with = |bad: Option<usize>| {
            let mut optimizer = Optim::new(&optimizer(text), &groups(frozen), &layout).unwrap();
            let (mut values, gradients, mut glance) = (row(&layout, 1.0), row(&layout, -2.0), Glance::default());
            if let Some(at) = bad {
                values[at] = f32::INFINITY;
            }
            let update = Update { gradients: &cut(&layout, &gradients, frozen), rate: 0.1, factor: 0.5 };
            optimizer.update(&layout, &mut values, update, |block| glance.see(block));
            glance.is_finite()
        };
        assert!(finite_with(None), "{text} {frozen:?}");
        for span in layout.spans() {
            assert!(!finite_with(Some(span.offset + span.count - 1)), "{text} {frozen:?} {}", span.declared.name);
        }
    }
}

#[test]
fn a_norm_shows_the_row_that_it_sums() {
    let values = row(&layout(), 1.0);
    let mut shown: Vec<f32> = Vec::new();
    let found = norm([values.as_slice()].into_iter(), |block| shown.extend(block));
    assert_eq!(shown, values);
    let plain = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    assert!((found / plain - 1.0).abs() < 1e-12);
}
