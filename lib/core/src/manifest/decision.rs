//! `xt.decision-context/1`: an objective and the results of one evaluation cycle, all that a decision may be made from
//! (rows X65–X69); `xt.decision/1`: what an engine proposes, with every comparison it made (rows X69, X73).

use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Range, child, described, object, wrong_type};
use crate::instant::Instant;
use crate::left_out::LeftOut;
use crate::manifest::candidate::Regime;
use crate::name::Name;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// An objective and the results of one evaluation cycle.
    pub struct Context as tag::DECISION_CONTEXT {
        /// The experiment.
        experiment_id: Name,
        /// The candidate within it.
        node_id: Name,
        /// Which evaluation cycle of the candidate; results of another one never enter.
        evaluation_cycle: u64,
        /// What is asked for.
        objective: Objective,
        /// The results of the cycle. Their order does not matter.
        results: Vec<EvaluationResult>,
    }
}

crate::record! {
    /// What is asked for.
    pub struct Objective {
        /// The metric that is optimised.
        primary: Primary,
        /// Which value of it is good enough; `null` when none is stated, and then nothing can be decided but a rejection.
        target: Option<Finite>,
        /// What must hold besides.
        constraints: Vec<Sliced<Constraint>>,
        /// What a wrong decision would cost; left out when nothing is said of it.
        risk: LeftOut<Risk>,
    }
}

crate::words! {
    /// What a wrong decision would cost.
    pub enum Risk {
        /// No more than usual.
        Ordinary "ordinary",
        /// So much that nothing but the exact regime is decided on.
        High "high",
    }
}

crate::record! {
    /// The metric that is optimised, over everything evaluated.
    pub struct Primary {
        /// Its name, exactly.
        name: String,
        /// Which way is better.
        direction: Direction,
    }
}

crate::words! {
    /// Which way is better.
    pub enum Direction {
        /// Less is better; a target is met at or below it.
        Minimize "minimize",
        /// More is better; a target is met at or above it.
        Maximize "maximize",
    }
}

crate::record! {
    /// A metric that must stand in a relation to a value.
    pub struct Constraint {
        /// Name of the metric, exactly.
        name: String,
        /// The relation.
        operator: Operator,
        /// The value.
        value: Finite,
    }
}

crate::words! {
    /// A relation of two numbers, applied exactly (X67).
    pub enum Operator {
        /// Less than.
        Less "<",
        /// At most.
        AtMost "<=",
        /// Greater than.
        Greater ">",
        /// At least.
        AtLeast ">=",
        /// Equal, to the last bit but the sign of zero.
        Equal "==",
        /// Not equal.
        Different "!=",
    }
}

impl Operator {
    /// Whether `left` stands in this relation to `right`.
    pub fn holds(self, left: Finite, right: Finite) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
            Self::Equal => left == right,
            Self::Different => left != right,
        }
    }
}

/// Something about a metric, over one slice of the data or, where the field `slice` is left out, over everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sliced<T> {
    /// Name of the slice.
    pub slice: Option<String>,
    /// What is said.
    pub of: T,
}

impl<T: Field> Field for Sliced<T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let Value::Object(members) = value else {
            return T::read(value, at, faults).map(|of| Self { slice: None, of });
        };
        let mut members = members.clone();
        let slice = members.remove("slice").map(|slice| String::read(&slice, &child(at, "slice"), faults));
        let of = T::read(&Value::Object(members), at, faults)?;
        match slice {
            None => Some(Self { slice: None, of }),
            Some(slice) => Some(Self { slice: Some(slice?), of }),
        }
    }

    fn write(&self) -> Value {
        match (self.of.write(), &self.slice) {
            (Value::Object(mut members), Some(slice)) => {
                members.insert("slice".into(), slice.write());
                Value::Object(members)
            }
            (other, _) => other,
        }
    }

    fn schema() -> Value {
        let Value::Object(mut schema) = T::schema() else { return T::schema() };
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            let slice = described(String::schema(), "The slice of the data; left out for everything.");
            properties.insert("slice".into(), slice);
        }
        Value::Object(schema)
    }
}

