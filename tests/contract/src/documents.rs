//! Valid documents of every kind, built from the Rust types. Together they show every variant of every choice, and
//! every field that may be `null` both with and without a value.
//!
//! Numbers with a fraction have one that is not zero: a JSON Schema cannot tell `1.0` from `1`, the reader can.

mod bundles;
mod commands;
mod hosts;
mod ledger;
mod recipes;
mod states;
mod tables;

use std::collections::BTreeMap;

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field, Manifest, object};
use xt_core::fingerprint;
use xt_core::instant::Instant;
use xt_core::manifest::Artifact;
use xt_core::manifest::action::Action;
use xt_core::manifest::candidate::{
    AccumulationRemainder, Averaging, Base, BatchRemainder, Batching, Candidate, Clipping, CpuCapability, Data, Decay,
    Device, Early, Execution, Group, Length, MathMode, Model, NonFinite, Objective, Optimizer, Order, Precision,
    Regime, Schedule, Stops, Tokenizer, Treatment,
};
use xt_core::manifest::command::Hypothesis;
use xt_core::manifest::comparison::{Comparison, ComparisonContext};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::decision::{Context, Decision, Interval};
use xt_core::manifest::evaluation::{
    Determinism, Evaluation, Evaluator, HeldOut, Leakage, Measure, Metrics, Overlap, Parameters as Which, Part, Shared,
    Slices, Spec, Subject as Trained,
};
use xt_core::manifest::event::Event;
use xt_core::manifest::incident::{
    Contract, Convention, Incident, IncidentReport, LastFinite, Localized, Located, Owner, Recorded,
    State as StageState, Telemetry,
};
use xt_core::manifest::intent::{Floor, Intent, Network, Profile, Venue};
use xt_core::manifest::plan::{Input, Mode, Plan, Role};
use xt_core::manifest::promotion::{Promotion, PromotionPolicy};
use xt_core::manifest::quiescence::Quiescence;
use xt_core::manifest::reconciliation::Reconciliation;
use xt_core::manifest::refusal::Refusal;
use xt_core::manifest::run::{
    AtFault, Calls, Library, Log, Logs, Mapped, Observed, ProcessExit, Progress, Reported, Run, Stack, Start, Status,
    StopReason, Stopped, Taken, TraceReference,
};
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::status::Status as Standing;
use xt_core::manifest::terms::DataClass;
use xt_core::manifest::trace::{Stage, StageName, Trace};
use xt_core::manifest::withdrawal::Withdrawal;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Seen as Looked, Tokens, compile_seen};
use xt_core::verb::evaluate::{self, Found};
use xt_core::verb::triage;

use crate::{comparisons, decisions};

/// Valid documents of every kind, without `id`.
pub fn all() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    let commands = commands::commands(&dataset()).into_iter().map(Hypothesis::from);
    add(&mut all, &candidates().into_iter().map(Hypothesis::from).chain(commands).collect::<Vec<_>>());
    add(&mut all, &[dataset(), declared(Some("LicenseRef-ours")), declared(None)]);
    add(&mut all, &tables::datasets());
    add(&mut all, &tables::candidates().into_iter().map(Hypothesis::from).collect::<Vec<_>>());
    add(&mut all, &tables::plans());
    add(&mut all, &[tables::specs(), commands::specs(&dataset())].concat());
    add(&mut all, &intents());
    add(&mut all, &plans());
    add(&mut all, &runs());
    add(&mut all, &hosts::custodies());
    add(&mut all, &[states::snapshot(true), states::snapshot(false)]);
    add(&mut all, &states::snapshot_diffs());
    add(&mut all, &[trace()]);
    add(&mut all, &bundles::bundles());
    add(&mut all, &bundles::verifications());
    add(&mut all, &states::replays());
    add(&mut all, &states::trace_diffs());
    add(&mut all, &states::futures());
    add(&mut all, &states::branches());
    add(&mut all, &states::gates());
    add(&mut all, &states::calibrations());
    add(&mut all, &ledger::events());
    add(&mut all, &ledger::standings());
    add(&mut all, &hosts::inventories());
    add(&mut all, &hosts::resources());
    add(&mut all, &ledger::actions());
    add(&mut all, &ledger::reconciliations());
    add(&mut all, &ledger::quiescences());
    add(&mut all, &[refusal()]);
    add(&mut all, &[incident_with(3)]);
    add(&mut all, &incident_reports());
    add(&mut all, &decisions::contexts());
    add(&mut all, &decisions::decisions());
    add(&mut all, &specs());
    add(&mut all, &[measured()]);
    add(&mut all, &evaluations());
    add(&mut all, &comparisons::contexts());
    add(&mut all, comparisons::comparisons());
    add(&mut all, &comparisons::policies());
    add(&mut all, &comparisons::promotions());
    let at = instant(1_700_000_000);
    add(&mut all, &[Withdrawal { digest: digest("withdrawn"), why: String::from("mislabelled"), at }]);
    all
}

