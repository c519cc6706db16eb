//! Exact tests of paired differences, which assume no shape of distribution.

use alloc::vec;
use alloc::vec::Vec;

use super::{float, sum};

/// Sums of so many differences or fewer are all looked at.
pub const MOST_EXACT: usize = 32;

/// The exact sign test, two-sided: how often a fair coin would show so uneven a split of `positive` and `negative`.
/// Differences of 0 take no part (Dixon and Mood, "The Statistical Sign Test", Journal of the American Statistical
/// Association 1946).
pub fn sign_test(positive: usize, negative: usize) -> f64 {
    let (count, fewer) = (positive + negative, positive.min(negative));
    if count == 0 {
        return 1.0;
    }
    let (mut terms, mut term) = (vec![1.0], 1.0);
    if count <= LARGEST_COUNT {
        // Whole numbers up to 2^53, so exact for up to 56 pairs.
        for k in 0..fewer {
            term = term * float(count - k) / float(k + 1);
            terms.push(term);
        }
        return (2.0 * sum(&terms) * libm::exp2(-float(count))).min(1.0);
    }
    let ln_factorial = |n: usize| libm::lgamma(float(n) + 1.0);
    let whole = ln_factorial(count) - float(count) * core::f64::consts::LN_2;
    terms = (0..=fewer).map(|k| libm::exp(whole - ln_factorial(k) - ln_factorial(count - k))).collect();
    (2.0 * sum(&terms)).min(1.0)
}

/// Binomial coefficients stay within f64 up to here; beyond, their logarithms are taken.
const LARGEST_COUNT: usize = 1000;

/// The smallest p that a two-sided sign or sign-flip test can give with so many pairs: all differences on one side, one
/// of 2^pairs ways for each side.
pub fn smallest_p(pairs: usize) -> f64 {
    if pairs == 0 { 1.0 } else { libm::exp2(1.0 - float(pairs)) }
}

/// The fewest pairs with which p can come down to `level`.
pub fn fewest_pairs(level: f64) -> usize {
    (1..=1100).find(|pairs| smallest_p(*pairs) <= level).unwrap_or(usize::MAX)
}

/// How many of the sums of ± each value are at least (`+`) and at most the sum itself, as shares of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// The share of sums that are at least as large.
    pub at_least: f64,
    /// The share of sums that are at least as far from 0.
    pub as_far: f64,
}

/// The exact sign-flip test: if two candidates are alike, each difference could as well have had the other sign, and all
/// 2^n sums are equally likely (Fisher, "The Design of Experiments", 1935, section 21; Pitman, "Significance tests
/// which may be applied to samples from any populations", Supplement to the Journal of the Royal Statistical Society
/// 1937). `None` for more than [`MOST_EXACT`] values.
///
/// Each half of the values gives a sorted list of sums, and pairs from both are counted (Horowitz and Sahni, "Computing
/// Partitions with Applications to the Knapsack Problem", Journal of the ACM 1974), so 32 values take 2^16 steps.
pub fn sign_flips(values: &[f64]) -> Option<Shares> {
    if values.len() > MOST_EXACT {
        return None;
    }
    let (left, right) = values.split_at(values.len() / 2);
    let (left, right) = (sums(left), sums(right));
    let observed = sum(values);
    let slack = slack(values);
    let all = float(left.len()) * float(right.len());
    let at_least = |border: f64| count_at_least(&left, &right, border - slack);
    // The list of sums is its own opposite, so there are as many at most -s as at least s.
    let far = if observed.abs() <= slack { all } else { 2.0 * at_least(observed.abs()) };
    Some(Shares { at_least: at_least(observed) / all, as_far: (far / all).min(1.0) })
}

/// Sums that differ by no more than rounding count as equal: 0.83 - 0.81 and 0.63 - 0.61 are not the same bits.
pub(crate) fn slack(values: &[f64]) -> f64 {
    let sizes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    64.0 * f64::EPSILON * sum(&sizes)
}

/// Every sum of ± each value, sorted.
fn sums(values: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0];
    for value in values {
        all = all.iter().flat_map(|sum| [sum - value, sum + value]).collect();
    }
    all.sort_by(f64::total_cmp);
    all
}

/// How many pairs, one from each sorted list, have a sum of at least `border`.
fn count_at_least(left: &[f64], right: &[f64], border: f64) -> f64 {
    let mut from = right.len();
    let mut count = 0.0;
    for value in left {
        while from > 0 && value + right[from - 1] >= border {
            from -= 1;
        }
        count += float(right.len() - from);
    }
    count
}
