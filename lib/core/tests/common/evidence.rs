//! A made-up run that may be frozen: plan, trace, custody and record that agree with one another. Shared by tests of
//! several crates, so everything is named by `xt_core`.

use std::collections::BTreeMap;

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::instant::Instant;
use xt_core::manifest::Artifact;
use xt_core::manifest::candidate::{Candidate, Early};
use xt_core::manifest::custody::{Attestation, Control, Custody, Host, Layer, Mount, Principal, Probe, State};
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::intent::{Floor, Intent, Profile};
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{
    AtFault, Library, Log, Logs, Observed, ProcessExit, Progress, Reported, Run, Stack, Status, TraceReference,
};
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::{Generator, Stage, StageName, Step};
use xt_core::name::Name;
use xt_core::number::{Bits32, Finite};
use xt_core::order::{Walk, samples_digest};
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::chain::{Chain, Tally, shape};
use xt_core::verb::compile::{Tokens, check, compile};
use xt_core::verb::custody::CONTROLS;
use xt_core::verb::weights::{self, Weights};

/// The two members of the dataset.
pub const DATA: [(&str, &[u8]); 2] =
    [("a.txt", b"It was the best of times, "), ("b.txt", b"it was the worst of times")];

/// What the made-up trainer wrote.
pub fn outputs() -> [(&'static str, Vec<u8>); 2] {
    let tensors = BTreeMap::from([("wte.weight".to_string(), (vec![2, 2], vec![0.5f32, -1.0, 2.0, -0.0]))]);
    [
        ("model/config.json", b"{\"model_type\":\"gpt2\"}\n".to_vec()),
        ("model/model.safetensors", weights::file(&tensors)),
    ]
}

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"tiny",
    "model":{"kind":"gpt","layers":1,"heads":1,"width":4,"inner":8,"context":8,"vocabulary":256,
        "dropout":0.0,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":10},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"sgd","learning_rate":0.01,"momentum":0.0,"nesterov":false,"weight_decay":0.0,"decay":"all"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":{"kind":"none"},
    "batching":{"samples":2,"remainder":"drop","accumulation":1,"accumulation_remainder":"drop"},
    "length":{"kind":"steps","steps":4},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

/// The dataset.
pub fn dataset() -> Dataset {
    let offered = DATA.map(|(path, bytes)| Offered {
        path: RelativePath::new(path).unwrap(),
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
    });
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
    admit(Format::Text, &offered, &BTreeMap::new(), splitting).unwrap()
}

/// The plan of four steps.
pub fn plan() -> Plan {
    plan_with(Early::None {})
}

/// The same, with a rule for an early end.
pub fn plan_with(early: Early) -> Plan {
    let text = CANDIDATE.replace("DATASET", &dataset().id().to_string());
    let mut candidate = Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap();
    candidate.stops.early = early;
    let mut faults = Faults::new();
    check(&candidate, &dataset(), &Intent::default_for(1), &mut faults);
    assert_eq!(faults, Faults::new());
    let bytes: usize = DATA.iter().map(|(_, bytes)| bytes.len()).sum();
    let tokens = Tokens { vocabulary: 256, count: bytes as u64 + 1, tokenizer_bytes: 0 };
    compile(candidate, dataset(), Intent::default_for(1), 7, tokens).unwrap()
}

/// The steps, not yet chained.
pub fn steps(plan: &Plan) -> Vec<Step> {
    (1..=plan.work.steps).map(|number| step(plan, number)).collect()
}

fn step(plan: &Plan, number: u64) -> Step {
    let digest = |what: &str| Digest::of(format!("{what} {number}").as_bytes());
    let finite = |value: f32| Finite::new(f64::from(value)).unwrap();
    let shape = shape(plan).unwrap();
    let (first, count) = shape.micro_batches_of(number - 1);
    let mut walk = Walk::new(shape, plan.seed);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let loss = 6.0 - number as f32 / 8.0;
    let stage = |stage| Stage {
        stage,
        checked: 16,
        nan: 0,
        positive_infinite: 0,
        negative_infinite: 0,
        maximum: finite(1.0),
        tensors: vec![],
    };
    Step {
        step: number,
        epoch: (first + count - 1) / plan.work.micro_batches_per_epoch,
        micro_batches: count,
        samples: samples_digest(&walk.step(number - 1)),
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        learning_rate: Finite::new(number as f64 / 1000.0).unwrap(),
        loss: Some(finite(loss)),
        loss_bits: Bits32::of(loss),
        loss_scale: finite(1.0),
        gradient_norm: Some(finite(0.5)),
        gradient_norm_bits: Bits32::of(0.5),
        stages: StageName::ALL.iter().map(|name| stage(*name)).collect(),
        gradients: digest("gradients"),
        parameters: if number == plan.work.steps { parameters().unwrap() } else { digest("parameters") },
        optimizer: digest("optimizer"),
        averaged: None,
        generator: Generator {
            algorithm: "philox4x32-10".into(),
            seed: plan.seed,
            micro_batch: walk.next_micro_batch(number),
        }
        .digest(),
        cursor: walk.cursor(number).digest(),
        skipped: false,
        chain: Digest::of(b""),
    }
}

/// `steps.jsonl` of some steps, chained from `start`.
pub fn chained(start: Digest, steps: Vec<Step>) -> Vec<u8> {
    let (mut before, mut lines) = (start, Vec::new());
    for step in steps {
        let step = step.chain_to(before);
        before = step.chain;
        lines.extend(step.write().canonical().into_bytes());
        lines.push(b'\n');
    }
    lines
}

/// `steps.jsonl` of the plan.
pub fn lines(plan: &Plan) -> Vec<u8> {
    chained(plan.id(), steps(plan))
}

/// What some lines say; they must be sound.
pub fn tally(plan: &Plan, lines: &[u8]) -> Tally {
    let mut chain = Chain::new(plan.id(), Some(plan));
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        chain.line(line);
    }
    let (tally, faults) = chain.finish();
    assert_eq!(faults, Faults::new());
    tally
}

/// The digest of the parameters that the made-up trainer wrote.
pub fn parameters() -> Result<Digest, String> {
    Weights::of(&outputs()[1].1)
}

/// The custody record: what is required was enforced.
pub fn custody(plan: &Plan) -> Custody {
    let control = |id: &&str| {
        let preferred = matches!(*id, "limit.cpu" | "limit.memory" | "limit.processes");
        Control {
            id: (*id).into(),
            floor: if preferred { Floor::Preferred } else { Floor::Required },
            mechanisms: vec!["filter: refused calls".into()],
            state: if preferred { State::Unavailable } else { State::Enforced },
            missing: vec![],
            proof: vec![Probe {
                probe: "attempt".into(),
                stage: Layer::All,
                control: "OK".into(),
                inside: "EPERM".into(),
            }],
        }
    };
    let mount = |at: &str, digest| Mount { at: at.into(), digest: Some(digest), flags: vec!["ro".into()] };
    let mut inputs: Vec<String> = plan.inputs.iter().map(|input| input.digest.hex() + "\n").collect();
    inputs.sort();
    Custody {
        profile: Profile::Full,
        network: plan.intent.network,
        host: Host { kernel: "6.1.0".into(), landlock: 4 },
        principal: Principal { user: 65534, capabilities: "0".into(), user_namespace: true },
        controls: CONTROLS.iter().map(control).collect(),
        mounts: vec![
            mount("/lib/libc.so.6", Digest::of(b"libc")),
            mount("/xt/bin/xt-train", Digest::of(b"worker")),
            mount("/xt/in", Digest::of(inputs.concat().as_bytes())),
        ],
        filter: Some(Digest::of(b"filter")),
        environment: environment(plan).into_keys().collect(),
        descriptors: vec![0, 1, 2, 3, 4],
        overall: State::Enforced,
        attestation: Attestation::SelfAttested,
    }
}

/// The trainer's environment: the plan's, and where inputs and outputs are.
pub fn environment(plan: &Plan) -> BTreeMap<String, String> {
    let mut environment = plan.environment.clone();
    environment.insert("XT_INPUTS".into(), "/xt/in".into());
    environment.insert("XT_OUTPUTS".into(), "/xt/out".into());
    environment
}

/// The record of a run of `plan` with these lines.
pub fn run(plan: &Plan, custody: &Custody, tally: &Tally) -> Run {
    let name = |text: &str| Name::new(text).unwrap();
    let now = Instant::parse("2026-11-29T12:00:00Z").unwrap();
    let empty = Log { digest: Digest::of(b""), bytes: 0, dropped: 0 };
    let reported = Reported {
        version: "0.1.0".into(),
        cpu_capability: "DEFAULT".into(),
        threads: 1,
        parameters: 10,
        samples_per_epoch: plan.work.samples_per_epoch,
    };
    Run {
        attempt: name("run-1"),
        operation: name("operation-1"),
        plan: plan.id(),
        request: plan.request,
        fingerprint: plan.fingerprint,
        mode: Mode::Mainline,
        regime: plan.candidate.regime(),
        precision: plan.candidate.precision(),
        generator: "philox4x32-10".into(),
        seed: plan.seed,
        dataset: plan.dataset_id(),
        inputs: plan.inputs.clone(),
        stack: Some(Stack {
            worker: Digest::of(b"worker"),
            reported: Some(reported),
            libraries: vec![Library { name: "libc.so.6".into(), digest: Digest::of(b"libc") }],
            processor: "Example 3000".into(),
            processor_features: Digest::of(b"avx2 sse"),
            system: "linux x86_64".into(),
        }),
        environment: environment(plan),
        intent: plan.intent.clone(),
        isolation: plan.intent.isolation.profile,
        custody: Some(custody.id()),
        status: Status::Succeeded,
        at_fault: AtFault::Nobody,
        cause: "all steps done".into(),
        exit: ProcessExit { code: Some(0), signal: None },
        progress: Progress {
            planned: plan.work.steps,
            steps: tally.head.steps,
            updates: tally.head.steps,
            skipped: 0,
            completed: true,
            stopped: tally.stopped.clone(),
        },
        trace: Some(TraceReference { digest: tally.head.lines, steps: tally.head.steps, chain: tally.head.chain }),
        start: None,
        cadence: Cadence::NONE,
        snapshots: Vec::new(),
        artifacts: outputs()
            .map(|(path, bytes)| Artifact {
                path: RelativePath::new(path).unwrap(),
                digest: Digest::of(&bytes),
                bytes: bytes.len() as u64,
            })
            .into(),
        quarantined: vec![],
        logs: Logs { stdout: empty.clone(), stderr: empty },
        started: now,
        finished: now,
        observed: Observed {
            wall_nanoseconds: Some(1),
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
        },
    }
}
