//! `xt-replay`: does it come out bit for bit? If not, at which step and in what first?

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_bundle::{Given, Papers};
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Source, Tool, note, parse_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::command::Program;
use xt_core::manifest::job::Message;
use xt_core::manifest::replay::{Audit, Divergence, Localization, Outcome, PinDifference, Replay, Segment, TraceDiff};
use xt_core::manifest::run::{Reported, Run, Stack, Start, Status, Taken};
use xt_core::manifest::snapshot::Snapshot;
use xt_core::manifest::trace::{StageName, Step};
use xt_core::random::Stream;
use xt_core::verb::{bind, compare, sentence, snapshot, trace_svg};
use xt_runtime::program;
use xt_runtime::worker::{self, Worker};
use xt_runtime::{
    Clock, Followed, Original, Request, Role, Runtime, RuntimeError, Secrets, Signals, Unfinished, follow, last_state,
};
use xt_store::{Store, StoreError};

/// Repeat a run and compare it step by step, bit for bit
///
/// The stack that recorded the run is compared with the present one first: a replay on another stack is refused with
/// every difference before anything computes. Then each step is compared as it comes, and the replay stops at the first
/// that differs. After the last step the outputs are compared.
#[derive(Parser, Debug)]
#[command(name = "xt-replay", version, args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
struct Arguments {
    /// Run record, bundle or archive: a file, a digest in the store, or - for standard input
    #[arg(value_name = "RUN|BUNDLE", default_value = "-")]
    source: OsString,
    /// Stop after this step [default: the last recorded one]
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// Begin after this step, at the nearest stored state at or before it [default: the start]
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// Replay only K parts between stored states, drawn by lot from the digest of the trace
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["to", "from"])]
    audit: Option<u64>,
    /// Where it diverges, restore the last equal state and say which tensors differ there
    #[arg(long)]
    localize: bool,
    /// Draw both traces into FILE
    #[arg(long, value_name = "FILE", conflicts_with = "audit")]
    svg: Option<PathBuf>,
    /// Replay on another stack than the recorded one; the report lists what differs
    #[arg(long)]
    ignore_stack: bool,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    /// Give a secret that the plan's intent declares; /dev/fd/N names an open descriptor
    #[arg(long, value_name = "NAME=FILE")]
    secret: Vec<String>,
    /// Write the report to FILE, which appears only when the replay was equal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Compare two recorded traces without running anything; exit status 1 when they part, 3 when one is only longer
    Diff {
        /// Run record, bundle or archive
        #[arg(value_name = "A")]
        first: OsString,
        /// The other
        #[arg(value_name = "B")]
        second: OsString,
        /// Draw both into FILE
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "One run record (xt.run/1), bundle (xt.bundle/1) or archive of xt-freeze. An archive is verified and taken \
                into the store first; the store may be absent or empty then.",
        output: "One xt.replay/1: steps compared, the first divergence by step and component, outputs by digest. The run \
                 record of the replay is in the store. diff gives one xt.trace-diff/1.",
        files: &[(".xt", "the store; --store or XT_STORE names another")],
        examples: &[
            ("xt-replay model.tar.zst", "Repeat the run of an archive and compare every step."),
            (
                "xt-replay --store /tmp/empty - < model.tar.zst",
                "The same as a stranger, who has nothing but the archive.",
            ),
            ("xt-compile candidate.json | xt-run | xt-replay", "Train twice and compare."),
            ("xt-replay --to 10 run.json", "Compare the first ten steps only."),
            ("xt-replay --from 900 run.json", "Begin at the nearest stored state at or before step 900."),
            ("xt-replay --audit 3 run.json", "Check three parts between stored states, drawn by lot."),
            (
                "xt-replay --localize --svg parted.svg run.json",
                "Name step, stage and tensor of a divergence, and draw it.",
            ),
            ("xt-replay diff a.json b.json", "Where do two recorded runs part?"),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Undecided,
            Exit::Refused,
            Exit::Store,
            Exit::Custody,
            Exit::Workload,
            Exit::System,
            Exit::NotNow,
            Exit::Bug,
        ],
        see_also: &[
            "xt-run(1)",
            "xt-snapshot(1)",
            "xt-freeze(1)",
            "xt-log(1)",
            "xt-store(5)",
            "xt-manifest(5)",
            "xt(7)",
        ],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

/// Why nothing is replayed.
#[derive(Debug, thiserror::Error)]
enum ReplayError {
    /// The stack, or the run itself, does not allow it.
    #[error("the replay is refused: {0}")]
    Refused(Faults),
}

impl Failure for ReplayError {
    fn exit(&self) -> Exit {
        Exit::Refused
    }

    fn word(&self) -> &'static str {
        "replay.refused"
    }

    fn hints(&self) -> Vec<String> {
        let Self::Refused(faults) = self;
        if faults.0.iter().all(|fault| fault.pointer == "run#/stack") {
            return vec!["--ignore-stack replays on this stack all the same, and the report says so".into()];
        }
        Vec::new()
    }

    fn faults(&self) -> Option<&Faults> {
        let Self::Refused(faults) = self;
        Some(faults)
    }
}

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Left::new(None);
    let code = xt_cli::main(|arguments: Arguments| match &arguments.verb {
        None => arguments.replay(&left),
        Some(Verb::Diff { first, second, svg }) => arguments.diff(first, second, svg.as_deref()),
    });
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

