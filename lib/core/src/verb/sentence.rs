//! What comparisons say, in one line for people.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::manifest::replay::{Audit, Divergence, Localization, Outcome, Replay, TraceDiff};
use crate::manifest::run::{Run, Status};

/// What a comparison of two recorded traces says.
pub fn difference(found: &TraceDiff) -> String {
    let TraceDiff { equal_steps, first_steps, second_steps, .. } = found;
    match &found.divergence {
        Some(Divergence { step, component, recorded, replayed, .. }) => {
            format!("they part at step {step}: {component}: first {recorded}; second {replayed}")
        }
        None if first_steps == second_steps => format!("all {equal_steps} steps are equal"),
        None => format!("{equal_steps} common steps are equal; the first has {first_steps}, the second {second_steps}"),
    }
}

/// What an audit has cost, and what it can be trusted for.
pub fn audit(audit: &Audit) -> String {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    let chance = 100.0 * audit.segments.len() as f64 / audit.of as f64;
    format!(
        "audited {} of {} parts, {} of {} steps; a single bad part is met with a chance of {chance:.0} %",
        audit.segments.len(),
        audit.of,
        audit.steps,
        audit.of_steps
    )
}

/// The outcome of a replay, whose own run record is `run`.
pub fn replay(replay: &Replay, run: &Run) -> String {
    let Replay { outcome, steps, equal_steps, divergence, outputs, .. } = replay;
    match (outcome, divergence) {
        (Outcome::Equal, _) if run.status == Status::Held => {
            format!("equal, {equal_steps} of {steps} steps, and held like the recorded run {}", run.cause)
        }
        (Outcome::Equal, _) if replay.audit.is_some() => format!("equal, {equal_steps} of {steps} steps audited"),
        (Outcome::Equal, _) if replay.from > 0 => {
            format!("equal, {equal_steps} steps from the state after step {} on", replay.from)
        }
        (Outcome::Equal, _) => format!("equal, {equal_steps} of {steps} steps"),
        (Outcome::Diverged, Some(Divergence { step, component, recorded, replayed, .. })) => {
            format!("diverged at step {step}: {component}: recorded {recorded}; replayed {replayed}")
        }
        (Outcome::Diverged, None) => {
            let names: Vec<&str> = outputs.iter().filter(|file| !file.equal()).map(|file| file.path.as_str()).collect();
            format!("diverged after {equal_steps} equal steps: outputs {}", names.join(", "))
        }
        (Outcome::Incomplete, _) => {
            let Run { status, cause, .. } = run;
            format!("incomplete, {equal_steps} of {steps} steps were equal: {status}: {cause}")
        }
    }
}

/// Where a divergence is, in words.
pub fn localization(found: &Localization) -> String {
    let Localization { step, stage, restores, steps_again, differing, .. } = found;
    let cost = format!("{restores} restores, {steps_again} steps computed again");
    let (Some(tensor), Some(at)) = (found.tensors.first(), found.compared_at) else {
        return format!(
            "step {step}, stage {stage}; no state at or after it is stored, so no tensor can be named ({cost})"
        );
    };
    let ulp = tensor.largest_ulp.map_or_else(|| "not finite".into(), |ulp| format!("at most {ulp} ULP"));
    let spread = if at == *step { String::new() } else { format!(", seen after step {at}") };
    format!(
        "step {step}, stage {stage}, {} {}: {} of {} elements differ, {ulp}; {differing} tensors{spread} ({cost})",
        tensor.part, tensor.name, tensor.differing, tensor.elements
    )
}
