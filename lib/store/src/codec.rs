//! How the bytes of a block are stored. One byte names the codec; a byte never changes its meaning.

use std::cell::RefCell;
use std::fmt;

use xt_core::digest::Digest;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, ParamSwitch, compress_bound};

use crate::block::MAX_BLOCK;
use crate::difference;
use crate::planes::{self, Scratch};
use crate::pool::{Pool, give_spare, spare};

/// The bytes as they are.
pub const RAW: u8 = 0;
/// One zstd frame (RFC 8878).
pub const ZSTD: u8 = 1;
/// Byte planes of words, each plane raw or one zstd frame (see planes.rs).
pub const PLANES: u8 = 2;
/// The digest of another block (32 bytes), then byte planes of the differences from its words (see difference.rs). The other
/// block is stored in one of the ways above: nothing is the difference from a difference.
pub const DIFFERENCE: u8 = 3;

/// Length of the digest in front of a difference.
pub const BASE: usize = 32;

/// Blocks shorter than this are compressed without trial, and harder: they are text more often than not.
const SMALL: usize = 128 << 10;
/// How much of a longer block is tried.
const SAMPLE: usize = 32 << 10;
/// Below this planes are not worth their heads.
const LEAST: usize = 1 << 10;
/// A difference must be smaller than the block alone by this part of its own length, or reading two blocks for one costs more
/// than the space is worth.
const CLEARLY: usize = 16;

/// A plane of so many bytes is tried first, on so many of them.
const LONG: usize = 128 << 10;
const TRIED: usize = 16 << 10;
/// Shorter repetitions in a plane are chance: naming them costs more than their bytes.
const REPEATED: u32 = 7;
/// How far to leap in search of repetitions where there are nearly none, so that what is left is counting bytes.
const LEAP: u32 = 64;

/// Chooses codecs and encodes. It keeps its contexts, since making one costs more than compressing a small file.
#[derive(Default)]
pub struct Encoder {
    hard: Option<Compressor<'static>>,
    fast: Option<Compressor<'static>>,
    plane: PlaneCoder,
    scratch: Scratch,
}

/// Two ways of coding a plane: one finds what is repeated, as the zeros of moments that nothing moved; the other is quicker and
/// no worse where bytes are only more or less frequent, as exponents of weights are.
#[derive(Default)]
struct PlaneCoder {
    repeats: Option<Compressor<'static>>,
    bytes: Option<Compressor<'static>>,
}

impl PlaneCoder {
    fn pack(&mut self, plane: &[u8], out: &mut Vec<u8>) -> bool {
        if self.repeats.is_none() {
            self.repeats = with(&[CParameter::MinMatch(REPEATED)]);
            let counted = CParameter::LiteralCompressionMode(ParamSwitch::Enable);
            self.bytes = with(&[CParameter::MinMatch(REPEATED), CParameter::TargetLength(LEAP), counted]);
        }
        let repeated = plane.len() < LONG || {
            let start = (plane.len() - TRIED) / 2;
            let sample = &plane[start..start + TRIED];
            let mut length = |coder| if pack(coder, 1, sample, out) { out.len() } else { TRIED };
            let (repeats, bytes) = (length(&mut self.repeats), length(&mut self.bytes));
            repeats + repeats / 64 < bytes
        };
        pack(if repeated { &mut self.repeats } else { &mut self.bytes }, 1, plane, out)
    }
}

/// The quickest level with other parameters.
fn with(parameters: &[CParameter]) -> Option<Compressor<'static>> {
    let mut coder = Compressor::new(1).ok()?;
    for parameter in parameters {
        coder.set_parameter(*parameter).ok()?;
    }
    Some(coder)
}

/// A codec, and the stored bytes.
type Encoded = (u8, Vec<u8>);

impl Encoder {
    /// The codec chosen for `plain`, and the stored bytes in a buffer of `pool`; `None` when it is best stored as it is.
    pub fn encode(&mut self, plain: &[u8], pool: &Pool) -> Option<Encoded> {
        if plain.len() < SMALL { self.small(plain, pool) } else { self.large(plain, pool) }
    }

    /// The same for a block of many small files, which is worth more effort.
    pub fn encode_text(&mut self, plain: &[u8], pool: &Pool) -> Option<Encoded> {
        compress(&mut self.hard, 3, plain, pool)
    }

