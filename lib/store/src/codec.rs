//! How the bytes of a block are stored. One byte names the codec; a byte never changes its meaning.

use std::borrow::Cow;
use std::fmt;

use zstd::bulk::Compressor;

use crate::block::MAX_BLOCK;

/// The bytes as they are.
pub const RAW: u8 = 0;
/// One zstd frame (RFC 8878).
pub const ZSTD: u8 = 1;

/// Blocks shorter than this are compressed without trial, and harder: they are text more often than not.
const SMALL: usize = 128 << 10;
/// How much of a longer block is tried.
const SAMPLE: usize = 32 << 10;

/// Chooses codecs and encodes. It keeps its contexts, since making one costs more than compressing a small file.
#[derive(Default)]
pub struct Encoder {
    hard: Option<Compressor<'static>>,
    fast: Option<Compressor<'static>>,
}

impl Encoder {
    /// The codec chosen for `plain`, and the stored bytes.
    pub fn encode<'a>(&mut self, plain: &'a [u8]) -> (u8, Cow<'a, [u8]>) {
        let packed = if plain.len() < SMALL {
            compress(&mut self.hard, 3, plain)
        } else {
            self.promising(plain).then(|| compress(&mut self.fast, 1, plain)).flatten()
        };
        packed.map_or((RAW, Cow::Borrowed(plain)), |packed| (ZSTD, Cow::Owned(packed)))
    }

    /// Tries a sample from the middle, since heads of files are often text.
    fn promising(&mut self, plain: &[u8]) -> bool {
        let start = (plain.len() - SAMPLE) / 2;
        compress(&mut self.fast, 1, &plain[start..start + SAMPLE]).is_some()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Compresses if that is worth it; what cannot be compressed is stored as it is.
fn compress(kept: &mut Option<Compressor<'static>>, level: i32, plain: &[u8]) -> Option<Vec<u8>> {
    if kept.is_none() {
        *kept = Compressor::new(level).ok();
    }
    let packed = kept.as_mut()?.compress(plain).ok()?;
    gains(packed.len(), plain.len()).then_some(packed)
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
