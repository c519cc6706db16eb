//! Byte planes: the words of a block taken apart into their first bytes, their second bytes, and so on.
//!
//! The mantissa of a trained weight is noise, its exponent is not. Each word is rotated left by one bit first, so that the
//! sign goes to the noise and the exponent fills one byte; then each plane is coded for itself. Of a 32-bit weight that
//! leaves about 26.6 bits, and no more effort leaves less: three planes have no structure, and the fourth has nothing but
//! unequal frequencies.
//!
//! ```text
//! width of a word in bytes: 2 or 4 (1)
//! for each plane, the lowest byte first: length as stored, little endian (4); the highest bit says that it is stored raw
//! the planes, one after the other
//! the bytes behind the last whole word
//! ```

use std::borrow::Cow;

use crate::pool::{give_spare, spare};

/// Marks a plane that is stored as it is.
const RAW: u32 = 1 << 31;
/// How much of a plane is looked at to tell noise from something.
const SAMPLE: usize = 16 << 10;
/// Bits a byte above which coding a plane is not worth its time. 16 Ki bytes of pure noise show 7.989: the estimate falls
/// short by 255 / (2 · 16384 · ln 2) (Miller, 1955).
const NOISE: f64 = 7.9;

/// Codes a plane into a buffer; false when that is not possible.
type Pack<'a> = &'a mut dyn FnMut(&[u8], &mut Vec<u8>) -> bool;
/// Decodes a plane of a length.
type Unpack<'a> = &'a dyn Fn(&[u8], usize) -> Result<Vec<u8>, String>;

/// Buffers of an encoder.
#[derive(Debug, Default)]
pub struct Scratch {
    planes: Vec<u8>,
    packed: Vec<u8>,
}

/// Widths of words that are tried.
pub const WIDTHS: [usize; 2] = [4, 2];

/// Takes a block apart, into `out`. `scratch` gets the planes; `pack` codes one plane into its second argument, or says that
/// it is not worth it.
pub fn encode(plain: &[u8], width: usize, scratch: &mut Scratch, out: &mut Vec<u8>, pack: Pack<'_>) {
    let words = plain.len() / width;
    scratch.planes.resize(words * width, 0);
    split(&plain[..words * width], width, &mut scratch.planes);
    let start = out.len();
    out.push(u8::try_from(width).unwrap_or_default());
    out.resize(start + 1 + 4 * width, 0);
    for (number, plane) in scratch.planes.chunks(words.max(1)).take(width).enumerate() {
        let packed = !noisy(plane) && pack(plane, &mut scratch.packed) && scratch.packed.len() < plane.len();
        let (flag, body) = if packed { (0, &scratch.packed[..]) } else { (RAW, plane) };
        let head = u32::try_from(body.len()).map_or(0, |length| length | flag);
        let at = start + 1 + 4 * number;
        out[at..at + 4].copy_from_slice(&head.to_le_bytes());
        out.extend_from_slice(body);
    }
    out.extend_from_slice(&plain[words * width..]);
}

/// Puts a block of `length` bytes together again; `unpack` decodes a plane of a length.
pub fn decode(stored: &[u8], length: usize, unpack: Unpack<'_>) -> Result<Vec<u8>, String> {
    let cut = || "its planes are cut off".to_owned();
    let (width, rest) = stored.split_first().ok_or_else(cut)?;
    let width = usize::from(*width);
    if !WIDTHS.contains(&width) {
        return Err(format!("words of {width} bytes"));
    }
    let (heads, mut rest) = rest.split_at_checked(4 * width).ok_or_else(cut)?;
    let words = length / width;
    let mut planes: [Cow<'_, [u8]>; 4] = Default::default();
    for (plane, head) in planes.iter_mut().zip(heads.chunks_exact(4)) {
        let head = head.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let (body, behind) = rest.split_at_checked((head & !RAW) as usize).ok_or_else(cut)?;
        *plane = if head & RAW == 0 { Cow::Owned(unpack(body, words)?) } else { Cow::Borrowed(body) };
        if plane.len() != words {
            return Err(format!("a plane of {} bytes instead of {words}", plane.len()));
        }
        rest = behind;
    }
    let mut plain = spare(words * width);
    let [a, b, c, d] = &planes;
    if width == 4 {
        join_4([a, b, c, d], &mut plain);
    } else {
        join_2([a, b], &mut plain);
    }
    for plane in planes {
        if let Cow::Owned(plane) = plane {
            give_spare(plane);
        }
    }
    plain.extend_from_slice(rest);
    Ok(plain)
}

/// So many words are taken apart at once: fixed lengths become vector instructions.
const AT_ONCE: usize = 64;

fn split(plain: &[u8], width: usize, planes: &mut [u8]) {
    let words = plain.len() / width;
    if width == 4 {
        let (low, high) = planes.split_at_mut(2 * words);
        let ((a, b), (c, d)) = (low.split_at_mut(words), high.split_at_mut(words));
        split_4(plain, [a, b, c, d]);
    } else {
        let (a, b) = planes.split_at_mut(words);
        split_2(plain, [a, b]);
    }
}

fn split_4(plain: &[u8], [a, b, c, d]: [&mut [u8]; 4]) {
    let mut words = [0; AT_ONCE];
    let outs = a.chunks_mut(AT_ONCE).zip(b.chunks_mut(AT_ONCE)).zip(c.chunks_mut(AT_ONCE).zip(d.chunks_mut(AT_ONCE)));
    for (((a, b), (c, d)), chunk) in outs.zip(plain.chunks(4 * AT_ONCE)) {
        for (word, bytes) in words.iter_mut().zip(chunk.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes).rotate_left(1);
        }
        plane_4::<0>(&words, a);
        plane_4::<1>(&words, b);
        plane_4::<2>(&words, c);
        plane_4::<3>(&words, d);
    }
}

