//! The store: a directory of objects named by the SHA-256 of their bytes, safe for any number of processes at once.
//!
//! What holds, and which tests hold it to that:
//! - An object is found only after every byte of it is durable; a reference names only what is found. A writer that
//!   dies leaves garbage that the next writer sweeps, nothing else (`tests/store_crash.rs`).
//! - Readers take no lock and need no write access. Each block and each whole object is hashed on each read, so wrong
//!   bytes never come back as if they were right (`tests/damage.rs`).
//! - Packs, codecs and blocks never show in an identity: the digest is the one that `sha256sum` prints.
//!
//! `README.md` beside this crate draws the layout of the directory; `block.rs` and `index.rs` fix its two binary forms.
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;

pub mod archive;
mod block;
mod codec;
mod coder;
mod condemned;
mod cut;
mod difference;
mod disk;
mod error;
mod gc;
mod graph;
mod group;
mod hashing;
mod hold;
mod index;
mod lane;
mod layout;
mod lease;
mod pack;
mod planes;
mod pool;
mod quarantine;
mod read;
mod refs;
mod repack;
mod restore;
mod salvage;
mod seen;
mod source;
mod store;
mod transfer;
pub mod tree;
mod usage;
mod verify;
mod write;

pub use error::StoreError;
pub use gc::{Collected, Collection, Sum};
pub use graph::digests_in;
pub use hold::Hold;
pub use quarantine::Quarantined;
pub use read::Object;
pub use refs::Reference;
pub use repack::Packed;
pub use source::Source;
pub use store::Store;
pub use transfer::Transferred;
pub use usage::{Total, Usage};
pub use verify::{Damage, Report};
pub use write::Writer;
