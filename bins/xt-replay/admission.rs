//! Whether a run can be replayed here: every pin is held against what would be used now.

use std::path::{Path, PathBuf};

use xt_cli::{Error, note};
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::manifest::command::Program;
use xt_core::manifest::replay::PinDifference;
use xt_core::manifest::run::Status;
use xt_core::verb::compare;
use xt_runtime::digests::Digests;
use xt_runtime::program;
use xt_runtime::worker::{self, Worker};

use crate::Arguments;
use crate::recorded::Recorded;

/// Why nothing is replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The stack, or the run itself, does not allow it.
    #[error("the replay is refused: {0}")]
    Refused(Faults),
}

impl Failure for ReplayError {
    fn exit(&self) -> Exit {
        Exit::Refused
    }

    fn word(&self) -> &'static str {
        "replay.refused"
    }

    fn hints(&self) -> Vec<String> {
        let Self::Refused(faults) = self;
        if faults.0.iter().all(|fault| fault.pointer == "run#/stack") {
            return vec!["--ignore-stack replays on this stack all the same, and the report says so".into()];
        }
        Vec::new()
    }

    fn faults(&self) -> Option<&Faults> {
        let Self::Refused(faults) = self;
        Some(faults)
    }
}

impl Arguments {
    /// The worker that is named, or that of this machine; if there is none, or it is another, the one in a full bundle.
    pub(crate) fn find_worker(&self, recorded: &Recorded) -> Result<PathBuf, Error> {
        let own = worker::find(self.worker.as_deref());
        let Some(bundle) = recorded.bundle.as_ref().filter(|_| self.worker.is_none()) else { return Ok(own?) };
        let (plan, stack) = (&recorded.papers.plan, &recorded.stack);
        let same = |path: &PathBuf| xt_runtime::pins(stack, plan, path).is_ok_and(|differences| differences.is_empty());
        if !own.as_ref().is_ok_and(same)
            && let Some(inside) = xt_runtime::unpack(&recorded.store, bundle, stack.worker)?
        {
            note(&self.common, "replay: the worker is the one in the bundle; it runs in custody, like any other");
            return Ok(inside);
        }
        Ok(own?)
    }

    /// Compares every pin with what would be used now. Gives the differences that are allowed.
    pub(crate) fn admit(&self, recorded: &Recorded, worker: &Path) -> Result<Vec<PinDifference>, Error> {
        let plan = &recorded.papers.plan;
        let library_path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
        // A replay is there to doubt, so every byte is read.
        let now = Worker::inspect(worker, library_path, &mut Digests::default())?.stack();
        let differences = compare::stacks(&recorded.stack, &now);
        let mut faults = recorded.told.clone();
        for (name, value) in &plan.environment {
            let then = recorded.run.environment.get(name);
            if then != Some(value) {
                let then = then.map_or("none", String::as_str);
                let message = format!("the environment differs: {name}: recorded {then}, now {value}");
                faults.add(format!("run#/environment/{name}"), "replay.pin", message);
            }
        }
        if !self.ignore_stack {
            faults.0.extend(compare::refusal(&differences).0);
        }
        faults.or(differences).map_err(|faults| ReplayError::Refused(faults).into())
    }

    /// Compares every pin of a command with this host.
    pub(crate) fn admit_command(&self, recorded: &Recorded, program: &Program) -> Result<Vec<PinDifference>, Error> {
        let mut faults = recorded.told.clone();
        let part = self.to.is_some() || self.from.is_some() || self.audit.is_some();
        if part || recorded.run.status != Status::Succeeded {
            let message = "a command is replayed as a whole, and only when it succeeded: it alone knows what a step is";
            faults.add("run#/status", "replay.command", message);
        }
        let (pins, host) = program::held(program, &recorded.stack, &self.common.store);
        faults.0.extend(compare::refusal(&pins).0);
        faults.0.extend(compare::refusal(&host).0.into_iter().filter(|_| !self.ignore_stack));
        faults.or(host).map_err(|faults| ReplayError::Refused(faults).into())
    }
}
