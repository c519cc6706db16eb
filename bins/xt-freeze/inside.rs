//! The worker of a run, for a bundle that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use xt_bundle::BundleError;
use xt_cli::{CliError, Error};
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Run;
use xt_runtime::digests::Digests;
use xt_runtime::worker::{self, Worker};
use xt_store::Store;

/// Takes the worker of `run` and all that it loads into the store, and says how long each file is. They must be the very files
/// that the run used.
pub(crate) fn take(store: &Store, run: &Run, named: Option<&Path>) -> Result<BTreeMap<Digest, u64>, Error> {
    let plan: Plan = store.manifest(run.plan)?;
    // A run without a worker of ours is refused when it is bound, with everything else that is wrong with it.
    let Some(stack) = run.stack.as_ref().filter(|_| plan.command().is_none()) else { return Ok(BTreeMap::new()) };
    let library_path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
    let found = Worker::inspect(&worker::find(named)?, library_path, &mut Digests::default())?;
    let paths: BTreeMap<Digest, &Path> = found.digests.iter().map(|(path, digest)| (*digest, path.as_path())).collect();
    let mut faults = Faults::new();
    let mut wanted = BTreeSet::new();
    let libraries = stack.libraries.iter().map(|library| (library.name.as_str(), library.digest));
    for (name, digest) in libraries.chain([("the worker", stack.worker)]) {
        wanted.insert(digest);
        if !paths.contains_key(&digest) {
            let place = found.program.display();
            let message = format!("{name} of the run is {digest}, and that at {place} is not it, nor does it load it");
            faults.add("run#/stack", "bundle.worker", message);
        }
    }
    if !faults.is_empty() {
        return Err(BundleError::Unbound { run: run.id(), faults }.into());
    }
    let (mut writer, mut sizes) = (store.writer()?, BTreeMap::new());
    for (digest, path) in paths.into_iter().filter(|(digest, _)| wanted.contains(digest)) {
        let real = path.canonicalize().map_err(|source| CliError::Read { name: path.display().to_string(), source })?;
        let (stored, bytes) = writer.put_file(&real)?;
        if stored != digest {
            let message = format!("{} changed while it was read", path.display());
            let faults = Faults::one("run#/stack", "bundle.worker", message);
            return Err(BundleError::Unbound { run: run.id(), faults }.into());
        }
        sizes.insert(digest, bytes);
    }
    writer.commit()?;
    Ok(sizes)
}
