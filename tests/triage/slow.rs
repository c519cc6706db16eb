//! The second implementation: one check after the other, stopping at the first fault, over the test's own JSON tree. It
//! says yes or no to the same documents as `xt-triage`, and the same report after a yes.

use xt_core::digest::Digest;

use super::json::J;

const STAGES: [&str; 5] = ["input", "forward", "loss", "backward", "optimizer"];
const NAMES: [&str; 9] = [
    "contract_version",
    "run_id",
    "model_version",
    "dataset_version",
    "batch_id",
    "objective_version",
    "optimizer_version",
    "precision",
    "loss_scale_version",
];
const OWNERS: [&str; 5] = ["data_owner", "model_owner", "objective_owner", "optimizer_owner", "incident_owner"];
const CONTRACT_REST: [&str; 7] = [
    "step_id",
    "loss_scale",
    "minimum_numeric_resolution",
    "maximum_absolute_finite",
    "maximum_elements_per_stage",
    "maximum_total_elements",
    "numeric_convention",
];
const STAGE_REST: [&str; 13] = [
    "telemetry_id",
    "tensor_set_id",
    "stage",
    "stage_order",
    "state",
    "checked_elements",
    "finite_elements",
    "nonfinite_elements",
    "maximum_absolute_finite",
    "step_id",
    "loss_scale",
    "evidence_source_id",
    "owner",
];

/// Every reason that [`triage`] can give.
pub const REASONS: &[&str] = &[
    "stages are a list",
    "five stages",
    "contract content id",
    "evidence content id",
    "total below stage",
    "total above five stages",
    "resolution",
    "finite limit",
    "loss scale",
    "convention",
    "stage name",
    "negative maximum",
    "stage loss scale",
    "observed nothing",
    "counts",
    "state",
    "not run but counted",
    "stage out of place",
    "order out of place",
    "telemetry id twice",
    "tensor set id twice",
    "scope",
    "step",
    "scale differs",
    "owner differs",
    "too many in a stage",
    "too large",
    "below resolution",
    "not run without cause",
    "observed after not run",
    "too many in all",
    "no object",
    "field missing",
    "field too many",
    "identifier is no string",
    "identifier",
    "owner",
    "no number",
    "number not finite",
    "no whole number",
    "whole number out of range",
];

/// The report's fields in the order of the document, or the first fault.
pub type Answer = Result<[Option<String>; 7], &'static str>;

pub fn triage(document: &J) -> Answer {
    fields(document, &["contract", "evidence"])?;
    let contract = document.get("contract").unwrap();
    check_contract(contract)?;
    let evidence = document.get("evidence").unwrap();
    fields(evidence, &["evidence_id", "evidence_content_id", "contract_content_id", "stages"])?;
    let evidence_id = identifier(evidence, "evidence_id")?;
    let evidence_content_id = identifier(evidence, "evidence_content_id")?;
    let contract_content_id = identifier(evidence, "contract_content_id")?;
    let Some(J::List(stages)) = evidence.get("stages") else { return Err("stages are a list") };
    if stages.len() != 5 {
        return Err("five stages");
    }
    for stage in stages {
        check_stage(stage)?;
    }
    if contract_content_id != contract_id(contract) {
        return Err("contract content id");
    }
    if evidence_content_id != evidence_id_of(contract, &evidence_id, stages) {
        return Err("evidence content id");
    }
    let earliest = walk(contract, stages)?;
    let action = match earliest {
        Some("input") => "hold-and-inspect-input-data-contract",
        Some("forward") => "hold-and-replay-forward-activations",
        Some("loss") => "hold-and-inspect-objective-reduction",
        Some("backward") => "hold-and-inspect-gradient-path-and-loss-scaling",
        Some("optimizer") => "hold-and-inspect-optimizer-state-and-update",
        _ => "no-nonfinite-evidenced-check-other-signals",
    };
    let decision = if earliest.is_some() { "HOLD" } else { "CONTINUE_BOUNDED_DIAGNOSTICS" };
    let claim = "NONE_SYMPTOM_LOCATION_IS_NOT_CAUSALITY";
    Ok([
        Some(contract_content_id),
        Some(evidence_id),
        Some(evidence_content_id),
        Some(decision.into()),
        earliest.map(Into::into),
        Some(action.into()),
        Some(claim.into()),
    ])
}

