//! What a program that came to grief said last.

use std::path::PathBuf;

use xt_core::manifest::run::{Run, Status};
use xt_store::Store;

use crate::folder::Folder;

/// So many characters of a line are shown.
const SHOWN: usize = 300;

/// The last line of a run's standard error, and where all of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastWords {
    /// The last line that is not blank, shortened when it is long.
    pub line: String,
    /// The file with the whole stream.
    pub log: PathBuf,
}

impl LastWords {
    /// Those of a run that failed; `None` when it did not, or was silent, or its log is nowhere any more.
    pub fn of(store: &Store, run: &Run) -> Option<Self> {
        if !matches!(run.status, Status::Failed | Status::Exhausted | Status::NotStarted) {
            return None;
        }
        let log = Folder::of(store.path(), &run.attempt).stderr();
        let bytes = store.get(run.logs.stderr.digest).or_else(|_| std::fs::read(&log)).ok()?;
        Some(Self { line: last_line(&bytes)?, log })
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_the_last_word() {
        assert_eq!(last_line(b"one\ntwo\n\n  \n").as_deref(), Some("two"));
        assert_eq!(last_line(b"\n \n"), None);
        assert_eq!(last_line(b"a \xff").as_deref(), Some("a \u{fffd}"));
        let long = last_line("x".repeat(1000).as_bytes()).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (SHOWN + 1, true));
    }
}
