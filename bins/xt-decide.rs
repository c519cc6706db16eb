//! `xt-decide`: does the record meet the stated thresholds?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use xt_cli::{Common, Error, Manual, Output, Source, Tool, each, note, read_documents};
use xt_core::fault::Exit;
use xt_core::field::Manifest;
use xt_core::manifest::decision::{Decision, Engine, Outcome};
use xt_core::verb::decide;
use xt_store::Store;

/// Decide whether evaluation results meet an objective
///
/// Reads an objective and the results of one evaluation cycle, and compares them with the stated target and constraints,
/// exactly and one by one. Nothing is guessed: a missing, null or doubly reported metric and an objective without a
/// target are named as reasons to decide nothing. The same input gives the same bytes, in whatever order results stand.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-decide", version)]
struct Arguments {
    /// Contexts: files, digests or - [default: standard input]
    #[arg(value_name = "CONTEXT")]
    contexts: Vec<OsString>,
    /// What a missed target means: threshold ends the experiment (STOP_FAILED), adaptive-threshold only the candidate (BRANCH)
    #[arg(long, value_name = "ENGINE", default_value = "threshold", value_parser = engine)]
    engine: Engine,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// An engine by its name.
fn engine(text: &str) -> Result<Engine, String> {
    let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.word()).collect();
    Engine::parse(text).ok_or_else(|| format!("the engines are {}", names.join(" and ")))
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Contexts are xt.decision-context/1 documents, several in one stream if need be. xt-manifest(5) describes \
                every field.",
        output: "One xt.decision/1 a line for each context, in order, also when nothing can be decided. When one context \
                 is refused, nothing is written. Exit status 0 means that every outcome is STOP_SUCCEEDED, 3 that at \
                 least one context cannot be decided, 1 any other outcome.",
        files: &[(".xt", "the store, read only for digests; --store or XT_STORE names another")],
        examples: &[
            ("xt-decide context.json", "Decide whether a candidate meets its objective."),
            (
                "xt-decide --engine adaptive-threshold context.json",
                "Leave the experiment open when the target is missed.",
            ),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Undecided,
            Exit::Refused,
            Exit::Store,
            Exit::System,
            Exit::Bug,
        ],
        see_also: &["xt-run(1)", "xt-triage(1)", "xt-manifest(5)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(|arguments: Arguments| {
        let decisions = decisions(&arguments)?;
        let mut output = Output::new(arguments.output.as_deref())?;
        for decision in &decisions {
            output.document(&decision.encode())?;
            say(decision, &arguments.common);
        }
        output.finish()?;
        Ok(exit(&decisions))
    })
}

/// Decides every context before anything is written.
fn decisions(arguments: &Arguments) -> Result<Vec<Decision>, Error> {
    let sources: Vec<Source> = arguments.contexts.iter().map(|name| Source::from(name.as_os_str())).collect();
    let documents = read_documents(&sources, &|digest| Ok(Store::open(&arguments.common.store)?.get(digest)?))?;
    let contexts = each(&documents, decide::context)?;
    Ok(contexts.iter().map(|context| decide::decide(context, arguments.engine)).collect())
}

/// One sentence for people, and a word of caution about values that rest on one sample or none.
fn say(decision: &Decision, common: &Common) {
    let outcome = decision.outcome.map_or("UNDECIDED", Outcome::word);
    note(common, &format!("xt-decide: {outcome}: {}", decision.reason));
    for measurement in
        decision.measurements.iter().filter(|measurement| measurement.sample_count.is_some_and(|n| n < 2))
    {
        let samples = if measurement.sample_count == Some(1) { "one sample" } else { "no sample" };
        note(common, &format!("xt-decide: note: {:?} rests on {samples}", measurement.metric));
    }
}

/// The weakest answer stands for all.
fn exit(decisions: &[Decision]) -> Exit {
    let succeeded = |decision: &Decision| decision.outcome == Some(Outcome::StopSucceeded);
    if decisions.iter().any(|decision| decision.outcome.is_none()) {
        Exit::Undecided
    } else if decisions.iter().all(succeeded) {
        Exit::Yes
    } else {
        Exit::No
    }
}
