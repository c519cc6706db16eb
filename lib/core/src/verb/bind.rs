//! Whether a run may be frozen, and what its bundle binds. Freezing derives the bundle from the evidence; verifying
//! derives it again and compares, so there is one rule for both.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::count::counted;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest};
use crate::left_out::LeftOut;
use crate::manifest::Artifact;
use crate::manifest::bundle::{Bundle, Compatibility, Declared, Member, MemberRole, Size};
use crate::manifest::candidate::{Averaging, Candidate, Model, NonFinite, Precision};
use crate::manifest::command::Pin;
use crate::manifest::custody::Custody;
use crate::manifest::intent::{Floor, Profile};
use crate::manifest::plan::{Ground, Plan, Role};
use crate::manifest::run::{Library, Log, Run, Stack, Status, StopReason, Stopped};
use crate::manifest::snapshot::Snapshot;
use crate::manifest::terms::Terms;
use crate::manifest::trace::Step;
use crate::relpath::RelativePath;
use crate::verb::ancestry::{self, Ancestor, input_names};
use crate::verb::chain::{LINES, Tally};
use crate::verb::command::PLACES;
use crate::verb::custody::{controls, missing, overall};
use crate::verb::envelope::secret_variable;
use crate::verb::{compare, compile};

/// The trained parameters among the outputs of a run.
pub const WEIGHTS: &str = "model/model.safetensors";
/// How the model is built, among the outputs of a run.
pub const CONFIGURATION: &str = "model/config.json";
/// The averaged parameters, where the candidate keeps an average.
pub const AVERAGED: &str = "model/averaged/model.safetensors";
/// How the model of the averaged parameters is built.
pub const AVERAGED_CONFIGURATION: &str = "model/averaged/config.json";
/// The trained adapters, where the candidate trains such.
pub const ADAPTER: &str = "model/adapter_model.safetensors";
/// How the adapters are built.
pub const ADAPTER_CONFIGURATION: &str = "model/adapter_config.json";
/// How text becomes tokens, among the outputs of a run.
pub const TOKENIZER: &str = "model/tokenizer.json";

/// Variables that the sandbox adds, because they name places inside it.
const FROM_THE_SANDBOX: [&str; 3] = ["XT_INPUTS", "XT_OUTPUTS", "LD_LIBRARY_PATH"];

/// Where the trainer finds its inputs in the full profile.
const INPUTS: &str = "/xt/in";

/// What is known of a run.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Its record.
    pub run: &'a Run,
    /// Its plan.
    pub plan: &'a Plan,
    /// Its custody record, if it has one.
    pub custody: Option<&'a Custody>,
    /// Its trace, followed to the end, if it has one.
    pub trace: Option<&'a Tally>,
    /// The digest of its trained parameters, taken from their file, if there is one; or why the file is in another form.
    pub weights: Option<&'a Result<Digest, String>>,
    /// The same of its averaged parameters.
    pub averaged: Option<&'a Result<Digest, String>>,
    /// The runs that it went on from, the nearest first.
    pub ancestors: &'a [Ancestor],
}

/// The bundle of a run, or every reason why there is none.
pub fn bind(evidence: &Evidence<'_>, declared: &Declared) -> Result<Bundle, Faults> {
    let mut faults = Faults::new();
    check(evidence, &mut faults);
    let bundle = derive(evidence, declared, &mut faults);
    match bundle {
        Some(bundle) if faults.is_empty() => Ok(bundle),
        _ => Err(faults),
    }
}

/// What the bundle of a run must say, whether or not the run may be frozen; `None` when there is too little evidence.
pub fn derive(evidence: &Evidence<'_>, declared: &Declared, faults: &mut Faults) -> Option<Bundle> {
    let Declared { size, terms, worker_bytes } = declared;
    let data_terms = plan_terms(evidence.plan);
    check_terms(*size, terms, &data_terms, faults);
    let (custody, trace) = (evidence.custody?, evidence.trace?);
    let (run, plan) = (evidence.run, evidence.plan);
    let stack = run.stack.as_ref()?;
    Some(Bundle {
        size: *size,
        fingerprint: plan.fingerprint,
        plan: plan.id(),
        run: run.id(),
        dataset: plan.dataset_id(),
        custody: custody.id(),
        trace: trace.head.id(),
        base: plan.native().and_then(|candidate| candidate.base.digest()),
        members: {
            let mut files = members(evidence, custody, trace, *size, faults);
            if *size == Size::Full {
                files.extend(worker_files(run, plan, custody, worker_bytes, faults));
                files.sort_by(|a, b| a.file.path.cmp(&b.file.path));
            }
            files
        },
        compatibility: compatibility(plan, stack),
        terms: terms.clone(),
        data_terms,
    })
}