fn add<M: Manifest>(all: &mut Vec<(&'static str, Value)>, documents: &[M]) {
    all.extend(documents.iter().map(|document| (M::TAG, document.write())));
}

/// Reads `value` as the kind `tag` and gives what is wrong with it.
///
/// # Panics
/// When the kind has no reader here: a new kind must be added.
pub fn read(tag: &str, value: &Value) -> Result<(), Faults> {
    fn decode<M: Manifest>(value: &Value) -> Result<(), Faults> {
        M::decode(value).map(|_| ())
    }
    match tag {
        "xt.candidate/1" => decode::<Hypothesis>(value),
        "xt.dataset/1" => decode::<Dataset>(value),
        "xt.withdrawal/1" => decode::<Withdrawal>(value),
        "xt.intent/1" => decode::<Intent>(value),
        "xt.plan/1" => decode::<Plan>(value),
        "xt.run/1" => decode::<Run>(value),
        "xt.snapshot/1" => decode::<xt_core::manifest::snapshot::Snapshot>(value),
        "xt.snapshot-diff/1" => decode::<xt_core::manifest::snapshot::SnapshotDiff>(value),
        "xt.custody/1" => decode::<Custody>(value),
        "xt.trace/1" => decode::<Trace>(value),
        "xt.future/1" => decode::<xt_core::manifest::branch::Future>(value),
        "xt.branch/1" => decode::<xt_core::manifest::branch::Branch>(value),
        "xt.gates/1" => decode::<xt_core::manifest::calibration::Gates>(value),
        "xt.calibration/1" => decode::<xt_core::manifest::calibration::Calibration>(value),
        "xt.bundle/1" => decode::<xt_core::manifest::bundle::Bundle>(value),
        "xt.verification/1" => decode::<xt_core::manifest::bundle::Verification>(value),
        "xt.replay/1" => decode::<xt_core::manifest::replay::Replay>(value),
        "xt.trace-diff/1" => decode::<xt_core::manifest::replay::TraceDiff>(value),
        "xt.event/1" => decode::<Event>(value),
        "xt.status/1" => decode::<Standing>(value),
        "xt.inventory/1" => decode::<xt_core::manifest::resources::Inventory>(value),
        "xt.resources/1" => decode::<xt_core::manifest::resources::Resources>(value),
        "xt.action/1" => decode::<Action>(value),
        "xt.reconciliation/1" => decode::<Reconciliation>(value),
        "xt.quiescence/1" => decode::<Quiescence>(value),
        "xt.refusal/1" => decode::<Refusal>(value),
        "xt.incident/1" => decode::<Incident>(value),
        "xt.incident-report/1" => decode::<IncidentReport>(value),
        "xt.decision-context/1" => decode::<Context>(value),
        "xt.decision/1" => decode::<Decision>(value),
        "xt.evaluation-spec/1" => decode::<Spec>(value),
        "xt.metrics/1" => decode::<Metrics>(value),
        "xt.evaluation/1" => decode::<Evaluation>(value),
        "xt.comparison-context/1" => decode::<ComparisonContext>(value),
        "xt.comparison/1" => decode::<Comparison>(value),
        "xt.promotion-policy/1" => decode::<PromotionPolicy>(value),
        "xt.promotion/1" => decode::<Promotion>(value),
        other => panic!("the kind {other} has no reader here; add it to `read` and its documents to `all`"),
    }
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("{text} is a name"))
}

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| panic!("{value} is finite"))
}

