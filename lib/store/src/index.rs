//! Where the records are: one index file beside each pack, and all of them together in memory.
//!
//! An index file holds nothing that its pack does not: it saves a reader the walk from record to record. A missing or
//! damaged one is made again from the pack.
//!
//! ```text
//! "xtindex1", digest that names the pack (32), number of entries (8, little endian)
//! entries of 56 bytes, sorted: digest (32), kind (1), codec (1), zero (2), stored (4), plain (8), offset (8)
//! SHA-256 of all of the above (32)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use xt_core::digest::Digest;

use crate::block::{Head, Kind};

const MAGIC: &[u8; 8] = b"xtindex1";
const PREFIX: usize = 48;
const ENTRY: usize = 56;
const SUFFIX: usize = 32;

/// A record and where its head starts in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The head.
    pub head: Head,
    /// Byte of the pack at which the head starts.
    pub offset: u64,
}

/// The bytes of the index file of `pack`.
pub fn encode(pack: Digest, entries: &[Entry]) -> Vec<u8> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_unstable_by_key(|entry| (entry.head.digest, entry.offset));
    let mut bytes = Vec::with_capacity(PREFIX + ENTRY * sorted.len() + SUFFIX);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(pack.bytes());
    bytes.extend_from_slice(&(sorted.len() as u64).to_le_bytes());
    for Entry { head, offset } in sorted {
        bytes.extend_from_slice(head.digest.bytes());
        bytes.extend_from_slice(&[head.kind.code(), head.codec, 0, 0]);
        bytes.extend_from_slice(&head.stored.to_le_bytes());
        bytes.extend_from_slice(&head.plain.to_le_bytes());
        bytes.extend_from_slice(&offset.to_le_bytes());
    }
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(digest.bytes());
    bytes
}

/// The entries of an index file; `None` when it is damaged or belongs to another pack.
pub fn decode(pack: Digest, bytes: &[u8]) -> Option<Vec<Entry>> {
    let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(SUFFIX)?)?;
    let (prefix, entries) = body.split_at_checked(PREFIX)?;
    let named = prefix[..8] == *MAGIC && prefix[8..40] == *pack.bytes();
    if !named || Digest::of(body).bytes() != digest || !entries.len().is_multiple_of(ENTRY) {
        return None;
    }
    entries.chunks_exact(ENTRY).map(decode_entry).collect()
}

fn decode_entry(bytes: &[u8]) -> Option<Entry> {
    let number = |at: usize, length: usize| {
        let mut wide = [0; 8];
        wide[..length].copy_from_slice(&bytes[at..at + length]);
        u64::from_le_bytes(wide)
    };
    let mut digest = [0; 32];
    digest.copy_from_slice(&bytes[..32]);
    let head = Head {
        kind: Kind::from_code(bytes[32])?,
        codec: bytes[33],
        stored: u32::try_from(number(36, 4)).ok()?,
        plain: number(40, 8),
        digest: Digest::from_bytes(digest),
    };
    Some(Entry { head, offset: number(48, 8) })
}

/// One copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The pack that holds it.
    pub pack: Digest,
    /// The record.
    pub entry: Entry,
}

/// All that the packs of a store hold, as far as it was read.
#[derive(Debug, Default)]
pub struct Index {
    packs: Vec<Digest>,
    known: BTreeSet<Digest>,
    /// Packs whose index file is missing or damaged.
    pub unindexed: BTreeSet<Digest>,
    /// Keyed by digest, number of the pack and offset: one record may be in several packs.
    entries: BTreeMap<(Digest, u32, u64), Head>,
}

impl Index {
    /// Takes in a pack; one that is known already changes nothing.
    pub fn add(&mut self, pack: Digest, entries: impl IntoIterator<Item = Entry>) {
        let Ok(number) = u32::try_from(self.packs.len()) else { return };
        if self.known.insert(pack) {
            self.packs.push(pack);
            self.entries.extend(entries.into_iter().map(|e| ((e.head.digest, number, e.offset), e.head)));
        }
    }

    /// The packs, in the order in which they were taken in.
    pub fn packs(&self) -> &[Digest] {
        &self.packs
    }

    /// Every copy of the records with this digest that `wanted` admits.
    pub fn places(&self, digest: Digest, wanted: fn(Kind) -> bool) -> Vec<Place> {
        self.entries
            .range((digest, 0, 0)..=(digest, u32::MAX, u64::MAX))
            .filter(|(_, head)| wanted(head.kind))
            .map(|(&(_, number, offset), &head)| Place {
                pack: self.packs[number as usize],
                entry: Entry { head, offset },
            })
            .collect()
    }

    /// Every object once, with its size, in the order of the digests.
    pub fn objects(&self) -> Vec<(Digest, u64)> {
        let mut objects: Vec<(Digest, u64)> = self
            .entries
            .iter()
            .filter(|(_, head)| head.kind.is_object())
            .map(|(&(digest, ..), head)| (digest, head.plain))
            .collect();
        objects.dedup_by_key(|(digest, _)| *digest);
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str, kind: Kind, offset: u64) -> Entry {
        let head = Head { kind, codec: 1, stored: 5, plain: text.len() as u64, digest: Digest::of(text.as_bytes()) };
        Entry { head, offset }
    }

    #[test]
    fn an_index_survives_its_file_and_any_flipped_bit_is_seen() {
        let pack = Digest::of(b"pack");
        let entries = [entry("a", Kind::Whole, 8), entry("b", Kind::List, 90)];
        let bytes = encode(pack, &entries);
        let mut read = decode(pack, &bytes).unwrap();
        read.sort_by_key(|entry| entry.offset);
        assert_eq!(read, entries);
        assert_eq!(decode(Digest::of(b"other"), &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(pack, &bad), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(pack, &bytes[..length]), None);
        }
    }

    #[test]
    fn an_object_in_two_packs_is_listed_once_and_found_twice() {
        let mut index = Index::default();
        index.add(Digest::of(b"p"), [entry("a", Kind::Whole, 8), entry("b", Kind::Block, 90)]);
        index.add(Digest::of(b"q"), [entry("a", Kind::Whole, 8)]);
        index.add(Digest::of(b"q"), [entry("c", Kind::Whole, 8)]);
        assert_eq!(index.objects(), [(Digest::of(b"a"), 1)]);
        assert_eq!(index.places(Digest::of(b"a"), Kind::is_object).len(), 2);
        assert_eq!(index.places(Digest::of(b"b"), Kind::is_object).len(), 0);
        assert_eq!(index.places(Digest::of(b"b"), Kind::is_block).len(), 1);
    }
}
