//! A regime that is not exact, held against exact branches of the same states: ranking, decisions, tails of the error.
//!
//! The same branches and gates at the same time give the same bytes, so that anyone can check a calibration by making it
//! again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field as _, Manifest};
use crate::instant::Instant;
use crate::manifest::branch::Branch;
use crate::manifest::calibration::{Calibration, CalibrationScope, Gates, Measure, Measured};
use crate::manifest::candidate::{Execution, Regime};

mod evidence;
mod figures;

/// Seconds of a day.
pub(crate) const DAY: u64 = 86_400;

/// Holds `other` against `exact`: the same branches of the same states, in a regime that is not exact and in the exact one.
pub fn calibrate(exact: &[Branch], other: &[Branch], gates: &Gates, now: Instant) -> Result<Calibration, Faults> {
    let mut faults = Faults::new();
    let scope = scope(exact, other, &mut faults);
    let states = evidence::states(exact, other, &mut faults);
    check_gates(gates, scope.as_ref(), &mut faults);
    let repeated = states.iter().all(|state| state.worlds > 1);
    if scope.as_ref().is_some_and(|scope| scope.regime == Regime::Calibrated) && !repeated {
        let message =
            "the regime calibrated is measured in repeated branches: under several executions, or with --replicates";
        faults.add("other", "calibration.repeats", message);
    }
    let expires = Instant::from_unix(now.unix().saturating_add(gates.days.saturating_mul(DAY)));
    if expires.is_none() {
        faults.add("gates#/days", "calibration.days", "the day on which it would expire cannot be written");
    }
    let (Some(scope), Some(expires), true) = (scope, expires, faults.is_empty()) else { return Err(faults) };
    let cases = figures::cases(&figures::all(&states));
    let measures: Vec<Measured> = gates.limits.iter().map(|limit| figures::measured(limit, &states, gates)).collect();
    let trajectories: BTreeSet<Digest> = states.iter().map(|state| state.root).collect();
    let spreads = figures::spreads(&cases);
    Ok(Calibration {
        scope,
        gates: gates.id(),
        exact: ids(exact),
        other: ids(other),
        trajectories: trajectories.len() as u64,
        states: states.len() as u64,
        cases: cases.len() as u64,
        pairs: spreads.iter().map(|spread| spread.pairs).sum(),
        spreads,
        kappa: gates.kappa,
        passed: measures.iter().all(|measured| measured.passed),
        measures,
        outcomes: figures::scatters(&states),
        made: now,
        expires,
    })
}

fn ids(branches: &[Branch]) -> Vec<Digest> {
    let all: BTreeSet<Digest> = branches.iter().map(Manifest::id).collect();
    all.into_iter().collect()
}

/// Every measure has one limit; the agreement of repeats needs one where there must be repeats.
fn check_gates(gates: &Gates, scope: Option<&CalibrationScope>, faults: &mut Faults) {
    let calibrated = scope.is_some_and(|scope| scope.regime == Regime::Calibrated);
    for measure in Measure::ALL {
        let times = gates.limits.iter().filter(|limit| limit.measure == *measure).count();
        let optional = *measure == Measure::RankStability && !calibrated;
        if times != 1 && !(optional && times == 0) {
            faults.add("gates#/limits", "calibration.gates", format!("{measure} needs one limit, found {times}"));
        }
    }
}

/// What all of this holds for. Branches of several regimes, stacks, families or precisions are no evidence for one.
fn scope(exact: &[Branch], other: &[Branch], faults: &mut Faults) -> Option<CalibrationScope> {
    let (Some(reference), Some(first)) = (exact.first(), other.first()) else {
        let which = if exact.is_empty() { "exact" } else { "other" };
        faults.add(which, "calibration.empty", "there are no branches");
        return None;
    };
    for (which, branches, like, regime) in
        [("exact", exact, reference, Regime::Exact), ("other", other, first, first.regime)]
    {
        for (place, branch) in branches.iter().enumerate() {
            let pairs = [
                ("regime", regime.to_string(), branch.regime.to_string()),
                ("stack", first.stack.to_string(), branch.stack.to_string()),
                ("family", first.family.clone(), branch.family.clone()),
                ("precision", like.precision.to_string(), branch.precision.to_string()),
            ];
            for (field, due, found) in pairs.into_iter().filter(|(_, due, found)| due != found) {
                let message = format!("expected {due}, as the others have, found {found}");
                faults.add(format!("{which} {}#/{field}", place + 1), "calibration.mixed", message);
            }
            if which == "exact" && branch.execution != reference.execution {
                let message = "the exact branches were computed in several ways";
                faults.add(format!("exact {}#/execution", place + 1), "calibration.mixed", message);
            }
        }
    }
    if first.regime == Regime::Exact {
        faults.add("other 1#/regime", "calibration.regime", "the exact regime needs no calibration");
    }
    if first.regime == Regime::Calibrated && first.precision != reference.precision {
        let message =
            format!("the regime calibrated keeps the precision {}, found {}", reference.precision, first.precision);
        faults.add("other 1#/precision", "calibration.regime", message);
    }
    let executions: BTreeMap<String, Execution> =
        other.iter().map(|branch| (branch.execution.write().canonical(), branch.execution.clone())).collect();
    let horizon = other.iter().flat_map(|branch| &branch.effects).map(|effect| effect.horizon).max();
    Some(CalibrationScope {
        regime: first.regime,
        stack: first.stack,
        family: first.family.clone(),
        precision: first.precision,
        executions: executions.into_values().collect(),
        horizon: horizon.unwrap_or(0),
        exact_precision: reference.precision,
        exact_execution: reference.execution.clone(),
    })
}

/// What a calibration came to, in one line for people.
pub fn sentence(calibration: &Calibration) -> String {
    let failed: Vec<String> = calibration
        .measures
        .iter()
        .filter(|measured| !measured.passed)
        .map(|measured| {
            let value = measured.value.map_or_else(|| "none".into(), |value| value.to_string());
            let way = if measured.measure.rises() { "at least" } else { "at most" };
            format!("{} is {value}, {way} {} is due", measured.measure, measured.limit)
        })
        .collect();
    let scope = &calibration.scope;
    let reach = format!("{} {} of {} up to {} steps", scope.regime, scope.precision, scope.family, scope.horizon);
    if failed.is_empty() {
        return format!("{reach}: all gates passed, until {}", calibration.expires);
    }
    format!("{reach}: not passed: {}", failed.join("; "))
}