pub(crate) fn instant(seconds: u64) -> Instant {
    Instant::from_unix(seconds).unwrap_or_else(|| panic!("{seconds} is a time"))
}

fn artifact(at: &str) -> Artifact {
    Artifact { path: path(at), digest: digest(at), bytes: 17 }
}

fn adamw() -> Optimizer {
    Optimizer::AdamW {
        learning_rate: number(0.0017),
        beta1: number(0.87),
        beta2: number(0.93),
        epsilon: number(3e-9),
        weight_decay: number(0.07),
        decay: Decay::Matrices,
    }
}

fn sgd() -> Optimizer {
    Optimizer::Sgd {
        learning_rate: number(0.3),
        momentum: number(0.9),
        nesterov: true,
        weight_decay: number(0.01),
        decay: Decay::All,
    }
}

fn candidate(name_of_it: &str, dataset: Digest) -> Candidate {
    Candidate {
        name: name(name_of_it),
        model: Model::Gpt {
            layers: 3,
            heads: 5,
            width: 35,
            inner: 77,
            context: 16,
            vocabulary: 259,
            dropout: number(0.17),
            layer_norm_epsilon: number(3e-6),
            initializer_range: number(0.031),
        },
        base: Base::Random {},
        tokenizer: Tokenizer::Bytes {},
        data: Data { dataset, split: name("train"), order: Order::Shuffled, separator: Some(257) },
        objective: Objective::NextToken { label_smoothing: number(0.1), z_loss: number(0.0001) },
        optimizer: adamw(),
        groups: Vec::new(),
        schedule: Schedule::Cosine { warmup_steps: 3, final_fraction: number(0.13) },
        clipping: Clipping::Norm { maximum: number(0.7) },
        averaging: Averaging::None {},
        batching: Batching {
            samples: 3,
            remainder: BatchRemainder::Keep,
            accumulation: 2,
            accumulation_remainder: AccumulationRemainder::Carry,
        },
        length: Length::Epochs { epochs: 3 },
        stops: Stops { non_finite: NonFinite::Hold, early: Early::None {} },
        precision: Precision::Float32,
        execution: Execution {
            device: Device::Cpu,
            threads: 1,
            cpu_capability: CpuCapability::Default,
            math_mode: MathMode::Compatible,
            onednn: false,
        },
        regime: Regime::Exact,
    }
}

fn candidates() -> Vec<Candidate> {
    let first = candidate("first", dataset().id());
    let mut second = candidate("team:second/2", dataset().id());
    second.tokenizer = Tokenizer::HuggingFace { digest: digest("tokenizer.json") };
    second.data.separator = None;
    second.optimizer = sgd();
    second.schedule = Schedule::Linear { warmup_steps: 0, final_fraction: number(0.25) };
    second.clipping = Clipping::None {};
    second.length = Length::Steps { steps: 9 };
    let mut third = candidate("third", dataset().id());
    third.schedule = Schedule::Constant { warmup_steps: 1 };
    third.averaging = Averaging::Exponential { decay: number(0.999), first_step: 2 };
    let group = |pattern: &str, treatment| Group { pattern: pattern.into(), treatment };
    let trained = |weight_decay| Treatment::Trained { learning_rate_factor: number(0.1), weight_decay };
    third.groups = vec![
        group("transformer.h.0.*", Treatment::Frozen {}),
        group("*.wte.weight", trained(Some(number(0.0)))),
        group("*.bias", trained(None)),
    ];
    let early = |target, patience, limit| Early::TrainingLoss {
        window: 3,
        target,
        patience,
        minimum_improvement: number(0.01),
        limit,
    };
    second.stops.early = early(Some(number(0.5)), None, Some(number(8.0)));
    third.stops.early = early(None, Some(2), None);
    let mut all = vec![first, second, third];
    all.extend(recipes::candidates(candidate));
    all
}

