//! Where the dynamic loader of the host finds the libraries of what is brought (ld.so(8)): run paths of the file, of
//! whoever asked for it and of the program, then the cache, then its own folders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::admit::SYSTEM;
use crate::cache;
use crate::elf::{self, Needs};

/// Folders with variants for newer processors, below every folder that is searched. Which of them count depends on the
/// processor; the program may find all of them.
const VARIANTS: [&str; 3] = ["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"];
/// What `$LIB` stands for, by system.
const LIB: [&str; 3] = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"];

/// The search for the libraries of a program and of what it may load while it runs.
#[derive(Debug)]
pub struct Search {
    program: Needs,
    origin: PathBuf,
    /// Names of the libraries that the program itself loads: nobody is looked for again under such a name.
    loaded: BTreeSet<String>,
    cache: BTreeMap<String, Vec<PathBuf>>,
    read: BTreeMap<PathBuf, Needs>,
    seen: BTreeSet<(PathBuf, Vec<PathBuf>, bool)>,
    found: BTreeMap<PathBuf, bool>,
}

/// What asks for libraries, and on whose behalf.
struct Asking {
    path: PathBuf,
    /// Run paths of those that asked for it, which count for it, too.
    inherited: Vec<PathBuf>,
    /// Whether it is loaded into the program that runs, or is a program itself.
    module: bool,
}

impl Search {
    /// The search for what is loaded into the program at `program`, which loads `libraries` by itself.
    pub fn of(program: &Path, libraries: &[PathBuf]) -> io::Result<Self> {
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_string());
        Ok(Self {
            program: elf::needs(program)?,
            origin: program.parent().unwrap_or(Path::new("/")).into(),
            loaded: libraries.iter().filter_map(name).collect(),
            cache: cache::of_host(),
            read: BTreeMap::new(),
            seen: BTreeSet::new(),
            found: BTreeMap::new(),
        })
    }

    /// Looks for everything that the file at `path` needs, and what that needs. What is found nowhere is none of ours: a
    /// module that nobody loads may lack its library. A file that names a loader is taken for a program.
    pub fn follow(&mut self, path: &Path) {
        let module = self.needs(path).loader.is_none();
        let mut unread = vec![Asking { path: path.into(), inherited: Vec::new(), module }];
        while let Some(asking) = unread.pop() {
            if self.seen.insert((asking.path.clone(), asking.inherited.clone(), asking.module)) {
                unread.extend(self.ask(&asking));
            }
        }
    }

    /// Every library that was found, and whether only the loader's cache led to it.
    pub fn found(self) -> BTreeMap<PathBuf, bool> {
        self.found
    }

    fn ask(&mut self, asking: &Asking) -> Vec<Asking> {
        let needs = self.needs(&asking.path);
        let origin = asking.path.parent().unwrap_or(Path::new("/"));
        let own = folders(needs.rpath.as_deref().filter(|_| needs.runpath.is_none()), origin);
        let mut handed_on = own.clone();
        handed_on.extend(asking.inherited.iter().cloned());
        let mut searched = Vec::new();
        if needs.runpath.is_none() {
            searched.clone_from(&handed_on);
            let counts = asking.module && self.program.runpath.is_none();
            searched.extend(folders(self.program.rpath.as_deref().filter(|_| counts), &self.origin));
        }
        searched.extend(folders(needs.runpath.as_deref(), origin));
        let mut next = Vec::new();
        for name in &needs.libraries {
            if asking.module && self.loaded.contains(name) {
                continue;
            }
            for (path, by_cache) in self.find(name, &searched, origin, needs.machine) {
                *self.found.entry(path.clone()).or_insert(by_cache) &= by_cache;
                next.push(Asking { path, inherited: handed_on.clone(), module: asking.module });
            }
        }
        let loader = needs.loader.map(PathBuf::from).filter(|path| path.is_file());
        self.found.extend(loader.map(|path| (path, false)));
        next
    }

    /// Where the library `name` is found: the file that the loader takes, after variants of it for some processors.
    fn find(&mut self, name: &str, searched: &[PathBuf], origin: &Path, machine: u16) -> Vec<(PathBuf, bool)> {
        if name.contains('/') {
            let path = expand(name, origin).filter(|path| path.is_absolute() && self.fits(path, machine));
            return path.into_iter().map(|path| (path, false)).collect();
        }
        let (mut hits, whole) = self.hits(name, searched, machine);
        if !whole {
            let cached = self.cache.get(name).cloned().unwrap_or_default();
            let cached: Vec<_> = cached.into_iter().filter(|path| self.fits(path, machine)).collect();
            if cached.is_empty() {
                hits.extend(self.hits(name, &SYSTEM.map(PathBuf::from), machine).0);
            }
            hits.extend(cached.into_iter().map(|path| (path.clone(), !is_default(&path))));
        }
        hits
    }

    /// The files called `name` in the folders, up to the first that is for every processor of its kind.
    fn hits(&mut self, name: &str, folders: &[PathBuf], machine: u16) -> (Vec<(PathBuf, bool)>, bool) {
        let mut hits = Vec::new();
        for folder in folders {
            if folder.join("glibc-hwcaps").is_dir() {
                let variants = VARIANTS.map(|variant| folder.join(variant).join(name));
                hits.extend(variants.into_iter().filter(|path| self.fits(path, machine)).map(|path| (path, false)));
            }
            let path = folder.join(name);
            if self.fits(&path, machine) {
                hits.push((path, false));
                return (hits, true);
            }
        }
        (hits, false)
    }

    /// Whether the file is a library for that processor; the loader passes others over.
    fn fits(&mut self, path: &Path, machine: u16) -> bool {
        path.is_file() && self.needs(path).machine == machine
    }

    /// What a file needs; what cannot be read as such needs nothing.
    fn needs(&mut self, path: &Path) -> Needs {
        let read = || elf::needs(path).unwrap_or_default();
        self.read.entry(path.into()).or_insert_with(read).clone()
    }
}

