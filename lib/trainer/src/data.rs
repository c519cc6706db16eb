//! What is learned from, one file per kind of data.

pub mod text;
