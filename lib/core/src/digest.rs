//! SHA-256 digests: the only names this project trusts.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use sha2::Digest as _;

/// The SHA-256 (FIPS 180-4) of some bytes, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why a text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `sha256:` and 64 lower-case hexadecimal digits, found {0:?}")]
pub struct NotADigest(pub String);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 32 raw bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A digest from its 32 raw bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 64 hexadecimal digits without the prefix, as `sha256sum` prints them.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads 64 lower-case hexadecimal digits without prefix.
    pub fn from_hex(text: &str) -> Result<Self, NotADigest> {
        let bytes = text.as_bytes();
        let mut out = [0; 32];
        if bytes.len() != 64 {
            return Err(NotADigest(text.to_string()));
        }
        for (index, pair) in bytes.chunks_exact(2).enumerate() {
            match (nibble(pair[0]), nibble(pair[1])) {
                (Some(high), Some(low)) => out[index] = high << 4 | low,
                _ => return Err(NotADigest(text.to_string())),
            }
        }
        Ok(Self(out))
    }
}

/// Lower-case hexadecimal text of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let hex = text.strip_prefix("sha256:").ok_or_else(|| NotADigest(text.to_string()))?;
        Self::from_hex(hex).map_err(|_| NotADigest(format!("sha256:{hex}")))
    }
}

/// An incremental SHA-256.
#[derive(Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes taken in.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

/// SHA-256 over a form and the BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020) of all bytes: as hard to fool, and
/// several times as fast where bytes are many. For what nobody else names: what others hash, too, has a plain SHA-256.
#[derive(Clone, Debug)]
pub struct NestedHasher {
    form: &'static [u8],
    inner: blake3::Hasher,
}

impl NestedHasher {
    /// A hasher that has seen nothing. No other kind of thing may have the same `form`, so that none is taken for another.
    pub fn new(form: &'static [u8]) -> Self {
        Self { form, inner: blake3::Hasher::new() }
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.inner.update(bytes);
    }

    /// The digest of the form and the 32 bytes of the BLAKE3 of all bytes taken in.
    pub fn finish(&self) -> Digest {
        let mut outer = Hasher::new();
        outer.update(self.form);
        outer.update(self.inner.finalize().as_bytes());
        outer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_nothing_is_the_known_one_and_survives_its_text() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_ne!(Digest::of(b"x"), digest);
    }

    #[test]
    fn upper_case_short_and_foreign_texts_are_refused() {
        let digest = Digest::of(b"").to_string();
        for text in [digest.to_uppercase(), digest[..70].to_string(), digest.replace("256", "512"), digest + "0"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
