//! The life of a writer: a lock that the kernel drops when the process dies, and a directory for what is not finished.
//!
//! No time stamps and no process numbers are compared: a lease that can be locked belongs to nobody.

use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cap_std::fs::Dir;

use crate::disk;
use crate::error::StoreError;
use crate::layout::{LEASES, Layout, TMP};

/// A held lease. Dropping it removes the writer's directory and then the lease.
#[derive(Debug)]
pub struct Lease {
    name: String,
    leases: Dir,
    tmp: Dir,
    directory: Dir,
    /// Holds the lock for as long as it is open.
    _file: File,
}

impl Lease {
    /// Becomes a writer, and sweeps what dead writers left.
    pub fn take(layout: &Layout) -> Result<Self, StoreError> {
        let (leases, tmp) = (layout.folder(LEASES)?, layout.folder(TMP)?);
        let failed = |error| StoreError::system("take a lease in", &layout.path.join(LEASES))(error);
        let (name, file) = loop {
            let name = fresh_name();
            if let Some(file) = lock_new(&leases, &name).map_err(failed)? {
                break (name, file);
            }
        };
        let made = sweep(&leases, &tmp)
            .and_then(|()| disk::make_directory(&tmp, &name))
            .and_then(|_| disk::open_directory(&tmp, Path::new(&name)));
        match made {
            Ok(directory) => Ok(Self { name, leases, tmp, directory, _file: file }),
            Err(error) => {
                // The next writer would sweep both, but there may be none.
                drop(disk::remove(&tmp, OsStr::new(&name)));
                drop(disk::remove(&leases, OsStr::new(&name)));
                Err(StoreError::system("make a directory in", &layout.path.join(TMP))(error))
            }
        }
    }

    /// The writer's own directory.
    pub const fn directory(&self) -> &Dir {
        &self.directory
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next writer, since the lock goes with this process.
        drop(disk::remove(&self.tmp, OsStr::new(&self.name)));
        drop(disk::remove(&self.leases, OsStr::new(&self.name)));
    }
}

/// Names need not be unguessable, only new: files are made with O_EXCL.
fn fresh_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{now:x}-{:x}-{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Makes and locks the lease `name`; `None` when another has that name or swept it before it was locked.
fn lock_new(leases: &Dir, name: &str) -> io::Result<Option<File>> {
    let file = match disk::create_file(leases, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(error),
    };
    match try_lock(&file).and_then(|locked| Ok(locked && file.metadata()?.nlink() > 0)) {
        Ok(held) => Ok(held.then_some(file)),
        Err(error) => {
            drop(disk::remove(leases, OsStr::new(name)));
            Err(error)
        }
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes what writers left whose lease nobody holds.
fn sweep(leases: &Dir, tmp: &Dir) -> io::Result<()> {
    // Directories first: a lease exists before its directory and outlives it, so a directory of this list without a
    // lease is an orphan.
    let directories = disk::names(tmp)?;
    for name in &directories {
        sweep_one(leases, tmp, name)?;
    }
    for name in disk::names(leases)?.iter().filter(|name| !directories.contains(name)) {
        sweep_one(leases, tmp, name)?;
    }
    Ok(())
}

fn sweep_one(leases: &Dir, tmp: &Dir, name: &OsString) -> io::Result<()> {
    match disk::open_regular(leases, Path::new(name)) {
        Ok(file) => {
            if try_lock(&file)? {
                disk::remove(tmp, name)?;
                disk::remove(leases, name)?;
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk::remove(tmp, name),
        Err(error) => Err(error),
    }
}
