//! The form of the MNIST files (LeCun, Cortes, Burges, "The MNIST database", the IDX format): four bytes `00 00`, type and
//! number of dimensions, each dimension in four big-endian bytes, the values.

use super::array::{Array, Kind};

/// Type of a file whose values are bytes.
const BYTES: u8 = 0x08;
/// Type of a file whose values are binary32 in big-endian order.
const FLOATS: u8 = 0x0d;

/// Takes a file apart, or says what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    let (head, mut rest) = bytes.split_first_chunk::<4>().ok_or("it is shorter than its first four bytes")?;
    let [0, 0, kind @ (BYTES | FLOATS), count @ 1..=4] = *head else {
        return Err(format!("it begins with {head:02x?}, expected 00 00, 08 or 0d, and 1 to 4 dimensions"));
    };
    let mut dimensions = Vec::new();
    for _ in 0..count {
        let (size, behind) = rest.split_first_chunk::<4>().ok_or("it ends among its dimensions")?;
        dimensions.push(usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX));
        rest = behind;
    }
    Array::new(if kind == BYTES { Kind::Bytes } else { Kind::FloatsBig }, dimensions, rest)
}
