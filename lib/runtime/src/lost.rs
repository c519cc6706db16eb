//! Closing a run that no worker ran, or whose end nobody saw.
//!
//! A workload is started at most once, whatever is killed when. The process that is to become it holds the lock of the
//! run too, and writes a byte into that file as its last act before the exec. Whoever has the lock of a dead supervisor
//! and finds the file empty knows that no worker ran and none will, and starts one. With a byte in it the run is lost, and
//! a person can retry it. Exactly once cannot be had: a start and its record are two acts, and of a workload that was
//! killed after that byte and before it left any trace nobody can say whether it did anything.

use std::fs::File;
use std::time::Duration;

use xt_core::digest::Digest;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{AtFault, Observed, ProcessExit, Progress, Run, Status};
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_record::{Attempt, Liveness, Process};

use crate::conclude::{Dropped, Findings, Place};
use crate::error::RuntimeError;
use crate::folder::{Folder, filled, read_document, try_lock};
use crate::ledger::Ledger;
use crate::resume::Before;
use crate::run_documents::{Ended, Launched, Started};
use crate::scope::Scope;
use crate::telemetry::Follower;

/// Nothing was observed.
pub(crate) const UNOBSERVED: Observed = Observed {
    wall_nanoseconds: None,
    cpu_nanoseconds: None,
    peak_memory_bytes: None,
    survivors_killed: None,
    out_of_memory_kills: None,
    process_limit_hits: None,
    throttled_periods: None,
    throttled_nanoseconds: None,
    denied_calls: None,
    denied: None,
    opened: None,
    mapped: None,
    digests_cached: None,
};

/// So many supervisors are replaced before an attempt is given up: something takes them away.
const PATIENCE: u64 = 3;

/// How often the lock of a dead supervisor is asked for, and how long to wait in between: the kernel may still be
/// ending what it was about to start.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The lock of a run whose supervisor is dead; `None` when another process is closing the run.
fn lock_soon(folder: &Folder) -> Result<Option<File>, RuntimeError> {
    for _ in 1..TRIES {
        if let Some(lock) = try_lock(folder)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(PAUSE);
    }
    try_lock(folder)
}

/// Nobody saw an exit.
pub(crate) const NO_EXIT: ProcessExit = ProcessExit { code: None, signal: None };

/// What can be said of a supervisor.
#[derive(Debug)]
pub(crate) enum Closing {
    /// It lives, there was none yet, or another process is closing the run.
    Lives,
    /// It is gone, and the run is closed.
    Closed,
    /// It is gone and never came to start a worker, so another one can take its place.
    Unlaunched,
    /// It holds no lock, and whether it lives cannot be seen from here (E-04). A person must look.
    Unseen(String),
}

impl Place {
    /// Findings of a run that no worker ran.
    pub(crate) fn nothing(&self, plan: &Plan, id: Digest, scope: Scope) -> Findings {
        let planned = scope.planned(plan);
        Findings {
            mode: scope.mode,
            status: Status::NotStarted,
            at_fault: AtFault::Blocked,
            cause: String::new(),
            exit: NO_EXIT,
            progress: Progress { planned, steps: 0, updates: 0, skipped: 0, completed: false, stopped: None },
            chain: id,
            stack: None,
            start: scope.from,
            before: Vec::new(),
            cadence: scope.cadence,
            custody: None,
            environment: plan.environment.clone(),
            observed: UNOBSERVED,
            dropped: Dropped::default(),
            started: self.clock.now(),
            finished: None,
        }
    }

    /// What was taken before the run that is to be closed, if it goes on from a snapshot. Notes it in `findings`.
    pub(crate) fn before(&self, plan: &Plan, findings: &mut Findings) -> Result<Option<Before>, RuntimeError> {
        let Some(start) = &findings.start else { return Ok(None) };
        let before = Before::read(&self.store, plan, start)?;
        findings.before.clone_from(&before.lines);
        findings.progress.steps = before.last.step;
        findings.progress.skipped = before.skipped;
        findings.progress.updates = before.last.step - before.skipped;
        findings.progress.stopped = before.early.stopped().cloned();
        findings.chain = before.last.chain;
        Ok(Some(before))
    }

    /// The plan of an attempt.
    pub(crate) fn plan(&self, attempt: &Attempt) -> Result<Plan, RuntimeError> {
        Ok(self.store.manifest(attempt.plan)?)
    }

    /// The run record of an attempt that has ended; `None` when it has not.
    pub(crate) fn ended(&self, attempt: &Attempt) -> Result<Option<Run>, RuntimeError> {
        match attempt.run_record {
            Some(id) => Ok(Some(self.store.manifest(id)?)),
            None if attempt.state.is_terminal() => Err(RuntimeError::NoRun(attempt.id.clone())),
            None => Ok(None),
        }
    }

