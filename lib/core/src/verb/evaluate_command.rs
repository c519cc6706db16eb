//! From a frozen model and a spec that names a program to a plan in which the program measures, and back (rows X51–X61).
//!
//! The plan is one of a command, which finds the files of the bundle beside its data; what it leaves as metrics is held to
//! the same rules as what an evaluator of this toolkit leaves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::{Fault, Faults};
use crate::field::Field;
use crate::fingerprint;
use crate::manifest::Artifact;
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::candidate::Regime;
use crate::manifest::command::{Command, CommandData, Program};
use crate::manifest::dataset::Dataset;
use crate::manifest::evaluation::{Evaluating, Evaluator, Measure, Metrics, Overlap, Parameters, Part, Spec, Subject};
use crate::manifest::intent::Intent;
use crate::manifest::plan::{Ground, Input, Mode, Plan, Role, Work};
use crate::verb::evaluate::{check_overlap, check_parts, members, slice_of};
use crate::verb::{command, compile};

/// What is to be measured, and what the host and the store have shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The model.
    pub subject: Subject,
    /// The files of the bundle that the program finds.
    pub files: Vec<Artifact>,
    /// The files of the split, in order, with their bytes.
    pub parts: Vec<Part>,
    /// What they share with the training data.
    pub overlap: Overlap,
    /// The program.
    pub program: Program,
    /// Bytes of each of its files.
    pub sizes: BTreeMap<Digest, u64>,
}

/// The files of a bundle that a program which measures finds: the model, its base if the bundle holds it, and what else the
/// training left, by their paths in the bundle, which are sorted.
pub fn files(bundle: &Bundle) -> Vec<Artifact> {
    let of_the_model = |role| {
        use MemberRole::{Base, Configuration, Model, Output, Tokenizer};
        matches!(role, Base | Configuration | Model | Output | Tokenizer)
    };
    bundle.members.iter().filter(|member| of_the_model(member.role)).map(|member| member.file.clone()).collect()
}

/// The digest that stands for these files.
pub fn digest(files: &[Artifact]) -> Digest {
    Value::List(files.iter().map(Field::write).collect()).digest()
}

/// The command that a spec with a program is; `None` for any other.
pub fn command(spec: &Spec, subject: &Subject) -> Option<Command> {
    let Evaluator::Command { program, settings, .. } = &spec.evaluator else { return None };
    Some(Command {
        name: subject.name.clone(),
        trainer: (**program).clone(),
        parameters: settings.clone(),
        data: Some(CommandData { dataset: spec.data.dataset, split: Some(spec.data.split.clone()) }),
        steps: None,
        regime: Regime::Exact,
    })
}

/// Notes what makes an evaluation by `command` impossible. Pointers are into the spec.
pub fn check(spec: &Spec, command: &Command, dataset: &Dataset, intent: &Intent, faults: &mut Faults) {
    let mut found = Faults::new();
    let places: Vec<&str> = command::PLACES.into_iter().chain([command::MODEL_PLACE]).collect();
    command::check_with(command, Some(dataset), intent, &places, &mut found);
    faults.0.extend(in_spec(found).0);
    if spec.parameters == Parameters::Averaged {
        let message = "a program finds every file of the bundle and chooses by itself; declare trained";
        faults.add("/parameters", "evaluation.averaged", message);
    }
    let Evaluator::Command { version, metrics, .. } = &spec.evaluator else { return };
    if version.is_empty() {
        faults.add("/evaluator/version", "evaluation.evaluator", "expected a version, found an empty text");
    }
    if metrics.is_empty() {
        faults.add("/evaluator/metrics", "evaluation.empty", "expected the name of at least one metric");
    }
    let mut seen = BTreeSet::new();
    for (index, name) in metrics.iter().enumerate() {
        let at = format!("/evaluator/metrics/{index}");
        if name.is_empty() {
            faults.add(at, "evaluation.metric", "expected a name, found an empty text");
        } else if !seen.insert(name) {
            faults.add(at, "evaluation.twice", format!("{name:?} stands here a second time"));
        }
    }
}

