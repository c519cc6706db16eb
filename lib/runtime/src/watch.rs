//! Watching a worker from its start to its end: telemetry, output streams, budget, and requests to stop.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::Metric;
use xt_sandbox::{Outputs, Running};

use crate::capture::Capture;
use crate::error::{RuntimeError, system};
use crate::ledger::{Disagreement, End, Ledger};
use crate::lines::Lines;
use crate::outcome::Stop;
use crate::run_snapshots::RunSnapshots;
use crate::secrets::Secrets;
use crate::sight::Sight;
use crate::signals::Signals;
use crate::stream::Stream;
use crate::supervise::Supervisor;
use crate::telemetry::{self, Writer};

/// How long a worker that was told to stop may take before it is killed.
pub const GRACE: Duration = Duration::from_secs(3);
/// How often the supervisor looks for a request to stop, in milliseconds.
const PERIOD: u16 = 100;

/// A worker being watched, and everything seen of it.
pub(crate) struct Watch<'a> {
    supervisor: &'a Supervisor,
    /// What is being run.
    pub(crate) plan: &'a Plan,
    deadline: (Instant, u64),
    /// What it said.
    pub(crate) ledger: Ledger,
    /// What in that cannot be true.
    pub(crate) disagreement: Option<Disagreement>,
    /// Whether it was stopped, and why.
    pub(crate) stop: Option<Stop>,
    /// Who asked for cancellation.
    pub(crate) cancel: Option<String>,
    told: Option<Instant>,
    telemetry: Stream,
    lines: Lines,
    count: u64,
    /// Bytes of telemetry so far.
    heard: u64,
    writer: Writer,
    control: Option<File>,
    told_to_drain: bool,
    /// What it had mapped to execute.
    pub(crate) seen: Sight,
    /// Its snapshots.
    pub(crate) snapshots: RunSnapshots<'a>,
    stdout: (Stream, Capture),
    stderr: (Stream, Capture),
}

/// The pipes of a worker.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) telemetry: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// The writing end of the words to the worker, if it listens to any.
    pub(crate) control: Option<OwnedFd>,
}

impl<'a> Watch<'a> {
    /// Prepares to watch a worker; `ledger` knows what is due from it, `snapshots` when.
    pub(crate) fn new(
        supervisor: &'a Supervisor,
        ledger: Ledger,
        snapshots: RunSnapshots<'a>,
        pipes: Pipes,
    ) -> Result<Self, RuntimeError> {
        let folder = &supervisor.folder;
        let resources = &snapshots.plan.intent.resources;
        let cap = resources.log_bytes;
        Ok(Self {
            supervisor,
            plan: snapshots.plan,
            deadline: (Instant::now() + Duration::from_secs(resources.duration_seconds), resources.duration_seconds),
            ledger,
            disagreement: None,
            stop: None,
            cancel: None,
            told: None,
            telemetry: Stream::new(pipes.telemetry)?,
            lines: Lines::default(),
            count: 0,
            heard: 0,
            writer: Writer::create(&folder.telemetry())?,
            control: pipes.control.map(File::from),
            told_to_drain: false,
            seen: Sight::default(),
            snapshots,
            stdout: (
                Stream::new(pipes.stdout)?,
                Capture::create(&folder.stdout(), cap)?.without(supervisor.secrets.clone()),
            ),
            stderr: (
                Stream::new(pipes.stderr)?,
                Capture::create(&folder.stderr(), cap)?.without(supervisor.secrets.clone()),
            ),
        })
    }

    /// Watches until the worker's process has ended.
    pub(crate) fn follow(&mut self, running: &Running) {
        loop {
            let turn = self.turn(running);
            match turn {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => self.give_up(running, Stop::Supervisor(error.to_string())),
            }
        }
    }

    /// Reads what is left in the pipes, once every process of the run has ended.
    pub(crate) fn drain(&mut self) -> Result<(), RuntimeError> {
        while self.read()? {}
        self.stdout.1.finish()?;
        self.stderr.1.finish()?;
        self.writer.settle()
    }

    /// Bytes of a last line that never became whole.
    pub(crate) fn torn(&self) -> usize {
        self.lines.torn()
    }

    /// Bytes of standard output and standard error beyond the cap.
    pub(crate) fn dropped(&self) -> (u64, u64) {
        (self.stdout.1.dropped(), self.stderr.1.dropped())
    }

    /// One turn; says whether the worker's process has ended.
    fn turn(&mut self, running: &Running) -> Result<bool, RuntimeError> {
        let streams = [&self.telemetry, &self.stdout.0, &self.stderr.0];
        let ended = wait_for(&streams, running, &self.supervisor.signals)?;
        self.read()?;
        self.seen.look(running, self.count > 0);
        self.take_snapshots(running.outputs())?;
        self.consider_cancel(running)?;
        self.consider_drain()?;
        self.consider_time(running);
        Ok(ended)
    }

    /// Reads some of each pipe; says whether there was anything.
    fn read(&mut self) -> Result<bool, RuntimeError> {
        let mut any = false;
        for (stream, capture) in [&mut self.stdout, &mut self.stderr] {
            let bytes = stream.take();
            any |= !bytes.is_empty();
            capture.push(&bytes)?;
        }
        let bytes = self.telemetry.take();
        any |= !bytes.is_empty();
        self.hear(&bytes)?;
        Ok(any)
    }

