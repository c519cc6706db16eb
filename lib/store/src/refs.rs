//! References: names for objects. A name changes by the rename of one small file, whole or not at all.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use xt_core::canonical;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Field as _;
use xt_core::relpath::RelativePath;

use crate::disk;
use crate::error::StoreError;
use crate::layout::{PINS, REFS};
use crate::store::Store;

/// What the file of a reference is.
const TAG: &str = "xt.reference/1";
/// A reference file is a digest and a sentence; a longer one is damaged.
const LONGEST: u64 = 64 << 10;
/// Name of the file before it is renamed.
const FRESH: &str = "reference";

xt_core::record! {
    /// What a name stands for.
    pub struct Target as TAG {
        /// The object.
        digest: Digest,
        /// Why it is kept, in words.
        reason: String,
    }
}

/// A name for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The name, a relative path.
    pub name: RelativePath,
    /// The object.
    pub digest: Digest,
    /// Why it is kept, in words.
    pub reason: String,
}

impl Store {
    /// Gives an object a name, or moves a name to it. The object must be there.
    pub fn set_reference(&self, name: &str, digest: Digest, reason: &str) -> Result<(), StoreError> {
        set(self, REFS, name, digest, reason)
    }

    /// The reference with this name.
    pub fn reference(&self, name: &str) -> Result<Option<Reference>, StoreError> {
        get(self, REFS, name)
    }

    /// Every reference, sorted by name.
    pub fn references(&self) -> Result<Vec<Reference>, StoreError> {
        all(self, REFS)
    }

    /// Removes a name; the object stays. False when there was no such name.
    pub fn remove_reference(&self, name: &str) -> Result<bool, StoreError> {
        remove(self, REFS, name)
    }

    /// Keeps an object, though no name refers to it.
    pub fn pin(&self, digest: Digest, reason: &str) -> Result<(), StoreError> {
        set(self, PINS, &digest.hex(), digest, reason)
    }

    /// Every pin, sorted.
    pub fn pins(&self) -> Result<Vec<Reference>, StoreError> {
        all(self, PINS)
    }

    /// Gives up a pin; false when there was none.
    pub fn unpin(&self, digest: Digest) -> Result<bool, StoreError> {
        remove(self, PINS, &digest.hex())
    }
}

fn set(store: &Store, folder: &'static str, name: &str, digest: Digest, reason: &str) -> Result<(), StoreError> {
    let name = checked(name)?;
    if !store.contains(digest)? {
        return Err(StoreError::Missing { digest });
    }
    // From here on nothing is removed that is there now, so a second look holds.
    let hold = store.hold()?;
    hold.keep(&[digest])?;
    store.refresh()?;
    if !store.contains(digest)? {
        return Err(StoreError::Missing { digest });
    }
    let lease = &hold.lease;
    let target = Target { digest, reason: reason.to_owned() };
    let path = path_of(store, folder, &name);
    let failed = |error| StoreError::system("write", &path)(error);
    let text = format!("{}\n", target.write().canonical());
    let mut file = disk::create_file(lease.directory(), FRESH).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    let (folders, last) = split(&name);
    let mut directory = store.layout.folder(folder)?;
    for folder in folders {
        if disk::make_directory(&directory, folder).map_err(failed)? {
            disk::sync_directory(&directory).map_err(failed)?;
        }
        directory = disk::open_directory(&directory, Path::new(folder)).map_err(failed)?;
    }
    lease.directory().rename(FRESH, &directory, last).map_err(failed)?;
    disk::sync_directory(&directory).map_err(failed)
}

fn get(store: &Store, folder: &'static str, name: &str) -> Result<Option<Reference>, StoreError> {
    let name = checked(name)?;
    let Some(directory) = directory_of(store, folder, &name)? else { return Ok(None) };
    read(store, folder, &directory, &name)
}

fn all(store: &Store, folder: &'static str) -> Result<Vec<Reference>, StoreError> {
    let mut found = Vec::new();
    walk(store, folder, &store.layout.folder(folder)?, "", &mut found)?;
    found.sort_unstable_by(|a: &Reference, b| a.name.cmp(&b.name));
    Ok(found)
}

fn remove(store: &Store, folder: &'static str, name: &str) -> Result<bool, StoreError> {
    let name = checked(name)?;
    let path = path_of(store, folder, &name);
    let Some(directory) = directory_of(store, folder, &name)? else { return Ok(false) };
    match directory.remove_file(split(&name).1) {
        Ok(()) => disk::sync_directory(&directory).map(|()| true).map_err(StoreError::system("remove", &path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StoreError::system("remove", &path)(error)),
    }
}

fn checked(name: &str) -> Result<RelativePath, StoreError> {
    RelativePath::new(name)
        .map_err(|problem| StoreError::ReferenceName { name: name.to_owned(), problem: problem.to_string() })
}

fn path_of(store: &Store, folder: &'static str, name: &RelativePath) -> PathBuf {
    store.path().join(folder).join(name.as_str())
}

/// The folders on the way to a name, and its last component.
fn split(name: &RelativePath) -> (Vec<&str>, &str) {
    let mut parts: Vec<&str> = name.as_str().split('/').collect();
    let last = parts.pop().unwrap_or_default();
    (parts, last)
}

fn directory_of(store: &Store, folder: &'static str, name: &RelativePath) -> Result<Option<Dir>, StoreError> {
    let mut directory = store.layout.folder(folder)?;
    for part in split(name).0 {
        directory = match disk::open_directory(&directory, Path::new(part)) {
            Ok(inner) => inner,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(StoreError::system("open", &path_of(store, folder, name))(error)),
        };
    }
    Ok(Some(directory))
}

fn read(
    store: &Store,
    folder: &'static str,
    directory: &Dir,
    name: &RelativePath,
) -> Result<Option<Reference>, StoreError> {
    let path = path_of(store, folder, name);
    // A folder of references is none itself.
    if directory.symlink_metadata(split(name).1).is_ok_and(|found| found.is_dir()) {
        return Ok(None);
    }
    let damaged = |problem: String| StoreError::ReferenceDamaged { name: name.to_string(), problem };
    let file = match disk::open_regular(directory, Path::new(split(name).1)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(damaged(format!("it is {error}"))),
        Err(error) => return Err(StoreError::system("read", &path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).map_err(StoreError::system("read", &path))?;
    let value = canonical::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
    let mut faults = Faults::new();
    match Target::read(&value, "", &mut faults).filter(|_| faults.is_empty()) {
        Some(Target { digest, reason }) => Ok(Some(Reference { name: name.clone(), digest, reason })),
        None => Err(damaged(faults.to_string())),
    }
}

fn walk(
    store: &Store,
    folder: &'static str,
    directory: &Dir,
    prefix: &str,
    found: &mut Vec<Reference>,
) -> Result<(), StoreError> {
    let failed = |error| StoreError::system("list", &store.path().join(folder).join(prefix))(error);
    for entry in disk::names(directory).map_err(failed)? {
        let text = format!("{prefix}{}", entry.to_string_lossy());
        let name = checked(&text)?;
        let found_there = match directory.symlink_metadata(&entry) {
            // Removed since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(failed)?,
        };
        if found_there.is_dir() {
            let inner = disk::open_directory(directory, Path::new(&entry)).map_err(failed)?;
            walk(store, folder, &inner, &format!("{text}/"), found)?;
        } else {
            found.extend(read(store, folder, directory, &name)?);
        }
    }
    Ok(())
}
