//! The record on a real disk: many processes, kill -9, locks, foreign files.
#![allow(clippy::unwrap_used)]

mod action;
mod bench;
mod crash;
mod crowd;
mod decision;
mod evaluation;
mod file;
mod process;
mod rebuild;
mod retry;
mod standing;
mod submit;