pub fn contract_id(contract: &J) -> String {
    format!("training-incident-contract@{}", Digest::of(contract.canonical().as_bytes()))
}

pub fn evidence_id_of(contract: &J, evidence_id: &str, stages: &[J]) -> String {
    let payload = J::Map(vec![
        ("stages".into(), J::List(stages.to_vec())),
        ("evidence_id".into(), J::str(evidence_id)),
        ("contract_content_id".into(), J::Str(contract_id(contract))),
    ]);
    format!("training-incident-evidence@{}", Digest::of(payload.canonical().as_bytes()))
}

fn check_contract(contract: &J) -> Result<(), &'static str> {
    fields(contract, &[&NAMES[..], &OWNERS, &CONTRACT_REST].concat())?;
    for name in NAMES {
        identifier(contract, name)?;
    }
    for name in OWNERS {
        owner(contract, name)?;
    }
    integer(contract, "step_id", 0, 1_000_000_000_000)?;
    let stage = integer(contract, "maximum_elements_per_stage", 1, 10_000_000_000)?;
    let total = integer(contract, "maximum_total_elements", 1, 20_000_000_000)?;
    if total < stage {
        return Err("total below stage");
    }
    if total > stage * 5 {
        return Err("total above five stages");
    }
    let resolution = real(contract, "minimum_numeric_resolution")?;
    if !(1e-15..=1e-3).contains(&resolution) {
        return Err("resolution");
    }
    let limit = real(contract, "maximum_absolute_finite")?;
    if limit < resolution || limit > 1.0 / resolution {
        return Err("finite limit");
    }
    let scale = real(contract, "loss_scale")?;
    if scale < resolution || scale > 1.0 / resolution {
        return Err("loss scale");
    }
    match contract.get("numeric_convention") {
        Some(J::Str(text)) if text == "binary64-summary-mixed-precision-v1" => Ok(()),
        _ => Err("convention"),
    }
}

fn check_stage(stage: &J) -> Result<(), &'static str> {
    fields(stage, &[&NAMES[1..], &STAGE_REST].concat())?;
    for name in NAMES[1..].iter().chain(&["telemetry_id", "tensor_set_id", "evidence_source_id"]) {
        identifier(stage, name)?;
    }
    owner(stage, "owner")?;
    if !STAGES.iter().any(|name| stage.get("stage") == Some(&J::str(name))) {
        return Err("stage name");
    }
    integer(stage, "stage_order", 0, 4)?;
    integer(stage, "step_id", 0, 1_000_000_000_000)?;
    let checked = integer(stage, "checked_elements", 0, 10_000_000_000)?;
    let finite = integer(stage, "finite_elements", 0, 10_000_000_000)?;
    let other = integer(stage, "nonfinite_elements", 0, 10_000_000_000)?;
    let maximum = real(stage, "maximum_absolute_finite")?;
    if maximum < 0.0 {
        return Err("negative maximum");
    }
    if real(stage, "loss_scale")? <= 0.0 {
        return Err("stage loss scale");
    }
    let ran = stage.get("state").cloned();
    if ran == Some(J::str("OBSERVED")) {
        if checked == 0 {
            return Err("observed nothing");
        }
        return if finite + other == checked { Ok(()) } else { Err("counts") };
    }
    if ran != Some(J::str("NOT_RUN")) {
        return Err("state");
    }
    if checked == 0 && finite == 0 && other == 0 && maximum == 0.0 { Ok(()) } else { Err("not run but counted") }
}

