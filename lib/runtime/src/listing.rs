//! The listing of a root: every folder, file and symbolic link in it, by path and content. Its digest stands for all of
//! them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use xt_core::canonical::Value;
use xt_core::digest::{Digest, Hasher};
use xt_core::field::{Field as _, object};

use crate::digests::Digests;
use crate::error::{RuntimeError, file};

/// A root may hold so many entries.
const MOST: usize = 500_000;

/// What a root holds.
#[derive(Debug)]
pub(crate) struct Listing {
    /// SHA-256 of its lines; for a root that is a file, of its bytes.
    pub(crate) digest: Digest,
    /// Files in it.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Files that may be programs or libraries.
    pub(crate) binaries: Vec<PathBuf>,
}

impl Listing {
    /// The listing of the folder or file at `root`. Whatever is neither file, folder nor symbolic link is refused, and so
    /// are names that no manifest can hold.
    pub(crate) fn of(root: &Path, digests: &mut Digests) -> Result<Self, RuntimeError> {
        let real = root.canonicalize().map_err(file("open", root))?;
        let found = fs::metadata(&real).map_err(file("read", root))?;
        if found.is_file() {
            let digest = digest_of(&real, digests)?;
            return Ok(Self { digest, files: 1, bytes: found.len(), binaries: vec![real] });
        }
        if !found.is_dir() {
            return Err(wrong(root, "is neither a folder nor a file"));
        }
        let mut walk = Walk { root: &real, entries: Vec::new() };
        walk.folder(&real)?;
        walk.entries.sort();
        let mut listing = Self { digest: Digest::of(b""), files: 0, bytes: 0, binaries: Vec::new() };
        let mut hasher = Hasher::new();
        for (name, kind) in walk.entries {
            let line = listing.line(&real.join(&name), &name, kind, digests)?;
            hasher.update(line.canonical().as_bytes());
            hasher.update(b"\n");
        }
        listing.digest = hasher.finish();
        Ok(listing)
    }

    fn line(&mut self, path: &Path, name: &str, kind: Kind, digests: &mut Digests) -> Result<Value, RuntimeError> {
        match kind {
            Kind::Folder => Ok(object([("folder", name.into())])),
            Kind::Link => {
                let target = fs::read_link(path).map_err(file("read", path))?;
                let target = target.to_str().ok_or_else(|| wrong(path, "points to a name that is not UTF-8"))?;
                Ok(object([("link", name.into()), ("target", target.into())]))
            }
            Kind::File => {
                let mut opened = File::open(path).map_err(file("open", path))?;
                let found = opened.metadata().map_err(file("read", path))?;
                let runs = found.permissions().mode() & 0o111 != 0;
                let digest = digests.digest(&mut opened, path)?;
                self.files += 1;
                self.bytes += found.len();
                if runs || name.contains(".so") {
                    self.binaries.push(path.into());
                }
                Ok(object([
                    ("file", name.into()),
                    ("digest", digest.write()),
                    ("bytes", found.len().into()),
                    ("execute", runs.into()),
                ]))
            }
        }
    }
}

/// SHA-256 of the regular file at `path`.
pub(crate) fn digest_of(path: &Path, digests: &mut Digests) -> Result<Digest, RuntimeError> {
    // Opening a FIFO would wait for a writer that never comes.
    if !fs::metadata(path).map_err(file("open", path))?.is_file() {
        return Err(wrong(path, "is no regular file"));
    }
    digests.digest(&mut File::open(path).map_err(file("open", path))?, path)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Folder,
    File,
    Link,
}

struct Walk<'a> {
    root: &'a Path,
    entries: Vec<(String, Kind)>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path) -> Result<(), RuntimeError> {
        for entry in fs::read_dir(folder).map_err(file("read", folder))? {
            let entry = entry.map_err(file("read", folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(file("read", folder))?);
            let name = path.strip_prefix(self.root).ok().and_then(Path::to_str);
            let name = name.ok_or_else(|| wrong(&path, "has a name that is not UTF-8"))?.to_string();
            if self.entries.len() >= MOST {
                return Err(wrong(self.root, "holds more than 500000 entries"));
            }
            if kind.is_dir() {
                self.entries.push((name, Kind::Folder));
                self.folder(&path)?;
            } else if kind.is_file() {
                self.entries.push((name, Kind::File));
            } else if kind.is_symlink() {
                self.entries.push((name, Kind::Link));
            } else {
                return Err(wrong(&path, "is neither file, folder nor symbolic link"));
            }
        }
        Ok(())
    }
}

fn wrong(path: &Path, why: &'static str) -> RuntimeError {
    RuntimeError::Root { path: path.into(), why }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn digest(root: &Path) -> Digest {
        Listing::of(root, &mut Digests::default()).unwrap().digest
    }

    #[test]
    fn every_change_in_a_root_moves_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/x"), "1").unwrap();
        std::os::unix::fs::symlink("a/x", root.join("l")).unwrap();
        let mut seen = BTreeSet::from([digest(&root)]);
        assert_eq!(digest(&root), *seen.first().unwrap());
        let moved = fs::rename(&root, folder.path().join("other"));
        assert_eq!(
            moved.map(|()| digest(&folder.path().join("other"))).unwrap(),
            *seen.first().unwrap(),
            "its place is none of it"
        );
        fs::rename(folder.path().join("other"), &root).unwrap();
        let changes: [&dyn Fn(); 6] = [
            &|| fs::write(root.join("a/x"), "2").unwrap(),
            &|| fs::write(root.join("b"), "").unwrap(),
            &|| fs::create_dir(root.join("c")).unwrap(),
            &|| fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o755)).unwrap(),
            &|| fs::remove_file(root.join("l")).unwrap(),
            &|| fs::rename(root.join("a/x"), root.join("a/y")).unwrap(),
        ];
        for (index, change) in changes.iter().enumerate() {
            change();
            assert!(seen.insert(digest(&root)), "change {index}");
        }
    }

    #[test]
    fn a_pipe_in_a_root_is_refused_and_a_root_may_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        assert_eq!(digest(&folder.path().join("file")), Digest::of(b"text"));
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = Listing::of(folder.path(), &mut Digests::default()).unwrap_err().to_string();
        assert!(refused.contains("pipe is neither"), "{refused}");
    }
}