/// A part of a run that is to be done again.
struct Part {
    from: Option<Start>,
    to: u64,
}

impl Part {
    fn begin(&self) -> u64 {
        self.from.as_ref().map_or(0, |start| start.step)
    }
}

/// A part that was done again and compared.
struct Done<'a> {
    followed: Followed,
    comparison: Comparison<'a>,
}

impl Arguments {
    fn replay(&self, left: &Left) -> Result<Exit, Error> {
        let recorded = Recorded::read(self, &self.source, self.to)?;
        if let Some(program) = &recorded.papers.plan.program {
            let (worker, runtime) = (PathBuf::from(&program.executable.path), self.runtime()?);
            let allowed = self.admit_command(&recorded, program)?;
            let again = Again { arguments: self, recorded: &recorded, worker, allowed, runtime, left };
            return again.command(&Signals::block()?);
        }
        let worker = worker::find(self.worker.as_deref())?;
        let allowed = self.admit(&recorded, &worker)?;
        let again = Again { arguments: self, recorded: &recorded, worker, allowed, runtime: self.runtime()?, left };
        let signals = Signals::block()?;
        if let Some(count) = self.audit {
            return again.audit(count, &signals);
        }
        let from = match self.from {
            Some(step) if step >= recorded.steps => {
                let message = format!("--from {step}: there is no step after it up to {}", recorded.steps);
                return Err(ReplayError::Refused(Faults::one("run#/trace", "replay.step", message)).into());
            }
            Some(step) => recorded.original().nearest(&recorded.store, step)?,
            None => None,
        };
        if let Some(step) = self.from.filter(|step| from.as_ref().is_none_or(|start| start.step != *step)) {
            let begin = from.as_ref().map_or(0, |start| start.step);
            note(&self.common, &format!("replay: no state after step {step} is stored; it begins after step {begin}"));
        }
        let part = Part { from, to: recorded.steps };
        let Some(done) = again.run(&part, &signals)? else { return Ok(Exit::Workload) };
        self.draw(&recorded, &done.comparison.seen)?;
        let localization = if self.localize { again.localize(&done, &part, &signals)? } else { None };
        let mut replay = done.comparison.conclude(&recorded, &done.followed, &part);
        replay.localization = localization;
        self.report(&recorded, &replay, &done.followed)
    }

    fn draw(&self, recorded: &Recorded, seen: &[Step]) -> Result<(), Error> {
        let Some(path) = &self.svg else { return Ok(()) };
        let Some(first) = seen.first().and_then(|step| usize::try_from(step.step - 1).ok()) else { return Ok(()) };
        let names = [format!("recorded: {}", recorded.id), "replayed".to_string()];
        let svg = trace_svg::comparison([&names[0], &names[1]], &recorded.papers.steps[first..], seen);
        picture(path, &svg)
    }

