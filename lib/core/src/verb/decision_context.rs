//! From the evaluations of one cycle, or from a branch, to the context that is decided on, and back: is a decision one on this cycle?
//! (rows X65, X75–X79)

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest as _;
use crate::left_out::LeftOut;
use crate::manifest::branch::{Branch, Effect};
use crate::manifest::calibration::Calibration;
use crate::manifest::decision::{
    Context, Decision, Direction, EvaluationResult, Inexact, Metric, MetricSpread, Objective, Operator, Subject,
};
use crate::manifest::evaluation::Evaluation;
use crate::name::Name;
use crate::number::Finite;
use crate::statistics::{float, root};
use crate::verb::decide::input_fingerprint;

/// An evaluation that the record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The evaluation run.
    pub run: Name,
    /// What came of it.
    pub evaluation: Evaluation,
    /// How what was measured came about, if not exactly.
    pub execution: Option<Inexact>,
}

/// The candidate and the cycle that a context is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The experiment.
    pub experiment: Name,
    /// The candidate.
    pub node: Name,
    /// The cycle.
    pub cycle: u64,
}

/// The context of a cycle, with every metric of every result. Several seeds report each metric several times, which
/// cannot be decided on: see [`of_every_seed`].
pub fn context(about: &About, objective: &Objective, measured: &[Measured]) -> Context {
    let mut results: Vec<EvaluationResult> = measured.iter().map(|measured| result(&about.node, measured)).collect();
    results.sort_by(|one, other| one.id.cmp(&other.id));
    Context {
        experiment_id: about.experiment.clone(),
        node_id: about.node.clone(),
        evaluation_cycle: about.cycle,
        objective: objective.clone(),
        results,
    }
}

/// The context that asks whether every seed meets the objective: of each metric that the objective names, only the
/// result that is worst by the objective keeps its report. All results stay named.
pub fn of_every_seed(about: &About, objective: &Objective, measured: &[Measured]) -> Context {
    let mut context = context(about, objective, measured);
    for ((name, slice), lower) in senses(objective) {
        let about = |metric: &Metric| metric.name == name && metric.slice.as_deref() == slice;
        let reports = context.results.iter().enumerate().flat_map(|(place, result)| {
            result.metrics.iter().filter(|metric| about(metric)).map(move |metric| (place, metric.value))
        });
        // A report without a value is the worst there is; ties go to the first id.
        let worst = reports.min_by(|(one, a), (other, b)| match (a, b) {
            (Some(a), Some(b)) => {
                let order = a.get().total_cmp(&b.get());
                if lower { order.reverse() } else { order }.then(one.cmp(other))
            }
            _ => a.is_some().cmp(&b.is_some()).then(one.cmp(other)),
        });
        let Some((worst, _)) = worst else { continue };
        for (place, result) in context.results.iter_mut().enumerate() {
            if place != worst {
                result.metrics.retain(|metric| !about(metric));
            }
        }
    }
    context
}

/// The metrics of an objective of which less is better (`true`) or more; those of which neither can be said are left
/// out, since no result of theirs is the worst.
fn senses(objective: &Objective) -> BTreeMap<(&str, Option<&str>), bool> {
    let primary = (objective.primary.name.as_str(), None);
    let mut senses: BTreeMap<(&str, Option<&str>), BTreeSet<Option<bool>>> = BTreeMap::new();
    senses.entry(primary).or_default().insert(Some(objective.primary.direction == Direction::Minimize));
    for constraint in &objective.constraints {
        let sense = match constraint.of.operator {
            Operator::Less | Operator::AtMost => Some(true),
            Operator::Greater | Operator::AtLeast => Some(false),
            Operator::Equal | Operator::Different => None,
        };
        senses.entry((constraint.of.name.as_str(), constraint.slice.as_deref())).or_default().insert(sense);
    }
    let clear =
        |found: BTreeSet<Option<bool>>| if found.len() == 1 { found.into_iter().next().flatten() } else { None };
    senses.into_iter().filter_map(|(metric, found)| Some((metric, clear(found)?))).collect()
}

fn result(node: &Name, measured: &Measured) -> EvaluationResult {
    let evaluation = &measured.evaluation;
    let bundle = evaluation.subject.bundle;
    EvaluationResult {
        id: named(evaluation.id()),
        evaluation_run_id: measured.run.clone(),
        node_id: node.clone(),
        subject: Subject { id: named(bundle), digest: bundle },
        evaluation_fingerprint: evaluation.fingerprint,
        metrics: evaluation
            .metrics
            .iter()
            .map(|metric| Metric {
                name: metric.name.clone(),
                value: Some(metric.value),
                slice: metric.slice.clone(),
                evaluator_name: evaluation.evaluator.name.clone(),
                evaluator_version: evaluation.evaluator.version.clone(),
                seed: Some(evaluation.seed),
                sample_count: Some(metric.sample_count),
                confidence_interval: metric.interval,
                standard_error: metric.standard_error,
            })
            .collect(),
        execution: LeftOut(measured.execution.clone()),
    }
}

