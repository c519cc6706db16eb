//! What the supervisor tells a worker that is at work: lines on a descriptor, read by a thread of their own, so that a
//! step never waits for them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// A word of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `drain`: write a snapshot at the next step boundary, and stop there.
    Drain,
    /// `taken N`: the snapshot after step N is in the store, and its files are not needed any more.
    Taken(u64),
}

impl Word {
    /// The word in a line; `None` for what this version does not know.
    pub fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "drain" => Some(Self::Drain),
            Some(("taken", step)) => step.parse().ok().map(Self::Taken),
            _ => None,
        }
    }
}

/// The way from the supervisor.
#[derive(Debug)]
pub struct Control(Option<Receiver<Word>>);

impl Control {
    /// Nobody tells anything: snapshots are left where they were written.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Listens to `descriptor` until it is closed at its other end.
    pub fn listen(descriptor: File) -> Self {
        let (teller, listener) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(descriptor).lines().map_while(Result::ok);
            // Nobody listens any more when the job is done.
            lines.filter_map(|line| Word::parse(&line)).all(|word| teller.send(word).is_ok())
        });
        Self(Some(listener))
    }

    /// Whether anybody could tell anything.
    pub const fn is_connected(&self) -> bool {
        self.0.is_some()
    }

    /// The next word, if one has come.
    pub fn heard(&self) -> Option<Word> {
        self.0.as_ref().and_then(|listener| listener.try_recv().ok())
    }

    /// The next word, waited for; `None` when none will come any more.
    pub fn wait(&self) -> Option<Word> {
        self.0.as_ref().and_then(|listener| listener.recv().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Write as _, pipe};
    use std::os::fd::OwnedFd;

    #[test]
    fn words_come_in_order_and_what_is_unknown_is_passed_over() {
        let (reader, mut writer) = pipe().unwrap();
        let control = Control::listen(File::from(OwnedFd::from(reader)));
        writer.write_all(b"taken 5\nsing\ntaken x\ndrain now\ndrain\n").unwrap();
        assert_eq!([control.wait(), control.wait()], [Some(Word::Taken(5)), Some(Word::Drain)]);
        assert_eq!(control.heard(), None);
        drop(writer);
        assert_eq!(control.wait(), None);
        assert!(!Control::none().is_connected() && Control::none().wait().is_none());
    }
}
