//! `xt-log`: the record, for people and programs.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, stdout};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xt_cli::{CliError, Common, Error, Manual, Output, Source, Tool, note, read_one};
use xt_core::canonical::Value;
use xt_core::count::counted;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest as _, object};
use xt_core::manifest::action::{Action, ActionKind};
use xt_core::manifest::decision::Objective;
use xt_core::manifest::event::Level;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::reconciliation::{Found, Reconciliation};
use xt_core::manifest::resources::Inventory;
use xt_core::manifest::run::{Run, Status as Ended};
use xt_core::manifest::status::Status;
use xt_core::manifest::withdrawal::Withdrawal;
use xt_core::name::Name;
use xt_core::verb::export::{self, Curves};
use xt_core::verb::lineage::{self, Direction, Lineage, Step};
use xt_core::verb::settle::{ActionState, Machine as _};
use xt_core::verb::why::story;
use xt_record::{Asked, Record, RecordError};
use xt_runtime::{Clock, Folder, LastWords, Runtime, RuntimeError, worker};
use xt_store::Store;

/// Read the record, and settle what a crash left open
#[derive(Parser, Debug)]
#[command(name = "xt-log", version)]
struct Log {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand, Debug)]
enum Question {
    /// Print events in order, one xt.event/1 a line
    Events {
        /// Begin after the event with this sequence number
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        after: u64,
        /// Go on with what is written from now on, until stopped
        #[arg(long, short)]
        follow: bool,
    },
    /// Print where every attempt stands, in the order of creation: a table on a terminal, one xt.status/1 a line otherwise
    Status {
        /// Only what belongs to this experiment, node, run, operation, plan or run record (that one also as file or -)
        #[arg(value_name = "ID")]
        id: Option<String>,
    },
    /// Print what an id stands for: attempts as xt.status/1, an action as xt.action/1, an experiment that has no attempts yet as xt.quiescence/1 (`wait` prints that of any)
    Show {
        /// An id that the record knows
        id: String,
    },
    /// Tell in a paragraph what ran, on what, and how it ended
    Why {
        /// A run: its attempt, operation, run or plan, or its run record as id, file or -
        run: String,
    },
    /// Print what a run reports, line by line as it comes, until it has ended
    Tail {
        /// A run: its attempt, operation, run or plan, or its run record as id, file or -; of several attempts the last
        run: String,
        /// Begin after so many lines: those that were read before
        #[arg(long, value_name = "LINES", default_value_t = 0)]
        after: u64,
    },
    /// Write what a run measured, step by step, for programs that draw curves; a run that goes on is written as far as it is
    #[command(group = clap::ArgGroup::new("form").required(true).multiple(true))]
    Export {
        /// A run: its attempt, operation, run or plan, or its run record as id, file or -; of several attempts the last
        run: String,
        /// A table, one row a step
        #[arg(long, value_name = "FILE", group = "form")]
        csv: Option<PathBuf>,
        /// TensorBoard's event file, in a folder of its own below DIR
        #[arg(long, value_name = "DIR", group = "form")]
        tensorboard: Option<PathBuf>,
        /// The folder that DVCLive writes
        #[arg(long, value_name = "DIR", group = "form")]
        dvclive: Option<PathBuf>,
        /// A run in a tracking folder of MLflow
        #[arg(long, value_name = "DIR", group = "form")]
        mlflow: Option<PathBuf>,
    },
    /// Wait until nothing of an experiment runs or is still to be started, and print it as xt.quiescence/1
    Wait {
        /// The experiment
        experiment: String,
        /// Give up after so many seconds, with exit status 75
        #[arg(long, value_name = "SECONDS")]
        timeout: Option<u64>,
        #[command(flatten)]
        starting: Starting,
    },
    /// Ask for every live attempt of an experiment to be stopped, and print the xt.action/1
    Cancel {
        /// The experiment
        experiment: String,
    },
    /// Create an experiment
    Experiment {
        #[command(subcommand)]
        verb: ExperimentVerb,
    },
    /// Settle what a crash left open, and print one xt.reconciliation/1 for each attempt that had not ended
    Reconcile {
        /// Only what belongs to this attempt, operation, run, node or experiment, or to the attempt of a run record in a file or -
        #[arg(value_name = "ID")]
        id: Option<String>,
        #[command(flatten)]
        starting: Starting,
    },
    /// Print what this host has to give to runs, what is taken and by whom, and what can be seen of it now
    Resources {
        /// Declare what there is: an xt.inventory/1 in a file, a digest in the store, or - for standard input
        #[arg(long, value_name = "INVENTORY", conflicts_with_all = ["undeclare", "clear"])]
        declare: Option<OsString>,
        /// Take the declaration back: then only conflict domains and accelerators are kept apart
        #[arg(long, conflicts_with = "clear")]
        undeclare: bool,
        /// Give back what an attempt has that is known not to run, although nobody can see it from here
        #[arg(long, value_name = "LEASE", requires = "reason")]
        clear: Option<String>,
        /// Why; it stands in the record
        #[arg(long, value_name = "TEXT", value_parser = words)]
        reason: Option<String>,
    },
    /// Print what an object of the store came from, one JSON object a link: a tree on a terminal
    Lineage {
        /// A document or a file by its digest, a run by a name of it, or a document itself: its file, or - for standard input
        #[arg(value_name = "DIGEST")]
        digest: OsString,
        /// Print what came from it instead
        #[arg(long)]
        down: bool,
        /// Print a graph in the language of Graphviz
        #[arg(long)]
        dot: bool,
    },
    /// Say that an object is not to be relied on any more, and print everything that came from it
    ///
    /// Nothing is removed and nothing stops: `lineage` shows it from then on, and `xt-freeze verify` refuses bundles that
    /// came from it.
    Withdraw {
        /// A document or a file by its digest, or a document itself: its file, or - for standard input
        #[arg(value_name = "DIGEST")]
        digest: OsString,
        /// Why, in words
        #[arg(long, value_name = "TEXT", value_parser = words)]
        why: String,
    },
    /// Make every table again from the events, in a second database, and put right what differs
    Rebuild {
        /// Only compare; exit status 1 when something differs
        #[arg(long)]
        check: bool,
    },
}

