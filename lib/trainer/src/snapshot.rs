//! Snapshots of a run: copied beside the steps, written by a thread of their own, restored whole or not at all.
//!
//! At the boundary the state is only lent. The thread that hashes copies it when it has hashed it, while the next step
//! computes forward and backward, which change nothing of it; the update that ends that step waits for the copy if it has
//! to. Two frames take turns: while one is written, the next copy goes into the other, and a third snapshot waits until the
//! first is written.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::manifest::trace::{Cursor, Generator};
use xt_core::verb::snapshot::{OPTIMIZER, PARAMETERS, check_plan, folder, optimizer_digest};

use crate::checkpoint;
use crate::control::{Control, Word};
use crate::fault::TrainError;
use crate::inputs;
use crate::layout::{self, Layout};
use crate::recorder::{Loan, Recorder};
use crate::state::State;
use crate::step::Trainer;

/// How many frames take turns.
const FRAMES: usize = 2;

/// A copy of everything that a run remembers between two steps.
#[derive(Debug, Default)]
pub struct Frame {
    parameters: Copied,
    rows: Vec<Copied>,
    updates: u64,
    steps: u64,
    position: Option<(Generator, Cursor)>,
    /// How long the run waited at the boundary.
    waited: Duration,
}

/// Everything that a run remembers between two steps, lent where it lies.
#[derive(Debug)]
pub struct LentState {
    /// The parameters.
    pub parameters: Loan,
    /// All other rows, sorted by prefix.
    pub rows: Vec<Loan>,
    /// Updates that the optimiser made.
    pub updates: u64,
    /// Steps taken.
    pub steps: u64,
    /// The random generator, which holds the seed, and the place in the data.
    pub position: (Generator, Cursor),
}

/// A copy of one row.
#[derive(Debug, Default)]
struct Copied {
    prefix: &'static str,
    layout: Option<Layout>,
    values: Vec<f32>,
}

impl Copied {
    /// Copies the row, and gives it back.
    fn copy(&mut self, row: Loan) {
        let (_, layout, values) = row.part();
        self.prefix = row.prefix();
        self.layout.get_or_insert_with(|| layout.clone());
        self.values.clear();
        self.values.extend_from_slice(values);
        drop(row);
    }

    fn part(&self) -> Option<(&str, &Layout, &[f32])> {
        Some((self.prefix, self.layout.as_ref()?, &self.values))
    }
}

impl Frame {
    /// Fills it. Memory that it has from an earlier time is used again, since fresh memory would cost a page fault every
    /// 4 kB.
    pub(crate) fn copy(&mut self, lent: LentState) {
        let LentState { parameters, rows, updates, steps, position } = lent;
        self.parameters.copy(parameters);
        self.rows.resize_with(rows.len(), Default::default);
        self.rows.iter_mut().zip(rows).for_each(|(row, lent)| row.copy(lent));
        (self.updates, self.steps, self.position) = (updates, steps, Some(position));
    }

    /// Writes its files into their folder in `outputs`.
    fn write(&self, outputs: &Path) -> Result<(), TrainError> {
        let Some(parameters) = self.parameters.part() else { return Ok(()) };
        let place = folder(self.steps);
        let made = fs::create_dir_all(outputs.join(&place));
        made.map_err(|source| TrainError::Output { path: place.clone(), source })?;
        checkpoint::write(&[parameters], outputs, &format!("{place}/{PARAMETERS}"))?;
        let rows: Vec<_> = self.rows.iter().filter_map(Copied::part).collect();
        checkpoint::write(&rows, outputs, &format!("{place}/{OPTIMIZER}"))
    }
}

/// Takes the snapshots of one run.
#[derive(Debug)]
pub struct Snapshots {
    outputs: PathBuf,
    cadence: Cadence,
    control: Control,
    writer: Option<Writing>,
    /// The last step after which a snapshot was begun.
    begun: u64,
    draining: bool,
    /// Announced, and not yet taken by the supervisor.
    waiting: Vec<u64>,
}

/// The thread that writes.
#[derive(Debug)]
struct Writing {
    due: SyncSender<Frame>,
    written: Receiver<(Frame, Result<(), TrainError>)>,
    /// Frames that were made, and those of them that are at hand.
    made: usize,
    spare: Vec<Frame>,
}

impl Snapshots {
    /// Snapshots at `cadence`, written into `outputs`.
    pub const fn new(outputs: PathBuf, cadence: Cadence, control: Control) -> Self {
        Self { outputs, cadence, control, writer: None, begun: 0, draining: false, waiting: Vec::new() }
    }

    /// Whether the run is to stop at the next step boundary.
    pub const fn draining(&self) -> bool {
        self.draining
    }

    /// Called after each step but one that holds the run: lends the state to be copied when it is due, and tells of those that were
    /// written meanwhile.
    pub fn after_step<W: Write>(
        &mut self,
        trainer: &mut Trainer,
        last: u64,
        recorder: &mut Recorder<'_, '_, W>,
    ) -> Result<(), TrainError> {
        while let Some(word) = self.control.heard() {
            self.take(word)?;
        }
        let step = trainer.state.steps;
        if self.cadence.due(step, last) || (self.draining && step < last) {
            let begun = Instant::now();
            let mut frame = self.frame(recorder)?;
            let lent = trainer.lend();
            frame.waited = begun.elapsed();
            self.begun = step;
            let due = self.writer().due.clone();
            recorder.copy(frame, lent, due)?;
        }
        while let Some(written) = self.writer.as_mut().and_then(|writer| writer.written.try_recv().ok()) {
            self.tell(written, recorder)?;
        }
        Ok(())
    }

