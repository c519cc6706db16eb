//! Programs under strace(1), which does something to the n-th system call of a kind.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xt_harness::{NOW, programs};

use crate::unsynced;

/// A program that is tampered with and takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether programs may be traced here.
pub fn has_strace() -> bool {
    let found =
        Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("not run here: strace is missing or may not trace");
    }
    found
}

/// A program that is to be tampered with.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The tool, `store` for `xt-store`.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// The folder that it runs in.
    pub folder: &'a Path,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` when it was killed.
    pub code: Option<i32>,
    /// What it said on standard error.
    pub stderr: String,
    /// What it did, with all that [`unsynced::lose`] looks at.
    pub trace: String,
}

impl Ended {
    /// Whether strace did what it was asked to: there was such a call.
    pub fn was_hit(&self) -> bool {
        self.trace.contains("(INJECTED)") || self.trace.contains("--- SIG") || self.code.is_none()
    }
}

impl Program<'_> {
    /// Runs it with `injection`, as in `--inject` of strace. When it is stopped by that, `meanwhile` is called and then
    /// decides whether it goes on.
    pub fn run(&self, injection: &str, meanwhile: impl FnOnce() -> bool) -> Ended {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("trace");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "0", "-qq", "-o"]).arg(&path);
        command.args(["-e", &format!("trace={}", unsynced::CALLS), "-e", &format!("inject={injection}")]);
        command.arg(programs().join(format!("xt-{}", self.tool))).args(self.arguments).current_dir(self.folder);
        command.env_clear().env("XT_NOW", NOW).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        if injection.contains("SIGSTOP") {
            self.while_stopped(child.id(), &path, meanwhile);
        }
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        // strace ends the way its child did, by a signal; some versions turn that into 137.
        let code = child.wait().unwrap().code().filter(|code| *code != 137);
        Ended { code, stderr, trace: fs::read_to_string(&path).unwrap() }
    }

    fn while_stopped(&self, strace: u32, trace: &Path, meanwhile: impl FnOnce() -> bool) {
        let begun = Instant::now();
        let children = format!("/proc/{strace}/task/{strace}/children");
        // strace lives as long as what it traces, or as nobody has waited for it.
        while fs::read_to_string(format!("/proc/{strace}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < PATIENCE, "xt-{} {:?} does not end", self.tool, self.arguments);
            let stopped = fs::read_to_string(trace).unwrap_or_default().contains("--- stopped by SIGSTOP ---");
            if !stopped {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            let signal = if meanwhile() { "-CONT" } else { "-KILL" };
            let child = fs::read_to_string(children).unwrap();
            assert!(Command::new("kill").args([signal, child.trim()]).status().unwrap().success());
            return;
        }
    }
}
