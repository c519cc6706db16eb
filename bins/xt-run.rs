//! `xt-run`: from plans to run records, and to what was measured.
use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_cli::{CliError, Common, Error, Manual, Tool, note};
use xt_core::digest::Digest;
use xt_core::fault::Exit;
use xt_core::name::Name;
use xt_runtime::{Clock, Request, Role, Runtime, SecretFile, Signals, worker};
use xt_store::Store;

#[path = "xt-run/admission.rs"]
mod admission;
#[path = "xt-run/doctor.rs"]
mod doctor;
#[path = "xt-run/following.rs"]
mod following;
#[path = "xt-run/requests.rs"]
mod requests;
#[path = "xt-run/results.rs"]
mod results;
#[path = "xt-run/sample.rs"]
mod sample;

use doctor::{Doctor, doctor};
use requests::Finder;
use results::Results;
use sample::Sample;

/// Run plans in custody: train, or measure what was trained; follow, cancel or sample runs; look what custody this host can give
#[derive(Parser, Debug)]
#[command(name = "xt-run", version, subcommand_negates_reqs = true, subcommand_precedence_over_arg = true)]
struct XtRun {
    /// Plans: files, digests in the store, or - for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    plans: Vec<OsString>,
    /// Name this request: asking again under the same name gives the same run, never a second one
    #[arg(long, value_name = "ID", value_parser = identifier)]
    operation_id: Option<Name>,
    /// Run nothing again: a plan whose run in this store has succeeded, was held, or is under way gives that run; so a stream of plans that was interrupted goes on where it was
    #[arg(long, conflicts_with_all = ["operation_id", "attach", "cancel", "retry", "drain", "resume"])]
    once: bool,
    /// Give a secret that the plan's intent declares: it reaches the program as a descriptor; /dev/fd/N names an open one
    #[arg(long, value_name = "NAME=FILE", conflicts_with_all = ["attach", "cancel"])]
    secret: Vec<SecretFile>,
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
    /// Ask for a run to be stopped at its next step, after a snapshot, and wait until it has ended; one that has ended or ends first is reported as it is, with the exit status of its own end
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
            (
                "xt-compile branch --grid grid.jsonl | xt-run --once | xt-replay branches --cells --csv cells.csv",
                "label a grid of branches; the same again after an interruption runs only what is missing",
            ),
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
            Exit::Bug,
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

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

impl XtRun {
    fn runtime(&self) -> Result<Runtime, Error> {
        let clock = self.common.given_time().map_or(Clock::system(), Clock::fixed);
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
        let requests = if let Some(run) = &self.resume {
            let runtime = self.runtime()?;
            vec![runtime.resumption(&runtime.find(run)?.id, &worker::find(self.worker.as_deref())?)?]
        } else {
            let requests = self.requests()?;
            self.same_stack(&requests)?;
            requests
        };
        self.grounded(requests.iter().map(|request| &request.plan))?;
        // Said before anything is recorded.
        let finder = Finder::new(self.worker.as_deref());
        requests.iter().try_for_each(|request| finder.of(&request.plan).map(drop))?;
        if self.operation_id.is_some() && requests.len() > 1 {
            let text = format!("--operation-id names one request, and there are {} plans", requests.len());
            return Err(CliError::Usage(text).into());
        }
        self.tell_withdrawn(&requests)?;
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

    /// Tells people of everything that the plans rest on and that was withdrawn.
    fn tell_withdrawn(&self, requests: &[Request]) -> Result<(), Error> {
        let Ok(store) = Store::open(&self.common.store) else { return Ok(()) };
        let plans = requests.iter().map(|request| &request.plan);
        for said in xt_bundle::withdrawn_under("what runs", &store, plans)? {
            note(&self.common, &format!("xt-run: {said}"));
        }
        Ok(())
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
        self.tell(&followed.run);
        results.run(&followed.run, self.measured(&request.plan, &followed.run)?)?;
        Ok(if followed.signal.is_some() { Done::Stop } else { Done::Next })
    }

    fn lookup(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        Ok(Store::open(&self.common.store)?.get(digest)?)
    }
}

/// What comes after a run.
enum Done {
    /// The next one.
    Next,
    /// Nothing: a signal came while it ran.
    Stop,
    /// Nothing: signals ended the waiting.
    Left,
}

fn identifier(text: &str) -> Result<Name, String> {
    Name::new(text).ok_or_else(|| format!("expected an identifier of the form {}", Name::PATTERN))
}
