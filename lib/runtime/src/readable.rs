//! Whether the trainer's user may read what a command brings: asked before anything is started or recorded, and every
//! fault is named by its path.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use xt_core::fault::Faults;
use xt_core::manifest::command::{Pin, Program, Root};
use xt_core::manifest::intent::Profile;
use xt_sandbox::Reader;

/// So many faults of one root are named; who has more mends them together.
const NAMED: usize = 20;

/// Notes what of a root the trainer's user cannot read. What is not there is noted by whoever opens it.
pub(crate) fn root(at: &str, root: &Root, profile: Profile, faults: &mut Faults) {
    let (path, reader) = (Path::new(&root.path), Reader::of(profile));
    let mut found = Vec::new();
    above(path, &reader, &mut found);
    let Ok(real) = path.canonicalize() else { return };
    walk(&real, &reader, &mut found);
    let more = found.len().saturating_sub(NAMED);
    for message in found.into_iter().take(NAMED) {
        faults.add(at, "command.unreadable", message);
    }
    if more > 0 {
        faults.add(at, "command.unreadable", format!("{more} more files and folders below {} alike", root.path));
    }
}

/// Notes which of a program and its libraries the trainer's user cannot read.
pub(crate) fn files(program: &Path, libraries: &BTreeSet<PathBuf>, profile: Profile, faults: &mut Faults) {
    let reader = Reader::of(profile);
    for path in libraries.iter().map(PathBuf::as_path).chain([program]) {
        let mut found = Vec::new();
        above(path, &reader, &mut found);
        found.extend(fs::metadata(path).ok().and_then(|file| lacking(path, &file, &reader)));
        for message in found {
            faults.add("/trainer/executable", "command.unreadable", message);
        }
    }
}

/// Everything of a program that the user who trains here cannot read, for a plan that is to run.
pub(crate) fn program(program: &Program, profile: Profile) -> Faults {
    let mut faults = Faults::new();
    for (index, pinned) in program.roots.iter().enumerate() {
        let declared = Root { path: pinned.path.clone(), execute: pinned.execute };
        root(&format!("/program/roots/{index}"), &declared, profile, &mut faults);
    }
    let path = |pin: &Pin| PathBuf::from(&pin.path);
    let mut found = Faults::new();
    files(&path(&program.executable), &program.libraries.iter().map(path).collect(), profile, &mut found);
    for fault in found.0 {
        faults.add("/program", fault.code, fault.message);
    }
    faults
}

fn above(path: &Path, reader: &Reader, found: &mut Vec<String>) {
    let stopped = reader.stopped_above(path);
    found.extend(stopped.map(|folder| {
        format!(
            "{}: the user {} that trains cannot go through {}{}; `chmod o+x` opens it, and the profile full does not \
             go through the folders of the host",
            path.display(),
            reader.user(),
            folder.display(),
            fs::metadata(&folder).map(|found| owner(&found)).unwrap_or_default()
        )
    }));
}

/// Goes through a root as its reader would: what lies in a closed folder is not looked at.
fn walk(path: &Path, reader: &Reader, found: &mut Vec<String>) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_symlink() {
        return;
    }
    if let Some(message) = lacking(path, &metadata, reader) {
        found.push(message);
        return;
    }
    if !metadata.is_dir() {
        return;
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in &entries {
        walk(entry, reader, found);
    }
}

fn lacking(path: &Path, metadata: &Metadata, reader: &Reader) -> Option<String> {
    let words = reader.lacks(metadata)?;
    let kind = if metadata.is_dir() { "folder" } else { "file" };
    Some(format!(
        "the {kind} {}{}: the user {} that trains must be able to {words} it; `chmod -R o+rX {}` allows it",
        path.display(),
        owner(metadata),
        reader.user(),
        path.display()
    ))
}

fn owner(metadata: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    format!(" has mode {:04o} and belongs to user {}", metadata.mode() & 0o7777, metadata.uid())
}
