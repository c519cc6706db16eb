//! A power cut, modelled: what a traced program wrote and never flushed is taken away again.
//!
//! The trace is of strace(1) with `-f -y`. A file that was written and not flushed since loses its end or all of it. An entry
//! of a folder that was made or renamed and whose folder was not flushed since is gone; what it replaced is back. Removals
//! that were not flushed may have reached the disk or not, so both are tried. A real file system keeps more than that.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The calls that must be in the trace.
pub const CALLS: &str = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,mkdirat,\
                         openat,openat2,creat,open,ftruncate";

/// What is not flushed becomes of removals and of the bytes of files.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Whether removals reached the disk all the same.
    pub removals: bool,
    /// Parts of 2 that remain of a file's bytes.
    pub halves: u64,
}

/// A change of a folder that may be lost.
#[derive(Debug)]
enum Change {
    Made(PathBuf),
    Removed(PathBuf),
}

impl Change {
    fn folder(&self) -> &Path {
        let (Self::Made(path) | Self::Removed(path)) = self;
        path.parent().unwrap()
    }
}

/// Takes away from the folder `now` what `trace` did there and did not flush; `before` is a copy from before it, all of
/// which was durable. Says how many things were lost.
pub fn lose(trace: &str, now: &Path, before: &Path, cut: Cut) -> usize {
    let (changes, dirty) = unflushed(trace, now);
    let mut lost = 0;
    for path in dirty.iter().filter(|path| path.is_file()) {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length * cut.halves / 2).unwrap();
        lost += 1;
    }
    for change in changes.iter().rev() {
        let restored = match change {
            Change::Made(path) => {
                let there = fs::symlink_metadata(path);
                match &there {
                    Ok(found) if found.is_dir() => fs::remove_dir_all(path).unwrap(),
                    Ok(_) => fs::remove_file(path).unwrap(),
                    Err(_) => {}
                }
                lost += usize::from(there.is_ok());
                path
            }
            Change::Removed(path) if !cut.removals => path,
            Change::Removed(_) => continue,
        };
        let old = before.join(restored.strip_prefix(now).unwrap());
        if old.is_file() && !restored.exists() {
            // Its folder may have gone, too, and then comes back first.
            fs::create_dir_all(restored.parent().unwrap()).unwrap();
            fs::copy(old, restored).unwrap();
        }
    }
    lost
}

/// Changes of folders and files with bytes that were not flushed, in order.
fn unflushed(trace: &str, now: &Path) -> (Vec<Change>, BTreeSet<PathBuf>) {
    let (mut changes, mut dirty) = (Vec::<Change>::new(), BTreeSet::new());
    for line in whole_lines(trace) {
        let Some((call, arguments, result)) = parsed(&line) else { continue };
        let failed = result.starts_with("-1");
        let paths: Vec<PathBuf> = named(call, arguments, now);
        let Some(path) = paths.first().filter(|path| path.starts_with(now)).cloned() else { continue };
        match call {
            _ if failed => {}
            // A flush that was swallowed, or that nobody saw return, has done nothing.
            "fsync" | "fdatasync" if result.starts_with('0') && !result.contains("INJECTED") => {
                dirty.remove(&path);
                changes.retain(|change| change.folder() != path);
            }
            "fsync" | "fdatasync" => {}
            "write" | "pwrite64" | "ftruncate" => drop(dirty.insert(path)),
            "open" | "openat" | "openat2" | "creat" => {
                if arguments.contains("O_CREAT") || call == "creat" {
                    changes.push(Change::Made(path.clone()));
                }
                if arguments.contains("O_TRUNC") || call == "creat" {
                    dirty.insert(path);
                }
            }
            "mkdir" | "mkdirat" => changes.push(Change::Made(path)),
            "unlink" | "unlinkat" | "rmdir" => {
                dirty.remove(&path);
                changes.push(Change::Removed(path));
            }
            _ => {
                let to = paths[1].clone();
                if dirty.remove(&path) {
                    dirty.insert(to.clone());
                } else {
                    dirty.remove(&to);
                }
                changes.push(Change::Removed(path));
                changes.push(Change::Made(to));
            }
        }
    }
    (changes, dirty)
}

/// The lines of a trace without process numbers, calls that were interrupted by others put together again.
fn whole_lines(trace: &str) -> Vec<String> {
    let (mut open, mut lines) = (BTreeMap::<&str, String>::new(), Vec::new());
    for line in trace.lines() {
        let (process, rest) = line.split_once(' ').unwrap_or_default();
        let rest = rest.trim_start();
        if let Some(begun) = rest.strip_suffix(" <unfinished ...>") {
            open.insert(process, begun.to_owned());
        } else if let Some((_, end)) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>")) {
            lines.extend(open.remove(process).map(|begun| begun + end));
        } else {
            lines.push(rest.to_owned());
        }
    }
    // What nobody saw return may have happened.
    lines.extend(open.into_values().map(|begun| begun + ") = ?"));
    lines
}

/// Call, arguments and result.
fn parsed(line: &str) -> Option<(&str, &str, &str)> {
    let (call, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    Some((call, arguments, result))
}

/// The paths that a call is about, absolute.
fn named(call: &str, arguments: &str, now: &Path) -> Vec<PathBuf> {
    if matches!(call, "write" | "pwrite64" | "fsync" | "fdatasync" | "ftruncate") {
        return described(arguments).map(PathBuf::from).into_iter().collect();
    }
    // `5</folder>, "name"`, `AT_FDCWD</folder>, "name"`, or `"name"` alone.
    let mut quoted = arguments.split('"');
    let (mut paths, mut before) = (Vec::new(), quoted.next());
    while let (Some(text), Some(name)) = (before, quoted.next()) {
        let folder = text.rfind('<').and_then(|at| described(&text[at.saturating_sub(1)..]));
        paths.push(folder.map_or_else(|| now.join(name), |folder| Path::new(folder).join(name)));
        before = quoted.next();
    }
    // A folder may be named by a dot in it.
    paths.into_iter().map(|path| path.components().collect()).collect()
}

/// The path that strace gives to a number of a file.
fn described(text: &str) -> Option<&str> {
    text.split_once('<')?.1.split('>').next()
}
