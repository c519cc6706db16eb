//! What the worker said so far, held against its plan line by line. The worker is not trusted: a line that breaks the
//! chain, skips a step or comes after the end makes the run a failure, whatever the exit status says (E-07).

use xt_core::digest::{Digest, Hasher};
use xt_core::field::Field as _;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Progress, Reported, StopReason};
use xt_core::manifest::trace::{Metric, Step};
use xt_core::verb::early::Follow;

use crate::resume::Before;

/// Telemetry that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// A line that is no message.
    #[error("line {line} of the telemetry is no message: {why}")]
    NoMessage {
        /// Its number, from 1.
        line: u64,
        /// Why not.
        why: String,
    },
    /// Something before `ready`, or after the end.
    #[error("the worker said `{word}` {when}")]
    OutOfPlace {
        /// The message.
        word: &'static str,
        /// Where it came.
        when: &'static str,
    },
    /// A step, or a batch of an evaluation, that is not the next one.
    #[error("step {found} came where step {expected} was due")]
    Order {
        /// Its number.
        found: u64,
        /// The number due.
        expected: u64,
    },
    /// A step behind the one that ends the run.
    #[error("step {found} came, and the run stops early after step {last}: {reason}")]
    Behind {
        /// Its number.
        found: u64,
        /// The step that ends the run.
        last: u64,
        /// Which condition ends it.
        reason: StopReason,
    },
    /// A line that does not belong to the line before it.
    #[error("the chain breaks at step {step}: expected {expected}, found {found}")]
    Chain {
        /// The step.
        step: u64,
        /// What the line's content and the chain before give.
        expected: Digest,
        /// What the line says.
        found: Digest,
    },
    /// A snapshot of a state that the run never was in.
    #[error("the snapshot after step {step} cannot be true: {why}")]
    Snapshot {
        /// The step.
        step: u64,
        /// Why not.
        why: String,
    },
    /// A figure that the plan states differently.
    #[error("the worker reports {found} {what}, the plan says {expected}")]
    Figure {
        /// What is counted.
        what: &'static str,
        /// By the worker.
        found: u64,
        /// By the plan.
        expected: u64,
    },
}

/// How the worker said it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All is done and written.
    Completed {
        /// Files it wrote.
        outputs: Vec<String>,
    },
    /// A stop condition held it.
    Held {
        /// The step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// It stopped at a step boundary because it was asked to.
    Drained {
        /// Steps taken.
        step: u64,
        /// Files it wrote beside its snapshots.
        outputs: Vec<String>,
    },
    /// It could not go on.
    Failed {
        /// Why.
        reason: String,
        /// Whether what is trained or measured made it impossible.
        of_model: bool,
    },
}

/// What the worker said so far.
#[derive(Clone, Debug)]
pub struct Ledger {
    threads: u64,
    samples_per_epoch: u64,
    planned: u64,
    /// Whether batches of an evaluation are due, and no steps.
    measures: bool,
    chain: Digest,
    lines: Hasher,
    steps: u64,
    skipped: u64,
    early: Follow,
    reported: Option<Reported>,
    end: Option<End>,
    /// The last step that a command named; `None` for the trainer of this toolkit.
    command: Option<u64>,
}

impl Ledger {
    /// Nothing said yet; the chain starts from the plan's id, and `planned` steps are due.
    pub fn new(plan: &Plan, id: Digest, planned: u64) -> Self {
        Self {
            threads: plan.candidate.threads(),
            samples_per_epoch: plan.work.samples_per_epoch,
            planned,
            measures: plan.evaluation.is_some(),
            chain: id,
            lines: Hasher::new(),
            steps: 0,
            skipped: 0,
            early: Follow::new(plan),
            reported: None,
            end: None,
            command: plan.command().map(|_| 0),
        }
    }

    /// The same for a run that goes on from a snapshot. The lines before it were taken by another run.
    pub(crate) fn after(mut self, before: &Before) -> Self {
        (self.chain, self.steps, self.skipped) = (before.last.chain, before.last.step, before.skipped);
        self.early = before.early.clone();
        self
    }

