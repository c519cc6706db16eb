//! Following a trace line by line, as it streams by: whether every line is chained to the plan's id, and whether each
//! step says what its plan makes it say. Epoch, samples, generator and cursor follow from the plan; losses and digests of tensors
//! do not, and whoever forges those and chains every line anew is found by a replay only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;

use crate::digest::{Digest, Hasher};
use crate::fault::Faults;
use crate::manifest::plan::Plan;
use crate::manifest::run::Stopped;
use crate::manifest::trace::{BadLineProblem, Generator, Step, Trace, read_metric, read_step};
use crate::number::Finite;
use crate::order::{Shape, Walk, samples_digest};
use crate::random::GENERATOR;
use crate::verb::early::Follow;

/// How messages call the lines of a trace: as a bundle names the file.
pub const LINES: &str = "trace/steps.jsonl";

/// So many faults of one trace are listed.
const MOST: usize = 20;

/// An epoch or a step of more samples than this is not put in order only to check a trace: it takes 8 bytes each.
const MOST_SAMPLES: u64 = 1 << 24;

/// A trace that is followed.
#[derive(Clone, Debug)]
pub struct Chain {
    plan: Digest,
    expected: Option<Expected>,
    /// The last step of a command's trace; `None` for a trace of the trainer of this toolkit.
    metric: Option<u64>,
    /// `chain` of the last good line; the plan's id before the first.
    before: Digest,
    hasher: Hasher,
    bytes: u64,
    lines: u64,
    /// Whether a line was bad: those behind it cannot be trusted.
    lost: bool,
    skipped: u64,
    non_finite: Option<u64>,
    last: Option<Step>,
    wanted: BTreeSet<u64>,
    marks: BTreeMap<u64, Step>,
    faults: Faults,
}

/// What a whole trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Its head, worked out from its lines.
    pub head: Trace,
    /// Bytes of all its lines.
    pub bytes: u64,
    /// Steps whose update was left out.
    pub skipped: u64,
    /// The first step with a value that is not finite.
    pub non_finite: Option<u64>,
    /// The last good line.
    pub last: Option<Step>,
    /// The good lines of the steps that were asked for.
    pub marks: BTreeMap<u64, Step>,
    /// Where its losses end the run before the last step, by the plan.
    pub stopped: Option<Stopped>,
}

impl Chain {
    /// The empty trace of the plan with this id. Without the plan itself, only the trace is checked.
    pub fn new(id: Digest, plan: Option<&Plan>) -> Self {
        Self {
            plan: id,
            expected: plan.and_then(Expected::new),
            metric: plan.and_then(Plan::command).map(|_| 0),
            before: plan.map_or(id, Plan::root),
            hasher: Hasher::new(),
            bytes: 0,
            lines: 0,
            lost: false,
            skipped: 0,
            non_finite: None,
            last: None,
            wanted: BTreeSet::new(),
            marks: BTreeMap::new(),
            faults: Faults::new(),
        }
    }

    /// The same, and the lines of these steps are kept.
    #[must_use]
    pub fn marking(self, wanted: BTreeSet<u64>) -> Self {
        Self { wanted, ..self }
    }

    /// Takes the next line, with its line feed when it has one. Gives the step, if it is a good one.
    pub fn line(&mut self, text: &[u8]) -> Option<&Step> {
        self.hasher.update(text);
        self.bytes += text.len() as u64;
        self.lines += 1;
        if self.lost {
            return None;
        }
        let read = match self.metric {
            Some(last) => read_metric((last, self.before), text).map(|metric| {
                self.before = metric.chain;
                self.metric = Some(metric.step);
                None
            }),
            None => read_step(self.lines, self.before, text).map(Some),
        };
        match read {
            Ok(step) => self.step(step?),
            Err(problem) => {
                self.lost = true;
                self.faults.add(format!("{LINES}#/{}", self.lines), word(&problem), problem.to_string());
                return None;
            }
        }
        self.last.as_ref()
    }

    fn step(&mut self, step: Step) {
        if let Some(expected) = &mut self.expected {
            expected.check(&step, &mut self.faults);
        }
        self.before = step.chain;
        self.skipped += u64::from(step.skipped);
        if self.non_finite.is_none() && has_non_finite(&step) {
            self.non_finite = Some(step.step);
        }
        if self.wanted.contains(&step.step) {
            self.marks.insert(step.step, step.clone());
        }
        self.last = Some(step);
    }

