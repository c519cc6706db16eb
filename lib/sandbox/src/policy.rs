//! What a run asks of the sandbox.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::manifest::intent::{Floor, Network, Profile};

/// Where the trainer finds its inputs in the full profile.
pub const INPUTS: &str = "/xt/in";
/// Where the trainer leaves its outputs in the full profile.
pub const OUTPUTS: &str = "/xt/out";
/// Where the program lies in the full profile.
pub const PROGRAMS: &str = "/xt/bin";
/// Where libraries lie that are not the system's, in the full profile: a program with the run path `$ORIGIN/lib`
/// finds them.
pub const LIBRARIES: &str = "/xt/bin/lib";

/// What a run asks of the sandbox.
#[derive(Debug)]
pub struct Policy {
    /// Which set of controls.
    pub profile: Profile,
    /// Per control, whether the trainer may start without it. Controls not named are required.
    pub floor: BTreeMap<String, Floor>,
    /// The program to run, on the host. In the full profile it appears as `/xt/bin/` and its file name.
    pub program: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
    /// Files it loads, on the host. Those in a system library folder appear at the same path, others in
    /// `/xt/bin/lib`. Libraries needed by these or by the program and not listed are looked for in the system's
    /// folders only.
    pub libraries: Vec<PathBuf>,
    /// A folder on the host that stands for the file system of another: in the full profile, program and libraries below it
    /// lie where they lie in it, the loader among them, and nothing of this system is looked for.
    pub root: Option<PathBuf>,
    /// Digests of files above that the caller has already computed; the others are computed here.
    pub digests: BTreeMap<PathBuf, Digest>,
    /// A host folder that the trainer may read: `/xt/in` in the full profile. Under root, the files must be readable
    /// for others, because the trainer runs as another user.
    pub inputs: PathBuf,
    /// A fresh host folder for the outputs. In the full profile the trainer writes to memory at `/xt/out`, and
    /// [`crate::Outputs::collect`] brings the files here; otherwise it writes here directly.
    pub outputs: PathBuf,
    /// The whole environment. `XT_INPUTS` and `XT_OUTPUTS` are set by the sandbox, to the two folders as the trainer
    /// sees them. Without a mount namespace `LD_LIBRARY_PATH` is set to the folders of `libraries`.
    pub environment: BTreeMap<String, String>,
    /// Descriptors to hand over, each with its number in the trainer (3 and above). Every other one is closed; 0 is
    /// `/dev/null`, 1 and 2 are pipes.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// What a program brought as it is needs beside its libraries.
    pub brought: Brought,
    /// Limits.
    pub limits: Limits,
    /// The network that the program gets. `loopback` takes the full profile.
    pub network: Network,
}

/// What a program brought as it is needs beside its libraries.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    /// Where the program appears in the full profile; `/xt/bin/` and its file name when absent. Programs that look for
    /// their files beside themselves must keep their place, and so do their libraries: all of them lie where they lie on
    /// the host, behind the same symbolic links, and nothing is looked for that is not listed.
    pub program_at: Option<PathBuf>,
    /// Files and folders that it reads or runs, each at its own place.
    pub roots: Vec<Root>,
}

/// A file or folder of the host that a program needs.
#[derive(Clone, Debug)]
pub struct Root {
    /// Where it lies on the host, and where the program finds it.
    pub path: PathBuf,
    /// Digest of its content, for the record; the caller has computed it.
    pub digest: Digest,
    /// Whether programs in it may be started.
    pub execute: bool,
}

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, outputs in memory included.
    pub memory_bytes: u64,
    /// Bytes of outputs.
    pub storage_bytes: u64,
    /// Files and folders among the outputs.
    pub file_count: u64,
    /// Processors that may be busy at a time.
    pub cores: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Processor seconds of one process; no limit when absent.
    pub cpu_seconds: Option<u64>,
}

impl Limits {
    /// Limits for `cores` computing threads: an OpenMP runtime starts 2·n − 1 threads for n, and the trainer has a
    /// few of its own.
    pub const fn of(cores: u64, memory_bytes: u64, storage_bytes: u64) -> Self {
        Self {
            memory_bytes,
            storage_bytes,
            file_count: 65_536,
            cores,
            processes: 32 + 4 * cores,
            open_files: 1024,
            cpu_seconds: None,
        }
    }
}

impl Policy {
    /// Whether the trainer gets a file system of its own.
    pub(crate) fn own_root(&self) -> bool {
        self.profile == Profile::Full
    }

    /// The program as the trainer sees it.
    pub fn program_inside(&self) -> PathBuf {
        if let Some(at) = self.in_root(&self.program) {
            return at;
        }
        match &self.brought.program_at {
            Some(at) if self.own_root() => at.clone(),
            None if self.own_root() => Path::new(PROGRAMS).join(self.program.file_name().unwrap_or_default()),
            _ => self.program.clone(),
        }
    }

    /// Where a file of the other system's folder lies, as the trainer sees it.
    pub(crate) fn in_root(&self, path: &Path) -> Option<PathBuf> {
        let root = self.root.as_ref().filter(|_| self.own_root())?;
        Some(Path::new("/").join(path.strip_prefix(root).ok()?))
    }

    /// The input folder as the trainer sees it.
    pub fn inputs_inside(&self) -> &Path {
        if self.own_root() { Path::new(INPUTS) } else { &self.inputs }
    }

    /// The output folder as the trainer sees it.
    pub fn outputs_inside(&self) -> &Path {
        if self.own_root() { Path::new(OUTPUTS) } else { &self.outputs }
    }
}