    /// The same for a block of which many words are close to those of the block `base`.
    pub fn difference(&mut self, plain: &[u8], base: (Digest, &[u8]), pool: &Pool) -> Option<Encoded> {
        let alone = self.encode(plain, pool);
        if plain.len() != base.1.len() || plain.len() < LEAST {
            return alone;
        }
        let (codec, least) = alone.as_ref().map_or((RAW, plain.len()), |(codec, stored)| (*codec, stored.len()));
        // The first byte of planes is the width of their words.
        let width = alone.as_ref().filter(|_| codec == PLANES).map_or(4, |(_, stored)| usize::from(stored[0]));
        let mut apart = pool.take();
        difference::apart(plain, base.1, width, &mut apart);
        let mut out = pool.take();
        out.clear();
        out.extend_from_slice(base.0.bytes());
        self.planes(&apart, width, &mut out);
        pool.give(apart);
        if out.len() + out.len() / CLEARLY < least {
            if let Some((_, stored)) = alone {
                pool.give(stored);
            }
            return Some((DIFFERENCE, out));
        }
        pool.give(out);
        alone
    }

    /// Codes all of it one way, and the other way where the first saves less than a quarter.
    fn small(&mut self, plain: &[u8], pool: &Pool) -> Option<Encoded> {
        let whole = compress(&mut self.hard, 3, plain, pool);
        let length = whole.as_ref().map_or(plain.len(), |(_, packed)| packed.len());
        if length < plain.len() / 4 * 3 || plain.len() < LEAST {
            return whole;
        }
        let mut out = pool.take();
        out.clear();
        self.planes(plain, 4, &mut out);
        if gains(out.len(), plain.len()) && out.len() < length {
            return Some((PLANES, out));
        }
        pool.give(out);
        whole
    }

    /// Tries a sample from the middle, since heads of files are often text, and codes all of it the best way.
    fn large(&mut self, plain: &[u8], pool: &Pool) -> Option<Encoded> {
        let start = (plain.len() - SAMPLE) / 8 * 4;
        let sample = &plain[start..start + SAMPLE];
        let mut out = pool.take();
        let whole = pack(&mut self.fast, 1, sample, &mut out).then_some((out.len(), 0));
        let mut tried = |width: usize| {
            out.clear();
            self.planes(sample, width, &mut out);
            (out.len(), width)
        };
        let wide = tried(4);
        // Halves of words that are floating-point numbers themselves come apart as well by the whole word.
        let narrow = (!gains(wide.0, sample.len())).then(|| tried(2));
        let (length, width) = [wide].into_iter().chain(narrow).chain(whole).min()?;
        out.clear();
        if !gains(length, sample.len()) {
            pool.give(out);
            return None;
        }
        let codec = if width == 0 { ZSTD } else { PLANES };
        let done = if width == 0 {
            pack(&mut self.fast, 1, plain, &mut out)
        } else {
            self.planes(plain, width, &mut out);
            true
        };
        if done && gains(out.len(), plain.len()) {
            return Some((codec, out));
        }
        pool.give(out);
        None
    }

    fn planes(&mut self, plain: &[u8], width: usize, out: &mut Vec<u8>) {
        let coder = &mut self.plane;
        planes::encode(plain, width, &mut self.scratch, out, &mut |plane, packed| coder.pack(plane, packed));
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

/// Compresses if that is worth it; what cannot be compressed is stored as it is.
fn compress(kept: &mut Option<Compressor<'static>>, level: i32, plain: &[u8], pool: &Pool) -> Option<Encoded> {
    let mut out = pool.take();
    if pack(kept, level, plain, &mut out) && gains(out.len(), plain.len()) {
        return Some((ZSTD, out));
    }
    pool.give(out);
    None
}

/// Compresses in place of what `out` holds; false when zstd cannot.
fn pack(kept: &mut Option<Compressor<'static>>, level: i32, plain: &[u8], out: &mut Vec<u8>) -> bool {
    if kept.is_none() {
        *kept = Compressor::new(level).ok();
    }
    out.clear();
    out.reserve(compress_bound(plain.len()));
    kept.as_mut().is_some_and(|kept| kept.compress_to_buffer(plain, out).is_ok())
}

/// Compression must save an eighth, or decoding costs more than the space is worth: plain zstd saves 8 % of trained
/// 32-bit weights, but half or more of text.
const fn gains(packed: usize, plain: usize) -> bool {
    packed + plain / 8 < plain
}

thread_local! {
    /// Making a context costs more than decoding a small block.
    static DECODER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn unpack(packed: &[u8], most: usize) -> Result<Vec<u8>, String> {
    DECODER.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = Decompressor::new().ok();
        }
        let decoder = kept.as_mut().ok_or("zstd: no memory for a decoder")?;
        let mut plain = spare(most);
        plain.clear();
        decoder.decompress_to_buffer(packed, &mut plain).map_err(|error| format!("zstd: {error}"))?;
        Ok(plain)
    })
}

