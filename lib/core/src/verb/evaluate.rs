//! From a frozen model and a spec to a plan that measures, and from what was measured to the result (rows X51–X63).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::count::counted;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest};
use crate::fingerprint;
use crate::manifest::Artifact;
use crate::manifest::candidate::{Averaging, Candidate};
use crate::manifest::dataset::{Dataset, Member};
use crate::manifest::encoding::Fitted;
use crate::manifest::evaluation::{
    Evaluating, Evaluation, Metrics, Overlap, Parameters, Part, Shared, Slices, Spec, Subject,
};
use crate::manifest::intent::Intent;
use crate::manifest::plan::{Ground, Input, Mode, Plan, Role, Work};
use crate::manifest::run::{Run, Status};
use crate::verb::environment::environment;
use crate::verb::{admit, compile, evaluate_command, fit};

/// What an evaluator wrote, among the outputs of its run.
pub const METRICS: &str = "evaluation/metrics.json";
/// A line for each sample, among the outputs of its run.
pub const SAMPLES: &str = "evaluation/samples.jsonl";

/// What is to be measured, and what reading the data has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The model.
    pub subject: Subject,
    /// Size of its parameters' file in bytes.
    pub weights_bytes: u64,
    /// Size of the tokenizer file; 0 for bytes.
    pub tokenizer_bytes: u64,
    /// The files of the split, in order.
    pub parts: Vec<Part>,
    /// What they share with the training data.
    pub overlap: Overlap,
    /// What was fitted on the training data to scale numbers.
    pub fitted: Vec<Fitted>,
    /// The files of the base that adapters stand on; nothing where the parameters themselves were trained.
    pub base: Vec<Input>,
}

/// The files that a spec measures on, in the order of the dataset.
pub fn members<'a>(spec: &Spec, dataset: &'a Dataset) -> Vec<&'a Member> {
    dataset.members.iter().filter(|member| member.split == spec.data.split).collect()
}

/// Notes what makes an evaluation impossible, before any text is read (X61). Pointers are into the spec.
pub fn check(spec: &Spec, candidate: &Candidate, dataset: &Dataset, intent: &Intent, faults: &mut Faults) {
    let mut data = Faults::new();
    admit::check(dataset, &mut data);
    faults.0.extend(data.within("dataset").0);
    if dataset.id() != spec.data.dataset {
        let message = format!("the spec names {}, the dataset at hand is {}", spec.data.dataset, dataset.id());
        faults.add("/data/dataset", "data.other", message);
    }
    if members(spec, dataset).is_empty() {
        let known: Vec<&str> = dataset.counts.keys().map(String::as_str).collect();
        let message = format!("the dataset has no split {}; it has {}", spec.data.split, known.join(", "));
        faults.add("/data/split", "data.split", message);
    }
    if spec.parameters == Parameters::Averaged && candidate.averaging == (Averaging::None {}) {
        let message = format!("the candidate {} keeps no average of its parameters", candidate.name);
        faults.add("/parameters", "evaluation.averaged", message);
    }
    fit::evaluator(&spec.evaluator, &candidate.objective, faults);
    let mut format = Faults::new();
    fit::format(candidate, dataset, &mut format);
    faults.0.extend(format.within("candidate").0);
    let mut host = Faults::new();
    compile::check_host(candidate, intent, &mut host);
    faults.0.extend(host.within("candidate").0);
}

