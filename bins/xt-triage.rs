//! `xt-triage`: where is the earliest evidenced non-finite value of a training step?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_cli::{CliError, Common, Document, Error, Manual, Output, Source, Tool, each, note, read_documents};
use xt_core::fault::Exit;
use xt_core::field::Manifest;
use xt_core::verb::triage;
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
                `contract_content_id`; where they are there, they must be right. xt-manifest(5) describes every field.",
        output: "One xt.incident-report/1 a line for each incident, in order; `seal` writes one xt.incident/1 a line. \
                 When one incident is refused, nothing is written.",
        files: &[(".xt", "the store, read only for digests; --store or XT_STORE names another")],
        examples: &[
            ("xt-triage incident.json", "Report on an incident."),
            ("xt-triage seal unsealed.json | xt-triage", "Seal what a hook of one's own counted, and report on it."),
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
        if arguments.command.is_some() && (!before.incidents.is_empty() || before.output.is_some()) {
            let message =
                "incidents and --output stand after `seal`; an incident that is called like it is written ./seal";
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
    let reports = each(&read(documents, common)?, triage::triage)?;
    let mut output = Output::new(documents.output.as_deref())?;
    for (incident, report) in &reports {
        output.document(&report.encode())?;
        note(common, &format!("xt-triage: {}: {}", report.decision, triage::sentence(incident)));
    }
    output.finish()?;
    let hold = reports.iter().any(|(_, report)| report.earliest_nonfinite_stage.is_some());
    Ok(if hold { Exit::No } else { Exit::Yes })
}

fn seal(documents: &Documents, common: &Common) -> Result<Exit, Error> {
    let sealed = each(&read(documents, common)?, triage::seal)?;
    let mut output = Output::new(documents.output.as_deref())?;
    for incident in &sealed {
        output.document(&incident.encode())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

fn read(documents: &Documents, common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = documents.incidents.iter().map(|name| Source::from(name.as_os_str())).collect();
    read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))
}
