//! Following a trace line by line: whether each line is a step in its one spelling, comes next, and is chained to all
//! lines before it, back to the plan's id. A trace that was cut, reordered or edited does not pass, unless whoever did
//! it computed every later line anew; a replay finds that.

use alloc::format;
use alloc::string::{String, ToString};

use crate::canonical;
use crate::digest::{Digest, Hasher};
use crate::fault::Faults;
use crate::field::Field;
use crate::manifest::plan::Plan;
use crate::manifest::trace::{Step, Trace};
use crate::number::Finite;
use crate::order::Shape;

/// How messages call the lines of a trace: as a bundle names the file.
pub const LINES: &str = "trace/steps.jsonl";

/// So many faults of one trace are listed; one wrong byte makes one or two.
const MOST: usize = 20;

/// A trace that is followed.
#[derive(Clone, Debug)]
pub struct Chain {
    plan: Digest,
    shape: Option<Shape>,
    /// `chain` of the last line; the plan's id before the first.
    before: Digest,
    hasher: Hasher,
    bytes: u64,
    steps: u64,
    skipped: u64,
    non_finite: Option<u64>,
    last: Option<Step>,
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
    /// The last line.
    pub last: Option<Step>,
}

impl Chain {
    /// The empty trace of the plan with this id, whose steps have this shape; without one, only the trace itself is
    /// checked.
    pub fn new(plan: Digest, shape: Option<Shape>) -> Self {
        Self {
            plan,
            shape,
            before: plan,
            hasher: Hasher::new(),
            bytes: 0,
            steps: 0,
            skipped: 0,
            non_finite: None,
            last: None,
            faults: Faults::new(),
        }
    }

    /// Takes the next line, with its line feed when it has one. Gives the step, if it is one.
    pub fn line(&mut self, bytes: &[u8]) -> Option<Step> {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        self.steps += 1;
        let Some(text) = bytes.strip_suffix(b"\n") else {
            self.fault("trace.torn", "the line has no end".into());
            return None;
        };
        let step = self.read(text)?;
        if step.step != self.steps {
            self.fault("trace.order", format!("step {} stands where step {} is due", step.step, self.steps));
        } else if let Some(shape) = &self.shape {
            check_step(&step, shape, &mut self.faults);
        }
        let right = step.chained(self.before);
        if step.chain != right {
            let message = format!("the chain of step {} is {}, but its content gives {right}", step.step, step.chain);
            self.fault("trace.chain", message);
        }
        // Going on from what the line says keeps one wrong line from making all later ones wrong.
        self.before = step.chain;
        self.skipped += u64::from(step.skipped);
        if self.non_finite.is_none() && has_non_finite(&step) {
            self.non_finite = Some(step.step);
        }
        self.last = Some(step.clone());
        Some(step)
    }

    fn read(&mut self, text: &[u8]) -> Option<Step> {
        let value = match canonical::parse(text) {
            Ok(value) => value,
            Err(error) => {
                self.fault("trace.syntax", error.to_string());
                return None;
            }
        };
        let at = format!("{LINES}#/{}", self.steps);
        let step = Step::read(&value, &at, &mut self.faults)?;
        if step.write().canonical().as_bytes() != text {
            self.fault("trace.form", "the line is not in canonical form".into());
        }
        Some(step)
    }

    fn fault(&mut self, code: &'static str, message: String) {
        self.faults.add(format!("{LINES}#/{}", self.steps), code, message);
    }

    /// What the trace says, and everything that is wrong with it.
    pub fn finish(mut self) -> (Tally, Faults) {
        let left = self.faults.0.len().saturating_sub(MOST);
        if left > 0 {
            self.faults.0.truncate(MOST);
            self.faults.add(LINES, "trace.more", format!("and {left} more faults"));
        }
        let head = Trace { plan: self.plan, steps: self.steps, lines: self.hasher.finish(), chain: self.before };
        let Self { bytes, skipped, non_finite, last, faults, .. } = self;
        (Tally { head, bytes, skipped, non_finite, last }, faults)
    }
}

/// Whether a step saw anything that is not finite.
fn has_non_finite(step: &Step) -> bool {
    step.loss.is_none() || step.gradient_norm.is_none() || step.stages.iter().any(|stage| stage.non_finite() > 0)
}

/// The shape of the steps of `plan`; `None` when it makes no run.
pub fn shape(plan: &Plan) -> Option<Shape> {
    let candidate = &plan.candidate;
    let samples = plan.work.samples_per_epoch;
    Shape::new(samples, candidate.batching, candidate.data.order, &candidate.length).ok()
}

/// Notes what a step says otherwise than its plan: epoch and number of micro-batches follow from the plan's shape, and
/// a loss is the same number in both spellings.
fn check_step(step: &Step, shape: &Shape, faults: &mut Faults) {
    let at = |field: &str| format!("{LINES}#/{}/{field}", step.step);
    let Some(before) = step.step.checked_sub(1).filter(|_| step.step <= shape.steps) else {
        faults.add(at("step"), "trace.order", format!("the run has steps 1 to {}", shape.steps));
        return;
    };
    let (first, count) = shape.micro_batches_of(before);
    let epoch = (first + count).saturating_sub(1) / shape.micro_batches;
    if (step.epoch, step.micro_batches) != (epoch, count) {
        let message = format!(
            "by the plan it takes {count} micro-batches and ends in epoch {epoch}, found {} and {}",
            step.micro_batches, step.epoch
        );
        faults.add(at("micro_batches"), "trace.plan", message);
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
