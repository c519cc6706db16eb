//! `xt-compile`: is everything that changes what is learned declared, and what exactly will run?

extern crate alloc;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use xt_cli::{CliError, Common, Declaration, Document, Error, Manual, Output, Tool, read_documents, read_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::field::Manifest;
use xt_core::manifest::candidate::{Candidate, Tokenizer};
use xt_core::manifest::command::{Command, Hypothesis};
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Member, Splitting};
use xt_core::manifest::encoding::Fitted;
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, TRAIN, admit};
use xt_core::verb::compile::{self, Seen, Tokens};
use xt_core::verb::explain::explain;
use xt_core::verb::scaffold;
use xt_data::{Corpus, Raw, Records, Text};
use xt_runtime::digests::Digests;
use xt_runtime::{Clock, Runtime, program};
use xt_store::tree::Tree;
use xt_store::{Source, Store, StoreError};

#[path = "xt-compile/depart.rs"]
mod depart;
#[path = "xt-compile/ground.rs"]
mod ground;
#[path = "xt-compile/measuring.rs"]
mod measuring;
#[path = "xt-compile/scaffold.rs"]
mod starting;

/// Turn a candidate into plans, files into a dataset, and frozen bundles into plans that measure
///
/// A candidate declares every value that changes what is learned; a plan says exactly what will run. An undeclared or
/// impossible value is refused, all of them at once. One plan is written for each seed.
#[derive(Parser, Clone, Debug)]
#[command(name = "xt-compile", version, subcommand_negates_reqs = true, subcommand_precedence_over_arg = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Verb>,
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Clone, Debug)]
struct PlanArguments {
    /// Candidates: files, digests or - [default: standard input]
    #[arg(value_name = "CANDIDATE")]
    candidates: Vec<OsString>,
    /// Seed of the run, or a range such as 1..5 (both ends included) for one plan each
    #[arg(long, value_name = "N|A..B", default_value = "0")]
    seed: String,
    /// The dataset, when the store does not hold the one that the candidate names: a file or digest
    #[arg(long, value_name = "DATASET")]
    dataset: Option<OsString>,
    /// Resource envelope and isolation: a file or digest of an xt.intent/1 [default: one core for each thread, 4 GiB, one hour, full isolation]
    #[arg(long, value_name = "INTENT")]
    intent: Option<OsString>,
    /// Note in the record that the plans are for this experiment, which is created when new; the plans do not change
    #[arg(long, value_name = "NAME|ID", value_parser = identifier, conflicts_with = "explain")]
    experiment: Option<Name>,
    #[command(flatten)]
    grounds: ground::Grounds,
    /// Say in sentences what will run, instead of writing plans
    #[arg(long)]
    explain: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
enum Verb {
    /// Admit files: store them and write the xt.dataset/1 that names each by digest
    Dataset(DatasetArguments),
    /// Turn frozen bundles and a spec into plans that measure them on held-out data
    Evaluate(EvaluateArguments),
    /// Write a complete candidate to start from, with a value for every field
    Scaffold(ScaffoldArguments),
    /// Leave from a stored state in matched branches: a no-op, and one for each value that is set or noise that is added
    Branch(depart::BranchArguments),
    /// Go on from an earlier state of a run, and leave behind what came after it
    Rollback(depart::RollbackArguments),
    /// Go on from the last state of a branch to the end of its plan, so that it can be frozen
    Adopt(depart::AdoptArguments),
}

#[derive(Args, Clone, Debug)]
struct ScaffoldArguments {
    /// Family of the model
    #[arg(value_name = "FAMILY", value_parser = words(scaffold::FAMILIES))]
    family: String,
    /// The xt.dataset/1 to learn from: a file, a digest or -
    #[arg(long, value_name = "DATASET")]
    dataset: OsString,
    /// Optimiser
    #[arg(long, value_name = "KIND", default_value = "adamw", value_parser = words(scaffold::OPTIMIZERS))]
    optimizer: String,
    /// Schedule of the learning rate
    #[arg(long, value_name = "KIND", default_value = "cosine", value_parser = words(scaffold::SCHEDULES))]
    schedule: String,
    /// Column or tensor that is predicted, of a table or of tensors [default: the last column]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// The module of a torchscript, which is put into the store and opened by the worker alone
    #[arg(long, value_name = "FILE", requires = "tensors")]
    module: Option<PathBuf>,
    /// Names and shapes of its parameters and buffers, as JSON; see xt-manifest(5), `torchscript`
    #[arg(long, value_name = "FILE", requires = "module")]
    tensors: Option<OsString>,
    /// Begin from this base: a folder with model.safetensors and config.json, or the archive of a frozen bundle, which are put into the store, or the id of a frozen bundle in it
    #[arg(long, value_name = "FOLDER|ARCHIVE|BUNDLE")]
    base: Option<OsString>,
    /// Train adapters beside the base (LoRA, of rank 8 on queries and values) instead of its own parameters
    #[arg(long, requires = "base")]
    lora: bool,
    /// Say what each field means, one a line, instead of writing the candidate
    #[arg(long)]
    explain: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The words of a table, as clap takes them.
fn words(table: &'static [(&'static str, &'static str)]) -> PossibleValuesParser {
    PossibleValuesParser::new(scaffold::words(table))
}

#[derive(Args, Clone, Debug)]
struct EvaluateArguments {
    /// How to measure: an xt.evaluation-spec/1, a file, a digest or -
    #[arg(value_name = "SPEC")]
    spec: OsString,
    /// Frozen bundles: documents or archives as files, digests or - for documents [default: standard input]
    #[arg(value_name = "BUNDLE")]
    bundles: Vec<OsString>,
    /// Resource envelope and isolation: a file or digest of an xt.intent/1 [default: that of the training; for a command one core for each thread, 4 GiB, one hour, full isolation]
    #[arg(long, value_name = "INTENT")]
    intent: Option<OsString>,
    /// Note in the record that the plans are for this experiment, which is created when new; the plans do not change
    #[arg(long, value_name = "NAME|ID", value_parser = identifier)]
    experiment: Option<Name>,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct DatasetArguments {
    /// Files, and folders of which every file is taken; a path in the manifest starts at the named file or in the named folder
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// What the bytes are: text must be UTF-8, bytes may be anything, jsonl records of a prompt and a completion, of a text, or of a text and its label, csv a table whose first line names the columns, idx and npy images and labels in two files each, in the form of the MNIST files and of NumPy, png images in a folder for each class, safetensors tensors of inputs and targets
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = PossibleValuesParser::new(Format::ALL.iter().map(|format| format.word())))]
    format: String,
    /// What stays together in one split: each file apart, or all files of a folder
    #[arg(long, value_name = "GROUP", default_value = "file", value_parser = ["file", "folder"])]
    group_by: String,
    /// A split beside train and the parts of a thousand of the groups it takes, such as dev=100
    #[arg(long, value_name = "NAME=PERMILLE")]
    split: Vec<String>,
    /// Mixed into the order in which groups are dealt out to the splits
    #[arg(long, value_name = "TEXT", default_value = "")]
    salt: String,
    /// Keep this path out and record why; its content can then not come in under another name
    #[arg(long, value_name = "PATH=REASON")]
    exclude: Vec<String>,
    #[command(flatten)]
    declared: Declaration,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "Candidates are xt.candidate/1 documents, several in one stream if need be. `evaluate` takes one \
                xt.evaluation-spec/1, and any number of bundles: xt.bundle/1 documents that the store holds, or archives. \
                xt-manifest(5) describes every field.",
        output: "One xt.plan/1 a line for each candidate and seed; `dataset` writes one xt.dataset/1, `evaluate` one \
                 xt.plan/1 a line for each bundle. A plan is the same for every experiment; with --experiment, the record \
                 of the store holds for which it was compiled, and `xt-run` counts its runs there. An experiment that has \
                 ended takes no more plans (exit 12).",
        files: &[
            (".xt", "the store; --store or XT_STORE names another"),
            ("record.db", "the record in it, which is written with --experiment only"),
        ],
        examples: &[
            ("xt-compile dataset moby-dick.txt > dataset.json", "Admit a file and see its digests."),
            (
                "xt-compile dataset --split dev=100 speeches/",
                "Admit a folder and keep a tenth of its files for development.",
            ),
            (
                "xt-compile scaffold gpt --dataset dataset.json > candidate.json",
                "Write a candidate to start from; --explain says what each of its fields means.",
            ),
            (
                "xt-compile scaffold encoder --lora --dataset labelled.json --base ./minilm > candidate.json",
                "Train adapters on an encoder that tells the class of a text; the labels are read from the dataset.",
            ),
            (
                "xt-compile scaffold mlp --dataset table.json --target gain > candidate.json",
                "Predict a column of a table from the others, whose kinds and levels are read from the dataset; images are for \
                 mlp and cnn, tensors for both.",
            ),
            (
                "xt-compile scaffold llama --dataset dataset.json --base ./tiny-llama > candidate.json",
                "Begin from a model in the form of Hugging Face: its files are put into the store and pinned by digest.",
            ),
            ("xt-compile candidate.json | xt-run", "Run a candidate with seed 0."),
            (
                "xt-compile --experiment width candidate.json | xt-run",
                "Run it for the experiment width, which is created unless it exists.",
            ),
            ("xt-compile --seed 1..5 candidate.json > plans.jsonl", "Write five plans that differ only in their seed."),
            ("xt-compile --explain candidate.json", "Read what would run."),
            (
                "xt-compile evaluate heldout.json model.tar.zst | xt-run",
                "Measure a frozen model on held-out data that shares nothing with its training data.",
            ),
            (
                "xt-compile evaluate harness.json bundle.json | xt-run",
                "The same by a program of yours, when the evaluator in the spec is a command; xt-trainer(7) says what it finds.",
            ),
            (
                "xt-compile --seed 1..5 candidate.json | xt-run | xt-freeze | xt-compile evaluate heldout.json | xt-run",
                "Train five times, freeze and measure each.",
            ),
            (
                "xt-compile branch --from sha256:A --set optimizer.learning_rate=3e-3 --horizon 10,50 | xt-run | xt-replay branches",
                "What would another learning rate have done from this state on, against the same steps without it?",
            ),
            (
                "xt-compile branch --from sha256:A --data clean.json --horizon 50 | xt-run | xt-replay branches",
                "What would other data have done, seen in the places of those that were?",
            ),
            (
                "xt-compile branch --from sha256:A --purpose quality --set optimizer.learning_rate=1 --horizon 1 --known 0..0 | xt-run | xt-replay branches",
                "Check the instrument: a rate counts for the update of its step, so the first loss cannot differ.",
            ),
            (
                "xt-compile branch --from sha256:A --purpose maintenance --horizon 50 | xt-run --worker ./new/xt-train | xt-replay branches",
                "Do 50 steps again with another worker, and record what comes of it beside what was.",
            ),
            (
                "xt-compile rollback run.json --to 800 --set optimizer.learning_rate=1e-4 | xt-run",
                "Go on from step 800 with another learning rate.",
            ),
            (
                "xt-compile branch --from sha256:A --under 'regime=field;execution.threads=2' --evidence --horizon 50 > plans.jsonl",
                "Branches in a faster regime, as evidence for its calibration; xt(7) says what that is.",
            ),
            ("xt-compile adopt branch-run.json | xt-run | xt-freeze", "Take a branch to the end and freeze it."),
        ],
        exits: &[
            Exit::Yes,
            Exit::Usage,
            Exit::Refused,
            Exit::Store,
            Exit::Conflict,
            Exit::System,
            Exit::Bug,
            Exit::NotNow,
        ],
        see_also: &["xt-run(1)", "xt-log(1)", "xt-store(1)", "xt-manifest(5)", "xt-trainer(7)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(|arguments: Arguments| match &arguments.command {
        Some(Verb::Dataset(dataset)) => admit_files(dataset, &arguments.common),
        Some(Verb::Evaluate(evaluate)) => measuring::compile(evaluate, &arguments.common),
        Some(Verb::Scaffold(scaffold)) => starting::write_scaffold(scaffold, &arguments.common),
        Some(Verb::Branch(branch)) => depart::branches(branch, &arguments.common),
        Some(Verb::Rollback(rollback)) => depart::rollback(rollback, &arguments.common),
        Some(Verb::Adopt(adopt)) => depart::adopt(adopt, &arguments.common),
        None => compile_plans(&arguments.plan, &arguments.common),
    })
}

