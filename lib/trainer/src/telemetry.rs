//! What the worker says while it works: one canonical line a message, flushed at once.

use std::io::Write;

use xt_core::field::Field;
use xt_core::manifest::job::Message;

use crate::fault::TrainError;

/// The way to the launcher.
#[derive(Debug)]
pub struct Telemetry<W>(W);

impl<W: Write> Telemetry<W> {
    /// Messages go to `writer`.
    pub const fn new(writer: W) -> Self {
        Self(writer)
    }

    /// Says something.
    pub fn say(&mut self, message: &Message) -> Result<(), TrainError> {
        let line = message.write().canonical() + "\n";
        self.0.write_all(line.as_bytes()).and_then(|()| self.0.flush()).map_err(TrainError::Telemetry)
    }

    /// Where the messages went.
    pub fn into_inner(self) -> W {
        self.0
    }
}
