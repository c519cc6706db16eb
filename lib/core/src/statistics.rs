//! What a comparison of candidates rests on: distributions, tests of paired differences, resampling, power. Everything
//! is written out here from its source, with `libm`, so that it gives the same bits on every machine.

pub mod correct;
pub mod noncentral;
pub mod paired;
pub mod power;
pub mod ranks;
pub mod resample;
pub mod signs;
pub mod student;

/// The root, correctly rounded.
pub(crate) fn root(value: f64) -> f64 {
    libm::sqrt(value)
}

/// A count as a float; exact, since no list here has 2^53 items.
#[expect(clippy::cast_precision_loss, reason = "counts here are far below 2^53")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

/// The sum, made from the values in order of size, so that their order does not matter and their opposites give the
/// opposite sum. Compensated (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen",
/// ZAMM 1974).
pub(crate) fn sum(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.abs().total_cmp(&other.abs()).then(one.total_cmp(other)));
    let (mut total, mut lost) = (0.0_f64, 0.0);
    for value in sorted {
        let next = total + value;
        lost += if total.abs() >= value.abs() { (total - next) + value } else { (value - next) + total };
        total = next;
    }
    total + lost
}