    /// Waits until every snapshot is written, told of and, where there is a supervisor, taken. Gives the paths of the files
    /// that are left.
    pub fn finish<W: Write>(&mut self, recorder: &mut Recorder<'_, '_, W>) -> Result<Vec<String>, TrainError> {
        while self.writer.as_ref().is_some_and(|writer| writer.spare.len() < writer.made) {
            let written = self.writer().written.recv().map_err(|_| gone())?;
            self.tell(written, recorder)?;
        }
        while self.control.is_connected() && !self.waiting.is_empty() {
            match self.control.wait() {
                Some(word) => self.take(word)?,
                None => break,
            }
        }
        let files = |step: &u64| [PARAMETERS, OPTIMIZER].map(|name| format!("{}/{name}", folder(*step)));
        Ok(self.waiting.iter().flat_map(files).collect())
    }

    fn take(&mut self, word: Word) -> Result<(), TrainError> {
        match word {
            Word::Drain => self.draining = true,
            Word::Taken(step) => {
                self.waiting.retain(|known| *known != step);
                let place = folder(step);
                let removed = fs::remove_dir_all(self.outputs.join(&place));
                removed.map_err(|source| TrainError::Output { path: place, source })?;
            }
        }
        Ok(())
    }

    fn writer(&mut self) -> &mut Writing {
        let outputs = &self.outputs;
        self.writer.get_or_insert_with(|| Writing::start(outputs.clone()))
    }

    /// A frame to copy into; waits for one when all are being written.
    fn frame<W: Write>(&mut self, recorder: &mut Recorder<'_, '_, W>) -> Result<Frame, TrainError> {
        if let Some(frame) = self.writer().spare.pop() {
            return Ok(frame);
        }
        if self.writer().made < FRAMES {
            self.writer().made += 1;
            return Ok(Frame::default());
        }
        let written = self.writer().written.recv().map_err(|_| gone())?;
        self.tell(written, recorder)?;
        self.writer().spare.pop().ok_or_else(gone)
    }

    /// Says that a snapshot was written, and keeps its frame.
    fn tell<W: Write>(
        &mut self,
        (mut frame, result): (Frame, Result<(), TrainError>),
        recorder: &mut Recorder<'_, '_, W>,
    ) -> Result<(), TrainError> {
        result?;
        let (step, updates) = (frame.steps, frame.updates);
        let nanoseconds = u64::try_from(frame.waited.as_nanos()).unwrap_or(u64::MAX);
        let (generator, cursor) = frame.position.take().ok_or_else(gone)?;
        self.writer().spare.push(frame);
        self.waiting.push(step);
        recorder.say(Message::Snapshot { step, updates, generator, cursor, nanoseconds })
    }

    /// The last step after which a snapshot was begun; 0 before the first.
    pub const fn begun(&self) -> u64 {
        self.begun
    }
}

impl Writing {
    fn start(outputs: PathBuf) -> Self {
        let (due, all) = sync_channel::<Frame>(FRAMES);
        let (done, written) = channel();
        thread::spawn(move || {
            for frame in all {
                let result = frame.write(&outputs);
                if done.send((frame, result)).is_err() {
                    break;
                }
            }
        });
        Self { due, written, made: 0, spare: Vec::new() }
    }
}

fn gone() -> TrainError {
    TrainError::Model("the thread that writes snapshots is gone".into())
}

/// Fills `state` from `snapshot`, whose files lie in `inputs`. Everything must fit: the plan, the names, shapes and types
/// of all tensors, and the digests of what was filled in. What does not is refused with every reason.
pub(crate) fn restore(state: &mut State, snapshot: &Snapshot, plan: &Plan, inputs: &Path) -> Result<(), TrainError> {
    let mut faults = Faults::new();
    check_plan(snapshot, plan, &mut faults);
    let files = [inputs::read(inputs, snapshot.parameters.file)?, inputs::read(inputs, snapshot.optimizer.file)?];
    let mut memory = state.memory_mut();
    let mut rows: Vec<_> = memory.rows.iter_mut().map(|row| (row.prefix, &row.layout, &mut row.values)).collect();
    let read = [
        ("parameters", checkpoint::read(&mut [("", memory.layout, memory.values)], &files[0])),
        ("optimizer", checkpoint::read(&mut rows, &files[1])),
    ];
    for (part, why) in read.into_iter().filter_map(|(part, read)| Some((part, read.err()?))) {
        for why in why {
            faults.add(format!("snapshot#/{part}"), "snapshot.tensor", why);
        }
    }
    if faults.is_empty() {
        (*memory.updates, *memory.steps) = (snapshot.updates, snapshot.step);
        check_digests(state, snapshot, &mut faults);
    }
    faults.or(()).map_err(TrainError::Snapshot)
}

/// The tensors in memory, by name and value, must be those that the snapshot states.
fn check_digests(state: &State, snapshot: &Snapshot, faults: &mut Faults) {
    let layout = &state.parameters.layout;
    let pairs: [(&str, Digest, Digest); 2] = [
        ("parameters", snapshot.parameters.digest, layout::digest(layout, &[("", &state.parameters.values)])),
        ("optimizer", optimizer_digest(snapshot.optimizer.digest, snapshot.updates), state.optimizer_digest()),
    ];
    for (part, stated, found) in pairs.into_iter().filter(|(_, stated, found)| stated != found) {
        let message = format!("the snapshot states {stated}, its tensors give {found}");
        faults.add(format!("snapshot#/{part}/digest"), "snapshot.digest", message);
    }
}
