//! What a host can enforce: asked of it (`xt-run doctor`), and demanded by a plan, in worlds that grant less, as container
//! engines and older kernels do.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bench::{Bench, Ended};
use xt_core::canonical;
use xt_core::field::Manifest as _;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::intent::{Network, Profile};
use xt_core::manifest::run::Status;
use xt_core::verb::custody::{CONTROLS, asked, residue};

/// What a world is without.
const WORLDS: [&str; 2] = ["namespaces", "landlock"];

/// The hostile trainer of the sandbox's own tests, which can also start others in a poorer world.
fn hostile() -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib/sandbox/tests/hostile");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("deny-{}", std::process::id()));
    let files = ["main.c", "files.c", "powers.c", "nets.c", "loads.c", "deny.c"].map(|name| sources.join(name));
    if !program.exists() {
        let partial = program.with_extension(format!("{:?}", std::thread::current().id()));
        let done = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&partial).args(files).status().unwrap();
        assert!(done.success(), "the hostile trainer does not compile");
        std::fs::rename(partial, &program).unwrap();
    }
    program
}

/// The same command in a world without `what`.
fn without(what: &str, command: &Command) -> Command {
    let mut poorer = Command::new(hostile());
    poorer.args(["deny", what]).arg(command.get_program()).args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        poorer.env(name, value.unwrap_or_default());
    }
    poorer
}

/// `xt-run doctor` with an empty environment, in an empty folder.
fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-run"));
    command.arg("doctor").args(arguments).env_clear();
    command
}

fn record(output: &Output) -> Custody {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    let value = canonical::parse(text.trim_end().as_bytes()).unwrap();
    assert_eq!(text, value.canonical() + "\n", "one canonical line");
    Custody::decode(&value).unwrap()
}

fn state(custody: &Custody, id: &str) -> State {
    custody.controls.iter().find(|control| control.id == id).unwrap().state
}

