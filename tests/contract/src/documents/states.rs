//! Snapshots, replays, and how they differ.

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::manifest::branch::{
    Branch, Change, Departure, Effect, Future, FutureStep, Known, Noise, Proof, Purpose, Rebaseline, Replicate,
    Uncertainty,
};
use xt_core::manifest::calibration::{Calibration, CalibrationScope, Gates, Limit, Measure, Measured, Scatter, Spread};
use xt_core::manifest::candidate::{CpuCapability, Device, Execution, MathMode, Precision, Regime};
use xt_core::manifest::comparison::Resampling;
use xt_core::manifest::plan::Ground;
use xt_core::manifest::replay::{
    Audit, Component, ComponentDifference, Divergence, Localization, Outcome, OutputComparison, PinDifference, Replay,
    Segment, TraceDiff,
};
use xt_core::manifest::run::Status;
use xt_core::manifest::snapshot::{FieldDifference, Part, Snapshot, SnapshotDiff, TensorDifference, TensorState};
use xt_core::manifest::trace::{Cursor, Generator, StageName};

use super::{digest, instant, number, stack};

pub fn snapshot(reported: bool) -> Snapshot {
    let part = |name: &str| Part {
        file: digest(name),
        bytes: 4096,
        digest: digest("tensors"),
        tensors: vec![TensorState { name: String::from(name), shape: vec![2, 3], digest: digest("values") }],
    };
    Snapshot {
        plan: digest("plan"),
        step: 5,
        updates: 4,
        generator: Generator { algorithm: String::from("philox4x32-10"), seed: 7, micro_batch: 10 },
        cursor: Cursor { epoch: 0, micro_batch: 10, sample: 30, order: digest("order") },
        chain: digest("chain"),
        parameters: part("transformer.wte.weight"),
        optimizer: part("first_moment/transformer.wte.weight"),
        stack: stack(reported),
    }
}

pub fn snapshot_diffs() -> Vec<SnapshotDiff> {
    let tensor = |first_at, largest, ulp| TensorDifference {
        part: String::from("parameters"),
        name: String::from("transformer.wte.weight"),
        equal: false,
        elements: 6,
        differing: 1,
        first_at,
        not_finite: 0,
        largest_difference: largest,
        largest_ulp: ulp,
        problem: String::new(),
    };
    let field = FieldDifference { field: String::from("/step"), first: String::from("5"), second: String::from("6") };
    vec![SnapshotDiff {
        first: digest("one"),
        second: digest("other"),
        equal: false,
        fields: vec![field],
        tensors: vec![tensor(Some(3), Some(number(0.125)), Some(1)), tensor(None, None, None)],
    }]
}

fn localization(state: Option<Digest>) -> Localization {
    let tensors = snapshot_diffs().remove(0).tensors;
    Localization {
        step: 13,
        stage: StageName::Optimizer,
        module: state.map(|_| String::from("transformer.wte")),
        tensor: state.map(|_| String::from("transformer.wte.weight")),
        compared_at: state.map(|_| 13),
        recorded: state,
        replayed: state,
        differing: 1,
        tensors,
        restores: 2,
        steps_again: 5,
    }
}

pub fn trace_diffs() -> Vec<TraceDiff> {
    let parted = replays().remove(1).divergence;
    let diff = |divergence| TraceDiff {
        first: digest("one"),
        second: digest("other"),
        same_plan: true,
        outcome: Outcome::Incomplete,
        first_steps: 33,
        second_steps: 12,
        equal_steps: 12,
        divergence,
        components: vec![ComponentDifference { component: Component::Loss, first_step: 13, steps: 4 }],
    };
    vec![diff(None), diff(parted)]
}

pub fn replays() -> Vec<Replay> {
    let replay = |outcome, divergence, recorded, replayed| Replay {
        run: digest("run"),
        plan: digest("plan"),
        replayed: digest("replayed"),
        allowed: vec![PinDifference {
            what: String::from("library libc.so.6"),
            recorded: String::from("one"),
            now: String::from("another"),
        }],
        outcome,
        from: 0,
        snapshot: recorded,
        steps: 33,
        equal_steps: 12,
        divergence,
        outputs: vec![OutputComparison { path: String::from("config.json"), recorded, replayed }],
        audit: recorded.map(|replayed| Audit {
            segments: vec![Segment { from: 10, to: 20, equal_steps: 10, replayed }],
            of: 4,
            steps: 10,
            of_steps: 33,
        }),
        localization: replayed.map(|_| localization(recorded)),
    };
    let parted = Divergence {
        step: 13,
        component: Component::Generator,
        recorded: String::from("one"),
        replayed: String::from("another"),
        differing: vec![Component::Generator, Component::Loss],
    };
    vec![
        replay(Outcome::Equal, None, None, Some(digest("recorded"))),
        replay(Outcome::Diverged, Some(parted.clone()), Some(digest("recorded")), None),
        replay(Outcome::Diverged, Some(parted), Some(digest("recorded")), Some(digest("other"))),
    ]
}

