//! How the bytes of a block are stored. One byte names the codec; a byte never changes its meaning.

use std::borrow::Cow;
use std::fmt;

use zstd::bulk::Compressor;

use crate::block::MAX_BLOCK;
use crate::planes;

/// The bytes as they are.
pub const RAW: u8 = 0;
/// One zstd frame (RFC 8878).
pub const ZSTD: u8 = 1;
/// Byte planes of words, each plane raw or one zstd frame (see planes.rs).
pub const PLANES: u8 = 2;

/// Blocks shorter than this are compressed without trial, and harder: they are text more often than not.
const SMALL: usize = 128 << 10;
/// How much of a longer block is tried.
const SAMPLE: usize = 32 << 10;
/// Below this planes are not worth their heads.
const LEAST: usize = 1 << 10;

/// Chooses codecs and encodes. It keeps its contexts, since making one costs more than compressing a small file.
#[derive(Default)]
pub struct Encoder {
    hard: Option<Compressor<'static>>,
    fast: Option<Compressor<'static>>,
}

impl Encoder {
    /// The codec chosen for `plain`, and the stored bytes.
    pub fn encode<'a>(&mut self, plain: &'a [u8]) -> (u8, Cow<'a, [u8]>) {
        let packed = if plain.len() < SMALL { self.small(plain) } else { self.large(plain) };
        packed.map_or((RAW, Cow::Borrowed(plain)), |(codec, packed)| (codec, Cow::Owned(packed)))
    }

    /// The same for a block of many small files, which is worth more effort.
    pub fn encode_text<'a>(&mut self, plain: &'a [u8]) -> (u8, Cow<'a, [u8]>) {
        compress(&mut self.hard, 3, plain).map_or((RAW, Cow::Borrowed(plain)), |packed| (ZSTD, Cow::Owned(packed)))
    }

    /// Codes all of it one way, and the other way where the first saves less than a quarter.
    fn small(&mut self, plain: &[u8]) -> Option<(u8, Vec<u8>)> {
        let whole = compress(&mut self.hard, 3, plain);
        let good = whole.as_ref().is_some_and(|packed| packed.len() < plain.len() / 4 * 3);
        let planes = (!good && plain.len() >= LEAST).then(|| self.planes(plain, 4)).filter(|packed| {
            gains(packed.len(), plain.len()) && whole.as_ref().is_none_or(|whole| packed.len() < whole.len())
        });
        planes.map(|packed| (PLANES, packed)).or(whole.map(|packed| (ZSTD, packed)))
    }

    /// Tries a sample from the middle, since heads of files are often text, and codes all of it the best way.
    fn large(&mut self, plain: &[u8]) -> Option<(u8, Vec<u8>)> {
        let start = (plain.len() - SAMPLE) / 8 * 4;
        let sample = &plain[start..start + SAMPLE];
        let whole = compress(&mut self.fast, 1, sample).map(|packed| (packed.len(), 0));
        let tried = planes::WIDTHS.map(|width| (self.planes(sample, width).len(), width));
        let (length, width) = tried.into_iter().chain(whole).min()?;
        if !gains(length, sample.len()) {
            return None;
        }
        if width == 0 {
            return compress(&mut self.fast, 1, plain).map(|packed| (ZSTD, packed));
        }
        Some((PLANES, self.planes(plain, width))).filter(|(_, packed)| gains(packed.len(), plain.len()))
    }

    fn planes(&mut self, plain: &[u8], width: usize) -> Vec<u8> {
        planes::encode(plain, width, &mut |plane| {
            prepared(&mut self.fast, 1).and_then(|fast| fast.compress(plane).ok())
        })
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Compresses if that is worth it; what cannot be compressed is stored as it is.
fn compress(kept: &mut Option<Compressor<'static>>, level: i32, plain: &[u8]) -> Option<Vec<u8>> {
    let packed = prepared(kept, level)?.compress(plain).ok()?;
    gains(packed.len(), plain.len()).then_some(packed)
}

fn prepared<'a>(kept: &'a mut Option<Compressor<'static>>, level: i32) -> Option<&'a mut Compressor<'static>> {
    if kept.is_none() {
        *kept = Compressor::new(level).ok();
    }
    kept.as_mut()
}

/// Compression must save an eighth, or decoding costs more than the space is worth: plain zstd saves 8 % of trained
/// 32-bit weights, but half or more of text.
const fn gains(packed: usize, plain: usize) -> bool {
    packed + plain / 8 < plain
}

/// The plain bytes of a block that claims to have `length` of them.
pub fn decode(codec: u8, stored: Vec<u8>, length: u64) -> Result<Vec<u8>, String> {
    let Some(length) = usize::try_from(length).ok().filter(|length| *length as u64 <= MAX_BLOCK) else {
        return Err(format!("a block of {length} bytes is longer than {MAX_BLOCK}"));
    };
    let plain = match codec {
        RAW => stored,
        ZSTD => zstd::bulk::decompress(&stored, length).map_err(|error| format!("zstd: {error}"))?,
        PLANES => planes::decode(&stored, length, &|plane, words| {
            zstd::bulk::decompress(plane, words).map_err(|error| format!("zstd: {error}"))
        })?,
        other => return Err(format!("unknown codec {other}")),
    };
    if plain.len() == length { Ok(plain) } else { Err(format!("{} bytes instead of {length}", plain.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressed_and_noise_is_not() {
        let mut encoder = Encoder::default();
        let text = b"the same words again, ".repeat(10_000);
        let mut state = 1u64;
        let noise: Vec<u8> = (0..200_000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect();
        for (plain, expected) in [(&text[..], ZSTD), (&text[..1000], ZSTD), (&noise[..], RAW), (&noise[..1000], RAW)] {
            let (codec, stored) = encoder.encode(plain);
            assert_eq!(codec, expected);
            assert_eq!(decode(codec, stored.into_owned(), plain.len() as u64).as_deref(), Ok(plain));
        }
        assert_eq!(encoder.encode(b"").0, RAW);
    }

    #[test]
    fn floats_are_taken_apart_and_come_back() {
        let mut encoder = Encoder::default();
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f32::from_bits(0x3f80_0000 | u32::try_from(state >> 41).unwrap()) - 1.5
        };
        // Sums of uniform numbers are about normal, as weights are.
        let weights: Vec<u8> = (0..200_000).flat_map(|_| (next() + next() + next()).to_le_bytes()).collect();
        let half: Vec<u8> = weights.chunks_exact(4).flat_map(|word| [word[2], word[3]]).collect();
        for (plain, most) in [(&weights[..], 88), (&weights[..40_000], 88), (&half[..], 75)] {
            let (codec, stored) = encoder.encode(plain);
            assert_eq!(codec, PLANES);
            assert!(stored.len() * 100 < plain.len() * most, "{} of {}", stored.len(), plain.len());
            assert_eq!(decode(codec, stored.into_owned(), plain.len() as u64).as_deref(), Ok(plain));
        }
    }

    #[test]
    fn wrong_lengths_and_unknown_codecs_are_errors() {
        let (codec, stored) = Encoder::default().encode(&[7; 1000]);
        let stored = stored.into_owned();
        assert_eq!(codec, ZSTD);
        for length in [999, 1001, MAX_BLOCK + 1, u64::MAX] {
            assert!(decode(codec, stored.clone(), length).is_err(), "{length}");
        }
        assert!(decode(RAW, vec![0; 4], 5).is_err());
        assert!(decode(9, vec![0; 4], 4).is_err());
    }
}
