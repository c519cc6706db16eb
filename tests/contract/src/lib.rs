//! Holds `schemas/` and xt-manifest(5) against the Rust types, and both against mutated documents.
//!
//! A package of its own, because a JSON Schema validator as a dependency of the tools' package would change the features
//! with which the tested programs are built.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod comparisons;
pub mod decisions;
pub mod documents;
pub mod mutation;
pub mod page;

use std::path::PathBuf;

/// The root of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Whether generated files are to be written anew instead of compared: `XT_SCHEMAS=rewrite`.
pub fn rewrite() -> bool {
    std::env::var_os("XT_SCHEMAS").is_some_and(|word| word == "rewrite")
}

/// Name of the file in `schemas/` for a kind: `xt.plan/1` is in `xt.plan-1.json`.
pub fn file_name(tag: &str) -> String {
    format!("{}.json", tag.replace('/', "-"))
}