    /// Compares two recorded traces.
    fn diff(&self, first: &OsString, second: &OsString, svg: Option<&Path>) -> Result<Exit, Error> {
        let (first, second) = (Recorded::read(self, first, None)?, Recorded::read(self, second, None)?);
        let (one, other) = (&first.papers.steps, &second.papers.steps);
        let (equal_steps, divergence, components) = compare::traces(one, other);
        let (outcome, exit) = match &divergence {
            Some(_) => (Outcome::Diverged, Exit::No),
            None if one.len() == other.len() => (Outcome::Equal, Exit::Yes),
            None => (Outcome::Incomplete, Exit::Undecided),
        };
        let found = TraceDiff {
            first: first.id,
            second: second.id,
            same_plan: first.run.plan == second.run.plan,
            outcome,
            first_steps: one.len() as u64,
            second_steps: other.len() as u64,
            equal_steps,
            divergence,
            components,
        };
        if let Some(path) = svg {
            let names = [first.id.to_string(), second.id.to_string()];
            picture(path, &trace_svg::comparison([&names[0], &names[1]], one, other))?;
        }
        note(&self.common, &format!("replay: {}", sentence::difference(&found)));
        let mut output = Output::new(self.output.as_deref().filter(|_| exit == Exit::Yes))?;
        output.document(&found.encode())?;
        output.finish()?;
        Ok(exit)
    }

    fn runtime(&self) -> Result<Runtime, Error> {
        let fixed = std::env::var_os(Clock::VARIABLE).is_some() || std::env::args().any(|a| a.starts_with("--now"));
        let clock = if fixed { Clock::fixed(self.common.now()?) } else { Clock::system() };
        Ok(Runtime::new(&self.common.store, clock)?)
    }

    /// Compares every pin with what would be used now. Gives the differences that are allowed.
    fn admit(&self, recorded: &Recorded, worker: &Path) -> Result<Vec<PinDifference>, Error> {
        let plan = &recorded.papers.plan;
        let now = Worker::inspect(worker, plan.environment.get("LD_LIBRARY_PATH").map(String::as_str))?.stack();
        let differences = compare::stacks(&recorded.stack, &now);
        let mut faults = recorded.told.clone();
        for (name, value) in &plan.environment {
            let then = recorded.run.environment.get(name);
            if then != Some(value) {
                let then = then.map_or("none", String::as_str);
                let message = format!("the environment differs: {name}: recorded {then}, now {value}");
                faults.add(format!("run#/environment/{name}"), "replay.pin", message);
            }
        }
        if !self.ignore_stack {
            faults.0.extend(compare::refusal(&differences).0);
        }
        faults.or(differences).map_err(|faults| ReplayError::Refused(faults).into())
    }

    /// Compares every pin of a command with this host.
    fn admit_command(&self, recorded: &Recorded, program: &Program) -> Result<Vec<PinDifference>, Error> {
        let mut faults = recorded.told.clone();
        let part = self.to.is_some() || self.from.is_some() || self.audit.is_some();
        if part || recorded.run.status != Status::Succeeded {
            let message = "a command is replayed as a whole, and only when it succeeded: it alone knows what a step is";
            faults.add("run#/status", "replay.command", message);
        }
        let (pins, host) = program::held(program, &recorded.stack, &self.common.store);
        faults.0.extend(compare::refusal(&pins).0);
        faults.0.extend(compare::refusal(&host).0.into_iter().filter(|_| !self.ignore_stack));
        faults.or(host).map_err(|faults| ReplayError::Refused(faults).into())
    }

    /// Prints the report, and says in one line what it says.
    fn report(&self, recorded: &Recorded, replay: &Replay, followed: &Followed) -> Result<Exit, Error> {
        let exit = match (replay.outcome, followed.run.status) {
            (Outcome::Equal, _) => Exit::Yes,
            (Outcome::Diverged, _) => Exit::No,
            (Outcome::Incomplete, Status::NotStarted) if followed.run.custody.is_some() => Exit::Custody,
            (Outcome::Incomplete, _) => Exit::Workload,
        };
        note(&self.common, &format!("replay: {}", sentence::replay(replay, &followed.run)));
        if let Some(found) = &replay.localization {
            note(&self.common, &format!("replay: {}", sentence::localization(found)));
        }
        if !replay.allowed.is_empty() {
            let names: Vec<&str> = replay.allowed.iter().map(|pin| pin.what.as_str()).collect();
            note(&self.common, &format!("replay: on another stack than run {}: {}", recorded.id, names.join(", ")));
        }
        let mut output = Output::new(self.output.as_deref().filter(|_| exit == Exit::Yes))?;
        output.document(&replay.encode())?;
        output.finish()?;
        Ok(exit)
    }
}

/// Writes a picture, whole or not at all.
fn picture(path: &Path, svg: &str) -> Result<(), Error> {
    let mut output = Output::new(Some(path))?;
    output.bytes(svg.as_bytes())?;
    output.finish()
}

