//! Plans that go on from a state of another run: branches, rollbacks, adoptions.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest};
use crate::fingerprint;
use crate::manifest::branch::{Change, Departure, Future, FutureStep, Known, Noise, Purpose};
use crate::manifest::candidate::{Averaging, Candidate, Data, Model, Optimizer, Precision, Regime};
use crate::manifest::dataset::Dataset;
use crate::manifest::encoding::Fitted;
use crate::manifest::plan::{Ground, Mode, Plan};
use crate::manifest::run::Run;
use crate::manifest::snapshot::Snapshot;
use crate::number::Finite;
use crate::order::{Walk, samples_digest};
use crate::verb::chain::shape;
use crate::verb::snapshot::check_plan;
use crate::verb::{compile, regime};

/// The most steps that a set of branches looks ahead: their micro-batches are written down one by one.
pub const MOST_STEPS: u64 = 100_000;
/// The most samples in them.
const MOST_SAMPLES: u64 = 1 << 24;

/// What is left from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its plan.
    pub plan: &'a Plan,
    /// The state.
    pub snapshot: &'a Snapshot,
}

/// Where a candidate names its dataset.
pub const DATASET: &str = "data.dataset";
const ONE_DATASET: &str = "only a branch may see other data: a model names one dataset, and learned from that alone";

/// Other data in the place of those that a run learned from: the same number of samples, each in the place of the one with its
/// number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitute {
    /// What is admitted.
    pub dataset: Dataset,
    /// What was counted in its split, as for a plan.
    pub count: u64,
    /// What scales numbers, fitted on it.
    pub fitted: Vec<Fitted>,
}

/// What is asked of a departure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What for.
    pub purpose: Purpose,
    /// What is set otherwise in all branches of the set, the no-op included.
    pub under: Vec<Change>,
    /// What is set otherwise beside that.
    pub set: Vec<Change>,
    /// What a regime that is not exact stands on.
    pub ground: Ground,
    /// What is added to the weights.
    pub noise: Option<Noise>,
    /// The number of the replicate.
    pub replicate: u64,
    /// Steps after the departure at which effects are told; empty to go on to the end.
    pub horizons: Vec<u64>,
    /// The data that are set otherwise, if they are.
    pub data: Option<Substitute>,
    /// What is known of its effect.
    pub known: Option<Known>,
}

impl Asked {
    /// To go on to the end, with nothing set otherwise.
    pub const fn on(purpose: Purpose) -> Self {
        Self {
            purpose,
            under: Vec::new(),
            set: Vec::new(),
            ground: Ground::None {},
            noise: None,
            replicate: 1,
            horizons: Vec::new(),
            data: None,
            known: None,
        }
    }
}

/// Whether a departure of this kind ends at a horizon, and so never becomes a model.
pub const fn ends_early(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Branch | Purpose::Quality | Purpose::Maintenance | Purpose::Acquisition)
}

/// What the runs of a departure are for.
pub const fn mode(purpose: Purpose) -> Mode {
    match purpose {
        Purpose::Branch | Purpose::Quality | Purpose::Maintenance => Mode::Branch,
        Purpose::Acquisition => Mode::Acquisition,
        Purpose::Rollback | Purpose::Adoption => Mode::Mainline,
    }
}

/// The plan that goes on from `origin` as it is asked, and the micro-batches that it will see when it ends at a horizon.
pub fn depart(origin: &Origin<'_>, asked: &Asked) -> Result<(Plan, Option<Future>), Faults> {
    let Origin { run, plan, snapshot } = *origin;
    let Some((candidate, _)) = plan.training() else {
        return Err(Faults::one("/plan", "depart.command", "only runs of the trainer of this toolkit have states"));
    };
    if !ends_early(asked.purpose) && asked.set.iter().chain(&asked.under).any(other_data) {
        return Err(Faults::one("/departure/set", "depart.data", ONE_DATASET));
    }
    let changed = changed(&changed(candidate, &asked.under)?, &asked.set)?;
    // What all branches are set to may take more cores than the run they leave from.
    let mut wider = asked.data.as_ref().map_or_else(|| plan.clone(), |data| on_other_data(plan, data));
    wider.intent.resources.cores = wider.intent.resources.cores.max(changed.execution.threads);
    let mut next = compile::native_again(&wider, &changed)?;
    next.ground = asked.ground.clone();
    let until = asked.horizons.last().map(|last| snapshot.step.saturating_add(*last));
    let future = until.zip(plan.dataset_id()).and_then(|(until, dataset)| future(&next, dataset, snapshot.step, until));
    if until.is_some() && future.is_none() {
        let message =
            format!("the steps up to the last horizon see more than {MOST_SAMPLES} samples, too many to list");
        return Err(Faults::one("/departure/horizons", "depart.horizon", message));
    }
    next.mode = mode(asked.purpose);
    next.departure = Some(Departure {
        purpose: asked.purpose,
        run: run.id(),
        plan: plan.id(),
        root: plan.root(),
        snapshot: snapshot.id(),
        step: snapshot.step,
        under: asked.under.clone(),
        set: asked.set.clone(),
        noise: asked.noise.clone(),
        replicate: asked.replicate,
        horizons: asked.horizons.clone(),
        future: future.as_ref().map(Manifest::id),
        known: asked.known.clone(),
    });
    next.request = fingerprint::request(&next);
    let mut faults = Faults::new();
    check_inside(&next, &mut faults);
    regime::check_inside(&next, &mut faults);
    check_origin(origin, &next, &mut faults);
    faults.or((next, future))
}