fn plane_4<const BYTE: usize>(words: &[u32; AT_ONCE], out: &mut [u8]) {
    match <&mut [u8; AT_ONCE]>::try_from(&mut *out) {
        Ok(out) => out.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes()[BYTE]),
        Err(_) => out.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes()[BYTE]),
    }
}

fn split_2(plain: &[u8], [a, b]: [&mut [u8]; 2]) {
    for ((a, b), word) in a.iter_mut().zip(b).zip(plain.as_chunks::<2>().0) {
        [*a, *b] = u16::from_le_bytes(*word).rotate_left(1).to_le_bytes();
    }
}

fn join_4([a, b, c, d]: [&[u8]; 4], plain: &mut [u8]) {
    let parts = a.iter().zip(b).zip(c.iter().zip(d));
    for (((a, b), (c, d)), out) in parts.zip(plain.as_chunks_mut::<4>().0) {
        *out = u32::from_le_bytes([*a, *b, *c, *d]).rotate_right(1).to_le_bytes();
    }
}

fn join_2([a, b]: [&[u8]; 2], plain: &mut [u8]) {
    for ((a, b), out) in a.iter().zip(b).zip(plain.as_chunks_mut::<2>().0) {
        *out = u16::from_le_bytes([*a, *b]).rotate_right(1).to_le_bytes();
    }
}

/// Whether the bytes of a plane are as good as equally frequent, by a look at its middle (Shannon, 1948).
fn noisy(plane: &[u8]) -> bool {
    if plane.len() < SAMPLE {
        return false;
    }
    let start = (plane.len() - SAMPLE) / 2;
    let mut counts = [0_u32; 256];
    plane[start..start + SAMPLE].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    #[expect(clippy::cast_precision_loss, reason = "16384 is exact")]
    let total = SAMPLE as f64;
    let bits = |count: &u32| f64::from(*count) / total * (total / f64::from((*count).max(1))).log2();
    counts.iter().map(bits).sum::<f64>() > NOISE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(bytes: &[u8], length: usize) -> Result<Vec<u8>, String> {
        zstd::bulk::decompress(bytes, length).map_err(|error| error.to_string())
    }

    fn encode(plain: &[u8], width: usize) -> Vec<u8> {
        let mut out = Vec::new();
        super::encode(plain, width, &mut Scratch::default(), &mut out, &mut |plane, packed| {
            *packed = zstd::bulk::compress(plane, 1).unwrap();
            true
        });
        out
    }

    /// Numbers between one and two.
    fn numbers(count: u32) -> Vec<u8> {
        let number = |i: u32| f32::from_bits(0x3f80_0000 | (i.wrapping_mul(2_654_435_761) >> 9));
        (0..count).flat_map(|i| number(i).to_le_bytes()).collect()
    }

    #[test]
    fn every_length_of_every_width_comes_back() {
        for length in (0..40).chain([70_001, 200_003]) {
            let plain: Vec<u8> = numbers(length);
            for cut in 0..4.min(plain.len() + 1) {
                for width in WIDTHS {
                    let plain = &plain[cut..];
                    let stored = encode(plain, width);
                    assert_eq!(decode(&stored, plain.len(), &unpack).as_deref(), Ok(plain), "{length} {cut} {width}");
                }
            }
        }
    }

    #[test]
    fn lies_about_lengths_are_errors() {
        let plain: Vec<u8> = numbers(5000);
        let stored = encode(&plain, 4);
        for wrong in [0, 4, plain.len() - 4, plain.len() + 4] {
            let decoded = decode(&stored, wrong, &unpack);
            assert!(decoded.is_err() || decoded.is_ok_and(|decoded| decoded != plain), "{wrong}");
        }
        for length in 0..stored.len() {
            let decoded = decode(&stored[..length], plain.len(), &unpack);
            assert!(decoded.is_err(), "{length}");
        }
        let mut odd = stored;
        odd[0] = 3;
        assert!(decode(&odd, plain.len(), &unpack).is_err());
    }
}