/// The plan that measures `found` by `spec`, once the data was read. `candidate` is the one that was trained.
pub fn compile(
    spec: Spec,
    candidate: Candidate,
    dataset: Dataset,
    intent: Intent,
    found: Found,
) -> Result<Plan, Faults> {
    let mut faults = Faults::new();
    check_found(&spec, &candidate, &dataset, &found, &mut faults);
    faults.or(())?;
    let windows = found.parts.iter().map(|part| samples(&candidate, part.tokens)).sum();
    let batches = u64::div_ceil(windows, spec.evaluator.batch());
    let work = Work {
        tokens: found.parts.iter().map(|part| part.tokens).sum(),
        samples_per_epoch: windows,
        micro_batches_per_epoch: batches,
        steps: batches,
    };
    let inputs = inputs(&spec, &candidate, &dataset, &found);
    let (seed, fingerprint) = (spec.seed, fingerprint::evaluation(&spec, None));
    let Found { subject, parts, overlap, fitted, .. } = found;
    let mut plan = Plan {
        departure: None,
        ground: Ground::None {},
        mode: Mode::Evaluation,
        fingerprint: fingerprint::candidate(&candidate),
        seed,
        evaluation: Some(Evaluating { spec, fingerprint, subject, parts, overlap, files: Vec::new() }),
        inputs,
        fitted,
        work,
        environment: environment(&candidate.execution),
        request: Digest::of(b""),
        program: None,
        candidate: candidate.into(),
        dataset: Some(dataset),
        intent,
    };
    plan.request = fingerprint::request(&plan);
    Ok(plan)
}

/// Samples of a file of so many tokens, records, rows or images.
pub const fn samples(candidate: &Candidate, count: u64) -> u64 {
    if candidate.tokenizer.whole() { count } else { windows(count, candidate.model.context()) }
}

/// Windows of a file of so many tokens: each predicts up to `context` tokens, and the first token is never predicted.
pub const fn windows(tokens: u64, context: u64) -> u64 {
    tokens.saturating_sub(1).div_ceil(context)
}

fn check_found(spec: &Spec, candidate: &Candidate, dataset: &Dataset, found: &Found, faults: &mut Faults) {
    let subject = &found.subject;
    if subject.candidate != fingerprint::candidate(candidate) || subject.name != candidate.name {
        faults.add("/evaluation/subject", "evaluation.subject", "it names another candidate than the one at hand");
    }
    let due = candidate.base.files().filter(|_| candidate.base.stays());
    compile::check_base(due, &found.base, faults);
    check_parts(spec, dataset, &found.parts, faults);
    let text = !candidate.tokenizer.whole();
    for (index, part) in found.parts.iter().enumerate().filter(|(_, part)| text && part.tokens < 2) {
        let message = format!("{} has {} tokens, and nothing is predicted with fewer than 2", part.path, part.tokens);
        faults.add(format!("/evaluation/parts/{index}"), "evaluation.empty", message);
    }
    if !text && found.parts.iter().all(|part| part.tokens == 0) {
        faults.add("/evaluation/parts", "evaluation.empty", "the held-out split has no sample");
    }
    check_overlap(spec, &found.overlap, found.parts.len() as u64, faults);
}

/// Notes parts that are not the files of the split.
pub(crate) fn check_parts(spec: &Spec, dataset: &Dataset, parts: &[Part], faults: &mut Faults) {
    let paths = members(spec, dataset).into_iter().map(|member| &member.path);
    if !paths.eq(parts.iter().map(|part| &part.path)) {
        faults.add("/evaluation/parts", "evaluation.parts", "these are not the files of the split, in order");
    }
}

/// Notes held-out examples that were also trained on, unless the spec discloses them.
pub(crate) fn check_overlap(spec: &Spec, overlap: &Overlap, parts: u64, faults: &mut Faults) {
    let Overlap { shared, files, shared_files, examples, shared_examples } = *overlap;
    if shared != spec.leakage.shared || files != parts {
        faults.add("/evaluation/overlap", "evaluation.overlap", "it does not belong to this spec and split");
    }
    if shared == Shared::Refuse && shared_files + shared_examples > 0 {
        let message = format!(
            "{shared_files} of {} and {shared_examples} of {} are in the training data too; a spec with `disclose` measures \
             all the same, and the result says so",
            counted(files, "file"),
            counted(examples, "example")
        );
        faults.add("/leakage/shared", "evaluation.leakage", message);
    }
}

