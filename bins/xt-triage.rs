//! `xt-triage`: where is the earliest evidenced non-finite value of a training step?

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_bundle::Papers;
use xt_cli::{
    CliError, Common, Document, Error, Manual, Output, Progress, Source, Tool, each, note, read_documents, read_one,
};
use xt_core::canonical::Value;
use xt_core::fault::{Exit, Failure, Fault, Faults};
use xt_core::field::{Field as _, Manifest};
use xt_core::manifest::incident::{Incident, IncidentReport, Localized, Located, Recorded};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Mode;
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::trace::Step;
use xt_core::verb::{bind, compare, incident, triage};
use xt_runtime::worker;
use xt_runtime::{Clock, Original, Request, Role, Runtime, Signals, Unfinished, follow, pins};
use xt_store::Store;

/// Find the earliest stage of a training step that is known to have held a non-finite value
///
/// Reads a contract and the evidence of five stages: input, forward, loss, backward, optimizer. Evidence that does not
/// fit its contract, its content ids or itself is refused, with every reason at once. The report names a place and what
/// to look at next; it never names a cause.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-triage", version, subcommand_precedence_over_arg = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    documents: Documents,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
struct Documents {
    /// Incidents: files, digests or - [default: standard input]
    #[arg(value_name = "INCIDENT")]
    incidents: Vec<OsString>,
    /// Take the step of a recorded run instead: run records from a file, a digest or -, whose trace the store holds
    #[arg(long, value_name = "RUN", conflicts_with = "incidents")]
    run: Option<OsString>,
    /// Which step of the run [default: the first with a value that is not finite, or the last]
    #[arg(long, value_name = "N", requires = "run")]
    step: Option<u64>,
    /// As --run, for one run record; and repeat the run from its last stored state before the first step at which a value was not finite, with a look at every module, to name the first tensor
    #[arg(long, value_name = "RUN", conflicts_with_all = ["incidents", "run", "step"])]
    localize: Option<OsString>,
    /// The worker that repeats it [default: xt-train beside this program or in ../libexec/xt]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Compute the content ids of contracts and evidence that come without them, and write sealed incidents
    Seal(Documents),
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Incidents are xt.incident/1 documents, several in one stream if need be: an object with `contract` and \
                `evidence`; the field `schema` may be left out. `seal` takes the same without `evidence_content_id` and \
                `contract_content_id`; where they are there, they must be right. Run records are xt.run/1 documents; the \
                counts come from their trace, which every step of every run has. xt-manifest(5) describes every field.",
        output: "One xt.incident-report/1 a line for each incident, in order; `seal` writes one xt.incident/1 a line. \
                 When one incident is refused, nothing is written. With --run the report has the field `recorded` beside \
                 its seven: NaN and infinities apart, and the names of the tensors that held them. With --localize its field \
                 `localized` names the first of them, module by module and in both directions; the repetition runs in the \
                 same custody, is a run record of its own, and counts only while each of its steps is the recorded one, bit \
                 for bit. Where every stage was finite, nothing is repeated and the field is null.",
        files: &[(".xt", "the store, read only unless a run is repeated; --store or XT_STORE names another")],
        examples: &[
            ("xt-triage incident.json", "Report on an incident."),
            ("xt-triage seal unsealed.json | xt-triage", "Seal what a hook of one's own counted, and report on it."),
            ("xt-triage --run run.json", "Report on the first step of a run at which a value was not finite."),
            ("xt-triage --run run.json --step 7", "Report on another step."),
            ("xt-triage --localize run.json", "Repeat a part of the run to name module and tensor."),
            (
                "xt-triage seal --run run.json > incident.json",
                "Write contract and evidence of that step as a document.",
            ),
            ("xt-triage --refusals json incident.json", "Have every reason of a refusal as a document."),
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
            Exit::Bug,
            Exit::NotNow,
        ],
        see_also: &["xt-run(1)", "xt-replay(1)", "xt-decide(1)", "xt-manifest(5)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
enum TriageError {
    /// A run record stands where an incident should.
    #[error("refused: {0}")]
    RunRecord(Faults),
    /// Content ids are lacking.
    #[error("{0}")]
    Unsealed(Faults),
    /// This stack is not the recorded one.
    #[error("the repetition is refused: {0}")]
    Stack(Faults),
    /// The repetition is not the run.
    #[error("the repetition parted from the run at step {0}, so it says nothing about it")]
    Parted(u64),
    /// The repetition did not come to the step.
    #[error("the repetition ended before step {step}: {status}, {cause}")]
    Ended {
        /// The step that it was made for.
        step: u64,
        /// How it ended.
        status: Status,
        /// Why.
        cause: String,
    },
}

impl Failure for TriageError {
    fn exit(&self) -> Exit {
        match self {
            Self::RunRecord(_) | Self::Unsealed(_) | Self::Stack(_) => Exit::Refused,
            Self::Parted(_) => Exit::Undecided,
            Self::Ended { .. } => Exit::Workload,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::RunRecord(_) => "triage.run-record",
            Self::Unsealed(faults) => faults.word(),
            Self::Stack(_) => "triage.stack",
            Self::Parted(_) => "triage.parted",
            Self::Ended { .. } => "triage.ended",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::RunRecord(_) => vec!["xt-triage --run FILE reports on a step of a recorded run".into()],
            Self::Unsealed(_) => vec![
                "content ids are computed by `xt-triage seal`: xt-triage seal FILE | xt-triage; where they were there and \
                 got lost, the evidence is no longer the one that was sealed"
                    .into(),
            ],
            Self::Parted(_) => vec!["xt-replay --localize says where the two part, and in what".into()],
            Self::Stack(_) | Self::Ended { .. } => Vec::new(),
        }
    }

    fn faults(&self) -> Option<&Faults> {
        if let Self::RunRecord(faults) | Self::Unsealed(faults) | Self::Stack(faults) = self {
            Some(faults)
        } else {
            None
        }
    }
}

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Left::new(None);
    let code = xt_cli::main(|arguments: Arguments| {
        let before = &arguments.documents;
        // A flag that all tools share may stand before a subcommand, so the two are told apart here and not by clap.
        let run = before.run.is_some() || before.localize.is_some();
        if arguments.command.is_some() && (run || !before.incidents.is_empty() || before.output.is_some()) {
            let message = "incidents, --run and --output stand after `seal`; an incident that is called like it is written ./seal";
            return Err(CliError::Usage(message.into()).into());
        }
        match &arguments.command {
            Some(Command::Seal(documents)) => seal(documents, &arguments.common),
            None => report(before, &arguments.common, &left),
        }
    });
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

/// Reports on each incident; one HOLD is enough for the answer to be no.
fn report(documents: &Documents, common: &Common, left: &Left) -> Result<Exit, Error> {
    let found = match (&documents.run, &documents.localize) {
        (Some(run), _) => recorded(run, documents.step, common)?,
        (_, Some(run)) => match localized(run, documents, common, left)? {
            Some(found) => vec![found],
            None => return Ok(Exit::Workload),
        },
        (None, None) => {
            let reports = each(&read(documents, common)?, triage::triage).map_err(refusal)?;
            return write(documents, &reports, common);
        }
    };
    let report = |(incident, recorded): (Incident, Recorded)| {
        let (incident, report) = triage::triage(&incident.write())?;
        Ok((incident, IncidentReport { recorded: Some(recorded), ..report }))
    };
    let reports = found.into_iter().map(report).collect::<Result<Vec<_>, Faults>>()?;
    write(documents, &reports, common)
}

/// A refusal, with what to do where a content id is lacking.
fn refusal(faults: Faults) -> Error {
    let unsealed = |fault: &Fault| fault.code == "field.missing" && fault.pointer.ends_with("_content_id");
    if faults.0.iter().any(unsealed) { TriageError::Unsealed(faults).into() } else { faults.into() }
}

fn write(documents: &Documents, reports: &[(Incident, IncidentReport)], common: &Common) -> Result<Exit, Error> {
    let mut output = Output::new(documents.output.as_deref())?;
    for (incident, report) in reports {
        output.document(&report.encode())?;
        note(common, &format!("xt-triage: {}: {}", report.report.decision, triage::sentence(incident)));
        if let Some(names) = report.recorded.as_ref().map(tensors).filter(|names| !names.is_empty()) {
            note(common, &format!("xt-triage: in {names}"));
        }
        if let Some(localized) = report.recorded.as_ref().and_then(|recorded| recorded.localized.as_ref()) {
            note(common, &format!("xt-triage: {}", triage::located(&localized.first)));
        }
    }
    output.finish()?;
    let hold = reports.iter().any(|(_, report)| report.report.earliest_nonfinite_stage.is_some());
    Ok(if hold { Exit::No } else { Exit::Yes })
}

fn seal(documents: &Documents, common: &Common) -> Result<Exit, Error> {
    if documents.localize.is_some() {
        return Err(CliError::Usage("what is sealed has no place for --localize".into()).into());
    }
    let sealed = match &documents.run {
        Some(run) => recorded(run, documents.step, common)?.into_iter().map(|(incident, _)| incident).collect(),
        None => each(&read(documents, common)?, triage::seal)?,
    };
    let mut output = Output::new(documents.output.as_deref())?;
    for incident in &sealed {
        output.document(&incident.encode())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

/// The tensors of the earliest stage that held something non-finite.
fn tensors(recorded: &Recorded) -> String {
    let stage = recorded.stages.iter().find(|stage| stage.non_finite() > 0);
    stage.map_or_else(String::new, |stage| stage.tensors.join(", "))
}

/// Contract and evidence of a step of each run. A record that its own evidence contradicts is refused.
fn recorded(run: &OsStr, wanted: Option<u64>, common: &Common) -> Result<Vec<(Incident, Recorded)>, Error> {
    let store = Store::open(&common.store)?;
    let documents = read_documents(&[Source::from(run)], &|digest| Ok(store.get(digest)?))?;
    let runs = each(&documents, Run::decode)?;
    let mut found = Vec::new();
    for run in &runs {
        let (run, papers) = trusted(&store, run)?;
        let step = incident::step(&papers.steps, wanted)?;
        found.push(incident::of_step(&run, &papers.plan, &papers.steps, step)?);
    }
    Ok(found)
}

/// The record and its papers. A record counts only if the store holds it, since a file can say anything, and if its own
/// evidence does not contradict it.
fn trusted(store: &Store, run: &Run) -> Result<(Run, Papers), Error> {
    let run: Run = store.manifest(run.id())?;
    let papers = xt_bundle::papers(store, &run, true)?;
    let mut faults = papers.faults.clone();
    bind::check_told(&papers.evidence(&run), &mut faults);
    faults.or((run, papers)).map_err(Error::from)
}

fn read(documents: &Documents, common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = documents.incidents.iter().map(|name| Source::from(name.as_os_str())).collect();
    let found = read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))?;
    if found.iter().any(|document| document.value.get("schema").and_then(Value::as_str) == Some(Run::TAG)) {
        let faults = Faults::one("/schema", "triage.run-record", "expected an incident, found a run record");
        return Err(TriageError::RunRecord(faults).into());
    }
    Ok(found)
}

// ---- naming module and tensor ----

/// What a repetition showed of the step that it was made for.
#[derive(Default)]
struct Shown {
    parted: Option<u64>,
    reached: bool,
    place: Option<Located>,
}

impl Shown {
    /// Takes a message in; true when nothing more is to be seen.
    fn hear(&mut self, message: &Message, steps: &[Step], wanted: u64) -> bool {
        match message {
            Message::Step { line, .. } => {
                let recorded = steps.iter().find(|step| step.step == line.step);
                let same = recorded.is_some_and(|recorded| compare::steps(recorded, line).is_none());
                self.parted = self.parted.or((!same).then_some(line.step));
                self.reached |= line.step == wanted;
            }
            Message::Located { step, place } if *step == wanted => self.place = Some((**place).clone()),
            _ => {}
        }
        self.parted.is_some()
    }
}

/// The first step at which a value was not finite, and the first tensor of it; `None` when a signal ended the waiting.
fn localized(
    run: &OsStr,
    documents: &Documents,
    common: &Common,
    left: &Left,
) -> Result<Option<(Incident, Recorded)>, Error> {
    let store = Store::open(&common.store)?;
    let document = read_one(&Source::from(run), &|digest| Ok(store.get(digest)?))?;
    let (run, papers) = trusted(&store, &Run::decode(&document.value)?)?;
    let step = incident::step(&papers.steps, None)?;
    let (incident, mut recorded) = incident::of_step(&run, &papers.plan, &papers.steps, step)?;
    let Some(wanted) = recorded.first_nonfinite_step else {
        note(common, "xt-triage: every stage of every step was finite: there is nothing to localize");
        return Ok(Some((incident, recorded)));
    };
    let original = Original { run: &run, plan: &papers.plan, steps: &papers.steps };
    let worker = worker::find(documents.worker.as_deref())?;
    if let Some(stack) = &run.stack {
        let refused = compare::refusal(&pins(stack, &papers.plan, &worker)?);
        refused.or(()).map_err(TriageError::Stack)?;
    }
    let from = original.nearest(&store, wanted - 1)?;
    let begin = from.as_ref().map_or(0, |start| start.step);
    let request = Request { mode: Mode::Localization, ..original.request(from, wanted, false) };
    let clock = common.given_time().map_or(Clock::system(), Clock::fixed);
    let (runtime, signals) = (Runtime::new(&common.store, clock)?, Signals::block()?);
    let attempt = runtime.submit_or_get(&request, &worker)?.id;
    let mut progress = Progress::new(common, "localize", wanted - begin, "steps");
    let (mut shown, mut failed) = (Shown::default(), None);
    let followed = follow(&runtime, &attempt, Role::Owner("xt-triage"), &signals, &mut |message| {
        if let Message::Step { line, .. } = message {
            progress.update(line.step.saturating_sub(begin), "");
        }
        if shown.hear(message, &papers.steps, wanted)
            && let Err(error) = runtime.cancel(&attempt, "xt-triage: it parted from the run")
        {
            failed.get_or_insert(error);
        }
    });
    progress.finish();
    let followed = match followed {
        Ok(followed) => followed,
        Err(Unfinished::Failed(error)) => return Err(error.into()),
        Err(Unfinished::Left(signal)) => {
            left.set(Some(signal));
            return Ok(None);
        }
    };
    if let Some(step) = shown.parted {
        return failed.map_or(Err(TriageError::Parted(step).into()), |error| Err(error.into()));
    }
    let Some(first) = shown.place.filter(|_| shown.reached) else {
        let Run { status, cause, .. } = followed.run;
        return Err(TriageError::Ended { step: wanted, status, cause }.into());
    };
    recorded.localized = Some(Localized { replayed: followed.run.id(), from: begin, first });
    Ok(Some((incident, recorded)))
}
