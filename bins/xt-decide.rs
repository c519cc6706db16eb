//! `xt-decide`: does the record meet the stated thresholds?

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use xt_cli::{
    CliError, Common, Document, Error, Manual, Output, Source, Tool, each, note, parse_one, read_documents, read_one,
};
use xt_core::canonical::{self, Value};
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::comparison::{Comparison, Resampling, Scope, Verdict};
use xt_core::manifest::decision::{Context, Decision, Direction, Engine, Objective, Operator, Outcome, Role};
use xt_core::manifest::evaluation::Evaluation;
use xt_core::manifest::event::Level;
use xt_core::manifest::promotion::{CandidateRule, Promotion, PromotionPolicy};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::tag;
use xt_core::verb::decision_context::{self, About, Measured};
use xt_core::verb::scores::Samples;
use xt_core::verb::settle::{AttemptState, NodeState, RunState};
use xt_core::verb::{compare_candidates, decide, promote, scores};
use xt_record::{Attempt, Decided, DecisionRow, Judgement, NodeRow, Overview, Record, RecordError, RunRow};
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
    /// Write each decision into the record with what follows from it, once for each evaluation cycle
    ///
    /// The context must be that of the record; an xt.decision/1 made elsewhere can stand in its place, if it was made on
    /// the results of the cycle.
    #[arg(long)]
    record: bool,
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

