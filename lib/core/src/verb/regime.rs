//! Regimes that are not exact stay locked until a calibration covers what they are used for.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field as _, Manifest};
use crate::fingerprint;
use crate::instant::Instant;
use crate::manifest::branch::Change;
use crate::manifest::calibration::{Calibration, CalibrationScope, Measure, Measured};
use crate::manifest::candidate::{Candidate, Regime};
use crate::manifest::plan::{Ground, Plan};
use crate::verb::compile;

/// Notes where the regime of a plan does not stand on what it needs.
pub fn check_inside(plan: &Plan, faults: &mut Faults) {
    let regime = plan.candidate.regime();
    if regime != Regime::Exact && plan.native().is_none() {
        let message = format!("the regime {regime} is one of the trainer of this toolkit");
        return faults.add("/regime", "regime.command", message);
    }
    match (regime, &plan.ground) {
        (Regime::Exact, Ground::None {}) => {}
        (Regime::Exact, ground) => {
            let message = format!("the exact regime stands on itself, found {}", ground.word());
            faults.add("/ground", "regime.ground", message);
        }
        (_, Ground::None {}) => {
            let message = format!(
                "the regime {regime} is locked: --calibration names a calibration that covers the plan, and --evidence makes \
                 the run evidence for one"
            );
            faults.add("/ground", "regime.locked", message);
        }
        (_, Ground::Evidence {} | Ground::Calibration { .. }) => {}
    }
}

/// The same plan on this ground.
#[must_use]
pub fn grounded(mut plan: Plan, ground: Ground) -> Plan {
    plan.ground = ground;
    plan.request = fingerprint::request(&plan);
    plan
}

/// What is set in all branches of a set, less what makes them inexact.
pub fn exact_changes(under: &[Change]) -> Vec<Change> {
    let inexact =
        |path: &str| path == "regime" || path == "precision" || path == "execution" || path.starts_with("execution.");
    under.iter().filter(|change| !inexact(&change.path)).cloned().collect()
}

/// The plan that trains the same from the start in the exact regime, on what the exact evidence of a calibration was computed
/// on. `None` for a plan that goes on from a state, which is one of its own regime.
pub fn exact(plan: &Plan, calibration: &Calibration) -> Option<Plan> {
    let (candidate, _) = plan.training().filter(|_| plan.departure.is_none())?;
    let CalibrationScope { exact_precision, exact_execution, .. } = &calibration.scope;
    let (precision, execution) = (*exact_precision, exact_execution.clone());
    let exact = Candidate { regime: Regime::Exact, precision, execution, ..candidate.clone() };
    compile::native_again(plan, &exact).ok()
}

/// The ground that a calibration is.
pub fn ground(calibration: &Calibration) -> Ground {
    Ground::Calibration { digest: calibration.id(), expires: calibration.expires }
}

/// Notes where a calibration does not say what follows from its own figures.
fn check_itself(calibration: &Calibration, faults: &mut Faults) {
    let passes = |one: &Measured| one.value.is_some_and(|value| one.measure.passes(value.get(), one.limit.get()));
    let needed = |measure: &&Measure| **measure != Measure::RankStability;
    let whole =
        Measure::ALL.iter().filter(needed).all(|due| calibration.measures.iter().any(|one| one.measure == *due));
    let wrong = calibration.measures.iter().any(|one| one.passed != passes(one));
    if wrong || !whole || calibration.passed != calibration.measures.iter().all(passes) {
        let message = "what the calibration says it passed is not what its measures say";
        faults.add("/ground/digest", "calibration.forged", message);
    }
}

/// Notes why `calibration` does not cover `plan` at this time; on `stack`, where that is known already.
pub fn check_cover(plan: &Plan, calibration: &Calibration, now: Instant, stack: Option<Digest>, faults: &mut Faults) {
    let Some((candidate, _)) = plan.training() else {
        return faults.add("/ground", "calibration.scope", "a calibration is one of the trainer of this toolkit");
    };
    let scope = &calibration.scope;
    if plan.ground != ground(calibration) {
        faults.add("/ground", "calibration.other", format!("the plan stands on another one than {}", calibration.id()));
    }
    check_itself(calibration, faults);
    if !calibration.passed {
        faults.add("/ground/digest", "calibration.failed", "the calibration did not pass its gates");
    }
    if now >= calibration.expires {
        let message = format!("the calibration has expired on {}", calibration.expires);
        faults.add("/ground/expires", "calibration.expired", message);
    }
    let stack = stack.unwrap_or(scope.stack);
    let pairs = [
        ("regime", scope.regime.to_string(), candidate.regime.to_string()),
        ("family", scope.family.clone(), candidate.model.word().to_string()),
        ("precision", scope.precision.to_string(), candidate.precision.to_string()),
        ("stack", scope.stack.to_string(), stack.to_string()),
    ];
    for (what, covered, found) in pairs.into_iter().filter(|(_, covered, found)| covered != found) {
        let message = format!("the calibration is for the {what} {covered}, the plan needs {found}");
        faults.add("/ground/digest", "calibration.scope", message);
    }
    if !scope.executions.contains(&candidate.execution) {
        let found = candidate.execution.write().canonical();
        let message = format!("the calibration did not measure the execution {found}");
        faults.add("/ground/digest", "calibration.scope", message);
    }
    let steps = plan.due() - plan.departure.as_ref().map_or(0, |from| from.step.min(plan.due()));
    if steps > scope.horizon {
        let message = format!("the calibration reaches {} steps, the plan takes {steps}", scope.horizon);
        faults.add("/ground/digest", "calibration.scope", message);
    }
}
