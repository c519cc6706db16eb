//! What the tests share: the compiled hostile trainer, and policies around it.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use xt_core::manifest::intent::{Floor, Network, Profile};
use xt_sandbox::{Brought, Ending, Limits, Policy, Running, start};

/// A run's surroundings, where every user can reach them.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    /// With one input, an empty output folder, and the hostile trainer as `hostile`.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("xt-place-").tempdir_in("/tmp").unwrap();
        let place = Self { folder };
        for name in ["", "in", "out"] {
            fs::create_dir_all(place.at(name)).unwrap();
            open_up(&place.at(name), 0o777);
        }
        fs::write(place.at("in/data"), "admitted\n").unwrap();
        open_up(&place.at("in/data"), 0o644);
        copy(&hostile(), &place.at("hostile"));
        open_up(&place.at("hostile"), 0o755);
        place
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A policy for `program` of this place, or for one of the host if it is absolute.
    pub fn policy(&self, profile: Profile, program: &str, arguments: &[&str]) -> Policy {
        let preferred = ["limit.cpu", "limit.memory", "limit.processes"].map(|id| (String::from(id), Floor::Preferred));
        Policy {
            profile,
            floor: BTreeMap::from(preferred),
            program: self.at(program),
            arguments: arguments.iter().map(OsString::from).collect(),
            libraries: Vec::new(),
            root: None,
            digests: BTreeMap::new(),
            inputs: self.at("in"),
            outputs: self.at("out"),
            environment: BTreeMap::new(),
            descriptors: Vec::new(),
            brought: Brought::default(),
            limits: Limits { processes: 400, ..Limits::of(1, 256 << 20, 16 << 20) },
            network: Network::None,
        }
    }

    /// Runs the hostile trainer to its end.
    pub fn run(&self, profile: Profile, arguments: &[&str]) -> (String, Ending) {
        let mut running = start(self.policy(profile, "hostile", arguments)).unwrap_or_else(|error| panic!("{error}"));
        let text = read(&mut running);
        (text, running.finish().unwrap())
    }
}

/// Everything on standard output.
pub fn read(running: &mut Running) -> String {
    let (stdout, stderr) = running.take_streams().unwrap();
    let (mut text, mut errors) = (String::new(), String::new());
    fs::File::from(stdout).read_to_string(&mut text).unwrap();
    fs::File::from(stderr).read_to_string(&mut errors).unwrap();
    text + &errors
}

/// The hostile trainer, compiled once for every test of a program.
pub fn hostile() -> PathBuf {
    static COMPILED: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let compile = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let own = folder.join(format!("hostile-{}", std::process::id()));
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
        let files = ["main.c", "files.c", "powers.c", "nets.c", "loads.c", "deny.c"].map(|name| sources.join(name));
        let done = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&own).args(files).status().unwrap();
        assert!(done.success(), "the hostile trainer does not compile");
        let whole = folder.join("hostile");
        fs::rename(own, &whole).unwrap();
        whole
    };
    COMPILED.get_or_init(compile).clone()
}

pub fn open_up(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Copies a program by another process: a descriptor of ours that is open for writing could be inherited by a child
/// of another test at the wrong moment, and the copy could then not be run ("text file busy").
pub fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
