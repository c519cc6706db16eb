//! From windows to metrics: ratios over windows, their standard errors, bootstrap intervals.
//!
//! The unit is the window, since tokens of one window depend on each other. A ratio of sums has the standard error that
//! follows from its linear terms (Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.3), and the percentile
//! interval of a bootstrap over windows (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3).

pub mod classification;
pub mod regression;
mod whole;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::manifest::decision::Interval;
use crate::manifest::evaluation::{Measure, Spec, Window};
use crate::number::Finite;
use crate::random::Stream;

/// Why there are no metrics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMetric {
    /// Nothing was measured.
    #[error("{0} holds no sample, and an empty set has no metric")]
    Empty(String),
    /// A number that is no number.
    #[error("{metric} of {of} is not finite, and what is not finite is no metric")]
    NotFinite {
        /// The metric.
        metric: String,
        /// The slice.
        of: String,
    },
}

/// A quantity of each window: numerator and denominator of a ratio.
type Terms = (f64, f64);

/// Loss, perplexity and accuracy of `windows` over everything and over each slice, which `slice_of` says by path.
pub fn measure(
    spec: &Spec,
    windows: &[Window],
    slice_of: impl Fn(&Window) -> Option<String>,
) -> Result<Vec<Measure>, NoMetric> {
    let mut measures = Vec::new();
    for (slice, windows) in sets(windows, slice_of) {
        measures.extend(of_set(spec, slice.as_deref(), &windows)?);
    }
    Ok(measures)
}

/// Everything, and each slice by itself.
fn sets<T>(all: &[T], slice_of: impl Fn(&T) -> Option<String>) -> BTreeMap<Option<String>, Vec<&T>> {
    let mut sets: BTreeMap<Option<String>, Vec<&T>> = BTreeMap::from([(None, all.iter().collect())]);
    for one in all {
        if let Some(slice) = slice_of(one) {
            sets.entry(Some(slice)).or_default().push(one);
        }
    }
    sets
}

fn of_set(spec: &Spec, slice: Option<&str>, windows: &[&Window]) -> Result<[Measure; 3], NoMetric> {
    #[expect(clippy::cast_precision_loss, reason = "counts of tokens are far below 2^53")]
    let terms = |value: fn(&Window) -> f64| -> Vec<Terms> {
        windows.iter().map(|window| (value(window), window.tokens as f64)).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "counts of tokens are far below 2^53")]
    let (losses, corrects) = (terms(|window| window.loss.get()), terms(|window| window.correct as f64));
    let loss = Ratio::of(spec, slice, &losses)?;
    let finish = |metric: &'static str, ratio: &Ratio| ratio.measure(metric, slice);
    Ok([
        finish("accuracy", &Ratio::of(spec, slice, &corrects)?)?,
        finish("loss", &loss)?,
        finish("perplexity", &loss.exponential())?,
    ])
}

