//! What comparisons say, in one line for people.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::count::counted;
use crate::manifest::replay::{Audit, Divergence, Localization, Outcome, Replay, TraceDiff};
use crate::manifest::run::{Run, Status};

/// What a comparison of two recorded traces says.
pub fn difference(found: &TraceDiff) -> String {
    let TraceDiff { equal_steps, first_steps, second_steps, .. } = found;
    match &found.divergence {
        Some(Divergence { step, component, recorded, replayed, .. }) => {
            format!("they part at step {step}: {component}: first {recorded}; second {replayed}")
        }
        None if first_steps == second_steps => {
            if *equal_steps == 1 {
                "the one step is equal".into()
            } else {
                format!("all {equal_steps} steps are equal")
            }
        }
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
    let steps = counted(*steps, "step");
    match (outcome, divergence) {
        (Outcome::Equal, _) if run.status == Status::Held => {
            format!("equal, {equal_steps} of {steps}, and held like the recorded run {}", run.cause)
        }
        (Outcome::Equal, _) if replay.audit.is_some() => format!("equal, {equal_steps} of {steps} audited"),
        (Outcome::Equal, _) if replay.from > 0 => {
            format!("equal, {} from the state after step {} on", counted(*equal_steps, "step"), replay.from)
        }
        (Outcome::Equal, _) => format!("equal, {equal_steps} of {steps}"),
        (Outcome::Diverged, Some(Divergence { step, component, recorded, replayed, .. })) => {
            format!("diverged at step {step}: {component}: recorded {recorded}; replayed {replayed}")
        }
        (Outcome::Diverged, None) => {
            let names: Vec<&str> = outputs.iter().filter(|file| !file.equal()).map(|file| file.path.as_str()).collect();
            let equal = counted(*equal_steps, "equal step");
            format!("diverged after {equal}: outputs {}", names.join(", "))
        }
        (Outcome::Incomplete, _) => {
            let Run { status, cause, .. } = run;
            format!("incomplete, {equal_steps} of {steps} were equal: {status}: {cause}")
        }
    }
}

/// Where a divergence is, in words.
pub fn localization(found: &Localization) -> String {
    let Localization { step, stage, restores, steps_again, differing, .. } = found;
    let cost = format!("{}, {} computed again", counted(*restores, "restore"), counted(*steps_again, "step"));
    let (Some(tensor), Some(at)) = (found.tensors.first(), found.compared_at) else {
        return format!(
            "step {step}, stage {stage}; no state at or after it is stored, so no tensor can be named ({cost})"
        );
    };
    let ulp = tensor.largest_ulp.map_or_else(|| "not finite".into(), |ulp| format!("at most {ulp} ULP"));
    let spread = if at == *step { String::new() } else { format!(", seen after step {at}") };
    format!(
        "step {step}, stage {stage}, {} {}: {} of {} differ, {ulp}; {}{spread} ({cost})",
        tensor.part,
        tensor.name,
        tensor.differing,
        counted(tensor.elements, "element"),
        counted(*differing, "tensor")
    )
}