    /// Cancels an attempt that no supervisor has claimed, by claiming it here; `None` when another claimed it first.
    pub(crate) fn cancel_unclaimed(&self, attempt: &Attempt, by: &str) -> Result<Option<Run>, RuntimeError> {
        let folder = Folder::of(self.store.path(), &attempt.id);
        folder.create()?;
        let Some(_lock) = try_lock(&folder)? else { return Ok(None) };
        let me = Process::own().map_err(crate::error::file("read", std::path::Path::new("/proc/self/stat")))?;
        match self.record.claim(&attempt.id, &me, self.clock.now()) {
            Err(xt_record::RecordError::Claimed { .. }) => return Ok(None),
            claimed => claimed?,
        };
        let plan = self.plan(attempt)?;
        let mut findings = self.nothing(&plan, attempt.plan, Scope::recorded(attempt, &plan)?);
        (findings.status, findings.at_fault) = (Status::Cancelled, AtFault::Nobody);
        findings.cause = format!("before it started: {by}");
        self.conclude(attempt, &plan, findings).map(Some)
    }

    /// Closes an attempt whose supervisor is gone: with what the supervisor knew of its end, if it came to write that;
    /// else as lost, unless no worker was ever started.
    ///
    /// Gone means both: the process that claimed it does not run, and nobody holds the lock that a supervisor holds as
    /// long as it lives. Either alone can mislead: a number is used again, and not every file system locks.
    pub(crate) fn close_if_lost(&self, attempt: &Attempt) -> Result<Closing, RuntimeError> {
        let Some(process) = &attempt.process else { return Ok(Closing::Lives) };
        let liveness = process.liveness();
        if liveness == Liveness::Alive {
            return Ok(Closing::Lives);
        }
        let folder = Folder::of(self.store.path(), &attempt.id);
        folder.create()?;
        let lock = if liveness == Liveness::Dead { lock_soon(&folder)? } else { try_lock(&folder)? };
        let Some(_lock) = lock else { return Ok(Closing::Lives) };
        let known = self.record.attempt(&attempt.id)?;
        if known.is_some_and(|known| known.state.is_terminal()) {
            return Ok(Closing::Closed);
        }
        if liveness == Liveness::Unknown {
            return Ok(Closing::Unseen(process.to_string()));
        }
        let plan = self.plan(attempt)?;
        let findings = match filled::<Ended>(&folder.ended())?.filter(|ended| ended.attempt == attempt.id) {
            Some(ended) => self.recalled(ended, attempt, &plan)?,
            None if !never_launched(&folder, process) || attempt.state != AttemptState::Starting => {
                self.lost(attempt, &plan, &folder, process)?
            }
            None if self.record.reclaims(&attempt.id)? < PATIENCE => return Ok(Closing::Unlaunched),
            None => self.given_up(attempt, &plan)?,
        };
        self.conclude(attempt, &plan, findings).map(|_| Closing::Closed)
    }

    /// What the supervisor knew of the end, with what the record says.
    fn recalled(&self, ended: Ended, attempt: &Attempt, plan: &Plan) -> Result<Findings, RuntimeError> {
        let mut findings = Findings::from(ended);
        let Scope { cadence, from, .. } = Scope::recorded(attempt, plan)?;
        findings.cadence = cadence;
        if let Some(start) = &from {
            findings.before = Before::read(&self.store, plan, start)?.lines;
        }
        findings.start = from;
        Ok(findings)
    }

    fn given_up(&self, attempt: &Attempt, plan: &Plan) -> Result<Findings, RuntimeError> {
        let mut findings = self.nothing(plan, attempt.plan, Scope::recorded(attempt, plan)?);
        findings.harness(format!("{} supervisors in a row were gone before they started a worker", PATIENCE + 1));
        Ok(findings)
    }

    fn lost(&self, attempt: &Attempt, plan: &Plan, folder: &Folder, by: &Process) -> Result<Findings, RuntimeError> {
        let started: Option<Started> = read_document(&folder.started())?;
        let launched: Option<Launched> = read_document(&folder.launched())?;
        let mut findings = self.nothing(plan, attempt.plan, Scope::recorded(attempt, plan)?);
        let mut ledger = Ledger::new(plan, attempt.plan, findings.progress.planned);
        if let Some(before) = self.before(plan, &mut findings)? {
            ledger = ledger.after(&before);
        }
        // What was written was accepted then; the first line that is not ends what can be trusted.
        let heard = Follower::new(&folder.telemetry()).news(&mut |message| Ok(ledger.enter(&message).is_ok()));
        if let Err(RuntimeError::File { .. }) = heard {
            heard?;
        }
        findings.status = Status::Lost;
        findings.harness(format!("its supervisor, {by}, was gone, and nobody saw how the run ended"));
        findings.progress = ledger.progress();
        findings.chain = ledger.chain();
        if let Some(started) = started {
            findings.started = started.at;
        }
        if let Some(launched) = launched {
            findings.custody = Some(launched.custody);
            findings.environment = launched.environment;
            findings.stack = Some(launched.stack);
        }
        if let (Some(stack), Some(reported)) = (&mut findings.stack, ledger.reported()) {
            stack.reported = Some(reported.clone());
        }
        Ok(findings)
    }
}

/// Whether the supervisor that is gone cannot have come to run a worker. Asked by whoever has the lock of the run: then no
/// process is left that was on its way to become one, and the last thing such a process does is to leave its mark. After
/// another boot nobody can say: the mark may not have come to the disk.
pub(crate) fn never_launched(folder: &Folder, gone: &Process) -> bool {
    let unmarked = std::fs::metadata(folder.lock()).is_ok_and(|lock| lock.len() == 0);
    unmarked && Process::own().is_ok_and(|own| own.boot_id == gone.boot_id)
}
