//! Measures, intervals and spreads of calibrations agree with SciPy and NumPy on stored branches
//! (`calibration/make_references.py` makes them).
#![allow(clippy::unwrap_used)]

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::instant::Instant;
use xt_core::manifest::branch::{Branch, Change, Effect, Purpose, Replicate, Uncertainty};
use xt_core::manifest::calibration::{Calibration, Gates, Limit, Measure};
use xt_core::manifest::candidate::{CpuCapability, Device, Execution, MathMode, Precision, Regime};
use xt_core::manifest::comparison::Resampling;
use xt_core::manifest::run::Status;
use xt_core::number::Finite;
use xt_core::verb::calibrate::calibrate;

/// What a result may differ by.
const TOLERANCE: f64 = 1e-12;

fn get<'a>(value: &'a Value, field: &str) -> &'a Value {
    value.get(field).unwrap_or_else(|| panic!("no {field} in {}", value.canonical()))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    let Value::List(items) = get(value, field) else { panic!("{field}") };
    items
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    get(value, field).as_str().unwrap()
}

fn finite(value: &Value) -> Option<Finite> {
    match value {
        Value::Null => None,
        Value::Float(number) => Some(*number),
        Value::Integer(integer) => integer.text().parse().ok().and_then(Finite::new),
        other => panic!("{}", other.canonical()),
    }
}

