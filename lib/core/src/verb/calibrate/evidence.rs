//! Branches of a regime beside the exact ones of the same states.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::manifest::branch::{Branch, Replicate};
use crate::manifest::run::Status;
use crate::number::Finite;
use crate::verb::branches::{gained, no_op};
use crate::verb::depart::text;

/// The name of the branch in which nothing is set.
pub(super) const NO_OP: &str = "no-op";

/// One state with all that was tried from it.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The trajectory that it is of.
    pub(super) root: Digest,
    pub(super) snapshot: Digest,
    pub(super) horizons: Vec<u64>,
    /// How many declared executions and repeats of the regime there are.
    pub(super) worlds: usize,
    /// Without the no-op.
    pub(super) arms: Vec<Arm>,
    /// Whether the no-op failed, for each of its runs.
    pub(super) no_op: Vec<bool>,
}

/// One branch in both regimes.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) name: String,
    /// Its effect in the exact regime, by horizon.
    pub(super) exact: Vec<Option<f64>>,
    /// The same in each world of the other; `None` where it did not run.
    pub(super) others: Vec<Option<Seen>>,
}

/// One run of a branch.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Its effect, by horizon.
    pub(super) effects: Vec<Option<f64>>,
    pub(super) failed: bool,
}

/// One declared execution of a regime, and the number of its repeat.
type World = (String, u64);

/// What ran from one state: by branch, by world.
#[derive(Debug, Default)]
struct Runs {
    root: Option<Digest>,
    horizons: Vec<u64>,
    arms: BTreeMap<String, BTreeMap<World, Seen>>,
}

/// The states with the branches that both regimes have. A branch that only one of them has is a fault: what is left out could
/// be what differs.
pub(super) fn states(exact: &[Branch], other: &[Branch], faults: &mut Faults) -> Vec<State> {
    let (one, two) = (runs(exact, "exact", faults), runs(other, "other", faults));
    let snapshots: BTreeSet<Digest> = one.keys().chain(two.keys()).copied().collect();
    let state = |snapshot: Digest| {
        if let (Some(exact), Some(other)) = (one.get(&snapshot), two.get(&snapshot)) {
            return state(snapshot, exact, other, faults);
        }
        let message = format!("branches of {snapshot} are there in one regime only");
        faults.add("", "calibration.unpaired", message);
        None
    };
    let states: Vec<State> = snapshots.into_iter().filter_map(state).collect();
    let some = |arm: &Arm| {
        let other = arm.others.iter().flatten().flat_map(|seen| &seen.effects);
        arm.exact.iter().any(Option::is_some) && other.flatten().next().is_some()
    };
    if faults.is_empty() && !states.iter().flat_map(|state| &state.arms).any(some) {
        faults.add("", "calibration.empty", "no state has a no-op and another branch with effects in both regimes");
    }
    states
}

/// Branches by state. Each seed of noise on the weights is a branch of its own; any other replicate is a repeat.
fn runs(branches: &[Branch], which: &str, faults: &mut Faults) -> BTreeMap<Digest, Runs> {
    let mut all: BTreeMap<Digest, Runs> = BTreeMap::new();
    for branch in branches {
        let runs = all.entry(branch.snapshot).or_default();
        let horizons: Vec<u64> = branch.effects.iter().map(|effect| effect.horizon).collect();
        if runs.root.is_none() {
            (runs.root, runs.horizons) = (Some(branch.root), horizons.clone());
        }
        if runs.horizons != horizons || runs.root != Some(branch.root) {
            let message = format!("{} has other horizons than other branches of {}", branch.arm, branch.snapshot);
            faults.add(which, "calibration.mixed", message);
            continue;
        }
        let Some(matched) = no_op(branch, branches) else {
            let message = format!("the no-op of the set of {} from {} is not there", branch.arm, branch.snapshot);
            faults.add(which, "calibration.no-op", message);
            continue;
        };
        for one in &branch.replicates {
            let (arm, repeat) = match branch.noise {
                Some(_) => (format!("{}#{}", branch.arm, one.replicate), 1),
                None => (branch.arm.clone(), one.replicate),
            };
            let world = (text(&branch.under), repeat);
            let before = runs.arms.entry(arm.clone()).or_default().insert(world, seen(one, matched, &horizons));
            if before.is_some() {
                faults.add(which, "calibration.twice", format!("{arm} from {} is there twice", branch.snapshot));
            }
        }
    }
    all
}

fn seen(one: &Replicate, no_op: &Branch, horizons: &[u64]) -> Seen {
    let effect = |horizon: &u64| gained(one, Some(no_op), *horizon).map(Finite::get);
    Seen {
        effects: horizons.iter().map(effect).collect(),
        failed: one.status != Status::Succeeded || !one.unstable.is_empty(),
    }
}

fn state(snapshot: Digest, exact: &Runs, other: &Runs, faults: &mut Faults) -> Option<State> {
    if exact.horizons != other.horizons {
        let message = format!("branches of {snapshot} have other horizons in one regime than in the other");
        faults.add("", "calibration.unpaired", message);
        return None;
    }
    let worlds: BTreeSet<&World> = other.arms.values().flat_map(BTreeMap::keys).collect();
    let executions: BTreeSet<&String> = worlds.iter().map(|(under, _)| under).collect();
    let names: BTreeSet<&String> = exact.arms.keys().chain(other.arms.keys()).collect();
    let mut arms = Vec::new();
    for name in names {
        let (Some(seen), Some(others)) = (exact.arms.get(name), other.arms.get(name)) else {
            let message = format!("{name} from {snapshot} is there in one regime only");
            faults.add("", "calibration.unpaired", message);
            continue;
        };
        for under in executions.iter().filter(|under| !others.keys().any(|(found, _)| found == **under)) {
            let message = format!("{name} from {snapshot} did not run under {under}, as others did");
            faults.add("other", "calibration.unpaired", message);
        }
        let settings: BTreeSet<&String> = seen.keys().map(|(under, _)| under).collect();
        if settings.len() > 1 {
            let message = format!("{name} from {snapshot} is there under several settings");
            faults.add("exact", "calibration.twice", message);
        }
        // Repeats in the exact regime have the same bits, so that the first stands for all.
        let reference = seen.values().next().map(|seen| seen.effects.clone()).unwrap_or_default();
        let others = worlds.iter().map(|world| others.get(*world).cloned()).collect();
        arms.push(Arm { name: name.clone(), exact: reference, others });
    }
    let no_op = arms.iter().find(|arm| arm.name == NO_OP);
    let no_op = no_op.map(|arm| arm.others.iter().flatten().map(|seen| seen.failed).collect()).unwrap_or_default();
    arms.retain(|arm| arm.name != NO_OP);
    Some(State { root: other.root?, snapshot, horizons: exact.horizons.clone(), worlds: worlds.len(), arms, no_op })
}
