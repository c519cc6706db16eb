//! How a run is closed: its evidence goes into the store, its outputs into the store or into quarantine, its end into
//! the record, and `finished.json` is written last.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::instant::Instant;
use xt_core::manifest::Artifact;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::evaluation::{Evaluation, Metrics};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{
    AtFault, Log, Logs, Observed, ProcessExit, Progress, Run, Stack, Start, Status, TraceReference,
};
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Trace;
use xt_core::name::Name;
use xt_core::random;
use xt_core::verb::chain::LINES;
use xt_core::verb::evaluate;
use xt_core::verb::settle::AttemptState;
use xt_record::{Attempt, Record};
use xt_store::{Store, Writer};

use crate::clock::Clock;
use crate::error::{RuntimeError, file};
use crate::folder::{Folder, read_document, write_document};
use crate::run_documents::{Ended, Finished};
use crate::stored_snapshots::taken;
use crate::telemetry::Follower;

/// What stands in the record for the generator of a command.
const OWN_GENERATOR: &str = "the program's own";

/// Where a run is closed: the store, the record, the clock.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) record: Record,
    pub(crate) clock: Clock,
}

/// What is known of a run that has ended, beyond what lies in its folder.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) mode: Mode,
    pub(crate) status: Status,
    pub(crate) at_fault: AtFault,
    pub(crate) cause: String,
    pub(crate) exit: ProcessExit,
    pub(crate) progress: Progress,
    pub(crate) chain: Digest,
    pub(crate) stack: Option<Stack>,
    pub(crate) start: Option<Start>,
    /// The lines of the steps before the start.
    pub(crate) before: Vec<u8>,
    pub(crate) cadence: Cadence,
    pub(crate) custody: Option<Custody>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) observed: Observed,
    pub(crate) dropped: Dropped,
    pub(crate) started: Instant,
    /// When it ended; `None` for when it is closed.
    pub(crate) finished: Option<Instant>,
}

impl Findings {
    /// Enters that what runs the attempt failed.
    pub(crate) fn harness(&mut self, cause: String) {
        (self.at_fault, self.cause) = (AtFault::Harness, cause);
    }

    /// As they are kept in the folder of the run.
    pub(crate) fn paper(&self, attempt: &Name, now: Instant) -> Ended {
        Ended {
            attempt: attempt.clone(),
            mode: self.mode,
            status: self.status,
            at_fault: self.at_fault,
            cause: self.cause.clone(),
            exit: self.exit.clone(),
            progress: self.progress.clone(),
            chain: self.chain,
            stack: self.stack.clone(),
            custody: self.custody.clone(),
            environment: self.environment.clone(),
            observed: self.observed.clone(),
            stdout_dropped: self.dropped.stdout,
            stderr_dropped: self.dropped.stderr,
            started: self.started,
            finished: self.finished.unwrap_or(now),
        }
    }
}

impl From<Ended> for Findings {
    fn from(ended: Ended) -> Self {
        Self {
            mode: ended.mode,
            status: ended.status,
            at_fault: ended.at_fault,
            cause: ended.cause,
            exit: ended.exit,
            progress: ended.progress,
            chain: ended.chain,
            stack: ended.stack,
            // What the order says is added by whoever has it.
            start: None,
            before: Vec::new(),
            cadence: Cadence::NONE,
            custody: ended.custody,
            environment: ended.environment,
            observed: ended.observed,
            dropped: Dropped { stdout: ended.stdout_dropped, stderr: ended.stderr_dropped },
            started: ended.started,
            finished: Some(ended.finished),
        }
    }
}

/// Bytes of the streams that were beyond the cap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

impl Place {
    /// Opens the store at `path`, which must exist, and its record.
    pub(crate) fn open(path: &Path, clock: Clock) -> Result<Self, RuntimeError> {
        let store = Store::open(path)?;
        let record = Record::open(&store.record_path())?;
        Ok(Self { store, record, clock })
    }