    /// What the trace says, and what is wrong with it.
    pub fn finish(mut self) -> (Tally, Faults) {
        let left = self.faults.0.len().saturating_sub(MOST);
        if left > 0 {
            self.faults.0.truncate(MOST);
            self.faults.add(LINES, "trace.more", format!("and {left} more faults"));
        }
        let head = Trace { plan: self.plan, steps: self.lines, lines: self.hasher.finish(), chain: self.before };
        let Self { bytes, skipped, non_finite, last, marks, faults, expected, .. } = self;
        let stopped = expected.and_then(|expected| expected.early.stopped().cloned());
        (Tally { head, bytes, skipped, non_finite, last, marks, stopped }, faults)
    }
}

/// Code word of a bad line.
fn word(problem: &BadLineProblem) -> &'static str {
    match problem {
        BadLineProblem::Torn => "trace.torn",
        BadLineProblem::NotAStep(_) => "trace.syntax",
        BadLineProblem::NotCanonical => "trace.form",
        BadLineProblem::Number { .. } => "trace.order",
        BadLineProblem::Chain { .. } => "trace.chain",
    }
}

/// Whether a step saw anything that is not finite.
fn has_non_finite(step: &Step) -> bool {
    step.loss.is_none() || step.gradient_norm.is_none() || step.stages.iter().any(|stage| stage.non_finite() > 0)
}

/// The shape of the steps of `plan`; `None` when it makes no run.
pub fn shape(plan: &Plan) -> Option<Shape> {
    let candidate = plan.native()?;
    let samples = plan.work.samples_per_epoch;
    Shape::new(samples, candidate.batching, candidate.data.order, &candidate.length).ok()
}

/// What a plan makes its steps say.
#[derive(Clone, Debug)]
struct Expected {
    shape: Shape,
    seed: u64,
    /// `None` when the samples are too many to be put in order here.
    walk: Option<Walk>,
    early: Follow,
}

impl Expected {
    fn new(plan: &Plan) -> Option<Self> {
        let shape = shape(plan)?;
        let batching = plan.native()?.batching;
        let of_step = batching.samples.min(shape.samples).saturating_mul(batching.accumulation);
        let few = shape.samples <= MOST_SAMPLES && of_step <= MOST_SAMPLES;
        Some(Self { shape, seed: plan.seed, walk: few.then(|| Walk::new(shape, plan.seed)), early: Follow::new(plan) })
    }

    /// Notes what a step says otherwise, and numbers that are not their bits.
    fn check(&mut self, step: &Step, faults: &mut Faults) {
        let at = |field: &str| format!("{LINES}#/{}/{field}", step.step);
        let Some(before) = step.step.checked_sub(1).filter(|_| step.step <= self.shape.steps) else {
            faults.add(at("step"), "trace.plan", format!("the run has steps 1 to {}", self.shape.steps));
            return;
        };
        if let Some(stopped) = self.early.stopped() {
            let message =
                format!("the run stops after step {} ({}), and this is a later one", stopped.step, stopped.reason);
            faults.add(at("step"), "trace.stopped", message);
        }
        self.early.take_in(step.step, step.loss_bits.value());
        let (first, count) = self.shape.micro_batches_of(before);
        let mut same = |field: &str, found: &dyn ToString, planned: &dyn ToString| {
            let (found, planned) = (found.to_string(), planned.to_string());
            if found != planned {
                faults.add(at(field), "trace.plan", format!("found {found}, by the plan it is {planned}"));
            }
        };
        same("epoch", &step.epoch, &((first + count).saturating_sub(1) / self.shape.micro_batches));
        same("micro_batches", &step.micro_batches, &count);
        let (micro_batch, _) = self.shape.micro_batches_of(step.step);
        let generator = Generator { algorithm: GENERATOR.into(), seed: self.seed, micro_batch };
        same("generator", &step.generator, &generator.digest());
        if let Some(walk) = &mut self.walk {
            same("samples", &step.samples, &samples_digest(&walk.step(before)));
            same("cursor", &step.cursor, &walk.cursor(step.step).digest());
        }
        for (field, number, bits) in [
            ("loss", step.loss, step.loss_bits.value()),
            ("gradient_norm", step.gradient_norm, step.gradient_norm_bits.value()),
        ] {
            if number.map(Finite::get) != Some(f64::from(bits)).filter(|bits| bits.is_finite()) {
                faults.add(at(field), "trace.bits", "the number and its bits are not the same");
            }
        }
    }
}
