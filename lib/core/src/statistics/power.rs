//! How many pairs a test needs, if the truth is what was seen so far.

use super::noncentral::{average_until, lower, upper};
use super::signs::fewest_pairs;
use super::student::{normal, quantile_two_sided};
use super::{float, root};

/// More pairs than this are not looked for.
pub const MOST_PAIRS: usize = 100_000;

/// So many standard errors away from a border, nothing more changes: the tests here need at least as many pairs as a
/// sign-flip test, and with these the border lies far below.
const FAR: f64 = 200.0;

/// The power of the two-sided paired t test with `pairs` pairs at `level`, when the true mean difference is `effect`
/// standard deviations of the differences (Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988,
/// section 2.3, with the exact noncentral t of section 12.2).
pub fn of_difference(effect: f64, pairs: usize, level: f64) -> f64 {
    let freedom = float(pairs - 1);
    let border = quantile_two_sided(level, freedom);
    let delta = (effect.abs() * root(float(pairs))).min(FAR);
    upper(border, freedom, delta) + lower(-border, freedom, delta)
}

/// The power of two one-sided t tests at `level` for "within ± margin", when the true mean difference is `effect`; both
/// in standard deviations of the differences. Exact (Phillips, "Power of the Two One-Sided Tests Procedure in
/// Bioequivalence", Journal of Pharmacokinetics and Biopharmaceutics 1990): given the estimated deviation s, the mean has
/// to fall between -margin + t s / √n and margin - t s / √n.
pub fn of_equivalence(effect: f64, margin: f64, pairs: usize, level: f64) -> f64 {
    let (freedom, scale) = (float(pairs - 1), root(float(pairs)));
    // One-sided at `level` is two-sided at twice that.
    let border = quantile_two_sided((2.0 * level).min(1.0), freedom);
    let (low, high) = (((-margin - effect) * scale).max(-FAR), ((margin - effect) * scale).min(FAR));
    let share = |s: f64| (normal(high - border * s) - normal(low + border * s)).max(0.0);
    average_until((high - low) / (2.0 * border), freedom, low.abs().max(high.abs()), share)
}

/// The fewest pairs with which a difference of `effect` standard deviations is shown with probability `power`, by a t
/// test and by a sign-flip test that needs enough pairs to reach `level` at all. `None` above [`MOST_PAIRS`].
pub fn pairs_for_difference(effect: f64, level: f64, power: f64) -> Option<usize> {
    fewest(fewest_pairs(level), |pairs| of_difference(effect, pairs, level) >= power)
}

/// The same for equivalence. Its sign-flip tests are one-sided, so they reach `level` with one pair fewer.
pub fn pairs_for_equivalence(effect: f64, margin: f64, level: f64, power: f64) -> Option<usize> {
    if effect.abs() >= margin {
        return None;
    }
    fewest(fewest_pairs((2.0 * level).min(1.0)), |pairs| of_equivalence(effect, margin, pairs, level) >= power)
}

/// The first count from `least` on, and from 2, for which `enough` holds; what is enough stays enough.
fn fewest(least: usize, enough: impl Fn(usize) -> bool) -> Option<usize> {
    let mut high = least.max(2);
    let mut low = high - 1;
    while !enough(high) {
        (low, high) = (high, high.saturating_mul(2));
        if low >= MOST_PAIRS {
            return None;
        }
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle }
    }
    (high <= MOST_PAIRS).then_some(high)
}
