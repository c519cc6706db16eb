//! Does the record meet the stated thresholds? (rows X65–X81)
//!
//! The rules, in order: a metric that the objective names is missing, null or reported twice, so nothing is decided; a
//! constraint is violated, so the candidate is rejected; there is no target, so nothing is decided; the target is met or
//! missed. Values are compared as they are: it is said whether 0.83 meets a threshold, not whether it beats 0.81.
//!
//! A record that is not exact is decided on only where its calibration bears it; otherwise the exact regime has to be asked
//! (`decide/escalate`).

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, object};
use crate::instant::Instant;
use crate::left_out::LeftOut;
use crate::manifest::decision::{
    Comparison, Constraint, Context, Decision, Direction, Engine, EngineVersion, EvaluationResult, Interval,
    Measurement, Metric, Objective, Obstacle, Operator, Outcome, Primary, Reason, Role, Sliced, Subject,
};
use crate::number::Finite;

mod escalate;

/// Version of the rules of both engines.
const VERSION: &str = "1";

/// Reads a context and checks that its results belong to it and are named once (X78, X79), and that no interval ends
/// before it starts.
pub fn context(document: &Value) -> Result<Context, Faults> {
    let context = Context::decode(document)?;
    let mut faults = Faults::new();
    let mut seen = BTreeSet::new();
    for (index, result) in context.results.iter().enumerate() {
        let at = format!("/results/{index}");
        if !seen.insert(result.id.as_str()) {
            let message = format!("the result {} is there already; a result is named once", result.id);
            faults.add(format!("{at}/id"), "decision.duplicate", message);
        }
        if result.node_id != context.node_id {
            let message = format!("expected a result of {}, found one of {}", context.node_id, result.node_id);
            faults.add(format!("{at}/node_id"), "decision.foreign", message);
        }
        check_intervals(result, &at, &mut faults);
    }
    faults.or(context)
}

fn check_intervals(result: &EvaluationResult, at: &str, faults: &mut Faults) {
    for (index, metric) in result.metrics.iter().enumerate() {
        if let Some(Interval { low, high }) = metric.confidence_interval.filter(|ends| ends.low > ends.high) {
            let at = format!("{at}/metrics/{index}/confidence_interval");
            faults.add(at, "decision.interval", format!("the lower end {low} is above the upper end {high}"));
        }
    }
}

/// Decides. Neither the order of results nor that of their metrics makes a difference. The time is asked for only where a
/// result stands on a calibration, which may have expired.
pub fn decide(context: &Context, engine: Engine, now: Instant) -> Decision {
    let rules = rules(&context.objective);
    let mut reasons = obstacles(context, &rules);
    let made: Vec<Made> = if reasons.is_empty() { compare(context, &rules) } else { Vec::new() };
    let violated = made.iter().any(|made| made.is(Role::Constraint) && !made.comparison.of.satisfied);
    let target = made.iter().find(|made| made.is(Role::Objective));
    let outcome = match (reasons.is_empty(), violated, target, engine) {
        (false, ..) => None,
        (true, true, ..) => Some(Outcome::Reject),
        (true, false, None, _) => {
            reasons.push(no_target(&context.objective));
            None
        }
        (true, false, Some(made), _) if made.comparison.of.satisfied => Some(Outcome::StopSucceeded),
        (true, false, Some(_), Engine::Threshold) => Some(Outcome::StopFailed),
        (true, false, Some(_), Engine::AdaptiveThreshold) => Some(Outcome::Branch),
    };
    let escalation = outcome.and_then(|_| escalate::escalation(context, &made, now));
    let outcome = if escalation.is_some() { Some(Outcome::Escalate) } else { outcome };
    Decision {
        experiment_id: context.experiment_id.clone(),
        node_id: context.node_id.clone(),
        evaluation_cycle: context.evaluation_cycle,
        engine: EngineVersion { name: engine, version: VERSION.into() },
        input_fingerprint: input_fingerprint(context),
        outcome,
        reason: escalation.as_ref().map_or_else(|| sentence(outcome, &reasons, &made), escalate::sentence),
        undecided_reasons: reasons.len() as u64,
        reasons,
        measurements: made.iter().map(Made::measurement).collect(),
        evidence: made.into_iter().map(|made| made.comparison).collect(),
        escalation: LeftOut(escalation),
    }
}

/// A metric, over a slice or over everything: what a rule is about.
type Subjected<'a> = (&'a str, Option<&'a str>);

/// One thing to hold against the record. Without a threshold the metric must be there, but is compared with nothing.
struct Rule<'a> {
    about: Subjected<'a>,
    role: Role,
    operator: Operator,
    threshold: Option<Finite>,
}