fn on_other_data(plan: &Plan, data: &Substitute) -> Plan {
    let mut plan = plan.clone();
    plan.dataset = Some(data.dataset.clone());
    plan.work.tokens = data.count;
    plan.fitted.clone_from(&data.fitted);
    plan
}

/// A candidate with values set otherwise.
pub fn changed(candidate: &Candidate, set: &[Change]) -> Result<Candidate, Faults> {
    let (mut document, mut faults) = (candidate.write(), Faults::new());
    for (place, Change { path, value }) in set.iter().enumerate() {
        if let Err(why) = put(&mut document, path, value) {
            faults.add(format!("/set/{place}/path"), "depart.path", why);
        }
    }
    faults.or(())?;
    Candidate::decode(&document)
}

/// Puts `value` in the place of what is at `path`, which must be there.
fn put(document: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    let mut at = document;
    for step in path.split('.') {
        at = match at {
            Value::Object(members) if step != "schema" => members.get_mut(step),
            Value::List(items) => step.parse::<usize>().ok().and_then(|place| items.get_mut(place)),
            _ => None,
        }
        .ok_or_else(|| format!("{path}: the candidate has no {step} there"))?;
    }
    *at = value.clone();
    Ok(())
}

/// Reads `path=value`; a value that is no JSON is taken as text.
pub fn change(text: &str) -> Option<Change> {
    let (path, value) = text.split_once('=').filter(|(path, _)| !path.is_empty())?;
    let value = crate::canonical::parse(value.as_bytes()).unwrap_or_else(|_| value.into());
    Some(Change { path: path.into(), value })
}

/// The micro-batches of the steps after `after` up to `until`; `None` when they are too many to be written down. A branch
/// that sees other data sees the same numbers of them, so that `dataset` is the one of the run that all leave from.
fn future(plan: &Plan, dataset: Digest, after: u64, until: u64) -> Option<Future> {
    let (shape, batching) = (shape(plan)?, plan.native()?.batching);
    let until = until.min(shape.steps).min(after.saturating_add(MOST_STEPS));
    let of_step = batching.samples.min(shape.samples).saturating_mul(batching.accumulation);
    if of_step.saturating_mul(until.saturating_sub(after)) > MOST_SAMPLES {
        return None;
    }
    let mut walk = Walk::new(shape, plan.seed);
    let steps = (after..until).map(|step| {
        let batches = walk.step(step);
        let digest = samples_digest(&batches);
        FutureStep { digest, micro_batches: batches.into_iter().map(|batch| batch.samples).collect() }
    });
    Some(Future { dataset, seed: plan.seed, after, steps: steps.collect() })
}