#[derive(Args, Clone, Debug)]
struct Assemble {
    /// The experiment
    experiment: String,
    /// Only this candidate, by its node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Ask whether every seed meets the objective: of each metric the worst result stands
    ///
    /// Without this, several seeds report a metric several times, and nothing is decided.
    #[arg(long)]
    every_seed: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct Compare {
    /// Comparison contexts, or with --metric evaluations: files, digests or - [default: standard input]
    #[arg(value_name = "CONTEXT")]
    contexts: Vec<OsString>,
    #[command(flatten)]
    evaluations: Evaluations,
    /// What is asked of each candidate, and so what exit status 0 means: better, equivalent, or not-worse, which is either
    #[arg(long, value_name = "QUESTION", default_value = "better")]
    ask: Question,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How evaluations become one context.
#[derive(Args, Clone, Debug)]
struct Evaluations {
    /// Compare xt.evaluation/1 documents on this metric
    #[arg(long, value_name = "METRIC", requires = "direction")]
    metric: Option<String>,
    /// Which way the metric is better: minimize or maximize
    #[arg(long, value_name = "WAY", requires = "metric", value_parser = direction)]
    direction: Option<Direction>,
    /// Only over this slice of the data
    #[arg(long, value_name = "SLICE", requires = "metric")]
    slice: Option<String>,
    /// The candidate that the others are compared with [default: every pair is compared]
    #[arg(long, value_name = "CANDIDATE", requires = "metric")]
    reference: Option<String>,
    /// A difference that does not matter [default: none is stated, and nothing is called equivalent]
    #[arg(long, value_name = "DIFFERENCE", requires = "metric", value_parser = finite)]
    margin: Option<Finite>,
    /// How often chance alone may be taken for a difference [default: 0.05]
    #[arg(long, value_name = "SHARE", requires = "metric", value_parser = finite)]
    level: Option<Finite>,
    /// How likely a repeat should be to show a difference as large, when needed pairs are counted [default: 0.8]
    #[arg(long, value_name = "SHARE", requires = "metric", value_parser = finite)]
    power: Option<Finite>,
    /// Let the answer hold for other examples than those measured on; needs their samples in the store
    #[arg(long, requires = "metric")]
    other_examples: bool,
}

impl Evaluations {
    /// The context of some evaluations, as a document.
    fn context(&self, metric: &str, documents: &[Document], common: &Common) -> Result<Document, Error> {
        let evaluations = each(documents, Evaluation::decode)?;
        let evaluations: Vec<(Evaluation, Option<Samples>)> = evaluations
            .into_iter()
            .map(|evaluation| {
                let samples = samples(&evaluation, common);
                (evaluation, samples)
            })
            .collect();
        let question = scores::Question {
            experiment: None,
            metric: metric.into(),
            slice: self.slice.clone(),
            direction: self.direction.unwrap_or(Direction::Minimize),
            reference: self.reference.as_deref().map(name).transpose()?,
            level: self.level.map_or_else(|| finite("0.05"), Ok).map_err(CliError::Usage)?,
            power: self.power.map_or_else(|| finite("0.8"), Ok).map_err(CliError::Usage)?,
            margin: self.margin,
            scope: if self.other_examples { Scope::OtherExamples } else { Scope::TheseExamples },
            resampling: RESAMPLING,
        };
        let context = scores::context(&question, &evaluations)?;
        Ok(Document { value: context.encode(), origin: "evaluations".into() })
    }
}

/// How intervals are drawn where no context says otherwise.
const RESAMPLING: Resampling = Resampling { seed: 0, count: 10_000 };

/// The samples of an evaluation, where the store has them.
fn samples(evaluation: &Evaluation, common: &Common) -> Option<Samples> {
    let bytes = Store::open(&common.store).ok()?.get(evaluation.samples?).ok()?;
    let lines = canonical::parse_all(&bytes).ok()?;
    Samples::read(&lines)
}

fn direction(text: &str) -> Result<Direction, String> {
    Direction::parse(text).ok_or_else(|| "the ways are minimize and maximize".into())
}

fn finite(text: &str) -> Result<Finite, String> {
    text.parse().ok().and_then(Finite::new).ok_or_else(|| "expected a finite number".into())
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
                xt.comparison-context/1, or with --metric xt.evaluation/1. The policy of `promote` is an \
                xt.promotion-policy/1. With --record an xt.decision/1 can stand in place of a context. xt-manifest(5) \
                describes every field. A metric may say that no sample stands behind its value: it is decided on all the \
                same, the count is in the decision, and a note says so; whoever wants more samples states it as a \
                constraint on a metric that counts them.",
        output: "One xt.decision/1 a line for each context, in order, also when nothing can be decided; `compare` writes \
                 one xt.comparison/1 a line, `context` one xt.decision-context/1, `promote` an xt.promotion/1. When one context is refused, nothing \
                 is written. Exit status 0 means that every outcome is STOP_SUCCEEDED, 3 that at least one context \
                 cannot be decided, 1 any other outcome. Of `compare`, 0 means that every candidate is what --ask asks \
                 for, 3 that nothing can be said of at least one, 1 anything else. Of `promote`, 0 means that a bundle is \
                 chosen, and 3 that none is. With --record, STOP_SUCCEEDED \
                 completes the candidate and ends its experiment as succeeded, STOP_FAILED, REJECT and \
                 BRANCH reject it. The experiment has failed when every candidate of it is rejected, at least one \
                 with STOP_FAILED: in whatever order they are judged, the end is the same. A cycle that is \
                 decided already keeps its decision: the same one is printed again, another one is a conflict. 75 means \
                 that evaluations are missing, or that something still runs in an experiment that would end.",
        files: &[(
            ".xt",
            "the store, with the record in it; --store or XT_STORE names another. Only --record writes to it",
        )],
        examples: &[
            ("xt-decide context.json", "Decide whether a candidate meets its objective."),
            (
                "xt-decide --engine adaptive-threshold context.json",
                "Leave the experiment open when the target is missed.",
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
        }
    })
}

fn decide(arguments: &Arguments) -> Result<Exit, Error> {
    // Every context is decided before anything is recorded or written.
    let documents = read(&arguments.contexts, &arguments.common)?;
    let proposal = |value: &Value| proposal(value, arguments);
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
fn proposal(value: &Value, arguments: &Arguments) -> Result<Decision, Faults> {
    let made = value.get("schema").and_then(Value::as_str) == Some(tag::DECISION);
    if made && arguments.record {
        return Decision::decode(value);
    }
    decide::context(value).map(|context| decide::decide(&context, arguments.engine))
}

fn context(given: &Assemble, common: &Common) -> Result<Exit, Error> {
    let ledger = Ledger::open_read_only(common)?;
    let contexts = ledger.contexts(given, common)?;
    let mut output = Output::new(given.output.as_deref())?;
    for context in &contexts {
        output.document(&context.encode())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
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

/// The store and the record in it.
struct Ledger {
    store: Store,
    record: Record,
}

impl Ledger {
    fn open(common: &Common) -> Result<Self, Error> {
        let store = Store::open(&common.store)?;
        // A record that is not there holds nothing to decide on; it is not made here.
        Record::open_read_only(&store.record_path())?;
        Ok(Self { record: Record::open(&store.record_path())?, store })
    }

    fn open_read_only(common: &Common) -> Result<Self, Error> {
        let store = Store::open(&common.store)?;
        Ok(Self { record: Record::open_read_only(&store.record_path())?, store })
    }

    fn objective(&self, experiment: &Name) -> Result<Objective, Error> {
        let unknown = || RecordError::Unknown { level: Level::Experiment, name: experiment.clone() };
        let found = self.record.experiment(experiment)?.ok_or_else(unknown)?;
        let Some(text) = found.objective else {
            let message = format!(
                "experiment {experiment} has no objective; `xt-log experiment new` creates one that has, before anything runs"
            );
            return Err(Faults::one("", "decision.no-objective", message).into());
        };
        let mut faults = Faults::new();
        let read = Objective::read(&parse_one(text.as_bytes(), "the objective")?, "", &mut faults);
        read.filter(|_| faults.is_empty()).ok_or_else(|| faults.into())
    }

    /// What succeeded in a cycle of a candidate.
    fn measured(&self, overview: &Overview, node: &Name, cycle: u64) -> Result<Vec<Measured>, Error> {
        let of_cycle =
            |run: &&RunRow| run.node == *node && run.cycle == Some(cycle) && run.state == RunState::Succeeded;
        let mut measured = Vec::new();
        for run in overview.runs.iter().filter(of_cycle) {
            let succeeded = |attempt: &&Attempt| attempt.run == run.id && attempt.state == AttemptState::Succeeded;
            let Some(attempt) = overview.attempts.iter().find(succeeded) else { continue };
            measured.push(Measured { run: run.id.clone(), evaluation: self.evaluation(&attempt.id)? });
        }
        Ok(measured)
    }

    /// The evaluation that an attempt gave.
    fn evaluation(&self, attempt: &Name) -> Result<Evaluation, Error> {
        for reference in self.store.references()? {
            if reference.name.as_str().starts_with("evaluations/") {
                let evaluation: Evaluation = self.store.manifest(reference.digest)?;
                if evaluation.attempt == *attempt {
                    return Ok(evaluation);
                }
            }
        }
        let message = format!("the store has no evaluation of attempt {attempt}, which succeeded");
        Err(Faults::one("", "decision.no-evaluation", message).into())
    }

    /// One context for each candidate that has been evaluated, of its last cycle.
    fn contexts(&self, given: &Assemble, common: &Common) -> Result<Vec<Context>, Error> {
        let experiment = name(&given.experiment)?;
        let objective = self.objective(&experiment)?;
        let overview = self.record.status()?;
        let mut contexts = Vec::new();
        for node in overview.nodes.iter().filter(|node| node.experiment == experiment) {
            if given.node.as_ref().is_some_and(|wanted| *wanted != node.id.as_str()) {
                continue;
            }
            let cycles = overview.runs.iter().filter(|run| run.node == node.id).filter_map(|run| run.cycle);
            let (Some(cycle), false) = (cycles.max(), node.state == NodeState::Evaluating) else {
                note(common, &format!("xt-decide: {} is {}: its evaluations are not all there", node.id, node.state));
                continue;
            };
            let about = About { experiment: experiment.clone(), node: node.id.clone(), cycle };
            let assemble = if given.every_seed { decision_context::of_every_seed } else { decision_context::context };
            contexts.push(assemble(&about, &objective, &self.measured(&overview, &node.id, cycle)?));
        }
        if contexts.is_empty() {
            let message = format!("experiment {experiment} has no candidate whose evaluations are all there");
            return Err(Faults::one("", "decision.nothing", message).into());
        }
        Ok(contexts)
    }

    /// What a policy chooses, and the comparison that it rests on.
    fn promotion(&self, experiment: &Name, policy: &PromotionPolicy) -> Result<(Promotion, Option<Comparison>), Error> {
        let objective = self.objective(experiment)?;
        let overview = self.record.status()?;
        let (mut eligible, mut evaluations) = (Vec::new(), Vec::new());
        let accepted = |node: &&NodeRow| node.experiment == *experiment && node.state == NodeState::Completed;
        for node in overview.nodes.iter().filter(accepted) {
            let decisions = self.record.decisions(&node.id)?;
            let succeeded = |row: &&DecisionRow| row.outcome == Some(Outcome::StopSucceeded);
            let Some(decision) = decisions.iter().rev().find(succeeded) else { continue };
            let measured = self.measured(&overview, &node.id, decision.cycle)?;
            let measured: Vec<Evaluation> = measured.into_iter().map(|measured| measured.evaluation).collect();
            eligible.extend(promote::eligible(&node.id, decision.decision, &objective, &measured));
            evaluations.extend(measured.into_iter().map(|evaluation| (evaluation, None)));
        }
        let several = eligible.len() > 1 && policy.candidate == CandidateRule::Best;
        let comparison = several
            .then(|| {
                let question = promote::question(experiment, policy, &objective, RESAMPLING);
                scores::context(&question, &evaluations).map(|context| compare_candidates::compare(&context))
            })
            .transpose()?;
        let promotion = promote::promote(experiment, policy, &objective, eligible, comparison.as_ref());
        Ok((promotion, comparison))
    }

    /// Records a decision, if it was made on what the record holds. The document is in the store before the record names
    /// it.
    fn record(&self, decision: &Decision, common: &Common) -> Result<(), Error> {
        let (experiment, node, cycle) = (&decision.experiment_id, &decision.node_id, decision.evaluation_cycle);
        let objective = self.objective(experiment)?;
        let measured = self.measured(&self.record.status()?, node, cycle)?;
        let about = About { experiment: experiment.clone(), node: node.clone(), cycle };
        let contexts = [
            decision_context::context(&about, &objective, &measured),
            decision_context::of_every_seed(&about, &objective, &measured),
        ];
        decision_context::check(decision, &contexts)?;
        // No collection takes what is stored here before it has its name.
        let _hold = self.store.hold()?;
        let id = self.store.put_manifest(decision)?;
        let reason = format!("decision on cycle {cycle} of {node}");
        self.store.set_reference(&format!("decisions/{}", id.hex()), id, &reason)?;
        let decided = self.record.decide(&Judgement {
            experiment: experiment.clone(),
            node: node.clone(),
            cycle,
            results: measured.into_iter().map(|measured| measured.run).collect(),
            decision: id,
            input_fingerprint: decision.input_fingerprint,
            outcome: decision.outcome,
            reached: reached(decision),
            by: "xt-decide".into(),
            now: common.now()?,
        })?;
        let (word, row) = match decided {
            Decided::New(row) => ("recorded", row),
            Decided::Existing(row) => ("recorded before", row),
        };
        note(common, &format!("xt-decide: {word} as event {}: {}", row.sequence, row.decision));
        Ok(())
    }
}

/// The primary metric of a decision, and the relation in which a better value of it stands to a worse one.
fn reached(decision: &Decision) -> Option<(Operator, Finite)> {
    let made = decision.evidence.iter().find(|made| made.of.role == Role::Objective)?;
    Some((made.of.operator, made.of.value))
}

fn name(text: &str) -> Result<Name, Error> {
    Name::new(text).ok_or_else(|| CliError::Usage(format!("{text:?} is no identifier")).into())
}

fn read(names: &[OsString], common: &Common) -> Result<Vec<Document>, Error> {
    let sources: Vec<Source> = names.iter().map(|name| Source::from(name.as_os_str())).collect();
    read_documents(&sources, &|digest| Ok(Store::open(&common.store)?.get(digest)?))
}

fn compare(given: &Compare, common: &Common) -> Result<Exit, Error> {
    let mut documents = read(&given.contexts, common)?;
    if let Some(metric) = &given.evaluations.metric {
        documents = vec![given.evaluations.context(metric, &documents, common)?];
    }
    let contexts = each(&documents, compare_candidates::context)?;
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
