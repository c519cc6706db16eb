//! Signatures that anybody can check offline: keys in standard PEM, DSSE envelopes, and the Sigstore bundle that OpenSSF
//! model signing writes. What is signed is decided elsewhere (`xt_core::verb::statement`).
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod check;
mod envelope;
mod error;
mod key;

pub use check::{signatures, strangers};
pub use envelope::{Envelope, PAYLOAD_TYPE, sigstore_bundle};
pub use error::SigningError;
pub use key::{Algorithm, PrivateKey, PublicKey};