/// Notes what in a plan's departure cannot be, whatever it left from.
pub fn check_inside(plan: &Plan, faults: &mut Faults) {
    let Some(departure) = &plan.departure else {
        if matches!(plan.mode, Mode::Branch | Mode::Acquisition) {
            faults.add("/departure", "depart.mode", format!("a {} leaves from a state", plan.mode));
        }
        return;
    };
    if plan.mode != mode(departure.purpose) {
        let message = format!("a {} is a {}, found {}", departure.purpose, mode(departure.purpose), plan.mode);
        faults.add("/mode", "depart.mode", message);
    }
    let rising = departure.horizons.windows(2).all(|pair| pair[0] < pair[1]);
    if !rising || departure.horizons.first() == Some(&0) {
        faults.add(
            "/departure/horizons",
            "depart.horizon",
            "horizons are numbers of steps from 1, each above the last",
        );
    }
    let early = ends_early(departure.purpose);
    if early == departure.horizons.is_empty() || early == departure.future.is_none() {
        let message = format!("a {} {} at a horizon", departure.purpose, if early { "ends" } else { "does not end" });
        faults.add("/departure/horizons", "depart.horizon", message);
    }
    if departure.horizons.last().is_some_and(|last| *last > MOST_STEPS) {
        faults.add("/departure/horizons", "depart.horizon", format!("a horizon is at most {MOST_STEPS} steps"));
    }
    let effect = departure.purpose == Purpose::Quality && !(departure.set.is_empty() && departure.noise.is_none());
    if effect != departure.known.is_some() {
        let message =
            "what is known of its effect is said of each quality branch but the no-op, and of no other branch";
        faults.add("/departure/known", "depart.known", message);
    }
    if departure.known.as_ref().is_some_and(|known| known.low > known.high) {
        faults.add("/departure/known", "depart.known", "the smallest effect is above the largest");
    }
    let (steps, step) = (plan.work.steps, departure.step);
    if plan.due() > steps || step >= plan.due() {
        let message = format!("from step {step} to step {} does not fit into the {steps} steps of the run", plan.due());
        faults.add("/departure/step", "depart.step", message);
    }
}

/// Notes where a plan is not what it says it left from.
pub fn check_origin(origin: &Origin<'_>, plan: &Plan, faults: &mut Faults) {
    let (Some(departure), Some((before, _)), Some(after)) = (&plan.departure, origin.plan.training(), plan.native())
    else {
        return faults.add("/departure", "depart.origin", "both runs are of the trainer of this toolkit");
    };
    let pairs = [
        ("plan", departure.plan.to_string(), origin.plan.id().to_string()),
        ("root", departure.root.to_string(), origin.plan.root().to_string()),
        ("snapshot", departure.snapshot.to_string(), origin.snapshot.id().to_string()),
        ("step", departure.step.to_string(), origin.snapshot.step.to_string()),
    ];
    for (field, named, found) in pairs.into_iter().filter(|(_, named, found)| named != found) {
        faults.add(format!("/departure/{field}"), "depart.origin", format!("it says {named}, found {found}"));
    }
    match changed(before, &departure.under).and_then(|under| changed(&under, &departure.set)) {
        Ok(changed) if changed == *after => {}
        Ok(_) => {
            let message = "the candidate is not that of the earlier plan with these values set";
            faults.add("/departure/set", "depart.set", message);
        }
        Err(found) => faults.0.extend(found.0),
    }
    if departure.purpose == Purpose::Rollback && origin.plan.is_branch() {
        let message = "a branch becomes the mainline by adoption, and not by a rollback to a state of its own";
        faults.add("/departure/purpose", "depart.purpose", message);
    }
    let dataset = origin.plan.dataset_id().filter(|_| !departure.horizons.is_empty());
    let future = dataset.and_then(|dataset| future(plan, dataset, departure.step, plan.due()));
    if departure.future != future.as_ref().map(Manifest::id) {
        faults.add("/departure/future", "depart.future", "the micro-batches are not those that seed and dataset make");
    }
    if origin.plan.seed != plan.seed {
        faults.add("/departure", "depart.origin", "the seed is that of the earlier plan");
    }
    check_data(origin.plan, plan, faults);
    let under = changed(before, &departure.under).ok();
    check_state(departure, before, (under.as_ref(), after), faults);
    if origin.plan.ground == (Ground::Evidence {}) && !plan.is_branch() {
        faults.add("/departure", "depart.evidence", "a run that is evidence for a calibration never becomes a model");
    }
    check_plan(origin.snapshot, plan, faults);
}

/// Whether it puts other data in the place of a run's own.
pub fn other_data(change: &Change) -> bool {
    change.path == "data" || change.path == DATASET
}

