//! Recorded branches of one state against the no-op of their set, horizon by horizon: what was observed, and no verdict.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, object};
use crate::manifest::branch::{Branch, Departure, Effect, Future, Known, Proof, Replicate, Uncertainty};
use crate::manifest::plan::{Ground, Plan};
use crate::manifest::run::{Run, Stack};
use crate::manifest::snapshot::Snapshot;
use crate::manifest::trace::Step;
use crate::number::Finite;
use crate::verb::depart::{arm, text};
use crate::verb::rebaseline::{Before, rebaseline};

/// A branch that ran, with its papers.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its record.
    pub run: Run,
    /// Its plan.
    pub plan: Plan,
    /// The steps of its trace, those before the departure included.
    pub steps: Vec<Step>,
    /// The state that it left from.
    pub snapshot: Snapshot,
    /// The micro-batches that its plan says that it saw.
    pub future: Future,
    /// What it left from, when it is there for maintenance.
    pub before: Option<Before>,
}

/// What makes branches of one set: the same state, the same horizons, the same micro-batches.
type Set<'a> = BTreeMap<(String, u64), (&'a Ran, &'a Departure)>;

/// The branches among `all`, by set, arm and replicate, each against the no-op of its set. What was not computed on the
/// shared micro-batches, or has no no-op, is a fault: an effect is a difference between matched runs or nothing.
pub fn effects(all: &[Ran]) -> Result<Vec<Branch>, Faults> {
    let (mut sets, mut faults): (BTreeMap<_, Set<'_>>, _) = (BTreeMap::new(), Faults::new());
    for (place, ran) in all.iter().enumerate() {
        let Some(departure) = ran.plan.departure.as_ref().filter(|departure| !departure.horizons.is_empty()) else {
            faults.add(at(place, "/plan"), "branch.none", "the run is no branch that ends at a horizon");
            continue;
        };
        check_future(ran, departure, place, &mut faults);
        let under = text(&departure.under);
        let set =
            sets.entry((departure.snapshot, departure.horizons.clone(), departure.purpose.word(), under)).or_default();
        let before = set.insert((arm(departure), departure.replicate), (ran, departure));
        // The same record given twice is one run.
        if before.is_some_and(|(other, _)| other.run != ran.run) {
            let message = format!("{} replicate {} is there twice", arm(departure), departure.replicate);
            faults.add(at(place, ""), "branch.twice", message);
        }
    }
    let mut branches = Vec::new();
    for set in sets.values() {
        let mut arms: Vec<&String> = set.keys().map(|(arm, _)| arm).collect();
        arms.dedup();
        branches.extend(arms.into_iter().filter_map(|arm| branch(set, arm, &mut faults)));
    }
    faults.or(branches)
}

/// Where in the input something is wrong: runs are counted from 1.
fn at(place: usize, pointer: &str) -> String {
    format!("run {}#{pointer}", place + 1)
}

/// All branches of a set must have seen what its future says, as far as they came.
fn check_future(ran: &Ran, departure: &Departure, place: usize, faults: &mut Faults) {
    if departure.future != Some(ran.future.id()) {
        faults.add(at(place, "/plan"), "branch.future", "the micro-batches at hand are not those of its plan");
    }
    let seen = after(ran, departure);
    let parted = seen.iter().zip(&ran.future.steps).find(|(step, due)| step.samples != due.digest);
    if let Some((step, due)) = parted {
        let message = format!("step {} saw {}, the shared future has {}", step.step, step.samples, due.digest);
        faults.add(at(place, "/trace"), "branch.future", message);
    }
}

/// The steps that it took itself.
fn after<'a>(ran: &'a Ran, departure: &Departure) -> &'a [Step] {
    let from = usize::try_from(departure.step).unwrap_or(usize::MAX).min(ran.steps.len());
    &ran.steps[from..]
}

