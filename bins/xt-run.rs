//! `xt-run`: from plans to run records, and to what was measured.
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_bundle::Given;
use xt_cli::{CliError, Common, Error, Manual, Output, Progress, Source, Tool, parse_one, read_documents};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Faults};
use xt_core::field::Manifest as _;
use xt_core::manifest::Artifact;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::evaluation::{Evaluation, Metrics};
use xt_core::manifest::intent::{Intent, Profile};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Metric;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::bind::WEIGHTS;
use xt_core::verb::custody::missing;
use xt_core::verb::doctor::report;
use xt_core::verb::evaluate;
use xt_record::{Attempt, RecordError};
use xt_runtime::{
    Clock, Followed, Request, Role, Runtime, RuntimeError, SampleEnd, Sampling, Secrets, Signals, Unfinished, follow,
    worker,
};
use xt_store::Store;

/// Run plans in custody: train, or measure what was trained; follow, cancel or sample runs; look what custody this host can give
#[derive(Parser, Debug)]
#[command(name = "xt-run", version, args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
struct XtRun {
    /// Plans: files, digests in the store, or - for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    plans: Vec<OsString>,
    /// Name this request: asking again under the same name gives the same run, never a second one
    #[arg(long, value_name = "ID", value_parser = identifier)]
    operation_id: Option<Name>,
    /// Give a secret that the plan's intent declares: it reaches the program as a descriptor; /dev/fd/N names an open one
    #[arg(long, value_name = "NAME=FILE", conflicts_with_all = ["attach", "cancel"])]
    secret: Vec<String>,
    /// Experiment that the runs are counted under [default: the one that the plan was compiled for, or "default"]
    #[arg(long, value_name = "NAME|ID", value_parser = identifier)]
    experiment: Option<Name>,
    /// Start, print the attempt, and leave it to its supervisor
    #[arg(long, conflicts_with_all = ["attach", "cancel"])]
    detach: bool,
    /// Follow a run that was started before; a signal ends the following, not the run
    #[arg(long, value_name = "RUN", value_parser = identifier, conflicts_with_all = ["plans", "operation_id"])]
    attach: Option<Name>,
    /// Ask for a run to be stopped, and wait until it has ended
    #[arg(long, value_name = "RUN", value_parser = identifier, conflicts_with_all = ["plans", "operation_id", "attach"])]
    cancel: Option<Name>,
    /// Try again what a run that did not succeed tried: a new attempt with an identity and a record of its own
    #[arg(long, value_name = "RUN", value_parser = identifier, conflicts_with_all = ["plans", "attach", "cancel"])]
    retry: Option<Name>,
    /// Ask for a run to be stopped at its next step, after a snapshot, and wait until it has ended
    #[arg(long, value_name = "RUN", value_parser = identifier, conflicts_with_all = ["plans", "operation_id", "attach", "cancel", "retry", "detach"])]
    drain: Option<Name>,
    /// Go on from the last snapshot of a run that was drained, or that ended early, as a new attempt
    #[arg(long, value_name = "RUN", value_parser = identifier, conflicts_with_all = ["plans", "operation_id", "attach", "cancel", "retry", "drain"])]
    resume: Option<Name>,
    /// Store the complete state after every N steps; it changes nothing that is learned
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["attach", "cancel", "retry", "drain", "resume"])]
    snapshot_every: Option<u64>,
    /// Of these, keep the latest K only [default: all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), requires = "snapshot_every")]
    snapshot_keep: Option<u64>,
    /// Wait for what cannot be had now, instead of exit status 75
    #[arg(long, conflicts_with_all = ["attach", "cancel", "retry", "drain"])]
    wait: bool,
    /// Drain the runs that have what this one needs, and no others; they go on afterwards
    #[arg(long, conflicts_with_all = ["attach", "cancel", "retry", "drain", "detach"])]
    preempt: bool,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE, global = true)]
    worker: Option<PathBuf>,
    /// Write the run records to this file, which appears only when every run succeeded
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Let a trained model write text
    Sample(Sample),
    /// Say which isolation this host enforces, and what to do about what is missing; needs no plan and no store
    Doctor(Doctor),
}

