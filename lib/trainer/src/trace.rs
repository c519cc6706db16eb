//! Writes the trace of a run: one chained line a step, flushed before the step counts as done.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use xt_core::digest::Digest;
use xt_core::field::Field;
use xt_core::manifest::trace::Step;

use crate::fault::TrainError;

/// Where the lines lie, relative to the output folder.
pub const PATH: &str = "trace/steps.jsonl";

/// The trace of a run.
#[derive(Debug)]
pub struct TraceWriter {
    file: File,
    chain: Digest,
}

impl TraceWriter {
    /// An empty file in `folder`, whose first line will be chained to `chain`: the plan's id, or the chain of the last
    /// step before a snapshot that was restored.
    pub fn create(folder: &Path, chain: Digest) -> Result<Self, TrainError> {
        let path = folder.join(PATH);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| File::create_new(&path));
        Ok(Self { file: made.map_err(unwritable)?, chain })
    }

    /// Chains `step` to the line before it, writes it in one call and gives it back.
    pub fn append(&mut self, step: Step) -> Result<Step, TrainError> {
        let step = step.chain_to(self.chain);
        let line = step.write().canonical() + "\n";
        self.file.write_all(line.as_bytes()).map_err(unwritable)?;
        self.chain = step.chain;
        Ok(step)
    }

    /// Makes the lines durable.
    pub fn finish(self) -> Result<(), TrainError> {
        self.file.sync_all().map_err(unwritable)
    }
}

fn unwritable(source: std::io::Error) -> TrainError {
    TrainError::Output { path: PATH.into(), source }
}
