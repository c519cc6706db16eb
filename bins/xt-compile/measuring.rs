//! From frozen bundles and a spec to plans that measure, by the worker or by a program of the host.

use std::borrow::Cow;
use std::ffi::OsString;

use xt_bundle::Given;
use xt_cli::{Common, Error, Output, read_one};
use xt_core::fault::{Exit, Faults};
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::candidate::{Candidate, Tokenizer};
use xt_core::manifest::command::{Command, Program};
use xt_core::manifest::dataset::{Dataset, Format, Member};
use xt_core::manifest::evaluation::{Overlap, Parameters, Part, Spec, Subject};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::{Plan, Role};
use xt_core::verb::bind::{AVERAGED, trained as trained_files};
use xt_core::verb::compile;
use xt_core::verb::evaluate::{self, Comparison, Found};
use xt_core::verb::evaluate_command;
use xt_data::example::{examples, plain_examples};
use xt_data::{Corpus, Records, Text};
use xt_runtime::digests::Digests;
use xt_runtime::{RuntimeError, program};
use xt_store::Store;

use crate::{EvaluateArguments, decoded, note, records, rows, sizes, tell_withdrawn};

pub(crate) fn compile(arguments: &EvaluateArguments, common: &Common) -> Result<Exit, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let given = |name: &OsString| read_one(&xt_cli::Source::from(name.as_os_str()), &lookup);
    let (spec, intent) = (given(&arguments.spec)?, arguments.intent.as_ref().map(given).transpose()?);
    let mut faults = Faults::new();
    let spec = decoded::<Spec>(&spec.value, "", &mut faults);
    let intent = intent.map(|document| decoded::<Intent>(&document.value, "intent", &mut faults));
    let (Some(spec), true) = (spec, faults.is_empty()) else { return Err(faults.into()) };
    let bundles = bundles(&arguments.bundles, common)?;
    let several = bundles.len() > 1;
    let mut plans = Vec::new();
    for (index, bundle) in bundles.iter().enumerate() {
        match plan_of_evaluation(&spec, bundle, intent.clone().flatten(), &Store::open(&common.store)?) {
            Ok(plan) => plans.push(plan),
            // Every bundle is looked at, so that all reasons come at once.
            Err(Error(failure)) if several && failure.faults().is_some() => {
                let found = failure.faults().cloned().unwrap_or_default();
                faults.0.extend(found.within(&format!("bundle:{index}")).0);
            }
            Err(error) => return Err(error),
        }
    }
    faults.or(())?;
    tell_withdrawn(&plans, common)?;
    note(arguments.experiment.as_ref(), &plans, common)?;
    let mut output = Output::new(arguments.output.as_deref())?;
    for plan in &plans {
        output.document(&plan.encode())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

/// The bundles that are named, each verified: evaluation begins only once custody has frozen a model (L66).
fn bundles(names: &[OsString], common: &Common) -> Result<Vec<Bundle>, Error> {
    let mut bundles = Vec::new();
    let stdin = [OsString::from("-")];
    for name in if names.is_empty() { &stdin[..] } else { names } {
        let source = xt_cli::Source::from(name.as_os_str());
        match given_of(&source, common)? {
            Given::Archive(archive) => {
                let store = Store::open_or_create(&common.store)?;
                bundles.push(xt_bundle::import(&store, archive, &source.name())?);
            }
            Given::Text(text) => {
                let documents = xt_cli::parse_documents(&text, &source.name())?;
                let read: Vec<Bundle> = xt_cli::each(&documents, Bundle::decode)?;
                let store = Store::open(&common.store)?;
                for bundle in read {
                    let verdict = xt_bundle::verify_stored(&store, bundle.id())?;
                    verdict.faults.or(())?;
                    bundles.push(bundle);
                }
            }
        }
    }
    Ok(bundles)
}

pub fn given_of<'a>(source: &xt_cli::Source, common: &Common) -> Result<Given<'a>, Error> {
    let failed = |error| Error::from(source.unreadable(error));
    match source {
        xt_cli::Source::Digest(digest) => Ok(Given::Text(Store::open(&common.store)?.get(*digest)?)),
        xt_cli::Source::Stdin => Given::look(std::io::stdin()).map_err(failed),
        xt_cli::Source::File(path) => Given::look(std::fs::File::open(path).map_err(failed)?).map_err(failed),
    }
}

fn plan_of_evaluation(spec: &Spec, bundle: &Bundle, intent: Option<Intent>, store: &Store) -> Result<Plan, Error> {
    let trained: Plan = store.manifest(bundle.plan)?;
    let dataset: Dataset = store.manifest(spec.data.dataset)?;
    if spec.evaluator.program().is_some() {
        return plan_of_program(spec, (bundle, &trained), dataset, intent, store);
    }
    let intent = intent.unwrap_or_else(|| trained.intent.clone());
    let mut faults = Faults::new();
    let Some((candidate, learned)) = trained.training() else {
        let message = "the bundle is that of a command: an evaluator of the kind `command` can measure it";
        return Err(Faults::one("", "evaluation.subject", message).into());
    };
    evaluate::check(spec, candidate, &dataset, &intent, &mut faults);
    faults.or(())?;
    let path = match spec.parameters {
        Parameters::Trained => trained_files(candidate)[0],
        Parameters::Averaged => AVERAGED,
    };
    let weights = bundle.members.iter().find(|member| member.file.path.as_str() == path).map(|member| &member.file);
    let missing = || Faults::one("", "model.missing", format!("the bundle {} has no {path}", bundle.id()));
    let weights = weights.ok_or_else(missing)?;
    let (parts, tokenizer_bytes) = parts(spec, candidate, &dataset, store)?;
    let found = Found {
        subject: Subject {
            bundle: bundle.id(),
            run: bundle.run,
            candidate: trained.fingerprint,
            name: candidate.name.clone(),
            seed: trained.seed,
            weights: weights.digest,
        },
        weights_bytes: weights.bytes,
        tokenizer_bytes,
        parts,
        overlap: overlap(spec, (candidate, learned), &dataset, store)?,
        fitted: trained.fitted.clone(),
        base: if candidate.base.stays() { compile::base_inputs(&trained) } else { Vec::new() },
    };
    Ok(evaluate::compile(spec.clone(), candidate.clone(), dataset, intent, found)?)
}

/// The plan in which a program of the host measures a bundle, of a command or not.
fn plan_of_program(
    spec: &Spec,
    (bundle, trained): (&Bundle, &Plan),
    dataset: Dataset,
    intent: Option<Intent>,
    store: &Store,
) -> Result<Plan, Error> {
    let files = evaluate_command::files(bundle);
    let subject = Subject {
        bundle: bundle.id(),
        run: bundle.run,
        candidate: trained.fingerprint,
        name: trained.candidate.name().clone(),
        seed: trained.seed,
        weights: evaluate_command::digest(&files),
    };
    let missing = || Faults::one("/evaluator/kind", "evaluation.evaluator", "expected a command");
    let command = evaluate_command::command(spec, &subject).ok_or_else(missing)?;
    let intent = intent.unwrap_or_else(|| Intent::default_for(command.trainer.threads()));
    let mut faults = Faults::new();
    evaluate_command::check(spec, &command, &dataset, &intent, &mut faults);
    faults.or(())?;
    let program = program_of(&command, &intent, store)?;
    let sizes = sizes(&command, store)?;
    let members = evaluate::members(spec, &dataset);
    let parts = members.iter().map(|member| Part { path: member.path.clone(), tokens: member.bytes }).collect();
    let overlap = overlap_of_program(spec, trained, &dataset, store)?;
    let found = evaluate_command::Found { subject, files, parts, overlap, program, sizes };
    Ok(evaluate_command::compile(spec.clone(), dataset, intent, found)?)
}

/// The program on this host. What is wrong with it is told by where the spec names it.
fn program_of(command: &Command, intent: &Intent, store: &Store) -> Result<Program, Error> {
    match program::find(command, intent.isolation.profile, &mut Digests::open(store.path())) {
        Err(RuntimeError::Refused(faults)) => Err(evaluate_command::in_spec(faults).into()),
        found => Ok(found?),
    }
}

/// Holds every held-out file against everything the model is known to be trained on: members of its dataset, and the files
/// that a command had from the store.
fn overlap_of_program(spec: &Spec, trained: &Plan, dataset: &Dataset, store: &Store) -> Result<Overlap, Error> {
    let mut comparison = Comparison::new(spec);
    let learned = trained.dataset.as_ref().map_or(dataset.format, |dataset| dataset.format);
    let read = trained.inputs.iter().filter(|input| matches!(input.role, Role::Data | Role::File));
    for input in read {
        let bytes = store.get(input.digest)?;
        comparison.trained_on(&bytes, examples_as_trained(trained, learned, &bytes).iter().map(AsRef::as_ref));
    }
    for member in evaluate::members(spec, dataset) {
        let bytes = store.get(member.digest)?;
        comparison.held_out(&bytes, examples_as_trained(trained, dataset.format, &bytes).iter().map(AsRef::as_ref));
    }
    Ok(comparison.overlap())
}

/// The examples of a file as the trained model reads them, if it does, and by the form of the file otherwise.
fn examples_as_trained<'a>(trained: &Plan, format: Format, bytes: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
    let native = trained.training().filter(|(_, learned)| learned.format == format);
    let read = native.map(|(candidate, _)| examples(&candidate.tokenizer, bytes)).unwrap_or_default();
    if read.is_empty() { plain_examples(format, bytes) } else { read }
}

