//! `xt-replay`: does it come out bit for bit? If not, at which step and in what first?

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nix::sys::signal::Signal;
use xt_bundle::{Given, Papers};
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Source, Tool, note, parse_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::replay::{Divergence, Outcome, PinDifference, Replay};
use xt_core::manifest::run::{Reported, Run, Stack, Status};
use xt_core::manifest::trace::Step;
use xt_core::name::Name;
use xt_core::verb::{bind, compare};
use xt_runtime::worker::{self, Worker};
use xt_runtime::{Clock, Followed, Request, Role, Runtime, RuntimeError, Signals, Unfinished, follow};
use xt_store::{Store, StoreError};

/// Repeat a run and compare it step by step, bit for bit
///
/// The stack that recorded the run is compared with the present one first: a replay on another stack is refused with
/// every difference before anything computes. Then each step is compared as it comes, and the replay stops at the first
/// that differs. After the last step the outputs are compared.
#[derive(Parser, Debug)]
#[command(name = "xt-replay", version)]
struct Arguments {
    /// Run record, bundle or archive: a file, a digest in the store, or - for standard input
    #[arg(value_name = "RUN|BUNDLE", default_value = "-")]
    source: OsString,
    /// Stop after this step [default: the last recorded one]
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// Replay on another stack than the recorded one; the report lists what differs
    #[arg(long)]
    ignore_stack: bool,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    /// Write the report to FILE, which appears only when the replay was equal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "One run record (xt.run/1), bundle (xt.bundle/1) or archive of xt-freeze. An archive is verified and taken \
                into the store first; the store may be absent or empty then.",
        output: "One xt.replay/1: steps compared, the first divergence by step and component, outputs by digest. The run \
                 record of the replay is in the store.",
        files: &[(".xt", "the store; --store or XT_STORE names another")],
        examples: &[
            ("xt-replay model.tar.zst", "Repeat the run of an archive and compare every step."),
            (
                "xt-replay --store /tmp/empty - < model.tar.zst",
                "The same as a stranger, who has nothing but the archive.",
            ),
            ("xt-compile candidate.json | xt-run | xt-replay", "Train twice and compare."),
            ("xt-replay --to 10 run.json", "Compare the first ten steps only."),
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
        see_also: &["xt-run(1)", "xt-freeze(1)", "xt-log(1)", "xt-store(5)", "xt-manifest(5)", "xt(7)"],
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
    let code = xt_cli::main(|arguments: Arguments| arguments.replay(&left));
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

impl Arguments {
    fn replay(&self, left: &Left) -> Result<Exit, Error> {
        let recorded = Recorded::read(self)?;
        let worker = worker::find(self.worker.as_deref())?;
        let allowed = self.admit(&recorded, &worker)?;
        let request = Request {
            mode: Mode::Replay,
            to_step: (recorded.steps < recorded.papers.plan.work.steps).then_some(recorded.steps),
            ..Request::new(recorded.papers.plan.clone(), experiment())
        };
        let (runtime, signals) = (self.runtime()?, Signals::block()?);
        let attempt = runtime.submit_or_get(&request, &worker)?.id;
        let mut comparison = Comparison::new(&recorded, allowed, self.ignore_stack);
        let mut progress = Progress::new(&self.common, "replay", recorded.steps, "steps");
        let mut failed = None;
        let followed = follow(&runtime, &attempt, Role::Owner("xt-replay"), &signals, &mut |message| {
            let stop = comparison.hear(message);
            progress.update(comparison.equal, comparison.state());
            if stop && let Err(error) = runtime.cancel(&attempt, "xt-replay: what was to be seen is seen") {
                failed.get_or_insert(error);
            }
        });
        progress.finish();
        let followed = match followed {
            Ok(followed) => followed,
            Err(Unfinished::Failed(error)) => return Err(error.into()),
            Err(Unfinished::Left(signal)) => {
                left.set(Some(signal));
                return Ok(Exit::Workload);
            }
        };
        failed.map_or(Ok(()), |error: RuntimeError| Err(Error::from(error)))?;
        comparison.check_stack(&recorded.stack, &followed.run);
        if !comparison.refused.is_empty() {
            return Err(ReplayError::Refused(compare::refusal(&comparison.refused)).into());
        }
        self.report(&recorded, &comparison.conclude(&recorded, &followed), &followed)
    }

    fn runtime(&self) -> Result<Runtime, Error> {
        let fixed = std::env::var_os(Clock::VARIABLE).is_some() || std::env::args().any(|a| a.starts_with("--now"));
        let clock = if fixed { Clock::fixed(self.common.now()?) } else { Clock::system() };
        Ok(Runtime::new(&self.common.store, clock)?)
    }

    /// Compares every pin with what would be used now. Gives the differences that are allowed.
    fn admit(&self, recorded: &Recorded, worker: &std::path::Path) -> Result<Vec<PinDifference>, Error> {
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

    /// Prints the report, and says in one line what it says.
    fn report(&self, recorded: &Recorded, replay: &Replay, followed: &Followed) -> Result<Exit, Error> {
        let exit = match (replay.outcome, followed.run.status) {
            (Outcome::Equal, _) => Exit::Yes,
            (Outcome::Diverged, _) => Exit::No,
            (Outcome::Incomplete, Status::NotStarted) if followed.run.custody.is_some() => Exit::Custody,
            (Outcome::Incomplete, _) => Exit::Workload,
        };
        note(&self.common, &format!("replay: {}", sentence(replay, followed)));
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

fn experiment() -> Name {
    Name::new("replay").unwrap_or_else(|| unreachable!("a literal identifier"))
}

fn sentence(replay: &Replay, followed: &Followed) -> String {
    let Replay { outcome, steps, equal_steps, divergence, outputs, .. } = replay;
    match (outcome, divergence) {
        (Outcome::Equal, _) => format!("equal, {equal_steps} of {steps} steps"),
        (Outcome::Diverged, Some(Divergence { step, component, recorded, replayed, .. })) => {
            format!("diverged at step {step}: {component}: recorded {recorded}; replayed {replayed}")
        }
        (Outcome::Diverged, None) => {
            let names: Vec<&str> = outputs.iter().filter(|file| !file.equal()).map(|file| file.path.as_str()).collect();
            format!("diverged after {equal_steps} equal steps: outputs {}", names.join(", "))
        }
        (Outcome::Incomplete, _) => {
            let Run { status, cause, .. } = &followed.run;
            format!("incomplete, {equal_steps} of {steps} steps were equal: {status}: {cause}")
        }
    }
}

/// What was recorded, and how far it is to be repeated.
struct Recorded {
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
    fn read(arguments: &Arguments) -> Result<Self, Error> {
        let source = Source::from(arguments.source.as_os_str());
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
        Self::of(&store, &named, arguments.to)
    }

    fn of(store: &Store, named: &Named, to: Option<u64>) -> Result<Self, Error> {
        let id = named.run();
        let run: Run = store.manifest(id)?;
        let papers = xt_bundle::papers(store, &run, true)?;
        let (mut faults, mut told) = (papers.faults.clone(), Faults::new());
        let evidence = papers.evidence(&run);
        bind::check_told(&evidence, &mut told);
        if let Named::Bundle(bundle) = named {
            bind::check_bundle(&evidence, bundle, &mut told);
        }
        let recorded = papers.steps.len() as u64;
        if recorded == 0 {
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
        Ok(Self { steps: to.unwrap_or(recorded), run, id, stack, papers, told })
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
    due: u64,
    ignore_stack: bool,
    allowed: Vec<PinDifference>,
    /// Pins that the worker itself turned out not to meet.
    refused: Vec<PinDifference>,
    equal: u64,
    divergence: Option<Divergence>,
}

impl<'a> Comparison<'a> {
    fn new(recorded: &'a Recorded, allowed: Vec<PinDifference>, ignore_stack: bool) -> Self {
        Self {
            recorded: &recorded.papers.steps,
            reported: recorded.stack.reported.as_ref(),
            due: recorded.steps,
            ignore_stack,
            allowed,
            refused: Vec::new(),
            equal: 0,
            divergence: None,
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
        if self.divergence.is_some() || line.step != self.equal + 1 || line.step > self.due {
            return false;
        }
        let recorded = usize::try_from(self.equal).ok().and_then(|index| self.recorded.get(index));
        self.divergence = recorded.and_then(|recorded| compare::steps(recorded, line));
        if self.divergence.is_none() {
            self.equal += 1;
        }
        self.divergence.is_some()
    }

    fn state(&self) -> &'static str {
        if self.divergence.is_none() { "equal" } else { "diverged" }
    }

    /// The report on a replay that has ended.
    fn conclude(self, recorded: &Recorded, followed: &Followed) -> Replay {
        let replayed = &followed.run;
        let done = replayed.status == Status::Succeeded && self.equal == self.due;
        let outputs = if done && recorded.whole() {
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
            steps: self.due,
            equal_steps: self.equal,
            divergence: self.divergence,
            outputs,
        }
    }
}
