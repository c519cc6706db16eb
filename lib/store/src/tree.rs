//! Directory trees: the regular files below a directory, in the order of the bytes of their whole paths.
//!
//! The digest of a tree is the SHA-256 of what `sha256sum` prints for its files in that order, so anyone can check it:
//! `find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`. Modes, times, owners and
//! empty directories are no part of it. Links, FIFOs, sockets, devices and names that are no plain UTF-8 text are
//! refused, all of them at once, and so is a store.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::{Dir, FileType};
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::relpath::RelativePath;

use crate::disk::{self, Fingerprint};
use crate::error::StoreError;
use crate::layout::{FORMAT, LEASES, PACKS};
use crate::source::{Source, shown, special};

/// So many refusals are listed; the rest is only counted.
const LISTED: usize = 100;

/// An open directory tree.
#[derive(Debug)]
pub struct Tree {
    root: Dir,
    path: PathBuf,
    files: Vec<RelativePath>,
    /// The folder that was opened last: files stand in the order of their paths, so the next one is often in it, too.
    last: Mutex<Option<(String, Arc<Dir>)>>,
}

impl Tree {
    /// Opens the directory `path`, which must not be a link, and lists its files.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let root = open_root(path)?;
        let mut walk = Walk { path, files: Vec::new(), faults: Faults::new(), unlisted: 0 };
        walk.directory(&root, Path::new(""))?;
        if walk.unlisted > 0 {
            walk.faults.add(shown(path), "input.refused", format!("{} more are refused", walk.unlisted));
        }
        if !walk.faults.is_empty() {
            return Err(StoreError::Input(walk.faults));
        }
        let mut files = walk.files;
        files.sort_unstable();
        Ok(Self { root, path: path.to_path_buf(), files, last: Mutex::default() })
    }

    /// The files, sorted by the bytes of the whole path.
    pub fn files(&self) -> &[RelativePath] {
        &self.files
    }

    /// Opens a file of the tree; nothing on the way to it may be a link.
    pub fn source(&self, file: &RelativePath) -> Result<Source, StoreError> {
        let path = self.path.join(file.as_str());
        let (folder, name) = parts(file);
        let folder = self.folder(folder).map_err(StoreError::system("open", &path))?;
        Source::open_listed(folder.as_deref().unwrap_or(&self.root), OsStr::new(name), path)
    }

    /// What a file of the tree looks like, without opening it; `None` when that cannot be told.
    pub(crate) fn look(&self, file: &RelativePath) -> Option<Fingerprint> {
        let (folder, name) = parts(file);
        let folder = self.folder(folder).ok()?;
        disk::look(folder.as_deref().unwrap_or(&self.root), OsStr::new(name))
    }

    /// A folder of the tree; none for the tree itself.
    fn folder(&self, path: &str) -> io::Result<Option<Arc<Dir>>> {
        if path.is_empty() {
            return Ok(None);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, folder)) = last.as_ref().filter(|(known, _)| known == path) {
            return Ok(Some(Arc::clone(folder)));
        }
        let mut parts = path.split('/');
        let mut folder = disk::open_directory(&self.root, Path::new(parts.next().unwrap_or_default()))?;
        for part in parts {
            folder = disk::open_directory(&folder, Path::new(part))?;
        }
        let folder = Arc::new(folder);
        *last = Some((path.to_owned(), Arc::clone(&folder)));
        Ok(Some(folder))
    }
}

/// The folder of a file, and its name.
fn parts(file: &RelativePath) -> (&str, &str) {
    file.as_str().rsplit_once('/').unwrap_or(("", file.as_str()))
}

/// The listing of a tree, as `sha256sum` prints it. `files` must be in the order of their paths.
pub fn listing<'a>(files: impl IntoIterator<Item = (&'a RelativePath, Digest)>) -> String {
    files.into_iter().flat_map(|(path, digest)| [digest.hex(), format!("  {path}\n")]).collect()
}

fn open_root(path: &Path) -> Result<Dir, StoreError> {
    let failed = |error| StoreError::system("open", path)(error);
    let refused = |message| StoreError::Input(Faults::one(shown(path), "input.special", message));
    let found = std::fs::symlink_metadata(strip_slashes(path)).map_err(failed)?;
    if found.is_symlink() {
        return Err(refused("this is a symbolic link; name the directory itself"));
    }
    let file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_dir() {
        return Err(refused("this is no directory"));
    }
    Ok(Dir::from_std_file(file))
}

/// A trailing slash would make the system follow a link.
fn strip_slashes(path: &Path) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    let mut bytes = path.as_os_str().as_bytes();
    while let [rest @ .., b'/'] = bytes
        && !rest.is_empty()
    {
        bytes = rest;
    }
    Path::new(OsStr::from_bytes(bytes))
}

struct Walk<'a> {
    path: &'a Path,
    files: Vec<RelativePath>,
    faults: Faults,
    unlisted: usize,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Dir, prefix: &Path) -> Result<(), StoreError> {
        let failed = |error| StoreError::system("list", &self.path.join(prefix))(error);
        let listed = disk::listed(directory).map_err(failed)?;
        if [FORMAT, PACKS, LEASES].iter().all(|own| listed.iter().any(|(name, _)| name == own)) {
            self.refuse(prefix, "input.store", "this is a store, which changes while it is read".to_owned());
            return Ok(());
        }
        for (name, kind) in listed {
            self.entry(directory, (&name, kind), &prefix.join(&name))?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &Dir, (name, kind): (&OsStr, FileType), path: &Path) -> Result<(), StoreError> {
        let Some(relative) = self.relative(path) else { return Ok(()) };
        let failed = |error| StoreError::system("open", &self.path.join(path))(error);
        if kind.is_dir() {
            return match disk::open_directory(directory, Path::new(name)) {
                Ok(inner) => self.directory(&inner, path),
                Err(error) => Err(failed(error)),
            };
        }
        match disk::odd_type(kind) {
            Some(odd) => self.refuse(path, "input.special", special(odd)),
            None => self.files.push(relative),
        }
        Ok(())
    }

    fn relative(&mut self, path: &Path) -> Option<RelativePath> {
        let Some(text) = path.to_str() else {
            let escaped = path.as_os_str().as_encoded_bytes().escape_ascii();
            self.refuse(path, "input.name", format!("the name is not UTF-8: {escaped}"));
            return None;
        };
        match RelativePath::new(text) {
            Ok(relative) => Some(relative),
            Err(problem) => {
                self.refuse(path, "input.name", problem.to_string());
                None
            }
        }
    }

    fn refuse(&mut self, path: &Path, code: &'static str, message: String) {
        if self.faults.0.len() < LISTED {
            self.faults.add(shown(&self.path.join(path)), code, message);
        } else {
            self.unlisted += 1;
        }
    }
}
