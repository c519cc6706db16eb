//! The telemetry file of a run: every message of the worker, one canonical line each, appended and flushed as it comes.
//! A crash can leave half a line at its end; only whole lines count.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xt_core::canonical;
use xt_core::fault::Faults;
use xt_core::field::Field;
use xt_core::manifest::job::Message;

use crate::error::{RuntimeError, file};
use crate::lines::Lines;

/// Lines reach the disk at the latest this long after they came.
const SETTLE: Duration = Duration::from_secs(1);
/// So many bytes are read at once.
const STRETCH: usize = 1 << 18;

/// The message in `line`.
pub fn message(line: &[u8]) -> Result<Message, String> {
    let value = canonical::parse(line).map_err(|error| error.to_string())?;
    let mut faults = Faults::new();
    match Message::read(&value, "", &mut faults) {
        Some(message) if faults.is_empty() => Ok(message),
        _ => Err(faults.to_string()),
    }
}

/// Writes the telemetry file.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    settled: Instant,
}

impl Writer {
    /// Begins a new file.
    pub(crate) fn create(path: &Path) -> Result<Self, RuntimeError> {
        let file = File::create(path).map_err(file("create", path))?;
        Ok(Self { path: path.into(), file, settled: Instant::now() })
    }

    /// Appends a message.
    pub(crate) fn append(&mut self, message: &Message) -> Result<(), RuntimeError> {
        let line = message.write().canonical() + "\n";
        self.file.write_all(line.as_bytes()).map_err(file("write", &self.path))?;
        if self.settled.elapsed() >= SETTLE { self.settle() } else { Ok(()) }
    }

    /// Makes what was written durable.
    pub(crate) fn settle(&mut self) -> Result<(), RuntimeError> {
        self.settled = Instant::now();
        self.file.sync_data().map_err(file("flush", &self.path))
    }
}

/// Follows a telemetry file that another process writes.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    lines: Lines,
}

impl Follower {
    /// Follows the file at `path` from its beginning; it need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), file: None, lines: Lines::default() }
    }

    /// Hands over the messages that came since the last call, one by one, until `hear` has enough and says `false`.
    /// Messages of the same stretch that it did not hear are not handed over again.
    pub fn news(&mut self, hear: &mut dyn FnMut(Message) -> Result<bool, RuntimeError>) -> Result<(), RuntimeError> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(opened) => self.file = Some(opened),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(file("read", &self.path)(error)),
            }
        }
        let mut buffer = vec![0; STRETCH];
        while let Some(source) = &mut self.file {
            let count = source.read(&mut buffer).map_err(file("read", &self.path))?;
            if count == 0 {
                break;
            }
            for line in self.lines.push(&buffer[..count]).map_err(|error| self.damaged(error.to_string()))? {
                if !hear(message(&line).map_err(|why| self.damaged(why))?)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn damaged(&self, why: String) -> RuntimeError {
        RuntimeError::Damaged { path: self.path.clone(), faults: Faults::one("", "telemetry.line", why) }
    }
}

/// The lines of a telemetry file as they are, for whoever reads on from where another reader stopped.
#[derive(Debug)]
pub struct Telemetry {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
    skip: u64,
}

impl Telemetry {
    /// The file at `path`, which need not be there yet, from the line after the first `after` ones.
    pub fn new(path: &Path, after: u64) -> Self {
        Self { path: path.into(), file: None, rest: Vec::new(), skip: after }
    }

    /// The whole lines that came since the last call, each with its line feed.
    pub fn news(&mut self) -> Result<Vec<Vec<u8>>, RuntimeError> {
        if self.file.is_none() {
            match File::open(&self.path) {
                Ok(opened) => self.file = Some(opened),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(file("read", &self.path)(error)),
            }
        }
        if let Some(source) = &mut self.file {
            source.read_to_end(&mut self.rest).map_err(file("read", &self.path))?;
        }
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let bytes: Vec<u8> = self.rest.drain(..whole).collect();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec);
        Ok(lines
            .filter(|_| {
                let new = self.skip == 0;
                self.skip = self.skip.saturating_sub(1);
                new
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(step: u64) -> Message {
        Message::Held { step, reason: "loss".into() }
    }

    fn all(follower: &mut Follower) -> Vec<Message> {
        let mut heard = Vec::new();
        let hear = &mut |message| {
            heard.push(message);
            Ok(true)
        };
        follower.news(hear).unwrap();
        heard
    }

    #[test]
    fn a_follower_sees_whole_lines_only_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("telemetry.jsonl");
        let mut follower = Follower::new(&path);
        assert_eq!(all(&mut follower), []);
        let mut writer = Writer::create(&path).unwrap();
        writer.append(&held(1)).unwrap();
        writer.append(&held(2)).unwrap();
        assert_eq!(all(&mut follower), [held(1), held(2)]);
        let line = held(3).write().canonical();
        let (first, second) = line.split_at(9);
        writer.file.write_all(first.as_bytes()).unwrap();
        assert_eq!(all(&mut follower), [], "a torn tail is no line");
        writer.file.write_all(second.as_bytes()).unwrap();
        writer.file.write_all(b"\n").unwrap();
        assert_eq!(all(&mut follower), [held(3)]);
        assert_eq!(all(&mut follower), []);
    }

    #[test]
    fn lines_read_on_from_where_another_reader_stopped_are_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("telemetry.jsonl");
        let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n").into_bytes()).collect::<Vec<_>>();
        let mut late = Telemetry::new(&path, 1);
        assert_eq!(late.news().unwrap(), text(&[]), "there is no file yet");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        assert_eq!(late.news().unwrap(), text(&["two"]));
        assert_eq!(Telemetry::new(&path, 0).news().unwrap(), text(&["one", "two"]), "the control");
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"ee\nfour\n").unwrap();
        assert_eq!(late.news().unwrap(), text(&["three", "four"]));
        assert_eq!(Telemetry::new(&path, 9).news().unwrap(), text(&[]));
    }

    #[test]
    fn a_line_that_is_no_message_is_refused() {
        for text in ["", "{}", "{\"kind\":\"step\"}", "{\"kind\":\"held\",\"reason\":\"\",\"step\":1} x"] {
            assert!(message(text.as_bytes()).is_err(), "{text}");
        }
    }
}
