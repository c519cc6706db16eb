//! What is asked of the runtime, and what makes two askings the same.

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field as _, object};
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::Start;
use xt_core::manifest::snapshot::Cadence;
use xt_core::name::Name;
use xt_core::verb::compile;

use xt_record::Attempt;

use crate::error::RuntimeError;
use crate::readable;
use crate::scope::Scope;
use crate::secrets::Secrets;

/// What is asked of the runtime.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to run.
    pub plan: Plan,
    /// What for. A replay runs the plan of the earlier run as it is, so that the chain of its trace begins alike.
    pub mode: Mode,
    /// Stop after this step; `None` takes all.
    pub to_step: Option<u64>,
    /// When to take snapshots.
    pub cadence: Cadence,
    /// What to go on from; `None` begins at the first step.
    pub from: Option<Start>,
    /// The experiment it is counted under.
    pub experiment: Name,
    /// The operation id; `None` mints one.
    pub operation: Option<Name>,
    /// The secrets that the plan's intent declares. They are no part of what makes two requests the same.
    pub secrets: Secrets,
    /// Attempts that were drained for it and go on afterwards; what they keep does not stand in its way.
    pub beside: Vec<Name>,
    /// The attempt that it goes on from, whose leases it takes over.
    pub follows: Option<Name>,
}

impl Request {
    /// A request to run all of `plan`.
    pub fn new(plan: Plan, experiment: Name) -> Self {
        let Scope { mode, to_step, cadence, from } = Scope::whole(&plan);
        Self {
            mode,
            plan,
            to_step,
            cadence,
            from,
            experiment,
            operation: None,
            secrets: Secrets::default(),
            beside: Vec::new(),
            follows: None,
        }
    }

    /// The request of an earlier attempt, from its plan and the record alone (X34).
    pub(crate) fn again(plan: Plan, attempt: &Attempt) -> Result<Self, RuntimeError> {
        let Scope { mode, to_step, cadence, from } = Scope::recorded(attempt, &plan)?;
        let request = Self { mode, to_step, cadence, from, ..Self::new(plan, attempt.experiment.clone()) };
        let rebuilt = request.digest();
        if rebuilt != attempt.request {
            return Err(RuntimeError::OtherRequest { attempt: attempt.id.clone(), rebuilt });
        }
        Ok(request)
    }

    /// What is asked for beside the plan; `None` when that is all of it.
    pub fn scope(&self) -> Option<Scope> {
        let Self { mode, to_step, cadence, from, .. } = self.clone();
        Some(Scope { mode, to_step, cadence, from }).filter(|scope| *scope != Scope::whole(&self.plan))
    }

    /// The digest that tells whether two requests ask for the same thing (X33): the plan's own, unless something beside
    /// the plan is asked for.
    pub fn digest(&self) -> Digest {
        let Some(Scope { mode, to_step, cadence, from }) = self.scope() else { return self.plan.request };
        object([
            ("projection", "xt.partial-request/1".into()),
            ("request", self.plan.request.write()),
            ("mode", mode.write()),
            ("to_step", to_step.write()),
            ("cadence", cadence.write()),
            ("from", from.write()),
        ])
        .digest()
    }

    /// Steps that are due.
    pub fn planned(&self) -> u64 {
        self.to_step.unwrap_or(self.plan.work.steps)
    }

    /// Everything that is wrong with it.
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = compile::check_plan(&self.plan).err().unwrap_or_default();
        self.secrets.check(&self.plan.intent.secrets, &mut faults);
        self.secrets.check_plan(&self.plan, &mut faults);
        let steps = self.plan.work.steps;
        if self.plan.departure.is_some() && self.from.is_none() {
            faults.add("", "request.from", "the plan goes on from a state, and cannot begin at the first step");
        }
        let part = self.to_step.is_some() || self.from.is_some() || self.cadence != Cadence::NONE;
        if self.plan.command().is_some() && part {
            faults.add("", "request.step", "a command is run whole or not at all: only it knows what a step is");
            return Err(faults);
        }
        if self.to_step.is_some_and(|step| step == 0 || step > steps) {
            faults.add("", "request.step", format!("expected a step from 1 to {steps}, found {}", self.planned()));
        }
        if self.plan.evaluation.is_some() && (part || self.mode != Mode::Evaluation) {
            faults.add("", "request.evaluation", "an evaluation is done as a whole, and not replayed: evaluate again");
        }
        if let Some(from) = self.from.as_ref().filter(|from| from.step >= self.planned()) {
            let message = format!("from step {} on there is no step up to {}", from.step, self.planned());
            faults.add("", "request.step", message);
        }
        faults.or(())
    }

    /// What of the program of a command the trainer's user could not read on this host now.
    pub(crate) fn readable(&self) -> Result<(), Faults> {
        let profile = self.plan.intent.isolation.profile;
        self.plan.program.as_ref().map_or(Ok(()), |program| readable::program(program, profile).or(()))
    }
}
