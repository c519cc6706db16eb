//! Is one candidate better than another by more than chance? (rows T53, T87, T93, L95, X86)
//!
//! The unit is what was independently drawn: the seed of a run, or a trajectory with all its branches. Scores are paired
//! by unit. What decides is the exact sign-flip test, because it assumes no shape of distribution and cannot claim more
//! than few pairs allow; everything else stands beside it. Equivalence needs a stated margin.

mod draft;
mod sentence;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use draft::Draft;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, object};
use crate::manifest::comparison::{
    Comparison, ComparisonContext, ExecutionNoise, Method, Pair, Replicate, Resampling, Summary,
};
use crate::manifest::decision::Interval;
use crate::name::Name;
use crate::number::Finite;
use crate::statistics::correct::holm;
use crate::statistics::signs::smallest_p;
use crate::statistics::{float, paired, sum};

/// The rules and their version.
const METHOD: (&str, &str) = ("paired-sign-flip", "1");
/// Scores larger than this are no scores, and their squares would leave the range of numbers.
const LARGEST: f64 = 1e100;

/// Reads a context and checks that it can be compared: two candidates at least, the reference among them, each replicate
/// with a score or the reason why there is none, nothing twice.
pub fn context(document: &Value) -> Result<ComparisonContext, Faults> {
    let context = ComparisonContext::decode(document)?;
    let mut faults = Faults::new();
    let names: BTreeSet<&Name> = context.replicates.iter().map(|replicate| &replicate.candidate).collect();
    if names.len() < 2 {
        let message = format!("expected replicates of at least two candidates, found {}", names.len());
        faults.add("/replicates", "comparison.alone", message);
    }
    if let Some(reference) = context.reference.as_ref().filter(|reference| !names.contains(reference)) {
        faults.add("/reference", "comparison.reference", format!("no replicate is of {reference}"));
    }
    let mut seen = BTreeSet::new();
    let mut evaluations = BTreeSet::new();
    for (index, replicate) in context.replicates.iter().enumerate() {
        let at = format!("/replicates/{index}");
        check(replicate, &at, &mut faults);
        let Replicate { candidate, seed, trajectory, evaluation, .. } = replicate;
        if trajectory.is_none() && !seen.insert((candidate, seed)) {
            let message = format!("{candidate} has a replicate with seed {seed} already");
            faults.add(format!("{at}/seed"), "comparison.duplicate", message);
        }
        if evaluation.is_some_and(|evaluation| !evaluations.insert(evaluation)) {
            faults.add(format!("{at}/evaluation"), "comparison.duplicate", "this evaluation stands here already");
        }
    }
    faults.or(context)
}

fn check(replicate: &Replicate, at: &str, faults: &mut Faults) {
    match (replicate.value, replicate.absence) {
        (None, None) => {
            faults.add(format!("{at}/absence"), "comparison.absence", "there is no score, and no reason why");
        }
        (Some(_), Some(absence)) => {
            let message = format!("there is a score, and {absence} as the reason why there is none");
            faults.add(format!("{at}/absence"), "comparison.absence", message);
        }
        _ => {}
    }
    let values = replicate.examples.iter().flat_map(BTreeMap::values).chain(&replicate.value);
    if values.into_iter().any(|value| value.get().abs() > LARGEST) {
        faults.add(at, "comparison.range", format!("scores beyond {LARGEST:e} cannot be compared"));
    }
    if replicate.examples.as_ref().is_some_and(BTreeMap::is_empty) {
        faults.add(format!("{at}/examples"), "comparison.empty", "there is no example; without them, write null");
    }
}

/// What was drawn independently: a trajectory, or the seed of a run of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit<'a> {
    Seed(u64),
    Trajectory(&'a Name),
}

impl Unit<'_> {
    fn name(self) -> String {
        match self {
            Self::Seed(seed) => format!("seed {seed}"),
            Self::Trajectory(name) => name.to_string(),
        }
    }
}

/// The replicates of one candidate by unit.
type Units<'a> = BTreeMap<Unit<'a>, Vec<&'a Replicate>>;

/// Compares. The order of replicates makes no difference.
pub fn compare(context: &ComparisonContext) -> Comparison {
    let mut candidates: BTreeMap<&Name, Units<'_>> = BTreeMap::new();
    for replicate in &context.replicates {
        let unit = replicate.trajectory.as_ref().map_or(Unit::Seed(replicate.seed), Unit::Trajectory);
        candidates.entry(&replicate.candidate).or_default().entry(unit).or_default().push(replicate);
    }
    let mut drafts: Vec<Draft<'_>> = sides(context.reference.as_ref(), &candidates)
        .into_iter()
        .map(|(candidate, reference)| Draft::new(context, candidate, reference, &candidates))
        .collect();
    correct(&mut drafts);
    let possible = holm(&drafts.iter().map(|draft| smallest_p(draft.values.len())).collect::<Vec<f64>>());
    let family = drafts.len();
    let pairs: Vec<Pair> =
        drafts.into_iter().zip(possible).map(|(draft, possible)| draft.conclude(context, possible, family)).collect();
    Comparison {
        experiment_id: context.experiment_id.clone(),
        input_fingerprint: input_fingerprint(context),
        method: Method { name: METHOD.0.into(), version: METHOD.1.into() },
        metric: context.metric.clone(),
        slice: context.slice.clone(),
        direction: context.direction,
        level: context.level,
        margin: context.margin,
        scope: context.scope,
        candidates: candidates.iter().map(|(name, units)| summary(name, units)).collect(),
        reason: pairs.iter().map(|pair| pair.reason.as_str()).collect::<Vec<&str>>().join("; "),
        pairs,
    }
}

