//! Branches of a store, with all that their effects are computed from.

use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::branch::{Future, Purpose};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Run;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::verb::bind;
use xt_core::verb::branches::Ran;
use xt_core::verb::rebaseline::Before;
use xt_store::Store;

use crate::{BundleError, papers};

/// A branch that ran, read and checked. What the store cannot give is an error; what the papers say wrong are the faults.
pub fn ran(store: &Store, run: Run) -> Result<Result<Ran, Faults>, BundleError> {
    let mut papers = papers(store, &run, true)?;
    let mut faults = std::mem::take(&mut papers.faults);
    bind::check_told(&papers.evidence(&run), &mut faults);
    if !faults.is_empty() {
        return Ok(Err(faults));
    }
    let departure = papers.plan.departure.as_ref();
    let Some((future, snapshot)) = departure.and_then(|departure| Some((departure.future?, departure.snapshot))) else {
        let message = format!("the run {} is no branch that ends at a horizon", run.id());
        return Ok(Err(Faults::one("/plan", "branch.none", message)));
    };
    let future: Future = store.manifest(future)?;
    let snapshot: Snapshot = store.manifest(snapshot)?;
    let before = match before(store, &papers.plan, &snapshot)? {
        Ok(before) => before,
        Err(faults) => return Ok(Err(faults)),
    };
    Ok(Ok(Ran { run, plan: papers.plan, steps: papers.steps, snapshot, future, before }))
}

/// What a maintenance branch left from: the stack of the state, and the steps that came after it there.
fn before(store: &Store, plan: &Plan, state: &Snapshot) -> Result<Result<Option<Before>, Faults>, BundleError> {
    let Some(from) = plan.departure.as_ref().filter(|from| from.purpose == Purpose::Maintenance) else {
        return Ok(Ok(None));
    };
    let run: Run = store.manifest(from.run)?;
    let papers = papers(store, &run, true)?;
    let before = Before { stack: state.stack.clone(), environment: run.environment, steps: papers.steps };
    Ok(papers.faults.within("before").or(Some(before)))
}