/// What was declared of the data of a plan.
fn plan_terms(plan: &Plan) -> LeftOut<Terms> {
    plan.dataset.as_ref().map_or(LeftOut(None), |dataset| dataset.terms.clone())
}

/// Terms are what terms can be, and data that is not for everybody goes into no bundle that does not say so.
fn check_terms(size: Size, terms: &LeftOut<Terms>, data: &LeftOut<Terms>, faults: &mut Faults) {
    for (terms, at) in [(terms, "bundle#/terms"), (data, "bundle#/data_terms")] {
        terms.0.iter().for_each(|terms| terms.check(at, faults));
    }
    let (Some(data), false) = (&data.0, size == Size::Thin) else { return };
    let none = Terms { licence: None, classes: Vec::new() };
    for class in terms.0.as_ref().unwrap_or(&none).lacks(data) {
        let message = format!(
            "the data is declared {class}, and a {size} bundle holds it: declare the bundle {class}, too (--class), or \
             leave the data out (--size thin)"
        );
        faults.add("bundle#/terms/classes", "bundle.class", message);
    }
}

/// Notes every reason why the run may not be frozen.
pub fn check(evidence: &Evidence<'_>, faults: &mut Faults) {
    let Evidence { run, plan, custody, trace, weights, averaged, ancestors } = *evidence;
    check_end(run, plan, trace, faults);
    check_plan(run, plan, faults);
    check_stack(run, plan, faults);
    check_outputs(run, plan, faults);
    match custody {
        Some(custody) => {
            let from = ancestors.first().map(|nearest| &nearest.snapshot);
            check_custody(run, plan, custody, from, faults);
        }
        None => faults.add("run#/custody", "bundle.custody", "there is no custody record: the trainer never started"),
    }
    match trace {
        Some(trace) => check_trace(run, plan, trace, faults),
        None => faults.add("run#/trace", "bundle.trace", "there is no trace: no step was taken"),
    }
    if let Some(last) = trace.and_then(|trace| trace.last.as_ref()) {
        if let Some(weights) = weights {
            let path = plan.native().map_or(WEIGHTS, |candidate| trained(candidate)[0]);
            check_weights(path, weights, (last.step, last.parameters), faults);
        }
        check_average(plan, averaged, last, faults);
    }
    ancestry::check(evidence, faults);
}

/// Notes what a run says of itself that its own evidence contradicts, whether or not it may be frozen: before it is
/// replayed, since equal steps would otherwise lend a false record their weight.
pub fn check_told(evidence: &Evidence<'_>, faults: &mut Faults) {
    let Evidence { run, plan, trace, .. } = *evidence;
    if run.status == Status::Succeeded && !plan.is_branch() && plan.ground != (Ground::Evidence {}) {
        return check(evidence, faults);
    }
    check_plan(run, plan, faults);
    check_stack(run, plan, faults);
    if !run.artifacts.is_empty() && run.status != Status::Succeeded {
        let message = format!("a run that is {} has no outputs, only files in quarantine", run.status);
        faults.add("run#/artifacts", "bundle.artifact", message);
    }
    if let Some(trace) = trace {
        check_trace(run, plan, trace, faults);
    }
}

/// Notes where `bundle` says something else than its evidence gives.
pub fn check_bundle(evidence: &Evidence<'_>, bundle: &Bundle, faults: &mut Faults) {
    let Some(derived) = derive(evidence, &bundle.declared(), faults) else {
        return faults.add("bundle#", "bundle.evidence", "its run has too little evidence for a bundle");
    };
    for difference in compare::documents(&bundle.write(), &derived.write()) {
        let message = format!("the bundle says {}, its evidence gives {}", difference.first, difference.second);
        faults.add(format!("bundle#{}", difference.pointer), "bundle.derived", message);
    }
}