/// The plain bytes of a block that claims to have `length` of them. For a difference `base` gives the plain bytes of the block
/// with a digest.
pub fn decode<E: From<String>>(
    codec: u8,
    stored: Vec<u8>,
    length: u64,
    base: impl FnOnce(Digest) -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    let Some(length) = usize::try_from(length).ok().filter(|length| *length as u64 <= MAX_BLOCK) else {
        return Err(format!("a block of {length} bytes is longer than {MAX_BLOCK}").into());
    };
    let plain = match codec {
        RAW => stored,
        ZSTD => unpack(&stored, length)?,
        PLANES => {
            let plain = planes::decode(&stored, length, &unpack)?;
            give_spare(stored);
            plain
        }
        DIFFERENCE => {
            let (digest, planes) = base_of(&stored).ok_or_else(|| "its base is cut off".to_owned())?;
            let width = usize::from(*planes.first().ok_or_else(|| "its planes are cut off".to_owned())?);
            let mut plain = planes::decode(planes, length, &unpack)?;
            difference::together(&mut plain, &base(digest)?, width)?;
            plain
        }
        other => return Err(format!("unknown codec {other}").into()),
    };
    if plain.len() == length { Ok(plain) } else { Err(format!("{} bytes instead of {length}", plain.len()).into()) }
}

/// The block from which the stored bytes of a difference differ, and the rest of them.
pub fn base_of(stored: &[u8]) -> Option<(Digest, &[u8])> {
    stored.split_first_chunk::<BASE>().map(|(digest, planes)| (Digest::from_bytes(*digest), planes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encoder: &mut Encoder, plain: &[u8]) -> (u8, Vec<u8>) {
        encoder.encode(plain, &Pool::default()).unwrap_or_else(|| (RAW, plain.to_vec()))
    }

    fn decode(codec: u8, stored: Vec<u8>, length: u64) -> Result<Vec<u8>, String> {
        super::decode(codec, stored, length, |_| Err("no base".to_owned()))
    }

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
            let (codec, stored) = encoded(&mut encoder, plain);
            assert_eq!(codec, expected);
            assert_eq!(decode(codec, stored, plain.len() as u64).as_deref(), Ok(plain));
        }
        assert_eq!(encoded(&mut encoder, b"").0, RAW);
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
            let (codec, stored) = encoded(&mut encoder, plain);
            assert_eq!(codec, PLANES);
            assert!(stored.len() * 100 < plain.len() * most, "{} of {}", stored.len(), plain.len());
            assert_eq!(decode(codec, stored, plain.len() as u64).as_deref(), Ok(plain));
        }
    }

    #[test]
    fn wrong_lengths_and_unknown_codecs_are_errors() {
        let (codec, stored) = encoded(&mut Encoder::default(), &[7; 1000]);
        assert_eq!(codec, ZSTD);
        for length in [999, 1001, MAX_BLOCK + 1, u64::MAX] {
            assert!(decode(codec, stored.clone(), length).is_err(), "{length}");
        }
        assert!(decode(RAW, vec![0; 4], 5).is_err());
        assert!(decode(9, vec![0; 4], 4).is_err());
    }

    #[test]
    fn a_difference_is_taken_where_it_is_clearly_smaller_and_comes_back() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(state >> 41).unwrap()
        };
        let before: Vec<f32> = (0..200_000).map(|_| f32::from_bits(0x3f80_0000 | next()) - 1.5).collect();
        let near: Vec<u8> =
            before.iter().flat_map(|x| f32::from_bits(x.to_bits() ^ (next() & 0xfff)).to_le_bytes()).collect();
        let far: Vec<u8> =
            (0..200_000).flat_map(|_| (f32::from_bits(0x3f80_0000 | next()) - 1.5).to_le_bytes()).collect();
        let base: Vec<u8> = before.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (pool, digest) = (Pool::default(), Digest::of(&base));
        let mut encoder = Encoder::default();
        let alone = encoder.encode(&near, &pool).unwrap().1.len();
        let (codec, stored) = encoder.difference(&near, (digest, &base), &pool).unwrap();
        assert_eq!((codec, base_of(&stored).unwrap().0), (DIFFERENCE, digest));
        assert!(stored.len() < alone / 10 * 8, "{} of {alone}", stored.len());
        let length = near.len() as u64;
        let back = super::decode(codec, stored.clone(), length, |_| Ok::<_, String>(base.clone()));
        assert_eq!(back.as_deref(), Ok(&near[..]));
        for wrong in [&base[4..], &near[..], &[]] {
            let decoded = super::decode(codec, stored.clone(), length, |_| Ok::<_, String>(wrong.to_vec()));
            assert!(decoded.is_err() || decoded.is_ok_and(|decoded| decoded != near));
        }
        assert!(super::decode(codec, stored[..20].to_vec(), length, |_| Ok::<_, String>(base.clone())).is_err());
        assert_ne!(encoder.difference(&far, (digest, &base), &pool).map(|(codec, _)| codec), Some(DIFFERENCE));
    }
}