/// What it takes to do parts of a run again.
struct Again<'a> {
    arguments: &'a Arguments,
    recorded: &'a Recorded,
    worker: PathBuf,
    allowed: Vec<PinDifference>,
    runtime: Runtime,
    left: &'a Left,
}

impl<'a> Again<'a> {
    /// Does a part again and compares it; `None` when signals ended the waiting.
    fn run(&self, part: &Part, signals: &Signals) -> Result<Option<Done<'a>>, Error> {
        let mut comparison = Comparison::new(self.recorded, self.allowed.clone(), self.arguments, part);
        let request = self.recorded.original().request(part.from.clone(), part.to, false);
        let Some(followed) = self.follow(&request, part, signals, &mut |message, progress| {
            let stop = comparison.hear(message);
            progress.update(comparison.equal, comparison.state());
            stop
        })?
        else {
            return Ok(None);
        };
        comparison.check_stack(&self.recorded.stack, &followed.run);
        if !comparison.refused.is_empty() {
            return Err(ReplayError::Refused(compare::refusal(&comparison.refused)).into());
        }
        Ok(Some(Done { followed, comparison }))
    }

    /// Runs the program of a command again, and compares what it measured and what it wrote.
    fn command(&self, signals: &Signals) -> Result<Exit, Error> {
        let part = Part { from: None, to: self.recorded.steps };
        let secrets = Secrets::given(&self.arguments.secret)?;
        let request = Request { secrets, ..self.recorded.original().request(None, part.to, false) };
        let Some(followed) = self.follow(&request, &part, signals, &mut |_, _| false)? else {
            return Ok(Exit::Workload);
        };
        let metrics = |run: &Run| xt_bundle::metrics(&self.recorded.store, run);
        let (recorded, replayed) = (&self.recorded.run, &followed.run);
        let (first, second) = (metrics(recorded)?, metrics(replayed)?);
        let report = compare::commands((recorded, &first), (replayed, &second), self.allowed.clone());
        self.arguments.report(self.recorded, &report, &followed)
    }

    /// Submits `request` and follows it; `hear` says when there is nothing more to be seen.
    fn follow(
        &self,
        request: &Request,
        part: &Part,
        signals: &Signals,
        hear: &mut dyn FnMut(&Message, &mut Progress) -> bool,
    ) -> Result<Option<Followed>, Error> {
        let attempt = self.runtime.submit_or_get(request, &self.worker)?.id;
        let mut progress = Progress::new(&self.arguments.common, "replay", part.to - part.begin(), "steps");
        let mut failed = None;
        let followed = follow(&self.runtime, &attempt, Role::Owner("xt-replay"), signals, &mut |message| {
            if hear(message, &mut progress)
                && let Err(error) = self.runtime.cancel(&attempt, "xt-replay: what was to be seen is seen")
            {
                failed.get_or_insert(error);
            }
        });
        progress.finish();
        match followed {
            Ok(followed) => failed.map_or(Ok(Some(followed)), |error: RuntimeError| Err(Error::from(error))),
            Err(Unfinished::Failed(error)) => Err(error.into()),
            Err(Unfinished::Left(signal)) => {
                self.left.set(Some(signal));
                Ok(None)
            }
        }
    }

    /// Replays `count` parts between stored states. Which ones follows from the digest of the trace, so that nobody who
    /// wrote the trace could choose them without writing another trace.
    fn audit(&self, count: u64, signals: &Signals) -> Result<Exit, Error> {
        let (parts, of_steps) = (self.parts()?, self.recorded.steps);
        let of = parts.len() as u64;
        let seed =
            self.recorded.run.trace.as_ref().map_or(0, |trace| {
                trace.digest.bytes().iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
            });
        let mut drawn: Vec<u64> = Stream::new(seed, "audit", 0).permutation(of);
        drawn.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        drawn.sort_unstable();
        let mut audit = Audit { segments: Vec::new(), of, steps: 0, of_steps };
        let mut last = None;
        for index in drawn {
            let part = &parts[usize::try_from(index).unwrap_or_default()];
            let Some(done) = self.run(part, signals)? else { return Ok(Exit::Workload) };
            let (from, to, equal_steps) = (part.begin(), part.to, done.comparison.equal);
            audit.segments.push(Segment { from, to, equal_steps, replayed: done.followed.run.id() });
            audit.steps += to - from;
            let replay = done.comparison.conclude(self.recorded, &done.followed, part);
            let parted = replay.outcome != Outcome::Equal;
            last = Some((replay, done.followed));
            if parted {
                break;
            }
        }
        let Some((mut replay, followed)) = last else { return Ok(Exit::Undecided) };
        note(&self.arguments.common, &format!("replay: {}", sentence::audit(&audit)));
        (replay.steps, replay.equal_steps) = (of_steps, audit.segments.iter().map(|segment| segment.equal_steps).sum());
        replay.audit = Some(audit);
        self.arguments.report(self.recorded, &replay, &followed)
    }

    /// The run in parts between stored states.
    fn parts(&self) -> Result<Vec<Part>, Error> {
        let (states, _) = self.recorded.original().states(&self.recorded.store)?;
        let (mut parts, mut from) = (Vec::new(), None);
        for taken in states.into_iter().filter(|taken| taken.step < self.recorded.steps) {
            let start = Start { run: self.recorded.id, snapshot: taken.snapshot, step: taken.step };
            parts.push(Part { from: from.replace(start), to: taken.step });
        }
        parts.push(Part { from, to: self.recorded.steps });
        Ok(parts)
    }

    /// Finds out which tensors differ where the comparison diverged, or where a stored state contradicts the trace.
    fn localize(&self, done: &Done<'_>, part: &Part, signals: &Signals) -> Result<Option<Localization>, Error> {
        let original = self.recorded.original();
        let (mut states, bad) = original.states(&self.recorded.store)?;
        let planted = bad.into_iter().map(|bad| bad.taken).find(|taken| taken.step <= self.recorded.steps);
        let step = match (&done.comparison.divergence, &planted) {
            (Some(divergence), Some(taken)) => divergence.step.min(taken.step),
            (Some(divergence), None) => divergence.step,
            (None, Some(taken)) => taken.step,
            (None, None) => return Ok(None),
        };
        states.extend(planted);
        states.sort_by_key(|taken| taken.step);
        let mut found = Localization {
            step,
            stage: done.comparison.stage.unwrap_or(StageName::Optimizer),
            module: None,
            tensor: None,
            compared_at: None,
            recorded: None,
            replayed: None,
            differing: 0,
            tensors: Vec::new(),
            restores: u64::from(part.from.is_some()),
            steps_again: done.comparison.equal + u64::from(done.comparison.divergence.is_some()),
        };
        // What the record holds at the step itself is best; the first state after it has the difference in it, spread out.
        let Some(state) = states.iter().find(|taken| taken.step >= step && taken.step <= self.recorded.steps) else {
            return Ok(Some(found));
        };
        let mut before = part.from.clone();
        if let Some(nearest) =
            original.nearest(&self.recorded.store, step - 1)?.filter(|start| start.step > part.begin())
        {
            before = Some(nearest);
        }
        let to = state.step;
        let again = Part { from: before, to };
        found.restores += u64::from(again.from.is_some());
        found.steps_again += to - again.begin();
        let request = original.request(again.from.clone(), to, true);
        let Some(followed) = self.follow(&request, &again, signals, &mut |_, _| false)? else { return Ok(None) };
        let Some((_, replayed)) = last_state(&followed.run).filter(|(made, _)| *made == to) else {
            return Ok(Some(found));
        };
        self.tensors(&mut found, state, replayed)?;
        Ok(Some(found))
    }

    /// Compares the recorded state with the one that was computed again.
    fn tensors(&self, found: &mut Localization, recorded: &Taken, replayed: Digest) -> Result<(), Error> {
        let store = &self.recorded.store;
        let (first, second): (Snapshot, Snapshot) = (store.manifest(recorded.snapshot)?, store.manifest(replayed)?);
        let bytes = |snapshot: &Snapshot| -> Result<[Vec<u8>; 2], Error> {
            Ok([store.get(snapshot.parameters.file)?, store.get(snapshot.optimizer.file)?])
        };
        let (one, other) = (bytes(&first)?, bytes(&second)?);
        let diff = snapshot::diff(
            (&first, snapshot::Files { parameters: &one[0], optimizer: &one[1] }),
            (&second, snapshot::Files { parameters: &other[0], optimizer: &other[1] }),
        )
        .map_err(|why| ReplayError::Refused(Faults::one("snapshot#", "snapshot.file", why)))?;
        let differing: Vec<_> = diff.tensors.into_iter().filter(|tensor| !tensor.equal).collect();
        found.compared_at = Some(recorded.step);
        (found.recorded, found.replayed) = (Some(recorded.snapshot), Some(replayed));
        found.differing = differing.len() as u64;
        found.tensor = differing.first().map(|tensor| tensor.name.clone());
        found.module =
            found.tensor.as_ref().map(|name| name.rsplit_once('.').map_or(name.as_str(), |(module, _)| module).into());
        found.tensors = differing.into_iter().take(MOST_TENSORS).collect();
        Ok(())
    }
}