#[test]
fn the_doctor_shows_every_control_and_needs_neither_store_nor_plan() {
    let folder = tempfile::tempdir().unwrap();
    for profile in ["full", "in-container", "none"] {
        let output = doctor(&["--profile", profile]).current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{text}");
        for control in CONTROLS {
            let row =
                text.lines().find(|line| line.starts_with(control)).unwrap_or_else(|| panic!("{control}: {text}"));
            let promised = asked(Profile::parse(profile).unwrap(), Network::None, control);
            assert_eq!(row.split_whitespace().nth(1) == Some("no"), !promised, "{row}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 160 && line == line.trim_end()), "{text}");
        assert!(text.trim_end().ends_with("xt-run would start."), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was left behind");
}

#[test]
fn the_doctor_finds_in_a_document_what_a_run_finds() {
    let output = doctor(&["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let found = record(&output);
    let bench = Bench::new();
    let run = bench.run(&bench.plan("", 3), &[]).run(Status::Succeeded, 0);
    let custody = bench.custody(&run);
    assert_eq!(found.controls, custody.controls);
    assert_eq!((found.profile, &found.host, found.overall), (custody.profile, &custody.host, custody.overall));
    assert!(found.mounts.iter().all(|mount| mount.digest.is_none() || mount.at == "/xt/in"));
    // The control: another profile is another answer.
    assert_ne!(record(&doctor(&["--json", "--profile", "none"]).output().unwrap()).controls, custody.controls);
}

#[test]
fn a_profile_that_does_not_exist_is_a_wrong_command_line() {
    let output = doctor(&["--profile", "fool"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("in-container"));
}

#[test]
fn the_doctor_says_what_a_poorer_host_lacks_and_what_to_do() {
    for world in WORLDS {
        let output = without(world, &doctor(&[])).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(13), "{world}: {text}");
        assert!(text.contains("what to do: ") && text.contains("xt-run would start nothing"), "{world}: {text}");
        let custody = record(&without(world, &doctor(&["--json"])).output().unwrap());
        assert_ne!(custody.overall, State::Enforced, "{world}");
        let own = if world == "namespaces" { "limit.files" } else { "filesystem.read" };
        assert_ne!(state(&custody, own), State::Enforced, "{world}");
    }
    let weaker = without("namespaces", &doctor(&["--profile", "in-container"])).output().unwrap();
    assert_eq!(weaker.status.code(), Some(0), "{}", String::from_utf8_lossy(&weaker.stdout));
    let neither = without("landlock", &doctor(&["--profile", "in-container"])).output().unwrap();
    assert_eq!(neither.status.code(), Some(13));
}

#[test]
fn a_plan_that_demands_more_than_a_poorer_host_grants_starts_nothing() {
    for world in WORLDS {
        for profile in [Profile::Full, Profile::InContainer] {
            let bench = Bench::new();
            open_up(&bench.path(""));
            let plan = bench.plan_with("", 3, |intent| intent.isolation.profile = profile);
            let file = bench.write("plan.json", &plan);
            let ended = Ended::of(without(world, &bench.xt_run(&[&file])).output().unwrap());
            if (world, profile) == ("namespaces", Profile::InContainer) {
                is_truthful(&bench.custody(&ended.run(Status::Succeeded, 0)));
                continue;
            }
            let run = ended.run(Status::NotStarted, 13);
            assert!(run.cause.contains(world), "{world}, {profile}: {}", run.cause);
            assert_eq!(
                (run.trace.is_none(), run.artifacts.len()),
                (true, 0),
                "{world}, {profile}: nothing was computed"
            );
            assert!(ended.stderr.contains("custody") || ended.stderr.contains(world), "{}", ended.stderr);
            let custody = bench.custody(&run);
            assert!(custody.overall > State::Enforced && custody.profile == profile, "{custody:?}");
        }
    }
}

/// Case B-02: a container whose engine covers parts of /proc, in which the kernel grants no fresh one.
#[test]
fn b_02_a_covered_proc_is_refused_or_gone_without_and_said() {
    let within = |cover: &str, command: &Command| {
        let mut inner = Command::new("unshare");
        inner.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        inner.arg(format!("{cover} exec \"$0\" \"$@\"")).arg(command.get_program()).args(command.get_args());
        inner.env_clear().env("PATH", "/usr/bin:/bin");
        for (name, value) in command.get_envs() {
            inner.env(name, value.unwrap_or_default());
        }
        inner.output().unwrap()
    };
    // As engines do. (/proc/sys has what names the boot, without which no supervisor comes up.)
    let cover = "mount -t tmpfs none /proc/irq &&";
    let output = within(cover, &doctor(&["--json"]));
    if !output.status.success() && output.stdout.is_empty() {
        println!("not run here: this host grants no nested namespaces: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert_eq!(output.status.code(), Some(13));
    let custody = record(&output);
    let control = custody.controls.iter().find(|control| control.id == "process.isolated").unwrap();
    assert_eq!(control.state, State::Partial);
    assert!(control.missing.iter().any(|text| text.contains("no fresh /proc")), "{control:?}");
    // What of other processes could be read or signalled is out of reach all the same: the host's /proc is not there.
    assert!(control.proof.iter().all(|probe| probe.inside != "OK"), "{control:?}");
    // The control: where nothing is covered, the same start finds nothing missing.
    let open = record(&within("", &doctor(&["--json"])));
    assert_eq!(state(&open, "process.isolated"), State::Enforced);
    // A plan that demands it starts nothing.
    let bench = Bench::new();
    let file = bench.write("plan.json", &bench.plan("", 3));
    let run = Ended::of(within(cover, &bench.xt_run(&[&file]))).run(Status::NotStarted, 13);
    assert!(run.cause.contains("no fresh /proc"), "{}", run.cause);
}

/// A record of the weaker profile claims no namespace, and names everything that the profile leaves open.
fn is_truthful(custody: &Custody) {
    assert_eq!(custody.profile, Profile::InContainer);
    assert!(!custody.principal.user_namespace && custody.overall > State::Enforced);
    for control in &custody.controls {
        assert!(control.mechanisms.iter().all(|name| !name.ends_with(" namespace")), "{control:?}");
        for open in residue(Profile::InContainer, &control.id) {
            assert!(control.missing.iter().any(|text| text == open), "{control:?}");
            assert_ne!(control.state, State::Enforced);
        }
    }
    for id in ["network.none", "privileges.none", "process.isolated", "credentials.none", "calls.filtered"] {
        assert_eq!(state(custody, id), State::Enforced, "{id}");
    }
}

fn open_up(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}
