//! The program of a command on this host: found and hashed when its plan is compiled, and held against the plan when it
//! is to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::command::{Command, Pin, PinnedRoot, Program, Trainer};
use xt_core::manifest::replay::PinDifference;
use xt_core::manifest::run::Stack;
use xt_core::verb::compare;

use crate::digests::Digests;
use crate::error::RuntimeError;
use crate::listing::{self, Listing};
use crate::worker::{self, Worker};

/// The program that `command` declares, as it is on this host now. Everything that is wrong is reported at once.
pub fn find(command: &Command, digests: &mut Digests) -> Result<Program, RuntimeError> {
    let Trainer::Command { executable, roots, .. } = &command.trainer;
    let mut faults = Faults::new();
    let mut needed = BTreeSet::new();
    let worker = noted("/trainer/executable", Worker::libraries_of(Path::new(executable)), &mut faults)?;
    let mut found = Vec::new();
    for (index, root) in roots.iter().enumerate() {
        let at = format!("/trainer/roots/{index}/path");
        let listing = Listing::of(Path::new(&root.path), digests);
        let Some(listing) = noted(&at, listing, &mut faults)? else { continue };
        needed.extend(listing.needed());
        let Listing { digest, files, bytes, .. } = listing;
        found.push(PinnedRoot { path: root.path.clone(), digest, execute: root.execute, files, bytes });
    }
    let Some(mut libraries) = worker.filter(|_| faults.is_empty()) else { return Err(RuntimeError::Refused(faults)) };
    libraries.extend(system_libraries(needed, &libraries)?);
    let pin = |path: &Path, digests: &mut Digests| -> Result<Pin, RuntimeError> {
        let digest = listing::digest_of(path, digests)?;
        Ok(Pin { path: path.to_string_lossy().into_owned(), digest })
    };
    let executable = pin(Path::new(executable), digests)?;
    let libraries: BTreeSet<PathBuf> = libraries.into_iter().collect();
    let libraries = libraries.iter().map(|path| pin(path, digests)).collect::<Result<Vec<_>, _>>()?;
    digests.keep();
    Ok(Program { executable, libraries, roots: found })
}

/// What the programs and libraries in the roots need of the system, and what that needs. A name that is nowhere is none
/// of ours: a module that nobody loads may lack its library.
fn system_libraries(needed: BTreeSet<String>, known: &[PathBuf]) -> Result<Vec<PathBuf>, RuntimeError> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut seen: BTreeSet<String> = known.iter().map(|path| name(path)).collect();
    let (mut unread, mut found): (Vec<String>, _) = (needed.into_iter().collect(), Vec::new());
    while let Some(wanted) = unread.pop() {
        let path = if seen.insert(wanted.clone()) { xt_sandbox::system_library(&wanted) } else { None };
        let Some(path) = path else { continue };
        let needs = xt_sandbox::needs(&path).map_err(crate::error::file("read", &path))?;
        unread.extend(needs.libraries);
        found.push(path);
    }
    Ok(found)
}