/// Who is compared with whom: all others with the reference, or all pairs.
fn sides<'a>(reference: Option<&'a Name>, candidates: &BTreeMap<&'a Name, Units<'a>>) -> Vec<(&'a Name, &'a Name)> {
    let names: Vec<&Name> = candidates.keys().copied().collect();
    if let Some(reference) = reference {
        return names.into_iter().filter(|name| *name != reference).map(|name| (name, reference)).collect();
    }
    let earlier = |place: usize| names[..place].iter().copied();
    names.iter().enumerate().flat_map(|(place, name)| earlier(place).map(move |other| (*name, other))).collect()
}

fn summary(name: &Name, units: &Units<'_>) -> Summary {
    let all: Vec<&&Replicate> = units.values().flatten().collect();
    let scores: Vec<f64> = units.values().filter_map(|replicates| score(replicates)).collect();
    let subjects: BTreeSet<Digest> = all.iter().filter_map(|replicate| replicate.subject).collect();
    Summary {
        candidate: name.clone(),
        units: units.len() as u64,
        replicates: all.len() as u64,
        absent: all.iter().filter(|replicate| replicate.value.is_none()).count() as u64,
        mean: (!scores.is_empty()).then(|| finite(mean(&scores))),
        standard_deviation: paired::Summary::of(&scores).map(|summary| finite(summary.deviation)),
        subjects: subjects.into_iter().collect(),
    }
}

/// The score of a unit: the mean of those of its replicates. `None` when one has none.
fn score(replicates: &[&Replicate]) -> Option<f64> {
    let scores: Option<Vec<f64>> = replicates.iter().map(|replicate| Some(replicate.value?.get())).collect();
    scores.map(|scores| mean(&scores))
}

fn mean(values: &[f64]) -> f64 {
    if values.len() == 1 { values[0] } else { sum(values) / float(values.len()) }
}

/// Scores are bounded, so nothing that is made from them leaves the range of numbers.
fn finite(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| unreachable!("{value} comes from bounded scores"))
}

fn interval((low, high): (f64, f64)) -> Interval {
    Interval { low: finite(low), high: finite(high) }
}

/// Corrects the p-values of all comparisons: those for a difference, and those for equivalence.
fn correct(drafts: &mut [Draft<'_>]) {
    let of = |p: Option<Finite>| p.map_or(1.0, Finite::get);
    let differences = holm(&drafts.iter().map(|d| of(d.tests.as_ref().map(|tests| tests.p))).collect::<Vec<f64>>());
    let equivalences = holm(&drafts.iter().map(|d| of(d.equivalence.as_ref().map(|t| t.p))).collect::<Vec<f64>>());
    for ((draft, p), equivalence_p) in drafts.iter_mut().zip(differences).zip(equivalences) {
        if let Some(tests) = &mut draft.tests {
            tests.adjusted_p = finite(p);
        }
        if let Some(tests) = &mut draft.equivalence {
            tests.adjusted_p = finite(equivalence_p);
        }
    }
}

/// Fingerprint of what is compared, version 1: everything in the context. The order of replicates does not enter.
///
/// Every struct is taken apart without `..`, so a new field does not compile until someone decides where it belongs.
pub fn input_fingerprint(context: &ComparisonContext) -> Digest {
    let ComparisonContext {
        experiment_id,
        metric,
        slice,
        direction,
        reference,
        level,
        power,
        margin,
        scope,
        execution,
        resampling: Resampling { seed, count },
        replicates,
    } = context;
    let execution = execution.as_ref().map_or(Value::Null, |ExecutionNoise { sigma, kappa }| {
        object([("sigma", sigma.write()), ("kappa", kappa.write())])
    });
    object([
        ("projection", "xt.comparison-input/1".into()),
        ("experiment_id", experiment_id.write()),
        ("metric", metric.write()),
        ("slice", slice.write()),
        ("direction", direction.write()),
        ("reference", reference.write()),
        ("level", level.write()),
        ("power", power.write()),
        ("margin", margin.write()),
        ("scope", scope.write()),
        ("execution", execution),
        ("resampling", object([("seed", seed.write()), ("count", count.write())])),
        ("replicates", super::decide::sorted(replicates.iter().map(replicate_1))),
    ])
    .digest()
}

fn replicate_1(replicate: &Replicate) -> Value {
    let Replicate { candidate, seed, trajectory, value, absence, examples, subject, evaluation } = replicate;
    object([
        ("candidate", candidate.write()),
        ("seed", seed.write()),
        ("trajectory", trajectory.write()),
        ("value", value.write()),
        ("absence", absence.write()),
        ("examples", examples.write()),
        ("subject", subject.write()),
        ("evaluation", evaluation.write()),
    ])
}