crate::record! {
    /// What one evaluation run measured.
    pub struct EvaluationResult {
        /// Id of the result.
        id: Name,
        /// The run that measured.
        evaluation_run_id: Name,
        /// The candidate that was evaluated.
        node_id: Name,
        /// What was evaluated.
        subject: Subject,
        /// Fingerprint of how it was evaluated.
        evaluation_fingerprint: Digest,
        /// What came out.
        metrics: Vec<Metric>,
        /// In which regime what was evaluated came about; left out for the exact one.
        execution: LeftOut<Inexact>,
    }
}

crate::record! {
    /// How a result that is not exact came about, and how far it can be trusted (T52, T68, T69).
    pub struct Inexact {
        /// The regime.
        regime: Regime,
        /// Id of the calibration that it stands on.
        calibration: Digest,
        /// From then on the calibration counts no more.
        expires: Instant,
        /// How many standard deviations of execution a margin must exceed.
        kappa: Finite [Range::above(0.0)],
        /// What execution adds to each metric, as the calibration measured it. Of other metrics nothing is known.
        spreads: Vec<MetricSpread>,
        /// Ids of the plans that give the same in the exact regime.
        exact: Vec<Digest>,
    }
}

crate::record! {
    /// What execution adds to a metric.
    pub struct MetricSpread {
        /// Name of the metric.
        metric: String,
        /// The slice; `null` for everything.
        slice: Option<String>,
        /// Standard deviation.
        sigma: Finite [Range::from(0.0)],
    }
}

crate::record! {
    /// What was evaluated.
    pub struct Subject {
        /// Its id.
        id: Name,
        /// Its digest.
        digest: Digest,
    }
}

crate::record! {
    /// One number that came out of an evaluation.
    pub struct Metric {
        /// Its name.
        name: String,
        /// Its value; `null` when none could be had, which counts as missing.
        value: Option<Finite>,
        /// The slice of the data; `null` for everything.
        slice: Option<String>,
        /// What measured.
        evaluator_name: String,
        /// Its version.
        evaluator_version: String,
        /// The seed it was given, if any.
        seed: Option<u64>,
        /// Samples behind the value, if it was counted.
        sample_count: Option<u64>,
        /// Lower and upper end of a confidence interval, if there is one.
        confidence_interval: Option<Interval>,
        /// Standard error of the value, if there is one.
        standard_error: Option<Finite> [Range::from(0.0)],
    }
}

/// A lower and an upper end, written as a list of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Lower end.
    pub low: Finite,
    /// Upper end.
    pub high: Finite,
}

impl Field for Interval {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let ends = match value {
            Value::List(items) if items.len() == 2 => Vec::<Finite>::read(value, at, faults)?,
            _ => {
                wrong_type(value, "a list of two numbers", at, faults);
                return None;
            }
        };
        Some(Self { low: ends[0], high: ends[1] })
    }

    fn write(&self) -> Value {
        Value::List([self.low.write(), self.high.write()].into())
    }

    fn schema() -> Value {
        object([
            ("type", "array".into()),
            ("items", Finite::schema()),
            ("minItems", 2u64.into()),
            ("maxItems", 2u64.into()),
        ])
    }
}

crate::record! {
    /// What an engine proposes. It holds no time and no actor: the same context gives the same bytes.
    pub struct Decision as tag::DECISION {
        /// The experiment.
        experiment_id: Name,
        /// The candidate.
        node_id: Name,
        /// The evaluation cycle.
        evaluation_cycle: u64,
        /// The rules that were applied.
        engine: EngineVersion,
        /// Fingerprint of all that was decided on: objective and results.
        input_fingerprint: Digest,
        /// What is proposed; `null` when nothing can be decided.
        outcome: Option<Outcome>,
        /// Why, in a sentence.
        reason: String,
        /// How many reasons there are for deciding nothing.
        undecided_reasons: u64,
        /// Each of them.
        reasons: Vec<Reason>,
        /// Every comparison that was made: the target first, then the constraints as declared.
        evidence: Vec<Sliced<Comparison>>,
        /// What stands behind the value of each comparison, in the same order.
        measurements: Vec<Measurement>,
        /// Why the exact regime has to be asked, and how; left out unless the outcome is ESCALATE.
        escalation: LeftOut<Escalation>,
    }
}

