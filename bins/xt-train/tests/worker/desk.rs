//! Lays out a job, starts the real worker on it and collects what it left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use xt_core::canonical::{Value, parse, parse_all};
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field, Manifest};
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::{Format, GroupBy, Splitting};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::manifest::run::Stack;
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::manifest::trace::{Step, read_steps};
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Seen, Tokens, check, compile_seen};
use xt_core::verb::snapshot::{self, Position, part};

/// A small candidate: 0.1 M parameters, dropout, accumulation, a short last micro-batch, clipping.
const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"test",
    "model":{"kind":"gpt","layers":2,"heads":2,"width":32,"inner":64,"context":16,"vocabulary":256,
        "dropout":0.1,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":0},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"adamw","learning_rate":0.003,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,
        "weight_decay":0.1,"decay":"matrices"},
    "schedule":{"kind":"cosine","warmup_steps":2,"final_fraction":0.1},
    "groups":[],
    "averaging":{"kind":"none"},
    "clipping":{"kind":"norm","maximum":1},
    "batching":{"samples":4,"remainder":"keep","accumulation":2,"accumulation_remainder":"flush"},
    "length":{"kind":"steps","steps":8},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

/// What makes the test candidate a llama, with grouped queries and an output layer of its own.
pub const LLAMA: (&str, &str) = (
    "\"kind\":\"gpt\",\"layers\":2,\"heads\":2,\"width\":32,\"inner\":64,\"context\":16,\"vocabulary\":256,
        \"dropout\":0.1,\"layer_norm_epsilon\":1e-5,",
    "\"kind\":\"llama\",\"layers\":2,\"heads\":4,\"key_value_heads\":2,\"width\":32,\"inner\":48,\"context\":16,\"vocabulary\":256,
        \"tied\":false,\"rotary_base\":10000.0,\"dropout\":0.1,\"rms_norm_epsilon\":1e-5,",
);

/// The members of the test's dataset: path and text.
pub const MEMBERS: [(&str, &str); 2] = [
    (
        "a.txt",
        "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and \
         nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of \
         the world.",
    ),
    (
        "b.txt",
        "It is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself growing \
         grim about the mouth; whenever it is a damp, drizzly November in my soul; then, I account it high time to get \
         to sea as soon as I can.",
    ),
];

/// The plan of the test candidate with these replacements in its text.
pub fn plan(changes: &[(&str, &str)], seed: u64) -> Plan {
    let offered = MEMBERS.map(|(path, text)| Offered {
        path: RelativePath::new(path).unwrap(),
        digest: Digest::of(text.as_bytes()),
        bytes: text.len() as u64,
    });
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: [].into() };
    let dataset = admit(Format::Text, &offered, &[].into(), splitting).unwrap();
    let mut text = CANDIDATE.replace("DATASET", &dataset.id().to_string());
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let candidate = Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap();
    let separators = u64::from(candidate.data.separator.is_some());
    let count = offered.iter().map(|file| file.bytes).sum::<u64>() + separators;
    let intent = Intent::default_for(candidate.execution.threads);
    let file = candidate.tokenizer.digest().map_or(0, |_| tokenizer().len() as u64);
    let tokens = Tokens { vocabulary: 256, count, tokenizer_bytes: file };
    let files = candidate.base.files().into_iter().flatten();
    let base = files.map(|digest| Input { digest, bytes: 1, role: Role::Base }).collect();
    let mut faults = Faults::new();
    check(&candidate, &dataset, &intent, &mut faults);
    assert_eq!(faults, Faults::new());
    compile_seen(candidate, dataset, intent, seed, Seen { tokens, fitted: Vec::new(), base }).unwrap()
}