#[derive(Subcommand, Debug)]
enum ExperimentVerb {
    /// Create an experiment with an objective; the same again changes nothing
    New {
        /// The objective: a file, a digest in the store, or - for standard input
        #[arg(value_name = "OBJECTIVE")]
        objective: OsString,
        /// Its name [default: made from the digest of the objective]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

#[derive(clap::Args, Debug)]
struct Starting {
    /// The worker for runs that no runtime ever got [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
}

impl Tool for Log {
    const MANUAL: Manual = Manual {
        input: "The record of the store. events, status, show, why and tail only read; a store on a read-only disk will do. \
                An objective is the object that xt.decision-context/1 has under objective.",
        output: "One JSON document a line. Events are in the order of their sequence numbers, which have no gaps; the time \
                 in them is that of the writer's clock and orders nothing. In a status, `state` is what the record holds \
                 and `observed` what can be seen now: an attempt whose supervisor is gone without having recorded an end \
                 is lost, one whose supervisor cannot be seen from here is uncertain. `seed` is that of the plan: what a run \
                 trains with, and in an evaluation the seed of its spec, whatever the model was trained with. Under the \
                 experiment `replay` stands what xt-replay, xt-snapshot and xt-triage did again to check or to find a state. \
                 status is a table when standard output is a terminal. why writes text. tail writes the lines of telemetry.jsonl as they are; whoever \
                 stops reading goes on later with --after and the number of lines read. export writes loss, gradient_norm and \
                 learning_rate of each step, or the metrics of a command by their names, and leaves out what is not finite; \
                 in a table, the columns before these are step and seconds, the time that the steps up to this one took, which \
                 is 0 for a command; \
                 a later export of the same run takes the place of the earlier one. In a link, `to` came from `from`, \
                 which was its `role`; `depth` counts links, and `again` says that it was shown before. reconcile exits with 3 when \
                 something is left to a person; the reason is in the document.",
        files: &[
            (".xt", "the store; --store or XT_STORE names another"),
            ("$XT_STORE/record.db", "the record"),
            ("$XT_STORE/resources.json", "what the operator declared"),
            ("$XT_STORE/runs/ATTEMPT/telemetry.jsonl", "what a run reported"),
        ],
        examples: &[
            ("xt-log events --follow", "print what happened and go on with what happens"),
            ("xt-log events --after 40", "print what happened since event 40"),
            ("xt-log status", "print where every attempt stands"),
            ("xt-log show op-1", "print where the attempt of operation op-1 stands"),
            ("xt-log why att-1", "read what ran, on what, and how it ended"),
            ("xt-log tail att-1", "watch the steps of a run"),
            ("xt-log export att-1 --csv steps.csv", "get a table, one row a step"),
            ("xt-log export att-1 --tensorboard curves/", "draw its curves, beside those of others, with TensorBoard"),
            ("xt-log experiment new objective.json --name width", "create an experiment"),
            ("xt-log wait width", "wait until all its runs have ended, and see what would move it on"),
            ("xt-log cancel width", "stop every run of it"),
            ("xt-log reconcile", "settle what a crash left open"),
            ("xt-log resources", "see what this host has to give, and who has what"),
            ("xt-log resources --declare inventory.json", "give no more than that to all runs together"),
            ("xt-log lineage sha256:9f86…", "see what a model came from: run, plan, candidate, dataset, files"),
            ("xt-log lineage run.json", "see what a run came from"),
            ("xt-log withdraw sha256:9f86… --why mislabelled", "say so, and see everything that came from it"),
            ("xt-log lineage --down sha256:9f86… --dot | dot -Tsvg", "draw everything that a file went into"),
            ("xt-log rebuild --check", "prove that the record follows from its events"),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Undecided,
            Exit::Refused,
            Exit::Store,
            Exit::Conflict,
            Exit::System,
            Exit::Bug,
            Exit::NotNow,
        ],
        see_also: &["xt-run(1)", "xt-store(1)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    // reconcile and wait start supervisors, which are this program again.
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    xt_cli::main(|log: Log| {
        let common = &log.common;
        match &log.question {
            Question::Events { after, follow } => events(common, *after, *follow),
            Question::Status { id } => status(common, id.as_deref().map(meant).transpose()?.as_deref()),
            Question::Show { id } => show(&open(common)?, &meant(id)?),
            Question::Why { run } => why(common, &meant(run)?),
            Question::Tail { run, after } => tail(common, &meant(run)?, *after),
            Question::Export { run, csv, tensorboard, dvclive, mlflow } => {
                export(common, &meant(run)?, [csv, tensorboard, dvclive, mlflow].map(Option::as_deref))
            }
            Question::Wait { experiment, timeout, starting } => wait(common, experiment, *timeout, starting),
            Question::Cancel { experiment } => cancel(common, experiment),
            Question::Experiment { verb: ExperimentVerb::New { objective, name } } => {
                experiment(common, &Source::from(objective.as_os_str()), name.as_deref())
            }
            Question::Reconcile { id, starting } => {
                reconcile(common, id.as_deref().map(meant).transpose()?.as_deref(), starting)
            }
            Question::Resources { declare, undeclare, clear, reason } => {
                let clear = clear.as_deref().zip(reason.as_deref());
                resources(common, declare.as_ref().map(|name| Source::from(name.as_os_str())), *undeclare, clear)
            }
            Question::Lineage { digest, down, dot } => {
                lineage(common, digest_of(digest, common)?, if *down { Direction::Down } else { Direction::Up }, *dot)
            }
            Question::Withdraw { digest, why } => withdraw(common, digest_of(digest, common)?, why),
            Question::Rebuild { check } => rebuild(common, *check),
        }
    })
}

/// Opens the store first: it refuses layouts of other versions before anything in them is read.
fn open(common: &Common) -> Result<Record, Error> {
    let store = Store::open(&common.store)?;
    Ok(Record::open_read_only(&store.record_path())?)
}

/// The same, to be written.
fn open_to_write(common: &Common) -> Result<Record, Error> {
    Ok(Record::open(&Store::open(&common.store)?.record_path())?)
}

fn clock(common: &Common) -> Clock {
    common.given_time().map_or(Clock::system(), Clock::fixed)
}

fn runtime(common: &Common) -> Result<Runtime, Error> {
    Store::open(&common.store)?;
    Ok(Runtime::new(&common.store, clock(common))?)
}

/// An id as it stands, or that of the document in a file or on standard input.
fn meant(text: &str) -> Result<String, Error> {
    let file = text.contains(['/', '.']) && Path::new(text).is_file();
    if !file && text != "-" {
        return Ok(text.into());
    }
    let source = Source::from(OsStr::new(text));
    // What lies in a file needs no store.
    let value = read_one(&source, &|_| Err(CliError::NoDocument(text.into()).into()))?.value;
    let attempt = value.get("attempt").and_then(Value::as_str).map(String::from);
    Ok(attempt.unwrap_or_else(|| value.identity().to_string()))
}

/// A digest as it stands, that of the document in a file or on standard input, or that of the record of a run that is called
/// so, or of its plan before it has ended.
fn digest_of(argument: &OsStr, common: &Common) -> Result<Digest, Error> {
    let source = Source::from(argument);
    if let Source::Digest(digest) = source {
        return Ok(digest);
    }
    let name = argument.to_str().and_then(Name::new).filter(|_| !Path::new(argument).exists() && argument != "-");
    if let (Some(name), Ok(record)) = (name, open(common))
        && let Some(attempt) = record.attempts_named(name.as_str())?.pop()
    {
        return Ok(attempt.run_record.unwrap_or(attempt.plan));
    }
    // What lies in a file needs no store.
    Ok(read_one(&source, &|digest| Err(CliError::Unknown(digest).into()))?.value.identity())
}

/// A text with something in it.
fn words(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        Err("say why, in words: whoever meets it later has nothing else")
    } else {
        Ok(text.into())
    }
}

fn name(text: &str) -> Result<Name, Error> {
    Ok(Name::new(text).ok_or_else(|| CliError::Usage(format!("{text:?} cannot be an id")))?)
}

/// So many events are read at once.
const BATCH: u32 = 1000;
/// How long a follower waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);

fn events(common: &Common, mut after: u64, follow: bool) -> Result<Exit, Error> {
    let mut output = Output::new(None)?;
    loop {
        // Opened anew each time: on a disk that is read-only for this user, an open record shows one moment for ever.
        let record = open(common)?;
        loop {
            let events = record.events_at_most(after, BATCH)?;
            let Some(last) = events.last() else { break };
            after = last.sequence;
            for event in &events {
                output.document(&event.encode())?;
            }
        }
        drop(record);
        if !follow {
            return Ok(Exit::Yes);
        }
        pause()?;
    }
}

/// Waits a little, unless nobody reads standard output any more: poll(2) gives an error for the write end of such a pipe.
fn pause() -> Result<(), Error> {
    let stdout = stdout();
    let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    if poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        let source = std::io::ErrorKind::BrokenPipe.into();
        return Err(CliError::Write { name: "standard output".into(), source }.into());
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

fn statuses(record: &Record, id: Option<&str>) -> Result<Vec<Status>, Error> {
    let Some(text) = id else { return Ok(record.standing()?) };
    let attempts = record.attempts_named(text)?;
    // An experiment may have no attempts yet; what nothing is called is a mistake.
    if attempts.is_empty() && record.experiment(&name(text)?)?.is_none() {
        return Err(RecordError::Unknown { level: Level::Attempt, name: name(text)? }.into());
    }
    Ok(attempts.iter().map(|attempt| record.standing_of(&attempt.id)).collect::<Result<_, _>>()?)
}

fn status(common: &Common, id: Option<&str>) -> Result<Exit, Error> {
    let found = statuses(&open(common)?, id)?;
    if stdout().is_terminal() { table(&found, &Store::open(&common.store)?) } else { print(&found) }
}

fn show(record: &Record, text: &str) -> Result<Exit, Error> {
    let id = name(text)?;
    if let Some(action) = record.action(&id)? {
        return print(&[action]);
    }
    let attempts = record.attempts_named(text)?;
    let found = attempts.iter().map(|attempt| record.standing_of(&attempt.id)).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        let operation = record.operation(&id)?.and_then(|operation| operation.action);
        if let Some(action) = operation.map(|action| record.action(&action)).transpose()?.flatten() {
            return print(&[action]);
        }
        if record.experiment(&id)?.is_some() {
            return print(&[record.quiescence(&id)?]);
        }
        return Err(RecordError::Unknown { level: Level::Attempt, name: id }.into());
    }
    print(&found)
}

fn print<M: xt_core::field::Manifest>(documents: &[M]) -> Result<Exit, Error> {
    let mut output = Output::new(None)?;
    for document in documents {
        output.document(&document.encode())?;
    }
    Ok(Exit::Yes)
}

/// For eyes: one line for each attempt, columns as wide as what is in them.
fn table(statuses: &[Status], store: &Store) -> Result<Exit, Error> {
    let head = ["ATTEMPT", "WORK", "STATE", "OBSERVED", "EXPERIMENT", "SEED", "OPERATION", "SINCE"].map(String::from);
    let rows: Vec<[String; 8]> = [head].into_iter().chain(statuses.iter().map(|status| row(status, store))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut output = Output::new(None)?;
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        output.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(Exit::Yes)
}

fn row(status: &Status, store: &Store) -> [String; 8] {
    let departure = || store.manifest::<Plan>(status.plan).ok()?.departure;
    let work = match status.level {
        Level::EvaluationAttempt => "evaluation",
        _ => departure().map_or("training", |from| from.purpose.word()),
    };
    [
        status.attempt.to_string(),
        work.into(),
        status.state.to_string(),
        status.observed.to_string(),
        status.experiment.to_string(),
        status.seed.to_string(),
        status.operation.to_string(),
        status.last_event_at.to_string(),
    ]
}

fn why(common: &Common, text: &str) -> Result<Exit, Error> {
    let (store, record) = (Store::open(&common.store)?, open(common)?);
    let found = statuses(&record, Some(text))?;
    let actions = record.actions()?;
    let mut output = Output::new(None)?;
    for status in &found {
        // The record is told also when the store has lost what it names.
        let plan: Option<Plan> = store.manifest(status.plan).ok();
        let run: Option<Run> = status.run_record.and_then(|id| store.manifest(id).ok());
        let words = run.as_ref().and_then(|run| LastWords::of(&store, run));
        let words = words.map(|words| (words.line, words.log.display().to_string()));
        let words = words.as_ref().map(|(line, log)| (line.as_str(), log.as_str()));
        output.line(&story(status, plan.as_ref(), run.as_ref(), &actions, words))?;
    }
    Ok(Exit::Yes)
}

/// Prints whole lines of the telemetry. That the run had ended is looked at first: what it said before is then all there.
fn tail(common: &Common, text: &str, after: u64) -> Result<Exit, Error> {
    let unknown = || Ok::<_, Error>(RecordError::Unknown { level: Level::Attempt, name: name(text)? });
    let attempt = match open(common)?.attempts_named(text)?.pop() {
        Some(attempt) => attempt.id,
        None => return Err(unknown()?.into()),
    };
    let mut lines = xt_runtime::Telemetry::new(&Folder::of(&common.store, &attempt).telemetry(), after);
    let mut output = Output::new(None)?;
    loop {
        let ended = open(common)?.attempt(&attempt)?.is_some_and(|found| found.state.is_terminal());
        for line in lines.news()? {
            output.bytes(&line)?;
        }
        if ended {
            return Ok(Exit::Yes);
        }
        pause()?;
    }
}

/// Writes the curves of a run in each form that a place was given for.
fn export(common: &Common, text: &str, [csv, tensorboard, dvclive, mlflow]: [Option<&Path>; 4]) -> Result<Exit, Error> {
    let curves = curves(common, text)?;
    if let Some(folder) = dvclive {
        write_all(common, folder, &export::dvclive(&curves)?)?;
    }
    if let Some(folder) = mlflow {
        let absolute = std::path::absolute(folder).map_err(|source| unwritable(folder, source))?;
        write_all(common, folder, &export::mlflow(&curves, &absolute.to_string_lossy())?)?;
    }
    if let Some(folder) = tensorboard {
        // TensorBoard knows an event file by a part of its name, and takes a folder for a run.
        let path = format!("{0}/events.out.tfevents.{1}.{0}", curves.attempt, curves.started.unix());
        write_all(common, folder, &[export::File { path, bytes: export::tensorboard(&curves) }])?;
    }
    if let Some(path) = csv {
        let mut output = Output::new(Some(path))?;
        output.bytes(export::csv(&curves).as_bytes())?;
        output.finish()?;
    }
    Ok(Exit::Yes)
}

/// What the last attempt of a run measured so far.
fn curves(common: &Common, text: &str) -> Result<Curves, Error> {
    let record = open(common)?;
    let Some(status) = statuses(&record, Some(text))?.pop() else {
        return Err(RecordError::Unknown { level: Level::Attempt, name: name(text)? }.into());
    };
    let store = Store::open(&common.store)?;
    let run: Option<Run> = status.run_record.map(|id| store.manifest(id)).transpose()?;
    let mut messages = Vec::new();
    let path = Folder::of(&common.store, &status.attempt).telemetry();
    xt_runtime::Follower::new(&path).news(&mut |message| {
        messages.push(message);
        Ok(true)
    })?;
    let points = export::points(&messages);
    if points.is_empty() {
        let message = "it has not measured anything at any step".to_string();
        return Err(Faults::one(status.attempt.to_string(), "export.empty", message).into());
    }
    let parameters = [
        ("fingerprint", status.fingerprint.to_string()),
        ("plan", status.plan.to_string()),
        ("seed", status.seed.to_string()),
    ];
    Ok(Curves {
        started: run.as_ref().map_or(status.last_event_at, |run| run.started),
        ended: run.map(|run| (run.finished, run.status == Ended::Succeeded)),
        parameters: parameters.map(|(name, value)| (name.to_string(), value)).into(),
        attempt: status.attempt,
        experiment: status.experiment,
        points,
    })
}

fn write_all(common: &Common, folder: &Path, files: &[export::File]) -> Result<(), Error> {
    let there = files.iter().filter(|file| folder.join(&file.path).exists()).count();
    if there > 0 {
        let shown = folder.display();
        let there = counted(there, "file");
        note(common, &format!("xt-log: writing over what was in {shown} before: {there}"));
    }
    for file in files {
        let path = folder.join(&file.path);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, &file.bytes)).map_err(|source| unwritable(&path, source))?;
    }
    Ok(())
}

fn unwritable(path: &Path, source: std::io::Error) -> CliError {
    CliError::Write { name: path.display().to_string(), source }
}

fn wait(common: &Common, experiment: &str, timeout: Option<u64>, starting: &Starting) -> Result<Exit, Error> {
    let (runtime, experiment) = (runtime(common)?, name(experiment)?);
    let begun = Instant::now();
    loop {
        let found = runtime.quiescence(&experiment)?;
        if found.quiescent {
            return print(&[found]);
        }
        if timeout.is_some_and(|seconds| begun.elapsed() >= Duration::from_secs(seconds)) {
            print(&[found])?;
            return Ok(Exit::NotNow);
        }
        let settled = settle(&runtime, Some(experiment.as_str()), starting)?;
        if let Some(stuck) = settled.iter().find(|found| found.found == Found::Escalated) {
            print(std::slice::from_ref(stuck))?;
            return Ok(Exit::Undecided);
        }
        pause()?;
    }
}

fn cancel(common: &Common, experiment: &str) -> Result<Exit, Error> {
    let (runtime, experiment) = (runtime(common)?, name(experiment)?);
    let action: Option<Action> =
        match runtime.ask(ActionKind::Cancel, Level::Experiment, &experiment, "xt-log cancel")? {
            Asked::New(action) | Asked::Open(action) => Some(action),
            Asked::Ended => open(common)?.actions()?.into_iter().rev().find(|action| action.target == experiment),
        };
    print(action.as_slice())?;
    let superseded = action.is_none_or(|action| action.state == ActionState::Superseded);
    Ok(if superseded { Exit::No } else { Exit::Yes })
}

fn experiment(common: &Common, source: &Source, given: Option<&str>) -> Result<Exit, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let document = read_one(source, &lookup)?;
    let mut faults = Faults::new();
    let objective = Objective::read(&document.value, "", &mut faults);
    let Some(objective) = objective.filter(|_| faults.is_empty()) else { return Err(faults.into()) };
    let value = objective.write();
    let id = match given {
        Some(text) => name(text)?,
        None => name(&format!("exp-{}", &value.digest().hex()[..12]))?,
    };
    let store = Store::open_or_create(&common.store)?;
    let record = Record::open(&store.record_path())?;
    record.new_experiment(&id, &value, clock(common).now())?;
    let found = record.quiescence(&id)?;
    if found.status.is_terminal() {
        let state = found.status;
        note(
            common,
            &format!("xt-log: {id} was there before and is {state}: it takes no more work; --name gives a new one"),
        );
    }
    print(&[found])
}

fn settle(runtime: &Runtime, id: Option<&str>, starting: &Starting) -> Result<Vec<Reconciliation>, Error> {
    let find = || -> Result<PathBuf, RuntimeError> { worker::find(starting.worker.as_deref()) };
    Ok(runtime.reconcile_all(id, &find)?)
}

fn reconcile(common: &Common, id: Option<&str>, starting: &Starting) -> Result<Exit, Error> {
    let found = settle(&runtime(common)?, id, starting)?;
    print(&found)?;
    Ok(if found.iter().any(|found| found.found == Found::Escalated) { Exit::Undecided } else { Exit::Yes })
}

fn resources(
    common: &Common,
    declare: Option<Source>,
    undeclare: bool,
    clear: Option<(&str, &str)>,
) -> Result<Exit, Error> {
    let runtime = runtime(common)?;
    if let Some(source) = declare {
        let document = read_one(&source, &|digest| Ok(Store::open(&common.store)?.get(digest)?))?;
        runtime.declare(Some(&Inventory::decode(&document.value)?))?;
    }
    if undeclare {
        runtime.declare(None)?;
    }
    if let Some((lease, reason)) = clear {
        runtime.clear_lease(&name(lease)?, reason)?;
    }
    print(&[runtime.resources()?])
}

/// Everything that the documents of a store say about where things came from.
fn known(store: &Store, start: Digest) -> Result<Lineage, Error> {
    let mut known = Lineage::default();
    store.documents(&mut |id, document| known.add(id, document))?;
    if !known.knows(start) && !store.contains(start)? {
        return Err(CliError::Unknown(start).into());
    }
    Ok(known)
}

fn withdraw(common: &Common, digest: Digest, why: &str) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let known = known(&store, digest)?;
    let withdrawal = Withdrawal { digest, why: why.to_owned(), at: common.now()? };
    // No collection takes it before it has its name.
    let _hold = store.hold()?;
    let id = store.put_manifest(&withdrawal)?;
    store.set_reference(&format!("withdrawals/{}", digest.hex()), id, why)?;
    let mut output = Output::new(None)?;
    output.document(&withdrawal.encode())?;
    for step in known.walk(digest, Direction::Down).iter().filter(|step| !step.again) {
        let came = step.link.to;
        let kind = known.kind(came).into();
        output.document(&object([
            ("digest", came.write()),
            ("kind", kind),
            ("role", step.link.role.as_str().into()),
        ]))?;
    }
    Ok(Exit::Yes)
}