/// Whether the loader looks for `library` where it lies by itself.
pub(crate) fn is_default(library: &Path) -> bool {
    let folder = library.parent().unwrap_or(Path::new("/"));
    let folder = VARIANTS.iter().find_map(|variant| strip_end(folder, variant)).unwrap_or_else(|| folder.into());
    SYSTEM.iter().any(|system| folder == Path::new(system))
}

fn strip_end(folder: &Path, end: &str) -> Option<PathBuf> {
    let depth = Path::new(end).components().count();
    folder.ends_with(end).then(|| folder.ancestors().nth(depth).map(Path::to_path_buf)).flatten()
}

/// The folders of a run path. Relative ones would mean the output folder, where nothing can be executed.
fn folders(path: Option<&str>, origin: &Path) -> Vec<PathBuf> {
    let all = path.into_iter().flat_map(|path| path.split(':'));
    all.filter_map(|folder| expand(folder, origin)).filter(|folder| folder.is_absolute()).collect()
}

/// What the loader puts for `$ORIGIN` and `$LIB`. `None` with other dollars, which are names of processors.
fn expand(text: &str, origin: &Path) -> Option<PathBuf> {
    let origin = origin.to_str()?;
    let text = text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
    let with = |lib: &str| PathBuf::from(text.replace("${LIB}", lib).replace("$LIB", lib));
    let path = LIB.iter().map(|lib| with(lib)).find(|path| path.is_dir()).unwrap_or_else(|| with(LIB[0]));
    (!path.to_string_lossy().contains('$')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What the loader itself says, by the file that each path leads to.
    fn listed(loader: &str, program: &Path) -> Option<BTreeSet<PathBuf>> {
        let output = Command::new(loader).arg("--list").arg(program).env_clear().output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
        Some(paths.filter_map(|path| Path::new(path).canonicalize().ok()).collect())
    }

    #[test]
    fn the_search_finds_what_the_loader_finds_for_the_programs_of_this_host() {
        let (mut compared, mut found_any) = (0, BTreeSet::new());
        let programs = std::fs::read_dir("/usr/bin").unwrap().flatten().map(|entry| entry.path());
        for program in programs.filter_map(|path| path.canonicalize().ok()).take(300) {
            let needs = elf::needs(&program).unwrap_or_default();
            let Some(loader) = needs.loader else { continue };
            let Some(expected) = listed(&loader, &program) else { continue };
            let mut search = Search::of(&program, &[]).unwrap();
            search.follow(&program);
            let found: BTreeSet<PathBuf> = search.found().into_keys().filter_map(|p| p.canonicalize().ok()).collect();
            // Variants for other processors may be there beside what this one takes.
            let missing: Vec<_> = expected.difference(&found).collect();
            let more: Vec<_> =
                found.difference(&expected).filter(|path| !path.to_string_lossy().contains("hwcaps")).collect();
            assert!(missing.is_empty() && more.is_empty(), "{}: {missing:?} {more:?}", program.display());
            compared += 1;
            found_any.extend(found);
        }
        assert!(compared > 10 && found_any.len() > 5, "{compared} programs, {} libraries", found_any.len());
    }

    #[test]
    fn run_paths_are_taken_apart_and_only_the_loaders_own_folders_are_default() {
        let origin = Path::new("/opt/p/bin");
        let expected = ["/opt/p/bin/../lib", "/abs", "/opt/p/bin/x"].map(PathBuf::from);
        assert_eq!(folders(Some("$ORIGIN/../lib:/abs::relative:${ORIGIN}/x:/no/$PLATFORM"), origin), expected);
        assert!(is_default(Path::new("/lib64/x.so")) && !is_default(Path::new("/usr/local/lib/x.so")));
        assert!(is_default(Path::new("/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/x.so")));
    }
}