    /// Closes `attempt`, which ran `plan`, and gives its run record.
    pub(crate) fn conclude(&self, attempt: &Attempt, plan: &Plan, findings: Findings) -> Result<Run, RuntimeError> {
        let folder = Folder::of(self.store.path(), &attempt.id);
        // What is stored here has no name before the run is closed.
        let _hold = self.store.hold()?;
        let mut writer = self.store.writer()?;
        let logs = Logs {
            stdout: log(&mut writer, &folder.stdout(), findings.dropped.stdout)?,
            stderr: log(&mut writer, &folder.stderr(), findings.dropped.stderr)?,
        };
        let trace = trace(&mut writer, &folder, attempt, plan, &findings)?;
        let custody = findings.custody.as_ref().map(|custody| writer.put_manifest(custody)).transpose()?;
        let succeeded = findings.status == Status::Succeeded;
        let trace_copy = plan.native().map(|_| LINES);
        let artifacts = if succeeded { keep(&mut writer, &folder.outputs(), trace_copy)? } else { Vec::new() };
        let quarantined =
            if succeeded { Vec::new() } else { quarantine(&self.store, &folder, &attempt.id.to_string())? };
        let snapshots = taken(&self.store, &attempt.id)?;
        let run = Run {
            attempt: attempt.id.clone(),
            operation: attempt.operation.clone(),
            plan: attempt.plan,
            request: plan.request,
            fingerprint: plan.fingerprint,
            mode: findings.mode,
            regime: plan.candidate.regime(),
            precision: plan.candidate.precision(),
            generator: if plan.command().is_some() { OWN_GENERATOR } else { random::GENERATOR }.into(),
            seed: plan.seed,
            dataset: plan.dataset_id(),
            inputs: plan.inputs.clone(),
            stack: findings.stack,
            environment: findings.environment,
            intent: plan.intent.clone(),
            isolation: plan.intent.isolation.profile,
            custody,
            status: findings.status,
            at_fault: findings.at_fault,
            cause: findings.cause,
            exit: findings.exit,
            progress: findings.progress,
            trace,
            start: findings.start,
            cadence: findings.cadence,
            snapshots,
            artifacts,
            quarantined,
            logs,
            started: findings.started,
            finished: findings.finished.unwrap_or_else(|| self.clock.now()),
            observed: findings.observed,
        };
        let id = writer.put_manifest(&run)?;
        let measured = measured(&folder, plan, &run)?;
        if let Some(evaluation) = &measured {
            writer.put_manifest(evaluation)?;
        }
        writer.commit()?;
        if let Some(evaluation) = &measured {
            let (id, reason) = (evaluation.id(), format!("evaluation of bundle {}", evaluation.subject.bundle));
            self.store.set_reference(&format!("evaluations/{}", id.hex()), id, &reason)?;
        }
        self.close(attempt, &folder, &run, id)?;
        Ok(run)
    }

    fn close(&self, attempt: &Attempt, folder: &Folder, run: &Run, id: Digest) -> Result<(), RuntimeError> {
        let reason = format!("run record, {}", run.status);
        self.store.set_reference(&format!("runs/{}", attempt.id), id, &reason)?;
        self.record.settle(&attempt.id, AttemptState::from(run.status), &id, run.finished)?;
        for spent in [folder.inputs(), folder.outputs(), folder.workspace(), folder.snapshots()] {
            clear(&spent)?;
        }
        let finished = Finished { attempt: attempt.id.clone(), run: id, status: run.status, at: run.finished };
        write_document(&folder.finished(), &finished)
    }
}

/// What a succeeded run has measured.
fn measured(folder: &Folder, plan: &Plan, run: &Run) -> Result<Option<Evaluation>, RuntimeError> {
    if plan.evaluation.is_none() || run.status != Status::Succeeded {
        return Ok(None);
    }
    let metrics: Option<Metrics> = read_document(&folder.outputs().join(evaluate::METRICS))?;
    Ok(metrics.and_then(|metrics| evaluate::evaluation(plan, run, metrics)))
}

/// Stores one captured stream; a run that never started has none, which is the same as an empty one.
fn log(writer: &mut Writer<'_>, path: &Path, dropped: u64) -> Result<Log, RuntimeError> {
    if !path.exists() {
        return Ok(Log { digest: writer.put(b"")?, bytes: 0, dropped });
    }
    let (digest, bytes) = writer.put_file(path)?;
    Ok(Log { digest, bytes, dropped })
}

