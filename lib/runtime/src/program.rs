//! The program of a command on this host: found and hashed when its plan is compiled, and held against the plan when it
//! is to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::command::{Command, Pin, PinnedRoot, Program, Root, Trainer};
use xt_core::manifest::intent::Profile;
use xt_core::manifest::replay::PinDifference;
use xt_core::manifest::run::Stack;
use xt_core::verb::command::RESERVED;
use xt_core::verb::compare;
use xt_sandbox::Search;

use crate::digests::Digests;
use crate::error::{RuntimeError, file};
use crate::listing::{self, Listing};
use crate::worker::{self, Worker};
use crate::{loader, readable};

/// The program that `command` declares, as it is on this host now, for a run under `profile`. Everything that is wrong is
/// reported at once.
pub fn find(command: &Command, profile: Profile, digests: &mut Digests) -> Result<Program, RuntimeError> {
    let Trainer::Command { executable, roots, .. } = &command.trainer;
    let (mut faults, program) = (Faults::new(), Path::new(executable));
    let loaded = noted("/trainer/executable", libraries_of(program), &mut faults)?.unwrap_or_default();
    let mut found = Vec::new();
    let mut search = noted("/trainer/executable", search(program, &loaded), &mut faults)?;
    for (index, root) in roots.iter().enumerate() {
        let at = format!("/trainer/roots/{index}/path");
        let before = faults.0.len();
        readable::root(&at, root, profile, &mut faults);
        reserved(&at, Path::new(&root.path), &mut faults);
        if faults.0.len() > before {
            continue;
        }
        let listing = Listing::of(Path::new(&root.path), digests);
        let Some(listing) = noted(&at, listing, &mut faults)? else { continue };
        if let Some(search) = &mut search {
            listing.binaries.iter().for_each(|path| search.follow(path));
        }
        let Listing { digest, files, bytes, .. } = listing;
        found.push(PinnedRoot { path: root.path.clone(), digest, execute: root.execute, files, bytes });
    }
    let outside = search.map(|search| outside_roots(search, roots, &loaded, &mut faults)).unwrap_or_default();
    let libraries: BTreeSet<PathBuf> = loaded.into_iter().chain(outside).collect();
    readable::files(program, &libraries, profile, &mut faults);
    if !faults.is_empty() {
        return Err(RuntimeError::Refused(faults));
    }
    let pin = |path: &Path, digests: &mut Digests| -> Result<Pin, RuntimeError> {
        let digest = listing::digest_of(path, digests)?;
        Ok(Pin { path: path.to_string_lossy().into_owned(), digest })
    };
    let executable = pin(program, digests)?;
    let libraries = libraries.iter().map(|path| pin(path, digests)).collect::<Result<Vec<_>, _>>()?;
    digests.keep();
    Ok(Program { executable, libraries, roots: found })
}

/// The libraries that the loader of this host takes for a program. It starts from where the program really lies.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, RuntimeError> {
    let real = program.canonicalize().map_err(file("open", program))?;
    let libraries = loader::libraries(&real, None)?;
    let why = "has a name that is not UTF-8";
    let odd = libraries.iter().find(|path| path.to_str().is_none());
    odd.map_or(Ok(()), |path| Err(RuntimeError::Root { path: path.clone(), why }))?;
    Ok(libraries)
}

fn search(program: &Path, loaded: &[PathBuf]) -> Result<Search, RuntimeError> {
    let real = program.canonicalize().map_err(file("open", program))?;
    Search::of(&real, loaded).map_err(file("read", program))
}

/// What the programs and libraries in the roots need and no root holds, and what only the loader's cache leads to. Under
/// one name the cache can lead to one file.
fn outside_roots(search: Search, roots: &[Root], loaded: &[PathBuf], faults: &mut Faults) -> Vec<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    let folders: Vec<PathBuf> = roots.iter().map(|root| real(Path::new(&root.path))).collect();
    let found = search.found();
    for path in found.iter().filter(|(_, by_cache)| **by_cache).map(|(path, _)| path) {
        let others = found.keys().chain(loaded);
        let mut alike = others.filter(|other| other.file_name() == path.file_name() && real(other) != real(path));
        if let Some(other) = alike.next() {
            let message = format!(
                "{} is found through the loader's cache, and {} by another way; custody offers one library of a name",
                path.display(),
                other.display()
            );
            faults.add("/trainer/roots", "command.library", message);
        }
    }
    let enters =
        |(path, by_cache): &(PathBuf, bool)| *by_cache || !folders.iter().any(|folder| real(path).starts_with(folder));
    found.into_iter().filter(enters).map(|(path, _)| path).collect()
}

/// Links may lead where no declared path may.
fn reserved(at: &str, path: &Path, faults: &mut Faults) {
    let Ok(real) = path.canonicalize() else { return };
    if let Some(place) = RESERVED.iter().find(|place| real.starts_with(place)) {
        let message =
            format!("{} leads to {}, in {place}, of which the sandbox makes its own", path.display(), real.display());
        faults.add(at, "command.path", message);
    }
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