// ---- candidates to plans ----

fn compile_plans(arguments: &PlanArguments, common: &Common) -> Result<Exit, Error> {
    let seeds = seeds(&arguments.seed)?;
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let sources: Vec<_> = arguments.candidates.iter().map(|name| xt_cli::Source::from(name.as_os_str())).collect();
    let given = |name: &OsString| read_one(&xt_cli::Source::from(name.as_os_str()), &lookup);
    let dataset = arguments.dataset.as_ref().map(given).transpose()?;
    let intent = arguments.intent.as_ref().map(given).transpose()?;
    // Everything is compiled before anything is written: a refused candidate leaves no half-written stream.
    let mut plans = Vec::new();
    for candidate in read_documents(&sources, &lookup)? {
        plans.extend(plans_of(&candidate, dataset.as_ref(), intent.as_ref(), seeds.clone(), common)?);
    }
    let plans = arguments.grounds.under(plans, common)?;
    tell_withdrawn(&plans, common)?;
    note(arguments.experiment.as_ref(), &plans, common)?;
    let mut output = Output::new(arguments.output.as_deref())?;
    for plan in &plans {
        let lines = if arguments.explain { explain(plan) } else { vec![plan.encode().canonical()] };
        lines.iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

/// Tells people of everything that the plans rest on and that was withdrawn. It is theirs to judge whether that matters.
fn tell_withdrawn(plans: &[Plan], common: &Common) -> Result<(), Error> {
    let Ok(store) = Store::open(&common.store) else { return Ok(()) };
    for said in xt_bundle::withdrawn_under("what is compiled", &store, plans)? {
        xt_cli::note(common, &format!("xt-compile: {said}"));
    }
    Ok(())
}

/// Notes what the plans are for, before anybody sees them: whoever runs one finds it in the record.
fn note(experiment: Option<&Name>, plans: &[Plan], common: &Common) -> Result<(), Error> {
    let Some(experiment) = experiment else { return Ok(()) };
    let clock = common.given_time().map_or(Clock::system(), Clock::fixed);
    Ok(Runtime::new(&common.store, clock)?.compiled_for(experiment, plans)?)
}

fn identifier(text: &str) -> Result<Name, String> {
    Name::new(text).ok_or_else(|| format!("expected an identifier of the form {}", Name::PATTERN))
}

/// So many plans are held in memory before the first is written.
const MOST_SEEDS: u64 = 1_000_000;

/// `7`, or `1..5` with both ends.
fn seeds(text: &str) -> Result<std::ops::RangeInclusive<u64>, Error> {
    let wrong = || CliError::Usage(format!("--seed {text:?}: expected a whole number, or a rising range such as 1..5"));
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let (from, to) = (number(from)?, number(to)?);
    if from > to {
        return Err(wrong().into());
    }
    if to - from >= MOST_SEEDS {
        let message = format!("--seed {text:?}: at most {MOST_SEEDS} seeds at once, each is a plan");
        return Err(CliError::Usage(message).into());
    }
    Ok(from..=to)
}

fn plans_of(
    document: &Document,
    dataset: Option<&Document>,
    intent: Option<&Document>,
    seeds: impl Iterator<Item = u64>,
    common: &Common,
) -> Result<Vec<Plan>, Error> {
    // The faults of all three documents are reported together.
    let mut faults = Faults::new();
    let candidate = decoded::<Hypothesis>(&document.value, "", &mut faults);
    let intent = match intent {
        Some(document) => decoded(&document.value, "intent", &mut faults),
        None => candidate.as_ref().map(|candidate| Intent::default_for(candidate.threads())),
    };
    let named = candidate.as_ref().and_then(Hypothesis::dataset);
    let dataset = match (dataset, named) {
        (Some(document), _) => decoded::<Dataset>(&document.value, "dataset", &mut faults),
        (None, Some(digest)) => Some(Store::open(&common.store)?.manifest(digest)?),
        (None, None) => None,
    };
    let (candidate, dataset, intent) = match (candidate, dataset, intent) {
        (Some(Hypothesis::Command(command)), dataset, Some(intent)) if faults.is_empty() => {
            return plans_of_command(&command, dataset.as_ref(), &intent, seeds, common);
        }
        (Some(Hypothesis::Native(candidate)), Some(dataset), Some(intent)) => (*candidate, dataset, intent),
        _ => return Err(faults.into()),
    };
    compile::check(&candidate, &dataset, &intent, &mut faults);
    if !faults.is_empty() {
        return Err(faults.into());
    }
    let store = Store::open(&common.store)?;
    let base = xt_bundle::base::look(&store, &candidate, &mut faults)?;
    if !faults.is_empty() {
        return Err(faults.into());
    }
    let (tokens, fitted) = look(&candidate, &dataset, &store)?;
    let seen = Seen { tokens, fitted, base };
    let plan = |seed| compile::compile_seen(candidate.clone(), dataset.clone(), intent.clone(), seed, seen.clone());
    seeds.map(|seed| Ok(plan(seed)?)).collect()
}

/// The plans of a command: its program is looked for on this host, and everything that it can load is pinned.
fn plans_of_command(
    command: &Command,
    dataset: Option<&Dataset>,
    intent: &Intent,
    seeds: impl Iterator<Item = u64>,
    common: &Common,
) -> Result<Vec<Plan>, Error> {
    let mut faults = Faults::new();
    xt_core::verb::command::check(command, dataset, intent, &mut faults);
    faults.or(())?;
    let none = command.trainer.files().is_empty();
    let sizes = if none { BTreeMap::new() } else { sizes(command, &Store::open(&common.store)?)? };
    let mut digests = Digests::open(&common.store);
    let program = program::find(command, intent.isolation.profile, &mut digests)?;
    let plan = |seed| {
        let dataset = dataset.cloned();
        xt_core::verb::command::compile(command.clone(), dataset, intent.clone(), seed, program.clone(), &sizes)
    };
    seeds.map(|seed| Ok(plan(seed)?)).collect()
}

/// Bytes of the files of a command that the store has.
fn sizes(command: &Command, store: &Store) -> Result<BTreeMap<Digest, u64>, Error> {
    let mut sizes = BTreeMap::new();
    for digest in command.trainer.files().values() {
        sizes.extend(store.size(*digest)?.map(|bytes| (*digest, bytes)));
    }
    Ok(sizes)
}

/// Decodes and gathers the faults, each with the document's name in front when it is not the candidate.
fn decoded<M: Manifest>(value: &Value, document: &str, faults: &mut Faults) -> Option<M> {
    match M::decode(value) {
        Ok(manifest) => Some(manifest),
        Err(found) if document.is_empty() => {
            faults.0.extend(found.0);
            None
        }
        Err(found) => {
            faults.0.extend(found.within(document).0);
            None
        }
    }
}

/// Reads the split as the trainer will: counts it and, for numbers, fits what scales them.
fn look(candidate: &Candidate, dataset: &Dataset, store: &Store) -> Result<(Tokens, Vec<Fitted>), Error> {
    if candidate.tokenizer.inputs().is_none() {
        return Ok((count_tokens(candidate, dataset, store)?, Vec::new()));
    }
    let (raw, mut tokens) = rows(candidate, &compile::members(candidate, dataset), store)?;
    tokens.count = raw.samples() as u64;
    let (Tokenizer::Table { scaling, .. } | Tokenizer::Image { scaling, .. } | Tokenizer::Tensors { scaling, .. }) =
        &candidate.tokenizer
    else {
        return Ok((tokens, Vec::new()));
    };
    let fitted = raw.fit(*scaling).map_err(|faults| faults.within("data"))?;
    Ok((tokens, fitted))
}

/// These files as rows of numbers, and the tokens and bytes of the tokenizer where one has made them; samples are not counted.
fn rows(candidate: &Candidate, members: &[&Member], store: &Store) -> Result<(Raw, Tokens), Error> {
    let files: Result<Vec<(&str, Vec<u8>)>, Error> =
        members.iter().map(|member| Ok((member.path.as_str(), store.get(member.digest)?))).collect();
    let files = files?;
    let Tokenizer::Labelled { .. } = &candidate.tokenizer else {
        let tokens = Tokens { vocabulary: 0, count: 0, tokenizer_bytes: 0 };
        return Ok((xt_data::rows::read(&candidate.tokenizer, &files)?, tokens));
    };
    let file = candidate.tokenizer.digest().map(|digest| store.get(digest)).transpose()?;
    let text = Text::load(&candidate.tokenizer, file.as_deref())?;
    let read = xt_data::labelled::read(&candidate.tokenizer, &text, candidate.model.vocabulary(), &files);
    let tokenizer_bytes = file.map_or(0, |bytes| bytes.len() as u64);
    let tokens = Tokens { vocabulary: text.vocabulary(), count: 0, tokenizer_bytes };
    Ok((read.map_err(|faults| faults.within("data"))?, tokens))
}

/// These files as records.
fn records(candidate: &Candidate, text: &Text, members: &[&Member], store: &Store) -> Result<Records, Error> {
    let files: Result<Vec<(&str, Vec<u8>)>, Error> =
        members.iter().map(|member| Ok((member.path.as_str(), store.get(member.digest)?))).collect();
    let read = xt_data::records::read(&candidate.tokenizer, text, &candidate.model, &files?);
    Ok(read.map_err(|faults| faults.within("data"))?)
}

/// Reads the split through the tokenizer, as the trainer will, and counts.
fn count_tokens(candidate: &Candidate, dataset: &Dataset, store: &Store) -> Result<Tokens, Error> {
    let file = candidate.tokenizer.digest().map(|digest| store.get(digest)).transpose()?;
    let text = Text::load(&candidate.tokenizer, file.as_deref())?;
    let tokenizer_bytes = file.map_or(0, |bytes| bytes.len() as u64);
    let members = compile::members(candidate, dataset);
    if let Tokenizer::Records { .. } = &candidate.tokenizer {
        let count = records(candidate, &text, &members, store)?.samples.len() as u64;
        return Ok(Tokens { vocabulary: text.vocabulary(), count, tokenizer_bytes });
    }
    let vocabulary = candidate.model.vocabulary();
    let mut corpus = Corpus::new(&text, dataset.format, candidate.data.separator, vocabulary)?;
    for member in members {
        corpus.add(member.path.as_str(), &store.get(member.digest)?)?;
    }
    Ok(Tokens { vocabulary: text.vocabulary(), count: corpus.tokens(), tokenizer_bytes })
}

// ---- files to a dataset ----

fn admit_files(arguments: &DatasetArguments, common: &Common) -> Result<Exit, Error> {
    let format = Format::parse(&arguments.format).unwrap_or(Format::Text);
    let group_by = GroupBy::parse(&arguments.group_by).unwrap_or(GroupBy::File);
    let (permille, excluded) = typed(arguments)?;
    let terms = arguments.declared.terms()?;
    let (mut faults, mut offered, mut formed) = (Faults::new(), Vec::new(), 0);
    each_file(&arguments.paths, &mut faults, &mut |path, bytes, faults| {
        let before = faults.0.len();
        check_form(format, path, bytes, faults);
        formed += faults.0.len() - before;
        offered.push(Offered { path: path.clone(), digest: Digest::of(bytes), bytes: bytes.len() as u64 });
        Ok(())
    })?;
    if faults.0.len() > formed {
        // Some files could not be looked at: whatever is said of all of them together would be said of the others only.
        return Err(faults.into());
    }
    let splitting = Splitting { group_by, salt: arguments.salt.clone(), permille };
    let admitted = admit(format, &offered, &excluded, splitting);
    faults.0.extend(admitted.as_ref().err().cloned().unwrap_or_default().0);
    let (Ok(dataset), true) = (admitted, faults.is_empty()) else { return Err(faults.into()) };
    let dataset = Dataset { terms, ..dataset };
    store_members(arguments, &dataset, common)?;
    let mut output = Output::new(arguments.output.as_deref())?;
    output.document(&dataset.encode())?;
    output.finish()?;
    Ok(Exit::Yes)
}

/// Reads the files again, now into the store: a refused input leaves no trace there.
fn store_members(arguments: &DatasetArguments, dataset: &Dataset, common: &Common) -> Result<(), Error> {
    let digests: BTreeMap<_, _> = dataset.members.iter().map(|member| (&member.path, member.digest)).collect();
    let store = Store::open_or_create(&common.store)?;
    let mut writer = store.writer()?;
    let mut faults = Faults::new();
    each_file(&arguments.paths, &mut faults, &mut |path, bytes, faults| {
        match digests.get(path) {
            Some(digest) if *digest == Digest::of(bytes) => drop(writer.put(bytes)?),
            Some(_) => faults.add(path.as_str(), "input.changed", "changed while it was admitted"),
            None => {}
        }
        Ok(())
    })?;
    faults.or(())?;
    writer.put_manifest(dataset)?;
    Ok(writer.commit()?)
}

/// What is done with each file: its path in the manifest and its bytes.
type Visit<'a> = &'a mut dyn FnMut(&RelativePath, &[u8], &mut Faults) -> Result<(), Error>;

/// Visits every file of every argument. Links and special files are faults; they are never followed.
fn each_file(arguments: &[PathBuf], faults: &mut Faults, visit: Visit<'_>) -> Result<(), Error> {
    for argument in arguments {
        // A link to a folder is no folder here: it falls to `Source`, which refuses it by name.
        if argument.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            let Some(tree) = noted(argument, Tree::open(argument), faults)? else { continue };
            for path in tree.files() {
                visit_one(argument, path, tree.source(path), faults, visit)?;
            }
        } else {
            let name = argument.file_name().and_then(|name| name.to_str());
            match name
                .ok_or_else(|| "the name is not UTF-8, so no manifest can hold it".to_string())
                .and_then(|name| RelativePath::new(name).map_err(|error| error.to_string()))
            {
                Ok(path) => visit_one(argument, &path, Source::open(argument), faults, visit)?,
                Err(why) => faults.add(argument.display().to_string(), "data.name", why),
            }
        }
    }
    Ok(())
}

fn visit_one(
    argument: &Path,
    path: &RelativePath,
    source: Result<Source, StoreError>,
    faults: &mut Faults,
    visit: Visit<'_>,
) -> Result<(), Error> {
    let Some(mut source) = noted(argument, source, faults)? else { return Ok(()) };
    let mut bytes = Vec::new();
    source
        .read_to_end(&mut bytes)
        .map_err(|error| CliError::Read { name: source.path().display().to_string(), source: error })?;
    if noted(argument, source.unchanged(), faults)?.is_some() {
        visit(path, &bytes, faults)?;
    }
    Ok(())
}

/// A refused file is one fault among others; everything else ends the tool.
fn noted<T>(argument: &Path, result: Result<T, StoreError>, faults: &mut Faults) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let Some(found) = error.faults() else { return Err(error.into()) };
            for fault in &found.0 {
                let pointer =
                    if fault.pointer.is_empty() { argument.display().to_string() } else { fault.pointer.clone() };
                faults.add(pointer, fault.code, fault.message.clone());
            }
            Ok(None)
        }
    }
}

