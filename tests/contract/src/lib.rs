//! Holds schemas/ against the Rust types.