fn lineage(common: &Common, start: Digest, direction: Direction, dot: bool) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let known = known(&store, start)?;
    let steps = known.walk(start, direction);
    if steps.is_empty() {
        let (nothing, other) = match direction {
            Direction::Up => ("it came from nothing that this store knows of", "--down shows what came from it"),
            Direction::Down => ("nothing that this store knows of came from it", "without --down: what it came from"),
        };
        note(common, &format!("xt-log: {nothing}; {other}"));
    }
    let mut output = Output::new(None)?;
    if dot {
        output.bytes(lineage::dot(&known, start, &steps).as_bytes())?;
    } else if stdout().is_terminal() {
        output.line(&format!("{start} {}{}", known.kind(start), unreliable(&known, start)))?;
        for step in &steps {
            output.line(&branch(&known, step, direction))?;
        }
    } else {
        for Step { depth, link, again } in &steps {
            let kind = known.kind(direction.end(link)).into();
            let ends = [("from", link.from.write()), ("to", link.to.write()), ("kind", kind)];
            let [from, to, kind] = ends;
            let role = link.role.as_str().into();
            let withdrawn = known.withdrawn(direction.end(link)).iter().map(|(digest, _)| digest.write()).collect();
            output.document(&object([
                ("depth", (*depth).into()),
                from,
                to,
                ("role", role),
                kind,
                ("again", (*again).into()),
                ("withdrawn", Value::List(withdrawn)),
            ]))?;
        }
    }
    Ok(Exit::Yes)
}