/// Faults of a command by where the spec names its program.
pub fn in_spec(faults: Faults) -> Faults {
    let moved = |fault: Fault| match fault.pointer.strip_prefix("/trainer") {
        Some(rest) => Fault { pointer: format!("/evaluator/program{rest}"), ..fault },
        None => fault,
    };
    Faults(faults.0.into_iter().map(moved).collect())
}

/// The plan in which the program measures `found` by `spec`.
pub fn compile(spec: Spec, dataset: Dataset, intent: Intent, found: Found) -> Result<Plan, Faults> {
    let mut faults = Faults::new();
    let Some(command) = command(&spec, &found.subject) else {
        return Err(Faults::one("/evaluator/kind", "evaluation.evaluator", "expected a command"));
    };
    check(&spec, &command, &dataset, &intent, &mut faults);
    check_found(&spec, &dataset, &found, &mut faults);
    command::check_program(&command, &found.program, &mut faults);
    let mut of_command = Faults::new();
    let mut inputs = command::inputs(&command, Some(&dataset), &found.sizes, &mut of_command);
    faults.0.extend(in_spec(of_command).0);
    faults.or(())?;
    let known: Vec<Digest> = inputs.iter().map(|input| input.digest).collect();
    let mut more: Vec<Input> = found
        .files
        .iter()
        .map(|file| Input { digest: file.digest, bytes: file.bytes, role: Role::Model })
        .filter(|input| !known.contains(&input.digest))
        .collect();
    inputs.append(&mut more);
    inputs.sort_by_key(|input| input.digest);
    inputs.dedup_by_key(|input| input.digest);
    let (seed, fingerprint) = (spec.seed, fingerprint::evaluation(&spec, Some(&found.program)));
    let Found { subject, files, parts, overlap, program, sizes: _ } = found;
    let mut plan = Plan {
        mode: Mode::Evaluation,
        fingerprint: subject.candidate,
        seed,
        evaluation: Some(Evaluating { spec, fingerprint, subject, parts, overlap, files }),
        departure: None,
        ground: Ground::None {},
        inputs,
        fitted: Vec::new(),
        work: Work { tokens: 0, samples_per_epoch: 0, micro_batches_per_epoch: 0, steps: 0 },
        environment: command::environment(&command, seed),
        request: Digest::of(b""),
        program: Some(program),
        candidate: command.into(),
        dataset: Some(dataset),
        intent,
    };
    plan.request = fingerprint::request(&plan);
    Ok(plan)
}

fn check_found(spec: &Spec, dataset: &Dataset, found: &Found, faults: &mut Faults) {
    check_parts(spec, dataset, &found.parts, faults);
    check_overlap(spec, &found.overlap, found.parts.len() as u64, faults);
    if found.parts.iter().all(|part| part.tokens == 0) {
        faults.add("/evaluation/parts", "evaluation.empty", "the held-out split has no byte");
    }
    if found.files.is_empty() {
        faults.add("/evaluation/files", "model.missing", "the bundle has no file of a model");
    }
    if !found.files.windows(2).all(|pair| pair[0].path < pair[1].path) {
        faults.add("/evaluation/files", "plan.derived", "are not sorted by path, each once");
    }
    if found.subject.weights != digest(&found.files) {
        faults.add("/evaluation/subject/weights", "plan.derived", "is not the digest of the files");
    }
}

/// Notes what does not agree inside a plan in which a program measures.
pub(crate) fn check_plan(plan: &Plan, evaluating: &Evaluating, command_of_plan: &Command, faults: &mut Faults) {
    let (Some(program), Some(dataset)) = (plan.program.clone(), plan.dataset.clone()) else {
        return faults.add("/program", "plan.derived", "a program that measures has pins and data");
    };
    let Evaluating { spec, subject, parts, overlap, files, fingerprint: _ } = evaluating.clone();
    if command(&spec, &subject).as_ref() != Some(command_of_plan) {
        return faults.add("/candidate", "plan.derived", "is not the program of the spec");
    }
    let sizes = plan.inputs.iter().map(|input| (input.digest, input.bytes)).collect();
    let found = Found { subject, files, parts, overlap, program, sizes };
    match compile(spec, dataset, plan.intent.clone(), found) {
        Ok(again) => compile::same(plan, &again, faults),
        Err(found) => faults.0.extend(found.0),
    }
}

