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

/// Marks a plane that is stored as it is.
const RAW: u32 = 1 << 31;
/// How much of a plane is looked at to tell noise from something.
const SAMPLE: usize = 16 << 10;
/// Bits a byte above which coding a plane is not worth its time. 16 Ki bytes of pure noise show 7.989: the estimate falls
/// short by 255 / (2 · 16384 · ln 2) (Miller, 1955).
const NOISE: f64 = 7.9;

/// Decodes a plane of a length.
type Unpack<'a> = dyn Fn(&[u8], usize) -> Result<Vec<u8>, String> + 'a;

/// Widths of words that are tried.
pub const WIDTHS: [usize; 2] = [4, 2];

/// Takes a block apart; `pack` codes one plane, or says that it is not worth it.
pub fn encode(plain: &[u8], width: usize, pack: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let words = plain.len() / width;
    let planes = split(&plain[..words * width], width);
    let mut heads = vec![u8::try_from(width).unwrap_or_default()];
    let mut bodies = Vec::with_capacity(plain.len());
    for plane in planes.chunks(words.max(1)).take(width) {
        let packed = if noisy(plane) { None } else { pack(plane).filter(|packed| packed.len() < plane.len()) };
        let flag = if packed.is_some() { 0 } else { RAW };
        let body = packed.as_deref().unwrap_or(plane);
        heads.extend(u32::try_from(body.len()).map_or(0, |length| length | flag).to_le_bytes());
        bodies.extend_from_slice(body);
    }
    heads.resize(1 + 4 * width, 0);
    heads.extend(bodies);
    heads.extend_from_slice(&plain[words * width..]);
    heads
}

/// Puts a block of `length` bytes together again; `unpack` decodes a plane of a length.
pub fn decode(stored: &[u8], length: usize, unpack: &Unpack<'_>) -> Result<Vec<u8>, String> {
    let cut = || "its planes are cut off".to_owned();
    let (width, rest) = stored.split_first().ok_or_else(cut)?;
    let width = usize::from(*width);
    if !WIDTHS.contains(&width) {
        return Err(format!("words of {width} bytes"));
    }
    let (heads, mut rest) = rest.split_at_checked(4 * width).ok_or_else(cut)?;
    let words = length / width;
    let mut planes = Vec::with_capacity(words * width);
    for head in heads.chunks_exact(4) {
        let head = head.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        let (body, behind) = rest.split_at_checked((head & !RAW) as usize).ok_or_else(cut)?;
        if head & RAW == 0 {
            planes.extend(unpack(body, words)?);
        } else {
            planes.extend_from_slice(body);
        }
        rest = behind;
    }
    if planes.len() != words * width {
        return Err(format!("planes of {} bytes instead of {}", planes.len(), words * width));
    }
    let mut plain = join(&planes, width);
    plain.extend_from_slice(rest);
    Ok(plain)
}

fn split(plain: &[u8], width: usize) -> Vec<u8> {
    let words = plain.len() / width;
    let mut planes = vec![0; plain.len()];
    if width == 4 {
        let (low, high) = planes.split_at_mut(2 * words);
        let ((a, b), (c, d)) = (low.split_at_mut(words), high.split_at_mut(words));
        for (((a, b), (c, d)), word) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)).zip(plain.chunks_exact(4)) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).rotate_left(1).to_le_bytes();
            [*a, *b, *c, *d] = word;
        }
    } else {
        let (a, b) = planes.split_at_mut(words);
        for ((a, b), word) in a.iter_mut().zip(b).zip(plain.chunks_exact(2)) {
            [*a, *b] = u16::from_le_bytes([word[0], word[1]]).rotate_left(1).to_le_bytes();
        }
    }
    planes
}

fn join(planes: &[u8], width: usize) -> Vec<u8> {
    let words = planes.len() / width;
    let mut plain = vec![0; planes.len()];
    if width == 4 {
        let (low, high) = planes.split_at(2 * words);
        let ((a, b), (c, d)) = (low.split_at(words), high.split_at(words));
        for (((a, b), (c, d)), word) in a.iter().zip(b).zip(c.iter().zip(d)).zip(plain.chunks_exact_mut(4)) {
            word.copy_from_slice(&u32::from_le_bytes([*a, *b, *c, *d]).rotate_right(1).to_le_bytes());
        }
    } else {
        let (a, b) = planes.split_at(words);
        for ((a, b), word) in a.iter().zip(b).zip(plain.chunks_exact_mut(2)) {
            word.copy_from_slice(&u16::from_le_bytes([*a, *b]).rotate_right(1).to_le_bytes());
        }
    }
    plain
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

    fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
        zstd::bulk::compress(bytes, 1).ok()
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
                    let stored = encode(plain, width, &mut pack);
                    assert_eq!(decode(&stored, plain.len(), &unpack).as_deref(), Ok(plain), "{length} {cut} {width}");
                }
            }
        }
    }

    #[test]
    fn lies_about_lengths_are_errors() {
        let plain: Vec<u8> = numbers(5000);
        let stored = encode(&plain, 4, &mut pack);
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