fn whole(value: &Value) -> u64 {
    let Value::Integer(integer) = value else { panic!("{}", value.canonical()) };
    integer.to_u64().unwrap()
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

/// Worlds of a case: threads and the number of the repeat.
const WORLDS: [(u64, u64); 3] = [(2, 1), (2, 2), (3, 1)];

fn execution(threads: u64) -> Execution {
    let (device, cpu_capability, math_mode) = (Device::Cpu, CpuCapability::Default, MathMode::Compatible);
    Execution { device, threads, cpu_capability, math_mode, onednn: false }
}

/// One run with these losses at the horizons; that of the no-op is 0 throughout, so that losses are effects.
fn replicate(set: &str, number: u64, horizons: &[u64], losses: &[Option<Finite>], failed: bool) -> Replicate {
    let mut loss = vec![Some(Finite::ZERO); usize::try_from(*horizons.last().unwrap()).unwrap()];
    for (horizon, value) in horizons.iter().zip(losses) {
        loss[usize::try_from(*horizon).unwrap() - 1] = *value;
    }
    let steps = loss.len() as u64;
    Replicate {
        replicate: number,
        run: digest(&format!("{set} {number} {losses:?}")),
        no_op: digest(&format!("{set} {number} {:?}", vec![Some(Finite::ZERO); horizons.len()])),
        status: Status::Succeeded,
        loss,
        gradient_norm: Vec::new(),
        shock: None,
        unstable: if failed { vec![1] } else { Vec::new() },
        skipped: 0,
        replay: digest("chain"),
        final_state: None,
        steps,
        wall_nanoseconds: None,
        cpu_nanoseconds: None,
        peak_memory_bytes: None,
    }
}

fn branch(state: &Value, arm: &str, threads: Option<u64>, replicates: Vec<Replicate>) -> Branch {
    let change = |threads: u64| Change { path: "execution.threads".into(), value: threads.into() };
    let effect = |horizon: &Value| Effect {
        horizon: whole(horizon),
        loss: None,
        effect: None,
        mean_effect: None,
        deviation: None,
    };
    Branch {
        snapshot: digest(text(state, "snapshot")),
        step: 1,
        root: digest(text(state, "root")),
        purpose: Purpose::Branch,
        arm: arm.into(),
        under: threads.map(change).into_iter().collect(),
        set: Vec::new(),
        noise: None,
        regime: if threads.is_some() { Regime::Calibrated } else { Regime::Exact },
        stack: digest("stack"),
        baseline: digest("stack"),
        family: "gpt".into(),
        precision: Precision::Float32,
        execution: execution(threads.unwrap_or(1)),
        calibration: None,
        future: digest("future"),
        effects: list(state, "horizons").iter().map(effect).collect(),
        replicates,
        uncertainty: Uncertainty::None,
        known: None,
        rebaseline: None,
    }
}

/// The branches of a state in the exact regime and in the other.
fn branches(state: &Value) -> (Vec<Branch>, Vec<Branch>) {
    let horizons: Vec<u64> = list(state, "horizons").iter().map(whole).collect();
    let zero = vec![Some(Finite::ZERO); horizons.len()];
    let one = |set: &str, number, losses: &[Option<Finite>], failed| replicate(set, number, &horizons, losses, failed);
    let mut exact = vec![branch(state, "no-op", None, vec![one("exact", 1, &zero, false)])];
    let mut other = Vec::new();
    for threads in [2, 3] {
        let repeats = WORLDS.iter().filter(|(found, _)| *found == threads);
        let runs = repeats.map(|(_, repeat)| one(&format!("threads {threads}"), *repeat, &zero, false));
        other.push(branch(state, "no-op", Some(threads), runs.collect()));
    }
    for arm in list(state, "arms") {
        let name = text(arm, "name");
        let losses: Vec<_> = list(arm, "exact").iter().map(finite).collect();
        exact.push(branch(state, name, None, vec![one("exact", 1, &losses, false)]));
        for threads in [2, 3] {
            let mut runs = Vec::new();
            for (place, (_, repeat)) in WORLDS.iter().enumerate().filter(|(_, (found, _))| *found == threads) {
                let Value::List(values) = &list(arm, "worlds")[place] else { continue };
                let losses: Vec<_> = values.iter().map(finite).collect();
                let failed = list(arm, "failed")[place] == Value::Bool(true);
                runs.push(one(&format!("threads {threads}"), *repeat, &losses, failed));
            }
            other.push(branch(state, name, Some(threads), runs));
        }
    }
    (exact, other)
}

fn calibrated(case: &Value) -> Calibration {
    let (exact, other): (Vec<_>, Vec<_>) = list(case, "states").iter().map(branches).unzip();
    let limits = Measure::ALL.iter().map(|measure| Limit { measure: *measure, limit: Finite::ZERO }).collect();
    let gates = Gates {
        threshold: finite(get(case, "threshold")).unwrap(),
        kappa: finite(get(case, "kappa")).unwrap(),
        days: 1,
        resampling: Resampling { seed: whole(get(case, "seed")), count: whole(get(case, "count")) },
        limits,
    };
    let now = Instant::from_unix(0).unwrap();
    calibrate(&exact.concat(), &other.concat(), &gates, now).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn measures_intervals_and_spreads_are_those_of_scipy_and_numpy() {
    let all = parse(include_bytes!("calibration/cases.json")).unwrap();
    let mut worst = 0.0_f64;
    let mut close = |what: &str, found: Option<Finite>, due: &Value| {
        let (found, due) = (found.map(Finite::get), finite(due).map(Finite::get));
        match (found, due) {
            (Some(found), Some(due)) => {
                assert!((found - due).abs() <= TOLERANCE, "{what}: {found}, not {due}");
                worst = worst.max((found - due).abs());
            }
            (found, due) => assert_eq!(found, due, "{what}"),
        }
    };
    for (place, case) in list(&all, "cases").iter().enumerate() {
        let calibration = calibrated(case);
        for measured in &calibration.measures {
            let due = get(get(case, "expect"), measured.measure.word());
            let what = |part: &str| format!("case {place}, {} {part}", measured.measure);
            close(&what("value"), measured.value, get(due, "value"));
            close(&what("low"), measured.low, get(due, "low"));
            close(&what("high"), measured.high, get(due, "high"));
        }
        assert_eq!(calibration.measures.len(), Measure::ALL.len());
        let spreads = list(case, "spreads");
        assert_eq!(calibration.spreads.len(), spreads.len());
        for (spread, due) in calibration.spreads.iter().zip(spreads) {
            assert_eq!(spread.horizon, whole(get(due, "horizon")));
            close("sigma", Some(spread.sigma), get(due, "sigma"));
        }
    }
    println!("{} cases, at most {worst:.1e} apart", list(&all, "cases").len());
}

/// The control: a case whose worlds are told another way gives other measures.
#[test]
fn other_effects_give_other_measures() {
    let stored = include_str!("calibration/cases.json");
    let text = stored.replacen("\n         -0.112,", "\n         -0.912,", 1);
    assert!(text != stored, "a number of the first case");
    let (all, other) = (parse(include_bytes!("calibration/cases.json")).unwrap(), parse(text.as_bytes()).unwrap());
    let measures = |all: &Value| calibrated(&list(all, "cases")[0]).measures;
    assert_ne!(measures(&all), measures(&other));
}
