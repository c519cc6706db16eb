//! Differences of pairs: how large they are on average, how sure that is, and tests that assume a normal distribution.

use super::noncentral::noncentrality;
use super::student::{ln_gamma_step, quantile_two_sided, two_sided, upper};
use super::{float, root, sum};

/// What a list of differences comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, with the divisor count - 1; 0 when all are equal to the last bit.
    pub deviation: f64,
}

impl Summary {
    /// Of at least two values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count < 2 {
            return None;
        }
        // Equal values have no deviation, which rounding of their mean would hide.
        let equal = values.iter().all(|value| value.total_cmp(&values[0]).is_eq());
        let mean = if equal { values[0] } else { sum(values) / float(count) };
        let squares: alloc::vec::Vec<f64> = values.iter().map(|value| (value - mean) * (value - mean)).collect();
        Some(Self { count, mean, deviation: root(sum(&squares) / float(count - 1)) })
    }

    /// Degrees of freedom.
    pub fn freedom(&self) -> f64 {
        float(self.count - 1)
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        self.deviation / root(float(self.count))
    }

    /// The statistic of the paired t test against a mean of 0 (Student, "The Probable Error of a Mean", Biometrika
    /// 1908); infinite when nothing varies, 0 when nothing varies around 0.
    pub fn t(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.mean / self.error() }
    }

    /// The p of the paired t test, two-sided. 1 when the mean is 0, 0 when nothing varies around another mean.
    pub fn p(&self) -> f64 {
        two_sided(self.t(), self.freedom())
    }

    /// The interval of the mean at `level`: mean ± t · standard error.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        let half = quantile_two_sided(level, self.freedom()) * self.error();
        (self.mean - half, self.mean + half)
    }

    /// The p for "the mean lies within ± margin": the larger of the two one-sided ones (Schuirmann, "A comparison of the
    /// two one-sided tests procedure and the power approach for assessing the equivalence of average bioavailability",
    /// Journal of Pharmacokinetics and Biopharmaceutics 1987).
    pub fn equivalence(&self, margin: f64) -> f64 {
        let short = margin - self.mean.abs();
        upper(if short == 0.0 { 0.0 } else { short / self.error() }, self.freedom())
    }

    /// Hedges' g for pairs: the mean in standard deviations of the differences, times the exact factor that takes out the
    /// bias of a small sample (Hedges, "Distribution Theory for Glass's Estimator of Effect Size and Related
    /// Estimators", Journal of Educational Statistics 1981), with its interval at `level` from the noncentral t.
    /// `None` for two pairs, where the factor is 0, and when nothing varies; the interval also when t is huge.
    pub fn hedges(&self, level: f64) -> Option<(f64, Option<(f64, f64)>)> {
        if self.count < 3 || self.deviation == 0.0 {
            return None;
        }
        let factor = hedges_factor(self.freedom());
        let scale = factor / root(float(self.count));
        let interval = noncentrality(self.t(), self.freedom(), level).map(|(low, high)| (low * scale, high * scale));
        Some((factor * self.mean / self.deviation, interval))
    }
}

/// Γ(m/2) / (√(m/2) Γ((m-1)/2)) for m degrees of freedom, from 2 on.
pub fn hedges_factor(freedom: f64) -> f64 {
    libm::exp(ln_gamma_step(0.5 * (freedom - 1.0))) / root(0.5 * freedom)
}

/// A t test with two sources of chance at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossed {
    /// The statistic.
    pub t: f64,
    /// Degrees of freedom, in general no whole number.
    pub freedom: f64,
    /// Its p, two-sided.
    pub p: f64,
    /// Standard error of the mean from both sources.
    pub error: f64,
}

/// One mean difference, held against the chance of both ways in which it was sampled: by seeds and by examples. The
/// squared error is the sum of both, so t² is the quasi-F called min F' with its degrees of freedom (Clark, "The
/// Language-as-Fixed-Effect Fallacy", Journal of Verbal Learning and Verbal Behavior 1973). It errs on the safe side: what
/// varies between seeds and examples together is counted in both. `None` when neither varies.
pub fn crossed(one: &Summary, other: &Summary) -> Option<Crossed> {
    let (first, second) = (one.error() * one.error(), other.error() * other.error());
    let error = root(first + second);
    if error == 0.0 {
        return None;
    }
    let both = first + second;
    let freedom = both * both / (first * first / one.freedom() + second * second / other.freedom());
    let t = one.mean / error;
    Some(Crossed { t, freedom, p: two_sided(t, freedom), error })
}

impl Crossed {
    /// The p for "the mean lies within ± margin", as [`Summary::equivalence`].
    pub fn equivalence(&self, mean: f64, margin: f64) -> f64 {
        upper((margin - mean.abs()) / self.error, self.freedom)
    }

    /// The interval around `mean` at `level`.
    pub fn interval(&self, mean: f64, level: f64) -> (f64, f64) {
        let half = quantile_two_sided(level, self.freedom) * self.error;
        (mean - half, mean + half)
    }
}