fn walk(contract: &J, stages: &[J]) -> Result<Option<&'static str>, &'static str> {
    let mut earliest = None;
    for (order, stage) in stages.iter().enumerate() {
        if stage.get("stage") != Some(&J::str(STAGES[order])) {
            return Err("stage out of place");
        }
        if integer(stage, "stage_order", 0, 4)? != order as i128 {
            return Err("order out of place");
        }
        for before in &stages[..order] {
            if before.get("telemetry_id") == stage.get("telemetry_id") {
                return Err("telemetry id twice");
            }
            if before.get("tensor_set_id") == stage.get("tensor_set_id") {
                return Err("tensor set id twice");
            }
        }
        for name in &NAMES[1..] {
            if contract.get(name) != stage.get(name) {
                return Err("scope");
            }
        }
        if contract.get("step_id") != stage.get("step_id") {
            return Err("step");
        }
        if real(contract, "loss_scale")?.total_cmp(&real(stage, "loss_scale")?).is_ne() {
            return Err("scale differs");
        }
        let answers = ["data_owner", "model_owner", "objective_owner", "model_owner", "optimizer_owner"][order];
        if contract.get(answers) != stage.get("owner") {
            return Err("owner differs");
        }
        if integer(stage, "checked_elements", 0, i128::MAX)?
            > integer(contract, "maximum_elements_per_stage", 0, i128::MAX)?
        {
            return Err("too many in a stage");
        }
        let maximum = real(stage, "maximum_absolute_finite")?;
        if maximum > real(contract, "maximum_absolute_finite")? {
            return Err("too large");
        }
        if maximum != 0.0 && maximum < real(contract, "minimum_numeric_resolution")? {
            return Err("below resolution");
        }
        let not_run = stage.get("state") == Some(&J::str("NOT_RUN"));
        if not_run && earliest.is_none() {
            return Err("not run without cause");
        }
        if !not_run && stages[..order].iter().any(|before| before.get("state") == Some(&J::str("NOT_RUN"))) {
            return Err("observed after not run");
        }
        if earliest.is_none() && integer(stage, "nonfinite_elements", 0, i128::MAX)? > 0 {
            earliest = Some(STAGES[order]);
        }
    }
    let mut total = 0;
    for stage in stages {
        total += integer(stage, "checked_elements", 0, i128::MAX)?;
    }
    if total > integer(contract, "maximum_total_elements", 0, i128::MAX)? {
        return Err("too many in all");
    }
    Ok(earliest)
}

fn fields(object: &J, due: &[&str]) -> Result<(), &'static str> {
    let J::Map(members) = object else { return Err("no object") };
    if due.iter().any(|name| object.get(name).is_none()) {
        return Err("field missing");
    }
    if members.len() == due.len() { Ok(()) } else { Err("field too many") }
}

fn identifier(object: &J, name: &str) -> Result<String, &'static str> {
    let Some(J::Str(text)) = object.get(name) else { return Err("identifier is no string") };
    let letters = |c: char| c.is_ascii_alphanumeric();
    let starts = text.chars().next().is_some_and(letters);
    if starts && text.chars().count() < 129 && text.chars().all(|c| letters(c) || "._:/@-".contains(c)) {
        return Ok(text.clone());
    }
    Err("identifier")
}

fn owner(object: &J, name: &str) -> Result<(), &'static str> {
    if identifier(object, name)?.starts_with("team:") { Ok(()) } else { Err("owner") }
}

fn real(object: &J, name: &str) -> Result<f64, &'static str> {
    let value: f64 = match object.get(name) {
        Some(J::Int(digits)) => digits.parse().unwrap(),
        Some(J::Float(value)) => *value,
        _ => return Err("no number"),
    };
    if value.is_finite() { Ok(value) } else { Err("number not finite") }
}

fn integer(object: &J, name: &str, least: i128, most: i128) -> Result<i128, &'static str> {
    let Some(J::Int(digits)) = object.get(name) else { return Err("no whole number") };
    let value = digits.parse().map_err(|_| "whole number out of range")?;
    if (least..=most).contains(&value) { Ok(value) } else { Err("whole number out of range") }
}