/// Notes data that cannot stand in the place of those before, sample for sample. What has learned from both never becomes a
/// model, whose bundle would name one of them, and what is measured with it could be text that it has seen.
fn check_data(before: &Plan, plan: &Plan, faults: &mut Faults) {
    let at = "/departure/set";
    if before.departure.as_ref().is_some_and(|from| from.set.iter().chain(&from.under).any(other_data)) {
        faults.add("/departure/run", "depart.data", "nothing goes on from a branch that has seen other data");
    }
    if before.dataset_id() == plan.dataset_id() {
        return;
    }
    if !plan.is_branch() {
        faults.add(at, "depart.data", ONE_DATASET);
    }
    let (one, two) = (before.work.samples_per_epoch, plan.work.samples_per_epoch);
    if one != two {
        let message = format!("{two} samples cannot stand in the place of {one}, each for the one with its number");
        faults.add(at, "depart.data", message);
    }
    if before.fitted != plan.fitted {
        faults.add(
            at,
            "depart.data",
            "these data would be scaled otherwise than those that the state has learned from",
        );
    }
}

/// Notes changes after which the state is not a state of the candidate any more. What it computes on may change for
/// maintenance, which is there to see what that does, and in branches of a regime that is not exact; in both for all branches
/// of a set alike, so that each is told against a no-op of its own kind.
fn check_state(
    departure: &Departure,
    before: &Candidate,
    (under, after): (Option<&Candidate>, &Candidate),
    faults: &mut Faults,
) {
    let branch = ends_early(departure.purpose);
    let loose = branch && (departure.purpose == Purpose::Maintenance || after.regime != Regime::Exact);
    let alike = under.is_some_and(|under| under.execution == after.execution && under.regime == after.regime);
    let any_numbers = after.regime != Regime::Calibrated;
    let kept = [
        ("model", without_dropout(&before.model) == without_dropout(&after.model)),
        ("base", before.base == after.base),
        ("tokenizer", before.tokenizer == after.tokenizer),
        ("data", before.data == Data { dataset: before.data.dataset, ..after.data.clone() }),
        ("batching", before.batching == after.batching),
        ("optimizer.kind", before.optimizer.word() == after.optimizer.word()),
        ("optimizer.momentum", moves(&before.optimizer) == moves(&after.optimizer)),
        ("averaging", kind(&before.averaging) == kind(&after.averaging)),
        ("stops.early", before.stops.early == after.stops.early),
        ("precision", scaled(before) == scaled(after) && (any_numbers || before.precision == after.precision)),
        ("execution", before.execution == after.execution || (loose && alike)),
        ("regime", before.regime == after.regime || (loose && alike)),
    ];
    for (what, _) in kept.into_iter().filter(|(_, same)| !same) {
        let message = format!("{what} is part of what a state means: a run that goes on from one keeps it");
        faults.add("/departure/set", "depart.state", message);
    }
}

/// Whether the optimiser keeps a row of momentum that the other setting would not have.
fn moves(optimizer: &Optimizer) -> bool {
    !matches!(optimizer, Optimizer::Sgd { momentum, .. } if momentum.get() == 0.0)
}

fn kind(averaging: &Averaging) -> bool {
    *averaging == Averaging::None {}
}

/// Whether the scale of the loss is a part of the state.
fn scaled(candidate: &Candidate) -> bool {
    candidate.precision == Precision::Float16Scaled
}

fn without_dropout(model: &Model) -> Model {
    let mut model = model.clone();
    match &mut model {
        Model::Gpt { dropout, .. }
        | Model::Llama { dropout, .. }
        | Model::Encoder { dropout, .. }
        | Model::Mlp { dropout, .. }
        | Model::Cnn { dropout, .. } => *dropout = Finite::ZERO,
        Model::TorchScript { .. } => {}
    }
    model
}

/// Changes as one text.
pub fn text(changes: &[Change]) -> String {
    let one = |change: &Change| format!("{}={};", change.path, change.value.canonical());
    changes.iter().map(one).collect::<Vec<String>>().concat()
}

/// What a branch is called that changes nothing.
pub const NO_OP: &str = "no-op";

/// What a branch is called: what was set, the noise, or `no-op`.
pub fn arm(departure: &Departure) -> String {
    called(&departure.set, departure.noise.as_ref())
}

/// What a branch with these changes is called.
pub fn called(set: &[Change], noise: Option<&Noise>) -> String {
    let set = set.iter().map(|change| format!("{}={}", change.path, change.value.canonical()));
    let noise = noise.into_iter().map(|noise| format!("noise={}", noise.relative.write().canonical()));
    let parts: Vec<String> = set.chain(noise).collect();
    if parts.is_empty() { NO_OP.into() } else { parts.join(";") }
}
