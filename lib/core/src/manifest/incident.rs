//! `xt.incident/1`: a contract, and what five stages of one training step held, sealed by content ids (rows I02–I36);
//! `xt.incident-report/1`: where the earliest evidenced non-finite value is (rows I50–I54).
//!
//! The ids are those of the triage document: SHA-256 of the canonical text, so the spelling of a number counts, `1e9`
//! against `1000000000`. That is why [`Real`] keeps it.

mod draft;
mod report;

pub use draft::{IncidentDraft, Seal};
pub use report::{IncidentReport, LastFinite, Localized, Located, Recorded};

use alloc::vec::Vec;
use core::fmt;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, Manifest, Range, described, member, object, object_schema, texts, unknown, wrong_type};
use crate::manifest::trace::StageName;
use crate::name::Name;
use crate::tag;

/// Elements that one stage may hold (I03).
const STAGE_ELEMENTS: f64 = 1e10;
/// Elements that all stages together may hold (I04).
const TOTAL_ELEMENTS: f64 = 2e10;
/// The last step there is (I15).
const LAST_STEP: f64 = 1e12;

/// A finite number that keeps its spelling: `1024` and `1024.0` are equal, but are written as they were read.
#[derive(Clone)]
pub struct Real {
    value: f64,
    spelling: Value,
}

impl Real {
    /// The nearest binary64; exact for floats and for whole numbers up to 2^53.
    pub const fn get(&self) -> f64 {
        self.value
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The value is never NaN.
impl Eq for Real {}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelling.canonical())
    }
}

impl From<crate::number::Finite> for Real {
    fn from(number: crate::number::Finite) -> Self {
        Self { value: number.get(), spelling: Value::Float(number) }
    }
}

impl Field for Real {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let number = match value {
            Value::Float(number) => Some(number.get()),
            Value::Integer(integer) => integer.text().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        };
        if number.is_none() {
            wrong_type(value, "a finite number", at, faults);
        }
        number.map(|number| Self { value: number, spelling: value.clone() })
    }

    fn write(&self) -> Value {
        self.spelling.clone()
    }

    fn schema() -> Value {
        object([("type", "number".into())])
    }

    fn magnitude(&self) -> Option<f64> {
        Some(self.value)
    }
}

/// Who answers for something: an identifier that starts with `team:` (I07).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(Name);

