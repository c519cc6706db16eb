//! Standard output and standard error of the worker, kept up to a cap; what is beyond it is counted and dropped.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{RuntimeError, file};
use crate::secrets::{Redactor, Secrets};

/// One captured stream.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    file: File,
    kept: u64,
    dropped: u64,
    cap: u64,
    redactor: Redactor,
}

impl Capture {
    /// Captures into a new file at `path`, up to `cap` bytes.
    pub fn create(path: &Path, cap: u64) -> Result<Self, RuntimeError> {
        let file = File::create(path).map_err(file("create", path))?;
        Ok(Self { path: path.to_owned(), file, kept: 0, dropped: 0, cap, redactor: Redactor::default() })
    }

    /// The same, with these secrets taken out of what is kept.
    #[must_use]
    pub(crate) fn without(self, secrets: Secrets) -> Self {
        Self { redactor: Redactor::new(secrets), ..self }
    }

    /// Keeps what the search for secrets has held back, at the end of the stream.
    pub(crate) fn finish(&mut self) -> Result<(), RuntimeError> {
        let rest = self.redactor.finish();
        self.keep(&rest)
    }

    /// Takes in more of the stream.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        let clean = self.redactor.push(bytes);
        self.keep(&clean)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        let length = bytes.len() as u64;
        let room = (self.cap - self.kept).min(length);
        let kept = &bytes[..usize::try_from(room).unwrap_or(bytes.len())];
        self.file.write_all(kept).map_err(file("write", &self.path))?;
        self.kept += room;
        self.dropped += length - room;
        Ok(())
    }

    /// Bytes beyond the cap so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_at_the_cap_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let mut capture = Capture::create(&path, 10).unwrap();
        for part in [&b"0123"[..], b"4567", b"89ab", b"cdef"] {
            capture.push(part).unwrap();
        }
        assert_eq!((capture.kept, capture.dropped()), (10, 6));
        assert_eq!(std::fs::read(&path).unwrap(), b"0123456789");
    }
}
