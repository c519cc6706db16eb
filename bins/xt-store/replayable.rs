//! States of runs that can be computed again: given up for their space, and brought back when they are damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use xt_cli::{Common, Error, note};
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{Run, Start, Status, Taken};
use xt_core::manifest::snapshot::Snapshot;
use xt_core::manifest::trace::read_steps;
use xt_runtime::{Original, taken, worker};
use xt_store::{Store, StoreError};

use crate::Left;
use crate::again::{Again, again};

/// Where the records of runs, and the states that they took, have their names.
const RUNS: &str = "runs/";
const SNAPSHOTS: &str = "snapshots/";

/// What can be given up.
#[derive(Debug, Default)]
pub struct Evictable {
    /// Files of states that nothing else needs.
    pub files: BTreeSet<Digest>,
    /// The names of the states.
    pub names: Vec<String>,
    /// How many states.
    pub states: u64,
    /// Plain bytes of the files.
    pub bytes: u64,
}

/// A state, its files and the names that it has as a state.
struct State {
    snapshot: Digest,
    files: [Digest; 2],
    names: Vec<String>,
}

/// The states of replayable runs but for one in `every` of each run, the last one, and those that anything else needs: a run
/// that goes on from it, a bundle, a name or a pin.
pub fn states(store: &Store, every: u64, roots: &[Digest]) -> Result<Evictable, Error> {
    let references = store.references()?;
    let mut candidates = Vec::new();
    for run in runs(store)?.iter().filter(|run| run.mode != Mode::Replay) {
        if !is_replayable(store, run) {
            continue;
        }
        let all = all_states(store, run)?;
        let last = all.len().saturating_sub(1);
        for (number, state) in all.iter().enumerate() {
            if number == last || (number as u64 + 1).is_multiple_of(every) {
                continue;
            }
            let snapshot: Snapshot = match store.manifest(state.snapshot) {
                Ok(snapshot) => snapshot,
                Err(StoreError::Missing { .. } | StoreError::Damaged { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let of_state = references.iter().filter(|reference| reference.digest == state.snapshot);
            let names = of_state.map(|reference| reference.name.to_string()).collect();
            let files = [snapshot.parameters.file, snapshot.optimizer.file];
            candidates.push(State { snapshot: state.snapshot, files, names });
        }
    }
    let pinned: BTreeSet<Digest> = store.pins()?.into_iter().map(|pin| pin.digest).collect();
    let asked = candidates.iter().flat_map(|state| [state.snapshot, state.files[0], state.files[1]]).collect();
    let parents = store.parents(&asked, roots)?;
    let free = |state: &State| {
        let only_as_state = state.names.iter().all(|name| name.starts_with(SNAPSHOTS));
        only_as_state
            && !pinned.contains(&state.snapshot)
            && lists_only(store, &parents[&state.snapshot], state.snapshot)
    };
    candidates.retain(free);
    let given_up: BTreeSet<Digest> = candidates.iter().map(|state| state.snapshot).collect();
    let mut found = Evictable::default();
    for state in candidates {
        let files = state.files.iter().filter(|file| parents[*file].is_subset(&given_up));
        let mut any = false;
        for file in files {
            let Some(bytes) = store.size(*file)? else { continue };
            any = true;
            if found.files.insert(*file) {
                found.bytes += bytes;
            }
        }
        if any {
            found.states += 1;
            found.names.extend(state.names);
        }
    }
    Ok(found)
}

/// Whether these are records of runs that took the state, and none that goes on from it but to do a part of a run again.
fn lists_only(store: &Store, parents: &BTreeSet<Digest>, snapshot: Digest) -> bool {
    parents.iter().all(|parent| {
        let run: Result<Run, _> = store.manifest(*parent);
        run.is_ok_and(|run| {
            run.mode == Mode::Replay || run.start.as_ref().is_none_or(|start| start.snapshot != snapshot)
        })
    })
}

/// The records of runs that have a name.
fn runs(store: &Store) -> Result<Vec<Run>, Error> {
    let named = store.references()?.into_iter().filter(|reference| reference.name.as_str().starts_with(RUNS));
    // What is no record of a run, or is damaged, is no run to do again.
    Ok(named.filter_map(|reference| store.manifest(reference.digest).ok()).collect())
}

/// Whether any state of a run comes out again, bit for bit: its regime says so, and its trace, which tells, is there.
fn is_replayable(store: &Store, run: &Run) -> bool {
    let exact = run.regime == Regime::Exact && run.status == Status::Succeeded && run.stack.is_some();
    exact
        && xt_bundle::papers(store, run, true).is_ok_and(|papers| papers.faults.is_empty() && !papers.steps.is_empty())
}

/// The states of a run, by step: those in its record, and those that were computed again.
fn all_states(store: &Store, run: &Run) -> Result<Vec<Taken>, Error> {
    let mut states: BTreeMap<u64, Digest> = run.snapshots.iter().map(|taken| (taken.step, taken.snapshot)).collect();
    states.extend(taken(store, &run.attempt)?.into_iter().map(|taken| (taken.step, taken.snapshot)));
    Ok(states.into_iter().map(|(step, snapshot)| Taken { step, snapshot }).collect())
}

/// Computes again what is damaged of the states and results of runs; gives what is sound again.
pub fn repair(
    common: &Common,
    store: &Store,
    wanted: &[Digest],
    worker: Option<&Path>,
    left: &Left,
) -> Result<Vec<Digest>, Error> {
    let mut missing: BTreeSet<Digest> = wanted.iter().copied().collect();
    for run in runs(store)?.iter().filter(|run| run.mode != Mode::Replay) {
        let mut steps = BTreeSet::new();
        for state in all_states(store, run)? {
            let files =
                store.manifest::<Snapshot>(state.snapshot).map(|found| [found.parameters.file, found.optimizer.file]);
            let damaged = files.map_or_else(
                |_| missing.contains(&state.snapshot),
                |files| files.iter().any(|file| missing.contains(file)),
            );
            if damaged {
                steps.insert(state.step);
            }
        }
        if run.artifacts.iter().any(|artifact| missing.contains(&artifact.digest)) {
            steps.insert(run.progress.steps);
        }
        for step in steps {
            compute(common, store, run, step, worker, left)?;
            if left.get().is_some() {
                break;
            }
            missing.retain(|digest| store.read(*digest, &mut io::sink()).is_err());
        }
    }
    Ok(wanted.iter().filter(|digest| !missing.contains(digest)).copied().collect())
}

fn compute(
    common: &Common,
    store: &Store,
    run: &Run,
    step: u64,
    worker: Option<&Path>,
    left: &Left,
) -> Result<(), Error> {
    let say = |why: &str| note(common, &format!("xt-store: {} step {step} is not computed again: {why}", run.attempt));
    // The results of the run may be what is damaged, so they are not read; only the recorded bytes are taken anyway.
    let trace = run.trace.as_ref().ok_or_else(|| "it has no trace".to_owned());
    let trace = trace.and_then(|trace| store.get(trace.digest).map_err(|error| error.to_string()));
    let (plan, steps) = match (store.manifest::<Plan>(run.plan), trace) {
        (Ok(plan), Ok(trace)) => (plan, read_steps(run.plan, &trace).0),
        (Err(error), _) => {
            say(&error.to_string());
            return Ok(());
        }
        (_, Err(why)) => {
            say(&why);
            return Ok(());
        }
    };
    let original = Original { run, plan: &plan, steps: &steps };
    let from = start(store, &original, step)?;
    let worker = worker::find(worker)?;
    match again(common, "xt-store", &worker, &original, (from, step))? {
        Again::Done(done) if done.status == Status::Succeeded => {}
        Again::Done(done) => say(&done.cause),
        Again::Refused(faults) => say(&faults.to_string()),
        Again::Left(signal) => left.set(Some(signal)),
    }
    Ok(())
}

/// The latest state before `step` of which every byte is there, or what the run itself began from.
fn start(store: &Store, original: &Original<'_>, step: u64) -> Result<Option<Start>, Error> {
    let run = original.run.id();
    for state in all_states(store, original.run)?.into_iter().rev().filter(|state| state.step < step) {
        let Ok(snapshot) = store.manifest::<Snapshot>(state.snapshot) else { continue };
        let files = [snapshot.parameters.file, snapshot.optimizer.file];
        if files.iter().all(|file| store.read(*file, &mut io::sink()).is_ok()) {
            return Ok(Some(Start { run, snapshot: state.snapshot, step: state.step }));
        }
    }
    Ok(original.begin())
}