fn change() -> Change {
    Change { path: String::from("optimizer.learning_rate"), value: Value::Float(number(0.125)) }
}

pub fn departures() -> Vec<Departure> {
    let departure = |purpose, set: Vec<Change>, noise, horizons, known: Option<Known>| Departure {
        purpose,
        run: digest("run"),
        plan: digest("plan"),
        root: digest("root"),
        snapshot: digest("snapshot"),
        step: 5,
        under: set.clone(),
        set,
        noise,
        replicate: 1,
        horizons,
        future: known.as_ref().map(|_| digest("future")),
        known,
    };
    let noise = Noise { relative: number(0.125), seed: 3 };
    let known = Known { low: number(-0.5), high: number(0.125) };
    vec![
        departure(Purpose::Quality, vec![change()], Some(noise), vec![1, 2], Some(known)),
        departure(Purpose::Rollback, Vec::new(), None, Vec::new(), None),
    ]
}

pub fn grounds() -> Vec<Ground> {
    let expires = instant(2_000_000_000);
    vec![Ground::Calibration { digest: digest("calibration"), expires }, Ground::Evidence {}]
}

pub fn gates() -> Vec<Gates> {
    let limits = Measure::ALL.iter().map(|measure| Limit { measure: *measure, limit: number(0.5) }).collect();
    let resampling = Resampling { seed: 1, count: 1000 };
    vec![Gates { threshold: number(0.125), kappa: number(2.0), days: 30, resampling, limits }]
}

pub fn calibrations() -> Vec<Calibration> {
    let calibration = |figure| Calibration {
        scope: CalibrationScope {
            regime: Regime::Calibrated,
            stack: digest("stack"),
            family: String::from("gpt"),
            precision: Precision::Float32,
            executions: vec![execution()],
            horizon: 5,
            exact_precision: Precision::Float32,
            exact_execution: execution(),
        },
        gates: digest("gates"),
        exact: vec![digest("exact")],
        other: vec![digest("other")],
        trajectories: 1,
        states: 2,
        cases: 3,
        pairs: 12,
        spreads: vec![Spread { horizon: 5, pairs: 12, sigma: number(0.125) }],
        kappa: number(2.0),
        measures: vec![Measured {
            measure: Measure::Regret,
            value: figure,
            low: figure,
            high: figure,
            limit: number(0.5),
            passed: figure.is_some(),
        }],
        outcomes: vec![Scatter {
            snapshot: digest("snapshot"),
            horizon: 5,
            arm: String::from("optimizer.learning_rate=0.125"),
            exact: figure,
            worlds: 2,
            mean: figure,
            deviation: figure,
            least: figure,
            largest: figure,
        }],
        passed: figure.is_some(),
        made: instant(1_900_000_000),
        expires: instant(2_000_000_000),
    };
    vec![calibration(None), calibration(Some(number(0.25)))]
}

fn execution() -> Execution {
    let (device, cpu_capability, math_mode) = (Device::Cpu, CpuCapability::Default, MathMode::Compatible);
    Execution { device, threads: 2, cpu_capability, math_mode, onednn: false }
}

pub fn futures() -> Vec<Future> {
    let steps = vec![FutureStep { digest: digest("samples"), micro_batches: vec![vec![3, 1], vec![2]] }];
    vec![Future { dataset: digest("dataset"), seed: 7, after: 5, steps }]
}

pub fn branches() -> Vec<Branch> {
    let branch = |given: Option<Digest>, figure| Branch {
        snapshot: digest("snapshot"),
        step: 5,
        root: digest("root"),
        purpose: Purpose::Branch,
        arm: String::from("optimizer.learning_rate=0.125"),
        under: vec![change()],
        set: vec![change()],
        noise: figure,
        regime: Regime::Field,
        stack: digest("stack"),
        baseline: digest("stack before"),
        family: String::from("gpt"),
        precision: Precision::Bfloat16,
        execution: execution(),
        calibration: given,
        future: digest("future"),
        effects: vec![Effect { horizon: 2, loss: figure, effect: figure, mean_effect: figure, deviation: figure }],
        replicates: vec![Replicate {
            replicate: 1,
            run: digest("run"),
            no_op: digest("no-op"),
            status: Status::Succeeded,
            loss: vec![figure],
            gradient_norm: vec![figure],
            shock: figure,
            unstable: vec![7],
            skipped: 0,
            replay: digest("chain"),
            final_state: given,
            steps: 2,
            wall_nanoseconds: given.map(|_| 9),
            cpu_nanoseconds: given.map(|_| 8),
            peak_memory_bytes: given.map(|_| 7),
        }],
        uncertainty: Uncertainty::None,
        known: figure.map(|low| Proof { low, high: number(0.5), holds: true }),
        rebaseline: given.map(|before| Rebaseline {
            before,
            after: digest("after"),
            differences: vec![PinDifference {
                what: String::from("worker"),
                recorded: digest("one").to_string(),
                now: digest("other").to_string(),
            }],
            equal_steps: 1,
            steps: 2,
        }),
    };
    vec![branch(None, None), branch(Some(digest("calibration")), Some(number(0.125)))]
}