/// So many tensors are listed.
const MOST_TENSORS: usize = 20;

/// What was recorded, and how far it is to be repeated.
struct Recorded {
    store: Store,
    run: Run,
    id: Digest,
    stack: Stack,
    papers: Papers,
    /// What the record says of itself that its evidence contradicts.
    told: Faults,
    /// Steps to repeat.
    steps: u64,
}

impl Recorded {
    /// Finds the run; an archive is verified and taken into the store first.
    fn read(arguments: &Arguments, source: &OsString, to: Option<u64>) -> Result<Self, Error> {
        let source = Source::from(source.as_os_str());
        let failed = |error| Error::from(CliError::Read { name: source.name(), source: error });
        let path = &arguments.common.store;
        let given = match &source {
            Source::Digest(digest) => Given::Text(Store::open(path)?.get(*digest)?),
            Source::Stdin => Given::look(io::stdin()).map_err(failed)?,
            Source::File(name) => Given::look(File::open(name).map_err(failed)?).map_err(failed)?,
        };
        let (store, named) = match given {
            Given::Archive(archive) => {
                let store = Store::open_or_create(path)?;
                let bundle = xt_bundle::import(&store, archive, &source.name())?;
                (store, Named::Bundle(Box::new(bundle)))
            }
            Given::Text(text) => (Store::open(path)?, Named::read(&text, &source.name())?),
        };
        Self::of(store, &named, to)
    }

