//! The report as a document: the seven fields of the triage document, and for a recorded run, beside them, what its trace
//! says of the step. The content ids cover neither the report nor this.

use alloc::string::String;
use alloc::vec::Vec;

use super::Report;
use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, child, described, head, object_schema, wrong_type};
use crate::manifest::run::Status;
use crate::manifest::trace::{Stage, StageName};
use crate::number::Finite;
use crate::tag;

/// Where the earliest evidenced non-finite value is. It is a place, never a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentReport {
    /// The seven fields.
    pub report: Report,
    /// What the trace of the run says of the step; the field is left out when the evidence came from elsewhere.
    pub recorded: Option<Recorded>,
}

crate::record! {
    /// What the trace of a run says of the step that was reported on.
    pub struct Recorded {
        /// Id of the run record.
        run: Digest,
        /// Id of its plan.
        plan: Digest,
        /// How the run ended.
        status: Status,
        /// The step.
        step: u64,
        /// Steps of the trace.
        steps: u64,
        /// The first step at which a stage held a value that is not finite; `null` when none did.
        first_nonfinite_step: Option<u64>,
        /// Whether the update of the step was left out, so that its parameters stayed as they were.
        skipped: bool,
        /// The counts, NaN and both infinities apart, and the names of the tensors.
        stages: Vec<Stage>,
        /// Stages whose largest finite magnitude lies outside of what a contract may allow; the evidence gives the nearest that it may.
        clamped: Vec<StageName>,
        /// What a second computation of the step found, module by module; `null` when nobody asked for one, or every stage was finite.
        localized: Option<Localized>,
    }
}

crate::record! {
    /// What a second computation of a step found. Its line of the trace was the recorded one, bit for bit.
    pub struct Localized {
        /// Id of the run record of that computation.
        replayed: Digest,
        /// The step whose stored state it began from; 0 for the start.
        from: u64,
        /// Where the first value was that is not finite.
        first: Located,
    }
}

crate::record! {
    /// The first tensor of a step, in the order of its computation, that held a value which is not finite. It is a place, never a cause: a value can grow for many steps before it is too large.
    pub struct Located {
        /// The stage: `forward` and `backward` are the two directions through the modules.
        stage: StageName,
        /// The module: a part of the model, `input`, `loss`, or what holds a parameter.
        module: String,
        /// The tensor: the value that the module gave; backward the gradient of one, or of a parameter; a parameter or a moment behind an update.
        tensor: String,
        /// The micro-batch of the step, from 0.
        micro_batch: u64,
        /// Its values.
        checked: u64,
        /// Those that are NaN.
        nan: u64,
        /// Those that are plus infinity.
        positive_infinite: u64,
        /// Those that are minus infinity.
        negative_infinite: u64,
        /// Largest magnitude of the finite ones.
        maximum: Finite,
        /// Tensors of the stage that were looked at before it in this micro-batch, all of them finite.
        before: u64,
        /// The last of those; `null` when it is the first.
        last_finite: Option<LastFinite>,
    }
}

crate::record! {
    /// A tensor all of whose values are finite.
    pub struct LastFinite {
        /// The tensor.
        tensor: String,
        /// Its largest magnitude.
        maximum: Finite,
    }
}

/// The name of the field that is left out.
const RECORDED: &str = "recorded";

impl Field for IncidentReport {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let Value::Object(members) = value else {
            wrong_type(value, "an object", at, faults);
            return None;
        };
        if !head(value, tag::INCIDENT_REPORT, at, faults) {
            return None;
        }
        let mut members = members.clone();
        members.remove("schema");
        members.remove("id");
        let recorded = members.remove(RECORDED).map(|value| Recorded::read(&value, &child(at, RECORDED), faults));
        let report = Report::read(&Value::Object(members), at, faults)?;
        match recorded {
            None => Some(Self { report, recorded: None }),
            Some(recorded) => Some(Self { report, recorded: Some(recorded?) }),
        }
    }

    fn write(&self) -> Value {
        let Value::Object(mut members) = self.report.write() else { return Value::Null };
        members.insert("schema".into(), tag::INCIDENT_REPORT.into());
        if let Some(recorded) = &self.recorded {
            members.insert(RECORDED.into(), recorded.write());
        }
        Value::Object(members)
    }

    fn schema() -> Value {
        let Value::Object(mut schema) = Report::schema() else { return Report::schema() };
        let Value::Object(whole) = object_schema("", Some(tag::INCIDENT_REPORT), &[]) else { return Report::schema() };
        let recorded = "What the trace of the run says of the step; left out when the evidence came from elsewhere.";
        for (key, part) in whole {
            match (key.as_str(), part, schema.get_mut(key.as_str())) {
                ("properties", Value::Object(more), Some(Value::Object(properties))) => {
                    properties.extend(more);
                    properties.insert(RECORDED.into(), described(Recorded::schema(), recorded));
                }
                ("required", Value::List(more), Some(Value::List(required))) => {
                    let mut all: Vec<Value> = required.iter().cloned().chain(more.iter().cloned()).collect();
                    all.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                    *required = all;
                }
                _ => {}
            }
        }
        Value::Object(schema)
    }
}

impl Manifest for IncidentReport {
    const TAG: &'static str = tag::INCIDENT_REPORT;
}
