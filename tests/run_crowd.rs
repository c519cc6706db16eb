//! Many processes over one store, and readers that go away and come back.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bench::{Bench, Ended};
use xt_core::canonical::parse;
use xt_core::field::Manifest as _;
use xt_core::manifest::intent::{Floor, Intent, Profile};
use xt_core::manifest::run::{Run, Status};
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;

fn log(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-log"));
    command.args(arguments).env_clear().env("XT_STORE", bench.store_path()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    format!(
        "{:?} {} {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How often the workload itself says it was started.
fn starts(bench: &Bench, run: &Run) -> usize {
    let file = run.artifacts.iter().find(|file| file.path.as_str() == "model/starts").unwrap();
    bench.store().get(file.digest).unwrap().len()
}

/// A command that writes one line to a file of the host, and no more.
const COUNTS: &str = r#"{"schema":"xt.candidate/1","name":"counts",
    "trainer":{"kind":"command","executable":"/bin/sh","arguments":["-euc","echo started >> STARTS"],"environment":{},
        "roots":[],"files":{},"threads":1},
    "parameters":{},"data":null,"steps":null,"regime":"exact"}"#;

/// The plan of a command that counts its starts in `file`, outside of any custody that would keep it from that.
fn counting(bench: &Bench, file: &Path) -> String {
    fs::set_permissions(bench.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(file, "").unwrap();
    // The trainer is another user when root starts it.
    fs::set_permissions(file, PermissionsExt::from_mode(0o666)).unwrap();
    let mut intent = Intent::default_for(1);
    intent.isolation.profile = Profile::None;
    intent.isolation.floor.values_mut().for_each(|floor| *floor = Floor::Preferred);
    intent.resources.memory_bytes = 64 << 20;
    fs::write(bench.path("intent.json"), intent.encode().canonical()).unwrap();
    fs::write(bench.path("candidate.json"), COUNTS.replace("STARTS", file.to_str().unwrap())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-compile"));
    command.args(["--intent", "intent.json", "-o", "plan.json", "candidate.json"]).current_dir(bench.path(""));
    let output = command.env_clear().env("XT_STORE", bench.store_path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    bench.path("plan.json").to_str().unwrap().into()
}

#[test]
fn two_hundred_submissions_of_fifty_operation_ids_are_fifty_workloads() {
    let bench = Bench::new();
    let counted = bench.path("starts");
    let file = counting(&bench, &counted);
    let children: Vec<_> = (0..200)
        .map(|number| {
            let id = format!("op-{}", number % 50);
            bench.xt_run(&["--operation-id", &id, &file]).spawn().unwrap()
        })
        .collect();
    let mut runs = Vec::new();
    for child in children {
        let ended = Ended::of(child.wait_with_output().unwrap());
        runs.push(ended.run(Status::Succeeded, 0));
    }
    let attempts: BTreeSet<&Name> = runs.iter().map(|run| &run.attempt).collect();
    assert_eq!((runs.len(), attempts.len(), bench.record().attempts().unwrap().len()), (200, 50, 50));
    let started = fs::read_to_string(&counted).unwrap();
    println!("200 submissions of 50 operation ids: {} workloads by their own count", started.lines().count());
    assert_eq!(started, "started\n".repeat(50));
    // The control: a fifty-first operation is a fifty-first workload, and counts itself.
    Ended::of(bench.xt_run(&["--operation-id", "op-50", &file]).output().unwrap()).run(Status::Succeeded, 0);
    assert_eq!(fs::read_to_string(&counted).unwrap().lines().count(), 51);
    let checked = log(&bench, &["rebuild", "--check"]).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
}

/// Lines of `xt-log tail` until `stop` of them were read; then the reader is killed.
fn read_and_die(bench: &Bench, attempt: &Name, after: usize, stop: usize) -> Vec<String> {
    let mut child = log(bench, &["tail", attempt.as_str(), "--after", &after.to_string()]).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let read: Vec<String> = lines.map_while(Result::ok).take(stop).collect();
    child.kill().ok();
    child.wait().unwrap();
    read
}

#[test]
fn a_reader_that_is_killed_and_another_that_goes_on_read_each_line_once() {
    let bench = Bench::new();
    let attempt = bench.detach(&bench.plan("slow 5", 60), &[]);
    let mut union: Vec<String> = Vec::new();
    for stop in [1, 7, 20] {
        let read = read_and_die(&bench, &attempt, union.len(), stop);
        assert_eq!(read.len(), stop);
        union.extend(read);
    }
    // One more follower, killed with -9, and one that attaches; neither has any part in what the record gets.
    let mut follower = bench.xt_run(&["--attach", attempt.as_str()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(30));
    follower.kill().unwrap();
    follower.wait().unwrap();
    let rest = log(&bench, &["tail", attempt.as_str(), "--after", &union.len().to_string()]).output().unwrap();
    assert!(rest.status.success(), "{}", text(&rest));
    union.extend(String::from_utf8(rest.stdout).unwrap().lines().map(String::from));
    let told = fs::read_to_string(bench.run_folder(&attempt).join("telemetry.jsonl")).unwrap();
    assert_eq!(union, told.lines().collect::<Vec<_>>());
    assert_eq!(union.iter().collect::<BTreeSet<_>>().len(), 62, "ready, 60 steps and completion, none of them twice");
    let attached = Ended::of(bench.xt_run(&["--attach", attempt.as_str()]).output().unwrap());
    attached.run(Status::Succeeded, 0);
}

#[test]
fn eight_makes_at_once_over_one_store_each_get_their_own_run() {
    let bench = Bench::new();
    let makefile = "all: $(foreach n,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16,run-$(n).json)\nrun-%.json: plan.json\n\t@$(XT_RUN) -o $@ $<\n";
    fs::write(bench.path("Makefile"), makefile).unwrap();
    bench.write("plan.json", &bench.plan("", 3));
    let mut command = Command::new("make");
    command.args(["-s", "-j8", "-C"]).arg(bench.path("")).env("XT_RUN", env!("CARGO_BIN_EXE_xt-run"));
    command.env("XT_STORE", bench.store_path()).env("XT_TRAIN", env!("CARGO_BIN_EXE_xt-stand-in"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let mut attempts = BTreeSet::new();
    for number in 1..=16 {
        let bytes = fs::read(bench.path(&format!("run-{number}.json"))).unwrap();
        let run: Run = xt_core::field::Manifest::decode(&parse(&bytes).unwrap()).unwrap();
        assert_eq!((run.status, starts(&bench, &run)), (Status::Succeeded, 1));
        attempts.insert(run.attempt);
    }
    assert_eq!(attempts.len(), 16);
    let checked = log(&bench, &["rebuild", "--check"]).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
}

/// Some user who is not root, when this is root: what root may do says nothing about umasks.
const SOMEBODY: u32 = 12_345;

#[test]
fn whatever_the_umask_a_run_works_and_others_read_what_it_lets_them_read() {
    for (umask, others_read) in [("022", true), ("002", true), ("077", false), ("027", false)] {
        let bench = Bench::new();
        let file = bench.write("plan.json", &bench.plan("", 3));
        fs::remove_dir_all(bench.store_path()).unwrap();
        fs::set_permissions(bench.path(""), PermissionsExt::from_mode(0o755)).unwrap();
        let root = nix::unistd::geteuid().is_root();
        let tool = |program: &str| -> String {
            // Somebody else may not come to where this was built.
            let name = Path::new(program).file_name().unwrap().to_str().unwrap();
            fs::copy(program, bench.path(name)).unwrap();
            bench.path(name).to_str().unwrap().into()
        };
        let [run, store, log, worker] = [
            tool(env!("CARGO_BIN_EXE_xt-run")),
            tool(env!("CARGO_BIN_EXE_xt-store")),
            tool(env!("CARGO_BIN_EXE_xt-log")),
            tool(env!("CARGO_BIN_EXE_xt-stand-in")),
        ];
        let script = format!(
            "umask {umask}; head -c 5000 /dev/zero | tr '\\0' a | '{store}' put > /dev/null; exec '{run}' '{file}'"
        );
        let mut command = Command::new("sh");
        command.args(["-eu", "-c", &script]).env("XT_STORE", bench.store_path()).env("XT_TRAIN", worker);
        if root {
            let owner = Some(SOMEBODY.into());
            nix::unistd::chown(&bench.path(""), owner, Some(SOMEBODY.into())).unwrap();
            command.uid(SOMEBODY).gid(SOMEBODY);
        }
        let output = command.current_dir("/").output().unwrap();
        assert!(output.status.success(), "umask {umask}: {}", text(&output));
        if !root {
            continue;
        }
        let mut guest = Command::new(log);
        guest.args(["status"]).env_clear().env("XT_STORE", bench.store_path()).uid(65_534).gid(65_534);
        let guest = guest.output().unwrap();
        assert_eq!(guest.status.success(), others_read, "umask {umask}: {}", text(&guest));
        assert!(others_read || guest.status.code() == Some(20), "umask {umask}: {}", text(&guest));
    }
}

/// What somebody who is not root sees of a path.
fn guest(program: &str, path: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg(path).uid(65_534).gid(65_534).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

#[test]
fn root_with_any_umask_gives_its_trainer_what_it_needs_and_nobody_else_more() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run here: this is not root");
        return;
    }
    for (umask, hidden) in [("077", true), ("027", true), ("022", false)] {
        for profile in [Profile::Full, Profile::InContainer, Profile::None] {
            let bench = Bench::new();
            fs::set_permissions(bench.path(""), PermissionsExt::from_mode(0o755)).unwrap();
            let plan = bench.plan_with("", 3, |intent| {
                intent.isolation.profile = profile;
                if profile != Profile::Full {
                    for control in xt_core::verb::custody::CONTROLS {
                        intent.isolation.floor.insert((*control).to_string(), Floor::Preferred);
                    }
                }
            });
            let file = bench.write("plan.json", &plan);
            let script = format!("umask {umask}; exec '{}' '{file}'", env!("CARGO_BIN_EXE_xt-run"));
            let mut command = Command::new("sh");
            command.args(["-eu", "-c", &script]).env("XT_STORE", bench.store_path());
            command.env("XT_TRAIN", env!("CARGO_BIN_EXE_xt-stand-in")).stdin(Stdio::null());
            let run = Ended::of(command.output().unwrap()).run(Status::Succeeded, 0);
            let folder = bench.run_folder(&run.attempt);
            assert!(!guest("cat", &folder.join("telemetry.jsonl")) || !hidden, "{umask} {profile:?}");
            assert_eq!(!guest("ls", &folder), hidden, "{umask} {profile:?}");
            assert!(guest("ls", &bench.store_path()), "the control: the store itself is open");
        }
    }
}

#[test]
fn a_clock_that_goes_backwards_changes_no_order_and_no_duration() {
    let bench = Bench::new();
    let file = bench.write("plan.json", &bench.plan("slow 10", 5));
    for now in ["2026-11-29T12:00:00Z", "2026-11-29T11:00:00Z", "2001-01-01T00:00:00Z"] {
        let output = bench.xt_run(&[&file]).env("XT_NOW", now).output().unwrap();
        let run = Ended::of(output).run(Status::Succeeded, 0);
        assert!(run.observed.wall_nanoseconds.unwrap() > 50_000_000, "by the monotonic clock");
    }
    let events = bench.record().events(0).unwrap();
    assert!(events.iter().zip(1..).all(|(event, sequence)| event.sequence == sequence));
    assert!(!events.is_sorted_by_key(|event| event.at.unix()), "the control: the clock went backwards");
    let last = bench.record().attempts().unwrap().pop().unwrap();
    let found = log(&bench, &["show", bench.record().attempts().unwrap()[0].operation.as_str()]).output().unwrap();
    assert!(found.status.success());
    assert_eq!(last.state, AttemptState::Succeeded);
}

#[test]
fn a_record_that_stays_locked_is_not_now_and_one_that_is_let_go_is_waited_for() {
    let bench = Bench::new();
    let file = bench.write("plan.json", &bench.plan("", 3));
    bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let other = rusqlite::Connection::open(bench.store().record_path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let child = bench.xt_run(&[&file]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    other.execute_batch("COMMIT").unwrap();
    Ended::of(child.wait_with_output().unwrap()).run(Status::Succeeded, 0);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = bench.record().attempts().unwrap().len();
    let ended = Ended::of(bench.xt_run(&[&file]).output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("error[record.locked]"), "{}", ended.stderr);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(bench.record().attempts().unwrap().len(), before);
}

/// Runs a plan on a store of its own small disk, which is filled up while it runs, and makes room again after it ended.
/// `$1` xt-run, `$2` xt-log, `$3` plan, `$4` xt-store, `$5` size; the working directory is the store's parent.
const FULL: &str = r#"
mkdir disk; mount -t tmpfs -o size=$5 none disk
export XT_STORE=$PWD/disk/store
head -c 5000 /dev/zero | tr '\0' a | "$4" put > /dev/null
attempt=$("$1" --detach "$3")
until [ -s "$XT_STORE/runs/$attempt/telemetry.jsonl" ]; do sleep 0.02; done
# The last step is some way off; nothing of the disk is left when it comes.
cat /dev/zero > disk/filler 2> /dev/null || true
lock=$XT_STORE/runs/$attempt/lock
flock "$lock" true
"$2" show "$attempt" | sed 's/.*"state":"\([a-z-]*\)".*/full: \1/'
rm disk/filler
"$2" reconcile > /dev/null
"$2" show "$attempt" | sed 's/.*"state":"\([a-z-]*\)".*/room: \1/'
"$1" --attach "$attempt" > /dev/null && echo "attached: 0" || echo "attached: $?"
"$2" rebuild --check > /dev/null && echo identical
"#;

#[test]
fn a_store_that_is_full_when_a_run_ends_keeps_what_is_known_of_the_end() {
    let bench = Bench::new();
    // It writes no line while the disk is full: the telemetry of its steps is there before.
    let file = bench.write("plan.json", &bench.plan("linger-after-report 2", 3));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-eu", "-c", FULL, "sh"]);
    command.args([env!("CARGO_BIN_EXE_xt-run"), env!("CARGO_BIN_EXE_xt-log"), &file]);
    command.args([env!("CARGO_BIN_EXE_xt-store"), "3m"]).current_dir(bench.path(""));
    let output = command.env("XT_TRAIN", env!("CARGO_BIN_EXE_xt-stand-in")).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", text(&output));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "full: running", "nothing could be recorded: {}", text(&output));
    assert_ne!(lines[1], "room: lost", "{}", text(&output));
    assert_eq!(lines[3], "identical", "{}", text(&output));
    println!("a store that is full when its run ends: {lines:?}");
}
