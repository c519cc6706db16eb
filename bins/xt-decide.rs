//! `xt-decide`: does the record meet the stated thresholds?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use xt_cli::{CliError, Common, Document, Error, Manual, Output, Source, Tool, each, note, read_documents};
use xt_core::fault::Exit;
use xt_core::field::Manifest;
use xt_core::manifest::comparison::{Comparison, Verdict};
use xt_core::manifest::decision::{Decision, Engine, Outcome};
use xt_core::verb::{compare_candidates, decide};
use xt_store::Store;

/// Decide whether evaluation results meet an objective
///
/// Reads an objective and the results of one evaluation cycle, and compares them with the stated target and constraints,
/// exactly and one by one. Nothing is guessed: a missing, null or doubly reported metric and an objective without a
/// target are named as reasons to decide nothing. The same input gives the same bytes, in whatever order results stand.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-decide", version, subcommand_precedence_over_arg = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
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

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Say whether candidates differ by more than chance
    ///
    /// Scores are paired by seed. What decides is an exact sign-flip test, corrected for the number of comparisons; few
    /// seeds cannot show anything, and then it is said how many it takes.
    Compare(Compare),
}

#[derive(Args, Clone, Debug)]
struct Compare {
    /// Comparison contexts: files, digests or - [default: standard input]
    #[arg(value_name = "CONTEXT")]
    contexts: Vec<OsString>,
    /// What is asked of each candidate, and so what exit status 0 means: better, equivalent, or not-worse, which is either
    #[arg(long, value_name = "QUESTION", default_value = "better")]
    ask: Question,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is asked of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Question {
    /// Is it better than its reference?
    Better,
    /// Does it differ from its reference by less than the margin?
    Equivalent,
    /// Is it better or equivalent?
    NotWorse,
}

impl Question {
    fn answered_by(self, verdict: Verdict) -> bool {
        match self {
            Self::Better => verdict == Verdict::Better,
            Self::Equivalent => verdict == Verdict::Equivalent,
            Self::NotWorse => verdict != Verdict::Worse,
        }
    }
}

/// An engine by its name.
fn engine(text: &str) -> Result<Engine, String> {
    let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.word()).collect();
    Engine::parse(text).ok_or_else(|| format!("the engines are {}", names.join(" and ")))
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Contexts are xt.decision-context/1 documents, several in one stream if need be; those of `compare` are \
                xt.comparison-context/1. xt-manifest(5) describes every field. A metric may say that no sample stands \
                behind its value: it is decided on all the same, the count is in the decision, and a note says so; \
                whoever wants more samples states it as a constraint on a metric that counts them.",
        output: "One xt.decision/1 a line for each context, in order, also when nothing can be decided; `compare` writes \
                 one xt.comparison/1 a line. When one context is refused, nothing is written. Exit status 0 means that \
                 every outcome is STOP_SUCCEEDED, 3 that at least one context cannot be decided, 1 any other outcome. Of \
                 `compare`, 0 means that every candidate is what --ask asks for, 3 that nothing can be said of at least \
                 one, 1 anything else.",
        files: &[(".xt", "the store, read only for digests; --store or XT_STORE names another")],
        examples: &[
            ("xt-decide context.json", "Decide whether a candidate meets its objective."),
            (
                "xt-decide --engine adaptive-threshold context.json",
                "Leave the experiment open when the target is missed.",
            ),
            ("xt-decide compare scores.json", "Ask whether candidates are better than the reference."),
            (
                "xt-decide compare --ask not-worse scores.json",
                "Accept candidates that differ by less than the margin, too.",
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
        // A flag that all tools share may stand before a subcommand, so the two are told apart here and not by clap.
        if arguments.command.is_some() && (!arguments.contexts.is_empty() || arguments.output.is_some()) {
            let message =
                "contexts and --output stand after a subcommand; a context that is called like one is written ./NAME";
            return Err(CliError::Usage(message.into()).into());
        }
        match &arguments.command {
            None => decide(&arguments),
            Some(Command::Compare(given)) => compare(given, &arguments.common),
        }
    })
}

fn decide(arguments: &Arguments) -> Result<Exit, Error> {
    // Every context is decided before anything is written.
    let contexts = each(&read(&arguments.contexts, &arguments.common)?, decide::context)?;
    let decisions: Vec<Decision> = contexts.iter().map(|context| decide::decide(context, arguments.engine)).collect();
    let mut output = Output::new(arguments.output.as_deref())?;
    for decision in &decisions {
        output.document(&decision.encode())?;
        say(decision, &arguments.common);
    }
    output.finish()?;
    Ok(exit(&decisions))
}

fn read(names: &[OsString], common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = names.iter().map(|name| Source::from(name.as_os_str())).collect();
    read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))
}

fn compare(given: &Compare, common: &Common) -> Result<Exit, Error> {
    let contexts = each(&read(&given.contexts, common)?, compare_candidates::context)?;
    let comparisons: Vec<Comparison> = contexts.iter().map(compare_candidates::compare).collect();
    let mut output = Output::new(given.output.as_deref())?;
    for comparison in &comparisons {
        output.document(&comparison.encode())?;
        for pair in &comparison.pairs {
            let outcome = pair.outcome.map_or("UNDECIDED", Verdict::word);
            note(common, &format!("xt-decide: {outcome}: {}", pair.reason));
        }
    }
    output.finish()?;
    let outcomes: Vec<Option<Verdict>> =
        comparisons.iter().flat_map(|comparison| &comparison.pairs).map(|pair| pair.outcome).collect();
    Ok(answer(&outcomes, given.ask))
}

/// The weakest answer stands for all.
fn answer(outcomes: &[Option<Verdict>], ask: Question) -> Exit {
    if outcomes.iter().any(Option::is_none) {
        Exit::Undecided
    } else if outcomes.iter().flatten().all(|verdict| ask.answered_by(*verdict)) {
        Exit::Yes
    } else {
        Exit::No
    }
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
