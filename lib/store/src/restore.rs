//! From the listing of a folder back to the folder.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _};
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cap_std::fs::Dir;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::relpath::RelativePath;

use crate::block::Kind;
use crate::disk;
use crate::error::StoreError;
use crate::store::Store;

/// So many files, or bytes, are handed to a thread at once: small files lie beside one another, so one thread reads the blocks
/// that they share.
const FILES_AT_ONCE: usize = 256;
const BYTES_AT_ONCE: u64 = 4 << 20;

/// A file of a listing.
type Listed = (RelativePath, Digest);

impl Store {
    /// Writes every file of the listing `tree`, as `put -r` prints its digest, into the new folder `target`, and says how many
    /// files and bytes that were. Every file is verified. They are not flushed to the disk: the store has them.
    pub fn restore(&self, tree: Digest, target: &Path) -> Result<(u64, u64), StoreError> {
        let files = self.listed(tree)?;
        let failed = |error| StoreError::system("write", target)(error);
        std::fs::create_dir(target).map_err(failed)?;
        let root = Dir::from_std_file(File::open(target).map_err(failed)?);
        let folders: BTreeSet<&str> =
            files.iter().filter_map(|(path, _)| path.as_str().rsplit_once('/').map(|(folder, _)| folder)).collect();
        for folder in folders {
            root.create_dir_all(folder).map_err(failed)?;
        }
        self.refresh()?;
        let count = files.len() as u64;
        let (next, all) = (AtomicUsize::new(0), batches(self.in_order(files)));
        let work = || {
            let (mut bytes, mut place) = (0, Target { root: &root, path: target, folder: None, plain: false });
            while let Some(batch) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (path, digest) in batch {
                    bytes += place.write(self, path, *digest)?;
                }
            }
            Ok(bytes)
        };
        let bytes = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(joined).sum::<Result<u64, StoreError>>()
        })?;
        Ok((count, bytes))
    }

    /// Files with their sizes, in the order in which they lie in packs.
    fn in_order(&self, files: Vec<Listed>) -> Vec<(u64, Listed)> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let placed = |file: Listed| {
            let place = index.places(file.1, Kind::is_object).into_iter().next();
            (place.map(|place| (place.pack, place.entry.offset)), place.map_or(0, |place| place.entry.head.plain), file)
        };
        let mut placed: Vec<_> = files.into_iter().map(placed).collect();
        placed.sort_unstable_by(|one, other| (one.0, &one.2.0).cmp(&(other.0, &other.2.0)));
        placed.into_iter().map(|(_, bytes, file)| (bytes, file)).collect()
    }

    /// The files of a listing.
    fn listed(&self, tree: Digest) -> Result<Vec<Listed>, StoreError> {
        let text = self.get(tree)?;
        let wrong = |line: usize| {
            let message = "this is no line as sha256sum prints it";
            StoreError::Document { digest: tree, faults: Faults::one(format!("line {line}"), "tree.line", message) }
        };
        let mut files = Vec::new();
        for (number, line) in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).enumerate() {
            let line = std::str::from_utf8(line).ok().and_then(|line| line.split_once("  "));
            let parsed =
                line.and_then(|(hex, path)| Some((RelativePath::new(path).ok()?, Digest::from_hex(hex).ok()?)));
            files.push(parsed.ok_or_else(|| wrong(number + 1))?);
        }
        Ok(files)
    }
}

/// Where a thread writes files.
struct Target<'a> {
    root: &'a Dir,
    path: &'a Path,
    /// The folder of the last file.
    folder: Option<(String, Dir)>,
    /// Whether a file comes into being with the mode that it is to have, as the first one showed.
    plain: bool,
}

impl Target<'_> {
    fn write(&mut self, store: &Store, path: &RelativePath, digest: Digest) -> Result<u64, StoreError> {
        let mut file = self.create(path).map_err(StoreError::system("write", &self.path.join(path.as_str())))?;
        store.read_whole(digest, &mut file, |file| file.set_len(0).and_then(|()| file.rewind()))
    }

    fn create(&mut self, path: &RelativePath) -> io::Result<File> {
        let (folder, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        if self.folder.as_ref().is_none_or(|(known, _)| known != folder) {
            let opened = if folder.is_empty() { self.root.try_clone()? } else { self.root.open_dir(folder)? };
            self.folder = Some((folder.to_owned(), opened));
        }
        let directory = self.folder.as_ref().map_or(self.root, |(_, directory)| directory);
        let file = disk::create_listed(directory, OsStr::new(name))?;
        if !self.plain {
            // The umask and the lists of the file system are the same for every file of the new folder.
            self.plain = disk::has_mode(&file)?;
            if !self.plain {
                disk::set_mode(&file)?;
            }
        }
        Ok(file)
    }
}

/// What a thread gave; a thread that panicked has not done its part, so this one does not say it did.
pub fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Cuts work into parts; each item comes with its size in bytes, as far as the store says so.
pub fn batches<T>(items: Vec<(u64, T)>) -> Vec<Vec<T>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (size, item) in items {
        batch.push(item);
        bytes = u64::saturating_add(bytes, size);
        if batch.len() >= FILES_AT_ONCE || bytes >= BYTES_AT_ONCE {
            batches.push(std::mem::take(&mut batch));
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

/// How many threads read and verify: as many as the machine runs at once, but no more than four.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get).min(4)
}
