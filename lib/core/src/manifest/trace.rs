//! `xt.trace/1` and its lines: one line a step, each chained to the one before.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::{Value, parse};
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Range, object};
use crate::number::{Bits32, Finite};
use crate::tag;

crate::record! {
    /// Head of a trace; the lines are in `steps.jsonl`.
    pub struct Trace as tag::TRACE {
        /// Id of the plan.
        plan: Digest,
        /// Number of lines.
        steps: u64,
        /// SHA-256 of `steps.jsonl`.
        lines: Digest,
        /// `chain` of the last line; the plan's id when there is none.
        chain: Digest,
    }
}

crate::record! {
    /// One optimiser step.
    pub struct Step {
        /// Number of the step, from 1.
        step: u64,
        /// Epoch of its last micro-batch, from 0.
        epoch: u64,
        /// Micro-batches it took.
        micro_batches: u64,
        /// Digest of the sample numbers.
        samples: Digest,
        /// Learning rate of the update.
        learning_rate: Finite,
        /// Loss before the update; `null` when it is not finite.
        loss: Option<Finite>,
        /// Its bits.
        loss_bits: Bits32,
        /// Factor on the loss before the backward pass.
        loss_scale: Finite,
        /// Global 2-norm of the gradients before clipping; `null` when it is not finite.
        gradient_norm: Option<Finite>,
        /// Its bits.
        gradient_norm_bits: Bits32,
        /// Counts per stage, in the order input, forward, loss, backward, optimizer.
        stages: Vec<Stage>,
        /// Digest of all gradients before clipping, by name.
        gradients: Digest,
        /// Digest of all parameters after the update, by name.
        parameters: Digest,
        /// Digest of the optimiser's state after the update, by name.
        optimizer: Digest,
        /// Digest of the averaged parameters after the update, by the parameters' names; `null` where no average is kept.
        averaged: Option<Digest>,
        /// Digest of the random generator after the step: its name, seed and logical time.
        generator: Digest,
        /// Digest of the data cursor after the step: the next sample that was not consumed.
        cursor: Digest,
        /// Whether the update was left out.
        skipped: bool,
        /// SHA-256 of the chain before and of this line without `chain`.
        chain: Digest,
    }
}

crate::record! {
    /// What one stage held at one step, counted before any clipping or repair.
    pub struct Stage {
        /// The stage.
        stage: StageName,
        /// Values looked at; 0 when the stage did not run.
        checked: u64,
        /// NaN among them.
        nan: u64,
        /// Positive infinities among them.
        positive_infinite: u64,
        /// Negative infinities among them.
        negative_infinite: u64,
        /// Largest magnitude among the finite ones.
        maximum: Finite,
        /// Tensors that held a non-finite value, at most 8.
        tensors: Vec<String>,
    }
}

crate::words! {
    /// A stage of a step.
    pub enum StageName {
        /// What enters the model.
        Input "input",
        /// What it computes.
        Forward "forward",
        /// The loss.
        Loss "loss",
        /// The gradients.
        Backward "backward",
        /// The parameters and the optimiser's state after the update.
        Optimizer "optimizer",
    }
}

crate::record! {
    /// The whole state of the random generator: it counts, so nothing else is kept.
    pub struct Generator {
        /// Name of the generator.
        algorithm: String,
        /// Seed of the run.
        seed: u64,
        /// Logical time of the next draws: number of the next micro-batch, over all epochs.
        micro_batch: u64,
    }
}

crate::record! {
    /// The next sample that was not consumed. After the last micro-batch of an epoch this is the first of the next one: no state has two spellings.
    pub struct Cursor {
        /// Epoch, from 0.
        epoch: u64,
        /// Micro-batch within the epoch, from 0.
        micro_batch: u64,
        /// Place of its first sample in the order of the epoch, from 0.
        sample: u64,
        /// SHA-256 of the sample numbers of the epoch in order, each as 8 little-endian bytes.
        order: Digest,
    }
}

crate::record! {
    /// One line of a command's telemetry, as the trace of its run has it.
    pub struct Metric {
        /// Number of the step, by the program's own count; each line has a larger one than the line before.
        step: u64 [Range::from(1.0)],
        /// What the program measured, by name: finite numbers, and `null` for what it could not measure.
        values: BTreeMap<String, Option<Measured>>,
        /// SHA-256 of the chain before and of this line without `chain`.
        chain: Digest,
    }
}

/// A number that a program measured: a whole one stays whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured(Value);

impl Measured {
    /// As a float, for people.
    pub fn approximate(&self) -> f64 {
        match &self.0 {
            Value::Float(number) => number.get(),
            Value::Integer(integer) => integer.text().parse().unwrap_or(f64::NAN),
            _ => f64::NAN,
        }
    }
}

