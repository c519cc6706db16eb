//! What custody costs: `/bin/true` bare, through the whole stack with every probe, and through bubblewrap's strict
//! invocation where it is installed; interleaved, in milliseconds. `cargo run -p xt-sandbox --example measure [RUNS]`.
#![allow(clippy::unwrap_used, reason = "a measurement, run by hand")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use xt_core::manifest::intent::{Floor, Profile};
use xt_sandbox::{Brought, Limits, Policy, start};

const BUBBLEWRAP: [&str; 17] = [
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
];

fn main() {
    let runs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(40);
    let folder = tempfile::tempdir().unwrap();
    for name in ["in", "out"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let bubblewrap = Command::new("bwrap").arg("--version").output().is_ok();
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..runs {
        times[0].push(timed(|| assert!(Command::new("/bin/true").status().unwrap().success())));
        times[1].push(timed(|| custody(folder.path(), Profile::Full)));
        times[2].push(timed(|| custody(folder.path(), Profile::InContainer)));
        if bubblewrap {
            let mut command = Command::new("bwrap");
            command.args(BUBBLEWRAP).arg("/usr/bin/true");
            times[3].push(timed(|| assert!(command.status().unwrap().success())));
        }
    }
    for (name, times) in ["bare", "full", "in-container", "bubblewrap, strict"].iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        if let (Some(least), Some(median)) = (times.first(), times.get(times.len() / 2)) {
            println!("{name}: median {median:.2} ms, least {least:.2} ms, {} runs", times.len());
        }
    }
}

fn timed(act: impl FnOnce()) -> f64 {
    let started = Instant::now();
    act();
    started.elapsed().as_secs_f64() * 1000.0
}

fn custody(folder: &Path, profile: Profile) {
    let preferred = ["limit.memory", "limit.processes"].map(|id| (String::from(id), Floor::Preferred));
    let policy = Policy {
        profile,
        floor: BTreeMap::from(preferred),
        program: "/usr/bin/true".into(),
        arguments: Vec::new(),
        libraries: Vec::new(),
        digests: BTreeMap::new(),
        inputs: folder.join("in"),
        outputs: folder.join("out"),
        environment: BTreeMap::new(),
        descriptors: Vec::new(),
        brought: Brought::default(),
        limits: Limits::of(1, 1 << 30, 1 << 24),
    };
    let ending = start(policy).unwrap_or_else(|error| panic!("{error}")).finish().unwrap();
    assert_eq!(ending.code, Some(0));
}