/// Reads the held-out files through the tokenizer, as the evaluator will, and counts; also the tokenizer's size.
fn parts(spec: &Spec, candidate: &Candidate, dataset: &Dataset, store: &Store) -> Result<(Vec<Part>, u64), Error> {
    if candidate.tokenizer.inputs().is_some() {
        let members = evaluate::members(spec, dataset);
        let (raw, tokens) = rows(candidate, &members, store)?;
        let part = |(member, tokens): (&&Member, u64)| Part { path: member.path.clone(), tokens };
        return Ok((members.iter().zip(raw.counts).map(part).collect(), tokens.tokenizer_bytes));
    }
    let file = candidate.tokenizer.digest().map(|digest| store.get(digest)).transpose()?;
    let text = Text::load(&candidate.tokenizer, file.as_deref())?;
    let tokenizer_bytes = file.map_or(0, |bytes| bytes.len() as u64);
    let members = evaluate::members(spec, dataset);
    if let Tokenizer::Records { .. } = &candidate.tokenizer {
        let found = records(candidate, &text, &members, store)?;
        check_predicted(&members, &found)?;
        let part = |(member, tokens): (&&Member, &u64)| Part { path: member.path.clone(), tokens: *tokens };
        return Ok((members.iter().zip(&found.counts).map(part).collect(), tokenizer_bytes));
    }
    let mut parts = Vec::new();
    for member in members {
        let mut corpus = Corpus::new(&text, dataset.format, None, candidate.model.vocabulary())?;
        corpus.add(member.path.as_str(), &store.get(member.digest)?)?;
        parts.push(Part { path: member.path.clone(), tokens: corpus.tokens() });
    }
    Ok((parts, tokenizer_bytes))
}