impl Owner {
    /// `text`, if it names a team.
    pub fn new(text: &str) -> Option<Self> {
        Name::new(text).filter(|name| name.as_str().starts_with("team:")).map(Self)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Field for Owner {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let owner = value.as_str().and_then(Self::new);
        if owner.is_none() {
            wrong_type(value, "a team, an identifier that starts with `team:`", at, faults);
        }
        owner
    }

    fn write(&self) -> Value {
        self.0.write()
    }

    fn schema() -> Value {
        object([("type", "string".into()), ("pattern", "^team:[A-Za-z0-9._:/@-]{0,123}$".into())])
    }
}

crate::words! {
    /// How numbers were summed up.
    pub enum Convention {
        /// Counts and maxima of mixed-precision tensors, as binary64.
        Binary64Summary "binary64-summary-mixed-precision-v1",
    }
}

crate::words! {
    /// Whether a stage was looked at.
    pub enum State {
        /// It ran, and its values were counted.
        Observed "OBSERVED",
        /// It did not run.
        NotRun "NOT_RUN",
    }
}

/// Declares an object twice: whole, and as a draft that holds whatever could be read of it, so that values that are
/// there can be held against each other although others are missing or wrong.
macro_rules! drafted {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident, $draft:ident {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ty $([$range:expr])?,)*
        }
    ) => {
        crate::record! {
            $(#[doc = $doc])*
            pub struct $name { $($(#[doc = $field_doc])* $field: $type $([$range])?,)* }
        }

        $(#[doc = $doc])*
        ///
        /// This is what could be read of it.
        #[derive(Clone, Debug)]
        pub struct $draft { $($(#[doc = $field_doc])* pub $field: Option<$type>,)* }

        impl $draft {
            /// Reads what can be read and notes every fault; `None` when `value` is no object.
            pub fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
                let Value::Object(members) = value else {
                    wrong_type(value, "an object", at, faults);
                    return None;
                };
                unknown(members, &[$(stringify!($field)),*], at, faults);
                Some(Self { $($field: member(
                    members, stringify!($field), crate::record!(@range $($range)?), at, faults),)* })
            }

            /// Whether `value` has exactly the fields of this object: only then it has a content id.
            pub fn fits(value: &Value) -> bool {
                let fields = [$(stringify!($field)),*];
                matches!(value, Value::Object(members)
                    if members.len() == fields.len() && fields.iter().all(|field| members.contains_key(*field)))
            }

            /// The whole object, if all of it was read.
            pub fn whole(self) -> Option<$name> {
                Some($name { $($field: self.$field?,)* })
            }
        }
    };
}

drafted! {
    /// What a step is, what its stages may hold, and who answers for each (I12).
    pub struct Contract, ContractDraft {
        /// Version of the contract.
        contract_version: Name,
        /// The run.
        run_id: Name,
        /// The step.
        step_id: u64 [Range::from(0.0).to(LAST_STEP)],
        /// Version of the model.
        model_version: Name,
        /// Version of the data.
        dataset_version: Name,
        /// The batch.
        batch_id: Name,
        /// Version of the objective.
        objective_version: Name,
        /// Version of the optimiser.
        optimizer_version: Name,
        /// In which numbers the step computes.
        precision: Name,
        /// Version of the loss scale.
        loss_scale_version: Name,
        /// The loss scale: between the resolution and its inverse.
        loss_scale: Real,
        /// The smallest magnitude that a finite maximum other than zero may have.
        minimum_numeric_resolution: Real [Range::from(1e-15).to(1e-3)],
        /// The largest magnitude that a finite value may have: between the resolution and its inverse.
        maximum_absolute_finite: Real,
        /// Elements that one stage may hold.
        maximum_elements_per_stage: u64 [Range::from(1.0).to(STAGE_ELEMENTS)],
        /// Elements that all stages together may hold: from one to five times those of a stage.
        maximum_total_elements: u64 [Range::from(1.0).to(TOTAL_ELEMENTS)],
        /// How numbers were summed up.
        numeric_convention: Convention,
        /// Answers for the input: a team, an identifier that starts with `team:`.
        data_owner: Owner,
        /// Answers for the forward and backward stages.
        model_owner: Owner,
        /// Answers for the loss.
        objective_owner: Owner,
        /// Answers for the optimiser.
        optimizer_owner: Owner,
        /// Answers for the incident.
        incident_owner: Owner,
    }
}

impl ContractDraft {
    /// Name and value of the field that says who answers for `stage` (I21).
    pub const fn owner(&self, stage: StageName) -> (&'static str, Option<&Owner>) {
        match stage {
            StageName::Input => ("data_owner", self.data_owner.as_ref()),
            StageName::Forward | StageName::Backward => ("model_owner", self.model_owner.as_ref()),
            StageName::Loss => ("objective_owner", self.objective_owner.as_ref()),
            StageName::Optimizer => ("optimizer_owner", self.optimizer_owner.as_ref()),
        }
    }
}

drafted! {
    /// What one stage held, counted before any clipping or repair (I22).
    pub struct Telemetry, TelemetryDraft {
        /// Id of this telemetry.
        telemetry_id: Name,
        /// Id of the set of tensors that was counted.
        tensor_set_id: Name,
        /// The stage.
        stage: StageName,
        /// Its place, from 0.
        stage_order: u64 [Range::from(0.0).to(4.0)],
        /// Whether it was looked at.
        state: State,
        /// Elements looked at.
        checked_elements: u64 [Range::from(0.0).to(STAGE_ELEMENTS)],
        /// Finite ones among them.
        finite_elements: u64 [Range::from(0.0).to(STAGE_ELEMENTS)],
        /// Others among them: NaN and infinities.
        nonfinite_elements: u64 [Range::from(0.0).to(STAGE_ELEMENTS)],
        /// Largest magnitude among the finite ones.
        maximum_absolute_finite: Real [Range::from(0.0)],
        /// The run; this and the next nine fields equal those of the contract.
        run_id: Name,
        /// The step.
        step_id: u64 [Range::from(0.0).to(LAST_STEP)],
        /// Version of the model.
        model_version: Name,
        /// Version of the data.
        dataset_version: Name,
        /// The batch.
        batch_id: Name,
        /// Version of the objective.
        objective_version: Name,
        /// Version of the optimiser.
        optimizer_version: Name,
        /// In which numbers the step computes.
        precision: Name,
        /// Version of the loss scale.
        loss_scale_version: Name,
        /// The loss scale.
        loss_scale: Real [Range::above(0.0)],
        /// What counted.
        evidence_source_id: Name,
        /// Who answers for the stage; by the contract.
        owner: Owner,
    }
}

crate::record! {
    /// What the five stages held, bound to the contract (I32).
    pub struct Evidence {
        /// Id of the evidence.
        evidence_id: Name,
        /// Content id over the contract's content id, the evidence id and the stages.
        evidence_content_id: Name,
        /// Content id of the contract.
        contract_content_id: Name,
        /// The stages in order: input, forward, loss, backward, optimizer.
        stages: Vec<Telemetry>,
    }
}

/// Contract and evidence of one training step. The fields `schema` and `id` may be left out, so that the plain form of
/// the triage document is a document too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What the step is and may hold.
    pub contract: Contract,
    /// What it held.
    pub evidence: Evidence,
}

impl Field for Incident {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        IncidentDraft::read(value, at, Seal::Due, faults).and_then(IncidentDraft::whole)
    }

    fn write(&self) -> Value {
        object([
            ("schema", tag::INCIDENT.into()),
            ("contract", self.contract.write()),
            ("evidence", self.evidence.write()),
        ])
    }

    fn schema() -> Value {
        let properties = [
            ("contract", described(Contract::schema(), "What the step is and may hold.")),
            ("evidence", described(Evidence::schema(), "What it held.")),
        ];
        let mut schema = object_schema("Contract and evidence of one training step.", Some(tag::INCIDENT), &properties);
        if let Value::Object(members) = &mut schema {
            members.insert("required".into(), texts(&["contract", "evidence"]));
            members.insert("dependentRequired".into(), object([("id", texts(&["schema"]))]));
        }
        schema
    }
}

impl Manifest for Incident {
    const TAG: &'static str = tag::INCIDENT;
}

crate::record! {
    /// Where the earliest evidenced non-finite value is. It is a place, never a cause.
    pub struct Report {
        /// Content id of the contract.
        contract_content_id: Name,
        /// Id of the evidence.
        evidence_id: Name,
        /// Content id of the evidence.
        evidence_content_id: Name,
        /// What to do about the run.
        decision: Containment,
        /// The first stage that held a non-finite value.
        earliest_nonfinite_stage: Option<StageName>,
        /// What to look at next.
        action: Action,
        /// What is said about causes: nothing.
        root_cause_claim: Claim,
    }
}

crate::words! {
    /// What to do about the run.
    pub enum Containment {
        /// Hold it: a stage held a non-finite value.
        Hold "HOLD",
        /// No stage did; watch on.
        Continue "CONTINUE_BOUNDED_DIAGNOSTICS",
    }
}

crate::words! {
    /// What to look at next.
    pub enum Action {
        /// The input.
        Input "hold-and-inspect-input-data-contract",
        /// The forward stage.
        Forward "hold-and-replay-forward-activations",
        /// The loss.
        Loss "hold-and-inspect-objective-reduction",
        /// The gradients.
        Backward "hold-and-inspect-gradient-path-and-loss-scaling",
        /// The optimiser.
        Optimizer "hold-and-inspect-optimizer-state-and-update",
        /// Nothing non-finite was found.
        None "no-nonfinite-evidenced-check-other-signals",
    }
}

crate::words! {
    /// What is said about causes.
    pub enum Claim {
        /// Where a symptom shows says nothing about what caused it.
        None "NONE_SYMPTOM_LOCATION_IS_NOT_CAUSALITY",
    }
}
