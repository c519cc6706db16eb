//! The life of a writer: a lock that the kernel drops when the process dies, and a directory for what is not finished.
//!
//! No time stamps and no process numbers are compared: a lease that can be locked belongs to nobody.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cap_std::fs::Dir;
use xt_core::digest::Digest;

use crate::condemned;
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
    condemned: BTreeSet<Digest>,
    /// Holds the lock for as long as it is open.
    _file: File,
}

impl Lease {
    /// Becomes a writer, and sweeps what dead writers left. The file says up to which generation of condemned packs the
    /// writer knows; before that is written, others must take it to know of none.
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
        let made = made.map_err(StoreError::system("make a directory in", &layout.path.join(TMP)));
        let made = made.and_then(|directory| {
            let generations = condemned::generations(layout)?;
            let last = generations.last().map_or(0, |generation| generation.number);
            (&file).write_all(format!("{last}\n").as_bytes()).map_err(failed)?;
            Ok((directory, generations.into_iter().flat_map(|generation| generation.packs).collect()))
        });
        match made {
            Ok((directory, condemned)) => Ok(Self { name, leases, tmp, directory, condemned, _file: file }),
            Err(error) => {
                // The next writer would sweep both, but there may be none.
                drop(disk::remove(&tmp, OsStr::new(&name)));
                drop(disk::remove(&leases, OsStr::new(&name)));
                Err(error)
            }
        }
    }

    /// The writer's own directory.
    pub const fn directory(&self) -> &Dir {
        &self.directory
    }

    /// The packs that were condemned when the lease was taken; some may be gone.
    pub const fn condemned(&self) -> &BTreeSet<Digest> {
        &self.condemned
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What cannot be removed now is swept by the next writer, since the lock goes with this process.
        drop(disk::remove(&self.tmp, OsStr::new(&self.name)));
        drop(disk::remove(&self.leases, OsStr::new(&self.name)));
    }
}

/// Whether somebody holds a lease who may not know of generation `number`.
pub fn elders(layout: &Layout, number: u64) -> Result<bool, StoreError> {
    let leases = layout.folder(LEASES)?;
    let failed = |error| StoreError::system("look at the leases in", &layout.path.join(LEASES))(error);
    for name in disk::names(&leases).map_err(failed)? {
        let mut file = match disk::open_regular(&leases, Path::new(&name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        if try_lock(&file).map_err(failed)? {
            continue;
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // Without its line end the number may not be written yet.
        let known: Option<u64> = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        if known.is_none_or(|known| known < number) {
            return Ok(true);
        }
    }
    Ok(false)
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