/// A tokenizer file with one token for each printable character of ASCII.
pub fn tokenizer() -> String {
    let token = |(id, byte): (usize, u8)| {
        let text = if byte == b' ' { "\u{120}".into() } else { Value::String(char::from(byte).into()).canonical() };
        let text = if byte == b' ' { format!("\"{text}\"") } else { text };
        format!("{text}:{id}")
    };
    let vocabulary: Vec<String> = (b' '..=b'~').enumerate().map(token).collect();
    format!(
        r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,
        "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
        "post_processor":null,"decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},
        "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
        "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
        "vocab":{{{}}},"merges":[]}}}}"#,
        vocabulary.join(",")
    )
}

/// What the tests say they run on.
pub fn stack() -> Stack {
    Stack {
        worker: Digest::of(b"worker"),
        reported: None,
        libraries: Vec::new(),
        processor: "any".into(),
        processor_features: Digest::of(b""),
        system: "linux x86_64".into(),
    }
}

/// A snapshot with its files.
#[derive(Clone)]
pub struct Shot {
    pub snapshot: Snapshot,
    pub parameters: Vec<u8>,
    pub optimizer: Vec<u8>,
}

impl Shot {
    /// The same, with these files; the document is made to fit them.
    pub fn with(mut self, parameters: Vec<u8>, optimizer: Vec<u8>) -> Self {
        self.snapshot.parameters = part(&parameters).unwrap();
        self.snapshot.optimizer = part(&optimizer).unwrap();
        (self.parameters, self.optimizer) = (parameters, optimizer);
        self
    }
}

/// A worker's place: job, inputs, outputs, telemetry.
pub struct Desk {
    folder: TempDir,
    environment: Vec<(String, String)>,
    /// What the worker runs under: nothing, or an emulator and its arguments.
    emulator: Vec<String>,
}

/// What a worker left.
pub struct Left {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it said.
    pub messages: Vec<Message>,
    /// The bytes of its trace.
    pub trace: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    desk: Desk,
}

