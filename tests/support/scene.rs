//! A run that counts its starts on the host, and tools over it that are killed at a step: `strace` stops them before a
//! system call by which they change the disk or start a process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::canonical::parse_all;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::intent::{Floor, Profile};
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_runtime::Order;

use crate::bench::{Bench, Ended, member, processes_of, runs, wait_for};

/// The calls that are points of the matrix.
pub const CALLS: &str =
    "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,clone,clone3,vfork";

pub const XT_LOG: &str = env!("CARGO_BIN_EXE_xt-log");
pub const STAND_IN: &str = env!("CARGO_BIN_EXE_xt-stand-in");

pub fn has_strace() -> bool {
    let found =
        Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("not run here: strace is missing or may not trace");
    }
    found
}

/// A store, a plan that counts its starts in a file of the host, and a worker of its own name.
pub struct Scene {
    pub bench: Bench,
    pub plan: Plan,
    pub worker: PathBuf,
}

#[allow(dead_code, reason = "each test program uses its part")]
impl Scene {
    /// A run of `steps` steps that behaves as `behaviour` says and counts its starts.
    pub fn new(behaviour: &str, steps: u64) -> Self {
        let bench = Bench::new();
        let open = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        // The trainer is another user when root starts it.
        open(&bench.path(""), 0o755);
        fs::write(bench.path("starts"), "").unwrap();
        open(&bench.path("starts"), 0o666);
        let name = bench.path("").components().next_back().unwrap().as_os_str().to_str().unwrap().to_string();
        let worker = bench.path(&format!("worker-{name}"));
        fs::copy(STAND_IN, &worker).unwrap();
        let purpose = format!("{behaviour} count {}", bench.path("starts").display());
        let plan = bench.plan_with(&purpose, steps, |intent| {
            intent.isolation.profile = Profile::None;
            for control in xt_core::verb::custody::CONTROLS {
                intent.isolation.floor.insert((*control).to_string(), Floor::Preferred);
            }
        });
        bench.write("plan.json", &plan);
        Self { bench, plan, worker }
    }

    pub fn starts(&self) -> usize {
        fs::read(self.bench.path("starts")).unwrap().len()
    }

    /// Whether the attempt runs and its workload has counted itself. One that is told to stop before that rightly ends
    /// without ever having done anything, and a test that wants to see it stopped in its work must not be so quick.
    pub fn under_way(&self, attempt: &Name) -> bool {
        let state = self.bench.record().attempt(attempt).unwrap().map(|attempt| attempt.state);
        state == Some(AttemptState::Running) && self.starts() == 1
    }

    /// Holds the workload's own count of its starts: one, and the process that became it had left its mark.
    #[track_caller]
    pub fn started_once(&self, state: AttemptState, point: usize) {
        assert_eq!((self.starts(), self.is_marked()), (1, true), "point {point}: {state}");
    }

    /// Whether the process that is to become the workload has done its last act before that, which is to leave a mark.
    /// Seen in the folders: a record may be held by whoever is stopped.
    pub fn is_marked(&self) -> bool {
        let folders = fs::read_dir(self.bench.store_path().join("runs")).into_iter().flatten();
        let mark = |folder: std::io::Result<fs::DirEntry>| fs::metadata(folder.ok()?.path().join("lock")).ok();
        folders.filter_map(mark).any(|mark| mark.len() > 0)
    }

    /// Stops everything that runs here but `stopped`, which is, at a step that is recorded: a workload that has left its
    /// mark is let go on until its first act, which is to count itself. What happens to one that is killed between these
    /// two is the matter of a test of its own. Gives what was stopped.
    pub fn hold_still(&self, stopped: &[u32]) -> Vec<u32> {
        let found = || supervisors_on(self).into_iter().chain(processes_of(&self.worker));
        let others = || -> Vec<u32> { found().filter(|pid| !stopped.contains(pid)).collect() };
        // One that was just made is found by looking again.
        let mut held = Vec::new();
        loop {
            let new: Vec<u32> = others().into_iter().filter(|pid| !held.contains(pid)).collect();
            signal_all(&new, Signal::SIGSTOP);
            wait_for("the stop of all", || new.iter().all(|pid| is_stopped(*pid) || !runs(*pid)).then_some(()));
            if new.is_empty() {
                break;
            }
            held.extend(new);
        }
        if self.is_marked() && self.starts() == 0 {
            signal_all(&held, Signal::SIGCONT);
            wait_for("the first act of the workload", || (self.starts() > 0).then_some(()));
        }
        held
    }

