//! Text to tokens and back, tables, images and tensors to rows of numbers: the same code for the compiler, which counts and fits,
//! and the worker, which trains.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp))]

pub mod corpus;
pub mod example;
pub mod fault;
pub mod image;
pub mod labelled;
pub mod records;
pub mod rows;
pub mod suggest;
pub mod table;
pub mod tensors;
pub mod text;

pub use corpus::Corpus;
pub use fault::TextError;
pub use records::Records;
pub use rows::{Raw, Rows, Targets};
pub use text::Text;