/// Only a run that ended well and whole.
fn check_end(run: &Run, plan: &Plan, trace: Option<&Tally>, faults: &mut Faults) {
    if run.status != Status::Succeeded {
        let message = format!("only a succeeded run is frozen, this one is {}: {}", run.status, run.cause);
        faults.add("run#/status", "bundle.status", message);
    }
    if (run.exit.code, run.exit.signal) != (Some(0), None) {
        let message = format!("the trainer must have exited with 0, found {}", run.exit.write().canonical());
        faults.add("run#/exit", "bundle.exit", message);
    }
    if !run.progress.completed {
        faults.add("run#/progress/completed", "bundle.progress", "the trainer did not report completion");
    }
    if !run.quarantined.is_empty() {
        let files = counted(run.quarantined.len(), "file");
        let message = format!("{files} in quarantine, and nothing there is ever bound");
        faults.add("run#/quarantined", "bundle.quarantined", message);
    }
    if plan.evaluation.is_some() {
        faults.add("plan#/evaluation", "bundle.plan", "the run measured a model and trained none");
    }
    if plan.ground == (Ground::Evidence {}) {
        let message = "the run is evidence for a calibration of its regime, and such a run is never frozen";
        faults.add("plan#/ground", "bundle.evidence-only", message);
    }
    if plan.is_branch() {
        let message = "a branch ends at its horizon: `xt-compile adopt` makes a plan that goes on from it to the end";
        return faults.add("plan#/departure", "bundle.branch", message);
    }
    let free = plan.command().is_some_and(|command| command.steps.is_none());
    let stopped = trace.and_then(|trace| trace.stopped.as_ref());
    if let Some(stopped) = stopped.filter(|stopped| stopped.reason == StopReason::Limit) {
        let message = format!("step {} is above the limit of the training loss, which holds a run", stopped.step);
        faults.add("run#/progress/stopped", "bundle.stopped", message);
    }
    let due = stopped.map_or(plan.work.steps, |stopped| stopped.step);
    if !free && run.progress.steps != due {
        let by = if stopped.is_some() { "its trace stops it at" } else { "its plan" };
        let message = format!("the run says {}, {by} {due}", run.progress.steps);
        faults.add("run#/progress/steps", "bundle.plan", message);
    }
}

/// The record must say the same as the plan, wherever it repeats it.
pub(crate) fn check_plan(run: &Run, plan: &Plan, faults: &mut Faults) {
    if let Err(found) = compile::check_plan(plan) {
        faults.0.extend(found.within("plan").0);
    }
    let candidate = &plan.candidate;
    let mut same = |at: &str, recorded: Value, planned: Value| {
        for difference in compare::documents(&recorded, &planned) {
            let pointer = format!("run#{at}{}", difference.pointer);
            let message = format!("the run says {}, its plan {}", difference.first, difference.second);
            faults.add(pointer, "bundle.plan", message);
        }
    };
    same("/plan", run.plan.write(), plan.id().write());
    same("/request", run.request.write(), plan.request.write());
    same("/fingerprint", run.fingerprint.write(), plan.fingerprint.write());
    same("/regime", run.regime.write(), candidate.regime().write());
    same("/precision", run.precision.write(), candidate.precision().write());
    same("/seed", run.seed.write(), plan.seed.write());
    same("/dataset", run.dataset.write(), plan.dataset_id().write());
    same("/inputs", run.inputs.write(), plan.inputs.write());
    same("/intent", run.intent.write(), plan.intent.write());
    same("/isolation", run.isolation.write(), plan.intent.isolation.profile.write());
    same("/progress/planned", run.progress.planned.write(), plan.due().write());
    let program = plan.program.as_ref().zip(run.stack.as_ref());
    if let Some((program, stack)) = program {
        same("/stack/worker", stack.worker.write(), program.executable.digest.write());
        let libraries = program.libraries.iter().map(Pin::library).collect::<Vec<_>>();
        same("/stack/libraries", stack.libraries.write(), sorted(libraries).write());
    }
    for (name, value) in &plan.environment {
        same(&format!("/environment/{name}"), run.environment.get(name).cloned().write(), value.write());
    }
    for name in run.environment.keys().filter(|name| !plan.environment.contains_key(*name)) {
        let secret = plan.intent.secrets.iter().any(|secret| secret_variable(secret.as_str()) == *name);
        let place = plan.command().is_some() && (secret || PLACES.contains(&name.as_str()));
        if !place && !FROM_THE_SANDBOX.contains(&name.as_str()) {
            faults.add(format!("run#/environment/{name}"), "bundle.plan", "its plan has no such variable");
        }
    }
}

