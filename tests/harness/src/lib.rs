//! Makes a folder, runs a tool in it, and looks at what came out.
//!
//! Everything here panics on failure: it serves tests only.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use xt_core::canonical::{Value, parse, parse_all};

/// The time that every tool is told.
pub const NOW: &str = "2026-01-02T03:04:05Z";

/// Where the built programs lie: beside the test programs' folder.
pub fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_path_buf()
}

/// A fresh folder with a store of its own, gone at the end.
pub struct Folder {
    folder: tempfile::TempDir,
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The path of something in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file, with the folders above it.
    pub fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A tool, `compile` for `xt-compile`, to be run here with a cleared environment.
    pub fn xt(&self, tool: &str) -> Xt {
        self.program(Command::new(programs().join(format!("xt-{tool}"))))
    }

    /// A script for `sh -eu`, to be run here with a cleared environment in which the tools are found.
    pub fn sh(&self, script: &str) -> Xt {
        self.program(Command::new("sh")).args(["-eu", "-c", script])
    }

    fn program(&self, mut command: Command) -> Xt {
        let path = format!("{}:/usr/bin:/bin", programs().display());
        command.current_dir(self.path()).env_clear().env("PATH", path).env("LC_ALL", "C").env("HOME", self.path());
        command.env("XT_NOW", NOW);
        Xt { command, input: Vec::new() }
    }
}

/// A tool about to run.
pub struct Xt {
    command: Command,
    input: Vec<u8>,
}

impl Xt {
    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, arguments: I) -> Self {
        self.command.args(arguments);
        self
    }

    /// A variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// What it reads on standard input; without this, nothing.
    #[must_use]
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// The command itself, for what this harness does not offer.
    pub fn command(self) -> Command {
        self.command
    }

    /// Starts it with all three streams piped.
    pub fn start(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Outcome {
        let input = std::mem::take(&mut self.input);
        let mut child = self.start();
        let mut stdin = child.stdin.take().unwrap();
        // A thread of its own, so that neither side waits for the other; a tool that reads nothing closes the pipe.
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Outcome {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Outcome {
    /// This outcome, if the exit code is `code`.
    #[track_caller]
    #[allow(clippy::must_use_candidate, clippy::return_self_not_must_use, reason = "often the last word of a test")]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The only document on standard output.
    #[track_caller]
    pub fn document(&self) -> Value {
        parse(self.stdout.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.stdout, self.stderr))
    }

    /// The documents on standard output.
    #[track_caller]
    pub fn documents(&self) -> Vec<Value> {
        parse_all(self.stdout.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.stdout, self.stderr))
    }

    /// The text at a JSON pointer of the only document.
    #[track_caller]
    pub fn text(&self, pointer: &str) -> String {
        let document = self.document();
        let found = document.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_else(|| panic!("no text at {pointer} of {}", self.stdout)).to_string()
    }
}
