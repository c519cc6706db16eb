//! From evaluations to the context of a comparison. They have to be measured alike, by runs that repeat exactly.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fault::Faults;
use crate::field::Manifest as _;
use crate::manifest::candidate::Regime;
use crate::manifest::comparison::{ComparisonContext, Replicate, Resampling, Scope};
use crate::manifest::decision::Direction;
use crate::manifest::evaluation::{Evaluation, Window};
use crate::name::Name;
use crate::number::Finite;

/// What is asked of some evaluations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The experiment, if any.
    pub experiment: Option<Name>,
    /// The metric.
    pub metric: String,
    /// The slice; `None` for everything.
    pub slice: Option<String>,
    /// Which way is better.
    pub direction: Direction,
    /// What the others are compared with; `None` for every pair.
    pub reference: Option<Name>,
    /// How often chance alone may be taken for a difference.
    pub level: Finite,
    /// How likely a repeat should be to show a difference.
    pub power: Finite,
    /// The difference that does not matter.
    pub margin: Option<Finite>,
    /// What the answer is about.
    pub scope: Scope,
    /// How intervals are drawn.
    pub resampling: Resampling,
}

/// The context that asks `question` of evaluations, each with its samples if they are at hand. A candidate is called as
/// people call it.
pub fn context(
    question: &Question,
    evaluations: &[(Evaluation, Option<Vec<Window>>)],
) -> Result<ComparisonContext, Faults> {
    let mut faults = Faults::new();
    let mut fingerprints = BTreeMap::new();
    let mut replicates = Vec::new();
    for (place, (evaluation, samples)) in evaluations.iter().enumerate() {
        let mut fault = |code, message: String| faults.add(format!("/{place}"), code, message);
        let subject = &evaluation.subject;
        let first = &evaluations[0].0;
        if evaluation.fingerprint != first.fingerprint {
            let message =
                format!("it was measured by {}, the first one by {}", evaluation.fingerprint, first.fingerprint);
            fault("comparison.measured-otherwise", message);
        }
        if *fingerprints.entry(&subject.name).or_insert(subject.candidate) != subject.candidate {
            fault("comparison.ambiguous", format!("{} names another candidate, too", subject.name));
        }
        if evaluation.regime != Regime::Exact {
            let message = format!("its regime is {}; state the noise of execution in a context", evaluation.regime);
            fault("comparison.regime", message);
        }
        let asked = |name: &str, slice: Option<&str>| name == question.metric && slice == question.slice.as_deref();
        match evaluation.metrics.iter().find(|metric| asked(&metric.name, metric.slice.as_deref())) {
            None => {
                let names: BTreeSet<&str> = evaluation.metrics.iter().map(|metric| metric.name.as_str()).collect();
                let names: Vec<&str> = names.into_iter().collect();
                let message = format!("it has no such metric and slice; its metrics are {}", names.join(", "));
                fault("comparison.no-metric", message);
            }
            Some(metric) => replicates.push(Replicate {
                candidate: subject.name.clone(),
                seed: subject.seed,
                trajectory: None,
                value: Some(metric.value),
                absence: None,
                examples: samples.as_ref().and_then(|samples| examples(question, samples)),
                subject: Some(subject.bundle),
                evaluation: Some(evaluation.id()),
            }),
        }
    }
    let context = ComparisonContext {
        experiment_id: question.experiment.clone(),
        metric: question.metric.clone(),
        slice: question.slice.clone(),
        direction: question.direction,
        reference: question.reference.clone(),
        level: question.level,
        power: question.power,
        margin: question.margin,
        scope: question.scope,
        execution: None,
        resampling: question.resampling.clone(),
        replicates,
    };
    faults.or(())?;
    super::compare_candidates::context(&context.encode())
}

/// What each window adds to a metric that is a ratio of sums over tokens, times the number of windows: so they average
/// to the metric. All candidates predict the same tokens, so the divisor is no matter of chance. `None` for other metrics
/// and for slices.
fn examples(question: &Question, samples: &[Window]) -> Option<BTreeMap<String, Finite>> {
    let part: fn(&Window) -> f64 = match (question.metric.as_str(), &question.slice) {
        ("loss", None) => |window| window.loss.get(),
        ("accuracy", None) => |window| real(window.correct),
        _ => return None,
    };
    let share = real(samples.len() as u64) / real(samples.iter().map(|window| window.tokens).sum());
    samples
        .iter()
        .map(|window| Some((format!("{}#{}", window.path, window.window), Finite::new(part(window) * share)?)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}