/// What is wrong with the host's files is a fault of the candidate that names them.
fn noted<T>(at: &str, result: Result<T, RuntimeError>, faults: &mut Faults) -> Result<Option<T>, RuntimeError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (RuntimeError::Worker { .. } | RuntimeError::Root { .. } | RuntimeError::File { .. })) => {
            faults.add(at, "command.host", error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Every pin of `program` that this host does not meet.
pub fn differences(program: &Program, digests: &mut Digests) -> Vec<PinDifference> {
    let executable = [(format!("executable {}", program.executable.path), &program.executable)];
    let libraries = program.libraries.iter().map(|pin| (format!("library {}", pin.path), pin));
    let files = executable.into_iter().chain(libraries);
    let mut found: Vec<PinDifference> = files
        .filter_map(|(what, pin)| differing(what, pin.digest, listing::digest_of(Path::new(&pin.path), digests)))
        .collect();
    found.extend(roots_differing(program, digests));
    digests.keep();
    found
}

/// Every pin of `program` that this host does not meet, and then what of the recorded machine it does not.
pub fn held(program: &Program, recorded: &Stack, store: &Path) -> (Vec<PinDifference>, Vec<PinDifference>) {
    let host = compare::stacks(recorded, &worker::here(recorded));
    (differences(program, &mut Digests::open(store)), host)
}

fn roots_differing(program: &Program, digests: &mut Digests) -> Vec<PinDifference> {
    let of = |root: &PinnedRoot, digests: &mut Digests| {
        let now = Listing::of(Path::new(&root.path), digests).map(|listing| listing.digest);
        differing(format!("root {}", root.path), root.digest, now)
    };
    program.roots.iter().filter_map(|root| of(root, digests)).collect()
}

fn differing(what: String, recorded: Digest, now: Result<Digest, RuntimeError>) -> Option<PinDifference> {
    let now = now.map_or_else(|error| error.to_string(), |digest| digest.to_string());
    let recorded = recorded.to_string();
    (now != recorded).then_some(PinDifference { what, recorded, now })
}

/// The program of a command that is to run: its files held open, its roots known by digest.
#[derive(Debug)]
pub(crate) struct Brought {
    /// The executable and its libraries.
    pub(crate) worker: Worker,
    program: Program,
    store: PathBuf,
    /// Files that were not read again.
    pub(crate) cached: u64,
}

impl Brought {
    /// The program, once everything that its plan pins was found to be there.
    pub(crate) fn open(program: &Program, store: &Path) -> Result<Self, RuntimeError> {
        let mut digests = Digests::open(store);
        let paths = program.libraries.iter().map(|pin| PathBuf::from(&pin.path)).collect();
        let worker = Worker::known(Path::new(&program.executable.path), paths, &mut digests)?;
        let differing = differences_of(program, &worker, &mut digests);
        digests.keep();
        if differing.is_empty() {
            let cached = digests.cached();
            return Ok(Self { worker, program: program.clone(), store: store.into(), cached });
        }
        Err(RuntimeError::Pins(differing))
    }

    /// What is no longer what was hashed. Asked at the end of a run.
    pub(crate) fn altered(&mut self) -> Result<Option<PathBuf>, RuntimeError> {
        if let Some(path) = self.worker.altered()? {
            return Ok(Some(path));
        }
        let mut digests = Digests::open(&self.store);
        for root in &self.program.roots {
            let path = PathBuf::from(&root.path);
            if Listing::of(&path, &mut digests)?.digest != root.digest {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// What the sandbox has to bring in.
    pub(crate) fn brought(&self) -> xt_sandbox::Brought {
        let root = |root: &PinnedRoot| xt_sandbox::Root {
            path: PathBuf::from(&root.path),
            digest: root.digest,
            execute: root.execute,
        };
        xt_sandbox::Brought {
            program_at: Some(PathBuf::from(&self.program.executable.path)),
            roots: self.program.roots.iter().map(root).collect(),
        }
    }
}

/// Every pin that is not met, for files that are open already.
fn differences_of(program: &Program, worker: &Worker, digests: &mut Digests) -> Vec<PinDifference> {
    let files = std::iter::once(&program.executable).chain(&program.libraries);
    let now = |path: &str| worker.digests.get(Path::new(path)).copied();
    let differing = files.filter(|pin| now(&pin.path) != Some(pin.digest)).map(|pin| PinDifference {
        what: format!("file {}", pin.path),
        recorded: pin.digest.to_string(),
        now: now(&pin.path).map_or_else(|| "none".into(), |digest| digest.to_string()),
    });
    let found: Vec<PinDifference> = differing.collect();
    found.into_iter().chain(roots_differing(program, digests)).collect()
}

/// The digests of a worker's files by the place where each really lies, beside the place where it is looked for.
pub(crate) fn with_targets(digests: &BTreeMap<PathBuf, Digest>) -> BTreeMap<PathBuf, Digest> {
    let targets = digests.iter().filter_map(|(path, digest)| Some((path.canonicalize().ok()?, *digest)));
    digests.clone().into_iter().chain(targets).collect()
}
