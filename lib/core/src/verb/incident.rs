//! Contract and evidence of one step of a recorded run, from the counts that its trace holds.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, object};
use crate::manifest::incident::{Contract, Convention, Incident, Owner, Real, Recorded, State, Telemetry};
use crate::manifest::plan::Plan;
use crate::manifest::run::Run;
use crate::manifest::trace::{Stage, StageName, Step};
use crate::name::Name;
use crate::number::Finite;
use crate::verb::triage;

/// The least magnitude that evidence of a run distinguishes from zero: the least that a contract may name.
const RESOLUTION: f64 = 1e-15;
/// The largest magnitude that a contract with this resolution may allow. 32-bit numbers go further; what is larger is
/// given as this, and the report says so.
const LARGEST: f64 = 1.0 / RESOLUTION;
/// Elements that a contract may allow for a stage, and for all of them.
const ELEMENTS: [u64; 2] = [10_000_000_000, 20_000_000_000];

/// The step to report on: `wanted`, or the first one with a value that is not finite, or the last one.
pub fn step(steps: &[Step], wanted: Option<u64>) -> Result<&Step, Faults> {
    let none = |message: String| Faults::one("run#/trace", "triage.step", message);
    let Some(last) = steps.last() else {
        return Err(none("the run has taken no step, so no stage was counted".into()));
    };
    match wanted {
        None => Ok(steps.iter().find(|step| non_finite(step)).unwrap_or(last)),
        Some(wanted) => steps
            .iter()
            .find(|step| step.step == wanted)
            .ok_or_else(|| none(format!("--step {wanted}: the run has taken the steps 1 to {}", last.step))),
    }
}

fn non_finite(step: &Step) -> bool {
    step.stages.iter().any(|stage| stage.non_finite() > 0)
}

/// The sealed incident of `step`, and what the trace says of it beyond that.
pub fn of_step(run: &Run, plan: &Plan, steps: &[Step], step: &Step) -> Result<(Incident, Recorded), Faults> {
    let contract = contract(run, plan, step)?;
    let mut faults = Faults::new();
    if step.stages.iter().map(|stage| stage.stage).ne(StageName::ALL.iter().copied()) {
        faults.add("run#/trace", "triage.stages", format!("step {} did not count the five stages", step.step));
    }
    let source = format!("xt-train@{}", run.stack.as_ref().map_or_else(|| plan.id(), |stack| stack.worker));
    let telemetry: Result<Vec<Value>, Faults> =
        step.stages.iter().map(|stage| Ok(telemetry(&contract, step, stage, &source)?.write())).collect();
    let evidence =
        object([("evidence_id", format!("trace@{}", step.chain).as_str().into()), ("stages", Value::List(telemetry?))]);
    faults.or(())?;
    let incident = triage::seal(&object([("contract", contract.write()), ("evidence", evidence)]))?;
    let outside = |stage: &&Stage| clamped(stage.maximum) != stage.maximum;
    let recorded = Recorded {
        run: run.id(),
        plan: run.plan,
        status: run.status,
        step: step.step,
        steps: steps.len() as u64,
        first_nonfinite_step: steps.iter().find(|step| non_finite(step)).map(|step| step.step),
        skipped: step.skipped,
        stages: step.stages.clone(),
        clamped: step.stages.iter().filter(outside).map(|stage| stage.stage).collect(),
        localized: None,
    };
    Ok((incident, recorded))
}

/// The contract of a step: who is named by content is named by its digest. The owners are roles, not people.
fn contract(run: &Run, plan: &Plan, step: &Step) -> Result<Contract, Faults> {
    let Some(candidate) = plan.native() else {
        return Err(Faults::one(
            "run#/plan",
            "incident.command",
            "only steps of the trainer of this toolkit have stages",
        ));
    };
    let dataset = run.dataset.map_or_else(|| "none".to_string(), |digest| digest.to_string());
    let of = |what: &str, value: Value| name(&format!("{what}@{}", value.digest()));
    let owner = |role: &str| Owner::new(&format!("team:{role}")).ok_or_else(|| unnamed(role));
    Ok(Contract {
        contract_version: name("xt.run-contract/1")?,
        run_id: name(&run.id().to_string())?,
        step_id: step.step,
        model_version: of(candidate.model.word(), candidate.model.write())?,
        dataset_version: name(&dataset)?,
        batch_id: name(&step.samples.to_string())?,
        objective_version: of(candidate.objective.word(), candidate.objective.write())?,
        optimizer_version: of(candidate.optimizer.word(), candidate.optimizer.write())?,
        precision: name(candidate.precision.word())?,
        loss_scale_version: name("constant/1")?,
        loss_scale: step.loss_scale.into(),
        minimum_numeric_resolution: real(RESOLUTION),
        maximum_absolute_finite: real(LARGEST),
        maximum_elements_per_stage: ELEMENTS[0],
        maximum_total_elements: ELEMENTS[1],
        numeric_convention: Convention::Binary64Summary,
        data_owner: owner("data")?,
        model_owner: owner("model")?,
        objective_owner: owner("objective")?,
        optimizer_owner: owner("optimizer")?,
        incident_owner: owner("incident")?,
    })
}

fn telemetry(contract: &Contract, step: &Step, stage: &Stage, source: &str) -> Result<Telemetry, Faults> {
    let Contract { run_id, step_id, model_version, dataset_version, batch_id, .. } = contract.clone();
    let Contract { objective_version, optimizer_version, precision, loss_scale_version, loss_scale, .. } =
        contract.clone();
    let owner = match stage.stage {
        StageName::Input => &contract.data_owner,
        StageName::Forward | StageName::Backward => &contract.model_owner,
        StageName::Loss => &contract.objective_owner,
        StageName::Optimizer => &contract.optimizer_owner,
    };
    let bad = stage.non_finite();
    Ok(Telemetry {
        telemetry_id: name(&format!("telemetry/{}@{}", stage.stage, step.chain))?,
        tensor_set_id: name(&format!("tensors/{}@{}", stage.stage, digest_of(&model_version)))?,
        stage: stage.stage,
        stage_order: stage.stage as u64,
        state: if stage.checked == 0 { State::NotRun } else { State::Observed },
        checked_elements: stage.checked,
        finite_elements: stage.checked.saturating_sub(bad),
        nonfinite_elements: bad,
        maximum_absolute_finite: clamped(stage.maximum).into(),
        run_id,
        step_id,
        model_version,
        dataset_version,
        batch_id,
        objective_version,
        optimizer_version,
        precision,
        loss_scale_version,
        loss_scale,
        evidence_source_id: name(source)?,
        owner: owner.clone(),
    })
}

fn digest_of(name: &Name) -> Digest {
    Digest::of(name.as_str().as_bytes())
}

/// The nearest magnitude that a contract may hold: zero, or one from the resolution to its inverse.
fn clamped(maximum: Finite) -> Finite {
    let value = maximum.get();
    if value == 0.0 { maximum } else { Finite::new(value.clamp(RESOLUTION, LARGEST)).unwrap_or(maximum) }
}

fn real(value: f64) -> Real {
    Finite::new(value).unwrap_or_else(|| unreachable!("a literal")).into()
}

fn name(text: &str) -> Result<Name, Faults> {
    Name::new(text).ok_or_else(|| unnamed(text))
}

fn unnamed(text: &str) -> Faults {
    Faults::one("run#", "triage.name", format!("{text:?} cannot be an identifier of a contract"))
}