/// The libraries as a stack lists them: by name and digest, each once.
fn sorted(mut libraries: Vec<Library>) -> Vec<Library> {
    libraries.sort_by(|a, b| (&a.name, a.digest).cmp(&(&b.name, b.digest)));
    libraries.dedup();
    libraries
}

/// What it ran on must be known, down to what the trainer said about itself.
pub(crate) fn check_stack(run: &Run, plan: &Plan, faults: &mut Faults) {
    let Some(candidate) = plan.native() else {
        if run.stack.is_none() {
            faults.add("run#/stack", "bundle.stack", "what it ran on is not known: the program never started");
        }
        return;
    };
    let Some(reported) = run.stack.as_ref().and_then(|stack| stack.reported.as_ref()) else {
        let message = "what it ran on is not known: the trainer was never ready";
        faults.add("run#/stack", "bundle.stack", message);
        return;
    };
    let pairs = [
        ("threads", reported.threads, candidate.execution.threads),
        ("samples_per_epoch", reported.samples_per_epoch, plan.work.samples_per_epoch),
    ];
    for (field, found, planned) in pairs.into_iter().filter(|(_, found, planned)| found != planned) {
        let message = format!("the trainer reported {found}, the plan says {planned}");
        faults.add(format!("run#/stack/reported/{field}"), "bundle.stack", message);
    }
}

/// The model must be there, with all that is needed to use it.
fn check_outputs(run: &Run, plan: &Plan, faults: &mut Faults) {
    let sorted = run.artifacts.windows(2).all(|pair| pair[0].path < pair[1].path);
    if !sorted {
        faults.add("run#/artifacts", "bundle.artifact", "the outputs are not sorted by path, each once");
    }
    let Some(candidate) = plan.native() else {
        if run.artifacts.is_empty() {
            faults.add("run#/artifacts", "bundle.artifact", "there is no output, so there is nothing to freeze");
        }
        return;
    };
    let output = |name: &str| run.artifacts.iter().find(|file| file.path.as_str() == name);
    let averaged: &[&str] =
        if candidate.averaging == (Averaging::None {}) { &[] } else { &[AVERAGED, AVERAGED_CONFIGURATION] };
    for name in trained(candidate).iter().chain(averaged).copied() {
        if output(name).is_none_or(|file| file.bytes == 0) {
            faults.add("run#/artifacts", "bundle.artifact", format!("there is no {name} among the outputs"));
        }
    }
    if let Some(expected) = candidate.tokenizer.digest()
        && output(TOKENIZER).map(|file| file.digest) != Some(expected)
    {
        let found = output(TOKENIZER).map_or_else(|| "none".into(), |file| file.digest.to_string());
        let message = format!("{TOKENIZER} among the outputs must be the plan's {expected}, found {found}");
        faults.add("run#/artifacts", "bundle.tokenizer", message);
    }
    for file in run.artifacts.iter().filter(|file| !file.path.as_str().starts_with("model/")) {
        let message = format!("{} lies outside of model/, where all outputs that are kept lie", file.path);
        faults.add("run#/artifacts", "bundle.artifact", message);
    }
}

/// The files of what a candidate trains: parameters, and how they are to be read.
pub fn trained(candidate: &Candidate) -> [&'static str; 2] {
    match candidate.base.adapter() {
        Some(_) => [ADAPTER, ADAPTER_CONFIGURATION],
        None => [WEIGHTS, CONFIGURATION],
    }
}

