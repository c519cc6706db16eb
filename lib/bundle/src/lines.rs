//! A trace as it streams by, cut into lines.

use std::collections::BTreeSet;

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::Step;
use xt_core::verb::chain::{Chain, LINES, Tally};

/// A line of a trace holds a few kilobytes; a longer one than this is no step, and is not kept in memory.
const LONGEST: usize = 4 << 20;

/// Follows a trace in pieces of any size.
#[derive(Debug)]
pub struct Lines {
    chain: Chain,
    begun: Vec<u8>,
    long: bool,
    /// Every step so far, when they are wanted.
    kept: Option<Vec<Step>>,
}

impl Lines {
    /// The trace of the plan with this id; without the plan itself, only the trace is checked.
    pub fn new(id: Digest, plan: Option<&Plan>) -> Self {
        Self { chain: Chain::new(id, plan), begun: Vec::new(), long: false, kept: None }
    }

    /// The same, and the lines of these steps are kept in what the trace says.
    pub fn marking(self, wanted: BTreeSet<u64>) -> Self {
        Self { chain: self.chain.marking(wanted), ..self }
    }

    /// The same, and the steps are kept.
    pub fn keeping(id: Digest, plan: Option<&Plan>) -> Self {
        Self { kept: Some(Vec::new()), ..Self::new(id, plan) }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            self.begun.extend_from_slice(line);
            self.line();
            bytes = rest;
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LONGEST {
            // What is thrown away here makes the line unreadable and the digest of the trace wrong, which is the truth.
            self.long = true;
            self.begun.clear();
        }
    }

    fn line(&mut self) {
        let step = self.chain.line(&self.begun);
        if let (Some(kept), Some(step)) = (&mut self.kept, step) {
            kept.push(step.clone());
        }
        self.begun.clear();
    }

    /// What the trace says, everything that is wrong with it, and the steps if they were to be kept.
    pub fn finish(mut self) -> (Tally, Faults, Vec<Step>) {
        if !self.begun.is_empty() {
            self.line();
        }
        let (tally, mut faults) = self.chain.finish();
        if self.long {
            faults.add(LINES, "trace.long", format!("a line is longer than {LONGEST} bytes"));
        }
        (tally, faults, self.kept.unwrap_or_default())
    }
}
