//! Plain loops, compiled once more for wider vectors.

/// Runs `work`, compiled for 256-bit vectors where this processor has them.
///
/// What it gives is the same at every width, since the compiler takes no liberties with the order of sums and merges no
/// product with a sum: `work` may only be made of operations that IEEE 754 or the whole numbers define exactly, and
/// not call the C library. Whatever it calls must be inlined to profit.
#[inline]
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { avx2(work) };
    }
    work()
}

#[target_feature(enable = "avx2")]
#[inline]
fn avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline]
    fn mixed(values: &[f32]) -> (f32, Vec<f32>) {
        (values.iter().sum(), values.iter().map(|value| value * 3.0 + value.sqrt() / 7.0).collect())
    }

    #[test]
    fn wide_loops_give_the_bits_of_narrow_ones() {
        let mut value = 1.0f32;
        let values: Vec<f32> = std::iter::repeat_with(|| {
            value = value * 1.7 % 13.0;
            value
        })
        .take(1003)
        .collect();
        let bits = |(sum, all): (f32, Vec<f32>)| (sum.to_bits(), all.into_iter().map(f32::to_bits).collect::<Vec<_>>());
        assert_eq!(bits(wide(|| mixed(&values))), bits(mixed(&values)));
    }
}
