//! Writes down what steps did, beside them: digests of all rows, the trace, the telemetry.
//!
//! A thread of its own hashes the rows where they lie, which the run lends it, while the next step computes; whoever would
//! change a row waits until it is given back. Everything goes through one queue, so the order of what is written is the
//! order in which it happened. For a small model the hand-over would cost more than the hashing, which is then done at once.

use std::io::Write;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::{Scope, ScopedJoinHandle};

use xt_core::digest::Digest;
use xt_core::manifest::job::Message;
use xt_core::manifest::trace::Step;
use xt_core::verb::snapshot::optimizer_digest;
use xt_torch::memory::{Flat, Lent};

use crate::fault::TrainError;
use crate::gradients::LentGradients;
use crate::layout::{Layout, digest_of};
use crate::snapshot::{Frame, LentState};
use crate::telemetry::Telemetry;
use crate::trace::TraceWriter;

/// Values of a row below which nothing is handed over: hashing them takes about as long as waking a thread.
const SMALL: usize = 1 << 14;

/// A row that is lent to be hashed.
#[derive(Debug)]
pub struct Loan {
    prefix: &'static str,
    layout: Layout,
    values: Lent,
}

impl Loan {
    /// The row `values`, laid out by `layout`, whose tensors have names that begin with `prefix`.
    pub fn of(prefix: &'static str, layout: &Layout, values: &Flat) -> Self {
        Self { prefix, layout: layout.clone(), values: values.lend() }
    }

    /// What the names of its tensors begin with.
    pub const fn prefix(&self) -> &'static str {
        self.prefix
    }

    /// What the names of its tensors begin with, where they lie, and the values.
    pub fn part(&self) -> (&str, &Layout, &[f32]) {
        (self.prefix, &self.layout, self.values.values())
    }
}

/// What is to be hashed.
#[derive(Debug)]
pub enum Hashing {
    /// Gradients.
    Gradients(LentGradients),
    /// One row.
    Row(Loan),
    /// The rows of the optimiser, sorted by prefix, and the number of its updates.
    Optimizer(Vec<Loan>, u64),
}

impl Hashing {
    /// Hashes, and gives back what was lent.
    fn digest(self) -> Digest {
        match self {
            Self::Gradients(gradients) => gradients.digest(),
            Self::Row(row) => digest_of([row.part()].into_iter()),
            Self::Optimizer(rows, updates) => optimizer_digest(digest_of(rows.iter().map(Loan::part)), updates),
        }
    }
}

/// A digest that is known, or will be.
#[derive(Debug)]
pub enum Coming {
    /// Known already.
    Known(Digest),
    /// It comes from the thread that hashes.
    Later(Receiver<Digest>),
}

impl Coming {
    fn wait(self) -> Result<Digest, TrainError> {
        match self {
            Self::Known(digest) => Ok(digest),
            Self::Later(answer) => answer.recv().map_err(|_| gone()),
        }
    }
}

/// Where rows are hashed.
#[derive(Clone, Debug)]
pub struct Hasher(Option<Sender<Entry>>);

impl Hasher {
    /// At once.
    pub const fn here() -> Self {
        Self(None)
    }

    /// Begins to hash.
    pub fn begin(&self, hashing: Hashing) -> Result<Coming, TrainError> {
        let Some(queue) = &self.0 else { return Ok(Coming::Known(hashing.digest())) };
        let (reply, answer) = channel();
        queue.send(Entry::Hash { hashing, reply }).map_err(|_| gone())?;
        Ok(Coming::Later(answer))
    }
}

/// The line of a step, but for its digests.
#[derive(Debug)]
pub struct Unfinished {
    /// The line; what it says of the four digests below does not count.
    pub line: Step,
    /// Gradients before any clipping.
    pub gradients: Coming,
    /// Parameters after the step.
    pub parameters: Coming,
    /// State of the optimiser after the step.
    pub optimizer: Coming,
    /// Average after the step, if one is kept.
    pub averaged: Option<Coming>,
}

impl Unfinished {
    /// The line as it is to be chained, when all digests are known.
    pub fn finish(self) -> Result<Step, TrainError> {
        let Self { line, gradients, parameters, optimizer, averaged } = self;
        Ok(Step {
            gradients: gradients.wait()?,
            parameters: parameters.wait()?,
            optimizer: optimizer.wait()?,
            averaged: averaged.map(Coming::wait).transpose()?,
            ..line
        })
    }
}