impl Field for Measured {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        if matches!(value, Value::Float(_) | Value::Integer(_)) {
            return Some(Self(value.clone()));
        }
        crate::field::wrong_type(value, "a finite number, or null", at, faults);
        None
    }

    fn write(&self) -> Value {
        self.0.clone()
    }

    fn schema() -> Value {
        object([("type", "number".into())])
    }
}

impl Metric {
    /// Reads a line as a program writes it: `step`, and a number or `null` for each other name.
    pub fn told(line: &[u8]) -> Result<Self, Faults> {
        let value = parse(line).map_err(|error| Faults::one("", "json", format!("{error}")))?;
        let Value::Object(mut members) = value else {
            return Err(Faults::one("", "field.type", "expected an object with the field `step`"));
        };
        let step = members.remove("step").map_or(Value::Null, |step| step);
        let chain = Digest::of(b"").write();
        let members = [("step", step), ("values", Value::Object(members)), ("chain", chain)];
        let mut faults = Faults::new();
        match Self::read(&object(members), "", &mut faults) {
            Some(metric) if faults.is_empty() => Ok(metric),
            _ => Err(faults),
        }
    }

    /// The chain value that belongs to this line after `before`.
    pub fn chained(&self, before: Digest) -> Digest {
        chained(self.write(), before)
    }

    /// This line, chained to `before`.
    #[must_use]
    pub fn chain_to(mut self, before: Digest) -> Self {
        self.chain = self.chained(before);
        self
    }
}

/// SHA-256 of the chain before and of a line without its `chain`.
fn chained(line: Value, before: Digest) -> Digest {
    let Value::Object(mut members) = line else { return before };
    members.remove("chain");
    let mut hasher = crate::digest::Hasher::new();
    hasher.update(before.bytes());
    hasher.update(Value::Object(members).canonical().as_bytes());
    hasher.finish()
}

impl Generator {
    /// SHA-256 of the canonical text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.write().canonical().as_bytes())
    }
}

impl Cursor {
    /// SHA-256 of the canonical text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.write().canonical().as_bytes())
    }
}

impl Stage {
    /// Values that are not finite.
    pub const fn non_finite(&self) -> u64 {
        self.nan + self.positive_infinite + self.negative_infinite
    }
}

impl Step {
    /// The chain value that belongs to this line after `before`.
    pub fn chained(&self, before: Digest) -> Digest {
        chained(self.write(), before)
    }

    /// This line, chained to `before`.
    #[must_use]
    pub fn chain_to(mut self, before: Digest) -> Self {
        self.chain = self.chained(before);
        self
    }
}

/// The first line of a trace that cannot be trusted; those before it can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {problem}")]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: BadLineProblem,
}

/// What is wrong with a line of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLineProblem {
    /// The last line has no end: its writer was stopped.
    #[error("it is cut off")]
    Torn,
    /// It is no step.
    #[error("it is no step: {0}")]
    NotAStep(String),
    /// It is a step, but not in the one text that the step has.
    #[error("it is not in canonical form")]
    NotCanonical,
    /// Another step was due.
    #[error("step {expected} was due, found step {found}")]
    Number {
        /// The step that was due.
        expected: u64,
        /// The step that was found.
        found: u64,
    },
    /// It does not belong to the lines before it.
    #[error("its chain is {found}, but this line after the ones before it gives {expected}")]
    Chain {
        /// What the lines give.
        expected: Digest,
        /// What the line says.
        found: Digest,
    },
}

/// Reads the bytes of a `steps.jsonl` that belongs to `plan`, up to the first line that cannot be trusted.
pub fn read_steps(plan: Digest, bytes: &[u8]) -> (Vec<Step>, Option<BadLine>) {
    let (mut steps, mut chain) = (Vec::new(), plan);
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = index as u64 + 1;
        match read_step(line, chain, text) {
            Ok(step) => {
                chain = step.chain;
                steps.push(step);
            }
            Err(problem) => return (steps, Some(BadLine { line, problem })),
        }
    }
    (steps, None)
}

/// Reads line `number` of a trace, where `before` is the `chain` of the line before it, or the plan's id.
pub fn read_step(number: u64, before: Digest, text: &[u8]) -> Result<Step, BadLineProblem> {
    let text = text.strip_suffix(b"\n").ok_or(BadLineProblem::Torn)?;
    let value = parse(text).map_err(|error| BadLineProblem::NotAStep(format!("{error}")))?;
    let mut faults = Faults::new();
    let step = Step::read(&value, "", &mut faults).filter(|_| faults.is_empty());
    let step = step.ok_or_else(|| BadLineProblem::NotAStep(format!("{faults}")))?;
    if step.write().canonical().as_bytes() != text {
        return Err(BadLineProblem::NotCanonical);
    }
    if step.step != number {
        return Err(BadLineProblem::Number { expected: number, found: step.step });
    }
    let expected = step.chained(before);
    if step.chain != expected {
        return Err(BadLineProblem::Chain { expected, found: step.chain });
    }
    Ok(step)
}

