//! Input files: regular, not reached through a link in their last component, and unchanged while they are read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use xt_core::fault::Faults;

use crate::disk::{self, Fingerprint};
use crate::error::StoreError;

/// An open input file.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    before: Fingerprint,
}

impl Source {
    /// Opens a file by its path. Links on the way to its folder are followed; the file itself must be none.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let Some(name) = path.file_name() else {
            return Err(refused(path, "a directory"));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = File::open(parent).map_err(StoreError::system("open", path))?;
        Self::open_in(&Dir::from_std_file(folder), Path::new(name), path.to_path_buf())
    }

    /// Opens the file `name` of a directory; `path` is for messages.
    pub(crate) fn open_in(directory: &Dir, name: &Path, path: PathBuf) -> Result<Self, StoreError> {
        let file = match disk::open_regular(directory, name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(refused(&path, &error.to_string()));
            }
            Err(error) => return Err(StoreError::system("open", &path)(error)),
        };
        let before = disk::fingerprint(&file).map_err(StoreError::system("read", &path))?;
        Ok(Self { file, path, before })
    }

    /// Opens the file `name` of a directory whose listing showed it as a regular file; `path` is for messages.
    pub(crate) fn open_listed(directory: &Dir, name: &OsStr, path: PathBuf) -> Result<Self, StoreError> {
        match disk::open_listed(directory, name) {
            Ok((file, before)) => Ok(Self { file, path, before }),
            Err(_) => Self::open_in(directory, Path::new(name), path),
        }
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size when it was opened.
    pub const fn size(&self) -> u64 {
        self.before.bytes
    }

    /// What it looked like when it was opened.
    pub(crate) const fn fingerprint(&self) -> &Fingerprint {
        &self.before
    }

    /// An error if the file was written to since it was opened. Ask after the last read.
    pub fn unchanged(&self) -> Result<(), StoreError> {
        let after = disk::fingerprint(&self.file).map_err(StoreError::system("read", &self.path))?;
        if after == self.before {
            return Ok(());
        }
        let message = "the file changed while it was read";
        Err(StoreError::Input(Faults::one(shown(&self.path), "input.changed", message)))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

fn refused(path: &Path, odd: &str) -> StoreError {
    StoreError::Input(Faults::one(shown(path), "input.special", special(odd)))
}

/// Why something that is no regular file is refused.
pub fn special(odd: &str) -> String {
    format!("this is {odd}; only regular files are taken")
}

/// A path as messages show it: control characters and what is no UTF-8 escaped.
pub fn shown(path: &Path) -> String {
    path.to_string_lossy()
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}