/// Every control that the plan requires must have been enforced and proven.
pub(crate) fn check_custody(run: &Run, plan: &Plan, custody: &Custody, from: Option<&Snapshot>, faults: &mut Faults) {
    let mut add = |at: &str, message: String| faults.add(format!("custody#{at}"), "bundle.custody", message);
    let id = custody.id();
    if run.custody != Some(id) {
        let named = run.custody.map_or_else(|| "none".into(), |digest| digest.to_string());
        add("", format!("the run names {named}, this custody record is {id}"));
    }
    let isolation = &plan.intent.isolation;
    if custody.profile != isolation.profile {
        add("/profile", format!("the plan asks for {}, found {}", isolation.profile, custody.profile));
    }
    if custody.network != plan.intent.network {
        add("/network", format!("the plan admits {}, found {}", plan.intent.network, custody.network));
    }
    let found: Vec<&str> = custody.controls.iter().map(|control| control.id.as_str()).collect();
    let due = controls(plan.intent.network);
    if found != due {
        add("/controls", format!("the controls are {}, in this order", due.join(", ")));
    }
    for (index, control) in custody.controls.iter().enumerate() {
        let asked = isolation.floor.get(&control.id).copied().unwrap_or(Floor::Required);
        if control.floor != asked {
            add(&format!("/controls/{index}/floor"), format!("{}: the plan says {asked}", control.id));
        }
    }
    for (index, sentence) in missing(custody) {
        add(&format!("/controls/{index}/state"), format!("a required control was not enforced: {sentence}"));
    }
    let whole = overall(&custody.controls);
    if custody.overall != whole {
        add("/overall", format!("the required controls are {whole} as a whole, found {}", custody.overall));
    }
    check_mounts(run, input_names(plan, from), custody, &mut add);
    for root in plan.program.iter().flat_map(|program| &program.roots) {
        let there = custody.mounts.iter().any(|mount| mount.at == root.path && mount.digest == Some(root.digest));
        if !there {
            add("/mounts", format!("the root {} {} was not there", root.path, root.digest));
        }
    }
    let names: Vec<&String> = run.environment.keys().collect();
    if custody.environment.iter().collect::<Vec<_>>() != names {
        let message = format!("the variables {} are not those of the run", custody.environment.join(", "));
        add("/environment", message);
    }
}

/// What the trainer could see must be what the record says that it ran on and learned from.
fn check_mounts(run: &Run, inputs: Digest, custody: &Custody, add: &mut dyn FnMut(&str, String)) {
    let mounted = |digest: Digest| custody.mounts.iter().any(|mount| mount.digest == Some(digest));
    if let Some(stack) = &run.stack {
        if !mounted(stack.worker) {
            add("/mounts", format!("the worker {} was not there", stack.worker));
        }
        for library in stack.libraries.iter().filter(|library| !mounted(library.digest)) {
            add("/mounts", format!("the library {} {} was not there", library.name, library.digest));
        }
    }
    let there = custody.mounts.iter().any(|mount| mount.at == INPUTS && mount.digest == Some(inputs));
    if custody.profile == Profile::Full && !there {
        add("/mounts", format!("{INPUTS} did not hold exactly the inputs of the run, whose names give {inputs}"));
    }
}

/// The trace must be whole: as many lines as steps, and the same figures as the record.
fn check_trace(run: &Run, plan: &Plan, trace: &Tally, faults: &mut Faults) {
    let head = &trace.head;
    let mut add = |at: &str, message: String| faults.add(format!("run#{at}"), "bundle.trace", message);
    match &run.trace {
        None => add("/trace", "the run names no trace".into()),
        Some(named) => {
            let pairs = [
                ("digest", named.digest.to_string(), head.lines.to_string()),
                ("steps", named.steps.to_string(), head.steps.to_string()),
                ("chain", named.chain.to_string(), head.chain.to_string()),
            ];
            for (field, recorded, found) in pairs.into_iter().filter(|(_, recorded, found)| recorded != found) {
                add(&format!("/trace/{field}"), format!("the run says {recorded}, {LINES} gives {found}"));
            }
        }
    }
    let progress = &run.progress;
    let figures = [
        ("steps", progress.steps, head.steps),
        ("skipped", progress.skipped, trace.skipped),
        ("updates", progress.updates, head.steps.saturating_sub(trace.skipped)),
    ];
    for (field, recorded, found) in figures.into_iter().filter(|(_, recorded, found)| recorded != found) {
        add(&format!("/progress/{field}"), format!("the run says {recorded}, {LINES} gives {found}"));
    }
    if progress.stopped != trace.stopped {
        let told = |stopped: &Option<Stopped>| stopped.write().canonical();
        let (recorded, found) = (told(&progress.stopped), told(&trace.stopped));
        add("/progress/stopped", format!("the run says {recorded}, {LINES} gives {found}"));
    }
    // A held run says itself that it stopped at such a step.
    if run.status != Status::Held
        && let (Some(step), Some(NonFinite::Hold)) =
            (trace.non_finite, plan.native().map(|candidate| candidate.stops.non_finite))
    {
        let message = format!("step {step} holds a value that is not finite, and the candidate stops at such a step");
        faults.add(format!("{LINES}#/{step}"), "bundle.non-finite", message);
    }
}

