//! A C++ shim over libtorch for what tch does not expose, and the worker's other unsafe lines.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod autocast;
pub mod descriptor;
pub mod memory;
pub mod module;
mod shim;
pub mod switches;
pub mod wide;

pub use shim::TorchError;
