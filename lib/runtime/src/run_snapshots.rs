//! The snapshots of one run as its supervisor sees them: told of by the worker, held against the lines of their steps,
//! taken into the store one by one.

use std::collections::{BTreeMap, VecDeque};

use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Reported, Stack};
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Step;
use xt_core::verb::snapshot::Position;
use xt_record::Attempt;
use xt_sandbox::{Limits, Outputs};

use crate::error::RuntimeError;
use crate::ledger::Disagreement;
use crate::stored_snapshots::StoredSnapshots;
use crate::supervise::Supervisor;

/// The snapshots of one run.
pub(crate) struct RunSnapshots<'a> {
    attempt: &'a Attempt,
    pub(crate) plan: &'a Plan,
    cadence: Cadence,
    stack: Stack,
    limits: Limits,
    /// Lines of steps whose state may still be told of.
    lines: BTreeMap<u64, Step>,
    keep_all: bool,
    told: VecDeque<Position>,
    last: Option<u64>,
}

impl<'a> RunSnapshots<'a> {
    pub(crate) fn new(attempt: &'a Attempt, plan: &'a Plan, cadence: Cadence, stack: Stack, limits: Limits) -> Self {
        let (lines, told) = (BTreeMap::new(), VecDeque::new());
        Self { attempt, plan, cadence, stack, limits, lines, keep_all: false, told, last: None }
    }

    /// The last step whose state was taken.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// From now on a state may be told of after any step.
    pub(crate) fn keep_all(&mut self) {
        self.keep_all = true;
    }

    /// Notes what a message says about states. The last line is always kept: the run may be drained there.
    pub(crate) fn hear(&mut self, message: &Message) {
        match message {
            Message::Step { line, .. } => {
                let forgettable = |step: &u64| !self.keep_all && !self.cadence.due(*step, u64::MAX);
                if let Some(step) = self.lines.keys().next_back().copied().filter(forgettable) {
                    self.lines.remove(&step);
                }
                self.lines.insert(line.step, (**line).clone());
            }
            Message::Snapshot { step, updates, generator, cursor, nanoseconds: _ } => self.told.push_back(Position {
                step: *step,
                updates: *updates,
                generator: generator.clone(),
                cursor: cursor.clone(),
            }),
            _ => {}
        }
    }

    /// Takes the next state that was told of, if there is one, and gives its step.
    pub(crate) fn take_next(
        &mut self,
        supervisor: &Supervisor,
        outputs: &Outputs,
        reported: Option<&Reported>,
    ) -> Result<Option<Result<u64, Disagreement>>, RuntimeError> {
        let Some(position) = self.told.pop_front() else { return Ok(None) };
        let step = position.step;
        let Some(line) = self.lines.get(&step) else {
            return Ok(Some(Err(Disagreement::Snapshot { step, why: "none was due there".into() })));
        };
        let place = StoredSnapshots {
            store: &supervisor.place.store,
            attempt: &self.attempt.id,
            scratch: &supervisor.folder.snapshots(),
            limits: &self.limits,
        };
        let stack = Stack { reported: reported.cloned(), ..self.stack.clone() };
        match place.take(outputs, position, line, (self.plan, stack))? {
            Ok(_) => {
                place.thin(&self.cadence)?;
                self.lines = self.lines.split_off(&step);
                self.last = Some(step);
                Ok(Some(Ok(step)))
            }
            Err(why) => Ok(Some(Err(Disagreement::Snapshot { step, why }))),
        }
    }
}
