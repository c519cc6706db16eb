//! What goes on beside a run, or with it, changes nothing that it learns: the digest of its trace is the same when states are
//! taken at any cadence, when models are measured in the midst of it, when another run works beside it, and when it is
//! drained and resumed. All of it from the command line, with the true worker.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/training.rs"]
mod training;

use std::fs;

use bench::{Ended, wait_for};
use training::True;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::run::{Run, Status};

/// So long that it is still at work when it is asked to stop.
const STEPS: u64 = 200;
const HELD_OUT: &str = "There is nothing surprising in this.\nIf they but knew it, almost all men in their degree.\n";
const SPEC: &str = r#"{"schema":"xt.evaluation-spec/1","name":"held-out",
    "evaluator":{"kind":"next-token","batch":4,"resamples":200,"confidence":0.95},
    "parameters":"trained","data":{"dataset":"DATASET","split":"train"},"slices":"none",
    "leakage":{"minimum_bytes":32,"shared":"refuse"},"seed":1}"#;

fn digest(run: &Run) -> Digest {
    run.trace.as_ref().unwrap().digest
}

#[track_caller]
fn done(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{} {}", ended.stdout, ended.stderr);
    ended
}

fn ran(place: &True, arguments: &[&str]) -> Run {
    place.tool("run", arguments).run(Status::Succeeded, 0)
}

/// Starts it without waiting, and gives its attempt.
fn started(place: &True, arguments: &[&str]) -> String {
    done(place.tool("run", &[&["--detach"], arguments].concat())).stdout.trim().into()
}

/// Waits until the attempt has told so many lines.
fn told(place: &True, attempt: &str, count: usize) {
    let telemetry = place.store_path().join("runs").join(attempt).join("telemetry.jsonl");
    let lines = || fs::read_to_string(&telemetry).unwrap_or_default().lines().count();
    wait_for("some steps", || (lines() >= count).then_some(()));
}

/// Writes the plan that measures a frozen model on other text.
fn to_measure(place: &True, run: &Run) {
    let write = |name: &str, text: &str| fs::write(place.folder.path().join(name), text).unwrap();
    write("held.txt", HELD_OUT);
    let dataset = done(place.tool("compile", &["dataset", "held.txt"])).stdout;
    let id = dataset.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
    write("spec.json", &SPEC.replace("DATASET", id));
    done(place.tool("freeze", &[&run.id().to_string(), "-o", "model.tar.zst"]));
    done(place.tool("compile", &["evaluate", "spec.json", "model.tar.zst", "-o", "measure.json"]));
}

#[test]
fn snapshots_measurements_neighbours_and_drains_leave_the_digest_of_the_trace_as_it_is() {
    let Some(place) = True::compiled(STEPS) else { return };
    let alone = ran(&place, &["plan.json"]);
    let due = digest(&alone);

    // States at any cadence.
    for every in [2, 30] {
        let run = ran(&place, &["--snapshot-every", &every.to_string(), "plan.json"]);
        assert_eq!((digest(&run), run.snapshots.len() as u64), (due, STEPS / every), "a state every {every} steps");
    }

    // Measured at any cadence, and drained and resumed: whenever it has come some steps further it is stopped, a model is
    // measured, and it goes on; once a model is measured while it works, too.
    to_measure(&place, &alone);
    for gap in [10, 30] {
        let (mut attempt, mut stops) = (started(&place, &["plan.json"]), 0);
        let whole = loop {
            told(&place, &attempt, gap);
            let ended = place.tool("run", &["--drain", &attempt]);
            if ended.code == Some(0) {
                break ended.run(Status::Succeeded, 0);
            }
            ended.run(Status::Drained, 76);
            done(place.tool("run", &["measure.json"]));
            stops += 1;
            attempt = started(&place, &["--resume", &attempt]);
            if stops == 2 {
                done(place.tool("run", &["measure.json"]));
                break ran(&place, &["--attach", &attempt]);
            }
        };
        assert!(stops > 0 && whole.start.is_some(), "it was never stopped");
        assert_eq!(digest(&whole), due, "drained, measured and resumed {stops} times");
        println!("drained, measured and resumed {stops} times: the same trace");
    }

    // Beside another run. The control: that one has another seed, and its digest is another one.
    done(place.tool("compile", &["--seed", "1", "candidate.json", "-o", "other.json"]));
    let both = [started(&place, &["other.json"]), started(&place, &["plan.json"])];
    let [other, beside] = both.map(|attempt| ran(&place, &["--attach", &attempt]));
    assert_eq!(digest(&beside), due, "beside another run");
    assert_eq!((other.progress.steps, digest(&other) == due), (STEPS, false), "another seed is another trace");
}
