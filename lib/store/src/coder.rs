//! From blocks to a pack. What is much is encoded by a thread of its own, while the writer hashes the next blocks and a third
//! thread hashes and writes what is encoded.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::JoinHandle;

use xt_core::digest::Digest;

use crate::block::Head;
use crate::codec::Encoder;
use crate::index::Entry;
use crate::pack::PackWriter;

/// From so many bytes on there is a thread.
const MUCH: usize = 2 << 20;
/// So many records may wait for it; a block has 1 MiB at most.
const WAITING: usize = 6;

/// What is to become a record. The head still lacks what encoding decides.
#[derive(Debug)]
pub enum Job {
    /// Bytes to encode.
    Plain(Head, Vec<u8>),
    /// Bytes of many small files, to encode with more effort.
    Text(Head, Vec<u8>),
    /// Bytes that are stored as they are.
    Stored(Head, Vec<u8>),
}

impl Job {
    const fn length(&self) -> usize {
        match self {
            Self::Plain(_, bytes) | Self::Text(_, bytes) | Self::Stored(_, bytes) => bytes.len(),
        }
    }
}

/// Encodes records into a pack.
#[derive(Debug)]
pub struct Coder {
    line: Line,
    taken: usize,
}

#[derive(Debug)]
enum Line {
    Here(Box<Bench>),
    Thread(SyncSender<Job>, JoinHandle<io::Result<Box<Bench>>>),
    Failed,
}

#[derive(Debug)]
struct Bench {
    encoder: Encoder,
    pack: PackWriter,
}

impl Bench {
    fn take(&mut self, job: Job) -> io::Result<()> {
        let long = |length: usize| {
            u32::try_from(length).map_err(|_| io::Error::other("the object has more than 107 million blocks"))
        };
        let (mut head, bytes, text) = match job {
            Job::Stored(head, bytes) => {
                return self.pack.append(Head { stored: long(bytes.len())?, ..head }, &bytes);
            }
            Job::Plain(head, bytes) => (head, bytes, false),
            Job::Text(head, bytes) => (head, bytes, true),
        };
        let (codec, stored) = if text { self.encoder.encode_text(&bytes) } else { self.encoder.encode(&bytes) };
        (head.codec, head.stored) = (codec, long(stored.len())?);
        self.pack.append(head, &stored)
    }

    fn take_all(mut self: Box<Self>, jobs: &Receiver<Job>) -> io::Result<Box<Self>> {
        for job in jobs {
            self.take(job)?;
        }
        Ok(self)
    }
}

impl Coder {
    /// Starts a pack.
    pub fn new(pack: PackWriter) -> Self {
        Self { line: Line::Here(Box::new(Bench { encoder: Encoder::default(), pack })), taken: 0 }
    }

    /// Takes the next record. An error may come of an earlier one.
    pub fn push(&mut self, job: Job) -> io::Result<()> {
        self.taken = self.taken.saturating_add(job.length());
        self.line = match std::mem::replace(&mut self.line, Line::Failed) {
            Line::Here(mut bench) if self.taken < MUCH => {
                bench.take(job)?;
                Line::Here(bench)
            }
            Line::Here(bench) => {
                let (sender, receiver) = std::sync::mpsc::sync_channel(WAITING);
                let thread = std::thread::Builder::new().name("encode".to_owned());
                let handle = thread.spawn(move || bench.take_all(&receiver))?;
                handed(sender, handle, job)?
            }
            Line::Thread(sender, handle) => handed(sender, handle, job)?,
            Line::Failed => return Err(failed()),
        };
        Ok(())
    }

    /// Makes the pack durable, and says what it is called and holds (see [`PackWriter::finish`]).
    pub fn finish(self, taken: impl Fn(Digest) -> bool) -> io::Result<(Digest, Vec<Entry>)> {
        let bench = match self.line {
            Line::Here(bench) => bench,
            Line::Thread(sender, handle) => {
                drop(sender);
                joined(handle)?
            }
            Line::Failed => return Err(failed()),
        };
        bench.pack.finish(taken)
    }
}

fn handed(sender: SyncSender<Job>, handle: JoinHandle<io::Result<Box<Bench>>>, job: Job) -> io::Result<Line> {
    if sender.send(job).is_ok() {
        return Ok(Line::Thread(sender, handle));
    }
    // The thread ended early, so it has an error.
    Err(joined(handle).err().unwrap_or_else(failed))
}

fn joined(handle: JoinHandle<io::Result<Box<Bench>>>) -> io::Result<Box<Bench>> {
    handle.join().unwrap_or_else(|_| Err(io::Error::other("the encoder panicked")))
}

fn failed() -> io::Error {
    io::Error::other("writing the pack failed before")
}
