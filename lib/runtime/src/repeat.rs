//! Doing a part of a run again: from the nearest stored state, or from the start, up to some step.

use std::path::Path;

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::replay::PinDifference;
use xt_core::manifest::run::{Run, Stack, Start, Taken};
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::manifest::trace::Step;
use xt_core::name::Name;
use xt_core::verb::compare;
use xt_core::verb::snapshot::check_line;
use xt_store::Store;

use crate::digests::Digests;
use crate::error::RuntimeError;
use crate::request::Request;
use crate::stored_snapshots::taken;
use crate::worker::Worker;

/// A run that is done again, with its plan and the lines of its trace.
#[derive(Clone, Copy, Debug)]
pub struct Original<'a> {
    /// Its record.
    pub run: &'a Run,
    /// Its plan.
    pub plan: &'a Plan,
    /// Its steps.
    pub steps: &'a [Step],
}

/// A stored state of a run that its trace contradicts.
#[derive(Clone, Debug)]
pub struct Contradiction {
    /// The state.
    pub taken: Taken,
    /// What the trace says otherwise.
    pub faults: Faults,
}

impl Original<'_> {
    fn line(&self, step: u64) -> Option<&Step> {
        step.checked_sub(1).and_then(|index| self.steps.get(usize::try_from(index).ok()?))
    }

    /// The stored states of the run, by step, each held against the line of its step; and those that contradict it.
    pub fn states(&self, store: &Store) -> Result<(Vec<Taken>, Vec<Contradiction>), RuntimeError> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for taken in taken(store, &self.run.attempt)? {
            let Some(line) = self.line(taken.step) else { continue };
            let snapshot: Snapshot = store.manifest(taken.snapshot)?;
            let mut faults = Faults::new();
            check_line(&snapshot, line, &mut faults);
            if faults.is_empty() { good.push(taken) } else { bad.push(Contradiction { taken, faults }) }
        }
        Ok((good, bad))
    }

    /// What it begins from: `None` at the first step. The lines up to there stand in its own trace.
    pub fn begin(&self) -> Option<Start> {
        self.plan.start().map(|start| Start { run: self.run.id(), ..start })
    }

    /// The latest stored state after at most `most` steps; where there is none, the one that its plan left from, and `None`
    /// when the run must be done from its start.
    pub fn nearest(&self, store: &Store, most: u64) -> Result<Option<Start>, RuntimeError> {
        let (states, _) = self.states(store)?;
        let run = self.run.id();
        let nearest = states.into_iter().rev().find(|taken| taken.step <= most);
        let nearest = nearest.map(|taken| Start { run, snapshot: taken.snapshot, step: taken.step });
        Ok(nearest.or_else(|| self.begin()))
    }

    /// What to ask for so that the steps after `from` up to `to` are done again. With `keep`, the state after the last of
    /// them is stored.
    pub fn request(&self, from: Option<Start>, to: u64, keep: bool) -> Request {
        let experiment = Name::new("replay").unwrap_or_else(|| unreachable!("a literal identifier"));
        Request {
            mode: Mode::Replay,
            to_step: (to < self.plan.work.steps).then_some(to),
            cadence: Cadence { every: None, keep: None, last: keep },
            from,
            ..Request::new(self.plan.clone(), experiment)
        }
    }
}

/// Every pin of `recorded` that `worker` on this machine does not meet. A replay is there to doubt, so every byte is read.
pub fn pins(recorded: &Stack, plan: &Plan, worker: &Path) -> Result<Vec<PinDifference>, RuntimeError> {
    let library_path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
    Ok(compare::stacks(recorded, &Worker::inspect(worker, library_path, &mut Digests::default())?.stack()))
}

/// The last snapshot that a run took.
pub fn last_state(run: &Run) -> Option<(u64, Digest)> {
    run.snapshots.iter().max_by_key(|taken| taken.step).map(|taken| (taken.step, taken.snapshot))
}
