//! The models, one file each.

pub mod gpt;