    fn of(store: Store, named: &Named, to: Option<u64>) -> Result<Self, Error> {
        let id = named.run();
        let run: Run = store.manifest(id)?;
        let papers = xt_bundle::papers(&store, &run, true)?;
        let (mut faults, mut told) = (papers.faults.clone(), Faults::new());
        let evidence = papers.evidence(&run);
        bind::check_told(&evidence, &mut told);
        if let Named::Bundle(bundle) = named {
            bind::check_bundle(&evidence, bundle, &mut told);
        }
        let recorded = papers.steps.len() as u64;
        let recorded = papers.plan.command().map_or(recorded, |_| run.progress.steps);
        if recorded == 0 && papers.plan.command().is_none_or(|_| run.artifacts.is_empty()) {
            faults.add("run#/trace", "replay.trace", "the run has no step that could be compared");
        }
        if to.is_some_and(|to| to > recorded) {
            let to = to.unwrap_or_default();
            faults.add("run#/trace", "replay.step", format!("--to {to}: the run has recorded {recorded} steps"));
        }
        let Some(stack) = run.stack.clone().filter(|_| faults.is_empty()) else {
            if run.stack.is_none() {
                faults.add("run#/stack", "replay.stack", "what the run ran on is not known");
            }
            return Err(ReplayError::Refused(faults).into());
        };
        let missing = papers.plan.inputs.iter().map(|input| input.digest);
        if let Some(digest) = missing.into_iter().find(|digest| !store.contains(*digest).unwrap_or(false)) {
            return Err(StoreError::Missing { digest }.into());
        }
        Ok(Self { steps: to.unwrap_or(recorded), store, run, id, stack, papers, told })
    }

    fn original(&self) -> Original<'_> {
        Original { run: &self.run, plan: &self.papers.plan, steps: &self.papers.steps }
    }

    /// Whether the replay repeats all of a run that came to its end, so that outputs can be compared.
    fn whole(&self) -> bool {
        self.run.status == Status::Succeeded && self.steps == self.papers.plan.work.steps
    }
}

/// What names the run.
enum Named {
    /// Its record.
    Run(Digest),
    /// A bundle, which must say what its evidence gives.
    Bundle(Box<Bundle>),
}

impl Named {
    fn read(text: &[u8], origin: &str) -> Result<Self, Error> {
        let value = parse_one(text, origin)?;
        if value.get("schema").and_then(Value::as_str) == Some(Bundle::TAG) {
            return Ok(Self::Bundle(Box::new(Bundle::decode(&value)?)));
        }
        Ok(Self::Run(Run::decode(&value)?.id()))
    }

