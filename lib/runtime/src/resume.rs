//! Going on from a snapshot: the steps before it belong to an earlier run, and their lines stand at the head of the
//! trace, so that the whole is one trace with one chain.

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::manifest::run::{Run, Start, Status};
use xt_core::manifest::snapshot::Snapshot;
use xt_core::manifest::trace::{BadLine, Step, read_step};
use xt_core::name::Name;
use xt_core::verb::compare;
use xt_core::verb::depart::{Origin, check_origin};
use xt_core::verb::early::Follow;
use xt_core::verb::snapshot::{check_line, check_plan};
use xt_store::Store;

use crate::error::RuntimeError;
use crate::repeat::pins;
use crate::request::Request;
use crate::runtime::Runtime;

/// The part of a run that was taken before.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// The state that is restored.
    pub(crate) snapshot: Snapshot,
    /// The lines up to there.
    pub(crate) lines: Vec<u8>,
    /// The last of them.
    pub(crate) last: Step,
    /// Steps among them whose update was left out.
    pub(crate) skipped: u64,
    /// What their losses say about an early end.
    pub(crate) early: Follow,
}

impl Before {
    /// Reads it from the store, and holds the snapshot against plan and trace. What contradicts is refused with every
    /// reason.
    pub(crate) fn read(store: &Store, plan: &Plan, start: &Start) -> Result<Self, RuntimeError> {
        let snapshot: Snapshot = store.manifest(start.snapshot)?;
        let run: Run = store.manifest(start.run)?;
        let mut faults = Faults::new();
        if snapshot.step != start.step {
            let message = format!("the snapshot {} is of step {}, not {}", start.snapshot, snapshot.step, start.step);
            faults.add("start#/step", "snapshot.step", message);
        }
        if plan.departure.as_ref().is_some_and(|from| from.run == start.run) {
            let before: Plan = store.manifest(run.plan)?;
            check_origin(&Origin { run: &run, plan: &before, snapshot: &snapshot }, plan, &mut faults);
        } else {
            check_plan(&snapshot, plan, &mut faults);
        }
        let Some(trace) = &run.trace else {
            faults.add("start#/run", "snapshot.trace", format!("the run {} has no trace", start.run));
            return Err(RuntimeError::Refused(faults));
        };
        let all = store.get(trace.digest)?;
        let (steps, bad, length) = head(plan.root(), &all, start.step);
        if let Some(last) = steps.last().filter(|last| last.step == start.step) {
            check_line(&snapshot, last, &mut faults);
        } else {
            let why = bad.map_or_else(|| format!("it has {} steps", steps.len()), |bad| bad.to_string());
            let message = format!("the trace of the run {} does not reach step {}: {why}", start.run, start.step);
            faults.add("start#/run", "snapshot.trace", message);
        }
        let Some(last) = steps.last().filter(|_| faults.is_empty()).cloned() else {
            return Err(RuntimeError::Refused(faults));
        };
        let skipped = steps.iter().filter(|step| step.skipped).count() as u64;
        let mut early = Follow::new(plan);
        for step in &steps {
            early.take_in(step.step, step.loss_bits.value());
        }
        Ok(Self { snapshot, lines: all[..length].to_vec(), last, skipped, early })
    }

    /// The files of the snapshot, as inputs of a worker.
    pub(crate) fn inputs(&self) -> Vec<Input> {
        files(&self.snapshot)
    }
}

/// The files of a snapshot. Two parts of the same bytes are one file.
pub(crate) fn files(snapshot: &Snapshot) -> Vec<Input> {
    let part =
        |part: &xt_core::manifest::snapshot::Part| Input { digest: part.file, bytes: part.bytes, role: Role::Model };
    let mut all = vec![part(&snapshot.parameters), part(&snapshot.optimizer)];
    all.dedup_by_key(|input| input.digest);
    all
}

/// The first `count` lines of a trace, as far as they can be trusted, and their length in bytes.
fn head(plan: Digest, bytes: &[u8], count: u64) -> (Vec<Step>, Option<BadLine>, usize) {
    let (mut steps, mut chain, mut length): (Vec<Step>, _, _) = (Vec::new(), plan, 0);
    for (line, text) in (1..=count).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        match read_step(line, chain, text) {
            Ok(step) => {
                chain = step.chain;
                length += text.len();
                steps.push(step);
            }
            Err(problem) => return (steps, Some(BadLine { line, problem }), length),
        }
    }
    (steps, None, length)
}

impl Runtime {
    /// What is to be asked for so that an attempt which has ended goes on from its last snapshot, on `worker`. It is the
    /// same request each time, so it starts one attempt however often it is made. What would not go on bit for bit is
    /// refused with every reason.
    pub fn resumption(&self, id: &Name, worker: &std::path::Path) -> Result<Request, RuntimeError> {
        let attempt = self.attempt(id)?;
        let store = Store::open(self.store())?;
        let mut faults = Faults::new();
        let Some(record) = attempt.run_record else {
            faults.add("", "resume.alive", format!("{id} has not ended; --drain stops it where another can go on"));
            return Err(RuntimeError::Refused(faults));
        };
        let run: Run = store.manifest(record)?;
        if matches!(run.status, Status::Succeeded | Status::Held) {
            let message = format!("it is {}: {}; there is nothing to go on with", run.status, run.cause);
            faults.add("run#/status", "resume.status", message);
        }
        let plan: Plan = store.manifest(run.plan)?;
        let Some(last) = run.snapshots.iter().max_by_key(|taken| taken.step).filter(|_| faults.is_empty()) else {
            if run.snapshots.is_empty() {
                faults.add("run#/snapshots", "resume.none", "it has no snapshot to go on from");
            }
            return Err(RuntimeError::Refused(faults));
        };
        let snapshot: Snapshot = store.manifest(last.snapshot)?;
        let differences = pins(&snapshot.stack, &plan, worker)?;
        if !differences.is_empty() {
            return Err(RuntimeError::Refused(compare::refusal(&differences)));
        }
        let planned = run.progress.planned;
        Ok(Request {
            mode: run.mode,
            to_step: (planned < plan.work.steps).then_some(planned),
            cadence: run.cadence.clone(),
            from: Some(Start { run: record, snapshot: last.snapshot, step: last.step }),
            operation: Name::new(&format!("resume-{id}")),
            follows: Some(id.clone()),
            ..Request::new(plan, attempt.experiment)
        })
    }
}