/// The target first, then the constraints as declared.
fn rules(objective: &Objective) -> Vec<Rule<'_>> {
    let primary = Rule {
        about: (objective.primary.name.as_str(), None),
        role: Role::Objective,
        operator: match objective.primary.direction {
            Direction::Minimize => Operator::AtMost,
            Direction::Maximize => Operator::AtLeast,
        },
        threshold: objective.target,
    };
    let constraints = objective.constraints.iter().map(|constraint| Rule {
        about: (constraint.of.name.as_str(), constraint.slice.as_deref()),
        role: Role::Constraint,
        operator: constraint.of.operator,
        threshold: Some(constraint.of.value),
    });
    core::iter::once(primary).chain(constraints).collect()
}

/// Every report of a metric, with the result it stands in, in an order that does not depend on that of the results.
fn reports<'a>(context: &'a Context, about: Subjected<'a>) -> Vec<(&'a EvaluationResult, &'a Metric)> {
    let all = context.results.iter().flat_map(|result| result.metrics.iter().map(move |metric| (result, metric)));
    let mut found: Vec<_> =
        all.filter(|(_, metric)| (metric.name.as_str(), metric.slice.as_deref()) == about).collect();
    found.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
    found
}

/// What stands in the way of comparing: one reason for each metric that cannot be used, however many rules name it.
fn obstacles(context: &Context, rules: &[Rule<'_>]) -> Vec<Reason> {
    let mut seen = BTreeSet::new();
    rules
        .iter()
        .filter(|rule| seen.insert(rule.about))
        .filter_map(|rule| {
            let found = reports(context, rule.about);
            let name = shown(rule.about);
            let (code, message) = match found.as_slice() {
                [(_, metric)] if metric.value.is_some() => return None,
                [(result, _)] => (Obstacle::MetricNull, format!("{name} has no value in {}", result.id)),
                [] => (Obstacle::MetricMissing, format!("no result reports {name}{}", near(context, rule.about))),
                several => {
                    let ids: Vec<String> = several.iter().map(|(result, _)| result.id.to_string()).collect();
                    (Obstacle::MetricAmbiguous, format!("{name} is reported {} times: {}", ids.len(), ids.join(", ")))
                }
            };
            let (metric, slice) = rule.about;
            Some(Reason { code, metric: metric.into(), slice: slice.map(Into::into), message })
        })
        .collect()
}

/// What is there instead of a missing metric: the same name in another slice, or in another case.
fn near(context: &Context, (name, slice): Subjected<'_>) -> String {
    let metrics = context.results.iter().flat_map(|result| &result.metrics);
    let others: BTreeSet<String> = metrics
        .filter(|metric| metric.name.eq_ignore_ascii_case(name))
        .filter(|metric| metric.name != name || metric.slice.as_deref() != slice)
        .map(|metric| shown((&metric.name, metric.slice.as_deref())))
        .collect();
    if others.is_empty() {
        return String::new();
    }
    let others: Vec<String> = others.into_iter().collect();
    format!("; {} does not stand in for it", others.join(", "))
}

fn shown((name, slice): Subjected<'_>) -> String {
    slice.map_or_else(|| format!("{name:?}"), |slice| format!("{name:?} over the slice {slice:?}"))
}

fn no_target(objective: &Objective) -> Reason {
    let name = &objective.primary.name;
    let message = format!("no target says which value of {name:?} is good enough, and nothing is guessed");
    Reason { code: Obstacle::NoTarget, metric: name.clone(), slice: None, message }
}

/// A comparison and what it was made on.
struct Made<'a> {
    comparison: Sliced<Comparison>,
    result: &'a EvaluationResult,
    metric: &'a Metric,
}

impl Made<'_> {
    fn is(&self, role: Role) -> bool {
        self.comparison.of.role == role
    }

    fn measurement(&self) -> Measurement {
        let metric = self.metric;
        Measurement {
            metric: metric.name.clone(),
            slice: metric.slice.clone(),
            subject: self.result.subject.clone(),
            evaluator_name: metric.evaluator_name.clone(),
            evaluator_version: metric.evaluator_version.clone(),
            seed: metric.seed,
            sample_count: metric.sample_count,
            confidence_interval: metric.confidence_interval,
            standard_error: metric.standard_error,
            execution: self.result.execution.clone(),
        }
    }

    fn sentence(&self) -> String {
        let Comparison { value, operator, threshold, satisfied, .. } = &self.comparison.of;
        let about = shown((&self.metric.name, self.metric.slice.as_deref()));
        format!("{about} is {value}, {} {operator} {threshold}", if *satisfied { "which is" } else { "not" })
    }
}

