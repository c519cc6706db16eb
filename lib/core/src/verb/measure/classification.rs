//! From answers to the metrics of a classification.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::whole::of_whole;
use super::{NoMetric, Ratio, Terms, sets};
use crate::manifest::evaluation::{Answer, Evaluator, Measure, Spec};

/// The metrics of `answers` over everything and over each slice; `classes` are the names of the classes.
pub fn classification(
    spec: &Spec,
    classes: &[String],
    answers: &[Answer],
    slice_of: impl Fn(&Answer) -> Option<String>,
) -> Result<Vec<Measure>, NoMetric> {
    let mut measures = Vec::new();
    for (slice, answers) in sets(answers, slice_of) {
        let slice = slice.as_deref();
        let mut of_set = means(spec, slice, &answers)?;
        of_set.extend(of_whole(spec, slice, answers.len(), &names(classes), |drawn| {
            metrics(spec, classes.len(), &answers, drawn)
        })?);
        of_set.sort_by(|left, right| left.name.cmp(&right.name));
        measures.extend(of_set);
    }
    Ok(measures)
}

/// Accuracy and loss, which are means.
fn means(spec: &Spec, slice: Option<&str>, answers: &[&Answer]) -> Result<Vec<Measure>, NoMetric> {
    let terms =
        |value: fn(&Answer) -> f64| -> Vec<Terms> { answers.iter().map(|answer| (value(answer), 1.0)).collect() };
    let right = terms(|answer| f64::from(u8::from(answer.due == answer.answer)));
    let loss = terms(|answer| answer.loss.get());
    Ok([
        Ratio::of(spec, slice, &right)?.measure("accuracy", slice)?,
        Ratio::of(spec, slice, &loss)?.measure("loss", slice)?,
    ]
    .into())
}

