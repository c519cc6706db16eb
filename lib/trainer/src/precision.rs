//! In which numbers a model computes.

use tch::{Kind, Tensor};
use xt_core::manifest::candidate::Precision;
use xt_torch::autocast::Autocast;

use crate::fault::TrainError;

/// What `forward` gives when its products are computed in `precision`, as binary32. Whatever it computes backward later is
/// in the numbers that it was computed in forward.
pub fn computing(
    precision: Precision,
    forward: impl FnOnce() -> Result<Tensor, TrainError>,
) -> Result<Tensor, TrainError> {
    match precision {
        Precision::Float32 => forward(),
        Precision::Float16 | Precision::Float16Scaled => narrow(Autocast::float16()?, forward),
        Precision::Bfloat16 => narrow(Autocast::bfloat16()?, forward),
    }
}

fn narrow(narrow: Autocast, forward: impl FnOnce() -> Result<Tensor, TrainError>) -> Result<Tensor, TrainError> {
    let outputs = forward();
    drop(narrow);
    Ok(outputs?.f_to_kind(Kind::Float)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_above_65504_are_infinite_in_binary16_and_numbers_in_binary32() {
        let (row, column) =
            (Tensor::from_slice(&[300.0f32]).view([1, 1]), Tensor::from_slice(&[300.0f32]).view([1, 1]));
        let product = |precision| {
            let found = computing(precision, || Ok(row.f_mm(&column)?)).unwrap();
            assert_eq!(found.kind(), Kind::Float);
            found.double_value(&[0, 0])
        };
        assert_eq!(product(Precision::Float32), 90_000.0);
        assert_eq!(product(Precision::Float16), f64::INFINITY);
        assert_eq!(product(Precision::Float32), 90_000.0, "it ends where it began");
    }

    #[test]
    fn bfloat16_has_the_range_of_binary32_and_eight_bits_of_its_digits() {
        let number = |value: f32| Tensor::from_slice(&[value]).view([1, 1]);
        let product = |value: f32, precision| {
            computing(precision, || Ok(number(value).f_mm(&number(value))?)).unwrap().double_value(&[0, 0])
        };
        assert!((product(300.0, Precision::Bfloat16) - 90_000.0).abs() < 500.0);
        // 1 + 2^-8 lies between two numbers of bfloat16, the even one of which is 1; binary16 has it.
        let between = 1.0 + 1.0 / 256.0;
        assert_eq!(product(between, Precision::Bfloat16), 1.0);
        assert_ne!(product(between, Precision::Float16), 1.0);
    }

    /// 1 + 2^-11 is a number of binary32 and none of binary16.
    #[test]
    fn products_are_rounded_to_binary16() {
        let (row, one) = (Tensor::from_slice(&[1.0f32 + f32::EPSILON * 4096.0]), Tensor::from_slice(&[1.0f32]));
        let (row, one) = (row.view([1, 1]), one.view([1, 1]));
        let found = computing(Precision::Float16, || Ok(row.f_mm(&one)?)).unwrap();
        assert_eq!(found.double_value(&[0, 0]), 1.0);
    }
}
