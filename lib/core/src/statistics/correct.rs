//! Several comparisons at once.

use alloc::vec;
use alloc::vec::Vec;

use super::float;

/// Holm's step-down adjustment: a list of p-values may be held against one level after it (Holm, "A Simple Sequentially
/// Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|one, other| p[*one].total_cmp(&p[*other]));
    let mut adjusted = vec![1.0; p.len()];
    let mut least: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        least = least.max(float(p.len() - place) * p[index]).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}
