//! Reading an incident as far as it can be read, so that every fault shows at once.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{ContractDraft, Evidence, Incident, TelemetryDraft};
use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, child, head, member, object, unknown, wrong_type};
use crate::name::Name;
use crate::tag;

/// Whether the content ids must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// They must be there.
    Due,
    /// They may be there, or are still to be computed.
    Optional,
}

/// An incident as far as it could be read, and the content ids that belong to what was read.
#[derive(Clone, Debug, Default)]
pub struct IncidentDraft {
    /// The contract.
    pub contract: Option<ContractDraft>,
    /// Its content id; `None` when it has other fields than a contract.
    pub contract_id: Option<String>,
    /// Id of the evidence.
    pub evidence_id: Option<Name>,
    /// The evidence's content id, as written.
    pub evidence_content_id: Option<Name>,
    /// The contract's content id, as written.
    pub contract_content_id: Option<Name>,
    /// The stages; `None` inside in place of what is no object.
    pub stages: Option<Vec<Option<TelemetryDraft>>>,
    /// The evidence's content id; `None` when its stages have other fields than telemetry.
    pub sealed_id: Option<String>,
}

impl IncidentDraft {
    /// Reads what can be read and notes every fault; `None` when `value` is no incident at all.
    pub fn read(value: &Value, at: &str, seal: Seal, faults: &mut Faults) -> Option<Self> {
        let Value::Object(members) = value else {
            wrong_type(value, "an object with `contract` and `evidence`", at, faults);
            return None;
        };
        if (members.contains_key("schema") || members.contains_key("id")) && !head(value, tag::INCIDENT, at, faults) {
            return None;
        }
        unknown(members, &["contract", "evidence", "schema", "id"], at, faults);
        let mut draft = Self::default();
        if let Some(contract) = member::<Value>(members, "contract", None, at, faults) {
            draft.contract = ContractDraft::read(&contract, &child(at, "contract"), faults);
            draft.contract_id =
                ContractDraft::fits(&contract).then(|| content_id("training-incident-contract", &contract));
        }
        if let Some(evidence) = member::<Value>(members, "evidence", None, at, faults) {
            draft.read_evidence(&evidence, &child(at, "evidence"), seal, faults);
        }
        Some(draft)
    }

    fn read_evidence(&mut self, value: &Value, at: &str, seal: Seal, faults: &mut Faults) {
        let Value::Object(members) = value else {
            wrong_type(value, "an object", at, faults);
            return;
        };
        unknown(members, &["evidence_id", "evidence_content_id", "contract_content_id", "stages"], at, faults);
        self.evidence_id = member(members, "evidence_id", None, at, faults);
        let mut content = |key| match seal {
            Seal::Optional if !members.contains_key(key) => None,
            _ => member(members, key, None, at, faults),
        };
        self.evidence_content_id = content("evidence_content_id");
        self.contract_content_id = content("contract_content_id");
        let Some(stages) = member::<Value>(members, "stages", None, at, faults) else { return };
        let at = child(at, "stages");
        let Value::List(items) = &stages else { return wrong_type(&stages, "a list", &at, faults) };
        let read = |(order, item)| TelemetryDraft::read(item, &format!("{at}/{order}"), faults);
        self.stages = Some(items.iter().enumerate().map(read).collect());
        if items.iter().all(TelemetryDraft::fits) {
            self.sealed_id = self.seal_of(stages);
        }
    }

    /// Content id of the evidence (I33). It covers the contract's id as written in the evidence, so that a changed
    /// contract and changed stages show as different faults.
    fn seal_of(&self, stages: Value) -> Option<String> {
        let contract = self.contract_content_id.as_ref().map(Name::as_str).or(self.contract_id.as_deref())?;
        let payload = object([
            ("contract_content_id", contract.into()),
            ("evidence_id", self.evidence_id.as_ref()?.write()),
            ("stages", stages),
        ]);
        Some(content_id("training-incident-evidence", &payload))
    }

    /// The whole incident, if all of it was read. Content ids that were not written are filled in.
    pub fn whole(self) -> Option<Incident> {
        let seal = |written: Option<Name>, right: Option<String>| written.or_else(|| Name::new(&right?));
        Some(Incident {
            contract: self.contract?.whole()?,
            evidence: Evidence {
                evidence_id: self.evidence_id?,
                evidence_content_id: seal(self.evidence_content_id, self.sealed_id)?,
                contract_content_id: seal(self.contract_content_id, self.contract_id)?,
                stages: self.stages?.into_iter().map(|stage| stage?.whole()).collect::<Option<_>>()?,
            },
        })
    }
}

/// `prefix@sha256:…` over the canonical text (I11).
fn content_id(prefix: &str, payload: &Value) -> String {
    format!("{prefix}@{}", payload.digest())
}
