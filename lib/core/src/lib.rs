//! Nouns and pure verbs of `xt`: identity, canonical JSON, manifests, validation.
//!
//! This crate is `no_std` on purpose: the compiler keeps clock, files, environment and hash maps out of it, so
//! everything in it gives the same answer for the same input, everywhere.
#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;

pub mod canonical;
pub mod count;
pub mod digest;
pub mod fault;
pub mod field;
pub mod fingerprint;
pub mod instant;
pub mod left_out;
pub mod licence;
pub mod manifest;
pub mod name;
pub mod number;
pub mod order;
pub mod random;
pub mod range;
pub mod relpath;
pub mod statistics;
pub mod tag;
pub mod tensors;
pub mod verb;