/// Reads the bytes of a `steps.jsonl` of a command that belongs to `plan`, up to the first line that cannot be trusted.
pub fn read_metrics(plan: Digest, bytes: &[u8]) -> (Vec<Metric>, Option<BadLine>) {
    let (mut lines, mut before) = (Vec::<Metric>::new(), (0, plan));
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match read_metric(before, text) {
            Ok(line) => {
                before = (line.step, line.chain);
                lines.push(line);
            }
            Err(problem) => return (lines, Some(BadLine { line: index as u64 + 1, problem })),
        }
    }
    (lines, None)
}

/// Reads line `number` of a command's trace, where `before` is the line before it, or else the plan's id.
pub fn read_metric(before: (u64, Digest), text: &[u8]) -> Result<Metric, BadLineProblem> {
    let (last, chain) = before;
    let text = text.strip_suffix(b"\n").ok_or(BadLineProblem::Torn)?;
    let value = parse(text).map_err(|error| BadLineProblem::NotAStep(format!("{error}")))?;
    let mut faults = Faults::new();
    let metric = Metric::read(&value, "", &mut faults).filter(|_| faults.is_empty());
    let metric = metric.ok_or_else(|| BadLineProblem::NotAStep(format!("{faults}")))?;
    if metric.write().canonical().as_bytes() != text {
        return Err(BadLineProblem::NotCanonical);
    }
    if metric.step <= last {
        return Err(BadLineProblem::Number { expected: last + 1, found: metric.step });
    }
    let expected = metric.chained(chain);
    if metric.chain != expected {
        return Err(BadLineProblem::Chain { expected, found: metric.chain });
    }
    Ok(metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn line(step: u64, before: Digest) -> Step {
        let digest = Digest::of(b"x");
        Step {
            step,
            epoch: 0,
            micro_batches: 1,
            samples: digest,
            learning_rate: Finite::new(0.5).unwrap(),
            loss: None,
            loss_bits: Bits32::of(f32::NAN),
            loss_scale: Finite::new(1.0).unwrap(),
            gradient_norm: Finite::new(2.0),
            gradient_norm_bits: Bits32::of(2.0),
            stages: vec![],
            gradients: digest,
            parameters: digest,
            optimizer: digest,
            averaged: None,
            generator: digest,
            cursor: digest,
            skipped: false,
            chain: digest,
        }
        .chain_to(before)
    }

    fn trace(plan: Digest) -> Vec<u8> {
        let mut chain = plan;
        let mut bytes = Vec::new();
        for number in 1..=3 {
            let step = line(number, chain);
            chain = step.chain;
            bytes.extend_from_slice(step.write().canonical().as_bytes());
            bytes.push(b'\n');
        }
        bytes
    }

    #[test]
    fn a_whole_trace_is_read_and_another_plan_is_not_its_plan() {
        let plan = Digest::of(b"plan");
        let (steps, bad) = read_steps(plan, &trace(plan));
        assert_eq!((steps.len(), bad), (3, None));
        let (steps, bad) = read_steps(Digest::of(b"other"), &trace(plan));
        assert!(steps.is_empty() && matches!(bad.unwrap().problem, BadLineProblem::Chain { .. }));
    }

    #[test]
    fn a_flipped_byte_anywhere_breaks_the_trace_at_its_line() {
        let plan = Digest::of(b"plan");
        let whole = trace(plan);
        let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let third = second + whole[second..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for at in second..third {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let (steps, bad) = read_steps(plan, &changed);
            assert_eq!((steps.len(), bad.map(|bad| bad.line)), (1, Some(2)), "byte {at}");
        }
    }

    #[test]
    fn a_torn_tail_leaves_the_lines_before_it() {
        let plan = Digest::of(b"plan");
        let whole = trace(plan);
        let (steps, bad) = read_steps(plan, &whole[..whole.len() - 1]);
        assert_eq!(steps.len(), 2);
        assert_eq!(bad, Some(BadLine { line: 3, problem: BadLineProblem::Torn }));
    }

    #[test]
    fn a_left_out_or_repeated_line_is_noticed() {
        let plan = Digest::of(b"plan");
        let whole = trace(plan);
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        let number = |bad: Option<BadLine>| matches!(bad.unwrap().problem, BadLineProblem::Number { .. });
        assert!(number(read_steps(plan, &[lines[0], lines[2]].concat()).1));
        assert!(number(read_steps(plan, &[lines[0], lines[0]].concat()).1));
    }
}
