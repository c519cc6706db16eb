//! From estimates to the metrics of a regression.

use alloc::string::String;
use alloc::vec::Vec;

use super::whole::of_whole;
use super::{NoMetric, Ratio, Terms, sets};
use crate::manifest::evaluation::{Estimate, Measure, Spec};

/// The metrics of `estimates` over everything and over each slice.
pub fn regression(
    spec: &Spec,
    estimates: &[Estimate],
    slice_of: impl Fn(&Estimate) -> Option<String>,
) -> Result<Vec<Measure>, NoMetric> {
    let mut measures = Vec::new();
    for (slice, estimates) in sets(estimates, slice_of) {
        let slice = slice.as_deref();
        let terms = |value: fn(f64) -> f64| -> Vec<Terms> {
            estimates.iter().map(|one| (value(one.answer.get() - one.due.get()), 1.0)).collect()
        };
        measures.push(Ratio::of(spec, slice, &terms(libm::fabs))?.measure("mae", slice)?);
        measures.push(Ratio::of(spec, slice, &terms(|error| error * error))?.measure("mse", slice)?);
        let names = [String::from("r2")];
        measures.extend(of_whole(spec, slice, estimates.len(), &names, |drawn| Vec::from([r2(&estimates, drawn)]))?);
    }
    Ok(measures)
}

/// One minus the squared errors over the squared distances of the targets from their mean; `None` when they are all
/// equal.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn r2(estimates: &[&Estimate], drawn: &mut dyn Iterator<Item = usize>) -> Option<f64> {
    let pairs: Vec<(f64, f64)> =
        drawn.filter_map(|index| estimates.get(index)).map(|one| (one.due.get(), one.answer.get())).collect();
    let mean = pairs.iter().map(|(due, _)| due).sum::<f64>() / pairs.len() as f64;
    let spread: f64 = pairs.iter().map(|(due, _)| (due - mean) * (due - mean)).sum();
    let errors: f64 = pairs.iter().map(|(due, answer)| (due - answer) * (due - answer)).sum();
    (spread > 0.0).then(|| 1.0 - errors / spread)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;
    use crate::manifest::evaluation::{Evaluator, HeldOut, Leakage, Parameters as Which, Shared, Slices};
    use crate::number::Finite;
    use crate::relpath::RelativePath;

    fn measured(pairs: &[(f64, f64)]) -> Result<Vec<Measure>, NoMetric> {
        let spec = Spec {
            name: crate::name::Name::new("x").unwrap(),
            evaluator: Evaluator::Regression { batch: 1, resamples: 1000, confidence: Finite::new(0.95).unwrap() },
            data: HeldOut { dataset: crate::digest::Digest::of(b""), split: crate::name::Name::new("dev").unwrap() },
            slices: Slices::None,
            parameters: Which::Trained,
            leakage: Leakage { minimum_bytes: 1, shared: Shared::Refuse },
            seed: 1,
        };
        let finite = |value| Finite::new(value).unwrap();
        let estimate = |(sample, (due, answer)): (u64, &(f64, f64))| Estimate {
            sample,
            path: RelativePath::new("x").unwrap(),
            row: sample,
            due: finite(*due),
            answer: finite(*answer),
        };
        let estimates: Vec<Estimate> = (0..).zip(pairs).map(estimate).collect();
        regression(&spec, &estimates, |_| None)
    }

    #[test]
    fn errors_and_explained_variance_are_those_of_the_definitions() {
        let found = measured(&[(1.0, 1.5), (2.0, 2.0), (3.0, 2.0), (6.0, 6.5)]).unwrap();
        let of = |name: &str| found.iter().find(|m| m.name == name).unwrap().clone();
        assert_eq!((of("mae").value.get(), of("mse").value.get()), (0.5, 0.375));
        assert_eq!(of("r2").value.get(), 1.0 - 1.5 / 14.0);
        // Absolute errors 0.5, 0, 1, 0.5: variance 1/6, standard error sqrt(1/24).
        assert!((of("mae").standard_error.unwrap().get() - (1.0f64 / 24.0).sqrt()).abs() < 1e-15);
        let interval = of("r2").interval.unwrap();
        assert!(interval.low < of("r2").value && of("r2").value <= interval.high);
    }

    #[test]
    fn equal_targets_have_no_explained_variance_and_nothing_has_no_metric() {
        let found = measured(&[(2.0, 1.0), (2.0, 3.0)]).unwrap();
        assert_eq!(found.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["mae", "mse"]);
        assert!(matches!(measured(&[]), Err(NoMetric::Empty(_))));
    }
}
