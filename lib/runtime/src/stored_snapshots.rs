//! Snapshots on their way from a worker at work into the store, and where they are found there: under the name
//! `snapshots/ATTEMPT/STEP`, from the moment they are taken, so that whatever happens to the run afterwards leaves them.

use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Stack, Taken};
use xt_core::manifest::snapshot::{Cadence, Part};
use xt_core::manifest::trace::Step;
use xt_core::name::Name;
use xt_core::verb::snapshot::{
    FOLDER, OPTIMIZER, PARAMETERS, Position, check_line, check_plan, folder, part, snapshot,
};
use xt_sandbox::{Limits, Outputs};
use xt_store::Store;

use crate::error::{RuntimeError, file};

/// A thirtieth of the weight of the worker, where both want the same processor.
const NICE: i32 = 15;

/// What a snapshot belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredSnapshots<'a> {
    pub(crate) store: &'a Store,
    pub(crate) attempt: &'a Name,
    /// Where its files lie on their way.
    pub(crate) scratch: &'a Path,
    pub(crate) limits: &'a Limits,
}

impl StoredSnapshots<'_> {
    /// Takes the snapshot that a worker wrote at `position` into the store, if it is what `line` and plan make it. The
    /// inner error says why it cannot be true. Copying, hashing and encoding it give way to the steps that the worker takes
    /// meanwhile.
    pub(crate) fn take(
        &self,
        outputs: &Outputs,
        position: Position,
        line: &Step,
        of: (&Plan, Stack),
    ) -> Result<Result<Taken, String>, RuntimeError> {
        let taking = || {
            xt_sandbox::give_way(NICE);
            self.take_here(outputs, position, line, of)
        };
        thread::scope(|scope| scope.spawn(taking).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn take_here(
        &self,
        outputs: &Outputs,
        position: Position,
        line: &Step,
        (plan, stack): (&Plan, Stack),
    ) -> Result<Result<Taken, String>, RuntimeError> {
        let step = position.step;
        let into = self.scratch.join(format!("{step:012}"));
        clear(&into)?;
        let collected = outputs.within(&folder(step)).and_then(|outputs| outputs.collect(&into, self.limits))?;
        let names: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        if names != [PARAMETERS, OPTIMIZER] || !collected.refused.is_empty() {
            return Ok(Err(format!("its folder holds {}, refused {:?}", names.join(", "), collected.refused)));
        }
        let (parameters, optimizer) = match (described(&into, PARAMETERS)?, described(&into, OPTIMIZER)?) {
            (Ok(parameters), Ok(optimizer)) => (parameters, optimizer),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        let found = snapshot(position, parameters, optimizer, line, plan.id(), stack);
        let mut faults = Faults::new();
        check_plan(&found, plan, &mut faults);
        check_line(&found, line, &mut faults);
        if !faults.is_empty() {
            return Ok(Err(faults.to_string()));
        }
        // What is stored here has no name before the last step.
        let _hold = self.store.hold()?;
        let mut writer = self.store.writer()?;
        for name in names {
            writer.put_file(&into.join(name))?;
        }
        let id = writer.put_manifest(&found)?;
        writer.commit()?;
        self.store.set_reference(&name(self.attempt, step), id, &format!("state after step {step}"))?;
        clear(&into)?;
        Ok(Ok(Taken { step, snapshot: id }))
    }

    /// Gives up the names of all but the latest snapshots that `cadence` keeps.
    pub(crate) fn thin(&self, cadence: &Cadence) -> Result<(), RuntimeError> {
        let Some(keep) = cadence.keep.and_then(|keep| usize::try_from(keep).ok()) else { return Ok(()) };
        let taken = taken(self.store, self.attempt)?;
        for old in &taken[..taken.len().saturating_sub(keep)] {
            self.store.remove_reference(&name(self.attempt, old.step))?;
        }
        Ok(())
    }
}

fn described(folder: &Path, name: &str) -> Result<Result<Part, String>, RuntimeError> {
    let path = folder.join(name);
    let bytes = fs::read(&path).map_err(file("read", &path))?;
    Ok(part(&bytes).map_err(|why| format!("{name}: {why}")))
}

fn clear(folder: &Path) -> Result<(), RuntimeError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file("remove", folder)(error)),
        _ => Ok(()),
    }
}

fn name(attempt: &Name, step: u64) -> String {
    format!("{FOLDER}/{attempt}/{step:012}")
}

/// The snapshots of `attempt` that are in the store under its name, by step: those that it took and keeps, and those that were computed again
/// for it.
pub fn taken(store: &Store, attempt: &Name) -> Result<Vec<Taken>, RuntimeError> {
    let prefix = format!("{FOLDER}/{attempt}/");
    let all = store.references()?.into_iter().filter_map(|reference| {
        let step = reference.name.as_str().strip_prefix(&prefix)?.parse().ok()?;
        Some(Taken { step, snapshot: reference.digest })
    });
    let mut all: Vec<Taken> = all.collect();
    all.sort_by_key(|taken| taken.step);
    Ok(all)
}

/// Gives the snapshot after `step` its name under `attempt`, so that it is found there.
pub fn keep_snapshot(store: &Store, attempt: &Name, taken: &Taken, reason: &str) -> Result<(), RuntimeError> {
    Ok(store.set_reference(&name(attempt, taken.step), taken.snapshot, reason)?)
}
