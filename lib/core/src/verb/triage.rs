//! Where is the earliest evidenced non-finite value of a training step? (rows I01, I21, I30–I54)
//!
//! Evidence is refused with every fault at once; what is accepted gives one report, which names a place and no cause.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::manifest::incident::{
    Action, Claim, Containment, ContractDraft, Incident, IncidentDraft, IncidentReport, Located, Real, Report, Seal,
    State, Telemetry, TelemetryDraft,
};
use crate::manifest::trace::StageName;
use crate::name::Name;

/// Reads an incident, checks all that can be checked, and reports.
pub fn triage(document: &Value) -> Result<(Incident, IncidentReport), Faults> {
    let incident = checked(document, Seal::Due)?;
    let report = report(&incident);
    Ok((incident, report))
}

/// Computes the content ids of a contract and of evidence without them. Ids that are there must be right; whoever wants
/// new ones for changed evidence takes the old ones out.
pub fn seal(document: &Value) -> Result<Incident, Faults> {
    checked(document, Seal::Optional)
}

fn checked(document: &Value, seal: Seal) -> Result<Incident, Faults> {
    let mut faults = Faults::new();
    let draft = IncidentDraft::read(document, "", seal, &mut faults);
    if let Some(draft) = &draft {
        check(draft, &mut faults);
    }
    match draft.and_then(IncidentDraft::whole) {
        Some(incident) if faults.is_empty() => Ok(incident),
        _ => Err(faults),
    }
}

/// The report on sound evidence (I50–I53).
fn report(incident: &Incident) -> IncidentReport {
    let evidence = &incident.evidence;
    let earliest = earliest(incident).map(|stage| stage.stage);
    let report = Report {
        contract_content_id: evidence.contract_content_id.clone(),
        evidence_id: evidence.evidence_id.clone(),
        evidence_content_id: evidence.evidence_content_id.clone(),
        decision: if earliest.is_some() { Containment::Hold } else { Containment::Continue },
        earliest_nonfinite_stage: earliest,
        action: match earliest {
            Some(StageName::Input) => Action::Input,
            Some(StageName::Forward) => Action::Forward,
            Some(StageName::Loss) => Action::Loss,
            Some(StageName::Backward) => Action::Backward,
            Some(StageName::Optimizer) => Action::Optimizer,
            None => Action::None,
        },
        root_cause_claim: Claim::None,
    };
    IncidentReport { report, recorded: None }
}

/// The first stage with a non-finite value.
pub fn earliest(incident: &Incident) -> Option<&Telemetry> {
    incident.evidence.stages.iter().find(|stage| stage.nonfinite_elements > 0)
}

/// Holds against each other all values that could be read.
fn check(draft: &IncidentDraft, faults: &mut Faults) {
    if let Some(contract) = &draft.contract {
        check_contract(contract, faults);
    }
    check_ids(draft, faults);
    let Some(stages) = &draft.stages else { return };
    if stages.len() != StageName::ALL.len() {
        let names: Vec<&str> = StageName::ALL.iter().map(|stage| stage.word()).collect();
        let message = format!("expected the five stages {}, found {}", names.join(", "), stages.len());
        faults.add("/evidence/stages", "incident.stages", message);
    }
    for (order, stage) in stages.iter().enumerate() {
        if let Some(stage) = stage {
            check_stage(draft.contract.as_ref(), order, stage, faults);
        }
    }
    check_sequence(stages, faults);
    check_unique(stages, "telemetry_id", |stage| stage.telemetry_id.as_ref(), faults);
    check_unique(stages, "tensor_set_id", |stage| stage.tensor_set_id.as_ref(), faults);
    let limit = draft.contract.as_ref().and_then(|contract| contract.maximum_total_elements);
    check_total(stages, limit, faults);
}

fn check_stage(contract: Option<&ContractDraft>, order: usize, stage: &TelemetryDraft, faults: &mut Faults) {
    let at = format!("/evidence/stages/{order}");
    match stage.state {
        Some(State::Observed) => check_observed(stage, &at, faults),
        Some(State::NotRun) => check_not_run(stage, &at, faults),
        None => {}
    }
    check_place(order, stage, &at, faults);
    if let Some(contract) = contract {
        check_scope(contract, stage, &at, faults);
        check_owner(contract, stage, &at, faults);
        check_limits(contract, stage, &at, faults);
    }
}

