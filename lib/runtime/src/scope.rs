//! What is asked for beside the plan. It stands in the record, so that whoever comes after a crash knows all of a request.

use xt_core::canonical;
use xt_core::fault::Faults;
use xt_core::field::Field as _;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::Start;
use xt_core::manifest::snapshot::Cadence;
use xt_record::{Attempt, RecordError};

use crate::error::RuntimeError;

xt_core::record! {
    /// What is asked for beside the plan.
    pub struct Scope {
        /// What the run is for.
        mode: Mode,
        /// Stop after this step; `null` takes all.
        to_step: Option<u64>,
        /// When to take snapshots.
        cadence: Cadence,
        /// What to go on from; `null` begins at the first step.
        from: Option<Start>,
    }
}

impl Scope {
    /// All of a plan, and nothing beside it.
    pub fn whole(plan: &Plan) -> Self {
        let to_step = Some(plan.due()).filter(|due| *due < plan.work.steps);
        // The state at the end of a branch is a part of what came of it, and what an adoption goes on from.
        let cadence = Cadence { last: plan.is_branch(), ..Cadence::NONE };
        Self { mode: plan.mode, to_step, cadence, from: plan.start() }
    }

    /// What was asked for by the record; all of the plan when it says nothing.
    pub(crate) fn recorded(attempt: &Attempt, plan: &Plan) -> Result<Self, RuntimeError> {
        let Some(text) = &attempt.scope else { return Ok(Self::whole(plan)) };
        let mut faults = Faults::new();
        let value = canonical::parse(text.as_bytes()).ok();
        let scope = value.and_then(|value| Self::read(&value, "", &mut faults)).filter(|_| faults.is_empty());
        let damaged = || RecordError::Damaged { what: format!("the scope of {} says {text}: {faults}", attempt.id) };
        Ok(scope.ok_or_else(damaged)?)
    }

    /// Steps that are due.
    pub(crate) fn planned(&self, plan: &Plan) -> u64 {
        self.to_step.unwrap_or(plan.work.steps)
    }
}