crate::record! {
    /// Why the exact regime has to be asked, and how (T53-T55, T73).
    pub struct Escalation {
        /// Each reason.
        causes: Vec<Cause>,
        /// Ids of the plans to run instead: `xt-run ID...`. Empty when none can be made.
        plans: Vec<Digest>,
    }
}

crate::record! {
    /// One reason to ask the exact regime.
    pub struct Cause {
        /// The kind of reason.
        code: Doubt,
        /// The metric it is about; `null` for the whole decision.
        metric: Option<String>,
        /// The slice of it; `null` for everything.
        slice: Option<String>,
        /// In a sentence.
        message: String,
    }
}

crate::words! {
    /// Why a result that is not exact is not decided on.
    pub enum Doubt {
        /// The margin to the threshold is within `kappa` standard deviations of execution.
        Margin "margin",
        /// The calibration says nothing of this metric.
        Unmeasured "unmeasured",
        /// The objective declares that the risk is high.
        Risk "risk",
        /// The calibration has expired.
        Expired "expired",
    }
}

crate::record! {
    /// The rules that were applied.
    pub struct EngineVersion {
        /// Which.
        name: Engine,
        /// Their version; other rules get another one.
        version: String,
    }
}

crate::words! {
    /// Rules by which a context is decided. They differ only in what a missed target means.
    pub enum Engine {
        /// A missed target ends the experiment: STOP_FAILED.
        Threshold "threshold",
        /// A missed target ends the candidate only: BRANCH.
        AdaptiveThreshold "adaptive-threshold",
    }
}

crate::words! {
    /// What is proposed (X71).
    pub enum Outcome {
        /// The target is met and every constraint holds: the experiment succeeded with this candidate.
        StopSucceeded "STOP_SUCCEEDED",
        /// The target is missed: the experiment failed.
        StopFailed "STOP_FAILED",
        /// A constraint is violated: the candidate is rejected, the experiment goes on.
        Reject "REJECT",
        /// The target is missed: the candidate is done, and another may be explored.
        Branch "BRANCH",
        /// The record is not exact, and what it says is too close, too risky or too old to be decided on: the exact regime has to be asked.
        Escalate "ESCALATE",
    }
}

crate::record! {
    /// Why nothing can be decided.
    pub struct Reason {
        /// The kind of reason.
        code: Obstacle,
        /// The metric it is about.
        metric: String,
        /// The slice of it; `null` for everything.
        slice: Option<String>,
        /// In a sentence.
        message: String,
    }
}

crate::words! {
    /// What stands in the way of a decision.
    pub enum Obstacle {
        /// No result reports a metric that the objective names.
        MetricMissing "metric-missing",
        /// A metric is reported more than once.
        MetricAmbiguous "metric-ambiguous",
        /// A metric is reported without a value.
        MetricNull "metric-null",
        /// Nothing says which value is good enough.
        NoTarget "no-target",
    }
}

crate::record! {
    /// One comparison of a recorded value with a stated one.
    pub struct Comparison {
        /// Name of the metric.
        metric: String,
        /// Whether it is the target or a constraint.
        role: Role,
        /// The recorded value.
        value: Finite,
        /// The relation.
        operator: Operator,
        /// The stated value.
        threshold: Finite,
        /// Whether the recorded value stands in the relation to the stated one.
        satisfied: bool,
        /// The result that the recorded value comes from.
        evaluation_result_id: Name,
    }
}

crate::words! {
    /// Where a comparison comes from.
    pub enum Role {
        /// The target.
        Objective "objective",
        /// A constraint.
        Constraint "constraint",
    }
}

crate::record! {
    /// How a value was measured. Comparisons are of the value alone: none of this enters them (X68).
    pub struct Measurement {
        /// Name of the metric.
        metric: String,
        /// The slice, if any.
        slice: Option<String>,
        /// What was measured.
        subject: Subject,
        /// What measured.
        evaluator_name: String,
        /// Its version.
        evaluator_version: String,
        /// The seed it was given, if any.
        seed: Option<u64>,
        /// Samples behind the value, if it was counted.
        sample_count: Option<u64>,
        /// Confidence interval, if there is one.
        confidence_interval: Option<Interval>,
        /// Standard error, if there is one.
        standard_error: Option<Finite>,
        /// In which regime what was evaluated came about; left out for the exact one.
        execution: LeftOut<Inexact>,
    }
}
