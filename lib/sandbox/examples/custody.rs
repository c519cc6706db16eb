//! What custody costs, for `benches/custody`. `custody compare ROUNDS FOLDER` times `/bin/true` bare, through the whole
//! stack with every probe, and through bubblewrap's strict invocation, interleaved; `custody run PROFILE FOLDER PROGRAM
//! [LIBRARY…]` runs a program once. FOLDER has the folders `in` and `out`. As in `xt-run`, the digests of the program and
//! its libraries are known beforehand, unless `XT_HASH` is set.
#![allow(clippy::unwrap_used, reason = "a measurement, run by hand")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use xt_core::digest::Digest;
use xt_core::manifest::intent::{Floor, Network, Profile};
use xt_sandbox::{Brought, Limits, Policy, start};

/// Everything unshared, and what a trainer needs: the system's libraries, devices, processes, inputs and outputs.
const STRICT: [&str; 18] = [
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
];
const TRUE: &str = "/usr/bin/true";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["compare", rounds, folder] => compare(rounds.parse().unwrap(), Path::new(folder)),
        ["run", profile, folder, program, libraries @ ..] => {
            custody(Path::new(folder), Profile::parse(profile).unwrap(), program, libraries);
        }
        _ => panic!("usage: custody compare ROUNDS FOLDER, or custody run PROFILE FOLDER PROGRAM [LIBRARY…]"),
    }
}

/// Prints every time in milliseconds, a line for each way.
fn compare(rounds: usize, folder: &Path) {
    let libraries = needed(TRUE);
    let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for _ in 0..rounds {
        let mut measure = |name, act: &mut dyn FnMut()| {
            let started = Instant::now();
            act();
            times.entry(name).or_default().push(started.elapsed().as_secs_f64() * 1000.0);
        };
        measure("bare", &mut || run(&mut Command::new(TRUE)));
        if Path::new("/usr/bin/bwrap").exists() {
            measure("bubblewrap", &mut || run(&mut bubblewrap(folder)));
        }
        measure("full", &mut || custody(folder, Profile::Full, TRUE, &libraries));
        measure("in-container", &mut || custody(folder, Profile::InContainer, TRUE, &libraries));
    }
    for (name, times) in times {
        println!("{name} {}", times.iter().map(|time| format!("{time:.3}")).collect::<Vec<_>>().join(" "));
    }
}

fn run(command: &mut Command) {
    assert!(command.stdout(Stdio::null()).status().unwrap().success(), "{command:?}");
}

fn bubblewrap(folder: &Path) -> Command {
    let mut command = Command::new("/usr/bin/bwrap");
    command.args(STRICT).arg("/dev");
    command.arg("--ro-bind").arg(folder.join("in")).arg("/in").arg("--bind").arg(folder.join("out")).arg("/out");
    command.args([TRUE, "--version"]);
    command
}

/// The libraries of a program, as its loader lists them.
fn needed(program: &str) -> Vec<String> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(String::from).collect()
}

fn custody(folder: &Path, profile: Profile, program: &str, libraries: &[&str]) {
    let libraries: Vec<PathBuf> = libraries.iter().map(PathBuf::from).collect();
    let hash = std::env::var_os("XT_HASH").is_some();
    let known = libraries.iter().cloned().chain([program.into()]).filter(|_| !hash);
    let policy = Policy {
        profile,
        floor: ["limit.cpu", "limit.memory", "limit.processes"].map(|id| (String::from(id), Floor::Preferred)).into(),
        program: program.into(),
        arguments: vec!["--version".into()],
        root: None,
        digests: known.map(|path| (path, Digest::of(b"known"))).collect(),
        libraries,
        inputs: folder.join("in"),
        outputs: folder.join("out"),
        environment: BTreeMap::new(),
        descriptors: Vec::new(),
        brought: Brought::default(),
        limits: Limits::of(1, 4 << 30, 1 << 24),
        network: Network::None,
    };
    let ending = start(policy).unwrap_or_else(|error| panic!("{error}")).finish().unwrap();
    assert_eq!(ending.code, Some(0), "{ending:?}");
}
