//! From the listing of a folder back to the folder.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cap_std::fs::Dir;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::relpath::RelativePath;

use crate::disk;
use crate::error::StoreError;
use crate::store::Store;

/// So many files, or bytes, are handed to a thread at once: small files lie beside one another, so one thread reads the blocks
/// that they share.
const FILES_AT_ONCE: usize = 256;
const BYTES_AT_ONCE: u64 = 4 << 20;

impl Store {
    /// Writes every file of the listing `tree`, as `put -r` prints its digest, into the new folder `target`, and says how many
    /// files and bytes that were. Every file is verified. They are not flushed to the disk: the store has them.
    pub fn restore(&self, tree: Digest, target: &Path) -> Result<(u64, u64), StoreError> {
        let mut files = self.listed(tree)?;
        let failed = |error| StoreError::system("write", target)(error);
        std::fs::create_dir(target).map_err(failed)?;
        let root = Dir::from_std_file(std::fs::File::open(target).map_err(failed)?);
        for (path, _) in &files {
            if let Some(parent) = Path::new(path.as_str()).parent().filter(|parent| !parent.as_os_str().is_empty()) {
                root.create_dir_all(parent).map_err(failed)?;
            }
        }
        self.refresh()?;
        self.sort_files(&mut files);
        let count = files.len() as u64;
        let sized = files.into_iter().map(|file| Ok((self.size(file.1)?.unwrap_or_default(), file)));
        let (next, all) = (AtomicUsize::new(0), batches(sized.collect::<Result<_, StoreError>>()?));
        let work = || {
            let mut bytes = 0;
            while let Some(batch) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                for (path, digest) in batch {
                    bytes += self.restore_file(&root, target, path, *digest)?;
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

    fn restore_file(&self, root: &Dir, target: &Path, path: &RelativePath, digest: Digest) -> Result<u64, StoreError> {
        let failed = |error| StoreError::system("write", &target.join(path.as_str()))(error);
        let mut file = disk::create_file(root, path.as_str()).map_err(failed)?;
        self.read(digest, &mut file)
    }

    fn sort_files(&self, files: &mut [(RelativePath, Digest)]) {
        let index = self.index.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        files.sort_by_cached_key(|(path, digest)| {
            let places = index.places(*digest, crate::block::Kind::is_object);
            (places.first().map(|place| (place.pack, place.entry.offset)), path.clone())
        });
    }

    /// The files of a listing.
    fn listed(&self, tree: Digest) -> Result<Vec<(RelativePath, Digest)>, StoreError> {
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
