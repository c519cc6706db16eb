//! The record on a real disk: many processes, kill -9, locks, foreign files.
#![allow(clippy::unwrap_used)]

mod bench;
mod crash;
mod crowd;
mod file;
mod process;
mod standing;
mod submit;
