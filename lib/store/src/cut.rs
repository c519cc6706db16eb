//! Where objects are cut into blocks. It decides what two objects share and how well a block compresses, and nothing else.
//!
//! Files of safetensors are cut where their tensors begin, so that a tensor that stays the same is stored once and each
//! block holds numbers of one kind, and every 1 MiB from there. Everything else is cut by content: where a hash of the last
//! 64 bytes has zeros, so that bytes put in somewhere change the blocks there and none behind (FastCDC: Xia et al., 2016).

use xt_core::canonical::{self, Value};

use crate::block::BLOCK;

/// No piece of other files is shorter, but for the last.
const SHORTEST: usize = 256 << 10;
/// A border shows so many zero bits: one in 2^18 bytes, so pieces have 512 KiB on average.
const ZEROS: u32 = 18;
/// Tensors shorter than this share a block with their neighbours.
const SMALL: u64 = 16 << 10;
/// So many bytes in front of a header give its length.
const PREFIX: usize = 8;
/// Bytes in which a zero makes a file count as binary; its pieces begin at multiples of a word.
const LOOK: usize = 4096;
/// Length of a word.
const WORD: usize = 4;

/// Cuts one object.
#[derive(Debug)]
pub enum Cutter {
    /// At these places.
    Borders {
        /// The places, in order.
        ends: std::vec::IntoIter<u64>,
        /// The next of them.
        next: u64,
        /// Bytes cut so far.
        at: u64,
    },
    /// By content; in a binary file at multiples of a word.
    Content {
        /// Whether the file is binary.
        binary: bool,
    },
}

impl Cutter {
    /// Decides by the first bytes of an object.
    pub fn new(first: &[u8]) -> Self {
        if let Some(ends) = tensor_borders(first) {
            return Self::Borders { ends: ends.into_iter(), next: 0, at: 0 };
        }
        Self::Content { binary: first[..first.len().min(LOOK)].contains(&0) }
    }

    /// How many of the bytes ahead are the next block; `ahead` holds a full block unless the object ends with it.
    pub fn next(&mut self, ahead: &[u8]) -> usize {
        match self {
            Self::Borders { ends, next, at } => {
                while *next <= *at {
                    *next = ends.next().unwrap_or(u64::MAX);
                }
                let length = usize::try_from(*next - *at).unwrap_or(usize::MAX).min(BLOCK).min(ahead.len());
                *at += length as u64;
                length
            }
            Self::Content { binary } => {
                let length = by_content(ahead);
                if *binary && length < ahead.len() { length / WORD * WORD } else { length }
            }
        }
    }
}

/// Where the tensors of a file of safetensors begin and end; `None` when it is something else. The header is only a hint
/// where to cut, so what is wrong with it does not matter.
fn tensor_borders(first: &[u8]) -> Option<Vec<u64>> {
    let (prefix, rest) = first.split_first_chunk::<PREFIX>()?;
    let length = usize::try_from(u64::from_le_bytes(*prefix)).ok()?;
    let header = canonical::parse(rest.get(..length)?).ok()?;
    let Value::Object(members) = header else { return None };
    let mut tensors: Vec<(u64, u64)> =
        members.values().filter_map(|tensor| offsets(tensor.get("data_offsets")?)).collect();
    if tensors.is_empty() {
        return None;
    }
    tensors.sort_unstable();
    let start = (PREFIX + length) as u64;
    let (mut ends, mut last) = (vec![start], start);
    for (index, (_, end)) in tensors.iter().enumerate() {
        let end = start.checked_add(*end)?;
        let large = |(begin, end): &(u64, u64)| end.saturating_sub(*begin) >= SMALL;
        let follows = tensors.get(index + 1);
        if follows.is_none_or(large) || end.saturating_sub(last) >= SMALL {
            ends.push(end);
            last = end;
        }
    }
    Some(ends)
}

fn offsets(value: &Value) -> Option<(u64, u64)> {
    let Value::List(list) = value else { return None };
    let [Value::Integer(begin), Value::Integer(end)] = &list[..] else { return None };
    Some((begin.to_u64()?, end.to_u64()?))
}

fn by_content(ahead: &[u8]) -> usize {
    let mut hash = 0_u64;
    for (index, byte) in ahead.iter().enumerate().skip(SHORTEST) {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if hash >> (u64::BITS - ZEROS) == 0 {
            return index + 1;
        }
    }
    ahead.len()
}

/// A random number for each byte: SplitMix64 (Steele, Lea and Flood, 2014) from zero.
const GEAR: [u64; 256] = {
    let (mut table, mut state, mut at) = ([0; 256], 0_u64, 0);
    while at < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = mixed ^ (mixed >> 31);
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn noise(length: usize, mut state: u64) -> Vec<u8> {
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0] | 1
            })
            .collect()
    }

    fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
        let mut cutter = Cutter::new(&bytes[..bytes.len().min(BLOCK)]);
        let (mut pieces, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let length = cutter.next(&bytes[at..bytes.len().min(at + BLOCK)]);
            assert!((1..=BLOCK).contains(&length));
            pieces.push(&bytes[at..at + length]);
            at += length;
        }
        pieces
    }

    #[test]
    fn a_byte_put_in_changes_the_blocks_there_and_few_behind() {
        let before = noise(12 << 20, 1);
        let mut after = before.clone();
        after.splice(5_000_000..5_000_000, *b"put in");
        let old: BTreeSet<&[u8]> = pieces(&before).into_iter().collect();
        let new = pieces(&after);
        let fresh = new.iter().filter(|piece| !old.contains(**piece)).count();
        assert!(old.len() > 12 && (1..=3).contains(&fresh), "{fresh} of {} are new", new.len());
    }

    #[test]
    fn tensors_begin_blocks_and_small_ones_share_them() {
        let header = br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"data_offsets":[16,1500016],"dtype":"F32","shape":[375000]},"c":{"data_offsets":[1500016,1500032],"dtype":"F32","shape":[4]},"d":{"data_offsets":[1500032,1500048],"dtype":"F32","shape":[4]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        let start = bytes.len();
        bytes.extend(noise(1_500_048, 2));
        let lengths: Vec<usize> = pieces(&bytes).iter().map(|piece| piece.len()).collect();
        assert_eq!(lengths, [start, 16, BLOCK, 1_500_000 - BLOCK, 32]);
    }

    #[test]
    fn headers_that_lie_cut_something_and_never_fail() {
        let body = noise(2 << 20, 3);
        for header in [
            r#"{"a":{"data_offsets":[18446744073709551615,18446744073709551615]}}"#,
            r#"{"a":{"data_offsets":[9,3]},"b":{"data_offsets":[0,99999999999]}}"#,
            r#"{"a":{"data_offsets":[-1,"x"]}}"#,
            r#"{"a":1,"b":[]}"#,
            "no json",
        ] {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header.as_bytes());
            bytes.extend(&body);
            assert_eq!(pieces(&bytes).concat(), bytes, "{header}");
        }
        let mut endless = u64::MAX.to_le_bytes().to_vec();
        endless.extend(&body);
        assert_eq!(pieces(&endless).concat(), endless);
    }
}