    /// Enters one message.
    pub fn enter(&mut self, message: &Message) -> Result<(), Disagreement> {
        let word = message.word();
        match (self.command, message) {
            (Some(last), Message::Metric { line }) => return self.metric(last, line),
            (Some(_), _) => return Err(Disagreement::OutOfPlace { word, when: "in the run of a command" }),
            (None, _) => {}
        }
        if self.end.is_some() {
            return Err(Disagreement::OutOfPlace { word, when: "after it had ended" });
        }
        if self.reported.is_none() && !matches!(message, Message::Ready { .. } | Message::Failed { .. }) {
            return Err(Disagreement::OutOfPlace { word, when: "before it was ready" });
        }
        match message {
            Message::Ready { version, samples_per_epoch, parameters, cpu_capability, threads } => {
                self.ready(Reported {
                    version: version.clone(),
                    cpu_capability: cpu_capability.clone(),
                    threads: *threads,
                    parameters: *parameters,
                    samples_per_epoch: *samples_per_epoch,
                })
            }
            Message::Step { .. }
            | Message::Located { .. }
            | Message::Held { .. }
            | Message::Snapshot { .. }
            | Message::Drained { .. }
                if self.measures =>
            {
                Err(Disagreement::OutOfPlace { word, when: "in an evaluation" })
            }
            Message::Measured { batch, .. } if self.measures => self.batch(*batch),
            Message::Measured { .. } => Err(Disagreement::OutOfPlace { word, when: "in a training run" }),
            Message::Step { line, .. } => self.step(line),
            // It changes nothing of what is recorded: the step itself was told.
            Message::Located { step, .. } => figure("the step that was looked at", *step, self.steps),
            Message::Text { .. } | Message::Metric { .. } => {
                Err(Disagreement::OutOfPlace { word, when: "in a training run" })
            }
            Message::Held { step, reason } => {
                self.end = Some(End::Held { step: *step, reason: reason.clone() });
                Ok(())
            }
            // Held against the state itself when it is taken.
            Message::Snapshot { step, .. } if *step == 0 || *step > self.steps => {
                let why = format!("{} steps were taken", self.steps);
                Err(Disagreement::Snapshot { step: *step, why })
            }
            Message::Snapshot { .. } => Ok(()),
            Message::Drained { step, outputs } => {
                figure("steps when it was drained", *step, self.steps)?;
                self.end = Some(End::Drained { step: *step, outputs: outputs.clone() });
                Ok(())
            }
            Message::Failed { reason, of_model } => {
                self.end = Some(End::Failed { reason: reason.clone(), of_model: *of_model });
                Ok(())
            }
            Message::Completed { steps, outputs } => {
                figure("steps at its end", *steps, self.steps)?;
                self.end = Some(End::Completed { outputs: outputs.clone() });
                Ok(())
            }
        }
    }

    fn ready(&mut self, reported: Reported) -> Result<(), Disagreement> {
        if self.reported.is_some() {
            return Err(Disagreement::OutOfPlace { word: "ready", when: "a second time" });
        }
        figure("samples an epoch", reported.samples_per_epoch, self.samples_per_epoch)?;
        figure("threads", reported.threads, self.threads)?;
        self.reported = Some(reported);
        Ok(())
    }

    fn step(&mut self, line: &Step) -> Result<(), Disagreement> {
        let expected = self.steps + 1;
        if line.step != expected || expected > self.planned {
            return Err(Disagreement::Order { found: line.step, expected: expected.min(self.planned) });
        }
        if let Some(stopped) = self.early.stopped() {
            return Err(Disagreement::Behind { found: line.step, last: stopped.step, reason: stopped.reason });
        }
        let chain = line.chained(self.chain);
        if line.chain != chain {
            return Err(Disagreement::Chain { step: line.step, expected: chain, found: line.chain });
        }
        self.early.take_in(line.step, line.loss_bits.value());
        self.chain = chain;
        self.lines.update(line.write().canonical().as_bytes());
        self.lines.update(b"\n");
        self.steps = expected;
        self.skipped += u64::from(line.skipped);
        Ok(())
    }

    fn batch(&mut self, found: u64) -> Result<(), Disagreement> {
        let expected = self.steps + 1;
        if found != expected || expected > self.planned {
            return Err(Disagreement::Order { found, expected: expected.min(self.planned) });
        }
        self.steps = expected;
        Ok(())
    }

    fn metric(&mut self, last: u64, line: &Metric) -> Result<(), Disagreement> {
        if line.step <= last {
            return Err(Disagreement::Order { found: line.step, expected: last + 1 });
        }
        if self.planned > 0 && self.steps >= self.planned {
            return figure("lines of telemetry", self.steps + 1, self.planned);
        }
        let chain = line.chained(self.chain);
        if line.chain != chain {
            return Err(Disagreement::Chain { step: line.step, expected: chain, found: line.chain });
        }
        self.chain = chain;
        self.command = Some(line.step);
        self.steps += 1;
        Ok(())
    }

    /// Whether it is a command that speaks.
    pub fn is_command(&self) -> bool {
        self.command.is_some()
    }

    /// A command has exited cleanly, which is all the report of completion that it gives.
    pub fn exited(&mut self) {
        if self.is_command() {
            self.end = Some(End::Completed { outputs: Vec::new() });
        }
    }

    /// What the worker did. An evaluation makes no updates and leaves none out.
    pub fn progress(&self) -> Progress {
        Progress {
            planned: self.planned,
            steps: self.steps,
            updates: if self.measures { 0 } else { self.steps - self.skipped },
            skipped: self.skipped,
            completed: matches!(self.end, Some(End::Completed { .. })),
            stopped: self.early.stopped().cloned(),
        }
    }

    /// What the worker said about itself.
    pub fn reported(&self) -> Option<&Reported> {
        self.reported.as_ref()
    }

    /// How the worker said it ended.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// SHA-256 of all lines that the worker said, each with its line feed.
    pub fn lines(&self) -> Digest {
        self.lines.clone().finish()
    }

    /// `chain` of the last line; the plan's id before the first.
    pub fn chain(&self) -> Digest {
        self.chain
    }
}

fn figure(what: &'static str, found: u64, expected: u64) -> Result<(), Disagreement> {
    if found == expected { Ok(()) } else { Err(Disagreement::Figure { what, found, expected }) }
}
