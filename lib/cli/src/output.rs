//! Writing results: each document whole, every failure seen, files without a name until they are whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use xt_core::canonical::Value;

use crate::error::{CliError, Error};

/// Where results go: standard output, or a file that appears only when the tool is done.
#[derive(Debug)]
pub struct Output {
    target: Target,
}

#[derive(Debug)]
enum Target {
    Stdout,
    /// A device or pipe: written through, since a rename would put a file in its place.
    Device {
        path: PathBuf,
        file: File,
    },
    /// A file without a name until the tool is done: when the tool is killed, nothing of it is left.
    Unnamed {
        path: PathBuf,
        file: File,
    },
    /// The same where the file system makes no files without a name: one under a temporary name.
    File {
        path: PathBuf,
        temporary: PathBuf,
        file: File,
    },
}

impl Output {
    /// Standard output, or the file `path` when given.
    pub fn new(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self { target: Target::Stdout }) };
        let wrong = |source| CliError::Write { name: path.display().to_string(), source };
        if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let file = OpenOptions::new().write(true).open(path).map_err(wrong)?;
            return Ok(Self { target: Target::Device { path: path.into(), file } });
        }
        // Found now, not when everything has been done and told.
        if path.is_dir() {
            return Err(wrong(io::ErrorKind::IsADirectory.into()).into());
        }
        if path.file_name().is_none() {
            return Err(CliError::NoFile(path.into()).into());
        }
        if let Some(file) = unnamed(path) {
            return Ok(Self { target: Target::Unnamed { path: path.into(), file } });
        }
        let temporary = temporary(path);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(wrong)?;
        Ok(Self { target: Target::File { path: path.into(), temporary, file } })
    }

    fn name(&self) -> String {
        match &self.target {
            Target::Stdout => "standard output".into(),
            Target::Device { path, .. } | Target::Unnamed { path, .. } | Target::File { path, .. } => {
                path.display().to_string()
            }
        }
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
            Target::Stdout => write_out(bytes),
            Target::Device { file, .. } | Target::Unnamed { file, .. } | Target::File { file, .. } => {
                file.write_all(bytes)
            }
        };
        written.map_err(|source| CliError::Write { name: self.name(), source }.into())
    }

    /// Makes a file appear under its name, durable. Without this call nothing does.
    pub fn finish(mut self) -> Result<(), Error> {
        let name = self.name();
        let done = match &self.target {
            Target::Stdout | Target::Device { .. } => return Ok(()),
            Target::Unnamed { path, file } => file.sync_all().and_then(|()| name_it(file, path)),
            Target::File { path, temporary, file } => file.sync_all().and_then(|()| fs::rename(temporary, path)),
        };
        done.map_err(|source| CliError::Write { name, source })?;
        self.target = Target::Stdout;
        Ok(())
    }
}

/// A file without a name in the folder of `path`; `None` where the file system or the system makes none, or would give it
/// no name later.
fn unnamed(path: &Path) -> Option<File> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = OpenOptions::new().write(true).custom_flags(OFlag::O_TMPFILE.bits()).open(folder).ok()?;
    link_of(&file).exists().then_some(file)
}

/// Where the system shows an open file.
fn link_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives a file its name. A name that is taken cannot be given to another file at once, so then there is a temporary one
/// between two calls.
fn name_it(file: &File, path: &Path) -> io::Result<()> {
    let link = |name: &Path| nix::unistd::linkat(AT_FDCWD, &link_of(file), AT_FDCWD, name, AtFlags::AT_SYMLINK_FOLLOW);
    match link(path) {
        Err(nix::errno::Errno::EEXIST) => {}
        done => return Ok(done?),
    }
    let between = temporary(path);
    link(&between)?;
    fs::rename(&between, path).inspect_err(|_| drop(fs::remove_file(&between)))
}

/// A name beside `path` that says what it is.
fn temporary(path: &Path) -> PathBuf {
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(path.file_name().unwrap_or_default());
    temporary.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(temporary)
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
        if let Target::File { temporary, .. } = &self.target {
            // Best effort: the tool is failing already, and the name says what it is.
            drop(fs::remove_file(temporary));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_given_as_a_file_stays_a_pipe() {
        use std::os::unix::fs::FileTypeExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let mut output = Output::new(Some(&path)).unwrap();
        output.line("through").unwrap();
        output.finish().unwrap();
        assert_eq!(reader.join().unwrap(), b"through\n");
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    }

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

    #[test]
    fn a_file_that_is_there_is_replaced_whole_and_stays_until_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        fs::write(&path, "before").unwrap();
        let mut output = Output::new(Some(&path)).unwrap();
        output.line("after").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"before");
        output.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"after\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_system_without_unnamed_files_gets_a_temporary_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        let temporary = temporary(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).unwrap();
        let mut output = Output { target: Target::File { path: path.clone(), temporary: temporary.clone(), file } };
        output.line("whole").unwrap();
        assert!(temporary.exists() && !path.exists());
        output.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
