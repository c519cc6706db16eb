//! Models, data, optimisers, schedules, trace: what the worker computes.
// Exact equality of floats is what this crate is about.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp, clippy::cast_precision_loss))]

pub mod adapter;
pub mod augment;
pub mod average;
pub mod base;
pub mod checkpoint;
pub mod control;
pub mod data;
pub mod dropout;
pub mod early;
pub mod evaluate;
pub mod fault;
pub mod gradients;
pub mod inputs;
pub mod layout;
pub mod locate;
pub mod model;
pub mod noise;
pub mod normal;
pub mod objective;
pub mod optim;
pub mod parameters;
pub mod perform;
pub mod precision;
pub mod probe;
pub mod recorder;
pub mod regime;
pub mod sample;
pub mod scaler;
pub mod schedule;
pub mod snapshot;
pub mod state;
pub mod step;
pub mod telemetry;
pub mod trace;

pub use fault::TrainError;
pub use perform::{Ending, perform};
