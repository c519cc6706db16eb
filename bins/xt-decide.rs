//! `xt-decide`: does the record meet the stated thresholds?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use xt_cli::{CliError, Common, Document, Error, Manual, Output, Source, Tool, each, note, read_documents, read_one};
use xt_core::canonical::Value;
use xt_core::fault::{Exit, Faults};
use xt_core::field::Manifest as _;
use xt_core::instant::Instant;
use xt_core::manifest::decision::{Decision, Engine, Obstacle, Outcome};
use xt_core::manifest::promotion::PromotionPolicy;
use xt_core::name::Name;
use xt_core::tag;
use xt_core::verb::decide;
use xt_store::Store;

#[path = "xt-decide/assembling.rs"]
mod assembling;
#[path = "xt-decide/branching.rs"]
mod branching;
#[path = "xt-decide/calibrate.rs"]
mod calibrate;
#[path = "xt-decide/comparing.rs"]
mod comparing;
#[path = "xt-decide/ledger.rs"]
mod ledger;

use assembling::{Assemble, assembled, context};
use comparing::{Compare, compare};
use ledger::Ledger;

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
    /// Contexts, or an objective and evaluations: files, digests or - [default: standard input]
    #[arg(value_name = "CONTEXT|OBJECTIVE")]
    contexts: Vec<OsString>,
    /// What a missed target means: threshold ends the experiment (STOP_FAILED), adaptive-threshold only the candidate (BRANCH)
    #[arg(long, value_name = "ENGINE", default_value = "threshold", value_parser = engine)]
    engine: Engine,
    /// Write each decision into the record with what follows from it, once for each evaluation cycle
    ///
    /// The context must be that of the record; an xt.decision/1 made elsewhere can stand in its place, if it was made on
    /// the results of the cycle.
    #[arg(long)]
    record: bool,
    /// Ask of evaluations whether every seed meets the objective: of each metric the worst result stands
    ///
    /// Without this, several seeds report a metric several times, and nothing is decided.
    #[arg(long)]
    every_seed: bool,
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
    /// Assemble from the record what is to be decided: one context for each candidate whose evaluations are all there
    Context(Assemble),
    /// Choose a bundle among the accepted candidates of an experiment, by a stated policy
    Promote(Promote),
    /// Hold a regime that is not exact against exact branches of the same states, and say what it can be trusted for
    ///
    /// Exit status 0 means that all gates were passed; such a calibration unlocks the regime until it expires.
    Calibrate(calibrate::Calibrate),
}

#[derive(Args, Clone, Debug)]
struct Promote {
    /// The experiment
    experiment: String,
    /// The policy: a file, a digest or - for standard input
    #[arg(long, value_name = "POLICY")]
    policy: OsString,
    /// Write the choice into the record; an experiment has one
    #[arg(long)]
    record: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// An engine by its name.
fn engine(text: &str) -> Result<Engine, String> {
    let names: Vec<&str> = Engine::ALL.iter().map(|engine| engine.word()).collect();
    Engine::parse(text).ok_or_else(|| format!("the engines are {}", names.join(" and ")))
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Contexts are xt.decision-context/1 documents, several in one stream if need be. An objective in their \
                place takes evaluations (xt.evaluation/1), from standard input unless they are named beside it, and \
                decides on their candidates, or branches (xt.branch/1, as xt-replay branches writes them) and decides \
                on each but the no-op by its metrics effect, mean_effect and loss, over the last horizon or over a \
                slice that is called like the steps of another. What stands in the record is decided on, whole, and \
                the experiment must have been made for this objective if it was made for one. The contexts of \
                `compare` are xt.comparison-context/1, or with --metric xt.evaluation/1. The policy of `promote` is an \
                xt.promotion-policy/1. With --record an xt.decision/1 can stand in place of a context. xt-manifest(5) \
                describes every field. A metric may say that no sample stands behind its value: it is decided on all \
                the same, the count is in the decision, and a note says so; whoever wants more samples states it as a \
                constraint on a metric that counts them.",
        output: "One xt.decision/1 a line for each context, in order, also when nothing can be decided; `compare` \
                 writes one xt.comparison/1 a line, `context` one xt.decision-context/1, `promote` an xt.promotion/1, \
                 `calibrate` an xt.calibration/1. When one context is refused, nothing is written. Exit status 0 means \
                 that every outcome is STOP_SUCCEEDED, 3 that at least one context cannot be decided, 1 any other \
                 outcome. 3 also means that an outcome is ESCALATE: the exact regime has to be asked, and the plans \
                 for that are in the store. Of `compare`, 0 means that every candidate is what --ask asks for, 3 that \
                 nothing can be said of at least one, 1 anything else. Of `calibrate`, 0 means that every gate was \
                 passed, and 1 that one was not. Of `promote`, 0 means that a bundle is chosen, and 3 that none is. \
                 With --record, STOP_SUCCEEDED completes the candidate and ends its experiment as succeeded, \
                 STOP_FAILED, REJECT and BRANCH reject it. The experiment has failed when every candidate of it is \
                 rejected, at least one with STOP_FAILED: in whatever order they are judged, the end is the same. A \
                 cycle that is decided already keeps its decision: the same one is printed again, another one is a \
                 conflict. ESCALATE is noted and leaves it open. 75 means that evaluations are missing, or that \
                 something still runs in an experiment that would end.",
        files: &[(
            ".xt",
            "the store, with the record in it; --store or XT_STORE names another. Only --record and plans to ask the exact regime are written to it",
        )],
        examples: &[
            ("xt-decide context.json", "Decide whether a candidate meets its objective."),
            (
                "xt-decide --engine adaptive-threshold context.json",
                "Leave the experiment open when the target is missed.",
            ),
            (
                "xt-compile evaluate heldout.json < bundles.jsonl | xt-run | xt-decide --every-seed objective.json",
                "Measure, and decide on what was measured: every seed has to meet the objective.",
            ),
            (
                "xt-decide context width | xt-decide --record",
                "Decide on the candidates of an experiment, and record it.",
            ),
            (
                "xt-decide context --every-seed width | xt-decide --record",
                "The same, where a candidate was measured with several seeds and each has to meet the objective.",
            ),
            (
                "xt-decide promote width --policy policy.json --record",
                "Choose a bundle of an experiment by a stated policy, and record it.",
            ),
            (
                "xt-decide compare --metric loss --direction minimize --reference base measured.jsonl",
                "Ask whether what was measured is better than the candidate base.",
            ),
            (
                "xt-decide lower.json branches.jsonl",
                "Decide on what came of branches, of which lower.json asks for an effect.",
            ),
            (
                "xt-decide calibrate exact.jsonl field.jsonl gates.json > calibration.json",
                "How far can a faster regime be trusted? Both files come from xt-replay branches.",
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
            Exit::Conflict,
            Exit::System,
            Exit::Bug,
            Exit::NotNow,
        ],
        see_also: &["xt-run(1)", "xt-log(1)", "xt-triage(1)", "xt-manifest(5)", "xt(7)"],
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
            Some(Command::Context(given)) => context(given, &arguments.common),
            Some(Command::Promote(given)) => promote(given, &arguments.common),
            Some(Command::Calibrate(given)) => calibrate::calibration(given, &arguments.common),
        }
    })
}

