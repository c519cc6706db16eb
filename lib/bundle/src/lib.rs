//! Bundles: deriving one from a run in a store, writing it as an archive, verifying one, taking one in.
//!
//! A bundle in a store is one document, `xt.bundle/1`, and the objects it names. As an archive it is a tar.zst with
//! these files, in this order:
//!
//! ```text
//! bundle.json          the document: its canonical text without `id`, so that `sha256sum bundle.json` prints its id
//! SHA256SUMS           every other file, sorted by path; `sha256sum -c SHA256SUMS` checks them
//! manifests/           run, plan, candidate, dataset, custody, trace: canonical text without `id`, named by id alike
//! model/               what the trainer wrote: model.safetensors, config.json, tokenizer.json where there is one
//! trace/steps.jsonl    one line a step, chained to the plan's id
//! log/                 stdout and stderr of the trainer
//! data/                sealed bundles only: each input file, named by the 64 digits of its SHA-256
//! ```
//!
//! Names, sizes and digests follow from the run alone, and the tar stream holds no time, owner or mode of this
//! machine, so two archives of one run are the same bytes before compression. The compressed bytes are no identity.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod archive;
pub mod base;
mod branches;
mod error;
mod export;
mod freeze;
mod given;
mod import;
pub mod layout;
mod lines;
mod verify;
mod withdrawn;

pub use archive::{Entry, cat, list, verify_archive, write};
pub use branches::ran;
pub use error::BundleError;
pub use export::{Exported, Form, Part, export};
pub use freeze::{Papers, freeze, metrics, papers};
pub use given::Given;
pub use import::{import, repair_from};
pub use verify::{Verdict, verify_stored};
pub use withdrawn::{withdrawn, withdrawn_under};
