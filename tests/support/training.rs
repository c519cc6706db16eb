//! Training with the true worker, where it is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xt_core::manifest::run::{Run, Status};
use xt_store::Store;

use crate::bench::Ended;

/// A tool over the store of a bench, with `worker` to train.
pub fn tool(store: &Path, name: &str, worker: &Path, arguments: &[&str]) -> Ended {
    let program = match name {
        "snapshot" => env!("CARGO_BIN_EXE_xt-snapshot"),
        "replay" => env!("CARGO_BIN_EXE_xt-replay"),
        "freeze" => env!("CARGO_BIN_EXE_xt-freeze"),
        "run" => env!("CARGO_BIN_EXE_xt-run"),
        "compile" => env!("CARGO_BIN_EXE_xt-compile"),
        "decide" => env!("CARGO_BIN_EXE_xt-decide"),
        "log" => env!("CARGO_BIN_EXE_xt-log"),
        "store" => env!("CARGO_BIN_EXE_xt-store"),
        other => panic!("{other}"),
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("XT_STORE", store)
        .env("XT_TRAIN", worker)
        .current_dir(store.parent().unwrap());
    Ended::of(command.stdin(Stdio::null()).output().unwrap())
}

/// The true worker and a store with a run of it, or nothing where it is not built.
pub struct True {
    pub folder: tempfile::TempDir,
    run: Option<Run>,
}

#[allow(dead_code, reason = "each test program uses its part")]
impl True {
    pub fn new(arguments: &[&str]) -> Option<Self> {
        let mut place = Self::compiled(8)?;
        let all: Vec<&str> = arguments.iter().copied().chain(["plan.json"]).collect();
        place.run = Some(place.tool("run", &all).run(Status::Succeeded, 0));
        Some(place)
    }

    /// A store with a plan of so many steps.
    pub fn compiled(steps: u64) -> Option<Self> {
        let worker = xt_harness::programs().join("xt-train");
        if !worker.exists() {
            println!("not run here: xt-train is not built");
            return None;
        }
        let place = Self { folder: tempfile::tempdir().unwrap(), run: None };
        let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/train/in").join(name);
        fs::copy(source("text.txt"), place.folder.path().join("text.txt")).unwrap();
        let candidate = fs::read_to_string(source("candidate.json")).unwrap();
        assert!(candidate.contains("\"steps\": 8"));
        let candidate = candidate.replace("\"steps\": 8", &format!("\"steps\": {steps}"));
        fs::write(place.folder.path().join("candidate.json"), candidate).unwrap();
        place.command(env!("CARGO_BIN_EXE_xt-compile"), &["dataset", "text.txt", "-o", "dataset.json"]);
        place.command(env!("CARGO_BIN_EXE_xt-compile"), &["candidate.json", "-o", "plan.json"]);
        Some(place)
    }

    pub fn run(&self) -> &Run {
        self.run.as_ref().unwrap()
    }

    pub fn command(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("XT_STORE", self.store_path()).current_dir(self.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn store_path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub fn store(&self) -> Store {
        Store::open(&self.store_path()).unwrap()
    }

    pub fn tool(&self, name: &str, arguments: &[&str]) -> Ended {
        tool(&self.store_path(), name, &xt_harness::programs().join("xt-train"), arguments)
    }
}
