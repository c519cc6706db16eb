//! The noncentral t distribution: T = (Z + δ) / S, where Z is standard normal and ν S² is chi-squared with ν degrees of
//! freedom (Johnson and Welch, "Applications of the non-central t-distribution", Biometrika 1940).
//!
//! Probabilities are averages over S of normal probabilities. The average is taken by the trapezoidal rule in ln S, whose
//! error falls exponentially with the step for an integrand like this one (Trefethen and Weideman, "The Exponentially
//! Convergent Trapezoidal Rule", SIAM Review 2014).

use super::root;
use super::student::{bisect, normal};

/// ln of what a weight may lack against the largest one before it no longer counts: e^-45 is 3e-20.
const DEPTH: f64 = 45.0;

/// ln of the density of ln S at `u`, up to a constant; at most -ν u² for u above 0.
fn ln_weight(freedom: f64, u: f64) -> f64 {
    freedom * (u - 0.5 * libm::expm1(2.0 * u))
}

/// Where the density of ln S counts.
fn ends(freedom: f64) -> (f64, f64) {
    let reach = root(DEPTH / freedom);
    (-(reach + DEPTH / freedom + 0.5), reach)
}

/// A step with which `value`, which changes with ln S as fast as `sharpness`, and the density are both followed.
fn step(freedom: f64, sharpness: f64) -> f64 {
    0.35 / root(2.0 * freedom).max(sharpness).max(2.0)
}

/// The average of `value` over S with ν = `freedom`, and the sum of all weights.
fn weighed(freedom: f64, sharpness: f64, value: impl Fn(f64) -> f64) -> (f64, f64) {
    let ((start, end), step) = (ends(freedom), step(freedom, sharpness));
    let (mut total, mut weights) = (0.0, 0.0);
    let mut u = start;
    while u <= end {
        let weight = libm::exp(ln_weight(freedom, u));
        total += weight * value(libm::exp(u));
        weights += weight;
        u += step;
    }
    (total / weights, weights * step)
}

/// The average of `value` over S with ν = `freedom`; `sharpness` is how fast `value` can change with ln S.
pub(crate) fn average(freedom: f64, sharpness: f64, value: impl Fn(f64) -> f64) -> f64 {
    weighed(freedom, sharpness, value).0
}

/// The same for a `value` that is 0 from S = `last` on, where it may have a kink: by the double exponential rule up to
/// there (Takahasi and Mori, "Double Exponential Formulas for Numerical Integration", Publications of RIMS 1974).
pub(crate) fn average_until(last: f64, freedom: f64, sharpness: f64, value: impl Fn(f64) -> f64) -> f64 {
    let (start, end) = ends(freedom);
    let end = end.min(libm::log(last));
    if end <= start {
        return 0.0;
    }
    let half = 0.5 * (end - start);
    let wide = core::f64::consts::FRAC_PI_2;
    let width = step(freedom, sharpness) / (half * wide).max(1.0);
    let mut total = 0.0;
    let mut x = -3.2;
    while x <= 3.2 {
        let inner = wide * libm::sinh(x);
        // 1 - tanh, without the loss of its last digits near the upper end.
        let u = end - half * 2.0 / (1.0 + libm::exp(2.0 * inner));
        let slope = half * wide * libm::cosh(x) / (libm::cosh(inner) * libm::cosh(inner));
        total += libm::exp(ln_weight(freedom, u)) * value(libm::exp(u)) * slope;
        x += width;
    }
    total * width / weighed(freedom, 0.0, |_| 0.0).1
}

/// P(T ≤ t) at noncentrality `delta`.
pub fn lower(t: f64, freedom: f64, delta: f64) -> f64 {
    average(freedom, delta.abs(), |s| normal(t * s - delta))
}

/// P(T > t) at noncentrality `delta`.
pub fn upper(t: f64, freedom: f64, delta: f64) -> f64 {
    average(freedom, delta.abs(), |s| normal(delta - t * s))
}

/// A t this large is as good as infinite; the interval of its noncentrality is not computed.
pub const LARGEST_T: f64 = 100.0;

/// The interval of the noncentrality that an observed t allows at `level`: the two values at which t is as extreme as
/// `level / 2` (Steiger and Fouladi, "Noncentrality interval estimation", 1997; Cumming and Finch, "A primer on the
/// understanding, use, and calculation of confidence intervals", 2001). `None` for |t| above [`LARGEST_T`].
pub fn noncentrality(t: f64, freedom: f64, level: f64) -> Option<(f64, f64)> {
    if t.is_nan() || t.abs() > LARGEST_T {
        return None;
    }
    // Mirrored for negative t, so that the interval of -t is exactly the opposite one.
    if t < 0.0 {
        return noncentrality(-t, freedom, level).map(|(low, high)| (-high, -low));
    }
    let half = 0.5 * level;
    let reach = |away: f64, side: &dyn Fn(f64) -> bool| {
        let mut width = 4.0;
        while side(t + away * width) && width < 1e6 {
            width *= 2.0;
        }
        width
    };
    let low = reach(-1.0, &|delta| upper(t, freedom, delta) > half);
    let high = reach(1.0, &|delta| lower(t, freedom, delta) > half);
    Some((
        bisect(t - low, t, |delta| upper(t, freedom, delta) < half),
        bisect(t, t + high, |delta| lower(t, freedom, delta) > half),
    ))
}