/// The contract alone (I17–I19).
fn check_contract(contract: &ContractDraft, faults: &mut Faults) {
    if let (Some(stage), Some(total)) = (contract.maximum_elements_per_stage, contract.maximum_total_elements)
        && !(stage..=5 * stage).contains(&total)
    {
        let message = format!("expected one to five times the {stage} elements of a stage, found {total}");
        faults.add("/contract/maximum_total_elements", "incident.bound", message);
    }
    let bounded = [
        ("/contract/maximum_absolute_finite", &contract.maximum_absolute_finite),
        ("/contract/loss_scale", &contract.loss_scale),
    ];
    for (at, value) in bounded {
        if let (Some(resolution), Some(value)) = (&contract.minimum_numeric_resolution, value)
            && !(resolution.get()..=1.0 / resolution.get()).contains(&value.get())
        {
            let message =
                format!("expected a number between the resolution {resolution} and its inverse, found {value}");
            faults.add(at, "incident.bound", message);
        }
    }
}

/// Contract, evidence and stages belong together (I37, I38).
fn check_ids(draft: &IncidentDraft, faults: &mut Faults) {
    let pairs = [
        ("contract_content_id", &draft.contract_content_id, &draft.contract_id, "the contract"),
        ("evidence_content_id", &draft.evidence_content_id, &draft.sealed_id, "these stages"),
    ];
    for (field, written, right, of) in pairs {
        if let (Some(written), Some(right)) = (written, right)
            && written.as_str() != right
        {
            let message = format!("{written} does not belong to {of}, whose content id is {right}");
            faults.add(format!("/evidence/{field}"), "incident.content-id", message);
        }
    }
}

/// The counts of a stage that was looked at agree (I29, I30).
fn check_observed(stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    if stage.checked_elements == Some(0) {
        let message = "an OBSERVED stage must have looked at an element, found 0";
        faults.add(format!("{at}/checked_elements"), "incident.nothing-checked", message);
    }
    if let (Some(checked), Some(finite), Some(other)) =
        (stage.checked_elements, stage.finite_elements, stage.nonfinite_elements)
        && finite + other != checked
    {
        let message =
            format!("{finite} finite and {other} non-finite elements are not the {checked} that were checked");
        faults.add(format!("{at}/checked_elements"), "incident.counts", message);
    }
}

/// A stage that did not run holds nothing (I31).
fn check_not_run(stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    let maximum = stage.maximum_absolute_finite.as_ref();
    let observed = [
        ("checked_elements", stage.checked_elements.filter(|count| *count != 0).map(|count| count.to_string())),
        ("finite_elements", stage.finite_elements.filter(|count| *count != 0).map(|count| count.to_string())),
        ("nonfinite_elements", stage.nonfinite_elements.filter(|count| *count != 0).map(|count| count.to_string())),
        ("maximum_absolute_finite", maximum.filter(|value| value.get() != 0.0).map(Real::to_string)),
    ];
    for (field, found) in observed {
        if let Some(found) = found {
            let message = format!("a NOT_RUN stage holds nothing: expected 0, found {found}");
            faults.add(format!("{at}/{field}"), "incident.not-run", message);
        }
    }
}

/// Every stage stands in its place (I39).
fn check_place(order: usize, stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    if let (Some(found), Some(expected)) = (stage.stage, StageName::ALL.get(order))
        && found != *expected
    {
        let message = format!("expected {expected} in place {order}, found {found}");
        faults.add(format!("{at}/stage"), "incident.order", message);
    }
    if let Some(found) = stage.stage_order.filter(|found| *found != order as u64) {
        let message = format!("expected {order}, found {found}");
        faults.add(format!("{at}/stage_order"), "incident.order", message);
    }
}

/// The stage tells of the step that the contract names (I42).
fn check_scope(contract: &ContractDraft, stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    macro_rules! equal {
        ($($field:ident)*) => {
            $(if let (Some(due), Some(found)) = (&contract.$field, &stage.$field) && due != found {
                let message = format!("expected {due} as in the contract, found {found}");
                faults.add(format!("{at}/{}", stringify!($field)), "incident.scope", message);
            })*
        };
    }
    equal! {
        run_id step_id model_version dataset_version batch_id objective_version optimizer_version precision
        loss_scale_version loss_scale
    }
}

/// The owner is the one that the contract names for this stage (I43).
fn check_owner(contract: &ContractDraft, stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    let (Some(name), Some(found)) = (stage.stage, &stage.owner) else { return };
    if let (field, Some(due)) = contract.owner(name)
        && due != found
    {
        let message = format!("expected {due}, the contract's {field}, for the {name} stage, found {found}");
        faults.add(format!("{at}/owner"), "incident.owner", message);
    }
}

