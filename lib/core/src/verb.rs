//! What can be done with the documents: pure functions, one file each.

pub mod admit;
pub mod ancestry;
pub mod assemble;
pub mod bind;
pub mod chain;
pub mod command;
pub mod compare;
pub mod compare_candidates;
pub mod compile;
pub mod configuration;
pub mod custody;
pub mod decide;
pub mod doctor;
pub mod draw;
pub mod environment;
pub mod evaluate;
pub mod explain;
pub mod incident;
pub mod measure;
pub mod quiesce;
pub mod settle;
pub mod snapshot;
pub mod story;
pub mod tell;
pub mod triage;
pub mod weights;
