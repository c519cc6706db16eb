//! The worker of a bundle, taken out of the store: a folder of `cache/workers/` that stands for the file system that it ran in.
//!
//! Nothing of it is executed outside the sandbox: no loader is asked what it would load, since the bundle lists it all.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::verb::bind::WORKER;
use xt_store::Store;

use crate::error::{RuntimeError, file};
use crate::pinned;

/// How the name of such a folder ends.
const ENDING: &str = "root";
/// So deep are its files; deeper ones were put there by somebody else.
const DEPTH: usize = 32;

/// Takes the worker of `bundle` out of the store, unless it lies there already, unaltered; gives its path. `None` when the
/// bundle holds no worker.
pub fn unpack(store: &Store, bundle: &Bundle, worker: Digest) -> Result<Option<PathBuf>, RuntimeError> {
    let prefix = format!("{WORKER}/");
    let files: Vec<(&str, Digest)> = bundle
        .worker_files()
        .filter_map(|member| Some((member.file.path.as_str().strip_prefix(&prefix)?, member.file.digest)))
        .collect();
    let Some((program, _)) = files.iter().find(|(_, digest)| *digest == worker) else { return Ok(None) };
    let folder = store.path().join("cache").join("workers");
    make(&folder)?;
    let root = folder.join(format!("{}.{ENDING}", bundle.id().hex()));
    if !whole(&root, &files)? {
        // Another process may do the same; whoever comes last finds the other's folder, which holds the same.
        let fresh = folder.join(format!("{}.{}", bundle.id().hex(), std::process::id()));
        discard(&fresh)?;
        for (path, digest) in &files {
            write(store, &fresh.join(path), *digest)?;
        }
        discard(&root)?;
        fs::rename(&fresh, &root)
            .or_else(|error| if root.exists() { discard(&fresh) } else { Err(file("make", &root)(error)) })?;
    }
    Ok(Some(root.join(program)))
}

/// Whether every file lies there with the right bytes, and no other.
fn whole(root: &Path, files: &[(&str, Digest)]) -> Result<bool, RuntimeError> {
    if !root.is_dir() || all(root, DEPTH)?.len() != files.len() {
        return Ok(false);
    }
    for (path, digest) in files {
        let path = root.join(path);
        let Ok(mut opened) = File::open(&path) else { return Ok(false) };
        if pinned::digest_of(&mut opened, &path)? != *digest {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write(store: &Store, path: &Path, digest: Digest) -> Result<(), RuntimeError> {
    path.parent().map_or(Ok(()), make)?;
    let mut created = File::create_new(path).map_err(file("write", path))?;
    store.read(digest, &mut created)?;
    // The worker runs as another user where root starts it.
    created.set_permissions(Permissions::from_mode(0o755)).map_err(file("write", path))
}

fn make(folder: &Path) -> Result<(), RuntimeError> {
    fs::create_dir_all(folder).map_err(file("make", folder))
}

fn discard(folder: &Path) -> Result<(), RuntimeError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file("remove", folder)(error)),
        _ => Ok(()),
    }
}

/// The folder that stands for the file system of the program at `path`, if it was taken out of a bundle.
pub(crate) fn root_of(path: &Path) -> Option<PathBuf> {
    let named = |folder: &&Path| {
        let stem = folder.file_stem().and_then(|stem| stem.to_str());
        folder.extension().is_some_and(|ending| ending == ENDING)
            && stem.is_some_and(|hex| Digest::from_hex(hex).is_ok())
    };
    path.ancestors().find(named).map(Path::to_path_buf)
}

/// Everything in `root` beside the program, sorted.
pub(crate) fn libraries(root: &Path, program: &Path) -> Result<Vec<PathBuf>, RuntimeError> {
    let mut files = all(root, DEPTH)?;
    files.retain(|path| path != program);
    files.sort();
    Ok(files)
}

fn all(folder: &Path, depth: usize) -> Result<Vec<PathBuf>, RuntimeError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(file("list", folder))? {
        let entry = entry.map_err(file("list", folder))?;
        let kind = entry.file_type().map_err(file("look at", &entry.path()))?;
        if kind.is_dir() && depth > 0 {
            files.extend(all(&entry.path(), depth - 1)?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}
