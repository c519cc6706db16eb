//! A shell as the trainer: real processes, from start to collection.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use xt_core::field::Manifest as _;
use xt_core::manifest::custody::State;
use xt_core::manifest::intent::{Floor, Network, Profile};
use xt_sandbox::{Brought, Limits, Policy, Running, start};

fn policy(folder: &Path, script: &str) -> Policy {
    std::fs::create_dir_all(folder.join("in")).unwrap();
    std::fs::create_dir_all(folder.join("out")).unwrap();
    std::fs::write(folder.join("in/data"), "admitted\n").unwrap();
    Policy {
        profile: Profile::Full,
        floor: BTreeMap::from([
            ("limit.cpu".into(), Floor::Preferred),
            ("limit.memory".into(), Floor::Preferred),
            ("limit.processes".into(), Floor::Preferred),
        ]),
        program: "/bin/dash".into(),
        arguments: vec![OsString::from("-c"), script.into()],
        libraries: Vec::new(),
        root: None,
        digests: BTreeMap::new(),
        inputs: folder.join("in"),
        outputs: folder.join("out"),
        environment: BTreeMap::from([("ONE".into(), "1".into())]),
        descriptors: Vec::new(),
        brought: Brought::default(),
        limits: Limits::of(1, 1 << 30, 1 << 24),
        network: Network::None,
    }
}

fn read(running: &mut Running) -> (String, String) {
    let (stdout, stderr) = running.take_streams().unwrap();
    let mut texts = (String::new(), String::new());
    std::fs::File::from(stdout).read_to_string(&mut texts.0).unwrap();
    std::fs::File::from(stderr).read_to_string(&mut texts.1).unwrap();
    texts
}

#[test]
fn a_shell_reads_its_input_and_leaves_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let script = "read line < /xt/in/data; echo $line $XT_INPUTS $ONE; echo made > made; exit 7";
    let policy = policy(folder.path(), script);
    let (limits, outputs) = (policy.limits, policy.outputs.clone());
    let mut running = start(policy).unwrap_or_else(|error| panic!("{error}: {error:?}"));
    let (stdout, stderr) = read(&mut running);
    let ending = running.finish().unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str(), ending.code), ("admitted /xt/in 1\n", "", Some(7)));
    let collected = ending.outputs.collect(&outputs, &limits).unwrap();
    assert_eq!(collected.files.len(), 1, "{collected:?}");
    assert_eq!(std::fs::read_to_string(outputs.join("made")).unwrap(), "made\n");
}

#[test]
fn two_starts_of_one_policy_give_equal_records() {
    let folder = tempfile::tempdir().unwrap();
    let id = || {
        let running = start(policy(folder.path(), "exit 0")).unwrap_or_else(|error| panic!("{error}: {error:?}"));
        let id = running.custody().id();
        running.finish().unwrap();
        id
    };
    assert_eq!(id(), id());
    let mut other = policy(folder.path(), "exit 0");
    other.environment.insert("TWO".into(), "2".into());
    assert_ne!(start(other).unwrap().custody().id(), id());
}

#[test]
fn the_doctor_finds_what_a_run_finds() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(folder.path(), "exit 0");
    let floor = policy.floor.clone();
    let running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    let custody = xt_sandbox::doctor(Profile::Full, floor).unwrap();
    assert_eq!(custody.controls, running.custody().controls);
    assert_eq!(custody.overall, running.custody().overall);
    assert_eq!(running.finish().unwrap().code, Some(0));
}

#[test]
fn without_a_profile_only_the_limits_hold_and_the_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut policy = policy(folder.path(), "ulimit -c; read line < /etc/passwd && echo read; echo $HOME");
    policy.profile = Profile::None;
    let mut running = start(policy).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read(&mut running).0, "0\nread\n\n");
    let states: Vec<(&str, State)> = running.custody().controls.iter().map(|c| (c.id.as_str(), c.state)).collect();
    assert!(states.contains(&("network.none", State::NotRequested)), "{states:?}");
    assert!(states.contains(&("descriptors.closed", State::Enforced)), "{states:?}");
    assert_eq!(running.finish().unwrap().code, Some(0));
}
