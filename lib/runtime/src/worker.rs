//! Which program trains, what it loads, and on which processor: the identity of the execution stack (T77).

use std::collections::BTreeMap;
use std::env::consts::{ARCH, OS};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::manifest::run::{Library, Stack};

use crate::digests::Digests;
use crate::error::{RuntimeError, file};
use crate::loader;
use crate::pinned::{self, Pinned};
use crate::unpacked;

/// The variable that names the worker.
pub const VARIABLE: &str = "XT_TRAIN";

/// A worker and everything it loads.
#[derive(Debug)]
pub struct Worker {
    /// The program.
    pub program: PathBuf,
    /// Every library it loads and the loader itself, by the path that it loads them from.
    pub libraries: Vec<PathBuf>,
    /// The folder that stands for the file system that they came from, if they came out of a bundle.
    pub root: Option<PathBuf>,
    /// SHA-256 of each of them.
    pub digests: BTreeMap<PathBuf, Digest>,
    /// The files themselves, held open.
    pinned: Vec<Pinned>,
}

/// The worker named by `flag` or by `XT_TRAIN`; else `xt-train` beside this program or in `../libexec/xt`.
pub fn find(flag: Option<&Path>) -> Result<PathBuf, RuntimeError> {
    let named = flag.map(Path::to_path_buf).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        let path = std::path::absolute(&path).map_err(file("find", &path))?;
        // Anything else that is wrong with it is found out, and recorded, by whoever starts it.
        return if path.exists() { Ok(path) } else { Err(RuntimeError::NoWorker(vec![path])) };
    }
    let own = std::env::current_exe().map_err(file("find", Path::new("/proc/self/exe")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = vec![folder.join("xt-train"), folder.join("../libexec/xt/xt-train")];
    match places.iter().find(|path| path.is_file()) {
        Some(path) => fs::canonicalize(path).map_err(file("find", path)),
        None => Err(RuntimeError::NoWorker(places)),
    }
}

impl Worker {
    /// The worker at `program` with its libraries, as its own loader finds them under `library_path`; what `digests` knows is
    /// not hashed again.
    pub fn inspect(program: &Path, library_path: Option<&str>, digests: &mut Digests) -> Result<Self, RuntimeError> {
        if let Some(root) = unpacked::root_of(program) {
            let libraries = unpacked::libraries(&root, program)?;
            return Ok(Self { root: Some(root), ..Self::known(program, libraries, digests)? });
        }
        let libraries = loader::libraries(program, library_path)?;
        match strayed(program, &libraries)? {
            Some(path) => Err(RuntimeError::Worker {
                path: program.into(),
                why: format!(
                    "{} would be loaded, which the worker does not name and a library of it searches for: anyone may have put it there",
                    path.display()
                ),
            }),
            None => Self::known(program, libraries, digests),
        }
    }

    /// The worker at `program` with these libraries; what `digests` knows is not hashed again.
    pub(crate) fn known(program: &Path, libraries: Vec<PathBuf>, digests: &mut Digests) -> Result<Self, RuntimeError> {
        let files = libraries.iter().map(PathBuf::as_path).chain([program]);
        let pinned = files.map(|path| Pinned::known(path, digests)).collect::<Result<Vec<_>, _>>()?;
        let digests = pinned.iter().map(|file| (file.path().to_path_buf(), file.digest)).collect();
        Ok(Self { program: program.into(), libraries, root: None, digests, pinned })
    }

    /// A file that is no longer the one that was hashed. Asked once the files are mounted, when no path counts any more.
    pub(crate) fn moved(&self) -> Option<&Path> {
        self.pinned.iter().find(|file| !file.in_place()).map(Pinned::path)
    }

    /// A file that holds something else than was hashed. Asked at the end of a run.
    pub(crate) fn altered(&mut self) -> Result<Option<PathBuf>, RuntimeError> {
        for file in &mut self.pinned {
            if !file.unaltered()? {
                return Ok(Some(file.path().to_path_buf()));
            }
        }
        Ok(None)
    }

    /// The stack that this worker makes with this machine.
    pub fn stack(&self) -> Stack {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let library = |(path, digest): (&PathBuf, &Digest)| Library { name: name(path), digest: *digest };
        let mut libraries: Vec<_> =
            self.digests.iter().filter(|(path, _)| **path != self.program).map(library).collect();
        libraries.sort_by(|a, b| (&a.name, a.digest).cmp(&(&b.name, b.digest)));
        libraries.dedup();
        let (processor, features) = processor();
        Stack {
            worker: self.digests[&self.program],
            reported: None,
            libraries,
            processor,
            processor_features: Digest::of(features.as_bytes()),
            system: format!("{OS} {ARCH}"),
        }
    }
}

/// A library that neither the program names nor the system has: another library's own run path led to it. Those paths of
/// libtorch begin in folders outside its installation, so its worker names everything itself and nothing is searched for.
fn strayed(program: &Path, libraries: &[PathBuf]) -> Result<Option<PathBuf>, RuntimeError> {
    let named = xt_sandbox::needs(program).map_err(file("read", program))?.libraries;
    let real = |path: &Path| path.canonicalize().ok();
    let sound = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        named.contains(&name) || xt_sandbox::system_library(&name).is_some_and(|system| real(&system) == real(path))
    };
    Ok(libraries.iter().find(|path| !sound(path)).cloned())
}

/// `stack` as it would be on this machine, with the same files.
pub fn here(stack: &Stack) -> Stack {
    let (processor, features) = processor();
    let processor_features = Digest::of(features.as_bytes());
    Stack { processor, processor_features, system: format!("{OS} {ARCH}"), ..stack.clone() }
}

/// Model and sorted features of the first processor.
fn processor() -> (String, String) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |keys: [&str; 2]| {
        let line = text.lines().find(|line| keys.iter().any(|key| line.starts_with(key)));
        line.and_then(|line| line.split_once(':')).map_or(String::new(), |(_, value)| value.trim().to_string())
    };
    let mut features: Vec<String> = value(["flags", "Features"]).split_whitespace().map(String::from).collect();
    features.sort_unstable();
    (value(["model name", "CPU part"]), features.join(" "))
}

/// SHA-256 of the file at `path`.
pub(crate) fn digest_of(path: &Path) -> Result<Digest, RuntimeError> {
    pinned::digest_of(&mut File::open(path).map_err(file("open", path))?, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_real_program_are_found_and_hashed() {
        let worker = Worker::inspect(&std::env::current_exe().unwrap(), None, &mut Digests::default()).unwrap();
        assert!(worker.libraries.iter().any(|path| path.ends_with("libc.so.6")), "{:?}", worker.libraries);
        let stack = worker.stack();
        assert_eq!(stack.libraries.len(), worker.libraries.len());
        assert!(!stack.processor.is_empty());
        assert_eq!(stack.worker, digest_of(&std::env::current_exe().unwrap()).unwrap());
    }

    #[test]
    fn what_is_no_program_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let mut digests = Digests::default();
        assert!(Worker::inspect(&script, None, &mut digests).is_err());
        assert!(Worker::inspect(&folder.path().join("none"), None, &mut digests).is_err());
    }
}
