//! Differences between the words of two blocks: what is left of a weight when the same weight of an earlier state is known.
//!
//! Words are read as floating-point numbers, least significant byte first, and mapped to integers in the order of the numbers:
//! the bits of one that is not negative with the sign bit set, the complement of the bits of a negative one. The difference of
//! two such integers, modulo their range, is small when the numbers are close, whatever their signs. Twice the difference, or
//! the complement of that when it is negative, has its small values at zero. Bytes behind the last whole word are kept.

/// Writes the differences of `plain` from `base`, which is as long, in place of what `out` holds.
pub fn apart(plain: &[u8], base: &[u8], width: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(plain);
    if width == 4 {
        for (out, base) in out.as_chunks_mut::<4>().0.iter_mut().zip(base.as_chunks::<4>().0) {
            let apart = ordered_4(u32::from_le_bytes(*out)).wrapping_sub(ordered_4(u32::from_le_bytes(*base)));
            *out = (apart << 1 ^ (apart.cast_signed() >> 31).cast_unsigned()).to_le_bytes();
        }
    } else {
        for (out, base) in out.as_chunks_mut::<2>().0.iter_mut().zip(base.as_chunks::<2>().0) {
            let apart = ordered_2(u16::from_le_bytes(*out)).wrapping_sub(ordered_2(u16::from_le_bytes(*base)));
            *out = (apart << 1 ^ (apart.cast_signed() >> 15).cast_unsigned()).to_le_bytes();
        }
    }
}

/// Turns differences back into what they were taken of.
pub fn together(apart: &mut [u8], base: &[u8], width: usize) -> Result<(), String> {
    if apart.len() != base.len() {
        return Err(format!("its base has {} bytes instead of {}", base.len(), apart.len()));
    }
    if width == 4 {
        for (out, base) in apart.as_chunks_mut::<4>().0.iter_mut().zip(base.as_chunks::<4>().0) {
            let folded = u32::from_le_bytes(*out);
            let apart = folded >> 1 ^ (folded & 1).wrapping_neg();
            *out = number_4(ordered_4(u32::from_le_bytes(*base)).wrapping_add(apart)).to_le_bytes();
        }
    } else {
        for (out, base) in apart.as_chunks_mut::<2>().0.iter_mut().zip(base.as_chunks::<2>().0) {
            let folded = u16::from_le_bytes(*out);
            let apart = folded >> 1 ^ (folded & 1).wrapping_neg();
            *out = number_2(ordered_2(u16::from_le_bytes(*base)).wrapping_add(apart)).to_le_bytes();
        }
    }
    Ok(())
}

/// The integer of a number; its bits but the sign are complemented when it is negative, and its sign always.
const fn ordered_4(bits: u32) -> u32 {
    bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 1 << 31)
}

const fn number_4(ordered: u32) -> u32 {
    ordered ^ ((!ordered.cast_signed() >> 31).cast_unsigned() | 1 << 31)
}

const fn ordered_2(bits: u16) -> u16 {
    bits ^ ((bits.cast_signed() >> 15).cast_unsigned() | 1 << 15)
}

const fn number_2(ordered: u16) -> u16 {
    ordered ^ ((!ordered.cast_signed() >> 15).cast_unsigned() | 1 << 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_integers_stand_in_the_order_of_the_numbers() {
        let numbers = [f32::NEG_INFINITY, -2.5, -f32::MIN_POSITIVE, -0.0, 0.0, 1e-45, 1.0, f32::MAX, f32::INFINITY];
        let integers: Vec<u32> = numbers.iter().map(|number| ordered_4(number.to_bits())).collect();
        assert!(integers.is_sorted_by(|a, b| a < b), "{integers:?}");
    }

    #[test]
    fn every_word_comes_back_from_every_base() {
        let words = [0, 1, 0x7f80_0000, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xff80_0001, u32::MAX, 0x3f80_1234];
        for (shift, width) in [(0, 4), (1, 4), (3, 4), (0, 2), (1, 2), (5, 2)] {
            let mut plain: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            plain.push(9);
            let mut base = plain.clone();
            base.rotate_left(shift * 4);
            let mut out = Vec::new();
            apart(&plain, &base, width, &mut out);
            assert_ne!(out, plain);
            together(&mut out, &base, width).unwrap();
            assert_eq!(out, plain, "{shift} {width}");
            assert!(together(&mut out, &base[1..], width).is_err());
        }
    }

    #[test]
    fn numbers_that_are_close_are_small_differences_across_zero() {
        let (mut out, one, other) = (Vec::new(), 1e-44_f32.to_le_bytes(), (-1e-44_f32).to_le_bytes());
        apart(&one, &other, 4, &mut out);
        assert!(u32::from_le_bytes([out[0], out[1], out[2], out[3]]) < 100);
    }
}
