//! The documents, one file each.

pub mod action;
pub mod branch;
pub mod bundle;
pub mod calibration;
pub mod candidate;
pub mod command;
pub mod comparison;
pub mod custody;
pub mod dataset;
pub mod decision;
pub mod encoding;
pub mod evaluation;
pub mod event;
pub mod incident;
pub mod intent;
pub mod job;
pub mod network;
pub mod plan;
pub mod promotion;
pub mod quiescence;
pub mod recipe;
pub mod reconciliation;
pub mod refusal;
pub mod replay;
pub mod resources;
pub mod run;
pub mod snapshot;
pub mod status;
pub mod terms;
pub mod trace;
pub mod withdrawal;

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::canonical::Value;
use crate::field::Manifest;

/// The JSON Schema of every document, by tag. `schemas/` holds them as files.
pub fn schemas() -> BTreeMap<&'static str, Value> {
    fn entry<M: Manifest>() -> (&'static str, Value) {
        let mut schema = M::schema();
        if let Value::Object(members) = &mut schema {
            members.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
            members.insert("title".into(), Value::String(String::from(M::TAG)));
        }
        (M::TAG, schema)
    }
    BTreeMap::from([
        entry::<action::Action>(),
        entry::<branch::Branch>(),
        entry::<branch::Future>(),
        entry::<calibration::Calibration>(),
        entry::<calibration::Gates>(),
        entry::<bundle::Bundle>(),
        entry::<bundle::Verification>(),
        entry::<command::Hypothesis>(),
        entry::<comparison::Comparison>(),
        entry::<comparison::ComparisonContext>(),
        entry::<custody::Custody>(),
        entry::<dataset::Dataset>(),
        entry::<decision::Context>(),
        entry::<decision::Decision>(),
        entry::<evaluation::Evaluation>(),
        entry::<evaluation::Metrics>(),
        entry::<evaluation::Spec>(),
        entry::<event::Event>(),
        entry::<incident::Incident>(),
        entry::<incident::IncidentReport>(),
        entry::<intent::Intent>(),
        entry::<plan::Plan>(),
        entry::<promotion::Promotion>(),
        entry::<promotion::PromotionPolicy>(),
        entry::<quiescence::Quiescence>(),
        entry::<reconciliation::Reconciliation>(),
        entry::<refusal::Refusal>(),
        entry::<replay::Replay>(),
        entry::<replay::TraceDiff>(),
        entry::<resources::Inventory>(),
        entry::<resources::Resources>(),
        entry::<run::Run>(),
        entry::<snapshot::Snapshot>(),
        entry::<snapshot::SnapshotDiff>(),
        entry::<status::Status>(),
        entry::<trace::Trace>(),
        entry::<withdrawal::Withdrawal>(),
    ])
}

crate::record! {
    /// A file by path and content.
    pub struct Artifact {
        /// Where it lies, relative to the document's folder.
        path: crate::relpath::RelativePath,
        /// SHA-256 of its bytes.
        digest: crate::digest::Digest,
        /// Its size in bytes.
        bytes: u64,
    }
}
