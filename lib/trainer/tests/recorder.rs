//! Evidence that a thread of its own writes beside the steps, against evidence that is written between them.
#![allow(clippy::unwrap_used)]

#[path = "support/plan.rs"]
mod plan;

use std::fs;
use std::path::Path;
use std::thread;

use plan::{TEXT, model, sgd};
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_trainer::TrainError;
use xt_trainer::data::text::TextData;
use xt_trainer::recorder::Recorder;
use xt_trainer::step::Trainer;
use xt_trainer::telemetry::Telemetry;
use xt_trainer::trace::{PATH, TraceWriter};

/// Rows of so few values are hashed at once, and of so many beside the steps.
const LENGTHS: [usize; 2] = [0, usize::MAX];

fn trainer(plan: &Plan, folder: &Path) -> Trainer {
    fs::write(folder.join(Digest::of(TEXT.as_bytes()).hex()), TEXT).unwrap();
    let (data, _) = TextData::read(plan, folder).unwrap();
    Trainer::new(plan.clone(), Box::new(data), None).unwrap()
}

/// The trace and the telemetry of ten steps.
fn recorded(plan: &Plan, length: usize) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = trainer(plan, folder.path());
    let trace = TraceWriter::create(folder.path(), plan.id()).unwrap();
    let mut telemetry = Telemetry::new(Vec::new());
    thread::scope(|scope| {
        let mut recorder = Recorder::start(scope, trace, &mut telemetry, length);
        let hasher = recorder.hasher();
        for _ in 0..10 {
            recorder.step(trainer.step(&hasher).unwrap(), 1).unwrap();
        }
        drop(hasher);
        recorder.finish().unwrap();
    });
    let trace = fs::read_to_string(folder.path().join(PATH)).unwrap();
    (trace, String::from_utf8(telemetry.into_inner()).unwrap())
}

#[test]
fn what_is_written_beside_the_steps_is_what_is_written_between_them() {
    for optimizer in [&sgd(0.1, 0.0), ADAM] {
        let plan = plan::plan(&model(16, 8, "0.02"), optimizer, r#"{"kind":"value","maximum":0.01}"#);
        let [between, beside] = LENGTHS.map(|length| recorded(&plan, length));
        assert_eq!(between.0.lines().count(), 10);
        assert_eq!(between, beside);
    }
    let other = plan::plan(&model(16, 8, "0.02"), &sgd(0.1, 0.0), r#"{"kind":"none"}"#);
    let plan = plan::plan(&model(16, 8, "0.02"), &sgd(0.1, 0.0), r#"{"kind":"value","maximum":0.01}"#);
    assert_ne!(recorded(&other, 0), recorded(&plan, usize::MAX), "the clipping shows");
}

const ADAM: &str = r#"{"kind":"adamw","learning_rate":0.01,"beta1":0.9,"beta2":0.99,"epsilon":1e-8,"weight_decay":0.1,
    "decay":"matrices"}"#;

/// A place to write that takes nothing any more.
#[derive(Debug)]
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_run_whose_telemetry_cannot_be_written_ends_with_the_reason() {
    let plan = plan::plan(&model(16, 8, "0.02"), &sgd(0.1, 0.0), r#"{"kind":"none"}"#);
    for length in LENGTHS {
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = trainer(&plan, folder.path());
        let trace = TraceWriter::create(folder.path(), plan.id()).unwrap();
        let mut telemetry = Telemetry::new(Full);
        let (done, end) = thread::scope(|scope| {
            let mut recorder = Recorder::start(scope, trace, &mut telemetry, length);
            let hasher = recorder.hasher();
            let mut steps = (0..40).map(|_| recorder.step(trainer.step(&hasher)?, 1));
            let done: Result<(), TrainError> = steps.by_ref().collect();
            drop(hasher);
            (done, recorder.finish())
        });
        let reason = end.and(done).unwrap_err();
        assert!(matches!(reason, TrainError::Telemetry(_)), "{reason}");
    }
}
