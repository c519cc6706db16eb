//! After a crash: what runs is adopted, ends that were never recorded are looked up, what no runtime ever got is handed
//! over now, and what the record cannot answer is left to a person, with a reason (X38–X40).

use std::path::PathBuf;

use xt_core::manifest::action::ActionKind;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::quiescence::Quiescence;
use xt_core::manifest::reconciliation::{Found, Reason, Reconciliation};
use xt_core::name::Name;
use xt_core::verb::settle::{Machine as _, OperationState};
use xt_record::{Attempt, RecordError};
use xt_store::StoreError;

use crate::actions::deliver;
use crate::conclude::Place;
use crate::error::RuntimeError;
use crate::folder::{Folder, read_document};
use crate::lost::Closing;
use crate::request::Request;
use crate::run_documents::Order;
use crate::runtime::{Runtime, known};

/// Where a worker is found, if one must be started that no order names.
pub type FindWorker<'a> = &'a dyn Fn() -> Result<PathBuf, RuntimeError>;

impl Runtime {
    /// Settles what can be settled about every attempt that has not ended, within what `within` names or everywhere, and
    /// says what was found and done. Doing it again finds less to do.
    pub fn reconcile_all(
        &self,
        within: Option<&str>,
        worker: FindWorker<'_>,
    ) -> Result<Vec<Reconciliation>, RuntimeError> {
        let place = self.place()?;
        let attempts = match within {
            Some(text) => place.record.attempts_named(text)?,
            None => place.record.attempts()?,
        };
        let live = attempts.into_iter().filter(|attempt| !attempt.state.is_terminal());
        live.map(|attempt| self.reconciled(&place, &attempt, worker)).collect()
    }

    /// An experiment as it stands. Changes nothing.
    pub fn quiescence(&self, experiment: &Name) -> Result<Quiescence, RuntimeError> {
        Ok(self.place()?.record.quiescence(experiment)?)
    }

    fn reconciled(
        &self,
        place: &Place,
        attempt: &Attempt,
        worker: FindWorker<'_>,
    ) -> Result<Reconciliation, RuntimeError> {
        let (found, reason, why) = match self.look(place, attempt, worker) {
            Ok((found, why)) => (found, None, why),
            Err(error) => (Found::Escalated, Some(reason(&error)), error.to_string()),
        };
        let state = known(place, &attempt.id)?.state;
        Ok(Reconciliation {
            attempt: attempt.id.clone(),
            level: attempt.level,
            experiment: attempt.experiment.clone(),
            operation: attempt.operation.clone(),
            found,
            state,
            reason,
            why,
        })
    }

    fn look(&self, place: &Place, attempt: &Attempt, worker: FindWorker<'_>) -> Result<(Found, String), RuntimeError> {
        let told = tell_again(place, attempt)?;
        let attempt = &known(place, &attempt.id)?;
        if attempt.state.is_terminal() {
            return Ok((
                Found::Settled,
                format!("it had not been started, and ended as {} as was asked", attempt.state),
            ));
        }
        let Some(process) = &attempt.process else { return self.issue(place, attempt, worker) };
        match place.close_if_lost(attempt)? {
            Closing::Lives if told => Ok((Found::Told, format!("its supervisor, {process}, runs and was told again"))),
            Closing::Lives => Ok((Found::Adopted, format!("its supervisor, {process}, runs"))),
            Closing::Closed => {
                let state = known(place, &attempt.id)?.state;
                Ok((Found::Settled, format!("its supervisor, {process}, was gone; it is recorded as {state}")))
            }
            Closing::Unlaunched => {
                self.spawn(&attempt.id)?;
                Ok((Found::Restarted, format!("{process} was gone before it started a worker; another one took over")))
            }
            Closing::Unseen(supervisor) => Err(RuntimeError::Unseen { attempt: attempt.id.clone(), supervisor }),
        }
    }

    /// Hands over what no runtime ever got, if the request made again from the record is the one in the record (X34).
    fn issue(&self, place: &Place, attempt: &Attempt, worker: FindWorker<'_>) -> Result<(Found, String), RuntimeError> {
        let plan: Plan = place.store.manifest(attempt.plan)?;
        let request = Request::again(plan, attempt)?;
        let own = order_of(place, &attempt.id)?;
        let order = match (own, &attempt.retry_of) {
            (None, Some(before)) => order_of(place, before)?,
            (own, _) => own,
        };
        let missing: Vec<_> = request.plan.inputs.iter().map(|input| input.digest).collect();
        let missing: Vec<_> =
            missing.into_iter().filter(|digest| !place.store.contains(*digest).unwrap_or(false)).collect();
        if !missing.is_empty() {
            return Err(RuntimeError::MissingInputs(missing));
        }
        let worker = match (order, &request.plan.program) {
            (Some(order), _) => order.worker.into(),
            (None, Some(program)) => PathBuf::from(&program.executable.path),
            (None, None) => worker()?,
        };
        self.start(&attempt.id, &request, &worker)?;
        Ok((Found::Issued, "no runtime had got it; it was handed over under its recorded identity".into()))
    }
}

fn order_of(place: &Place, attempt: &Name) -> Result<Option<Order>, RuntimeError> {
    read_document(&Folder::of(place.store.path(), attempt).order())
}

/// Tells again what was asked of an attempt and may not have been heard; says whether there was anything.
fn tell_again(place: &Place, attempt: &Attempt) -> Result<bool, RuntimeError> {
    let mut told = false;
    let folder = Folder::of(place.store.path(), &attempt.id);
    for action in place.record.actions()?.into_iter().filter(|action| !action.state.is_terminal()) {
        let note = if action.kind == ActionKind::Cancel { folder.cancel() } else { folder.drain() };
        let unheard = action
            .operations
            .iter()
            .any(|step| step.attempt == attempt.id && (step.state == OperationState::Intended || !note.exists()));
        let unclaimed = attempt.process.is_none() && action.operations.iter().any(|step| step.attempt == attempt.id);
        if unheard || unclaimed {
            deliver(place, &action)?;
            told = true;
        }
    }
    Ok(told)
}

/// Why a person must look.
fn reason(error: &RuntimeError) -> Reason {
    match error {
        RuntimeError::Unseen { .. } => Reason::SupervisorUnseen,
        RuntimeError::OtherRequest { .. } => Reason::RequestDiffers,
        RuntimeError::MissingInputs(_)
        | RuntimeError::Store(StoreError::Missing { .. } | StoreError::Damaged { .. }) => Reason::PlanMissing,
        RuntimeError::NoWorker(_) | RuntimeError::Worker { .. } | RuntimeError::Supervisor { .. } => {
            Reason::WorkerMissing
        }
        RuntimeError::Damaged { .. } | RuntimeError::Record(RecordError::Damaged { .. }) => Reason::FolderDamaged,
        _ => Reason::StoreFails,
    }
}
