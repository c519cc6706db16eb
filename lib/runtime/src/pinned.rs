//! Files that were hashed and must stay what they were: the worker and its libraries, from hashing to the end of a run.
//!
//! Each is kept open from before it is hashed. A path that leads elsewhere afterwards, or a content that changed, would
//! make the record name bytes that did not run.

use std::fs::{self, File, Metadata};
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use xt_core::digest::{Digest, Hasher};

use crate::digests::Digests;
use crate::error::{RuntimeError, file};

/// One hashed file.
#[derive(Debug)]
pub(crate) struct Pinned {
    path: PathBuf,
    file: File,
    before: Stamp,
    pub(crate) digest: Digest,
}

/// What a change of content always changes: size, and the times of the last write and of the last change of any kind.
type Stamp = [i64; 5];

fn stamp(found: &Metadata) -> Stamp {
    let size = i64::try_from(found.size()).unwrap_or(i64::MAX);
    [size, found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()]
}

impl Pinned {
    /// Opens the file at `path`, and hashes it unless `digests` knows it.
    pub(crate) fn known(path: &Path, digests: &mut Digests) -> Result<Self, RuntimeError> {
        let mut opened = File::open(path).map_err(file("open", path))?;
        let found = opened.metadata().map_err(file("read", path))?;
        let digest = digests.digest(&mut opened, path)?;
        Ok(Self { path: path.into(), file: opened, before: stamp(&found), digest })
    }

    /// Whether the path still leads to the file that was hashed.
    pub(crate) fn in_place(&self) -> bool {
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        let (now, hashed) = (fs::metadata(&self.path), self.file.metadata());
        matches!((now, hashed), (Ok(now), Ok(hashed)) if same(&now, &hashed))
    }

    /// Whether the file still holds what was hashed. It is read again only when its times say that something happened:
    /// a link made or removed changes them as well.
    pub(crate) fn unaltered(&mut self) -> Result<bool, RuntimeError> {
        if stamp(&self.file.metadata().map_err(file("read", &self.path))?) == self.before {
            return Ok(true);
        }
        self.file.rewind().map_err(file("rewind", &self.path))?;
        Ok(digest_of(&mut self.file, &self.path)? == self.digest)
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// SHA-256 of the rest of an open file.
pub(crate) fn digest_of(source: &mut File, path: &Path) -> Result<Digest, RuntimeError> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = source.read(&mut buffer).map_err(file("read", path))?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_replaced_or_rewritten_after_it_was_hashed_is_noticed_and_a_new_link_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.so");
        fs::write(&path, b"one").unwrap();
        let mut pinned = Pinned::known(&path, &mut Digests::default()).unwrap();
        fs::hard_link(&path, folder.path().join("link")).unwrap();
        assert!(pinned.in_place() && pinned.unaltered().unwrap());
        fs::write(folder.path().join("new"), b"one").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(!pinned.in_place(), "another file lies there now");
        assert!(pinned.unaltered().unwrap(), "the hashed one is what it was");
        let time = fs::metadata(folder.path().join("link")).unwrap().modified().unwrap();
        fs::write(folder.path().join("link"), b"two").unwrap();
        File::options().write(true).open(folder.path().join("link")).unwrap().set_modified(time).unwrap();
        assert!(!pinned.unaltered().unwrap(), "written in place, with the old time put back");
    }
}