impl Desk {
    /// A place with the test's inputs and the environment of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["inputs", "outputs"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let desk = Self { folder, environment: plan.environment.clone().into_iter().collect(), emulator: Vec::new() };
        for (_, text) in MEMBERS {
            desk.give(text.as_bytes());
        }
        desk.give(tokenizer().as_bytes());
        desk
    }

    /// Sets a variable of the worker.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Lets the worker run under an emulator of this processor.
    pub fn on_processor(mut self, name: &str) -> Self {
        self.emulator = ["qemu-x86_64", "-cpu", name].map(String::from).into();
        self
    }

    /// Gives the worker an input.
    pub fn give(&self, bytes: &[u8]) {
        fs::write(self.input(Digest::of(bytes)), bytes).unwrap();
    }

    /// Where an input lies.
    pub fn input(&self, digest: Digest) -> PathBuf {
        self.path("inputs").join(digest.hex())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Trains by `plan`.
    pub fn train(self, plan: &Plan, to_step: Option<u64>) -> Left {
        self.train_part(plan, to_step, &Cadence::NONE, None)
    }

    /// Trains a part of `plan`, from a snapshot on, and takes others.
    pub fn train_part(self, plan: &Plan, to_step: Option<u64>, cadence: &Cadence, from: Option<&Shot>) -> Left {
        if let Some(shot) = from {
            self.give(&shot.parameters);
            self.give(&shot.optimizer);
        }
        let from = from.map(|shot| Box::new(shot.snapshot.clone()));
        let (plan, cadence) = (Box::new(plan.clone()), cadence.clone());
        let job = Job::Train { plan, to_step, cadence, from, locate: false };
        self.work(job.write().canonical().as_bytes())
    }

    /// Trains by `plan` up to `step` and looks at every module at the first step at which a value is not finite.
    pub fn locate(self, plan: &Plan, step: u64) -> Left {
        let (plan, to_step) = (Box::new(plan.clone()), Some(step));
        let job = Job::Train { plan, to_step, cadence: Cadence::NONE, from: None, locate: true };
        self.work(job.write().canonical().as_bytes())
    }

    /// Measures by `plan`.
    pub fn evaluate(self, plan: &Plan) -> Left {
        self.work(Job::Evaluate { plan: Box::new(plan.clone()) }.write().canonical().as_bytes())
    }

    /// Starts the worker on these bytes of a job, with its messages going to a file.
    pub fn work(self, job: &[u8]) -> Left {
        let telemetry = self.path("telemetry");
        let output = self.start(job, &telemetry);
        let said = parse_all(&fs::read(&telemetry).unwrap()).unwrap();
        Left {
            code: output.status.code(),
            messages: said.iter().map(message).collect(),
            trace: fs::read(self.path("outputs/trace/steps.jsonl")).unwrap_or_default(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            desk: self,
        }
    }

    /// Starts the worker on a job, with `telemetry` as descriptor 4.
    pub fn start(&self, job: &[u8], telemetry: &Path) -> Output {
        fs::write(self.path("job"), job).unwrap();
        Command::new("/bin/sh")
            .args(["-c", "job=$0 telemetry=$1; shift; exec \"$@\" 3<\"$job\" 4>\"$telemetry\""])
            .args([&self.path("job"), telemetry])
            .args(&self.emulator)
            .arg(env!("CARGO_BIN_EXE_xt-train"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(self.environment.iter().cloned())
            .env("XT_INPUTS", self.path("inputs"))
            .env("XT_OUTPUTS", self.path("outputs"))
            .output()
            .unwrap()
    }
}

fn message(value: &Value) -> Message {
    let mut faults = Faults::new();
    Message::read(value, "", &mut faults).unwrap_or_else(|| panic!("{faults}"))
}

impl Left {
    /// The lines of the trace, each checked against the one before.
    pub fn steps(&self, plan: &Plan) -> Vec<Step> {
        let (steps, bad) = read_steps(plan.id(), &self.trace);
        assert_eq!(bad, None);
        steps
    }

    /// The steps that the worker told of.
    pub fn told(&self) -> Vec<Step> {
        let step =
            |message: &Message| if let Message::Step { line, .. } = message { Some((**line).clone()) } else { None };
        self.messages.iter().filter_map(step).collect()
    }

    /// The state that the worker wrote after `step`.
    pub fn shot(&self, plan: &Plan, step: u64) -> Shot {
        let position = self.messages.iter().find_map(|message| match message {
            Message::Snapshot { step: at, updates, generator, cursor, nanoseconds: _ } if *at == step => {
                Some(Position { step, updates: *updates, generator: generator.clone(), cursor: cursor.clone() })
            }
            _ => None,
        });
        let line = self.told().into_iter().find(|line| line.step == step).unwrap();
        let file = |name: &str| self.output(&format!("{}/{name}", snapshot::folder(step)));
        let (parameters, optimizer) = (file(snapshot::PARAMETERS), file(snapshot::OPTIMIZER));
        let (one, other) = (part(&parameters).unwrap(), part(&optimizer).unwrap());
        let snapshot = snapshot::snapshot(position.unwrap(), one, other, &line, plan.id(), stack());
        let mut faults = Faults::new();
        snapshot::check_line(&snapshot, &line, &mut faults);
        snapshot::check_plan(&snapshot, plan, &mut faults);
        assert_eq!(faults, Faults::new());
        Shot { snapshot, parameters, optimizer }
    }

    /// An output of the worker.
    pub fn output(&self, path: &str) -> Vec<u8> {
        fs::read(self.desk.path("outputs").join(path)).unwrap()
    }

    /// The place it leaves, to use again.
    pub fn desk(self) -> Desk {
        self.desk
    }

    /// Whether the worker wrote this file.
    pub fn wrote(&self, path: &str) -> bool {
        File::open(self.desk.path("outputs").join(path)).is_ok()
    }

    /// Why it failed; panics when it did not say so.
    pub fn failure(&self) -> &str {
        match self.messages.last() {
            Some(Message::Failed { reason, .. }) => reason,
            other => panic!("no failure: {other:?}; {}", self.stderr),
        }
    }
}