/// Thousandths by split, and reasons by excluded file.
type SplitsAndExclusions = (BTreeMap<String, u64>, BTreeMap<RelativePath, String>);

/// The splits and exclusions of the command line. Whatever is wrong with one, or stands twice, is told at once.
fn typed(arguments: &DatasetArguments) -> Result<SplitsAndExclusions, CliError> {
    let (mut splits, mut excluded, mut wrong) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for text in &arguments.split {
        match split(text) {
            Some((name, share)) if splits.insert(name.clone(), share).is_none() => {}
            Some((name, _)) => wrong.push(format!("--split names {name} twice")),
            None => wrong.push(format!(
                "--split expects NAME=PERMILLE with 1 to 999 and a name other than {TRAIN}, which takes what is left over, \
                 found {text:?}"
            )),
        }
    }
    for text in &arguments.exclude {
        let Some((path, why)) = exclusion(text) else {
            wrong.push(format!("--exclude expects PATH=REASON, found {text:?}"));
            continue;
        };
        if excluded.insert(path.clone(), why).is_some() {
            wrong.push(format!("--exclude names {path} twice"));
        }
    }
    if wrong.is_empty() { Ok((splits, excluded)) } else { Err(CliError::Usage(wrong.join("; "))) }
}

fn split(text: &str) -> Option<(String, u64)> {
    let (name, share) = text.split_once('=')?;
    let name = Name::new(name).filter(|name| name.as_str() != TRAIN)?;
    Some((name.to_string(), share.parse().ok().filter(|share| (1..1000).contains(share))?))
}