/// Notes what is wrong with the numbers that a program left: a metric that it promised and that is not there, counts that
/// cannot be, uncertainty that says nothing.
pub(crate) fn check_metrics(plan: &Plan, evaluating: &Evaluating, metrics: &Metrics, faults: &mut Faults) {
    let Evaluator::Command { metrics: due, samples, confidence, .. } = &evaluating.spec.evaluator else { return };
    let sizes = sizes_of_slices(plan, evaluating);
    // By name and slice: a program may leave hundreds of thousands.
    let counts: BTreeMap<(&str, Option<&str>), u64> =
        metrics.metrics.iter().map(|one| ((one.name.as_str(), one.slice.as_deref()), one.sample_count)).collect();
    for name in due {
        for slice in sizes.keys() {
            if !counts.contains_key(&(name.as_str(), slice.as_deref())) {
                let place = slice.as_ref().map_or(String::from("everything"), |slice| format!("the slice {slice:?}"));
                faults.add(
                    "/metrics",
                    "evaluation.missing",
                    format!("{name:?} over {place} was promised and is not there"),
                );
            }
        }
    }
    for (index, measure) in metrics.metrics.iter().enumerate() {
        let at = format!("/metrics/{index}");
        let promised = samples.filter(|_| measure.slice.is_none() && due.contains(&measure.name));
        if let Some(samples) = promised.filter(|samples| *samples != measure.sample_count) {
            let message = format!("the spec promises {samples} samples, found {}", measure.sample_count);
            faults.add(format!("{at}/sample_count"), "evaluation.count", message);
        }
        let whole = counts.get(&(measure.name.as_str(), None)).copied();
        check_count(&at, measure, whole, &sizes, faults);
        check_uncertainty(&at, measure, confidence.is_some(), faults);
    }
}

/// A sample takes at least a byte, and a slice has no more samples than everything.
fn check_count(
    at: &str,
    measure: &Measure,
    whole: Option<u64>,
    sizes: &BTreeMap<Option<String>, u64>,
    faults: &mut Faults,
) {
    let Measure { slice, sample_count, .. } = measure;
    let at = format!("{at}/sample_count");
    if let Some(bytes) = sizes.get(slice).filter(|bytes| sample_count > bytes) {
        let message = format!("{sample_count} samples cannot come from {bytes} bytes");
        return faults.add(at, "evaluation.count", message);
    }
    if let Some(whole) = whole.filter(|whole| whole < sample_count) {
        let message = format!("{sample_count} samples in a slice, and {whole} in everything");
        faults.add(at, "evaluation.count", message);
    }
}

fn check_uncertainty(at: &str, measure: &Measure, level: bool, faults: &mut Faults) {
    if measure.sample_count == 1 && (measure.standard_error.is_some() || measure.interval.is_some()) {
        faults.add(at, "evaluation.uncertainty", "one sample has no standard error and no interval");
    }
    let Some(interval) = measure.interval else { return };
    let at = format!("{at}/interval");
    if !level {
        faults.add(at, "evaluation.uncertainty", "an interval whose level the spec does not declare says nothing");
    } else if interval.low > interval.high {
        let message = format!("the lower end {} lies above the upper end {}", interval.low, interval.high);
        faults.add(at, "evaluation.uncertainty", message);
    } else if !(interval.low..=interval.high).contains(&measure.value) {
        let message = format!(
            "the value {} lies outside of its own interval, from {} to {}",
            measure.value, interval.low, interval.high
        );
        faults.add(at, "evaluation.uncertainty", message);
    }
}

/// The bytes of everything, and of each slice.
fn sizes_of_slices(plan: &Plan, evaluating: &Evaluating) -> BTreeMap<Option<String>, u64> {
    let mut sizes = BTreeMap::from([(None, 0)]);
    for member in plan.dataset.iter().flat_map(|dataset| members(&evaluating.spec, dataset)) {
        let slice = slice_of(&evaluating.spec, member);
        for place in slice.map_or(Vec::from([None]), |slice| Vec::from([None, Some(slice)])) {
            *sizes.entry(place).or_insert(0) += member.bytes;
        }
    }
    sizes
}
