//! `xt-triage`: where is the earliest evidenced non-finite value of a training step?

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_cli::{CliError, Common, Document, Error, Manual, Output, Source, Tool, each, note, read_documents};
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest};
use xt_core::manifest::incident::{Incident, IncidentReport, Recorded};
use xt_core::manifest::run::Run;
use xt_core::verb::{bind, incident, triage};
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
                 its seven: NaN and infinities apart, and the names of the tensors that held them.",
        files: &[(".xt", "the store, read only for digests; --store or XT_STORE names another")],
        examples: &[
            ("xt-triage incident.json", "Report on an incident."),
            ("xt-triage seal unsealed.json | xt-triage", "Seal what a hook of one's own counted, and report on it."),
            ("xt-triage --run run.json", "Report on the first step of a run at which a value was not finite."),
            ("xt-triage --run run.json --step 7", "Report on another step."),
            (
                "xt-triage seal --run run.json > incident.json",
                "Write contract and evidence of that step as a document.",
            ),
            ("xt-triage --refusals json incident.json", "Have every reason of a refusal as a document."),
        ],
        exits: &[Exit::Yes, Exit::No, Exit::Usage, Exit::Refused, Exit::Store, Exit::System, Exit::Bug],
        see_also: &["xt-run(1)", "xt-decide(1)", "xt-manifest(5)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(|arguments: Arguments| {
        let before = &arguments.documents;
        // A flag that all tools share may stand before a subcommand, so the two are told apart here and not by clap.
        let given = !before.incidents.is_empty() || before.output.is_some() || before.run.is_some();
        if arguments.command.is_some() && given {
            let message = "incidents, --run and --output stand after `seal`; an incident that is called like it is written ./seal";
            return Err(CliError::Usage(message.into()).into());
        }
        match &arguments.command {
            Some(Command::Seal(documents)) => seal(documents, &arguments.common),
            None => report(before, &arguments.common),
        }
    })
}

/// Reports on each incident; one HOLD is enough for the answer to be no.
fn report(documents: &Documents, common: &Common) -> Result<Exit, Error> {
    let reports = match &documents.run {
        Some(run) => {
            let steps = recorded(run, documents.step, common)?;
            let report = |(incident, recorded): (Incident, Recorded)| {
                let (incident, report) = triage::triage(&incident.write())?;
                Ok((incident, IncidentReport { recorded: Some(recorded), ..report }))
            };
            steps.into_iter().map(report).collect::<Result<Vec<_>, Faults>>()?
        }
        None => each(&read(documents, common)?, triage::triage)?,
    };
    let mut output = Output::new(documents.output.as_deref())?;
    for (incident, report) in &reports {
        output.document(&report.encode())?;
        note(common, &format!("xt-triage: {}: {}", report.report.decision, triage::sentence(incident)));
        if let Some(names) = report.recorded.as_ref().map(tensors).filter(|names| !names.is_empty()) {
            note(common, &format!("xt-triage: in {names}"));
        }
    }
    output.finish()?;
    let hold = reports.iter().any(|(_, report)| report.report.earliest_nonfinite_stage.is_some());
    Ok(if hold { Exit::No } else { Exit::Yes })
}

fn seal(documents: &Documents, common: &Common) -> Result<Exit, Error> {
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
        // A record counts only if the store holds it: a file can say anything.
        let run: Run = store.manifest(run.id())?;
        let papers = xt_bundle::papers(&store, &run, true)?;
        let mut faults = papers.faults.clone();
        bind::check_told(&papers.evidence(&run), &mut faults);
        faults.or(())?;
        let step = incident::step(&papers.steps, wanted)?;
        found.push(incident::of_step(&run, &papers.plan, &papers.steps, step)?);
    }
    Ok(found)
}

fn read(documents: &Documents, common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = documents.incidents.iter().map(|name| Source::from(name.as_os_str())).collect();
    read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))
}
