//! `xt-snapshot`: what was the complete state at step k, and how do two states differ?

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_cli::{CliError, Common, Error, Manual, Output, Source, Tool, each, note, read_documents, read_one};
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::Artifact;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status, Taken};
use xt_core::manifest::snapshot::{Part, Snapshot, SnapshotDiff, TensorState};
use xt_core::name::Name;
use xt_core::relpath::RelativePath;
use xt_core::verb::adapter;
use xt_core::verb::configuration::configuration;
use xt_core::verb::snapshot::{Files, check_line, check_part, check_plan, diff};
use xt_runtime::{Clock, Original, Runtime, keep_snapshot, last_state, taken, worker};
use xt_store::Store;

use crate::again::{Again, again};

#[path = "xt-snapshot/again.rs"]
mod again;

/// Find, compute, compare and export complete states of a run
///
/// With --step, the state after that step: the stored one, or else one that is computed again from the nearest stored
/// state before it, and accepted only if it is what the trace says bit for bit.
#[derive(Parser, Debug)]
#[command(name = "xt-snapshot", version, subcommand_negates_reqs = true, subcommand_precedence_over_arg = true)]
struct XtSnapshot {
    /// Run record: a file, a digest in the store, the name of an attempt, or - for standard input
    #[arg(value_name = "RUN", default_value = "-")]
    run: OsString,
    /// The step after which the state is wanted
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    step: Option<u64>,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the stored states of a run, one JSON line each
    Ls {
        /// Run record: a file, a digest, the name of an attempt, or -
        #[arg(value_name = "RUN", default_value = "-")]
        run: OsString,
    },
    /// Print snapshots; a summary for people goes to standard error
    Show {
        /// Snapshots: files, digests, or - [default: standard input]
        #[arg(value_name = "SNAPSHOT")]
        snapshots: Vec<OsString>,
    },
    /// Compare two snapshots tensor by tensor; exit status 1 when they differ
    Diff {
        /// The first
        #[arg(value_name = "A")]
        first: OsString,
        /// The second
        #[arg(value_name = "B")]
        second: OsString,
    },
    /// Read every byte of a snapshot again, and hold it against its plan and, with --run, against a trace
    Verify {
        /// Snapshot: a file, a digest, or -
        #[arg(value_name = "SNAPSHOT", default_value = "-")]
        snapshot: OsString,
        /// A run whose trace must say the same
        #[arg(long, value_name = "RUN")]
        run: Option<OsString>,
    },
    /// Write the model of a snapshot into a new folder, as transformers reads it
    Export {
        /// Snapshot: a file, a digest, or -
        #[arg(value_name = "SNAPSHOT")]
        snapshot: OsString,
        /// The folder, which must not exist
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Tool for XtSnapshot {
    const MANUAL: Manual = Manual {
        input: "A run record (xt.run/1), or for the subcommands snapshots (xt.snapshot/1): files, digests in the store, or \
                standard input. Where a run is meant, the name of an attempt will do.",
        output: "One xt.snapshot/1; its files are in the store. ls prints one object with step and snapshot a line, diff one \
                 xt.snapshot-diff/1, export one object with path, digest and bytes a file. A state that has to be computed \
                 again is computed in custody like any run: its attempt stands in the record, under the experiment \
                 `replay` (xt-log status replay).",
        files: &[(".xt", "the store; --store or XT_STORE names another")],
        examples: &[
            ("xt-run --snapshot-every 100 plan.json > run.json", "Store states by the way."),
            ("xt-snapshot run.json --step 250", "The state after step 250: stored, or computed again and checked."),
            ("xt-snapshot ls run.json", "Which states are stored?"),
            ("xt-snapshot diff sha256:A sha256:B", "Which tensors differ, and by how much?"),
            ("xt-snapshot verify --run run.json sha256:A", "Is it whole, and what the trace says?"),
            ("xt-snapshot export sha256:A model/", "Take the model out, as transformers reads it."),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Refused,
            Exit::Store,
            Exit::Custody,
            Exit::Workload,
            Exit::System,
            Exit::NotNow,
            Exit::Bug,
        ],
        see_also: &["xt-run(1)", "xt-replay(1)", "xt-freeze(1)", "xt-store(5)", "xt-manifest(5)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum SnapshotError {
    /// The run or the snapshot does not allow it.
    #[error("{0}")]
    Refused(Faults),
    /// Computing it again did not come to the recorded state.
    #[error("computed again, step {step} is not what the trace says: {faults}")]
    Diverged { step: u64, faults: Faults },
}

impl Failure for SnapshotError {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused(_) => Exit::Refused,
            Self::Diverged { .. } => Exit::No,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Refused(_) => "snapshot.refused",
            Self::Diverged { .. } => "snapshot.diverged",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Refused(_) => Vec::new(),
            Self::Diverged { .. } => vec!["xt-replay --localize says where it parted first".into()],
        }
    }

    fn faults(&self) -> Option<&Faults> {
        let (Self::Refused(faults) | Self::Diverged { faults, .. }) = self;
        Some(faults)
    }
}

fn refused(at: &str, code: &'static str, message: impl Into<String>) -> Error {
    SnapshotError::Refused(Faults::one(at, code, message.into())).into()
}

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Left::new(None);
    let code = xt_cli::main::<XtSnapshot>(|tool| tool.act(&left));
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

impl XtSnapshot {
    fn act(&self, left: &Left) -> Result<Exit, Error> {
        match &self.verb {
            None => self.at_step(left),
            Some(Verb::Ls { run }) => self.list(run),
            Some(Verb::Show { snapshots }) => self.show(snapshots),
            Some(Verb::Diff { first, second }) => self.diff(first, second),
            Some(Verb::Verify { snapshot, run }) => self.verify(snapshot, run.as_ref()),
            Some(Verb::Export { snapshot, folder }) => self.export(snapshot, folder),
        }
    }

    fn store(&self) -> Result<Store, Error> {
        Ok(Store::open(&self.common.store)?)
    }

    fn read(&self, argument: &OsString) -> Result<xt_core::canonical::Value, Error> {
        let lookup = |digest: Digest| Ok(Store::open(&self.common.store)?.get(digest)?);
        Ok(read_one(&Source::from(argument.as_os_str()), &lookup)?.value)
    }

    /// The run record that `argument` names.
    fn recorded(&self, argument: &OsString) -> Result<Run, Error> {
        let name = argument.to_str().and_then(Name::new).filter(|name| !Path::new(name.as_str()).exists());
        let Some(attempt) = name.filter(|_| matches!(Source::from(argument.as_os_str()), Source::File(_))) else {
            return Ok(Run::decode(&self.read(argument)?)?);
        };
        let runtime = Runtime::new(&self.common.store, Clock::system())?;
        match runtime.attempt(&attempt)?.run_record {
            Some(id) => Ok(self.store()?.manifest(id)?),
            None => {
                Err(refused("", "snapshot.alive", format!("{attempt} has not ended; `xt-run --attach` follows it")))
            }
        }
    }

    fn snapshot(&self, argument: &OsString) -> Result<Snapshot, Error> {
        Ok(Snapshot::decode(&self.read(argument)?)?)
    }

    /// The state after a step: stored, or computed again.
    fn at_step(&self, left: &Left) -> Result<Exit, Error> {
        let Some(step) = self.step else {
            return Err(CliError::Usage(
                "--step K says which state is wanted; `xt-snapshot ls RUN` lists the stored ones".into(),
            )
            .into());
        };
        let (run, store) = (self.recorded(&self.run)?, self.store()?);
        let papers = xt_bundle::papers(&store, &run, true)?;
        if !papers.faults.is_empty() {
            return Err(SnapshotError::Refused(papers.faults).into());
        }
        let recorded = papers.steps.len() as u64;
        if step > recorded {
            let message = format!("--step {step}: the run has recorded {recorded} steps");
            return Err(refused("run#/trace", "snapshot.step", message));
        }
        if let Some(from) = papers.plan.departure.as_ref().filter(|from| step <= from.step) {
            if step == from.step {
                print(&store.manifest(from.snapshot)?)?;
                return Ok(Exit::Yes);
            }
            let message = format!(
                "--step {step}: the run goes on from step {} of run {}, which has that state",
                from.step, from.run
            );
            return Err(refused("run#/plan", "snapshot.step", message));
        }
        let original = Original { run: &run, plan: &papers.plan, steps: &papers.steps };
        let (states, _) = original.states(&store)?;
        if let Some(stored) = states.iter().find(|taken| taken.step == step) {
            print(&store.manifest(stored.snapshot)?)?;
            return Ok(Exit::Yes);
        }
        self.compute(&original, &store, step, left)
    }

    /// Computes the state after `step` again, from the nearest stored one before it.
    fn compute(&self, original: &Original<'_>, store: &Store, step: u64, left: &Left) -> Result<Exit, Error> {
        let worker = worker::find(self.worker.as_deref())?;
        let from = original.nearest(store, step)?;
        let begin = from.as_ref().map_or(0, |start| start.step);
        let run = match again(&self.common, "xt-snapshot", &worker, original, (from, step))? {
            Again::Done(run) => run,
            Again::Refused(faults) => return Err(SnapshotError::Refused(faults).into()),
            Again::Left(signal) => {
                left.set(Some(signal));
                return Ok(Exit::Workload);
            }
        };
        let made = last_state(&run).filter(|(made, _)| *made == step && run.status == Status::Succeeded);
        let Some((_, id)) = made else {
            note(&self.common, &format!("snapshot: {} {}: {}", run.attempt, run.status, run.cause));
            let custody = run.status == Status::NotStarted && run.custody.is_some();
            return Ok(if custody { Exit::Custody } else { Exit::Workload });
        };
        let snapshot: Snapshot = store.manifest(id)?;
        let mut faults = Faults::new();
        let line = usize::try_from(step - 1).ok().and_then(|index| original.steps.get(index));
        if let Some(line) = line {
            check_line(&snapshot, line, &mut faults);
        }
        if !faults.is_empty() {
            return Err(SnapshotError::Diverged { step, faults }.into());
        }
        let taken = Taken { step, snapshot: id };
        keep_snapshot(
            store,
            &original.run.attempt,
            &taken,
            &format!("state after step {step}, computed again from step {begin}"),
        )?;
        let count = step - begin;
        let how = format!("computed again from step {begin}, {count} steps, under the experiment replay");
        note(&self.common, &format!("snapshot: {how}; it is what the trace says"));
        print(&snapshot)?;
        Ok(Exit::Yes)
    }

    fn list(&self, run: &OsString) -> Result<Exit, Error> {
        let (run, store) = (self.recorded(run)?, self.store()?);
        let mut output = Output::new(None)?;
        for taken in taken(&store, &run.attempt)? {
            output.line(&taken.write().canonical())?;
        }
        output.finish()?;
        Ok(Exit::Yes)
    }

    fn show(&self, snapshots: &[OsString]) -> Result<Exit, Error> {
        let lookup = |digest: Digest| Ok(Store::open(&self.common.store)?.get(digest)?);
        let sources: Vec<Source> = snapshots.iter().map(|snapshot| Source::from(snapshot.as_os_str())).collect();
        let snapshots: Vec<Snapshot> = each(&read_documents(&sources, &lookup)?, Snapshot::decode)?;
        let mut output = Output::new(None)?;
        for snapshot in &snapshots {
            note(&self.common, &described(snapshot));
            output.document(&snapshot.encode())?;
        }
        output.finish()?;
        Ok(Exit::Yes)
    }

    fn diff(&self, first: &OsString, second: &OsString) -> Result<Exit, Error> {
        let (store, first, second) = (self.store()?, self.snapshot(first)?, self.snapshot(second)?);
        let (one, other) = (Bytes::of(&store, &first)?, Bytes::of(&store, &second)?);
        let found = diff((&first, one.files()), (&second, other.files()))
            .map_err(|why| refused("snapshot#", "snapshot.file", why))?;
        note(&self.common, &summary(&found));
        let mut output = Output::new(None)?;
        output.document(&found.encode())?;
        output.finish()?;
        Ok(if found.equal { Exit::Yes } else { Exit::No })
    }

    fn verify(&self, snapshot: &OsString, run: Option<&OsString>) -> Result<Exit, Error> {
        let (store, snapshot) = (self.store()?, self.snapshot(snapshot)?);
        let (bytes, plan) = (Bytes::of(&store, &snapshot)?, store.manifest::<Plan>(snapshot.plan)?);
        let mut faults = Faults::new();
        check_part("parameters", &snapshot.parameters, &bytes.parameters, &mut faults);
        check_part("optimizer", &snapshot.optimizer, &bytes.optimizer, &mut faults);
        check_plan(&snapshot, &plan, &mut faults);
        if let Some(run) = run {
            let papers = xt_bundle::papers(&store, &self.recorded(run)?, true)?;
            faults.0.extend(papers.faults.0);
            let index = usize::try_from(snapshot.step - 1).unwrap_or(usize::MAX);
            match papers.steps.get(index) {
                Some(line) => check_line(&snapshot, line, &mut faults),
                None => faults.add("run#/trace", "snapshot.trace", format!("it does not reach step {}", snapshot.step)),
            }
        }
        for fault in &faults.0 {
            note(&self.common, &format!("snapshot: {fault}"));
        }
        print(&snapshot)?;
        Ok(if faults.is_empty() { Exit::Yes } else { Exit::No })
    }

    fn export(&self, snapshot: &OsString, folder: &Path) -> Result<Exit, Error> {
        let (store, snapshot) = (self.store()?, self.snapshot(snapshot)?);
        let plan: Plan = store.manifest(snapshot.plan)?;
        let none = || Faults::one("", "snapshot.command", "the state of a command is its own affair");
        let candidate = plan.native().ok_or_else(none)?;
        let (configuration, names) = match adapter::configuration(&candidate.model, &candidate.base) {
            Some(value) => (value, ["adapter_config.json", "adapter_model.safetensors"]),
            None => (configuration(&candidate.model), ["config.json", "model.safetensors"]),
        };
        let mut files = vec![
            (names[0], (configuration.canonical() + "\n").into_bytes()),
            (names[1], store.get(snapshot.parameters.file)?),
        ];
        if let Some(tokenizer) = candidate.tokenizer.digest() {
            files.push(("tokenizer.json", store.get(tokenizer)?));
        }
        let failed = |path: &Path| {
            let name = path.display().to_string();
            move |source: io::Error| Error::from(CliError::Write { name, source })
        };
        fs::create_dir(folder).map_err(failed(folder))?;
        let mut output = Output::new(None)?;
        for (name, bytes) in files {
            let path = folder.join(name);
            let written =
                File::create_new(&path).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
            written.map_err(failed(&path))?;
            let path = RelativePath::new(name).unwrap_or_else(|_| unreachable!("a literal path"));
            let file = Artifact { path, digest: Digest::of(&bytes), bytes: bytes.len() as u64 };
            output.line(&file.write().canonical())?;
        }
        output.finish()?;
        Ok(Exit::Yes)
    }
}

/// The files of a snapshot, read and verified.
struct Bytes {
    parameters: Vec<u8>,
    optimizer: Vec<u8>,
}

impl Bytes {
    fn of(store: &Store, snapshot: &Snapshot) -> Result<Self, Error> {
        Ok(Self { parameters: store.get(snapshot.parameters.file)?, optimizer: store.get(snapshot.optimizer.file)? })
    }

    fn files(&self) -> Files<'_> {
        Files { parameters: &self.parameters, optimizer: &self.optimizer }
    }
}

fn print(snapshot: &Snapshot) -> Result<(), Error> {
    let mut output = Output::new(None)?;
    output.document(&snapshot.encode())?;
    output.finish()
}

/// A snapshot for people.
fn described(snapshot: &Snapshot) -> String {
    let Snapshot { step, updates, cursor, generator, parameters, optimizer, .. } = snapshot;
    // A document may claim any shape; whoever restores it holds it against the file.
    let count = |tensor: &TensorState| tensor.shape.iter().copied().fold(1, u64::saturating_mul);
    let elements = |part: &Part| part.tensors.iter().map(count).fold(0, u64::saturating_add);
    format!(
        "after step {step} ({updates} updates, {} micro-batches): epoch {}, next sample {} of its order; \
         {} parameters in {} tensors, {} numbers of the optimiser in {} tensors",
        generator.micro_batch,
        cursor.epoch,
        cursor.sample,
        elements(parameters),
        parameters.tensors.len(),
        elements(optimizer),
        optimizer.tensors.len(),
    )
}

/// The comparison for people: a line a tensor that differs.
fn summary(found: &SnapshotDiff) -> String {
    let mut lines: Vec<String> = found
        .fields
        .iter()
        .map(|field| format!("{}: {} and {}", field.field.trim_start_matches('/'), field.first, field.second))
        .collect();
    for tensor in found.tensors.iter().filter(|tensor| !tensor.equal) {
        let (part, name) = (&tensor.part, &tensor.name);
        if !tensor.problem.is_empty() {
            lines.push(format!("{part} {name}: {}", tensor.problem));
            continue;
        }
        let largest = match (tensor.largest_difference, tensor.largest_ulp) {
            (Some(value), Some(ulp)) => format!("at most {:e}, {ulp} ULP", value.get()),
            _ => "none of the pairs is finite".into(),
        };
        lines.push(format!("{part} {name}: {} of {} elements differ, {largest}", tensor.differing, tensor.elements));
    }
    let equal = found.tensors.iter().filter(|tensor| tensor.equal).count();
    lines.push(format!("{equal} of {} tensors are equal", found.tensors.len()));
    lines.join("\n")
}