    /// `xt-run` with `arguments`, killed or stopped by `signal` before its call number `point`.
    ///
    /// strace counts each system call of [`CALLS`] for itself: the point is where the first of them comes to that number.
    pub fn tampered(&self, program: &str, arguments: &[&str], signal: &str, point: usize) -> Command {
        self.traced(program, arguments, &["-e", &format!("inject={CALLS}:signal={signal}:when={point}")])
    }

    /// The same, killed before one call in particular.
    pub fn killed_at(&self, program: &str, arguments: &[&str], (call, number): &(String, usize)) -> Output {
        self.traced(program, arguments, &["-e", &format!("inject={call}:signal=SIGKILL:when={number}")])
            .output()
            .unwrap()
    }

    /// Every call of [`CALLS`] that the tool makes when nobody disturbs it, in order, each with its number among its like.
    pub fn calls(&self, program: &str, arguments: &[&str]) -> Vec<(String, usize)> {
        let output = self.traced(program, arguments, &[]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let trace = fs::read_to_string(self.bench.path("trace")).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        let names = trace.lines().filter_map(|line| Some(line.split_once('(')?.0.to_string()));
        let mut numbered = |name: String| {
            let count = counts.entry(name.clone()).or_insert(0);
            *count += 1;
            (name, *count)
        };
        names.map(&mut numbered).collect()
    }

    fn traced(&self, program: &str, arguments: &[&str], how: &[&str]) -> Command {
        let mut command = Command::new("strace");
        command.args(["-qq", "-o"]).arg(self.bench.path("trace")).args(["-e", &format!("trace={CALLS}")]);
        command.args(how).arg(program).args(arguments);
        command.env_clear().env("XT_STORE", self.bench.store_path()).env("XT_TRAIN", &self.worker);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn log(&self, arguments: &[&str]) -> Output {
        self.tool(XT_LOG, arguments)
    }

    /// A tool that nobody disturbs.
    pub fn tool(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("XT_STORE", self.bench.store_path());
        command.env("XT_TRAIN", &self.worker).stdin(Stdio::null()).output().unwrap()
    }

    /// What was found by `xt-log reconcile`, which must leave nothing to a person.
    pub fn reconcile(&self) -> Vec<String> {
        let output = self.log(&["reconcile"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found = parse_all(&output.stdout).unwrap();
        found.iter().map(|found| member(found, "/found").to_string()).collect()
    }

    /// Asks for the plan under the one operation id, in the foreground, as somebody does who got no answer.
    pub fn ask_again(&self) -> Ended {
        let plan = self.bench.path("plan.json");
        let arguments = ["--operation-id", "op-a", "--worker", self.worker.to_str().unwrap(), plan.to_str().unwrap()];
        Ended::of(self.bench.xt_run(&arguments).output().unwrap())
    }

    /// Waits until everything has ended, and holds the whole truth against itself. Gives the state of the only attempt.
    #[track_caller]
    pub fn settled(&self, point: &str) -> AttemptState {
        let waited = self.log(&["wait", "default", "--timeout", "60"]);
        assert_eq!(waited.status.code(), Some(0), "{point}: {waited:?}");
        let attempt = self.bench.attempt();
        assert!(attempt.state.is_terminal(), "{point}: {attempt:?}");
        let run: xt_core::manifest::run::Run = self.bench.store().manifest(attempt.run_record.unwrap()).unwrap();
        assert_eq!(run.status.to_string(), attempt.state.to_string(), "{point}");
        let succeeded = attempt.state == AttemptState::Succeeded;
        assert_eq!(run.artifacts.is_empty(), !succeeded, "{point}: only success has artifacts");
        assert_eq!(run.progress.completed && run.exit.code == Some(0), succeeded, "{point}: {}", run.cause);
        for artifact in &run.artifacts {
            assert_eq!(Digest::of(&self.bench.store().get(artifact.digest).unwrap()), artifact.digest, "{point}");
        }
        let again = self.ask_again();
        assert_eq!(again.runs()[0].attempt, attempt.id, "{point}: the same operation is the same workload");
        let checked = self.log(&["rebuild", "--check"]);
        assert_eq!(checked.status.code(), Some(0), "{point}: {}", String::from_utf8_lossy(&checked.stdout));
        assert!(processes_of(&self.worker).is_empty(), "{point}: no worker is left");
        attempt.state
    }

    /// Records the wish and writes the order, as a client does before it starts a supervisor.
    pub fn ordered(&self) -> Name {
        let attempt = self.bench.intend(&self.plan, "op-a").id;
        let folder = self.bench.run_folder(&attempt);
        for part in ["in", "out", "work", "log"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        let order = Order { attempt: attempt.clone(), worker: self.worker.to_str().unwrap().into() };
        fs::write(folder.join("order.json"), order.encode().canonical()).unwrap();
        attempt
    }

    /// A tool that is to stop before its call number `point`.
    pub fn stopping(&self, program: &str, arguments: &[&str], point: usize) -> Stopping<'_> {
        Stopping { scene: self, tracer: self.tampered(program, arguments, "SIGSTOP", point).spawn().unwrap() }
    }

    /// The supervisor of `attempt`, by hand, likewise.
    pub fn supervisor(&self, attempt: &Name, point: usize) -> Stopping<'_> {
        let store = self.bench.store_path();
        let arguments = ["--supervise", store.to_str().unwrap(), attempt.as_str()];
        self.stopping(env!("CARGO_BIN_EXE_xt-run"), &arguments, point)
    }
}

/// How far a tool came.
pub enum Reached {
    /// It has stopped before the call; its process.
    TheCall(u32),
    /// It ended without coming there.
    ItsEnd,
}

/// A tool that is to stop before one of its calls.
pub struct Stopping<'a> {
    scene: &'a Scene,
    tracer: Child,
}

#[allow(dead_code, reason = "each test program uses its part")]
impl Stopping<'_> {
    /// What became of it; `None` as long as it is on its way.
    pub fn look(&mut self) -> Option<Reached> {
        let trace = fs::read_to_string(self.scene.bench.path("trace")).unwrap_or_default();
        if !trace.contains("stopped by SIGSTOP") {
            return self.tracer.try_wait().unwrap().map(|_| Reached::ItsEnd);
        }
        let children = format!("/proc/{0}/task/{0}/children", self.tracer.id());
        let text = fs::read_to_string(children).unwrap_or_default();
        let tool = text.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
        tool.filter(|pid| is_stopped(*pid)).map(Reached::TheCall)
    }

    /// Waits until it has stopped, and gives its process; `None` when it ended without coming there.
    pub fn stopped(&mut self) -> Option<u32> {
        match wait_for("the stop", || self.look()) {
            Reached::TheCall(tool) => Some(tool),
            Reached::ItsEnd => None,
        }
    }

    /// Kills the tool where it stopped, and `others` with it, and lets go on what is held still and survives.
    pub fn kill(mut self, tool: u32, others: &[u32], held: &[u32]) {
        signal_all(others, Signal::SIGKILL);
        kill_9(tool);
        signal_all(held, Signal::SIGCONT);
        self.tracer.wait().unwrap();
    }

    /// Waits for the end of a tool that did not stop.
    pub fn ended(self) -> Output {
        self.tracer.wait_with_output().unwrap()
    }
}

/// Whether a process is stopped, as by SIGSTOP.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// Supervisors in the store of `scene`, and what they have forked.
pub fn supervisors_on(scene: &Scene) -> Vec<u32> {
    let store = scene.bench.store_path();
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let of_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        // strace, too, has these words in its line.
        words.clone().next() != Some(b"strace")
            && words.any(|word| word == b"--supervise")
            && words.any(|word| word == store.as_os_str().as_encoded_bytes())
    };
    pids.filter(of_it).collect()
}

pub fn was_killed(output: &Output) -> bool {
    output.status.code().is_none_or(|code| code == 137)
}

/// Kills a process, if it still runs.
#[allow(dead_code, reason = "each test program uses its part")]
pub fn kill_9(pid: u32) {
    signal(pid, Signal::SIGKILL);
}

fn signal_all(pids: &[u32], what: Signal) {
    for pid in pids {
        signal(*pid, what);
    }
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).ok();
}

/// Tries the points of a scenario until it ends without meeting one, and prints what became of them.
#[allow(dead_code, reason = "each test program uses its part")]
pub fn matrix(name: &str, every: usize, mut at: impl FnMut(usize) -> Option<AttemptState>) -> usize {
    let mut ends = std::collections::BTreeMap::new();
    let mut points = 0;
    for point in (1..).step_by(every) {
        let Some(state) = at(point) else { break };
        points += 1;
        *ends.entry(state.to_string()).or_insert(0) += 1;
    }
    println!("{name}: {points} points, each workload started once; ends: {ends:?}");
    points
}