/// The parameters in the file must be those that the trace ended with.
fn check_weights(path: &str, weights: &Result<Digest, String>, (step, traced): (u64, Digest), faults: &mut Faults) {
    match weights {
        Ok(digest) if *digest == traced => {}
        Ok(digest) => {
            let message = format!("its tensors give {digest}, step {step} of the trace ended with {traced}");
            faults.add(path, "bundle.weights", message);
        }
        Err(why) => faults.add(path, "bundle.weights", format!("the parameters cannot be read: {why}")),
    }
}

/// An average is traced and saved exactly where the candidate keeps one.
fn check_average(plan: &Plan, averaged: Option<&Result<Digest, String>>, last: &Step, faults: &mut Faults) {
    let kept = plan.native().is_some_and(|candidate| candidate.averaging != Averaging::None {});
    match (averaged, last.averaged) {
        _ if kept != last.averaged.is_some() => {
            let message = format!("step {} and the candidate disagree on whether an average is kept", last.step);
            faults.add(format!("{LINES}#/{}", last.step), "bundle.averaged", message);
        }
        (Some(averaged), Some(traced)) => check_weights(AVERAGED, averaged, (last.step, traced), faults),
        (Some(_), None) => faults.add(AVERAGED, "bundle.averaged", "the candidate keeps no average"),
        (None, _) => {}
    }
}

/// Every file of the bundle but `bundle.json` and `SHA256SUMS`, sorted by path.
fn members(evidence: &Evidence<'_>, custody: &Custody, trace: &Tally, size: Size, faults: &mut Faults) -> Vec<Member> {
    let Evidence { run, plan, ancestors, .. } = *evidence;
    let lines = File { name: LINES.into(), digest: trace.head.lines, bytes: trace.bytes, role: MemberRole::Trace };
    let mut files = Vec::from([
        document("run", run),
        document("plan", plan),
        document("candidate", &plan.candidate),
        document("custody", custody),
        document("trace", &trace.head),
        log("stdout", &run.logs.stdout),
        log("stderr", &run.logs.stderr),
        lines,
    ]);
    for (number, ancestor) in (1..).zip(ancestors) {
        let name = |what: &str| format!("before/{number}/{what}");
        files.push(document(&name("run"), &ancestor.run));
        files.extend(ancestor.plan.as_ref().map(|plan| document(&name("plan"), plan)));
        files.extend(ancestor.custody.as_ref().map(|custody| document(&name("custody"), custody)));
        files.push(document(&name("snapshot"), &ancestor.snapshot));
    }
    files.extend(plan.dataset.iter().map(|dataset| document("dataset", dataset)));
    let folder = if plan.command().is_some() { OUTPUTS } else { "" };
    files.extend(run.artifacts.iter().map(|file| output(file, folder)));
    let scripts = plan.inputs.iter().filter(|input| input.role == Role::File);
    files.extend(scripts.map(|input| File {
        name: format!("files/{}", input.digest.hex()),
        digest: input.digest,
        bytes: input.bytes,
        role: MemberRole::File,
    }));
    // The state that the plan goes on from is to this run what a base is to others.
    let state = ancestors.iter().find(|one| plan.start().is_some_and(|start| start.run == one.run.id()));
    let state = state.iter().flat_map(|one| [&one.snapshot.parameters, &one.snapshot.optimizer]);
    let state: BTreeMap<Digest, u64> = state.map(|part| (part.file, part.bytes)).collect();
    files.extend(state.into_iter().filter(|_| size != Size::Thin).map(|(digest, bytes)| File {
        name: format!("base/{}", digest.hex()),
        digest,
        bytes,
        role: MemberRole::Base,
    }));
    // A tokenizer that went in is among the outputs already.
    for (from, folder, role) in [(Role::Data, "data", MemberRole::Data), (Role::Base, "base", MemberRole::Base)] {
        let inputs = plan.inputs.iter().filter(|input| size != Size::Thin && input.role == from);
        files.extend(inputs.map(|input| File {
            name: format!("{folder}/{}", input.digest.hex()),
            digest: input.digest,
            bytes: input.bytes,
            role,
        }));
    }
    let mut members: Vec<Member> = files.into_iter().filter_map(|file| file.member(faults)).collect();
    members.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    members
}