fn dataset() -> Dataset {
    let file = |at: &str, bytes| Offered { path: path(at), digest: digest(at), bytes };
    let offered: Vec<Offered> = ["B", "a-b", "a/x", "a0", "\u{e9}.txt"].iter().map(|at| file(at, 400)).collect();
    let excluded = BTreeMap::from([(path("a0"), String::from("licence"))]);
    let splitting = Splitting {
        group_by: GroupBy::File,
        salt: String::from("s"),
        permille: BTreeMap::from([(String::from("dev"), 250)]),
    };
    admit(Format::Text, &offered, &excluded, splitting).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The same with terms.
fn declared(licence: Option<&str>) -> Dataset {
    Dataset { terms: bundles::terms(licence, &[DataClass::Internal, DataClass::Personal]), ..dataset() }
}

fn intents() -> Vec<Intent> {
    let mut other = Intent::default_for(2);
    other.resources.accelerators = vec![name("gpu:0")];
    other.resources.conflict_domains = vec![name("node/7")];
    other.isolation.profile = Profile::InContainer;
    other.secrets = vec![name("token")];
    let text = |words: &str| String::from(words);
    (other.runtime, other.network) = (
        Venue::Remote {
            name: name("cluster"),
            egress: text("the inputs"),
            provider: text("someone"),
            retention: text("a day"),
        },
        Network::Loopback,
    );
    other.isolation.floor = BTreeMap::from([(String::from("network.none"), Floor::Required)]);
    let mut open = Intent::default_for(1);
    open.network = Network::Host;
    vec![Intent::default_for(1), other, open]
}

fn plans() -> Vec<Plan> {
    let tokens = Tokens { vocabulary: 256, count: 1026, tokenizer_bytes: 99 };
    let plan_of = |candidate: Candidate, dataset: Dataset| {
        let files = candidate.base.files().into_iter().flatten();
        let base = files.map(|digest| Input { digest, bytes: 31, role: Role::Base }).collect();
        let seen = Looked { tokens, fitted: Vec::new(), base };
        let plan = compile_seen(candidate, dataset, Intent::default_for(1), 7, seen);
        plan.unwrap_or_else(|faults| panic!("{faults}"))
    };
    let plans: Vec<Plan> = candidates().into_iter().map(|candidate| plan_of(candidate, dataset())).collect();
    let on_terms = [declared(Some("CC-BY-4.0")), declared(None)].map(|dataset| {
        let mut candidate = candidates().swap_remove(0);
        candidate.data.dataset = dataset.id();
        plan_of(candidate, dataset)
    });
    let departed: Vec<Plan> = plans
        .iter()
        .zip(states::departures())
        .zip(states::grounds())
        .map(|((plan, departure), ground)| Plan { departure: Some(departure), ground, ..plan.clone() })
        .collect();
    plans.into_iter().chain(on_terms).chain(departed).chain([measuring()]).chain(commands::plans(&dataset())).collect()
}

fn stack(reported: bool) -> Stack {
    Stack {
        worker: digest("xt-train"),
        reported: reported.then(|| Reported {
            version: String::from("0.1.0"),
            cpu_capability: String::from("DEFAULT"),
            threads: 1,
            parameters: 40_000,
            samples_per_epoch: 64,
        }),
        libraries: vec![Library { name: String::from("libc10.so"), digest: digest("libc10.so") }],
        processor: String::from("a processor"),
        processor_features: digest("features"),
        system: String::from("linux x86_64"),
    }
}

fn run(plan: &Plan) -> Run {
    let log = Log { digest: digest("log"), bytes: 3, dropped: 0 };
    Run {
        attempt: name("attempt-1"),
        operation: name("operation-1"),
        plan: plan.id(),
        request: plan.request,
        fingerprint: plan.fingerprint,
        mode: Mode::Mainline,
        regime: Regime::Exact,
        precision: plan.candidate.precision(),
        generator: String::from("philox4x32-10"),
        seed: plan.seed,
        dataset: plan.dataset_id(),
        inputs: vec![Input { digest: digest("input"), bytes: 5, role: Role::Data }],
        stack: Some(stack(true)),
        environment: plan.environment.clone(),
        intent: plan.intent.clone(),
        isolation: Profile::Full,
        custody: Some(digest("custody")),
        status: Status::Succeeded,
        at_fault: AtFault::Nobody,
        cause: String::from("completed"),
        exit: ProcessExit { code: Some(0), signal: None },
        progress: Progress { planned: 33, steps: 33, updates: 33, skipped: 0, completed: true, stopped: None },
        trace: Some(TraceReference { digest: digest("steps"), steps: 33, chain: digest("chain") }),
        start: Some(Start { run: digest("before"), snapshot: digest("snapshot"), step: 5 }),
        cadence: Cadence { every: Some(10), keep: Some(3), last: true },
        snapshots: vec![Taken { step: 10, snapshot: digest("snapshot") }],
        artifacts: vec![artifact("model.safetensors")],
        quarantined: Vec::new(),
        logs: Logs { stdout: log.clone(), stderr: log },
        started: instant(1_796_000_000),
        finished: instant(1_796_000_060),
        observed: Observed {
            wall_nanoseconds: Some(60_000_000_000),
            cpu_nanoseconds: Some(59_000_000_000),
            peak_memory_bytes: Some(1 << 28),
            survivors_killed: Some(0),
            out_of_memory_kills: Some(0),
            process_limit_hits: Some(0),
            throttled_periods: Some(2),
            throttled_nanoseconds: Some(40_000_000),
            denied_calls: Some(1),
            denied: Some(calls("socket", "socket(10,1,0,0,0,0)")),
            opened: Some(calls("connect", "connect 127.0.0.1:8080")),
            mapped: Some(vec![
                Mapped { path: String::from("/xt/bin/xt-train"), digest: Some(digest("xt-train")) },
                Mapped { path: String::from("/usr/lib/python3/lib-dynload/_ctypes.so"), digest: None },
            ]),
            digests_cached: plan.command().map(|_| 3),
        },
    }
}

fn calls(name: &str, first: &str) -> Calls {
    Calls { counts: BTreeMap::from([(String::from(name), 1)]), first: vec![String::from(first)] }
}

fn runs() -> Vec<Run> {
    let plan = plans().remove(0);
    let mut killed = run(&plan);
    killed.stack = None;
    killed.start = None;
    killed.cadence = Cadence::NONE;
    killed.custody = None;
    killed.status = Status::NotStarted;
    killed.exit = ProcessExit { code: None, signal: Some(9) };
    killed.trace = None;
    killed.artifacts = Vec::new();
    killed.quarantined = vec![artifact("out/part.bin")];
    killed.observed = Observed {
        wall_nanoseconds: None,
        cpu_nanoseconds: None,
        peak_memory_bytes: None,
        survivors_killed: None,
        out_of_memory_kills: None,
        process_limit_hits: None,
        throttled_periods: None,
        throttled_nanoseconds: None,
        denied_calls: None,
        denied: None,
        opened: None,
        mapped: None,
        digests_cached: None,
    };
    let mut silent = run(&plan);
    silent.stack = Some(stack(false));
    let mut drained = run(&plan);
    drained.status = Status::Drained;
    let stopped = |reason, mean| Some(Stopped { step: 6, reason, mean });
    silent.progress.stopped = stopped(StopReason::Target, Some(number(0.5)));
    drained.progress.stopped = stopped(StopReason::Patience, None);
    let commanded = plans().pop().map(|plan| run(&plan));
    [run(&plan), killed, silent, drained].into_iter().chain(commanded).collect()
}

fn trace() -> Trace {
    Trace { plan: digest("plan"), steps: 33, lines: digest("lines"), chain: digest("chain") }
}

fn refusal() -> Refusal {
    let mut faults = Faults::one("/name", "field.missing", "this field must be declared");
    faults.add("", "schema.missing", "expected a schema");
    Refusal::from(&faults)
}

fn owner(text: &str) -> Owner {
    Owner::new(text).unwrap_or_else(|| panic!("{text} is a team"))
}

fn contract() -> Contract {
    Contract {
        contract_version: name("contract-3"),
        run_id: name("run-7"),
        step_id: 33,
        model_version: name("model-2"),
        dataset_version: name("data-5"),
        batch_id: name("batch-33"),
        objective_version: name("objective-4"),
        optimizer_version: name("optimizer-6"),
        precision: name("float32"),
        loss_scale_version: name("scale-8"),
        loss_scale: number(1024.5).into(),
        minimum_numeric_resolution: number(1e-12).into(),
        maximum_absolute_finite: number(1e9).into(),
        maximum_elements_per_stage: 4096,
        maximum_total_elements: 20_000,
        numeric_convention: Convention::Binary64Summary,
        data_owner: owner("team:data"),
        model_owner: owner("team:model"),
        objective_owner: owner("team:objective"),
        optimizer_owner: owner("team:optimizer"),
        incident_owner: owner("team:incident"),
    }
}

/// A stage with 77 elements, `bad` of them not finite, or one that did not run.
fn telemetry(stage: StageName, ran: StageState, bad: u64) -> Telemetry {
    let Contract { run_id, step_id, model_version, dataset_version, batch_id, objective_version, .. } = contract();
    let Contract { optimizer_version, precision, loss_scale_version, loss_scale, .. } = contract();
    let checked = if ran == StageState::Observed { 77 } else { 0 };
    let answers = match stage {
        StageName::Input => "team:data",
        StageName::Forward | StageName::Backward => "team:model",
        StageName::Loss => "team:objective",
        StageName::Optimizer => "team:optimizer",
    };
    Telemetry {
        telemetry_id: name(&format!("telemetry-{stage}")),
        tensor_set_id: name(&format!("tensors-{stage}")),
        stage,
        stage_order: stage as u64,
        state: ran,
        checked_elements: checked,
        finite_elements: checked - bad,
        nonfinite_elements: bad,
        maximum_absolute_finite: number(if checked == 0 { 0.0 } else { 3.5 }).into(),
        run_id,
        step_id,
        model_version,
        dataset_version,
        batch_id,
        objective_version,
        optimizer_version,
        precision,
        loss_scale_version,
        loss_scale,
        evidence_source_id: name("probe-1"),
        owner: owner(answers),
    }
}

/// An incident of a step whose loss holds `bad` values that are not finite.
fn incident_with(bad: u64) -> Incident {
    let after = if bad == 0 { StageState::Observed } else { StageState::NotRun };
    let stages = StageName::ALL.iter().map(|stage| match stage {
        StageName::Input | StageName::Forward => telemetry(*stage, StageState::Observed, 0),
        StageName::Loss => telemetry(*stage, StageState::Observed, bad),
        StageName::Backward | StageName::Optimizer => telemetry(*stage, after, 0),
    });
    let evidence = object([
        ("evidence_id", "evidence-1".into()),
        ("stages", Value::List(stages.map(|stage| stage.write()).collect())),
    ]);
    let unsealed = object([("contract", contract().write()), ("evidence", evidence)]);
    triage::seal(&unsealed).unwrap_or_else(|faults| panic!("{faults}"))
}

fn incident_reports() -> Vec<IncidentReport> {
    let report = |bad| triage::triage(&incident_with(bad).encode()).unwrap_or_else(|faults| panic!("{faults}")).1;
    let stage = |stage: &StageName| Stage {
        stage: *stage,
        checked: 77,
        nan: 1,
        positive_infinite: 1,
        negative_infinite: 1,
        maximum: number(3.5),
        tensors: vec![String::from("block.0")],
    };
    let recorded = |first| Recorded {
        run: digest("run"),
        plan: digest("plan"),
        status: Status::Held,
        step: 33,
        steps: 33,
        first_nonfinite_step: first,
        skipped: true,
        stages: StageName::ALL.iter().map(stage).collect(),
        clamped: vec![StageName::Loss],
        localized: None,
    };
    let first = |last_finite| Located {
        stage: StageName::Backward,
        module: String::from("block.0.attention"),
        tensor: String::from("block.0/attention.out"),
        micro_batch: 1,
        checked: 77,
        nan: 1,
        positive_infinite: 2,
        negative_infinite: 3,
        maximum: number(3.5),
        before: 4,
        last_finite,
    };
    let localized = |last| Some(Localized { replayed: digest("replayed"), from: 30, first: first(last) });
    let before = LastFinite { tensor: String::from("logits"), maximum: number(7.5) };
    let located = |last| {
        let recorded = Recorded { localized: localized(last), ..recorded(Some(33)) };
        IncidentReport { recorded: Some(recorded), ..report(3) }
    };
    let of_run = |bad, first| IncidentReport { recorded: Some(recorded(first)), ..report(bad) };
    let of_runs = [of_run(0, None), of_run(3, Some(33)), located(None), located(Some(before))];
    [report(0), report(3)].into_iter().chain(of_runs).collect()
}

/// A metric with everything that can be said about it, and one with as little as possible.
fn spec(slices: Slices, shared: Shared) -> Spec {
    Spec {
        name: name("held-out"),
        evaluator: Evaluator::NextToken { batch: 8, resamples: 1000, confidence: number(0.95) },
        parameters: if slices == Slices::None { Which::Averaged } else { Which::Trained },
        data: HeldOut { dataset: dataset().id(), split: name("train") },
        slices,
        leakage: Leakage { minimum_bytes: 32, shared },
        seed: 7,
    }
}

fn specs() -> Vec<Spec> {
    vec![
        spec(Slices::None, Shared::Refuse),
        spec(Slices::Member, Shared::Disclose),
        spec(Slices::Group, Shared::Disclose),
    ]
}

fn trained() -> Trained {
    let candidate = candidate("one", dataset().id());
    Trained {
        bundle: digest("bundle"),
        run: digest("run"),
        candidate: fingerprint::candidate(&candidate),
        name: candidate.name,
        seed: 3,
        weights: digest("weights"),
    }
}

fn shared() -> Overlap {
    let files = evaluate::members(&spec(Slices::Member, Shared::Disclose), &dataset()).len() as u64;
    Overlap { shared: Shared::Disclose, files, shared_files: 1, examples: 40, shared_examples: 2 }
}

/// A plan that measures.
fn measuring() -> Plan {
    let (spec, dataset) = (spec(Slices::Member, Shared::Disclose), dataset());
    let candidate = candidate("one", dataset.id());
    let parts = evaluate::members(&spec, &dataset).into_iter();
    let parts = parts.map(|member| Part { path: member.path.clone(), tokens: 40 }).collect();
    let found = Found {
        subject: trained(),
        weights_bytes: 4096,
        tokenizer_bytes: 100,
        parts,
        overlap: shared(),
        fitted: Vec::new(),
        base: Vec::new(),
    };
    let intent = Intent::default_for(candidate.execution.threads);
    evaluate::compile(spec, candidate, dataset, intent, found).unwrap_or_else(|faults| panic!("{faults}"))
}

fn measured() -> Metrics {
    let one = Measure {
        name: String::from("loss"),
        slice: None,
        value: number(2.31),
        sample_count: 17,
        standard_error: Some(number(0.07)),
        interval: Some(Interval { low: number(2.2), high: number(2.4) }),
    };
    let mut evaluator = spec(Slices::None, Shared::Refuse).evaluator.version();
    evaluator.determinism = Determinism::Deterministic;
    let bare = Measure { slice: Some(String::from("a")), standard_error: None, interval: None, ..one.clone() };
    Metrics { evaluator, metrics: vec![one, bare] }
}

fn evaluations() -> Vec<Evaluation> {
    let Metrics { mut evaluator, metrics } = measured();
    evaluator.determinism = Determinism::Stochastic;
    let whole = Evaluation {
        attempt: name("attempt-2"),
        run: digest("evaluation run"),
        plan: digest("plan"),
        subject: trained(),
        regime: Regime::Exact,
        evaluator,
        fingerprint: digest("how"),
        seed: 7,
        dataset: digest("dataset"),
        split: name("dev"),
        overlap: shared(),
        confidence: Some(number(0.95)),
        metrics,
        measured: digest("metrics"),
        samples: Some(digest("samples")),
    };
    let mut bare = whole.clone();
    bare.evaluator.determinism = Determinism::Seeded;
    bare.confidence = None;
    bare.samples = None;
    vec![whole, bare]
}
