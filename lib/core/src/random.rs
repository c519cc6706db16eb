//! Counter-based randomness: a value depends on (seed, purpose, position) alone, never on what was drawn before.
//!
//! So a snapshot or an evaluation cannot disturb the stream, branches of one state share equivalent streams, and the
//! first state of a model is the same on every processor.

use alloc::vec::Vec;

use crate::digest::Hasher;

/// Name of the generator, as run records state it.
pub const GENERATOR: &str = "philox4x32-10";

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;
/// Blocks computed together.
const LANES: usize = 16;

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
#[inline]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut state, mut key) = (counter, key);
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(state[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(state[2]);
        #[expect(clippy::cast_possible_truncation, reason = "low and high words of a product are meant")]
        let (low, high) = ([first as u32, second as u32], [(first >> 32) as u32, (second >> 32) as u32]);
        state = [high[1] ^ state[1] ^ key[0], low[1], high[0] ^ state[3] ^ key[1], low[0]];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    state
}

/// One stream of random words: a run's seed and a purpose such as `order` or `dropout/block.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    /// High half of the counter: the logical time of the draw, such as an epoch or a micro-batch.
    time: u64,
}

impl Stream {
    /// The stream of `purpose` at logical time `time` in the run with `seed`.
    /// The Philox key is the first 8 bytes of SHA-256("xt.random/1" 00, seed as 8 little-endian bytes, purpose).
    #[inline]
    pub fn new(seed: u64, purpose: &str, time: u64) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(b"xt.random/1\0");
        hasher.update(&seed.to_le_bytes());
        hasher.update(purpose.as_bytes());
        let digest = hasher.finish();
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| digest.bytes()[at + i]));
        Self { key: [word(0), word(4)], time }
    }

    /// The four words at position `index`.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of each counter word are meant")]
    #[inline]
    pub fn block(&self, index: u64) -> [u32; 4] {
        philox([index as u32, (index >> 32) as u32, self.time as u32, (self.time >> 32) as u32], self.key)
    }

    /// The words from position 0 on, four of each block: what [`Self::block`] gives, several blocks at a time.
    #[inline]
    pub fn fill(&self, out: &mut [u32]) {
        let mut index = 0;
        for chunk in out.chunks_mut(4 * LANES) {
            let blocks = self.blocks(index);
            for (lane, words) in chunk.chunks_mut(4).enumerate() {
                for (word, row) in words.iter_mut().zip(&blocks) {
                    *word = row[lane];
                }
            }
            index += LANES as u64;
        }
    }

    /// The blocks from `index` on, word by word: row `i` holds word `i` of each block. The same arithmetic as
    /// [`philox`], laid out so that a compiler can do all lanes at once.
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of each word are meant")]
    #[expect(clippy::needless_range_loop, reason = "one lane of four rows at a time")]
    #[inline]
    fn blocks(&self, index: u64) -> [[u32; LANES]; 4] {
        let mut state = [[0; LANES], [0; LANES], [self.time as u32; LANES], [(self.time >> 32) as u32; LANES]];
        for lane in 0..LANES {
            let counter = index + lane as u64;
            (state[0][lane], state[1][lane]) = (counter as u32, (counter >> 32) as u32);
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            for lane in 0..LANES {
                let first = u64::from(MULTIPLIERS[0]) * u64::from(state[0][lane]);
                let second = u64::from(MULTIPLIERS[1]) * u64::from(state[2][lane]);
                state[0][lane] = (second >> 32) as u32 ^ state[1][lane] ^ key[0];
                state[1][lane] = second as u32;
                state[2][lane] = (first >> 32) as u32 ^ state[3][lane] ^ key[1];
                state[3][lane] = first as u32;
            }
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        state
    }

    /// The 64 bits at position `index`.
    #[inline]
    pub fn word(&self, index: u64) -> u64 {
        let block = self.block(index);
        u64::from(block[0]) | u64::from(block[1]) << 32
    }

    /// A permutation of `0..count`, by the shuffle of Fisher and Yates (Durstenfeld, CACM 1964, algorithm 235), each
    /// draw made unbiased by rejection (Lemire, "Fast Random Integer Generation in an Interval", TOMACS 2019).
    pub fn permutation(&self, count: u64) -> Vec<u64> {
        let mut items: Vec<u64> = (0..count).collect();
        let mut position = 0;
        for last in (1..items.len()).rev() {
            let bound = last as u64 + 1;
            let threshold = bound.wrapping_neg() % bound;
            let chosen = loop {
                let product = u128::from(self.word(position)) * u128::from(bound);
                position += 1;
                #[expect(clippy::cast_possible_truncation, reason = "the low word is meant")]
                if product as u64 >= threshold {
                    break (product >> 64) as usize;
                }
            };
            items.swap(last, chosen);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the reference implementation Random123 (kat_vectors).
    #[test]
    fn philox_gives_the_published_answers() {
        let ones = 0xffff_ffff;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_by_seed_purpose_and_time() {
        let base = Stream::new(7, "order", 0).word(0);
        for other in [Stream::new(8, "order", 0), Stream::new(7, "dropout", 0), Stream::new(7, "order", 1)] {
            assert_ne!(other.word(0), base);
        }
        assert_eq!(Stream::new(7, "order", 0).word(0), base);
    }

    #[test]
    fn many_words_at_once_are_the_words_one_by_one() {
        let stream = Stream::new(7, "dropout/x", 0x1_0000_0003);
        for count in [0, 1, 5, 32, 33, 103] {
            let mut words = alloc::vec![0; count];
            stream.fill(&mut words);
            let singly: Vec<u32> = (0..count).map(|i| stream.block(i as u64 / 4)[i % 4]).collect();
            assert_eq!(words, singly);
        }
    }

    #[test]
    fn permutation_holds_each_item_once() {
        let mut items = Stream::new(1, "order", 0).permutation(1000);
        assert_ne!(items, (0..1000).collect::<Vec<u64>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<u64>>());
        assert!(Stream::new(1, "order", 0).permutation(0).is_empty());
    }
}