/// The names of the others, in the order of [`metrics`].
fn names(classes: &[String]) -> Vec<String> {
    let mut names = Vec::from(["calibration_error", "f1"].map(String::from));
    names.extend(classes.iter().map(|class| format!("f1/{class}")));
    for due in classes {
        names.extend(classes.iter().map(|answer| format!("confusion/{due}/{answer}")));
    }
    names
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn metrics(
    spec: &Spec,
    classes: usize,
    answers: &[&Answer],
    drawn: &mut dyn Iterator<Item = usize>,
) -> Vec<Option<f64>> {
    let bins = if let Evaluator::Classification { bins, .. } = &spec.evaluator { *bins } else { 1 };
    let bins = usize::try_from(bins).unwrap_or(1).max(1);
    let mut confusion = alloc::vec![0u64; classes * classes];
    let mut calibration = alloc::vec![(0.0, 0.0); bins];
    let mut count = 0u64;
    for answer in drawn.filter_map(|index| answers.get(index)) {
        let place = |class| usize::try_from(class).ok().filter(|class| *class < classes);
        if let (Some(due), Some(answered)) = (place(answer.due), place(answer.answer)) {
            confusion[due * classes + answered] += 1;
        }
        let (probability, right) = (answer.probability.get(), f64::from(u8::from(answer.due == answer.answer)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the number of bins")]
        let bin = ((probability * bins as f64) as usize).min(bins - 1);
        calibration[bin].0 += probability;
        calibration[bin].1 += right;
        count += 1;
    }
    let error = calibration.iter().map(|(probability, right)| libm::fabs(probability - right)).sum::<f64>();
    let single: Vec<Option<f64>> = (0..classes).map(|class| f1(&confusion, classes, class)).collect();
    let known: Vec<f64> = single.iter().copied().flatten().collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let mut all = Vec::from([Some(error / count as f64), (!known.is_empty()).then_some(mean)]);
    all.extend(single);
    all.extend(confusion.iter().map(|count| Some(*count as f64)));
    all
}

/// Twice the right answers, over how often the class was and how often it was answered; `None` when it never was either.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn f1(confusion: &[u64], classes: usize, class: usize) -> Option<f64> {
    let was: u64 = (0..classes).map(|answer| confusion[class * classes + answer]).sum();
    let answered: u64 = (0..classes).map(|due| confusion[due * classes + class]).sum();
    let right = confusion[class * classes + class];
    (was + answered > 0).then(|| 2.0 * right as f64 / (was + answered) as f64)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;
    use crate::manifest::evaluation::{HeldOut, Leakage, Parameters as Which, Shared, Slices};
    use crate::number::Finite;
    use crate::relpath::RelativePath;

    fn spec(seed: u64) -> Spec {
        Spec {
            name: crate::name::Name::new("x").unwrap(),
            evaluator: Evaluator::Classification {
                batch: 1,
                resamples: 500,
                confidence: Finite::new(0.9).unwrap(),
                bins: 10,
            },
            data: HeldOut { dataset: crate::digest::Digest::of(b""), split: crate::name::Name::new("dev").unwrap() },
            slices: Slices::Member,
            parameters: Which::Trained,
            leakage: Leakage { minimum_bytes: 1, shared: Shared::Refuse },
            seed,
        }
    }

    fn answers(of: &[(&str, u64, u64, f64)]) -> Vec<Answer> {
        let answer = |(sample, (path, due, answer, probability)): (u64, &(&str, u64, u64, f64))| Answer {
            sample,
            path: RelativePath::new(path).unwrap(),
            row: sample,
            due: *due,
            answer: *answer,
            probability: Finite::new(*probability).unwrap(),
            loss: Finite::new(0.5).unwrap(),
        };
        (0..).zip(of).map(answer).collect()
    }

    fn measured(seed: u64, answers: &[Answer]) -> Vec<Measure> {
        let classes = ["a", "b", "c"].map(String::from);
        classification(&spec(seed), &classes, answers, |answer| Some(answer.path.as_str().into())).unwrap()
    }

    /// Worked out by hand.
    #[test]
    fn counts_f1_and_calibration_are_those_of_the_definitions() {
        let all = answers(&[("x", 0, 0, 0.95), ("x", 0, 1, 0.55), ("x", 1, 1, 0.85), ("y", 1, 1, 0.75)]);
        let found = measured(1, &all);
        let of = |name: &str| found.iter().find(|m| m.name == name && m.slice.is_none()).map(|m| m.value.get());
        assert_eq!(of("accuracy"), Some(0.75));
        assert_eq!(of("f1/a"), Some(2.0 / 3.0));
        assert_eq!(of("f1/b"), Some(0.8));
        assert_eq!(of("f1/c"), None, "it neither was nor was answered");
        assert!((of("f1").unwrap() - f64::midpoint(2.0 / 3.0, 0.8)).abs() < 1e-15);
        assert_eq!((of("confusion/a/b"), of("confusion/b/b"), of("confusion/b/a")), (Some(1.0), Some(2.0), Some(0.0)));
        assert!((of("calibration_error").unwrap() - (0.05 + 0.55 + 0.15 + 0.25) / 4.0).abs() < 1e-15);
        let slice = |name: &str| found.iter().find(|m| m.name == name && m.slice.as_deref() == Some("y")).unwrap();
        assert_eq!((slice("accuracy").value.get(), slice("accuracy").sample_count), (1.0, 1));
        assert_eq!(
            (slice("f1").interval, slice("f1").standard_error),
            (None, None),
            "one sample says nothing of spread"
        );
    }

    #[test]
    fn intervals_hold_the_value_and_follow_the_seed_alone() {
        let many: Vec<_> =
            (0..300u64).map(|i| ("x", i % 3, if i % 7 == 0 { (i + 1) % 3 } else { i % 3 }, 0.8)).collect();
        let all = answers(&many);
        let (first, again, other) = (measured(1, &all), measured(1, &all), measured(2, &all));
        assert_eq!(first, again);
        assert_ne!(first, other);
        for measure in first.iter().filter(|measure| measure.name.starts_with("f1")) {
            let interval = measure.interval.unwrap();
            assert!(interval.low < measure.value && measure.value < interval.high, "{}", measure.name);
            // About normal: half the interval of 90 percent is 1.645 standard errors.
            let half = (interval.high.get() - interval.low.get()) / 2.0;
            let ratio = half / (1.645 * measure.standard_error.unwrap().get());
            assert!((ratio - 1.0).abs() < 0.2, "{} {ratio}", measure.name);
        }
    }

    #[test]
    fn an_empty_set_has_no_metric() {
        let none = classification(&spec(1), &["a".into(), "b".into()], &[], |_| None);
        assert_eq!(none, Err(NoMetric::Empty("the held-out set".into())));
    }
}
