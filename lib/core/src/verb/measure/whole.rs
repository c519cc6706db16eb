//! Metrics that are no means: each is worked out of a whole set, and again of each resample of it.
//!
//! The standard error is the standard deviation over the resamples (Efron and Tibshirani, "An Introduction to the
//! Bootstrap", 1993, chapter 6), the interval the percentile interval of the same.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{NoMetric, called, draw, quantile};
use crate::manifest::decision::Interval;
use crate::manifest::evaluation::{Measure, Spec};
use crate::number::Finite;

/// Works `metrics` out of the samples `0..count`, each named by `names`. A metric is `None` where a set has none: it is
/// then left out of the resamples too, and of the result when the whole set has none.
pub fn of_whole(
    spec: &Spec,
    slice: Option<&str>,
    count: usize,
    names: &[String],
    metrics: impl Fn(&mut dyn Iterator<Item = usize>) -> Vec<Option<f64>>,
) -> Result<Vec<Measure>, NoMetric> {
    let values = metrics(&mut (0..count));
    let mut resamples: Vec<Vec<f64>> = alloc::vec![Vec::new(); names.len()];
    if count > 1 {
        let purpose = format!("bootstrap/{}", slice.unwrap_or_default());
        for time in 0..spec.evaluator.resamples() {
            let drawn = metrics(&mut draw(spec.seed, &purpose, time, count).into_iter());
            for (values, value) in resamples.iter_mut().zip(drawn) {
                values.extend(value);
            }
        }
    }
    let mut measures = Vec::new();
    for ((name, value), mut resamples) in names.iter().zip(values).zip(resamples) {
        let Some(value) = value else { continue };
        let finite =
            |value| Finite::new(value).ok_or_else(|| NoMetric::NotFinite { metric: name.clone(), of: called(slice) });
        resamples.sort_by(f64::total_cmp);
        let tail = super::tail(spec);
        let several = resamples.len() > 1;
        let interval = || {
            let (low, high) = (quantile(&resamples, tail), quantile(&resamples, 1.0 - tail));
            Ok::<_, NoMetric>(Interval { low: finite(low)?, high: finite(high)? })
        };
        measures.push(Measure {
            name: name.clone(),
            slice: slice.map(String::from),
            value: finite(value)?,
            sample_count: count as u64,
            standard_error: if several { Some(finite(deviation(&resamples))?) } else { None },
            interval: if several { Some(interval()?) } else { None },
        });
    }
    Ok(measures)
}

/// Standard deviation with one less than the count as divisor.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    libm::sqrt(values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0))
}
