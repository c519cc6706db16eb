//! Keys: ECDSA on P-256 with SHA-256 (FIPS 186-5) and Ed25519 (RFC 8032), in PEM (RFC 7468): private keys as PKCS#8 or
//! SEC 1, public keys as SubjectPublicKeyInfo.

use std::fmt;

use ed25519_dalek::Signer as _;
use p256::pkcs8::{
    DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _, LineEnding,
};
use xt_core::digest::Digest;

use crate::error::SigningError;

/// How is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA on the curve P-256 with SHA-256; the nonce follows from key and message (RFC 6979).
    P256,
    /// Ed25519.
    Ed25519,
}

impl Algorithm {
    /// Its name on the command line and in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The algorithm with this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::P256, Self::Ed25519].into_iter().find(|algorithm| algorithm.word() == text)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A key that signs.
pub enum PrivateKey {
    /// On P-256.
    P256(p256::ecdsa::SigningKey),
    /// Ed25519.
    Ed25519(ed25519_dalek::SigningKey),
}

/// A key that checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// On P-256.
    P256(p256::ecdsa::VerifyingKey),
    /// Ed25519.
    Ed25519(ed25519_dalek::VerifyingKey),
}

impl PrivateKey {
    /// A new key, from the random numbers of the system.
    pub fn generate(algorithm: Algorithm) -> Result<Self, SigningError> {
        loop {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(|error| SigningError::Random(error.to_string()))?;
            match algorithm {
                Algorithm::Ed25519 => return Ok(Self::Ed25519(ed25519_dalek::SigningKey::from_bytes(&bytes))),
                // One number in 2^32 lies outside of the curve's order.
                Algorithm::P256 => {
                    if let Ok(key) = p256::ecdsa::SigningKey::from_slice(&bytes) {
                        return Ok(Self::P256(key));
                    }
                }
            }
        }
    }

    /// Reads a key from PEM; `name` says in messages where it came from.
    pub fn from_pem(text: &str, name: &str) -> Result<Self, SigningError> {
        let refused = |why: &str| SigningError::Key { name: name.into(), wanted: "private", why: why.into() };
        match label(text) {
            None => Err(refused("there is no PEM block")),
            Some(label @ ("PUBLIC KEY" | "CERTIFICATE")) => Err(refused(&format!("it holds a {label}"))),
            Some("ENCRYPTED PRIVATE KEY") => Err(refused("it is encrypted; decrypt it with `openssl pkey` first")),
            Some(_) => match (p256::SecretKey::from_pem(text), ed25519_dalek::SigningKey::from_pkcs8_pem(text)) {
                (Ok(key), _) => Ok(Self::P256(key.into())),
                (_, Ok(key)) => Ok(Self::Ed25519(key)),
                (Err(_), Err(_)) => Err(refused("it is neither on the curve P-256 nor an Ed25519 key")),
            },
        }
    }

    /// The key as PKCS#8 in PEM.
    pub fn to_pem(&self, name: &str) -> Result<String, SigningError> {
        let text = match self {
            Self::P256(key) => key.to_pkcs8_pem(LineEnding::LF),
            Self::Ed25519(key) => key.to_pkcs8_pem(LineEnding::LF),
        };
        let text = text.map(|text| text.as_str().to_string());
        text.map_err(|error| SigningError::Key { name: name.into(), wanted: "private", why: error.to_string() })
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> PublicKey {
        match self {
            Self::P256(key) => PublicKey::P256(*key.verifying_key()),
            Self::Ed25519(key) => PublicKey::Ed25519(key.verifying_key()),
        }
    }

    /// The signature of `message`: as ASN.1 for P-256, 64 bytes for Ed25519.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::P256(key) => {
                let signature: p256::ecdsa::DerSignature = key.sign(message);
                signature.as_bytes().to_vec()
            }
            Self::Ed25519(key) => key.sign(message).to_bytes().to_vec(),
        }
    }
}

impl fmt::Debug for PrivateKey {
    /// Never the key itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({}, {})", self.public().algorithm(), self.public().id())
    }
}

impl PublicKey {
    /// Reads a key from PEM; `name` says in messages where it came from.
    pub fn from_pem(text: &str, name: &str) -> Result<Self, SigningError> {
        let refused = |why: String| SigningError::Key { name: name.into(), wanted: "public", why };
        match label(text) {
            None => Err(refused("there is no PEM block".into())),
            Some("PUBLIC KEY") => {
                let found = p256::ecdsa::VerifyingKey::from_public_key_pem(text).map(Self::P256);
                let found =
                    found.or_else(|_| ed25519_dalek::VerifyingKey::from_public_key_pem(text).map(Self::Ed25519));
                found.map_err(|_| refused("it is neither on the curve P-256 nor an Ed25519 key".into()))
            }
            Some(label) => Err(refused(format!("it holds a {label}"))),
        }
    }

    /// The key as SubjectPublicKeyInfo in PEM.
    pub fn to_pem(&self) -> String {
        let text = match self {
            Self::P256(key) => key.to_public_key_pem(LineEnding::LF),
            Self::Ed25519(key) => key.to_public_key_pem(LineEnding::LF),
        };
        text.unwrap_or_else(|_| unreachable!("a valid key has an encoding"))
    }

    /// SHA-256 of the key's PEM text: the hint by which OpenSSF model signing knows it.
    pub fn id(&self) -> String {
        Digest::of(self.to_pem().as_bytes()).hex()
    }

    /// How this key signs.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::P256(_) => Algorithm::P256,
            Self::Ed25519(_) => Algorithm::Ed25519,
        }
    }

    /// Whether `signature` is one of `message` by this key.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::P256(key) => {
                use p256::ecdsa::signature::Verifier as _;
                let signature = p256::ecdsa::DerSignature::try_from(signature);
                signature.is_ok_and(|signature| key.verify(message, &signature).is_ok())
            }
            // Strict: a key or point of small order vouches for nothing.
            Self::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
        }
    }
}

/// What the first PEM block of a text is.
fn label(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_text_and_checks_what_it_signed_and_nothing_else() {
        for algorithm in [Algorithm::P256, Algorithm::Ed25519] {
            let key = PrivateKey::generate(algorithm).unwrap();
            let again = PrivateKey::from_pem(&key.to_pem("new").unwrap(), "new").unwrap();
            let public = PublicKey::from_pem(&again.public().to_pem(), "new").unwrap();
            assert_eq!((&public, public.algorithm()), (&key.public(), algorithm));
            let signature = again.sign(b"message");
            assert_eq!(signature, key.sign(b"message"), "no signature hangs on chance");
            assert!(public.verifies(b"message", &signature));
            let other = PrivateKey::generate(algorithm).unwrap().public();
            assert!(!public.verifies(b"massage", &signature) && !other.verifies(b"message", &signature));
            for bit in 0..signature.len() * 8 {
                let mut flipped = signature.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(!public.verifies(b"message", &flipped), "bit {bit}");
            }
            assert!(!format!("{key:?}").contains("PRIVATE"));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_it_is() {
        let key = PrivateKey::generate(Algorithm::P256).unwrap();
        let (private, public) = (key.to_pem("k").unwrap(), key.public().to_pem());
        for (text, says) in [
            ("", "no PEM block"),
            (public.as_str(), "PUBLIC KEY"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n", "encrypted"),
            ("-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n", "neither"),
        ] {
            let error = PrivateKey::from_pem(text, "k").unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        for (text, says) in [("hello", "no PEM block"), (private.as_str(), "PRIVATE KEY")] {
            let error = PublicKey::from_pem(text, "k").unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