/// Stores the lines of the trace and its head.
///
/// A command may say nothing at all: then the trace of a run that succeeded is there, and empty.
fn trace(
    writer: &mut Writer<'_>,
    folder: &Folder,
    attempt: &Attempt,
    plan: &Plan,
    findings: &Findings,
) -> Result<Option<TraceReference>, RuntimeError> {
    let steps = findings.progress.steps;
    let silent = plan.command().is_some() && findings.status == Status::Succeeded;
    if (steps == 0 && !silent) || findings.mode == Mode::Evaluation {
        return Ok(None);
    }
    let plan = attempt.plan;
    write_steps(folder, &findings.before, steps - findings.start.as_ref().map_or(0, |start| start.step.min(steps)))?;
    let (lines, _) = writer.put_file(&folder.steps())?;
    writer.put_manifest(&Trace { plan, steps, lines, chain: findings.chain })?;
    Ok(Some(TraceReference { digest: lines, steps, chain: findings.chain }))
}

/// Writes the lines of the trace: those from `before` the start, and the first `count` steps of the telemetry, which are
/// the good ones when a bad one follows.
fn write_steps(folder: &Folder, before: &[u8], count: u64) -> Result<(), RuntimeError> {
    let path = folder.steps();
    let mut out = BufWriter::new(File::create(&path).map_err(file("create", &path))?);
    out.write_all(before).map_err(file("write", &path))?;
    let mut written = 0;
    Follower::new(&folder.telemetry()).news(&mut |message| {
        let line = match message {
            Message::Step { line, .. } => line.write(),
            Message::Metric { line } => line.write(),
            _ => return Ok(true),
        };
        if written < count {
            writeln!(out, "{}", line.canonical()).map_err(file("write", &path))?;
            written += 1;
        }
        Ok(written < count)
    })?;
    out.flush().map_err(file("write", &path))
}

/// Stores every output of a succeeded run but `besides`. The worker's own copy of the trace is left out: it was compared with what the
/// worker reported, and the trace is in the record already.
fn keep(writer: &mut Writer<'_>, outputs: &Path, besides: Option<&str>) -> Result<Vec<Artifact>, RuntimeError> {
    let mut artifacts = Vec::new();
    for (path, name) in files(outputs)?.into_iter().filter(|(_, name)| Some(name.as_str()) != besides) {
        let (digest, bytes) = writer.put_file(&path)?;
        artifacts.push(Artifact { path: name, digest, bytes });
    }
    Ok(artifacts)
}

/// Moves the outputs of any other run to where nothing can be bound into a bundle, and lists them.
fn quarantine(store: &Store, folder: &Folder, attempt: &str) -> Result<Vec<Artifact>, RuntimeError> {
    let kept = store.path().join("quarantine").join(attempt);
    let outputs = folder.outputs();
    if outputs.is_dir() && !kept.exists() && fs::read_dir(&outputs).map_err(file("read", &outputs))?.next().is_some() {
        let parent = store.path().join("quarantine");
        fs::create_dir_all(&parent).map_err(file("create", &parent))?;
        fs::rename(&outputs, &kept).map_err(file("move", &outputs))?;
    }
    let mut artifacts = Vec::new();
    for (path, name) in files(&kept)? {
        let bytes = fs::metadata(&path).map_err(file("read", &path))?.len();
        artifacts.push(Artifact { path: name, digest: crate::worker::digest_of(&path)?, bytes });
    }
    Ok(artifacts)
}

/// The regular files under `root` with a name that a manifest can hold, sorted; none when there is no such folder.
/// Whatever else a worker left there was refused when it was collected.
fn files(root: &Path) -> Result<Vec<(PathBuf, xt_core::relpath::RelativePath)>, RuntimeError> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(file("read", &folder)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(file("read", &folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(file("read", &folder))?);
            let name = path.strip_prefix(root).ok().and_then(Path::to_str).map(xt_core::relpath::RelativePath::new);
            match name {
                _ if kind.is_dir() => folders.push(path),
                Some(Ok(name)) if kind.is_file() => found.push((path, name)),
                _ => {}
            }
        }
    }
    found.sort_by(|(_, a), (_, b)| a.cmp(b));
    Ok(found)
}

fn clear(folder: &Path) -> Result<(), RuntimeError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file("remove", folder)(error)),
        _ => Ok(()),
    }
}