/// What evaluations of a model can be trusted for that was trained in a regime that is not exact. A calibration measures
/// effects against a no-op, and says nothing of any metric of a model.
pub fn inexact(calibration: &Calibration, exact: Vec<Digest>) -> Inexact {
    Inexact {
        regime: calibration.scope.regime,
        calibration: calibration.id(),
        expires: calibration.expires,
        kappa: calibration.kappa,
        spreads: Vec::new(),
        exact,
    }
}

/// The same for a branch, whose effects are what the calibration measured.
pub fn inexact_branch(branch: &Branch, calibration: &Calibration, exact: Vec<Digest>) -> Inexact {
    let spread = |effect: &Effect| {
        let sigma = calibration.sigma(effect.horizon)?;
        Some(MetricSpread { metric: EFFECT.into(), slice: Some(effect.horizon.to_string()), sigma })
    };
    let mut spreads: Vec<MetricSpread> = branch.effects.iter().filter_map(spread).collect();
    spreads.extend(spreads.last().cloned().map(|last| MetricSpread { slice: None, ..last }));
    Inexact { spreads, ..inexact(calibration, exact) }
}

/// The metric of a branch that is its loss less that of its no-op.
const EFFECT: &str = "effect";

/// The context of one branch: its effect, its mean effect and its loss at each horizon, whose steps name the slice, and at the
/// last one over everything. The state stands for the experiment.
pub fn of_branch(branch: &Branch, objective: &Objective, execution: Option<Inexact>) -> Context {
    let node = arm(&branch.arm);
    let (id, replicates) = (named(branch.id()), &branch.replicates);
    let metric = |name: &str, slice: Option<String>, value: Option<Finite>, deviation: Option<Finite>| Metric {
        name: name.into(),
        value,
        slice,
        evaluator_name: "xt-replay branches".into(),
        evaluator_version: "1".into(),
        seed: None,
        sample_count: Some(replicates.len() as u64),
        confidence_interval: None,
        standard_error: deviation.and_then(|deviation| Finite::new(deviation.get() / root(float(replicates.len())))),
    };
    let of = |effect: &Effect, slice: Option<String>| {
        [
            metric(EFFECT, slice.clone(), effect.effect, effect.deviation),
            metric("mean_effect", slice.clone(), effect.mean_effect, None),
            metric("loss", slice, effect.loss, None),
        ]
    };
    let mut metrics: Vec<Metric> =
        branch.effects.iter().flat_map(|effect| of(effect, Some(effect.horizon.to_string()))).collect();
    metrics.extend(branch.effects.last().into_iter().flat_map(|effect| of(effect, None)));
    let first = replicates.first();
    Context {
        experiment_id: named(branch.snapshot),
        node_id: node.clone(),
        evaluation_cycle: 1,
        objective: objective.clone(),
        results: Vec::from([EvaluationResult {
            evaluation_run_id: first.map_or_else(|| id.clone(), |one| named(one.run)),
            node_id: node.clone(),
            subject: Subject { id: node, digest: first.map_or(branch.snapshot, |one| one.replay) },
            evaluation_fingerprint: branch.future,
            metrics,
            execution: LeftOut(execution),
            id,
        }]),
    }
}

/// The name of a branch as an identifier: `optimizer.learning_rate:0.001` for `optimizer.learning_rate=0.001`.
fn arm(text: &str) -> Name {
    let letter = |letter: char| match letter {
        '=' => ':',
        ';' => '/',
        other if other.is_ascii_alphanumeric() || "._:/@-".contains(other) => other,
        _ => '-',
    };
    let spelled: String = text.chars().map(letter).take(128).collect();
    Name::new(&spelled).unwrap_or_else(|| named(Digest::of(text.as_bytes())))
}

/// A digest as an identifier.
fn named(digest: Digest) -> Name {
    Name::new(&digest.to_string()).unwrap_or_else(|| unreachable!("a digest is written in letters, digits and a colon"))
}

/// What is wrong with a decision on the cycle that `recorded` and `every_seed` describe: it was made on something else
/// (X77), or cites what is not there (X79).
pub fn check(decision: &Decision, contexts: &[Context]) -> Result<(), Faults> {
    let mut faults = Faults::new();
    let due: Vec<String> = contexts.iter().map(|context| input_fingerprint(context).to_string()).collect();
    if !due.contains(&decision.input_fingerprint.to_string()) {
        let found = decision.input_fingerprint;
        let message = format!("the record gives {}, the decision says it was made on {found}", due.join(" or "));
        faults.add("/input_fingerprint", "decision.forged", message);
    }
    let known: BTreeSet<&Name> =
        contexts.iter().flat_map(|context| &context.results).map(|result| &result.id).collect();
    for (place, evidence) in decision.evidence.iter().enumerate() {
        let id = &evidence.of.evaluation_result_id;
        if !known.contains(id) {
            let at = format!("/evidence/{place}/evaluation_result_id");
            faults.add(at, "decision.outside", format!("{id} is no result of this cycle"));
        }
    }
    faults.or(())
}