/// A ratio of sums over samples.
#[derive(Clone, Debug)]
struct Ratio {
    value: f64,
    count: u64,
    error: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl Ratio {
    fn of(spec: &Spec, slice: Option<&str>, terms: &[Terms]) -> Result<Self, NoMetric> {
        let value = ratio(terms.iter()).ok_or_else(|| NoMetric::Empty(called(slice)))?;
        let several = terms.len() > 1;
        Ok(Self {
            value,
            count: terms.len() as u64,
            error: several.then(|| standard_error(terms, value)),
            interval: if several { Some(bootstrap(spec, slice, terms)) } else { None },
        })
    }

    /// Perplexity from loss: the standard error by the derivative, the ends of the interval as they are, since the
    /// exponential keeps their order.
    fn exponential(&self) -> Self {
        let value = libm::exp(self.value);
        Self {
            value,
            count: self.count,
            error: self.error.map(|error| error * value),
            interval: self.interval.map(|(low, high)| (libm::exp(low), libm::exp(high))),
        }
    }

    fn measure(&self, metric: &'static str, slice: Option<&str>) -> Result<Measure, NoMetric> {
        let finite =
            |value| Finite::new(value).ok_or_else(|| NoMetric::NotFinite { metric: metric.into(), of: called(slice) });
        let interval = |(low, high)| Ok(Interval { low: finite(low)?, high: finite(high)? });
        Ok(Measure {
            name: metric.into(),
            slice: slice.map(String::from),
            value: finite(self.value)?,
            sample_count: self.count,
            standard_error: self.error.map(finite).transpose()?,
            interval: self.interval.map(interval).transpose()?,
        })
    }
}

fn called(slice: Option<&str>) -> String {
    slice.map_or_else(|| "the held-out set".into(), |slice| format!("the slice {slice:?}"))
}

/// Sum over sum; `None` when there is nothing to divide by.
fn ratio<'a>(terms: impl Iterator<Item = &'a Terms>) -> Option<f64> {
    let (over, under) = terms.fold((0.0, 0.0), |(over, under), (a, b)| (over + a, under + b));
    (under > 0.0).then(|| over / under)
}

/// `sqrt(n / (n - 1) * sum (y - r x)^2) / sum x`.
fn standard_error(terms: &[Terms], ratio: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let count = terms.len() as f64;
    let squares: f64 = terms.iter().map(|(over, under)| (over - ratio * under) * (over - ratio * under)).sum();
    let under: f64 = terms.iter().map(|(_, under)| under).sum();
    libm::sqrt(count / (count - 1.0) * squares) / under
}

/// The share of resamples below an interval, and above it. Only evaluators of this toolkit get here, and they have a level.
fn tail(spec: &Spec) -> f64 {
    (1.0 - spec.evaluator.confidence().map_or(0.95, Finite::get)) / 2.0
}

/// Percentile interval: what lies between the two quantiles of the resampled ratios. Quantiles are interpolated as in
/// definition 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 1996.
fn bootstrap(spec: &Spec, slice: Option<&str>, terms: &[Terms]) -> (f64, f64) {
    let resamples = spec.evaluator.resamples();
    let purpose = format!("bootstrap/{}", slice.unwrap_or_default());
    let mut ratios: Vec<f64> = (0..resamples).filter_map(|time| resampled(spec.seed, &purpose, time, terms)).collect();
    ratios.sort_by(f64::total_cmp);
    let tail = tail(spec);
    (quantile(&ratios, tail), quantile(&ratios, 1.0 - tail))
}

fn resampled(seed: u64, purpose: &str, time: u64, terms: &[Terms]) -> Option<f64> {
    ratio(draw(seed, purpose, time, terms.len()).into_iter().map(|index| &terms[index]))
}