fn exclusion(text: &str) -> Option<(RelativePath, String)> {
    let (path, why) = text.split_once('=').filter(|(_, why)| !why.trim().is_empty())?;
    Some((RelativePath::new(path).ok()?, why.to_string()))
}

/// Every file is what its format says.
fn check_form(format: Format, path: &RelativePath, bytes: &[u8], faults: &mut Faults) {
    match format {
        // That it is empty is told of every file, whatever its format.
        _ if bytes.is_empty() => {}
        Format::Text | Format::Bytes => check_text(format, path, bytes, faults),
        Format::Jsonl => faults.0.extend(xt_data::records::check(path.as_str(), bytes).0),
        Format::Csv => faults.0.extend(xt_data::table::check(path.as_str(), bytes).0),
        Format::Idx | Format::Npy | Format::Png => {
            faults.0.extend(xt_data::image::check(format, path.as_str(), bytes).0);
        }
        Format::Safetensors => faults.0.extend(xt_data::tensors::check(path.as_str(), bytes).0),
    }
}

/// Text is UTF-8 without a byte-order mark (rows D-10, J-13).
fn check_text(format: Format, path: &RelativePath, bytes: &[u8], faults: &mut Faults) {
    if format != Format::Text {
        return;
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        let message = format!("byte {} is not UTF-8; --format bytes admits any bytes", error.valid_up_to());
        faults.add(path.as_str(), "data.encoding", message);
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        let message = "starts with a byte-order mark; remove it, or use --format bytes";
        faults.add(path.as_str(), "data.byte-order-mark", message);
    }
}
