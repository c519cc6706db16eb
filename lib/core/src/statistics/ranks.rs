//! What depends on the order of values alone: agreement of two orders, percentiles.

use super::{float, root};

/// Kendall's tau-b of pairs of values, which counts ties on both sides (Kendall, "The Treatment of Ties in Ranking
/// Problems", Biometrika 1945): concordant less discordant pairs, over the geometric mean of the pairs that are no tie on
/// the one side and on the other. `None` where one side is all ties.
pub fn tau_b(pairs: &[(f64, f64)]) -> Option<f64> {
    let (mut balance, mut of_one, mut of_other) = (0.0, 0.0, 0.0);
    let sign = |difference: f64| if difference == 0.0 { 0.0 } else { difference.signum() };
    for (place, (a, b)) in pairs.iter().enumerate() {
        for (c, d) in &pairs[place + 1..] {
            let (one, other) = (sign(a - c), sign(b - d));
            balance += one * other;
            of_one += one.abs();
            of_other += other.abs();
        }
    }
    (of_one > 0.0 && of_other > 0.0).then(|| balance / root(of_one * of_other))
}

/// The value at the nearest rank: the smallest of the sorted values that at least this share of them does not exceed
/// (definition 1 of Hyndman and Fan, "Sample Quantiles in Statistical Packages", The American Statistician 1996).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place within the list")]
pub fn nearest_rank(sorted: &[f64], share: f64) -> Option<f64> {
    let place = libm::ceil(share * float(sorted.len())) as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;

    /// Worked out by hand.
    #[test]
    fn rank_agreement_counts_ties_on_both_sides() {
        let tau = |one: &[f64], other: &[f64]| {
            tau_b(&one.iter().copied().zip(other.iter().copied()).collect::<alloc::vec::Vec<_>>())
        };
        assert_eq!(tau(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]), Some(4.0 / 6.0));
        assert_eq!(tau(&[1.0, 1.0, 2.0], &[1.0, 2.0, 3.0]), Some(2.0 / libm::sqrt(6.0)));
        assert_eq!(tau(&[1.0, 2.0], &[2.0, 1.0]), Some(-1.0));
        assert_eq!(tau(&[1.0, 1.0], &[2.0, 1.0]), None);
    }

    #[test]
    fn percentiles_are_values_at_the_nearest_rank() {
        let values: [f64; 20] = core::array::from_fn(|place| float(place + 1));
        let found = [0.0, 0.5, 0.95, 0.99, 1.0].map(|share| nearest_rank(&values, share));
        assert_eq!(found, [1.0, 10.0, 19.0, 20.0, 20.0].map(Some));
        assert_eq!(nearest_rank(&[], 0.5), None);
    }
}
