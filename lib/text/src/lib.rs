//! Text to tokens and back: the same code for the compiler, which counts, and the worker, which trains.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod corpus;
pub mod fault;
pub mod text;

pub use corpus::Corpus;
pub use fault::TextError;
pub use text::Text;