/// Compares what each rule asks for. Every metric was found to be there once, with a value.
fn compare<'a>(context: &'a Context, rules: &[Rule<'a>]) -> Vec<Made<'a>> {
    rules
        .iter()
        .filter_map(|rule| {
            let (result, metric) = *reports(context, rule.about).first()?;
            let (value, threshold) = (metric.value?, rule.threshold?);
            let comparison = Comparison {
                metric: metric.name.clone(),
                role: rule.role,
                value,
                operator: rule.operator,
                threshold,
                satisfied: rule.operator.holds(value, threshold),
                evaluation_result_id: result.id.clone(),
            };
            Some(Made { comparison: Sliced { slice: metric.slice.clone(), of: comparison }, result, metric })
        })
        .collect()
}

/// The decision in a sentence.
fn sentence(outcome: Option<Outcome>, reasons: &[Reason], made: &[Made<'_>]) -> String {
    let list = |wanted: &dyn Fn(&Made<'_>) -> bool| {
        let sentences: Vec<String> = made.iter().filter(|made| wanted(made)).map(Made::sentence).collect();
        sentences.join("; ")
    };
    let target = list(&|made| made.is(Role::Objective));
    match outcome {
        None => {
            let messages: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
            format!("not decided: {}", messages.join("; "))
        }
        Some(Outcome::Reject) => {
            let violated = list(&|made| made.is(Role::Constraint) && !made.comparison.of.satisfied);
            format!("a constraint is violated: {violated}")
        }
        Some(Outcome::StopSucceeded) if made.len() == 1 => format!("the target is met: {target}"),
        Some(Outcome::StopSucceeded) => format!("the target is met and every constraint holds: {target}"),
        Some(Outcome::StopFailed) => format!("the target is missed: {target}"),
        // Told by its causes.
        Some(Outcome::Escalate) => target,
        Some(Outcome::Branch) => format!("the target is missed, and another candidate may be explored: {target}"),
    }
}

/// Fingerprint of what is decided on, version 1 (X75): experiment, candidate, cycle, objective, and of each result its
/// id, run, fingerprint, subject and metrics. Neither the order of results and metrics nor that of constraints enters.
///
/// Every struct is taken apart without `..`, so a new field does not compile until someone decides where it belongs.
pub fn input_fingerprint(context: &Context) -> Digest {
    let Context { experiment_id, node_id, evaluation_cycle, objective, results } = context;
    object([
        ("projection", "xt.decision-input/1".into()),
        ("experiment_id", experiment_id.write()),
        ("node_id", node_id.write()),
        ("evaluation_cycle", evaluation_cycle.write()),
        ("objective", objective_1(objective)),
        ("results", sorted(results.iter().map(result_1))),
    ])
    .digest()
}

fn objective_1(objective: &Objective) -> Value {
    let Objective { primary: Primary { name, direction }, target, constraints, risk } = objective;
    let constraints = constraints.iter().map(|Sliced { slice, of: Constraint { name, operator, value } }| {
        object([
            ("name", name.write()),
            ("slice", slice.write()),
            ("operator", operator.write()),
            ("value", value.write()),
        ])
    });
    let objective = object([
        ("name", name.write()),
        ("direction", direction.write()),
        ("target", target.write()),
        ("constraints", sorted(constraints)),
    ]);
    with(objective, "risk", risk)
}

fn result_1(result: &EvaluationResult) -> Value {
    // The candidate is that of the context, or the result would have been refused.
    let EvaluationResult { id, evaluation_run_id, node_id: _, subject, evaluation_fingerprint, metrics, execution } =
        result;
    let Subject { id: subject_id, digest } = subject;
    let result = object([
        ("id", id.write()),
        ("evaluation_run_id", evaluation_run_id.write()),
        ("evaluation_fingerprint", evaluation_fingerprint.write()),
        ("subject", object([("id", subject_id.write()), ("digest", digest.write())])),
        ("metrics", sorted(metrics.iter().map(metric_1))),
    ]);
    with(result, "execution", execution)
}

/// An object with a member more, where there is something in it: what has nothing there keeps its fingerprint.
fn with<T: Field>(mut object: Value, name: &str, member: &LeftOut<T>) -> Value {
    if let (Value::Object(members), true) = (&mut object, member.present()) {
        members.insert(name.into(), member.write());
    }
    object
}

fn metric_1(metric: &Metric) -> Value {
    let Metric {
        name,
        value,
        slice,
        evaluator_name,
        evaluator_version,
        seed,
        sample_count,
        confidence_interval,
        standard_error,
    } = metric;
    object([
        ("name", name.write()),
        ("value", value.write()),
        ("slice", slice.write()),
        ("evaluator_name", evaluator_name.write()),
        ("evaluator_version", evaluator_version.write()),
        ("seed", seed.write()),
        ("sample_count", sample_count.write()),
        ("confidence_interval", confidence_interval.write()),
        ("standard_error", standard_error.write()),
    ])
}

/// A list in the order of its items' canonical texts.
pub(super) fn sorted(items: impl Iterator<Item = Value>) -> Value {
    let mut items: Vec<(String, Value)> = items.map(|item| (item.canonical(), item)).collect();
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    Value::List(items.into_iter().map(|(_, item)| item).collect())
}