/// As many places as there are samples, drawn with replacement: each index is the high word of a product of a 32-bit draw and
/// the count, whose bias is below 2^-20 for a million samples.
fn draw(seed: u64, purpose: &str, time: u64, count: usize) -> Vec<usize> {
    let mut draws = alloc::vec![0u32; count];
    Stream::new(seed, purpose, time).fill(&mut draws);
    draws.iter().map(|draw| usize::try_from((u64::from(*draw) * count as u64) >> 32).unwrap_or(0)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a small place"
)]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let below = (place as usize).min(sorted.len().saturating_sub(1));
    let above = (below + 1).min(sorted.len().saturating_sub(1));
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (place - below as f64) * (high - low),
        _ => f64::NAN,
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;
    use alloc::vec;

    use crate::digest::Digest;
    use crate::manifest::evaluation::{Evaluator, HeldOut, Leakage, Parameters as Which, Shared, Slices};
    use crate::name::Name;
    use crate::relpath::RelativePath;

    fn spec(seed: u64) -> Spec {
        Spec {
            name: Name::new("x").unwrap(),
            evaluator: Evaluator::NextToken { batch: 1, resamples: 2000, confidence: Finite::new(0.95).unwrap() },
            parameters: Which::Trained,
            data: HeldOut { dataset: Digest::of(b""), split: Name::new("dev").unwrap() },
            slices: Slices::Member,
            leakage: Leakage { minimum_bytes: 1, shared: Shared::Refuse },
            seed,
        }
    }

    fn windows(losses: &[(&str, u64, f64, u64)]) -> Vec<Window> {
        let window = |(window, (path, tokens, loss, correct)): (u64, &(&str, u64, f64, u64))| Window {
            window,
            path: RelativePath::new(path).unwrap(),
            tokens: *tokens,
            loss: Finite::new(*loss).unwrap(),
            correct: *correct,
        };
        (0..).zip(losses).map(window).collect()
    }

    fn measured(spec: &Spec, windows: &[Window]) -> Result<Vec<Measure>, NoMetric> {
        measure(spec, windows, |window| Some(window.path.as_str().into()))
    }

    #[test]
    fn each_token_counts_once_however_long_its_window_is() {
        let windows = windows(&[("a", 4, 8.0, 1), ("a", 1, 1.0, 1), ("b", 3, 9.0, 0)]);
        let found = measured(&spec(1), &windows).unwrap();
        let of = |name: &str, slice: Option<&str>| {
            found.iter().find(|m| m.name == name && m.slice.as_deref() == slice).unwrap().clone()
        };
        assert_eq!(found.len(), 9);
        assert_eq!(of("loss", None).value.get(), 18.0 / 8.0);
        assert_eq!(of("accuracy", None).value.get(), 0.25);
        assert_eq!(of("perplexity", None).value.get(), libm::exp(2.25));
        assert_eq!((of("loss", Some("a")).value.get(), of("loss", Some("b")).value.get()), (9.0 / 5.0, 3.0));
        // Worked out by hand: residuals -1, -1.25, 2.25; sqrt(3 / 2 * (1 + 1.5625 + 5.0625)) / 8.
        assert!((of("loss", None).standard_error.unwrap().get() - (1.5f64 * 7.625).sqrt() / 8.0).abs() < 1e-15);
        assert_eq!(of("loss", Some("b")).standard_error, None, "one window says nothing about spread");
        assert_eq!(of("loss", Some("b")).interval, None);
    }

    #[test]
    fn intervals_follow_the_seed_and_hold_the_value() {
        let losses: Vec<_> =
            (0..200u32).map(|i| ("a", 10, f64::from(20 + (i * 7919) % 13), u64::from(i % 10))).collect();
        let windows = windows(&losses);
        let first = measured(&spec(1), &windows).unwrap();
        assert_eq!(first, measured(&spec(1), &windows).unwrap());
        assert_ne!(first, measured(&spec(2), &windows).unwrap());
        let loss = first.iter().find(|m| m.name == "loss" && m.slice.is_none()).unwrap();
        let (interval, error) = (loss.interval.unwrap(), loss.standard_error.unwrap().get());
        assert!(interval.low < loss.value && loss.value < interval.high);
        // With 200 windows the percentile interval is close to the normal one.
        let half = (interval.high.get() - interval.low.get()) / 2.0;
        assert!((half / (1.96 * error) - 1.0).abs() < 0.1, "{half} {error}");
    }

    #[test]
    fn nothing_and_what_is_not_finite_are_errors_and_no_numbers() {
        assert_eq!(measured(&spec(1), &[]), Err(NoMetric::Empty("the held-out set".into())));
        let huge = windows(&[("a", 1, 1e4, 0), ("a", 1, 1e4, 0)]);
        let Err(NoMetric::NotFinite { metric, .. }) = measured(&spec(1), &huge) else { panic!() };
        assert_eq!(metric, "perplexity");
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), 3.0);
        assert_eq!(vec![quantile(&[1.0, 2.0, 4.0], 0.0), quantile(&[1.0, 2.0, 4.0], 1.0)], [1.0, 4.0]);
    }
}
