//! Whether a run record is one that a run ended in.

use xt_bundle::BundleError;
use xt_cli::Error;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::run::Run;
use xt_record::Record;
use xt_store::{Store, StoreError};

/// A run record counts only if the store holds it and knows that it is true: anybody can write a file, and put it into a
/// store. True is what an attempt ended in, by the event record, or by the name that an end of a run gets, which is all that
/// comes with objects of another store; and what a bundle here was made of.
pub(crate) fn known(store: &Store, run: &Run) -> Result<(), Error> {
    let digest = run.id();
    if !store.contains(digest)? {
        return Err(StoreError::Missing { digest }.into());
    }
    let path = store.record_path();
    let attempts =
        if path.exists() { Record::open_read_only(&path)?.attempts_named(run.attempt.as_str())? } else { vec![] };
    let message = match attempts.iter().find(|attempt| attempt.id == run.attempt).map(|attempt| attempt.run_record) {
        Some(Some(ended)) if ended == digest => return Ok(()),
        Some(Some(ended)) => format!("{} ended in {ended}, says the event record", run.attempt),
        Some(None) => format!("{} has not ended, says the event record", run.attempt),
        None if named(store, run)? => return Ok(()),
        None => format!(
            "no attempt of this store ended in it: {} is unknown here; pull the store that ran it, or import its bundle",
            run.attempt
        ),
    };
    Err(BundleError::Unbound { run: digest, faults: Faults::one("run#", "freeze.recorded", message) }.into())
}

/// Whether a name of this store says that a run ended in this record: its own, or that of a bundle.
fn named(store: &Store, run: &Run) -> Result<bool, StoreError> {
    let digest = run.id();
    if store.reference(&format!("runs/{}", run.attempt))?.is_some_and(|name| name.digest == digest) {
        return Ok(true);
    }
    for name in store.references()?.iter().filter(|name| name.name.as_str().starts_with("bundles/")) {
        if store.manifest::<Bundle>(name.digest)?.run == digest {
            return Ok(true);
        }
    }
    Ok(false)
}