/// Every file the evaluator may read, once, sorted by digest.
fn inputs(spec: &Spec, candidate: &Candidate, dataset: &Dataset, found: &Found) -> Vec<Input> {
    let data = members(spec, dataset);
    let data = data.iter().map(|member| Input { digest: member.digest, bytes: member.bytes, role: Role::Data });
    let model = Input { digest: found.subject.weights, bytes: found.weights_bytes, role: Role::Model };
    let tokenizer = candidate.tokenizer.digest().map(|digest| Input {
        digest,
        bytes: found.tokenizer_bytes,
        role: Role::Tokenizer,
    });
    let base = found.base.iter().cloned();
    let all: BTreeMap<_, _> =
        data.chain([model]).chain(base).chain(tokenizer).map(|input| (input.digest, input)).collect();
    all.into_values().collect()
}

/// Notes what does not agree inside a plan that measures: everything derived is derived again.
pub fn check_plan(plan: &Plan, evaluating: &Evaluating, faults: &mut Faults) {
    let spec = &evaluating.spec;
    if let Some(command) = plan.command() {
        return evaluate_command::check_plan(plan, evaluating, command, faults);
    }
    let Some((candidate, dataset)) = plan.training() else {
        let message = "an evaluator of this toolkit measures models of its trainer, on a dataset";
        return faults.add("/candidate", "evaluation.subject", message);
    };
    if spec.evaluator.program().is_some() {
        return faults.add("/candidate", "evaluation.subject", "the spec names a program, and the plan holds none");
    }
    let mut found = Faults::new();
    check(spec, candidate, dataset, &plan.intent, &mut found);
    if !found.is_empty() {
        faults.0.extend(found.0);
        return;
    }
    let bytes = |role| plan.inputs.iter().find(|input| input.role == role).map_or(0, |input| input.bytes);
    let found = Found {
        subject: evaluating.subject.clone(),
        weights_bytes: bytes(Role::Model),
        tokenizer_bytes: bytes(Role::Tokenizer),
        parts: evaluating.parts.clone(),
        overlap: evaluating.overlap.clone(),
        fitted: plan.fitted.clone(),
        base: compile::base_inputs(plan),
    };
    let (candidate, dataset, intent) = (candidate.clone(), dataset.clone(), plan.intent.clone());
    match compile(spec.clone(), candidate, dataset, intent, found) {
        Ok(again) => compile::same(plan, &again, faults),
        Err(found) => faults.0.extend(found.0),
    }
}

/// What held-out and training data have in common. Files are held against each other by digest, examples by the digest
/// of their bytes.
#[derive(Clone, Debug)]
pub struct Comparison {
    minimum: usize,
    files: BTreeSet<Digest>,
    examples: BTreeSet<Digest>,
    overlap: Overlap,
}

impl Comparison {
    /// Nothing read so far.
    pub fn new(spec: &Spec) -> Self {
        let overlap =
            Overlap { shared: spec.leakage.shared, files: 0, shared_files: 0, examples: 0, shared_examples: 0 };
        let minimum = usize::try_from(spec.leakage.minimum_bytes).unwrap_or(usize::MAX);
        Self { minimum, files: BTreeSet::new(), examples: BTreeSet::new(), overlap }
    }

    /// Takes in a file that the model was trained on, and its examples.
    pub fn trained_on<'a>(&mut self, bytes: &[u8], examples: impl IntoIterator<Item = &'a [u8]>) {
        self.files.insert(Digest::of(bytes));
        let minimum = self.minimum;
        self.examples.extend(examples.into_iter().filter(|example| example.len() >= minimum).map(Digest::of));
    }

    /// Counts a held-out file and its examples, after all training files.
    pub fn held_out<'a>(&mut self, bytes: &[u8], examples: impl IntoIterator<Item = &'a [u8]>) {
        self.overlap.files += 1;
        self.overlap.shared_files += u64::from(self.files.contains(&Digest::of(bytes)));
        let minimum = self.minimum;
        for example in examples.into_iter().filter(|example| example.len() >= minimum) {
            self.overlap.examples += 1;
            self.overlap.shared_examples += u64::from(self.examples.contains(&Digest::of(example)));
        }
    }

    /// What was found.
    pub fn overlap(self) -> Overlap {
        self.overlap
    }
}

