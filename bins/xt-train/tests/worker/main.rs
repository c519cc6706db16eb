//! The real worker on real jobs: what it computes, what it refuses, how it ends.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

mod base;
mod desk;
mod early;
mod encoder;
mod evaluate;
mod exact;
mod forms;
mod half;
mod hold;
mod matrix;
mod module;
mod processors;
mod recipe;
mod records;
mod refuse;
mod resume;
mod sample;
mod table;