/// The stage keeps to the contract's limits (I44, I46, I47).
fn check_limits(contract: &ContractDraft, stage: &TelemetryDraft, at: &str, faults: &mut Faults) {
    if let (Some(limit), Some(found)) = (contract.maximum_elements_per_stage, stage.checked_elements)
        && found > limit
    {
        let message = format!("expected at most {limit} elements in a stage, found {found}");
        faults.add(format!("{at}/checked_elements"), "incident.limit", message);
    }
    let Some(found) = &stage.maximum_absolute_finite else { return };
    let at = format!("{at}/maximum_absolute_finite");
    if let Some(limit) = contract.maximum_absolute_finite.as_ref().filter(|limit| found.get() > limit.get()) {
        let message = format!("expected at most {limit}, the contract's limit for finite values, found {found}");
        faults.add(at.clone(), "incident.limit", message);
    }
    let resolution = contract.minimum_numeric_resolution.as_ref();
    if let Some(least) = resolution.filter(|least| found.get() != 0.0 && found.get() < least.get()) {
        let message = format!("expected 0 or at least {least}, the contract's resolution, found {found}");
        faults.add(at, "incident.resolution", message);
    }
}

/// A stage may be left out only after a non-finite value, and then the rest is left out, too (I48, I49).
fn check_sequence(stages: &[Option<TelemetryDraft>], faults: &mut Faults) {
    let (mut non_finite, mut unknown, mut not_run) = (false, false, false);
    for (order, stage) in stages.iter().enumerate() {
        let at = format!("/evidence/stages/{order}/state");
        let state = stage.as_ref().and_then(|stage| stage.state);
        let count = stage.as_ref().and_then(|stage| stage.nonfinite_elements);
        match state {
            Some(State::NotRun) => {
                not_run = true;
                if !non_finite && !unknown {
                    let message = "a stage is NOT_RUN only after one with a non-finite value, and there is none before";
                    faults.add(at, "incident.not-run", message);
                }
            }
            Some(State::Observed) if not_run => {
                faults.add(at, "incident.sequence", "a stage cannot be OBSERVED after one that is NOT_RUN");
            }
            Some(State::Observed) => {
                non_finite |= count.is_some_and(|count| count > 0);
                unknown |= count.is_none();
            }
            // What cannot be read may have been the non-finite stage: one fault is enough for it.
            None => unknown = true,
        }
    }
}

/// No two stages share an id (I40, I41).
fn check_unique(
    stages: &[Option<TelemetryDraft>],
    field: &str,
    id: impl Fn(&TelemetryDraft) -> Option<&Name>,
    faults: &mut Faults,
) {
    let mut seen: BTreeMap<&Name, usize> = BTreeMap::new();
    for (order, stage) in stages.iter().enumerate() {
        let Some(id) = stage.as_ref().and_then(&id) else { continue };
        if let Some(first) = seen.insert(id, order) {
            let message = format!("{id} is already the {field} of stage {first}");
            faults.add(format!("/evidence/stages/{order}/{field}"), "incident.duplicate", message);
        }
    }
}

/// All stages together keep to the contract's limit (I45).
fn check_total(stages: &[Option<TelemetryDraft>], limit: Option<u64>, faults: &mut Faults) {
    let found: u64 = stages.iter().flatten().filter_map(|stage| stage.checked_elements).sum();
    if let Some(limit) = limit.filter(|limit| found > *limit) {
        let message = format!("expected at most {limit} elements in all stages together, found {found}");
        faults.add("/evidence/stages", "incident.limit", message);
    }
}

/// A place inside of a step in one sentence for people.
pub fn located(place: &Located) -> String {
    let bad = place.nan + place.positive_infinite + place.negative_infinite;
    let direction = match place.stage {
        StageName::Backward => "backward, the gradient of",
        StageName::Optimizer => "behind the update,",
        StageName::Input | StageName::Forward | StageName::Loss => "forward,",
    };
    let before = place.last_finite.as_ref().map_or_else(
        || "it is the first tensor of its stage".to_string(),
        |last| format!("before it {} was finite, up to {:e}", last.tensor, last.maximum.get()),
    );
    format!(
        "in module {}: {direction} {} holds {bad} of {} values that are not finite, in micro-batch {}; {before}",
        place.module, place.tensor, place.checked, place.micro_batch,
    )
}

/// The report in one sentence for people.
pub fn sentence(incident: &Incident) -> String {
    let contract = &incident.contract;
    let place = format!("step {} of run {}", contract.step_id, contract.run_id);
    let Some(stage) = earliest(incident) else {
        return format!("{place}: no stage held a non-finite value");
    };
    format!(
        "{place}: the first non-finite values are in the {} stage, {} of {} elements, at a loss scale of {}; \
         where they show is not what caused them",
        stage.stage, stage.nonfinite_elements, stage.checked_elements, stage.loss_scale,
    )
}
