//! What a store knows to be withdrawn, and what rests on it.

use std::collections::{BTreeMap, BTreeSet};

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::Base;
use xt_core::manifest::plan::Plan;
use xt_core::verb::lineage::Lineage;
use xt_store::{Store, StoreError};

/// The names of withdrawals begin like this.
const FOLDER: &str = "withdrawals/";

/// What was withdrawn among `starts` and all that they came from, with the reasons. `papers` are documents that the store need
/// not hold. A store that knows of no withdrawal is not searched.
pub fn withdrawn(
    store: &Store,
    papers: &[(Digest, Value)],
    starts: impl IntoIterator<Item = Digest>,
) -> Result<BTreeMap<Digest, String>, StoreError> {
    if !store.references()?.iter().any(|reference| reference.name.as_str().starts_with(FOLDER)) {
        return Ok(BTreeMap::new());
    }
    let mut known = Lineage::default();
    store.documents(&mut |id, document| known.add(id, document))?;
    for (id, paper) in papers {
        known.add(*id, paper);
    }
    let starts: BTreeSet<Digest> = starts.into_iter().collect();
    Ok(starts.into_iter().flat_map(|start| known.withdrawn(start)).collect())
}

/// Of everything that plans rest on and that was withdrawn, a sentence about `what` does.
pub fn withdrawn_under<'a>(
    what: &str,
    store: &Store,
    plans: impl IntoIterator<Item = &'a Plan>,
) -> Result<Vec<String>, StoreError> {
    let found = withdrawn(store, &[], plans.into_iter().flat_map(rests_on))?;
    let said = |(digest, why)| format!("{what} rests on {digest}, which was withdrawn: {why}");
    Ok(found.into_iter().map(said).collect())
}

/// What a plan names by digest.
fn rests_on(plan: &Plan) -> Vec<Digest> {
    let base = match plan.native().map(|candidate| &candidate.base) {
        Some(Base::Bundle { digest, .. }) => Some(*digest),
        _ => None,
    };
    let measured = plan.evaluation.as_ref().map(|evaluating| evaluating.subject.bundle);
    let dataset = plan.dataset_id();
    let inputs = plan.inputs.iter().map(|input| input.digest);
    inputs.chain(base).chain(measured).chain(dataset).chain([plan.id()]).collect()
}
