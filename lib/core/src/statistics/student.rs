//! Student's t distribution.

use super::root;

const LN_ROOT_PI: f64 = 0.572_364_942_924_700_1;
const SMALL: f64 = 1e-300;
/// A continued fraction that has not settled after so many terms never will; 60 are usual.
const MOST_TERMS: u32 = 100_000;

/// ln(Γ(a + 1/2) / Γ(a)) for a > 0.
///
/// From 20 on by the asymptotic series (Tricomi and Erdélyi, "The asymptotic expansion of a ratio of gamma functions",
/// Pacific Journal of Mathematics 1951; DLMF 5.11.13), whose first left-out term is below 1e-16 there: a difference of two
/// large logarithms would lose their leading digits.
pub fn ln_gamma_step(a: f64) -> f64 {
    if a < 20.0 {
        return libm::lgamma(a + 0.5) - libm::lgamma(a);
    }
    let square = a * a;
    let terms = [-1.0 / 8.0, 1.0 / 192.0, -1.0 / 640.0, 17.0 / 14336.0, -31.0 / 18432.0, 691.0 / 180_224.0];
    let series = terms.iter().rev().fold(0.0, |rest, term| term + rest / square);
    0.5 * libm::log(a) + series / a
}

/// P(|T| > |t|) for T with `freedom` degrees of freedom, accurate in the far tail too.
///
/// It is the regularised incomplete beta function I(x; freedom/2, 1/2) at x = freedom / (freedom + t²) (Abramowitz and
/// Stegun, "Handbook of Mathematical Functions", 26.5.27 and 26.7.1).
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    if t == 0.0 {
        return 1.0;
    }
    let ratio = t * t / freedom;
    if !ratio.is_finite() {
        return 0.0;
    }
    let (x, rest) = (1.0 / (1.0 + ratio), ratio / (1.0 + ratio));
    let half = 0.5 * freedom;
    // x^half rest^(1/2) / B(half, 1/2), by its logarithm.
    let front = libm::exp(-half * libm::log1p(ratio) + 0.5 * libm::log(rest) + ln_gamma_step(half) - LN_ROOT_PI);
    if x < (half + 1.0) / (half + 2.5) {
        front * beta_fraction(half, 0.5, x) / half
    } else {
        1.0 - front * beta_fraction(0.5, half, rest) / 0.5
    }
}

/// P(T > t).
pub fn upper(t: f64, freedom: f64) -> f64 {
    let half = 0.5 * two_sided(t, freedom);
    if t >= 0.0 { half } else { 1.0 - half }
}

/// The t with P(|T| > t) = `tail`, for a tail above 0 and up to 1: where halving finds no number between.
pub fn quantile_two_sided(tail: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > tail && high < 1e150 {
        (low, high) = (high, high * 2.0);
    }
    bisect(low, high, |t| two_sided(t, freedom) > tail)
}

/// The border in `low..high` up to which `before` holds: where halving finds no number between.
pub(crate) fn bisect(mut low: f64, mut high: f64, before: impl Fn(f64) -> bool) -> f64 {
    // 53 halvings find it unless it lies next to zero, where there are numbers of any size.
    for _ in 0..120 {
        let middle = low + 0.5 * (high - low);
        if middle <= low || middle >= high {
            break;
        }
        if before(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low + 0.5 * (high - low)
}

/// The continued fraction of the incomplete beta function (DLMF 8.17.22) by the method of Lentz ("Generating Bessel
/// functions in Mie scattering calculations using continued fractions", Applied Optics 1976), as modified by Thompson
/// and Barnett (Journal of Computational Physics 1986).
fn beta_fraction(first: f64, second: f64, x: f64) -> f64 {
    let nonzero = |value: f64| if value.abs() < SMALL { SMALL } else { value };
    let both = first + second;
    let mut above = 1.0;
    let mut below = 1.0 / nonzero(1.0 - both * x / (first + 1.0));
    let mut value = below;
    for term in 1..MOST_TERMS {
        let m = f64::from(term);
        let twice = first + 2.0 * m;
        let even = m * (second - m) * x / ((twice - 1.0) * twice);
        let odd = -(first + m) * (both + m) * x / (twice * (twice + 1.0));
        let before = value;
        for step in [even, odd] {
            below = 1.0 / nonzero(1.0 + step * below);
            above = nonzero(1.0 + step / above);
            value *= above * below;
        }
        if (value - before).abs() <= f64::EPSILON * 0.5 * value.abs() {
            break;
        }
    }
    value
}

/// P(Z ≤ z) of the standard normal distribution (Abramowitz and Stegun 26.2.29).
pub fn normal(z: f64) -> f64 {
    0.5 * libm::erfc(-z / root(2.0))
}
