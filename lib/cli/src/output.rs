//! Writing results: each document whole, every failure seen, files by temporary name and rename.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use xt_core::canonical::Value;

use crate::error::{CliError, Error};

/// Where results go: standard output, or a file that appears only when the tool is done.
#[derive(Debug)]
pub struct Output {
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl Output {
    /// Standard output, or the file `path` when given.
    pub fn new(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self { target: None }) };
        let name = path.file_name().ok_or_else(|| CliError::NoFile(path.into()))?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|source| CliError::Write { name: path.display().to_string(), source })?;
        Ok(Self { target: Some(Target { path: path.into(), temporary, file }) })
    }

    fn name(&self) -> String {
        self.target.as_ref().map_or_else(|| "standard output".into(), |target| target.path.display().to_string())
    }

    /// Writes one document as one canonical line.
    pub fn document(&mut self, value: &Value) -> Result<(), Error> {
        self.line(&value.canonical())
    }

    /// Writes one line.
    pub fn line(&mut self, text: &str) -> Result<(), Error> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = match &mut self.target {
            Some(target) => target.file.write_all(bytes),
            None => write_out(bytes),
        };
        written.map_err(|source| CliError::Write { name: self.name(), source }.into())
    }

    /// Makes a file appear under its name, durable. Without this call nothing does.
    pub fn finish(mut self) -> Result<(), Error> {
        let name = self.name();
        let Some(target) = &self.target else { return Ok(()) };
        let done = target.file.sync_all().and_then(|()| fs::rename(&target.temporary, &target.path));
        done.map_err(|source| CliError::Write { name, source })?;
        self.target = None;
        Ok(())
    }
}

/// Unbuffered, so that a full disk or closed pipe shows here and not at exit.
fn write_out(bytes: &[u8]) -> io::Result<()> {
    if xt_sandbox::stream_was_closed(1) {
        return Err(io::Error::other("it was closed before the tool started"));
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(target) = &self.target {
            // Best effort: the tool is failing already, and the name says what it is.
            drop(fs::remove_file(&target.temporary));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        let mut output = Output::new(Some(&path)).unwrap();
        output.line("half").unwrap();
        drop(output);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut output = Output::new(Some(&path)).unwrap();
        output.line("whole").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