/// A line of the tree.
fn branch(known: &Lineage, step: &Step, direction: Direction) -> String {
    let end = direction.end(&step.link);
    let indent = "  ".repeat(usize::try_from(step.depth).unwrap_or(0));
    let again = if step.again { " (shown above)" } else { "" };
    format!("{indent}{}: {end} {}{again}{}", step.link.role, known.kind(end), unreliable(known, end))
}

/// What a line of the tree says of something that was withdrawn, or came from something that was.
fn unreliable(known: &Lineage, digest: Digest) -> String {
    let reasons: Vec<String> =
        known
            .withdrawn(digest)
            .into_iter()
            .map(|(source, why)| {
                if source == digest { format!("withdrawn: {why}") } else { format!("from {source}, withdrawn: {why}") }
            })
            .collect();
    if reasons.is_empty() { String::new() } else { format!(" [{}]", reasons.join("; ")) }
}

fn rebuild(common: &Common, check: bool) -> Result<Exit, Error> {
    let found = if check { open(common)?.check()? } else { open_to_write(common)?.rebuild()? };
    let mut output = Output::new(None)?;
    let identical = found.differences.is_empty();
    let differences = found.differences.write();
    let counts = [("events", found.events.into()), ("rows", found.rows.into())];
    let [events, rows] = counts;
    output.document(&object([events, rows, ("identical", identical.into()), ("differences", differences)]))?;
    Ok(if check && !identical { Exit::No } else { Exit::Yes })
}
