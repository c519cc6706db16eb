//! What blocks and packs are called. Objects are called by the SHA-256 of their bytes in every store.

use xt_core::digest::{Digest, Hasher, NestedHasher};

/// What the outer hash of a block begins with.
const BLOCK: &[u8] = b"xt.block\0";
/// What that of a pack begins with.
const PACK: &[u8] = b"xt.pack\0";

/// How a store hashes what nobody outside names. Each has one way, from its making on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashing {
    /// SHA-256, as the first stores do.
    Plain,
    /// SHA-256 over BLAKE3. Every byte of a large file is hashed for the file, for its block and for the pack, so that SHA-256
    /// alone took more time than coding did.
    Nested,
}

impl Hashing {
    /// The digest of a block.
    pub fn block(self, bytes: &[u8]) -> Digest {
        match self {
            Self::Plain => Digest::of(bytes),
            Self::Nested => {
                let mut hasher = NestedHasher::new(BLOCK);
                hasher.update(bytes);
                hasher.finish()
            }
        }
    }

    /// Whether a block is called so: in the way of this store, or in the other, as one of a pack that was copied here.
    pub fn names_block(self, digest: Digest, bytes: &[u8]) -> bool {
        self.block(bytes) == digest || self.other().block(bytes) == digest
    }

    /// The other way.
    pub const fn other(self) -> Self {
        match self {
            Self::Plain => Self::Nested,
            Self::Nested => Self::Plain,
        }
    }

    /// For the bytes of a pack.
    pub fn pack(self) -> PackHasher {
        match self {
            Self::Plain => PackHasher::Plain(Hasher::new()),
            Self::Nested => PackHasher::Nested(Box::new(NestedHasher::new(PACK))),
        }
    }
}

/// Takes in the bytes of a pack.
#[derive(Clone, Debug)]
pub enum PackHasher {
    /// As of [`Hashing::Plain`].
    Plain(Hasher),
    /// As of [`Hashing::Nested`].
    Nested(Box<NestedHasher>),
}

impl PackHasher {
    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(hasher) => hasher.update(bytes),
            Self::Nested(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> Digest {
        match self {
            Self::Plain(hasher) => hasher.clone().finish(),
            Self::Nested(hasher) => hasher.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_its_own_names_and_pieces_change_nothing() {
        let bytes = b"some bytes";
        for hashing in [Hashing::Plain, Hashing::Nested] {
            let (mut whole, mut pieces) = (hashing.pack(), hashing.pack());
            whole.update(bytes);
            bytes.chunks(3).for_each(|piece| pieces.update(piece));
            assert_eq!(whole.finish(), pieces.finish());
            assert_ne!(whole.finish(), hashing.pack().finish());
            assert_eq!(whole.finish() == hashing.block(bytes), hashing == Hashing::Plain, "a pack is no block");
        }
        assert_eq!(Hashing::Plain.block(bytes), Digest::of(bytes));
        assert_ne!(Hashing::Nested.block(bytes), Digest::of(bytes));
        for digest in [Hashing::Plain, Hashing::Nested].map(|hashing| hashing.block(bytes)) {
            assert!(Hashing::Plain.names_block(digest, bytes) && Hashing::Nested.names_block(digest, bytes));
            assert!(!Hashing::Plain.names_block(digest, b"others"));
        }
    }
}