/// What is to be done, in order.
#[derive(Debug)]
enum Entry {
    Hash { hashing: Hashing, reply: Sender<Digest> },
    Step { step: Box<Unfinished>, nanoseconds: u64 },
    Copy { frame: Box<Frame>, lent: Box<LentState>, copied: SyncSender<Frame> },
    Message(Message),
}

/// Where the evidence is written.
#[derive(Debug)]
struct Desk<'a, W> {
    trace: TraceWriter,
    telemetry: &'a mut Telemetry<W>,
}

impl<W: Write> Desk<'_, W> {
    fn take(&mut self, entry: Entry) -> Result<(), TrainError> {
        match entry {
            Entry::Hash { hashing, reply } => {
                // Nobody waits for it any more when the run is breaking off.
                reply.send(hashing.digest()).unwrap_or_default();
                Ok(())
            }
            Entry::Step { step, nanoseconds } => {
                let line = Box::new(self.trace.append(step.finish()?)?);
                self.telemetry.say(&Message::Step { line, nanoseconds })
            }
            Entry::Copy { mut frame, lent, copied } => {
                frame.copy(*lent);
                copied.send(*frame).map_err(|_| gone())
            }
            Entry::Message(message) => self.telemetry.say(&message),
        }
    }
}

/// Writes the evidence of one run.
#[derive(Debug)]
pub struct Recorder<'scope, 'a, W>(Place<'scope, 'a, W>);

#[derive(Debug)]
enum Place<'scope, 'a, W> {
    Here(Desk<'a, W>),
    Beside { queue: Sender<Entry>, thread: ScopedJoinHandle<'scope, Result<(), TrainError>> },
}

impl<'scope, 'a: 'scope, W: Write + Send> Recorder<'scope, 'a, W> {
    /// Evidence goes to `trace` and `telemetry`; rows have `length` values.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        trace: TraceWriter,
        telemetry: &'a mut Telemetry<W>,
        length: usize,
    ) -> Self {
        let mut desk = Desk { trace, telemetry };
        if length < SMALL {
            return Self(Place::Here(desk));
        }
        let (queue, entries) = channel();
        let thread = scope.spawn(move || {
            entries.into_iter().try_for_each(|entry| desk.take(entry))?;
            desk.trace.finish()
        });
        Self(Place::Beside { queue, thread })
    }
}

impl<W: Write> Recorder<'_, '_, W> {
    /// Where the rows of steps are hashed.
    pub fn hasher(&self) -> Hasher {
        match &self.0 {
            Place::Here(_) => Hasher::here(),
            Place::Beside { queue, .. } => Hasher(Some(queue.clone())),
        }
    }

    /// Writes down a step that took so long.
    pub fn step(&mut self, step: Unfinished, nanoseconds: u64) -> Result<(), TrainError> {
        self.take(Entry::Step { step: Box::new(step), nanoseconds })
    }

    /// Copies a state into `frame` and sends it on. In the thread that hashes, since one more would take the processor from
    /// the step.
    pub(crate) fn copy(&mut self, frame: Frame, lent: LentState, copied: SyncSender<Frame>) -> Result<(), TrainError> {
        self.take(Entry::Copy { frame: Box::new(frame), lent: Box::new(lent), copied })
    }

    /// Says something, after everything before it.
    pub fn say(&mut self, message: Message) -> Result<(), TrainError> {
        self.take(Entry::Message(message))
    }

    /// Waits until all is written, and makes the trace durable. The hashers must be gone.
    pub fn finish(self) -> Result<(), TrainError> {
        match self.0 {
            Place::Here(desk) => desk.trace.finish(),
            Place::Beside { queue, thread } => {
                drop(queue);
                thread.join().map_err(|_| gone())?
            }
        }
    }

    fn take(&mut self, entry: Entry) -> Result<(), TrainError> {
        match &mut self.0 {
            Place::Here(desk) => desk.take(entry),
            Place::Beside { queue, .. } => queue.send(entry).map_err(|_| gone()),
        }
    }
}

fn gone() -> TrainError {
    TrainError::Model("the thread that records is gone".into())
}
