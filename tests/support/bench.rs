//! A place to run plans in: a store of its own, a plan for the stand-in worker, and `xt-run` with nothing inherited.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xt_core::canonical::{self, Value};
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::dataset::{Format, GroupBy, Splitting};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::name::Name;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{self, Tokens};
use xt_core::verb::settle::AttemptState;
use xt_record::{Attempt, Record, Submission};
use xt_runtime::Request;
use xt_store::Store;

/// The data of every plan here.
const TEXT: &[u8] = &[b'a'; 5000];

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"tiny",
    "model":{"kind":"gpt","layers":1,"heads":1,"width":8,"inner":16,"context":16,"vocabulary":256,
        "dropout":0.0,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"sgd","learning_rate":0.01,"momentum":0.0,"nesterov":false,"weight_decay":0.0,"decay":"all"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":{"kind":"none"},
    "batching":{"samples":2,"remainder":"drop","accumulation":1,"accumulation_remainder":"drop"},
    "length":{"kind":"steps","steps":STEPS},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

/// A place to run plans in.
pub struct Bench {
    folder: TempDir,
}

/// The tools of this build.
const XT_RUN: &str = env!("CARGO_BIN_EXE_xt-run");
pub const STAND_IN: &str = env!("CARGO_BIN_EXE_xt-stand-in");

#[allow(dead_code, reason = "each test program uses its part")]
impl Bench {
    pub fn new() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap() };
        Store::open_or_create(&bench.store_path()).unwrap().put(TEXT).unwrap();
        bench
    }

    pub fn store_path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn store(&self) -> Store {
        Store::open(&self.store_path()).unwrap()
    }

    pub fn record(&self) -> Record {
        Record::open(&self.store().record_path()).unwrap()
    }

    /// A plan of `steps` steps that makes the stand-in worker do what `behaviour` says.
    pub fn plan(&self, behaviour: &str, steps: u64) -> Plan {
        self.plan_with(behaviour, steps, |_| {})
    }

    /// The same, with another intent.
    #[allow(clippy::unused_self, reason = "reads like its neighbours")]
    pub fn plan_with(&self, behaviour: &str, steps: u64, change: impl FnOnce(&mut Intent)) -> Plan {
        let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
        let file =
            Offered { path: RelativePath::new("a.txt").unwrap(), digest: Digest::of(TEXT), bytes: TEXT.len() as u64 };
        let dataset = admit(Format::Text, &[file], &BTreeMap::new(), splitting).unwrap();
        let text = CANDIDATE.replace("DATASET", &dataset.id().to_string()).replace("STEPS", &steps.to_string());
        let candidate = Candidate::decode(&canonical::parse(text.as_bytes()).unwrap()).unwrap();
        let mut intent = Intent::default_for(1);
        intent.purpose = behaviour.into();
        change(&mut intent);
        let tokens = Tokens { vocabulary: 256, count: TEXT.len() as u64, tokenizer_bytes: 0 };
        compile::compile(candidate, dataset, intent, 7, tokens).unwrap()
    }

    /// `xt-run` with this store and the stand-in worker, and an environment of nothing else.
    pub fn xt_run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(XT_RUN);
        command.args(arguments).env_clear().env("XT_STORE", self.store_path()).env("XT_TRAIN", STAND_IN);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Writes a plan to a file and gives its path.
    pub fn write(&self, name: &str, plan: &Plan) -> String {
        let path = self.path(name);
        std::fs::write(&path, plan.encode().canonical()).unwrap();
        path.to_str().unwrap().into()
    }

    /// Runs a plan in the foreground to its end.
    pub fn run(&self, plan: &Plan, arguments: &[&str]) -> Ended {
        let file = self.write("plan.json", plan);
        let arguments: Vec<&str> = arguments.iter().copied().chain([file.as_str()]).collect();
        Ended::of(self.xt_run(&arguments).output().unwrap())
    }

    /// Starts a plan in the foreground and lets it go on.
    pub fn start(&self, plan: &Plan, arguments: &[&str]) -> Child {
        let file = self.write("plan.json", plan);
        let arguments: Vec<&str> = arguments.iter().copied().chain([file.as_str()]).collect();
        self.xt_run(&arguments).spawn().unwrap()
    }

    /// Starts a plan in the background and gives its attempt.
    pub fn detach(&self, plan: &Plan, arguments: &[&str]) -> Name {
        let file = self.write("plan.json", plan);
        let arguments: Vec<&str> = ["--detach"].iter().chain(arguments).copied().chain([file.as_str()]).collect();
        let output = self.xt_run(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Name::new(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
    }

    /// Records the wish for a plan and does no more, as a process does that is killed right then.
    pub fn intend(&self, plan: &Plan, operation: &str) -> Attempt {
        self.intend_request(&Request::new(plan.clone(), Name::new("default").unwrap()), operation)
    }

    /// The same for a request that asks for something beside its plan.
    pub fn intend_request(&self, request: &Request, operation: &str) -> Attempt {
        let plan = &request.plan;
        let submission = Submission {
            experiment: request.experiment.clone(),
            fingerprint: plan.fingerprint,
            seed: plan.seed,
            plan: self.store().put_manifest(plan).unwrap(),
            request: request.digest(),
            operation: Some(Name::new(operation).unwrap()),
            subject: None,
            scope: request.scope().map(|scope| scope.write()),
            now: xt_core::instant::Instant::from_unix(1).unwrap(),
        };
        self.record().submit(&submission).unwrap().attempt()
    }

    /// The only attempt of the record.
    pub fn attempt(&self) -> Attempt {
        let attempts = self.record().attempts().unwrap();
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        attempts.into_iter().next().unwrap()
    }

    pub fn run_folder(&self, attempt: &Name) -> PathBuf {
        self.store_path().join("runs").join(attempt.as_str())
    }

    /// Whole lines of telemetry so far.
    pub fn telemetry(&self, attempt: &Name) -> usize {
        let text = std::fs::read(self.run_folder(attempt).join("telemetry.jsonl")).unwrap_or_default();
        text.split(|byte| *byte == b'\n').count() - 1
    }

    /// Waits until the record's only attempt is in `state` and has said `lines` lines.
    pub fn until(&self, state: AttemptState, lines: usize) -> Attempt {
        wait_for(&format!("{state} with {lines} lines"), || {
            let attempts = self.record().attempts().unwrap();
            attempts.into_iter().find(|a| a.state == state && self.telemetry(&a.id) >= lines)
        })
    }

    /// What `xt-log status` prints of the only attempt: its state, and what is observed.
    pub fn status(&self) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xt-log"));
        let output = command.arg("status").env_clear().env("XT_STORE", self.store_path()).output().unwrap();
        let values = canonical::parse_all(&output.stdout).unwrap();
        assert_eq!(values.len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
        (member(&values[0], "/state").into(), member(&values[0], "/observed").into())
    }

    pub fn custody(&self, run: &Run) -> Custody {
        self.store().manifest(run.custody.unwrap()).unwrap()
    }
}

/// How `xt-run` ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

#[allow(dead_code, reason = "each test program uses its part")]
impl Ended {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The run records on standard output.
    pub fn runs(&self) -> Vec<Run> {
        let values = canonical::parse_all(self.stdout.as_bytes()).unwrap();
        values.iter().map(|value| Run::decode(value).unwrap_or_else(|faults| panic!("{faults}"))).collect()
    }

    /// The only run record, with `status` and `code` checked.
    pub fn run(&self, status: Status, code: i32) -> Run {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{} {}", self.stdout, self.stderr);
        let run = runs.into_iter().next().unwrap();
        assert_eq!((run.status, self.code), (status, Some(code)), "{}: {}", run.cause, self.stderr);
        run
    }
}

/// Waits at most a minute for something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process of this number runs (and is not merely waiting to be waited for).
#[allow(dead_code, reason = "each test program uses its part")]
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Every process whose command line begins with `program`.
#[allow(dead_code, reason = "each test program uses its part")]
pub fn processes_of(program: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(program.as_os_str().as_encoded_bytes())
    };
    pids.filter(is).collect()
}

/// The member of a JSON document, for messages that are no manifest.
#[allow(dead_code, reason = "each test program uses its part")]
pub fn member<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