    fn run(&self) -> Digest {
        match self {
            Self::Run(id) => *id,
            Self::Bundle(bundle) => bundle.run,
        }
    }
}

/// Compares as messages come.
struct Comparison<'a> {
    recorded: &'a [Step],
    reported: Option<&'a Reported>,
    /// The last step that was compared, or the last before the first one.
    at: u64,
    due: u64,
    ignore_stack: bool,
    allowed: Vec<PinDifference>,
    /// Pins that the worker itself turned out not to meet.
    refused: Vec<PinDifference>,
    equal: u64,
    divergence: Option<Divergence>,
    /// The stage of the divergence.
    stage: Option<StageName>,
    /// The lines that came, when they are to be drawn.
    seen: Vec<Step>,
    draws: bool,
}

impl<'a> Comparison<'a> {
    fn new(recorded: &'a Recorded, allowed: Vec<PinDifference>, arguments: &Arguments, part: &Part) -> Self {
        Self {
            recorded: &recorded.papers.steps,
            reported: recorded.stack.reported.as_ref(),
            at: part.begin(),
            due: part.to,
            ignore_stack: arguments.ignore_stack,
            allowed,
            refused: Vec::new(),
            equal: 0,
            divergence: None,
            stage: None,
            seen: Vec::new(),
            draws: arguments.svg.is_some(),
        }
    }

    /// Takes a message; true when nothing more is to be learned and the replay can stop.
    fn hear(&mut self, message: &Message) -> bool {
        match message {
            Message::Ready { version, samples_per_epoch, parameters, cpu_capability, threads } => {
                let now = Reported {
                    version: version.clone(),
                    samples_per_epoch: *samples_per_epoch,
                    parameters: *parameters,
                    cpu_capability: cpu_capability.clone(),
                    threads: *threads,
                };
                let differences = self.reported.map(|then| compare::reports(then, &now)).unwrap_or_default();
                let found = if self.ignore_stack { &mut self.allowed } else { &mut self.refused };
                found.extend(differences);
                !self.refused.is_empty()
            }
            Message::Step { line, .. } => self.step(line),
            _ => false,
        }
    }

    /// The supervisor looked at the stack again, right before it started the worker.
    fn check_stack(&mut self, recorded: &Stack, replayed: &Run) {
        let found = replayed.stack.as_ref().map(|stack| compare::stacks(recorded, stack)).unwrap_or_default();
        let new = found.into_iter().filter(|pin| !self.allowed.contains(pin));
        self.refused.extend(new);
    }

    fn step(&mut self, line: &Step) -> bool {
        if self.divergence.is_some() || line.step != self.at + 1 || line.step > self.due {
            return false;
        }
        let Some(recorded) = usize::try_from(self.at).ok().and_then(|index| self.recorded.get(index)) else {
            return false;
        };
        self.divergence = compare::steps(recorded, line);
        match &self.divergence {
            None => (self.equal, self.at) = (self.equal + 1, line.step),
            Some(_) => self.stage = Some(compare::first_stage(recorded, line)),
        }
        if self.draws {
            self.seen.push(line.clone());
        }
        self.divergence.is_some()
    }

    fn state(&self) -> &'static str {
        if self.divergence.is_none() { "equal" } else { "diverged" }
    }

    /// The report on a replay that has ended.
    fn conclude(self, recorded: &Recorded, followed: &Followed, part: &Part) -> Replay {
        let replayed = &followed.run;
        let done = replayed.status == Status::Succeeded && self.at == self.due;
        let outputs = if done && recorded.whole() && self.due == recorded.steps {
            compare::outputs(&recorded.run.artifacts, &replayed.artifacts)
        } else {
            Vec::new()
        };
        let parted = self.divergence.is_some() || outputs.iter().any(|file| !file.equal());
        let outcome = match (parted, done) {
            (true, _) => Outcome::Diverged,
            (false, true) => Outcome::Equal,
            (false, false) => Outcome::Incomplete,
        };
        Replay {
            run: recorded.id,
            plan: recorded.run.plan,
            replayed: replayed.id(),
            allowed: self.allowed,
            outcome,
            from: part.begin(),
            snapshot: part.from.as_ref().map(|start| start.snapshot),
            steps: self.due,
            equal_steps: self.equal,
            divergence: self.divergence,
            outputs,
            audit: None,
            localization: None,
        }
    }
}