fn branch(set: &Set<'_>, arm: &str, faults: &mut Faults) -> Option<Branch> {
    let runs: Vec<_> = set.iter().filter(|((name, _), _)| name == arm).collect();
    let (_, (first, departure)) = runs.first()?;
    let mut replicates = Vec::new();
    let mut pairs = Vec::new();
    for ((_, number), (ran, _)) in &runs {
        // A no-op needs no replicate of its own where it cannot differ from the first.
        let no_op = set.get(&("no-op".into(), *number)).or_else(|| set.get(&("no-op".into(), 1)));
        let Some((no_op, _)) = no_op else {
            faults.add("", "branch.no-op", format!("{arm}: the no-op of its set is not among the runs"));
            return None;
        };
        let (taken, matched) = (after(ran, departure), after(no_op, departure));
        replicates.push(replicate(ran, no_op, *number, (taken, matched)));
        pairs.push((taken, matched));
    }
    let (candidate, _) = first.plan.training()?;
    let Some(stack) = first.run.stack.as_ref().map(Stack::identity) else {
        faults.add("", "branch.stack", format!("{arm}: what its first run ran on is not known"));
        return None;
    };
    let noise = departure.noise.as_ref().map(|noise| noise.relative);
    let uncertainty = match (&noise, runs.len()) {
        (_, 0 | 1) => Uncertainty::None,
        (Some(_), _) => Uncertainty::Noise,
        (None, _) => Uncertainty::Execution,
    };
    let effects: Vec<Effect> = departure.horizons.iter().map(|horizon| effect(*horizon, &pairs)).collect();
    let moved = first.before.as_ref();
    Some(Branch {
        known: departure.known.as_ref().map(|known| proof(known, &effects)),
        rebaseline: moved.and_then(|moved| rebaseline(moved, &first.run, (departure.step, after(first, departure)))),
        snapshot: departure.snapshot,
        step: departure.step,
        root: departure.root,
        purpose: departure.purpose,
        arm: arm.into(),
        under: departure.under.clone(),
        set: departure.set.clone(),
        noise,
        regime: first.run.regime,
        stack,
        baseline: first.snapshot.stack.identity(),
        family: candidate.model.word().into(),
        precision: candidate.precision,
        execution: candidate.execution.clone(),
        calibration: match first.plan.ground {
            Ground::Calibration { digest, .. } => Some(digest),
            Ground::None {} | Ground::Evidence {} => None,
        },
        future: first.future.id(),
        effects,
        replicates,
        uncertainty,
    })
}

/// Whether the effect is what it was known to be. A figure that is not there is not within anything.
fn proof(known: &Known, effects: &[Effect]) -> Proof {
    let within = |effect: &Effect| effect.effect.is_some_and(|effect| known.low <= effect && effect <= known.high);
    Proof { low: known.low, high: known.high, holds: effects.iter().all(within) }
}

fn replicate(ran: &Ran, no_op: &Ran, number: u64, (taken, matched): (&[Step], &[Step])) -> Replicate {
    let observed = &ran.run.observed;
    let above = taken.iter().zip(matched).map(|(step, other)| difference(step, other));
    let shock = above.collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max));
    let unstable = |step: &&Step| step.loss.is_none() || step.stages.iter().any(|stage| stage.non_finite() > 0);
    let last = taken.last().map(|step| step.step);
    Replicate {
        replicate: number,
        run: ran.run.id(),
        no_op: no_op.run.id(),
        status: ran.run.status,
        loss: taken.iter().map(|step| step.loss).collect(),
        gradient_norm: taken.iter().map(|step| step.gradient_norm).collect(),
        shock: shock.and_then(Finite::new),
        unstable: taken.iter().filter(unstable).map(|step| step.step).collect(),
        skipped: taken.iter().filter(|step| step.skipped).count() as u64,
        replay: taken.last().map_or(ran.plan.root(), |step| step.chain),
        final_state: ran.run.snapshots.iter().find(|taken| Some(taken.step) == last).map(|taken| taken.snapshot),
        steps: taken.len() as u64,
        wall_nanoseconds: observed.wall_nanoseconds,
        cpu_nanoseconds: observed.cpu_nanoseconds,
        peak_memory_bytes: observed.peak_memory_bytes,
    }
}

fn difference(step: &Step, other: &Step) -> Option<f64> {
    Some(step.loss?.get() - other.loss?.get())
}