/// A held-out record of which nothing is predicted has no loss: every such record is told.
fn check_predicted(members: &[&Member], found: &Records) -> Result<(), Faults> {
    let (mut faults, mut samples) = (Faults::new(), found.samples.iter());
    for (member, count) in members.iter().zip(&found.counts) {
        for (number, sample) in (1..=*count).zip(&mut samples) {
            if sample.predicted() == 0 {
                let message = format!("record {number}: none of its tokens is predicted, so it has no loss");
                faults.add(member.path.as_str(), "evaluation.masked", message);
            }
        }
    }
    faults.or(())
}

/// Holds every held-out file against everything the model was trained on, which the store must have.
fn overlap(
    spec: &Spec,
    (candidate, learned): (&Candidate, &Dataset),
    dataset: &Dataset,
    store: &Store,
) -> Result<Overlap, Error> {
    let mut comparison = Comparison::new(spec);
    for member in compile::members(candidate, learned) {
        let bytes = store.get(member.digest)?;
        comparison.trained_on(&bytes, examples(&candidate.tokenizer, &bytes).iter().map(AsRef::as_ref));
    }
    for member in evaluate::members(spec, dataset) {
        let bytes = store.get(member.digest)?;
        comparison.held_out(&bytes, examples(&candidate.tokenizer, &bytes).iter().map(AsRef::as_ref));
    }
    Ok(comparison.overlap())
}
