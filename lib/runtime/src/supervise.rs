//! The supervisor: a process in a session of its own that owns one attempt from claim to end. It is this same program,
//! started again with a hidden flag; it has one thread, because the sandbox forks.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{close, dup2_stdout, setsid};
use xt_core::fault::Faults;
use xt_core::field::object;
use xt_core::manifest::action::ActionKind;
use xt_core::manifest::event::Level;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{AtFault, Run, Status};
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;
use xt_record::{Asked, Attempt, Liveness, Process, RecordError, Wish};
use xt_sandbox::{Limits, Running};

use crate::actions;
use crate::clock::Clock;
use crate::conclude::{Findings, Place};
use crate::ending;
use crate::error::{RuntimeError, file, system};
use crate::folder::{Folder, fill, read_document, reserve, try_lock, write_document};
use crate::launch::{self, Training};
use crate::ledger::Ledger;
use crate::lost::never_launched;
use crate::outcome::Stop;
use crate::run_documents::{Cancel, Launched, Order, Started};
use crate::run_snapshots::RunSnapshots;
use crate::scope::Scope;
use crate::secrets::Secrets;
use crate::signals::Signals;
use crate::watch::Watch;

/// The hidden flag that makes a tool a supervisor.
pub const FLAG: &str = "--supervise";
/// How often a supervisor tries to close its run, and how long it waits before it tries again.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

/// What a supervisor says when the attempt is its own.
pub(crate) const CLAIMED: &str = "claimed";
/// What it says when another has it.
pub(crate) const TAKEN: &str = "taken";

/// Becomes a supervisor when the command line says so. A tool that starts runs calls this before anything else and
/// exits with what it gives.
pub fn supervise_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let rest: Vec<OsString> = arguments.collect();
    let [store, attempt] = &rest[..] else { return Some(ExitCode::from(2)) };
    let Some(attempt) = attempt.to_str().and_then(Name::new) else { return Some(ExitCode::from(2)) };
    Some(match supervise(Path::new(store), &attempt) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Read by whoever started this, or by nobody; and kept in the log of the run.
            drop(writeln!(std::io::stdout(), "{error}"));
            drop(writeln!(std::io::stderr(), "{error}"));
            ExitCode::from(20)
        }
    })
}

fn supervise(store: &Path, attempt: &Name) -> Result<(), RuntimeError> {
    close_inherited()?;
    if let Err(errno) = setsid() {
        // Only the leader of a group cannot leave it: a supervisor that someone started by hand.
        drop(writeln!(std::io::stderr(), "setsid: {errno}"));
    }
    let signals = Signals::block()?;
    let begun = Instant::now();
    let place = Place::open(store, Clock::from_environment())?;
    let folder = Folder::of(place.store.path(), attempt);
    let Some(lock) = try_lock(&folder)? else { return answer(TAKEN) };
    let Some(attempt) = claim(&place, &folder, attempt)? else { return answer(TAKEN) };
    note_start(&place, &folder, &attempt)?;
    answer(CLAIMED)?;
    // A terminal would wait for ever, so that nothing is read unless something is due.
    let due = !place.plan(&attempt)?.intent.secrets.is_empty();
    let secrets = if due { Secrets::unpack()? } else { Secrets::default() };
    Supervisor { place, folder, lock, signals, begun, secrets }.work(&attempt).map(drop)
}