fn decide(arguments: &Arguments) -> Result<Exit, Error> {
    // Every context is decided before anything is recorded or written.
    let documents = assembled(read(&arguments.contexts, &arguments.common)?, arguments)?;
    let now = arguments.common.now()?;
    let proposal = |value: &Value| proposal(value, arguments, now);
    let decisions = each(&documents, proposal)?;
    if arguments.record {
        let ledger = Ledger::open(&arguments.common)?;
        for decision in &decisions {
            ledger.record(decision, &arguments.common)?;
        }
    }
    let mut output = Output::new(arguments.output.as_deref())?;
    for decision in &decisions {
        output.document(&decision.encode())?;
        say(decision, &arguments.common);
    }
    output.finish()?;
    Ok(exit(&decisions))
}

/// What is decided on a context, or a decision that was made elsewhere and is to be recorded.
fn proposal(value: &Value, arguments: &Arguments, now: Instant) -> Result<Decision, Faults> {
    let made = value.get("schema").and_then(Value::as_str) == Some(tag::DECISION);
    if made && arguments.record {
        return Decision::decode(value);
    }
    decide::context(value).map(|context| decide::decide(&context, arguments.engine, now))
}

fn promote(given: &Promote, common: &Common) -> Result<Exit, Error> {
    let experiment = name(&given.experiment)?;
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let policy = PromotionPolicy::decode(&read_one(&Source::from(given.policy.as_os_str()), &lookup)?.value)?;
    let ledger = if given.record { Ledger::open(common)? } else { Ledger::open_read_only(common)? };
    let (promotion, comparison) = ledger.promotion(&experiment, &policy)?;
    if let (Some(chosen), true) = (&promotion.chosen, given.record) {
        // No collection takes what is stored here before it has its name.
        let _hold = ledger.store.hold()?;
        for (kind, id) in [
            ("comparisons", comparison.as_ref().map(|found| ledger.store.put_manifest(found)).transpose()?),
            ("promotions", Some(ledger.store.put_manifest(&promotion)?)),
        ] {
            let Some(id) = id else { continue };
            ledger.store.set_reference(&format!("{kind}/{}", id.hex()), id, &format!("promotion in {experiment}"))?;
        }
        let what = (&chosen.node, chosen.bundle);
        let new = ledger.record.promote(&experiment, promotion.id(), what, "xt-decide", common.now()?)?;
        note(common, if new { "xt-decide: recorded" } else { "xt-decide: recorded before" });
    }
    let mut output = Output::new(given.output.as_deref())?;
    output.document(&promotion.encode())?;
    note(common, &format!("xt-decide: {}", promotion.reason));
    output.finish()?;
    Ok(if promotion.chosen.is_some() { Exit::Yes } else { Exit::Undecided })
}

fn name(text: &str) -> Result<Name, Error> {
    Name::new(text).ok_or_else(|| CliError::Usage(format!("{text:?} is no identifier")).into())
}

fn read(names: &[OsString], common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = names.iter().map(|name| Source::from(name.as_os_str())).collect();
    read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))
}

/// One sentence for people, and a word of caution about values that rest on one sample or none.
fn say(decision: &Decision, common: &Common) {
    let outcome = decision.outcome.map_or("UNDECIDED", Outcome::word);
    note(common, &format!("xt-decide: {outcome}: {}", decision.reason));
    if decision.reasons.iter().any(|reason| reason.code == Obstacle::MetricAmbiguous) {
        note(
            common,
            "hint: where several seeds were measured, `xt-decide context --every-seed` asks whether each meets the objective",
        );
    }
    if let Some(escalation) = &decision.escalation.0 {
        let plans: Vec<String> = escalation.plans.iter().map(ToString::to_string).collect();
        note(
            common,
            &if plans.is_empty() {
                "hint: no exact plan can be made of this one, which goes on from a state of its own regime".into()
            } else {
                format!("hint: `xt-run {}` asks the exact regime", plans.join(" "))
            },
        );
    }
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
    let open = |decision: &Decision| matches!(decision.outcome, None | Some(Outcome::Escalate));
    if decisions.iter().any(open) {
        Exit::Undecided
    } else if decisions.iter().all(succeeded) {
        Exit::Yes
    } else {
        Exit::No
    }
}
