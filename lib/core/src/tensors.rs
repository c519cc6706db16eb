//! The digest of named tensors, as traces and snapshots state it: SHA-256 over the BLAKE3 of what a step left.
//!
//! Each step hashes all gradients, parameters and moments, sixteen bytes for each parameter, and SHA-256 reads about one
//! gigabyte a second: for small models longer than the step.

use crate::digest::{Digest, NestedHasher};

/// What the outer hash begins with, so that no other digest can be taken for one of tensors.
const FORM: &[u8] = b"xt.tensors/2\0";

/// Takes in tensors, sorted by name: of each its name and shape, then its values.
#[derive(Clone, Debug)]
pub struct TensorsHasher(NestedHasher);

impl Default for TensorsHasher {
    fn default() -> Self {
        Self(NestedHasher::new(FORM))
    }
}

impl TensorsHasher {
    /// One that has seen no tensor.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a tensor of binary32 numbers, whose name is `name` behind `prefix`: length of the whole name, name, `F32`,
    /// number of dimensions, each dimension. Numbers are 8 little-endian bytes.
    pub fn begin(&mut self, [prefix, name]: [&str; 2], shape: impl ExactSizeIterator<Item = u64>) {
        self.0.update(&((prefix.len() + name.len()) as u64).to_le_bytes());
        self.0.update(prefix.as_bytes());
        self.0.update(name.as_bytes());
        self.0.update(b"F32");
        self.0.update(&(shape.len() as u64).to_le_bytes());
        for size in shape {
            self.0.update(&size.to_le_bytes());
        }
    }

    /// Takes in values of the tensor that was begun last, 4 little-endian bytes each.
    pub fn values(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// SHA-256 of `xt.tensors/2`, a zero byte and the 32 bytes of the BLAKE3 of all that was taken in.
    pub fn finish(&self) -> Digest {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tensors: &[([&str; 2], &[u64], &[u8])]) -> Digest {
        let mut hasher = TensorsHasher::new();
        for (name, shape, bytes) in tensors {
            hasher.begin(*name, shape.iter().copied());
            bytes.chunks(3).for_each(|part| hasher.values(part));
        }
        hasher.finish()
    }

    /// The whole form, written out by hand.
    #[test]
    fn the_digest_is_sha_256_over_the_blake3_of_names_shapes_and_values() {
        let mut inner = alloc::vec::Vec::new();
        inner.extend(4u64.to_le_bytes());
        inner.extend(b"m/ab");
        inner.extend(b"F32");
        inner.extend([2u64, 1, 2].iter().flat_map(|number| number.to_le_bytes()));
        inner.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        let outer = [b"xt.tensors/2\0".as_slice(), blake3::hash(&inner).as_bytes()].concat();
        assert_eq!(of(&[(["m/", "ab"], &[1, 2], &[1, 2, 3, 4, 5, 6, 7, 8])]), Digest::of(&outer));
    }

    /// The first answer of the test vectors that the authors of BLAKE3 publish: the hash of nothing.
    #[test]
    fn blake3_is_the_published_one() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(blake3::hash(b"").to_hex().as_str(), empty);
    }

    #[test]
    fn a_border_between_tensors_or_within_a_name_cannot_be_moved() {
        let right = of(&[(["", "a"], &[1], &[0; 4]), (["", "b"], &[1], &[1; 4])]);
        assert_eq!(
            of(&[(["", "a"], &[1], &[0; 4]), (["b", ""], &[1], &[1; 4])]),
            right,
            "a prefix is part of the name"
        );
        assert_ne!(of(&[(["", "a"], &[2], &[0; 4]), (["", "b"], &[1], &[1; 4])]), right);
        assert_ne!(of(&[(["", "b"], &[1], &[1; 4]), (["", "a"], &[1], &[0; 4])]), right);
        assert_ne!(of(&[(["", "a"], &[1], &[0; 4]), (["", "b"], &[1, 1], &[1; 4])]), right);
        assert_ne!(of(&[(["", "a"], &[1], &[0; 4])]), right);
    }
}