/// The lines of a file, split at line feeds alone, without a carriage return before one; empty ones are left out.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty())
}

/// The slice that a file belongs to, if there are slices.
pub fn slice_of(spec: &Spec, member: &Member) -> Option<String> {
    match spec.slices {
        Slices::None => None,
        Slices::Member => Some(member.path.to_string()),
        Slices::Group => Some(member.group.clone()),
    }
}

/// Notes what is wrong with metrics that the run of `plan` wrote: a missing or doubled one, another evaluator's, slices
/// that the plan does not have.
pub fn check_metrics(plan: &Plan, metrics: &Metrics) -> Result<(), Faults> {
    let mut faults = Faults::new();
    let Some(evaluating) = &plan.evaluation else {
        return Err(Faults::one("", "evaluation.plan", "the plan measures nothing"));
    };
    let due = evaluating.spec.evaluator.version();
    if metrics.evaluator != due {
        let (due, found) = (due.write().canonical(), metrics.evaluator.write().canonical());
        faults.add("/evaluator", "evaluation.evaluator", format!("expected {due}, found {found}"));
    }
    if metrics.metrics.is_empty() {
        faults.add("/metrics", "evaluation.empty", "there is no metric");
    }
    let mut slices: BTreeSet<Option<String>> = BTreeSet::from([None]);
    let all = plan.dataset.iter().flat_map(|dataset| members(&evaluating.spec, dataset));
    slices.extend(all.map(|member| slice_of(&evaluating.spec, member)));
    let mut seen = BTreeSet::new();
    for (index, measure) in metrics.metrics.iter().enumerate() {
        let at = format!("/metrics/{index}");
        if !slices.contains(&measure.slice) {
            let message = format!("the plan has no slice {:?}", measure.slice.as_deref().unwrap_or_default());
            faults.add(format!("{at}/slice"), "evaluation.slice", message);
        }
        if !seen.insert((&measure.name, &measure.slice)) {
            faults.add(at, "evaluation.twice", format!("{:?} stands here a second time", measure.name));
        }
    }
    if evaluating.spec.evaluator.program().is_some() {
        evaluate_command::check_metrics(plan, evaluating, metrics, &mut faults);
    }
    faults.or(())
}

/// The result of a run that measured; `None` when the run did not succeed, or measures nothing (X55).
pub fn evaluation(plan: &Plan, run: &Run, metrics: Metrics) -> Option<Evaluation> {
    let evaluating = plan.evaluation.as_ref().filter(|_| run.status == Status::Succeeded)?;
    let spec = &evaluating.spec;
    Some(Evaluation {
        attempt: run.attempt.clone(),
        run: run.id(),
        plan: run.plan,
        subject: evaluating.subject.clone(),
        regime: run.regime,
        fingerprint: evaluating.fingerprint,
        seed: plan.seed,
        dataset: spec.data.dataset,
        split: spec.data.split.clone(),
        overlap: evaluating.overlap.clone(),
        confidence: spec.evaluator.confidence(),
        measured: output(run, METRICS)?.digest,
        samples: output(run, SAMPLES).map(|file| file.digest),
        evaluator: metrics.evaluator,
        metrics: metrics.metrics,
    })
}

/// The output of `run` with this path.
pub fn output<'a>(run: &'a Run, path: &str) -> Option<&'a Artifact> {
    run.artifacts.iter().find(|file| file.path.as_str() == path)
}
