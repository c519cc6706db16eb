//! Records: what a pack is made of. A head of 72 bytes, then the stored bytes.
//!
//! ```text
//! offset  size
//!      0     8  magic "xtrecord", so that records can be found in a pack whose index is gone
//!      8     1  kind: 1 block, 2 list, 3 whole
//!      9     1  codec of the stored bytes (see codec.rs)
//!     10     2  zero
//!     12     4  stored bytes that follow, little endian
//!     16     8  plain bytes of the block or object, little endian
//!     24    32  digest of the plain bytes: SHA-256 of a whole object, see hashing.rs for a block
//!     56    16  first half of the SHA-256 of bytes 0..56, and for a list of the stored bytes, too
//! ```
//!
//! A `block` is a piece of objects, a `whole` is an object that is one block, and a `list` is an object made of pieces:
//! its stored bytes are extents of 40 bytes each (digest of a block, then offset and length inside it, 4 bytes each,
//! little endian). Extents let an object be cut anywhere, and let many small objects share one block.

use xt_core::digest::Digest;

/// Length of a record's head.
pub const HEAD: usize = 72;
/// First bytes of a record.
pub const MAGIC: &[u8; 8] = b"xtrecord";
/// Length of an extent.
pub const EXTENT: usize = 40;
/// Objects are cut into blocks of this many bytes.
pub const BLOCK: usize = 1 << 20;
/// No block is longer, also in stores written by later versions; so memory is bounded whatever a pack claims.
pub const MAX_BLOCK: u64 = 16 << 20;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A piece of objects.
    Block,
    /// An object made of pieces.
    List,
    /// An object that is one block.
    Whole,
}

impl Kind {
    /// Its byte.
    pub const fn code(self) -> u8 {
        match self {
            Self::Block => 1,
            Self::List => 2,
            Self::Whole => 3,
        }
    }

    /// The kind with this byte.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Block),
            2 => Some(Self::List),
            3 => Some(Self::Whole),
            _ => None,
        }
    }

    /// Whether its digest names an object.
    pub const fn is_object(self) -> bool {
        matches!(self, Self::List | Self::Whole)
    }

    /// Whether its digest names the bytes of a block.
    pub const fn is_block(self) -> bool {
        matches!(self, Self::Block | Self::Whole)
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it holds.
    pub kind: Kind,
    /// How the stored bytes were coded.
    pub codec: u8,
    /// Stored bytes.
    pub stored: u32,
    /// Plain bytes.
    pub plain: u64,
    /// Digest of the plain bytes.
    pub digest: Digest,
}

impl Head {
    /// The bytes of the head; `payload` are the stored bytes.
    pub fn encode(&self, payload: &[u8]) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = self.kind.code();
        bytes[9] = self.codec;
        bytes[12..16].copy_from_slice(&self.stored.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.plain.to_le_bytes());
        bytes[24..56].copy_from_slice(self.digest.bytes());
        let check = check(&bytes[..56], self.kind, payload);
        bytes[56..].copy_from_slice(&check);
        bytes
    }

    /// Reads the fields, without the check. `None` when this is no head.
    pub fn peek(bytes: &[u8; HEAD]) -> Option<Self> {
        if bytes[..8] != *MAGIC || bytes[10..12] != [0, 0] {
            return None;
        }
        let (mut stored, mut plain, mut digest) = ([0; 4], [0; 8], [0; 32]);
        stored.copy_from_slice(&bytes[12..16]);
        plain.copy_from_slice(&bytes[16..24]);
        digest.copy_from_slice(&bytes[24..56]);
        Some(Self {
            kind: Kind::from_code(bytes[8])?,
            codec: bytes[9],
            stored: u32::from_le_bytes(stored),
            plain: u64::from_le_bytes(plain),
            digest: Digest::from_bytes(digest),
        })
    }

    /// Whether the head belongs to itself and, for a list, to its stored bytes.
    pub fn holds(bytes: &[u8; HEAD], kind: Kind, payload: &[u8]) -> bool {
        bytes[56..] == check(&bytes[..56], kind, payload)
    }
}

fn check(head: &[u8], kind: Kind, payload: &[u8]) -> [u8; 16] {
    let mut hasher = xt_core::digest::Hasher::new();
    hasher.update(head);
    if kind == Kind::List {
        hasher.update(payload);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finish().bytes()[..16]);
    half
}

/// A piece of an object: part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Digest of the block.
    pub block: Digest,
    /// Where the piece starts in the block.
    pub offset: u32,
    /// How long it is.
    pub length: u32,
}

impl Extent {
    /// Appends its 40 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.block.bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }

    /// Reads a list of extents; `None` when the bytes are no whole number of them or do not sum up to `plain`.
    pub fn decode_all(bytes: &[u8], plain: u64) -> Option<Vec<Self>> {
        if !bytes.len().is_multiple_of(EXTENT) {
            return None;
        }
        let extents: Vec<Self> = bytes.chunks_exact(EXTENT).map(Self::decode).collect();
        let sum = extents.iter().map(|extent| u64::from(extent.length)).sum::<u64>();
        (sum == plain).then_some(extents)
    }

    fn decode(bytes: &[u8]) -> Self {
        let (mut block, mut offset, mut length) = ([0; 32], [0; 4], [0; 4]);
        block.copy_from_slice(&bytes[..32]);
        offset.copy_from_slice(&bytes[32..36]);
        length.copy_from_slice(&bytes[36..40]);
        Self {
            block: Digest::from_bytes(block),
            offset: u32::from_le_bytes(offset),
            length: u32::from_le_bytes(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_of_a_head_is_seen() {
        let head = Head { kind: Kind::Block, codec: 1, stored: 5, plain: 9, digest: Digest::of(b"x") };
        let good = head.encode(b"");
        assert_eq!(Head::peek(&good), Some(head));
        assert!(Head::holds(&good, head.kind, b""));
        for bit in 0..HEAD * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = Head::peek(&bad).is_none_or(|peeked| !Head::holds(&bad, peeked.kind, b""));
            assert!(seen, "bit {bit}");
        }
    }

    #[test]
    fn a_list_answers_for_its_extents() {
        let extent = Extent { block: Digest::of(b"x"), offset: 3, length: 4 };
        let mut payload = Vec::new();
        extent.encode(&mut payload);
        let head = Head { kind: Kind::List, codec: 0, stored: 40, plain: 4, digest: Digest::of(b"y") };
        let bytes = head.encode(&payload);
        assert!(Head::holds(&bytes, Kind::List, &payload));
        assert_eq!(Extent::decode_all(&payload, 4), Some(vec![extent]));
        assert_eq!(Extent::decode_all(&payload, 5), None);
        assert_eq!(Extent::decode_all(&payload[1..], 4), None);
        payload[33] ^= 1;
        assert!(!Head::holds(&bytes, Kind::List, &payload));
    }
}
