//! What came of branches and of models that were trained in a regime that is not exact, and what to ask the exact one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use xt_cli::{Common, Error, note};
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::branch::{Branch, Departure};
use xt_core::manifest::calibration::Calibration;
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::decision::{Context, Inexact, Objective};
use xt_core::manifest::evaluation::Evaluation;
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::manifest::run::Run;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::verb::branches::{Ran, effects};
use xt_core::verb::decision_context::{inexact, inexact_branch, of_branch};
use xt_core::verb::depart::{Asked, Origin, Substitute, depart, other_data};
use xt_core::verb::regime;
use xt_store::Store;

/// One context for each branch but the no-ops. What is decided on is computed again from the runs of the store.
pub(crate) fn contexts(branches: &[Branch], objective: &Objective, common: &Common) -> Result<Vec<Context>, Error> {
    if branches.is_empty() {
        return Ok(Vec::new());
    }
    let store = Store::open(&common.store)?;
    let found = again(branches, &store)?;
    let (mut faults, mut contexts) = (Faults::new(), Vec::new());
    for (place, branch) in branches.iter().enumerate() {
        let at = format!("branch {}#", place + 1);
        if !found.contains(branch) {
            faults.add(at, "decision.forged", "it is not what its runs come to");
            continue;
        }
        let execution = match (branch.regime, branch.calibration) {
            (Regime::Exact, _) => None,
            (_, Some(calibration)) => Some(of_one(&store, branch, calibration, common)?),
            (regime, None) => {
                let message =
                    format!("it is evidence for a calibration of the regime {regime}, and nothing is decided on that");
                faults.add(at, "decision.evidence", message);
                continue;
            }
        };
        if branch.arm != "no-op" {
            contexts.push(of_branch(branch, objective, execution));
        }
    }
    if faults.is_empty() && contexts.is_empty() {
        faults.add("", "decision.nothing", "there is no branch but the no-op");
    }
    Ok(faults.or(contexts)?)
}

/// What the runs of these branches and of their no-ops come to.
fn again(branches: &[Branch], store: &Store) -> Result<Vec<Branch>, Error> {
    let mut all: BTreeMap<Digest, Ran> = BTreeMap::new();
    for (place, branch) in branches.iter().enumerate() {
        for id in branch.replicates.iter().flat_map(|one| [one.run, one.no_op]) {
            if let Entry::Vacant(new) = all.entry(id) {
                let ran = xt_bundle::ran(store, store.manifest(id)?)?;
                new.insert(ran.map_err(|faults| faults.within(&format!("branch {}", place + 1)))?);
            }
        }
    }
    let all: Vec<Ran> = all.into_values().collect();
    Ok(effects(&all)?)
}

fn of_one(store: &Store, branch: &Branch, calibration: Digest, common: &Common) -> Result<Inexact, Error> {
    let calibration: Calibration = store.manifest(calibration)?;
    let mut plans = Vec::new();
    for one in &branch.replicates {
        let run: Run = store.manifest(one.run)?;
        let plan: Plan = store.manifest(run.plan)?;
        let Some(departure) = &plan.departure else { continue };
        let no_op = Departure { set: Vec::new(), noise: None, known: None, replicate: 1, ..departure.clone() };
        for (what, departure) in [("no-op", &no_op), (branch.arm.as_str(), departure)] {
            match exact_branch(store, &plan, departure)? {
                Ok(exact) => plans.push(exact),
                // Whoever asks the exact regime has to know what is not asked.
                Err(faults) => note(
                    common,
                    &format!("xt-decide: note: {}: no exact plan can be made of {what}:\n{faults}", branch.arm),
                ),
            }
        }
        // Repeats are the same in the exact regime; seeds of noise on the weights are not.
        if branch.noise.is_none() {
            break;
        }
    }
    Ok(inexact_branch(branch, &calibration, kept(store, &plans, &branch.arm)?))
}

/// The plan of the same branch in the exact regime, on the data that `plan` saw where it was set to other ones; or why there is
/// none, as where the state itself is of another regime.
fn exact_branch(store: &Store, plan: &Plan, departure: &Departure) -> Result<Result<Plan, Faults>, Error> {
    let run: Run = store.manifest(departure.run)?;
    let (before, snapshot): (Plan, Snapshot) = (store.manifest(run.plan)?, store.manifest(departure.snapshot)?);
    let substituted = departure.under.iter().chain(&departure.set).any(other_data);
    let data = plan.dataset.clone().filter(|_| substituted);
    let (count, fitted) = (plan.work.tokens, plan.fitted.clone());
    let asked = Asked {
        under: regime::exact_changes(&departure.under),
        set: departure.set.clone(),
        noise: departure.noise.clone(),
        replicate: departure.replicate,
        horizons: departure.horizons.clone(),
        data: data.map(|dataset| Substitute { dataset, count, fitted }),
        known: departure.known.clone(),
        ..Asked::on(departure.purpose)
    };
    let origin = Origin { run: &run, plan: &before, snapshot: &snapshot };
    Ok(depart(&origin, &asked).map(|(plan, _)| plan))
}

/// How a model that was measured came about; `None` for the exact regime.
pub(crate) fn of_model(store: &Store, evaluation: &Evaluation) -> Result<Option<Inexact>, Error> {
    if evaluation.regime == Regime::Exact {
        return Ok(None);
    }
    let run: Run = store.manifest(evaluation.subject.run)?;
    let plan: Plan = store.manifest(run.plan)?;
    let Ground::Calibration { digest, .. } = plan.ground else {
        let message = format!(
            "{} was trained in the regime {} without a calibration",
            evaluation.subject.name, evaluation.regime
        );
        return Err(Faults::one("", "decision.evidence", message).into());
    };
    let calibration: Calibration = store.manifest(digest)?;
    let plans: Vec<Plan> = regime::exact(&plan, &calibration).into_iter().collect();
    Ok(Some(inexact(&calibration, kept(store, &plans, evaluation.subject.name.as_str())?)))
}

/// The plans in the store, where `xt-run` finds them by their ids.
fn kept(store: &Store, plans: &[Plan], what: &str) -> Result<Vec<Digest>, Error> {
    let mut ids = Vec::new();
    for plan in plans {
        let id = store.put_manifest(plan)?;
        store.set_reference(&format!("escalations/{}", id.hex()), id, &format!("{what} in the exact regime"))?;
        ids.push(id);
    }
    ids.dedup();
    Ok(ids)
}