/// Takes the attempt; `None` when another process has it or it has ended. The lock of the run is ours.
fn claim(place: &Place, folder: &Folder, attempt: &Name) -> Result<Option<Attempt>, RuntimeError> {
    let me = Process::own().map_err(file("read", Path::new("/proc/self/stat")))?;
    let gone = match place.record.claim(attempt, &me, place.clock.now()) {
        Ok(attempt) => return Ok(Some(attempt)),
        Err(RecordError::Claimed { owner, .. }) => owner,
        Err(RecordError::Illegal { .. } | RecordError::Settled { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // One that is gone and never came to start a worker is replaced: the workload was not started yet.
    if gone.liveness() != Liveness::Dead || !never_launched(folder, &gone) {
        return Ok(None);
    }
    match place.record.reclaim(attempt, &gone, &me, place.clock.now()) {
        // What the other one had laid out may be half of it.
        Ok(attempt) => folder.renew().map(|()| Some(attempt)),
        Err(RecordError::Claimed { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn note_start(place: &Place, folder: &Folder, attempt: &Attempt) -> Result<(), RuntimeError> {
    let Some(process) = &attempt.process else { return Ok(()) };
    let started = Started {
        attempt: attempt.id.clone(),
        pid: process.pid.into(),
        start_time: process.start_time,
        boot_id: process.boot_id.clone(),
        at: place.clock.now(),
    };
    write_document(&folder.started(), &started)
}

/// Closes every descriptor but the first three: whatever the caller left open is none of a run's business.
fn close_inherited() -> Result<(), RuntimeError> {
    let path = PathBuf::from("/proc/self/fd");
    let entries = std::fs::read_dir(&path).map_err(file("read", &path))?;
    let numbers: Vec<RawFd> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        match close(number) {
            // EBADF: the descriptor of the listing itself, closed already.
            Ok(()) | Err(Errno::EBADF) => {}
            Err(errno) => return Err(system("close")(errno)),
        }
    }
    Ok(())
}

/// Tells whoever started this process, and lets go of it: it may be gone, and it may wait for the end of this pipe.
fn answer(word: &str) -> Result<(), RuntimeError> {
    drop(writeln!(std::io::stdout(), "{word}"));
    let null = Path::new("/dev/null");
    let nowhere = std::fs::OpenOptions::new().write(true).open(null).map_err(file("open", null))?;
    dup2_stdout(&nowhere).map_err(system("dup2"))
}

/// One attempt and everything its supervisor works with.
pub(crate) struct Supervisor {
    pub(crate) place: Place,
    pub(crate) folder: Folder,
    /// The lock of the run.
    pub(crate) lock: File,
    pub(crate) signals: Signals,
    pub(crate) begun: Instant,
    pub(crate) secrets: Secrets,
}

impl Supervisor {
    /// Runs the attempt to its end and closes it. Whatever fails on the way becomes the cause of its end.
    fn work(&self, attempt: &Attempt) -> Result<Run, RuntimeError> {
        let plan = self.place.plan(attempt)?;
        let order: Option<Order> = read_document(&self.folder.order())?;
        let reserved = reserve(&self.folder.ended());
        let scope = Scope::recorded(attempt, &plan)?;
        let mut findings = self.place.nothing(&plan, attempt.plan, scope.clone());
        match &order {
            _ if reserved.is_err() => {
                findings.harness(reserved.err().map_or_else(String::new, |error| error.to_string()));
            }
            Some(order) => self.run(attempt, (&plan, &scope), order, &mut findings),
            None => findings.harness("there is no order that says which worker to start".into()),
        }
        let passed = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        findings.observed.wall_nanoseconds = Some(passed);
        findings.finished = Some(self.place.clock.now());
        self.settle(attempt, &plan, findings)
    }

    /// Keeps what is known of the end, then closes the run. A store that is full or a record that is locked may not be so
    /// for long; if it stays so, whoever reconciles closes the run with what is kept.
    fn settle(&self, attempt: &Attempt, plan: &Plan, findings: Findings) -> Result<Run, RuntimeError> {
        let kept = findings.paper(&attempt.id, self.place.clock.now());
        if let Err(error) = fill(&self.folder.ended(), &kept) {
            drop(writeln!(std::io::stderr(), "{error}"));
        }
        let mut closed = self.place.conclude(attempt, plan, findings);
        for _ in 1..TRIES {
            let Err(error) = &closed else { break };
            drop(writeln!(std::io::stderr(), "{error}"));
            std::thread::sleep(PAUSE);
            closed = self.place.conclude(attempt, plan, kept.clone().into());
        }
        closed
    }

    fn run(&self, attempt: &Attempt, (plan, scope): (&Plan, &Scope), order: &Order, findings: &mut Findings) {
        let mut lacking = Faults::new();
        self.secrets.check(&plan.intent.secrets, &mut lacking);
        if !lacking.is_empty() {
            findings.cause = format!("the secrets of the plan did not come along: {lacking}");
            return;
        }
        match self.cancel_asked() {
            Ok(None) => {}
            Ok(Some(cancel)) => {
                (findings.status, findings.at_fault) = (Status::Cancelled, AtFault::Nobody);
                findings.cause = format!("before it started: {}", cancel.by);
                return;
            }
            Err(error) => {
                findings.harness(error.to_string());
                return;
            }
        }
        let before = match self.place.before(plan, findings) {
            Ok(before) => before,
            Err(error) => {
                findings.harness(format!("there is nothing to go on from: {error}"));
                return;
            }
        };
        match launch::launch(self, (plan, scope), order, before.as_ref(), findings) {
            Err(error) => findings.cause = format!("the worker did not start: {error}"),
            Ok(Training { launch, mut held }) => {
                let mut ledger = Ledger::new(plan, attempt.plan, findings.progress.planned);
                if let Some(before) = &before {
                    ledger = ledger.after(before);
                }
                let snapshots = RunSnapshots::new(attempt, plan, scope.cadence.clone(), held.stack(), launch.limits);
                let watch = Watch::new(self, ledger, snapshots, launch.pipes);
                self.attend(attempt, (launch.running, launch.limits), watch, findings);
                findings.observed.digests_cached = Some(held.cached());
                let altered =
                    held.altered().and_then(|path| path.map_or(Ok(()), |path| Err(RuntimeError::Altered(path))));
                if let (Err(error), Status::Succeeded) = (altered, findings.status) {
                    findings.status = Status::Failed;
                    findings.harness(error.to_string());
                }
            }
        }
    }

    /// Stays with a worker until it has ended, and enters what was seen.
    fn attend(
        &self,
        attempt: &Attempt,
        (running, limits): (Running, Limits),
        watch: Result<Watch<'_>, RuntimeError>,
        findings: &mut Findings,
    ) {
        let noted = self.note_launch(attempt, findings);
        let mut watch = match watch {
            Ok(watch) => watch,
            Err(error) => {
                // Dropped, it takes the worker with it.
                drop(running);
                findings.status = Status::Failed;
                findings.harness(format!("the supervisor could not go on: {error}"));
                return;
            }
        };
        if let Err(error) = noted {
            watch.give_up(&running, Stop::Supervisor(error.to_string()));
        }
        watch.follow(&running);
        ending::enter(watch, running, &self.folder.outputs(), &limits, findings);
    }

    fn note_launch(&self, attempt: &Attempt, findings: &Findings) -> Result<(), RuntimeError> {
        if let (Some(stack), Some(custody)) = (&findings.stack, &findings.custody) {
            let launched = Launched {
                attempt: attempt.id.clone(),
                stack: stack.clone(),
                custody: custody.clone(),
                environment: findings.environment.clone(),
            };
            write_document(&self.folder.launched(), &launched)?;
        }
        let now = self.place.clock.now();
        self.place.record.transition(&attempt.id, AttemptState::Running, now, &object([]))?;
        Ok(())
    }

    /// The request to stop this run, if one came: a file, or a signal to this process, which then becomes a file.
    pub(crate) fn cancel_asked(&self) -> Result<Option<Cancel>, RuntimeError> {
        if let Some(signal) = self.signals.take()? {
            self.note_signal(signal.as_str())?;
        }
        read_document(&self.folder.cancel())
    }

    /// The request to stop at a step boundary, if one came.
    pub(crate) fn drain_asked(&self) -> Result<Option<Cancel>, RuntimeError> {
        read_document(&self.folder.drain())
    }

    /// The wish goes into the record like any other. A record that cannot be written does not make it unheard.
    fn note_signal(&self, signal: &str) -> Result<(), RuntimeError> {
        let name = self.folder.root().file_name().and_then(|name| name.to_str()).and_then(Name::new);
        let Some(attempt) = name else { return Ok(()) };
        let by = format!("{signal} to the supervisor");
        let (level, now) = (Level::Attempt, self.place.clock.now());
        let wish = Wish { kind: ActionKind::Cancel, level, target: attempt.clone(), by: by.clone(), now };
        match self.place.record.ask(&wish) {
            Ok(Asked::New(action) | Asked::Open(action)) => {
                actions::deliver(&self.place, &action)?;
            }
            Ok(Asked::Ended) => {}
            Err(error) => {
                drop(writeln!(std::io::stderr(), "{error}"));
                let cancel = Cancel { attempt, by, at: now };
                crate::folder::write_once(&self.folder.cancel(), &cancel)?;
            }
        }
        Ok(())
    }
}