    /// Takes in telemetry. After the first thing that cannot be true nothing more is believed.
    fn hear(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        if self.disagreement.is_some() {
            return Ok(());
        }
        self.heard += bytes.len() as u64;
        let most = self.plan.intent.resources.storage_bytes;
        if self.heard > most {
            let why = format!("there are more than the {most} bytes that the intent gives to what is written");
            self.disagreement = Some(Disagreement::NoMessage { line: self.count + 1, why });
            return Ok(());
        }
        let lines = match self.lines.push(bytes) {
            Ok(lines) => lines,
            Err(error) => {
                self.disagreement = Some(Disagreement::NoMessage { line: self.count + 1, why: error.to_string() });
                return Ok(());
            }
        };
        for line in lines {
            self.count += 1;
            if let Err(disagreement) = self.enter(&line)? {
                self.disagreement = Some(disagreement);
                break;
            }
        }
        Ok(())
    }

    /// The secrets of the run.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.supervisor.secrets
    }

    fn enter(&mut self, line: &[u8]) -> Result<Result<(), Disagreement>, RuntimeError> {
        // Looked for before anything else: what is wrong with a line is said with a part of it.
        if let Some(name) = self.secrets().in_bytes(line) {
            let why = format!("it holds the bytes of the secret {name}");
            return Ok(Err(Disagreement::NoMessage { line: self.count, why }));
        }
        let read = if self.ledger.is_command() {
            let told = Metric::told(line).map(|metric| Box::new(metric.chain_to(self.ledger.chain())));
            told.map(|line| Message::Metric { line }).map_err(|faults| faults.to_string())
        } else {
            telemetry::message(line)
        };
        let message = match read {
            Ok(message) => message,
            Err(why) => return Ok(Err(Disagreement::NoMessage { line: self.count, why })),
        };
        if let Err(disagreement) = self.ledger.enter(&message) {
            return Ok(Err(disagreement));
        }
        self.snapshots.hear(&message);
        self.writer.append(&message).map(Ok)
    }

    /// Takes in the snapshots that the worker has told of, and tells it so.
    pub(crate) fn take_snapshots(&mut self, outputs: Option<&Outputs>) -> Result<(), RuntimeError> {
        let (Some(outputs), None) = (outputs, &self.disagreement) else { return Ok(()) };
        while let Some(taken) = self.snapshots.take_next(self.supervisor, outputs, self.ledger.reported())? {
            match taken {
                // The worker may be gone, and then nobody needs to know.
                Ok(step) => {
                    self.say(&format!("taken {step}"));
                }
                Err(disagreement) => {
                    self.disagreement = Some(disagreement);
                    break;
                }
            }
        }
        Ok(())
    }

    fn consider_drain(&mut self) -> Result<(), RuntimeError> {
        if !self.told_to_drain && self.ledger.end().is_none() && self.supervisor.drain_asked()?.is_some() {
            self.snapshots.keep_all();
            // Told again in the next turn, if it could not be told now.
            self.told_to_drain = self.say("drain");
        }
        Ok(())
    }

    /// Says a word to the worker; whether it could be said. A command does not listen.
    fn say(&mut self, word: &str) -> bool {
        self.control.as_mut().is_some_and(|control| control.write_all(format!("{word}\n").as_bytes()).is_ok())
    }

    fn consider_cancel(&mut self, running: &Running) -> Result<(), RuntimeError> {
        if self.disagreement.is_some() {
            self.give_up(running, Stop::Telemetry);
        }
        if self.cancel.is_none()
            && let Some(cancel) = self.supervisor.cancel_asked()?
        {
            self.cancel = Some(cancel.by);
            self.tell(running, Stop::Cancel);
        }
        Ok(())
    }

    fn consider_time(&mut self, running: &Running) {
        let (deadline, seconds) = self.deadline;
        if Instant::now() >= deadline {
            self.tell(running, Stop::Time(seconds));
        }
        if self.told.is_some_and(|told| told.elapsed() >= GRACE) {
            kill(running, Signal::SIGKILL);
        }
    }

    /// Tells the worker to stop; the first reason is the one that counts.
    fn tell(&mut self, running: &Running, why: Stop) {
        if self.stop.is_some() {
            return;
        }
        // A worker that has reported completion only has to exit: it gets the grace time for that, undisturbed, since
        // an end that was reached beats a wish to stop (X90).
        let done = matches!(self.ledger.end(), Some(End::Completed { .. }));
        if !(done && why == Stop::Cancel) {
            kill(running, Signal::SIGTERM);
        }
        self.stop = Some(why);
        self.told = Some(Instant::now());
    }

    /// Kills the worker: what it would still do is of no use.
    pub(crate) fn give_up(&mut self, running: &Running, why: Stop) {
        self.stop.get_or_insert(why);
        kill(running, Signal::SIGKILL);
    }
}

/// Waits until there is something to do, at most [`PERIOD`]; says whether the worker's process has ended.
pub(crate) fn wait_for(streams: &[&Stream], running: &Running, signals: &Signals) -> Result<bool, RuntimeError> {
    let mut waiting = vec![PollFd::new(running.over(), PollFlags::POLLIN)];
    waiting.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
    waiting.extend(streams.iter().filter_map(|s| s.waiting()).map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
    match poll(&mut waiting, PollTimeout::from(PERIOD)) {
        Ok(_) | Err(Errno::EINTR) => Ok(waiting[0].any().unwrap_or(false)),
        Err(errno) => Err(system("poll")(errno)),
    }
}

/// A worker that has ended cannot be signalled, which is what was wanted.
fn kill(running: &Running, signal: Signal) {
    drop(running.signal(signal));
}