/// Where the files of the worker lie in a bundle: behind this they have the paths that they had for the worker.
pub const WORKER: &str = "worker";

/// The worker and everything that it loads, by where the custody record says that it lay.
fn worker_files(
    run: &Run,
    plan: &Plan,
    custody: &Custody,
    bytes: &BTreeMap<Digest, u64>,
    faults: &mut Faults,
) -> Vec<Member> {
    if plan.command().is_some() {
        let message = "the program of a command belongs to its host, so no bundle holds it: freeze it sealed";
        faults.add("bundle#/size", "bundle.worker", message);
        return Vec::new();
    }
    if custody.profile != Profile::Full {
        let message = format!(
            "under the profile {} the worker ran among the files of its host, so that they have no places of their own: \
             only a run under full isolation is frozen full",
            custody.profile
        );
        faults.add("bundle#/size", "bundle.worker", message);
        return Vec::new();
    }
    let stack = run.stack.iter();
    let wanted = stack.flat_map(|stack| stack.libraries.iter().map(|library| library.digest).chain([stack.worker]));
    let mut files = BTreeMap::new();
    for digest in wanted {
        let places = custody.mounts.iter().filter(|mount| mount.digest == Some(digest));
        match bytes.get(&digest) {
            Some(bytes) => files.extend(places.map(|mount| (mount.at.clone(), (digest, *bytes)))),
            None => faults.add("bundle#/members", "bundle.worker", format!("{digest} of the worker is not there")),
        }
    }
    let member = |(at, (digest, bytes)): (String, (Digest, u64))| {
        File { name: format!("{WORKER}{at}"), digest, bytes, role: MemberRole::Worker }.member(faults)
    };
    files.into_iter().filter_map(member).collect()
}

/// A file before its path was checked.
struct File {
    name: String,
    digest: Digest,
    bytes: u64,
    role: MemberRole,
}

impl File {
    fn member(self, faults: &mut Faults) -> Option<Member> {
        match RelativePath::new(&self.name) {
            Ok(path) => {
                let file = Artifact { path, digest: self.digest, bytes: self.bytes };
                Some(Member { file, role: self.role })
            }
            Err(error) => {
                faults.add("run#/artifacts", "bundle.path", format!("{}: {error}", self.name));
                None
            }
        }
    }
}

/// A document as the bundle holds it: its canonical text without `id`, so that the file's digest is the id.
fn document(name: &str, document: &impl Manifest) -> File {
    let text = document.write().canonical();
    File {
        name: format!("manifests/{name}.json"),
        digest: Digest::of(text.as_bytes()),
        bytes: text.len() as u64,
        role: MemberRole::Manifest,
    }
}

fn log(name: &str, log: &Log) -> File {
    File { name: format!("log/{name}"), digest: log.digest, bytes: log.bytes, role: MemberRole::Log }
}

/// What a command wrote may have any name, so that it lies in a folder of its own.
const OUTPUTS: &str = "outputs/";

fn output(file: &Artifact, folder: &str) -> File {
    let role = match file.path.as_str() {
        _ if folder == OUTPUTS => MemberRole::Output,
        TOKENIZER => MemberRole::Tokenizer,
        CONFIGURATION | ADAPTER_CONFIGURATION | AVERAGED_CONFIGURATION => MemberRole::Configuration,
        _ => MemberRole::Model,
    };
    File { name: format!("{folder}{}", file.path), digest: file.digest, bytes: file.bytes, role }
}

/// The form of the files of a saved model.
pub const fn form(model: &Model) -> &'static str {
    match model {
        Model::Gpt { .. } => "huggingface/gpt2",
        Model::Llama { .. } => "huggingface/llama",
        Model::Encoder { .. } => "huggingface/bert",
        Model::Mlp { .. } => "xt/mlp",
        Model::Cnn { .. } => "xt/cnn",
        Model::TorchScript { .. } => "xt/torchscript",
    }
}

/// What the model claims to run with.
fn compatibility(plan: &Plan, stack: &Stack) -> Compatibility {
    let form = plan.native().map_or("command", |candidate| match candidate.base.adapter() {
        Some(_) => "huggingface/peft",
        None => form(&candidate.model),
    });
    let precision = plan.candidate.precision().map_or("undeclared", Precision::word);
    Compatibility { form: form.into(), precision: precision.into(), stack: stack.clone() }
}
