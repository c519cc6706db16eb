//! What enters the trainer's file system: the program, its libraries and its loader, each by path and content.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use xt_core::digest::{Digest, Hasher};

use crate::cache::CACHE;
use crate::error::{SandboxError, errno};
use crate::policy::{LIBRARIES, Policy};
use crate::{brought, cache, elf};

/// Where the system's loader looks when it has no cache (ld.so(8)), in the order of Debian's and then others'.
pub(crate) const SYSTEM: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// A file that enters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Where it lies on the host, without symbolic links.
    pub(crate) source: PathBuf,
    /// How it was named.
    path: PathBuf,
    /// Where the trainer sees it.
    pub(crate) at: PathBuf,
    /// Whether it may be executed: the program and the loader.
    pub(crate) runs: bool,
    /// Paths that must lead to it inside as they do on the host; for a program brought as it is.
    pub(crate) ways: Vec<PathBuf>,
}

impl Admitted {
    /// A file that is only read.
    pub(crate) fn at(source: PathBuf, path: &Path, at: PathBuf) -> Self {
        Self { source, path: path.into(), at, runs: false, ways: Vec::new() }
    }
}

/// Everything the program loads and everything listed, sorted by where the trainer sees it.
pub(crate) fn admit(policy: &Policy) -> Result<Vec<Admitted>, SandboxError> {
    if policy.own_root() && policy.brought.program_at.is_some() {
        return brought::admit(policy);
    }
    let mut admission = Admission { policy, places: BTreeMap::new(), seen: BTreeSet::new() };
    admission.places.insert(policy.program_inside(), (policy.program.clone(), true));
    for library in &policy.libraries {
        admission.places.insert(inside(policy, library), (library.clone(), loads(library)));
    }
    admission.follow(&policy.program, true)?;
    // What is listed and not loaded by the program may be opened later, or never: its own needs are not fatal.
    policy.libraries.iter().try_for_each(|library| admission.follow(library, false))?;
    if cache::needs_hosts(policy) {
        admission.places.insert(CACHE.into(), (CACHE.into(), false));
    }
    admission.sources()
}

struct Admission<'a> {
    policy: &'a Policy,
    /// By the place inside: the source, and whether it may be executed.
    places: BTreeMap<PathBuf, (PathBuf, bool)>,
    seen: BTreeSet<PathBuf>,
}

impl Admission<'_> {
    /// Admits what the file at `start` needs, and what that needs. A library that is nowhere is an error if it is
    /// `needed`.
    fn follow(&mut self, start: &Path, needed: bool) -> Result<(), SandboxError> {
        let mut unread = vec![start.to_path_buf()];
        while let Some(path) = unread.pop() {
            if !self.seen.insert(path.clone()) {
                continue;
            }
            let needs = elf::needs(&path).map_err(|error| unreadable(self.policy, "reading", &path, &error))?;
            for name in needs.libraries {
                match self.find(&name) {
                    Some(found) => unread.push(found),
                    None if needed => return Err(SandboxError::Library { program: self.policy.program.clone(), name }),
                    None => {}
                }
            }
            if let Some(loader) = needs.loader.map(PathBuf::from) {
                // One of another system stands there already.
                self.places.entry(loader.clone()).or_insert((loader, true));
            }
        }
        Ok(())
    }

    /// The source of a library: admitted already, or in a folder of the system, and then admitted now.
    fn find(&mut self, name: &str) -> Option<PathBuf> {
        let same = |at: &Path| at.file_name().is_some_and(|file| file == name);
        if let Some((_, (source, _))) = self.places.iter().find(|(at, _)| same(at)) {
            return Some(source.clone());
        }
        let found = system_library(name).filter(|_| self.policy.root.is_none())?;
        self.places.insert(found.clone(), (found.clone(), loads(&found)));
        Some(found)
    }

    fn sources(self) -> Result<Vec<Admitted>, SandboxError> {
        let one = |(at, (path, runs)): (&PathBuf, &(PathBuf, bool))| {
            let source = path.canonicalize().map_err(|error| unreadable(self.policy, "opening", path, &error))?;
            Ok(Admitted { runs: *runs, ..Admitted::at(source, path, at.clone()) })
        };
        self.places.iter().map(one).collect()
    }
}

pub(crate) fn unreadable(policy: &Policy, doing: &str, path: &Path, error: &std::io::Error) -> SandboxError {
    let stage = format!("{doing} {}", path.display());
    SandboxError::NotStarted { program: policy.program.clone(), stage, errno: errno(error) }
}

/// SHA-256 of the bytes of every admitted file, in their order: as the caller has computed it, or computed here, which
/// takes a while and can be done while a sandbox is being built.
pub(crate) fn digests(policy: &Policy, admitted: &[Admitted]) -> Result<Vec<Digest>, SandboxError> {
    let one = |file: &Admitted| {
        let known = policy.digests.get(&file.path).or_else(|| policy.digests.get(&file.source)).copied();
        let digest = known.map_or_else(|| digest_of(&file.source), Ok);
        digest.map_err(|error| unreadable(policy, "reading", &file.source, &error))
    };
    admitted.iter().map(one).collect()
}

/// Where the system's loader finds the library `name` when it has no cache.
pub fn system_library(name: &str) -> Option<PathBuf> {
    SYSTEM.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Where the trainer sees a library.
fn inside(policy: &Policy, library: &Path) -> PathBuf {
    if let Some(at) = policy.in_root(library) {
        return at;
    }
    let system = library.parent().is_some_and(|folder| SYSTEM.iter().any(|known| folder == Path::new(known)));
    if system || !policy.own_root() {
        return library.to_path_buf();
    }
    Path::new(LIBRARIES).join(library.file_name().unwrap_or_default())
}

/// Whether a file is a loader, which the kernel executes.
pub(crate) fn loads(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-linux"))
}

/// SHA-256 of the file at `path`.
fn digest_of(path: &Path) -> std::io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new();
    // Small enough to stay in the processor's cache between reading and hashing.
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Checks what no kernel would: that the policy makes sense.
pub(crate) fn check(policy: &Policy) -> Result<(), SandboxError> {
    let refuse = |text: &str| Err(SandboxError::Policy(text.into()));
    let mut targets: Vec<i32> = policy.descriptors.iter().map(|(_, target)| *target).collect();
    targets.sort_unstable();
    if targets.windows(2).any(|pair| pair[0] == pair[1]) || targets.first().is_some_and(|target| *target < 3) {
        return refuse("each descriptor needs a number of its own, 3 or above");
    }
    if targets.last().is_some_and(|target| *target > 99) {
        return refuse("descriptors are numbered 3 to 99");
    }
    if [&policy.program, &policy.inputs, &policy.outputs].iter().any(|path| !path.is_absolute()) {
        return refuse("program, inputs and outputs are absolute paths");
    }
    let text = |value: &str| value.contains('\0');
    if policy.environment.iter().any(|(key, value)| text(key) || text(value) || key.contains('=') || key.is_empty()) {
        return refuse("names and values of the environment hold no zero byte, and names no `=`");
    }
    match std::fs::metadata(&policy.program) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => not_started(policy, Errno::EACCES),
        Err(error) => not_started(policy, errno(&error)),
    }
}

fn not_started(policy: &Policy, errno: Errno) -> Result<(), SandboxError> {
    Err(SandboxError::NotStarted { program: policy.program.clone(), stage: "opening the program".into(), errno })
}