/// The effect at one horizon over all replicates; a figure is there only when every replicate has it.
fn effect(horizon: u64, pairs: &[(&[Step], &[Step])]) -> Effect {
    let length = usize::try_from(horizon).unwrap_or(usize::MAX);
    let mut losses = Vec::new();
    let (mut at, mut over) = (Vec::new(), Vec::new());
    for (taken, matched) in pairs {
        let upto = taken.get(..length).zip(matched.get(..length)).and_then(|(taken, matched)| {
            losses.push(taken.last()?.loss?.get());
            taken.iter().zip(matched).map(|(step, other)| difference(step, other)).collect::<Option<Vec<f64>>>()
        });
        let Some(upto) = upto else {
            return Effect { horizon, loss: None, effect: None, mean_effect: None, deviation: None };
        };
        at.extend(upto.last());
        over.push(mean(&upto));
    }
    Effect {
        horizon,
        loss: Finite::new(mean(&losses)),
        effect: Finite::new(mean(&at)),
        mean_effect: Finite::new(mean(&over)),
        deviation: deviation(&at).and_then(Finite::new),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 values")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation of a sample: with one less than the number of values below.
#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 values")]
fn deviation(values: &[f64]) -> Option<f64> {
    let below = values.len().checked_sub(1).filter(|below| *below > 0)?;
    let mean = mean(values);
    Some(libm::sqrt(values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / below as f64))
}

/// The columns of a cell, in the order of a table.
pub const COLUMNS: [&str; 15] = [
    "snapshot",
    "step",
    "purpose",
    "arm",
    "regime",
    "replicate",
    "horizon",
    "loss",
    "effect",
    "status",
    "unstable",
    "shock",
    "wall_nanoseconds",
    "cpu_nanoseconds",
    "run",
];

/// A branch as labels: one cell for each replicate and horizon. Costs are those of the whole run of the cell.
pub fn cells(branch: &Branch, no_op: Option<&Branch>) -> Vec<crate::canonical::Value> {
    let mut cells = Vec::new();
    for one in &branch.replicates {
        for effect in &branch.effects {
            let loss = loss_at(one, effect.horizon);
            let gained = gained(one, no_op, effect.horizon);
            cells.push(object([
                ("snapshot", branch.snapshot.write()),
                ("step", branch.step.write()),
                ("purpose", branch.purpose.write()),
                ("arm", branch.arm.write()),
                ("regime", branch.regime.write()),
                ("replicate", one.replicate.write()),
                ("horizon", effect.horizon.write()),
                ("loss", loss.write()),
                ("effect", gained.write()),
                ("status", one.status.write()),
                ("unstable", (one.unstable.len() as u64).write()),
                ("shock", one.shock.write()),
                ("wall_nanoseconds", one.wall_nanoseconds.write()),
                ("cpu_nanoseconds", one.cpu_nanoseconds.write()),
                ("run", one.run.write()),
            ]));
        }
    }
    cells
}

fn loss_at(one: &Replicate, horizon: u64) -> Option<Finite> {
    one.loss.get(usize::try_from(horizon).unwrap_or(usize::MAX).wrapping_sub(1)).copied().flatten()
}

/// The loss of one run at a horizon less that of the run that it is paired with.
pub fn gained(one: &Replicate, no_op: Option<&Branch>, horizon: u64) -> Option<Finite> {
    let matched = no_op?.replicates.iter().find(|other| other.run == one.no_op)?;
    Finite::new(loss_at(one, horizon)?.get() - loss_at(matched, horizon)?.get())
}

/// The no-op of the set of `branch` among `all`.
pub fn no_op<'a>(branch: &Branch, all: &'a [Branch]) -> Option<&'a Branch> {
    let horizons = |branch: &Branch| branch.effects.iter().map(|effect| effect.horizon).collect::<Vec<_>>();
    all.iter().find(|other| {
        other.arm == "no-op"
            && other.snapshot == branch.snapshot
            && other.purpose == branch.purpose
            && other.under == branch.under
            && horizons(other) == horizons(branch)
    })
}

/// A cell as a line of a table of comma-separated values (RFC 4180); what is `null` is empty.
pub fn csv(cell: &crate::canonical::Value) -> String {
    let column = |name: &&str| match cell.get(name) {
        None | Some(crate::canonical::Value::Null) => String::new(),
        Some(crate::canonical::Value::String(text)) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Some(crate::canonical::Value::String(text)) => text.clone(),
        Some(other) => other.canonical(),
    };
    COLUMNS.iter().map(column).collect::<Vec<_>>().join(",")
}

/// What a branch came to, in one line for people.
pub fn sentence(branch: &Branch) -> String {
    let number =
        |value: Option<Finite>| value.map_or_else(|| "none".to_string(), |value| format!("{:+.4}", value.get()));
    let parts: Vec<String> = branch
        .effects
        .iter()
        .map(|effect| {
            let spread = effect.deviation.map_or_else(String::new, |sigma| format!(" (sigma {:.4})", sigma.get()));
            let unit = if effect.horizon == 1 { "step" } else { "steps" };
            format!("{} after {} {unit}{spread}", number(effect.effect), effect.horizon)
        })
        .collect();
    let known = branch.known.as_ref().map(|known| {
        let holds = if known.holds { "as it was known" } else { "which it cannot be" };
        format!("; {holds}: from {} to {}", known.low.get(), known.high.get())
    });
    let moved = branch.rebaseline.as_ref().map(|moved| {
        let differs: Vec<&str> = moved.differences.iter().map(|pin| pin.what.as_str()).collect();
        let differs =
            if differs.is_empty() { "the same stack".into() } else { format!("another {}", differs.join(", ")) };
        format!("; {} of {} steps as before on {differs}", moved.equal_steps, moved.steps)
    });
    format!("{}: {}{}{}", branch.arm, parts.join(", "), known.unwrap_or_default(), moved.unwrap_or_default())
}

/// Ids of the runs of a branch.
pub fn runs(branch: &Branch) -> Vec<Digest> {
    branch.replicates.iter().map(|one| one.run).collect()
}