#[derive(clap::Args, Debug)]
struct Doctor {
    /// Which set of controls: full, in-container or none
    #[arg(long, value_name = "PROFILE", default_value = "full", value_parser = profile)]
    profile: Profile,
    /// Print the custody record (xt.custody/1) that a run would get, instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Sample {
    /// Run record, bundle or archive of a bundle: a file, a digest in the store, or - for standard input
    #[arg(value_name = "RUN|BUNDLE")]
    source: OsString,
    /// What to go on from
    #[arg(long, value_name = "TEXT", default_value = "\n", allow_hyphen_values = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tokens: u64,
    /// Divides the logits; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = temperature)]
    temperature: Finite,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Tool for XtRun {
    const MANUAL: Manual = Manual {
        input: "Plans (xt.plan/1), any number of them one after the other; they run in that order. Every plan is checked \
                before the first one runs.",
        output: "One run record (xt.run/1) a line for each plan, also when the run failed; for a plan that measures, what \
                 was measured (xt.evaluation/1), which names the run record, and the run record only when it failed. With \
                 --detach, the name of the attempt. A RUN is named by its attempt, its operation or its run; of several \
                 attempts the last is meant. A plan says nothing of experiments: one that `xt-compile --experiment` wrote is \
                 counted under that experiment, any other under `default`, and --experiment says otherwise. With \
                 --preempt, the runs in the way of a plan stop at a step boundary: those that share a conflict domain or an \
                 accelerator, and as few as will do for cores and memory, where those are declared. What they have stays \
                 theirs until they go on, which they do when the plan has run or could not be started; if that fails, or \
                 if xt-run is killed meanwhile, it stays closed to everybody else, and `xt-log resources` says how it is \
                 opened. Commands, evaluations and runs with secrets are waited for. An \
                 --operation-id gives the run that it stands for; with another request, or with --experiment and another \
                 experiment than it was first counted under, it is a conflict (exit 12) and nothing is started. With --cancel, exit status 0 says that the run ended as cancelled, 1 that it ended in \
                 another way. sample writes the text itself. doctor writes a table for people, or with --json one \
                 xt.custody/1 of a run that never was; it exits with 13 when a control that plans require by default is \
                 not what the profile promises.",
        files: &[
            ("$XT_STORE/runs/ATTEMPT/", "the folder of a run: logs, telemetry, started.json, finished.json"),
            ("$XT_STORE/quarantine/ATTEMPT/", "what a run that did not succeed left behind"),
        ],
        examples: &[
            ("xt-compile candidate.json | xt-run", "train"),
            (
                "xt-compile --experiment width candidate.json | xt-run",
                "train, and count the run under the experiment width",
            ),
            ("xt-compile evaluate heldout.json < bundle.json | xt-run", "measure"),
            ("xt-run --operation-id nightly-7 plan.json", "train once, however often this is asked"),
            ("xt-run --secret token=token.txt plan.json", "give the program a secret that its intent declares"),
            ("xt-run --detach plan.json", "start, and let it run without this terminal"),
            ("xt-run --attach att-1", "see how it goes"),
            ("xt-run --cancel att-1", "stop it"),
            ("xt-run --wait plan.json", "wait until nobody else has what it needs"),
            ("xt-run --preempt plan.json", "let whoever has it stop at a step, and go on afterwards"),
            ("xt-run --retry att-1", "try it again after it failed, as a new attempt"),
            (
                "xt-run --snapshot-every 100 --snapshot-keep 3 plan.json",
                "keep the last three states for xt-snapshot and xt-replay --from",
            ),
            ("xt-run --drain att-1", "stop it where it can go on, bit for bit: exit 76"),
            ("xt-run --resume att-1", "go on from there"),
            ("xt-run sample run.json --prompt 'Once'", "let the trained model write"),
            ("xt-run doctor", "see which isolation this host enforces"),
            ("xt-run doctor --profile in-container --json", "the same for a host without namespaces, for programs"),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Refused,
            Exit::Store,
            Exit::Conflict,
            Exit::Custody,
            Exit::Workload,
            Exit::System,
            Exit::NotNow,
            Exit::Drained,
        ],
        see_also: &["xt(7)", "xt-compile(1)", "xt-freeze(1)", "xt-replay(1)", "xt-snapshot(1)", "xt-log(1)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Cell::new(None);
    let code = xt_cli::main::<XtRun>(|tool| tool.act(&left));
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal: Signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

/// Sets the whole sandbox up around nothing, and says what held. The floors are those of a plan without an intent.
fn doctor(asked: &Doctor) -> Result<Exit, Error> {
    let custody = xt_sandbox::doctor(asked.profile, Intent::default_for(1).isolation.floor)?;
    let mut output = Output::new(None)?;
    if asked.json {
        output.document(&custody.encode())?;
    } else {
        report(&custody).iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()?;
    Ok(if missing(&custody).is_empty() { Exit::Yes } else { Exit::Custody })
}

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

impl XtRun {
    fn runtime(&self) -> Result<Runtime, Error> {
        let clock = self.common.given_time()?.map_or(Clock::system(), Clock::fixed);
        Ok(Runtime::new(&self.common.store, clock)?)
    }

    fn act(&self, left: &Left) -> Result<Exit, Error> {
        match (&self.verb, &self.cancel, &self.attach, &self.retry, &self.drain) {
            (Some(Verb::Doctor(asked)), ..) => doctor(asked),
            (Some(Verb::Sample(sample)), ..) => self.sample(sample),
            (None, Some(run), ..) => self.cancel(run, left),
            (None, None, Some(run), ..) => self.attach(run, left),
            (None, None, None, Some(run), _) => self.retry(run, left),
            (None, None, None, None, Some(run)) => self.drain(run, left),
            (None, None, None, None, None) => self.run(left),
        }
    }

    /// Runs every plan, one after the other.
    fn run(&self, left: &Left) -> Result<Exit, Error> {
        let requests = match &self.resume {
            Some(run) => {
                let runtime = self.runtime()?;
                vec![runtime.resumption(&runtime.find(run)?.id, &worker::find(self.worker.as_deref())?)?]
            }
            None => self.requests()?,
        };
        // Said before anything is recorded.
        let finder = Finder::new(self.worker.as_deref());
        requests.iter().try_for_each(|request| finder.of(&request.plan).map(drop))?;
        if self.operation_id.is_some() && requests.len() > 1 {
            let text = format!("--operation-id names one request, and there are {} plans", requests.len());
            return Err(CliError::Usage(text).into());
        }
        let runtime = self.runtime()?;
        let mut results = Results::new(self.output.clone());
        let signals = if self.detach { None } else { Some(Signals::block()?) };
        for mut request in requests {
            let done = self.one(&runtime, &mut request, signals.as_ref(), &mut results, left);
            self.restore(&runtime, &request.beside, signals.as_ref(), left)?;
            match done? {
                Done::Next => {}
                Done::Stop => break,
                Done::Left => return Ok(Exit::Workload),
            }
        }
        results.finish()
    }

    /// Runs one plan to its end, or starts it only.
    fn one(
        &self,
        runtime: &Runtime,
        request: &mut Request,
        signals: Option<&Signals>,
        results: &mut Results,
        left: &Left,
    ) -> Result<Done, Error> {
        let Some(attempt) = self.granted(runtime, request, signals, left)? else { return Ok(Done::Left) };
        let Some(signals) = signals else { return results.line(attempt.id.to_string()).map(|()| Done::Next) };
        let role = Role::Owner("xt-run");
        let Some(followed) = self.follow(runtime, &attempt.id, &request.plan, role, signals, left)? else {
            return Ok(Done::Left);
        };
        results.run(&followed.run, self.measured(&request.plan, &followed.run)?)?;
        Ok(if followed.signal.is_some() { Done::Stop } else { Done::Next })
    }

    /// Submits a request, and waits or makes room for it when that was asked for; what was drained for it is then in
    /// `request.beside`, also when this fails. `None` when a signal ended the waiting.
    fn granted(
        &self,
        runtime: &Runtime,
        request: &mut Request,
        signals: Option<&Signals>,
        left: &Left,
    ) -> Result<Option<Attempt>, Error> {
        let worker = Finder::new(self.worker.as_deref()).of(&request.plan)?;
        let mut told = false;
        loop {
            let reasons = match runtime.submit_or_get(request, &worker) {
                Err(RuntimeError::Record(RecordError::Postponed { reasons })) if self.wait || self.preempt => reasons,
                answer => return Ok(Some(answer?)),
            };
            if !told {
                eprintln_quietly(&format!("xt-run: waiting: {}", reasons.join("; ")));
                told = true;
            }
            if self.preempt {
                runtime.make_room(request)?;
            }
            if pause(signals, left)? {
                return Ok(None);
            }
        }
    }

    /// Lets go on what was drained for a run. Whatever cannot go on now keeps what it has, closed to everybody else.
    fn restore(
        &self,
        runtime: &Runtime,
        drained: &[Name],
        signals: Option<&Signals>,
        left: &Left,
    ) -> Result<(), Error> {
        let find = || worker::find(self.worker.as_deref());
        for attempt in drained {
            let mut started = runtime.go_on(attempt, &find);
            while matches!(started, Err(RuntimeError::Record(RecordError::Postponed { .. }))) && !pause(signals, left)?
            {
                started = runtime.go_on(attempt, &find);
            }
            let text = match started {
                Ok(going_on) => format!("xt-run: {attempt} goes on as {}", going_on.id),
                Err(error) => format!(
                    "xt-run: {attempt} was drained and cannot go on, so what it had stays closed: {error}\nhint: \
                     `xt-run --resume {attempt}` lets it go on; `xt-log resources` says what is closed, and how to open it"
                ),
            };
            eprintln_quietly(&text);
        }
        Ok(())
    }

    fn requests(&self) -> Result<Vec<Request>, Error> {
        let sources: Vec<Source> = self.plans.iter().map(|plan| Source::from(plan.as_os_str())).collect();
        let documents = read_documents(&sources, &|digest| self.lookup(digest))?;
        let several = documents.len() > 1;
        let secrets = Secrets::given(&self.secret)?;
        let mut faults = Faults::new();
        let mut requests = Vec::new();
        for (index, document) in documents.iter().enumerate() {
            let request = Plan::decode(&document.value).map(|plan| Request {
                operation: self.operation_id.clone(),
                secrets: secrets.clone(),
                cadence: Cadence { every: self.snapshot_every, keep: self.snapshot_keep, last: false },
                ..Request::new(plan, default_experiment())
            });
            match request.and_then(|request| request.check().map(|()| request)) {
                Ok(request) => requests.push(Request { experiment: self.experiment_of(&request)?, ..request }),
                Err(found) if several => faults.0.extend(found.within(&format!("{}:{index}", document.origin)).0),
                Err(found) => faults.0.extend(found.0),
            }
        }
        Ok(faults.or(requests)?)
    }

    /// What a run is counted under: as is said here, or as it was said before.
    fn experiment_of(&self, request: &Request) -> Result<Name, Error> {
        if let Some(named) = &self.experiment {
            return Ok(named.clone());
        }
        let known = self.runtime()?.experiment_of(&request.plan, request.operation.as_ref())?;
        Ok(known.unwrap_or_else(default_experiment))
    }

    /// What a succeeded run of a plan that measures has measured.
    fn measured(&self, plan: &Plan, run: &Run) -> Result<Option<Evaluation>, Error> {
        let metrics = plan.evaluation.as_ref().and_then(|_| evaluate::output(run, evaluate::METRICS));
        let Some(metrics) = metrics else { return Ok(None) };
        let metrics: Metrics = Metrics::decode(&parse_one(&self.lookup(metrics.digest)?, evaluate::METRICS)?)?;
        Ok(evaluate::evaluation(plan, run, metrics))
    }

    fn lookup(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        Ok(Store::open(&self.common.store)?.get(digest)?)
    }

    fn retry(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        let before = runtime.find(run)?;
        let plan: Plan = Store::open(&self.common.store)?.manifest(before.plan)?;
        let worker = Finder::new(self.worker.as_deref()).of(&plan)?;
        let attempt = runtime.retry(&before.id, self.operation_id.as_ref(), &worker)?;
        if self.detach {
            let mut results = Results::new(self.output.clone());
            results.line(attempt.id.to_string())?;
            return results.finish();
        }
        self.to_its_end(&runtime, &attempt, Role::Owner("xt-run"), left)
    }

    fn attach(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        let attempt = runtime.find(run)?;
        self.to_its_end(&runtime, &attempt, Role::Onlooker, left)
    }

    /// Follows an attempt to its end and writes its record.
    fn to_its_end(&self, runtime: &Runtime, attempt: &Attempt, role: Role<'_>, left: &Left) -> Result<Exit, Error> {
        let signals = Signals::block()?;
        let plan = Store::open(&self.common.store)?.manifest(attempt.plan)?;
        let Some(followed) = self.follow(runtime, &attempt.id, &plan, role, &signals, left)? else {
            return Ok(Exit::Workload);
        };
        let mut results = Results::new(self.output.clone());
        results.run(&followed.run, self.measured(&plan, &followed.run)?)?;
        results.finish()
    }

    fn cancel(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let (runtime, signals) = (self.runtime()?, Signals::block()?);
        let attempt = runtime.find(run)?;
        runtime.cancel(&attempt.id, "xt-run --cancel")?;
        let plan = Store::open(&self.common.store)?.manifest(attempt.plan)?;
        let Some(followed) = self.follow(&runtime, &attempt.id, &plan, Role::Onlooker, &signals, left)? else {
            return Ok(Exit::Workload);
        };
        let mut output = Output::new(self.output.as_deref())?;
        output.document(&followed.run.encode())?;
        output.finish()?;
        Ok(if followed.run.status == Status::Cancelled { Exit::Yes } else { Exit::No })
    }

    /// Stops a run where it can go on. A run that comes to its own end first is reported as what it is.
    fn drain(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        runtime.drain(&runtime.find(run)?.id, "xt-run --drain")?;
        self.attach(run, left)
    }

    /// Follows a run with a progress bar; `None` when signals ended the waiting.
    fn follow(
        &self,
        runtime: &Runtime,
        attempt: &Name,
        plan: &Plan,
        role: Role<'_>,
        signals: &Signals,
        left: &Left,
    ) -> Result<Option<Followed>, Error> {
        let units = if plan.evaluation.is_some() { "batches" } else { "steps" };
        let mut progress = Progress::new(&self.common, plan.candidate.name().as_str(), plan.work.steps, units);
        let mut pace = Pace::of(plan);
        let followed = follow(runtime, attempt, role, signals, &mut |message| match message {
            Message::Step { line, nanoseconds } => {
                let loss = line.loss.map_or("not finite".into(), |loss| format!("{:.4}", loss.get()));
                let speed = pace.tokens_per_second(line.micro_batches, *nanoseconds);
                progress.update(line.step, &format!("loss {loss}, {speed:.0} tokens/s"));
            }
            Message::Measured { batch, .. } => progress.update(*batch, ""),
            Message::Metric { line } => progress.update(line.step, &measured(line)),
            _ => {}
        });
        progress.finish();
        match followed {
            Ok(followed) => Ok(Some(followed)),
            Err(Unfinished::Failed(error)) => Err(error.into()),
            Err(Unfinished::Left(signal)) => {
                left.set(Some(signal));
                Ok(None)
            }
        }
    }
}

/// The worker of each plan: a command is its own, and needs no other to be there.
struct Finder<'a>(Option<&'a Path>);

impl<'a> Finder<'a> {
    const fn new(named: Option<&'a Path>) -> Self {
        Self(named)
    }

    fn of(&self, plan: &Plan) -> Result<PathBuf, Error> {
        match &plan.program {
            Some(program) => Ok(PathBuf::from(&program.executable.path)),
            None => Ok(worker::find(self.0)?),
        }
    }
}

/// The first measurements of a line, for people.
fn measured(line: &Metric) -> String {
    let shown = line.values.iter().filter_map(|(name, value)| Some((name, value.as_ref()?.approximate())));
    shown.take(3).map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
}

/// How long to wait before asking again for what could not be had.
const PAUSE: Duration = Duration::from_millis(200);
/// What comes after a run.
enum Done {
    /// The next one.
    Next,
    /// Nothing: a signal came while it ran.
    Stop,
    /// Nothing: signals ended the waiting.
    Left,
}

/// Waits a little; whether a signal ends the waiting.
fn pause(signals: Option<&Signals>, left: &Left) -> Result<bool, Error> {
    std::thread::sleep(PAUSE);
    let signal = signals.map(Signals::take).transpose()?.flatten();
    left.set(signal.or(left.get()));
    Ok(signal.is_some())
}

/// How fast it goes, smoothed.
struct Pace {
    tokens: f64,
    seconds: f64,
    tokens_per_micro_batch: f64,
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    fn of(plan: &Plan) -> Self {
        let per = plan.native().map_or(0, |candidate| candidate.batching.samples * candidate.model.context());
        Self { tokens: 0.0, seconds: 0.0, tokens_per_micro_batch: per as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    fn tokens_per_second(&mut self, micro_batches: u64, nanoseconds: u64) -> f64 {
        // Old steps count for less and less, so that the figure follows a change within some twenty steps.
        self.tokens = self.tokens * 0.95 + micro_batches as f64 * self.tokens_per_micro_batch;
        self.seconds = self.seconds * 0.95 + nanoseconds as f64 / 1e9;
        if self.seconds > 0.0 { self.tokens / self.seconds } else { 0.0 }
    }
}

/// Run records on their way out. To standard output each goes at once; a file appears only when every run succeeded,
/// and when one did not, the records go to standard output instead.
struct Results {
    file: Option<PathBuf>,
    kept: Vec<String>,
    exit: Exit,
}

impl Results {
    fn new(file: Option<PathBuf>) -> Self {
        Self { file, kept: Vec::new(), exit: Exit::Yes }
    }

    fn run(&mut self, run: &Run, measured: Option<Evaluation>) -> Result<(), Error> {
        if self.exit == Exit::Yes {
            self.exit = exit_of(run);
        }
        if run.status != Status::Succeeded {
            eprintln_quietly(&format!("xt-run: {} {}: {}", run.attempt, run.status, run.cause));
        }
        self.line(measured.map_or_else(|| run.encode(), |evaluation| evaluation.encode()).canonical())
    }

    fn line(&mut self, line: String) -> Result<(), Error> {
        if self.file.is_some() {
            self.kept.push(line);
            return Ok(());
        }
        Output::new(None)?.line(&line)
    }

    fn finish(self) -> Result<Exit, Error> {
        let file = self.file.as_deref().filter(|_| self.exit == Exit::Yes);
        let mut output = Output::new(file)?;
        for line in &self.kept {
            output.line(line)?;
        }
        output.finish()?;
        Ok(self.exit)
    }
}

/// A worker that was not started because of its isolation has left a custody record.
fn exit_of(run: &Run) -> Exit {
    match run.status {
        Status::Succeeded => Exit::Yes,
        Status::Drained => Exit::Drained,
        Status::NotStarted if run.custody.is_some() => Exit::Custody,
        _ => Exit::Workload,
    }
}

/// Text without the control characters that move a terminal's cursor or change its state.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

fn eprintln_quietly(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// What is counted under nothing in particular.
fn default_experiment() -> Name {
    Name::new("default").unwrap_or_else(|| unreachable!("a literal identifier"))
}

fn identifier(text: &str) -> Result<Name, String> {
    Name::new(text).ok_or_else(|| format!("expected an identifier of the form {}", Name::PATTERN))
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).ok_or_else(|| "expected full, in-container or none".into())
}

fn temperature(text: &str) -> Result<Finite, String> {
    let number = text.parse().ok().and_then(Finite::new).filter(|number| (0.0..=100.0).contains(&number.get()));
    number.ok_or_else(|| "expected a number from 0 to 100".into())
}

impl XtRun {
    /// Lets the model of a run or bundle write.
    fn sample(&self, sample: &Sample) -> Result<Exit, Error> {
        let value = self.trained(&Source::from(sample.source.as_os_str()))?;
        let store = Store::open(&self.common.store)?;
        let (plan, weights) = model(&value)?;
        let plan: Plan = store.manifest(plan)?;
        let sampling = Sampling {
            weights: weights.digest,
            bytes: weights.bytes,
            prompt: sample.prompt.clone(),
            tokens: sample.tokens,
            temperature: sample.temperature,
            seed: sample.seed,
        };
        let (worker, signals) = (worker::find(self.worker.as_deref())?, Signals::block()?);
        let mut output = Output::new(None)?;
        output.bytes(sample.prompt.as_bytes())?;
        // A model may write anything, and a model from a stranger may do so on purpose.
        let to_people = io::stdout().is_terminal();
        let mut written = Ok(());
        let ended = xt_runtime::sample(&store, &plan, &sampling, &worker, &signals, &mut |text| {
            let text = if to_people { printable(text) } else { text.to_string() };
            written = output.bytes(text.as_bytes());
            written.is_ok()
        })?;
        written?;
        output.bytes(b"\n")?;
        Ok(if ended == SampleEnd::Completed { Exit::Yes } else { Exit::Workload })
    }
}

impl XtRun {
    /// The run record or bundle at `source`; an archive is verified and taken into the store first.
    fn trained(&self, source: &Source) -> Result<Value, Error> {
        let failed = |error| Error::from(CliError::Read { name: source.name(), source: error });
        let given = match source {
            Source::Digest(digest) => Given::Text(self.lookup(*digest)?),
            Source::Stdin => Given::look(io::stdin()).map_err(failed)?,
            Source::File(path) => Given::look(std::fs::File::open(path).map_err(failed)?).map_err(failed)?,
        };
        match given {
            Given::Text(text) => parse_one(&text, &source.name()),
            Given::Archive(archive) => {
                let store = Store::open_or_create(&self.common.store)?;
                Ok(xt_bundle::import(&store, archive, &source.name())?.encode())
            }
        }
    }
}

/// The plan and the trained parameters that a run record or a bundle names.
fn model(value: &Value) -> Result<(Digest, Artifact), Faults> {
    let none = |what: &str| Faults::one("", "model.missing", format!("{what} names no {WEIGHTS}"));
    if value.get("schema").and_then(Value::as_str) == Some(Bundle::TAG) {
        let bundle = Bundle::decode(value)?;
        let member = bundle.members.into_iter().find(|member| member.file.path.as_str().ends_with(WEIGHTS));
        return Ok((bundle.plan, member.ok_or_else(|| none("this bundle"))?.file));
    }
    let run = Run::decode(value)?;
    if run.status != Status::Succeeded {
        let message = format!("only a succeeded run has a model, this one is {}: {}", run.status, run.cause);
        return Err(Faults::one("/status", "model.status", message));
    }
    let file = run.artifacts.into_iter().find(|file| file.path.as_str() == WEIGHTS);
    Ok((run.plan, file.ok_or_else(|| none("this run"))?))
}
