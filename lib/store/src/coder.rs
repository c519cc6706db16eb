//! From blocks to a pack. What is much is encoded by threads of its own, as many as the machine runs at once, while the writer
//! hashes the next blocks; one more thread puts what is encoded in the order in which it came, hashes and writes it.

use std::io;
use std::ops::Deref;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use xt_core::digest::Digest;

use crate::block::Head;
use crate::codec::Encoder;
use crate::index::Entry;
use crate::pack::PackWriter;
use crate::pool::Pool;
use crate::restore::threads;

/// From so many bytes on there are threads.
const MUCH: u64 = 2 << 20;
/// So many jobs may wait for each thread; a block has 1 MiB at most.
const WAITING: usize = 3;

/// What is to become a record, and records of few bytes that stand behind it. The head still lacks what encoding decides.
#[derive(Debug)]
pub struct Job {
    /// The head of the record.
    pub head: Head,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// How they are to be stored.
    pub how: How,
    /// Records that are stored as they are.
    pub behind: Vec<(Head, Vec<u8>)>,
}

/// How the bytes of a record are to be stored.
#[derive(Clone, Debug)]
pub enum How {
    /// As they are; they may be encoded already.
    Stored,
    /// By the codec that a trial finds best.
    Tried,
    /// With the effort that the bytes of many small files are worth.
    Text,
    /// As the difference from another block, where that is clearly smaller.
    Difference(Digest, Arc<Vec<u8>>),
}

/// The stored bytes of a record.
enum Bytes {
    Own(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A job that is encoded.
struct Done {
    head: Head,
    stored: Bytes,
    behind: Vec<(Head, Vec<u8>)>,
}

impl Done {
    fn append_to(self, pack: &mut PackWriter, pool: &Pool) -> io::Result<()> {
        pack.append(self.head, &self.stored)?;
        for (head, stored) in &self.behind {
            pack.append(*head, stored)?;
        }
        match self.stored {
            Bytes::Own(bytes) => pool.give(bytes),
            Bytes::Shared(bytes) => pool.give_shared(bytes),
        }
        Ok(())
    }
}

fn encode(encoder: &mut Encoder, job: Job, pool: &Pool) -> io::Result<Done> {
    let Job { mut head, bytes, how, mut behind } = job;
    let codec = match how {
        How::Stored => None,
        How::Tried => encoder.encode(&bytes, pool),
        How::Text => encoder.encode_text(&bytes, pool),
        How::Difference(base, plain) => encoder.difference(&bytes, (base, &plain), pool),
    };
    let stored = if let Some((codec, stored)) = codec {
        head.codec = codec;
        pool.give_shared(bytes);
        Bytes::Own(stored)
    } else {
        Bytes::Shared(bytes)
    };
    head.stored = long(stored.len())?;
    for (head, stored) in &mut behind {
        head.stored = long(stored.len())?;
    }
    Ok(Done { head, stored, behind })
}

fn long(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(|_| io::Error::other("the object has more than 107 million blocks"))
}

/// Encodes records into a pack.
#[derive(Debug)]
pub struct Coder {
    line: Line,
    taken: u64,
    pool: Pool,
}

#[derive(Debug)]
enum Line {
    Here(Box<(Encoder, PackWriter)>),
    Threads(Threads),
    Failed,
}

type Answer = SyncSender<io::Result<Done>>;

/// The threads at work.
#[derive(Debug)]
struct Threads {
    jobs: SyncSender<(Job, Answer)>,
    /// Where each job's result will come from, in the order of the jobs.
    order: SyncSender<Receiver<io::Result<Done>>>,
    pack: JoinHandle<io::Result<PackWriter>>,
}

impl Threads {
    fn start(pack: PackWriter, pool: &Pool) -> io::Result<Self> {
        let count = threads();
        let (jobs, waiting) = sync_channel::<(Job, Answer)>(WAITING * count);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..count {
            let (waiting, pool) = (Arc::clone(&waiting), pool.clone());
            // Who wants to know how it went waits for the thread of the pack.
            drop(Builder::new().name("encode".to_owned()).spawn(move || work(&waiting, &pool))?);
        }
        let (order, results) = sync_channel(WAITING * count);
        let pool = pool.clone();
        let pack = Builder::new().name("pack".to_owned()).spawn(move || gather(pack, &results, &pool))?;
        Ok(Self { jobs, order, pack })
    }

    /// Hands a job over; when that is not possible any more, the error says why.
    fn hand(self, job: Job) -> io::Result<Self> {
        let (answer, result) = sync_channel(1);
        if self.order.send(result).is_ok() && self.jobs.send((job, answer)).is_ok() {
            return Ok(self);
        }
        // The thread of the pack ended early, so it has an error.
        Err(self.finish().err().unwrap_or_else(failed))
    }

    fn finish(self) -> io::Result<PackWriter> {
        let Self { jobs, order, pack } = self;
        drop((jobs, order));
        pack.join().unwrap_or_else(|_| Err(io::Error::other("the writer of the pack panicked")))
    }
}

fn work(waiting: &Mutex<Receiver<(Job, Answer)>>, pool: &Pool) {
    let mut encoder = Encoder::default();
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((job, answer)) = next else { return };
        // Nobody waits for the answer when the pack cannot be written.
        drop(answer.send(encode(&mut encoder, job, pool)));
    }
}

fn gather(mut pack: PackWriter, results: &Receiver<Receiver<io::Result<Done>>>, pool: &Pool) -> io::Result<PackWriter> {
    for result in results {
        let done = result.recv().map_err(|_| io::Error::other("an encoder ended early"))??;
        done.append_to(&mut pack, pool)?;
    }
    Ok(pack)
}

impl Coder {
    /// Starts a pack.
    pub fn new(pack: PackWriter, pool: Pool) -> Self {
        Self { line: Line::Here(Box::new((Encoder::default(), pack))), taken: 0, pool }
    }

    /// Bytes taken so far, before they were encoded.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes the next record. An error may come of an earlier one.
    pub fn push(&mut self, job: Job) -> io::Result<()> {
        self.taken = self.taken.saturating_add(job.bytes.len() as u64);
        self.line = match std::mem::replace(&mut self.line, Line::Failed) {
            Line::Here(mut here) if self.taken < MUCH => {
                encode(&mut here.0, job, &self.pool)?.append_to(&mut here.1, &self.pool)?;
                Line::Here(here)
            }
            Line::Here(here) => Line::Threads(Threads::start(here.1, &self.pool)?.hand(job)?),
            Line::Threads(threads) => Line::Threads(threads.hand(job)?),
            Line::Failed => return Err(failed()),
        };
        Ok(())
    }

    /// Makes the pack durable, and says what it is called and holds (see [`PackWriter::finish`]).
    pub fn finish(self, taken: impl Fn(Digest) -> bool) -> io::Result<(Digest, Vec<Entry>)> {
        let pack = match self.line {
            Line::Here(here) => here.1,
            Line::Threads(threads) => threads.finish()?,
            Line::Failed => return Err(failed()),
        };
        pack.finish(taken)
    }
}

fn failed() -> io::Error {
    io::Error::other("writing the pack failed before")
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::block::Kind;
    use crate::hashing::Hashing;
    use crate::pack;

    fn job(bytes: Vec<u8>) -> Job {
        let head =
            Head { kind: Kind::Block, codec: 0, stored: 0, plain: bytes.len() as u64, digest: Digest::of(&bytes) };
        Job { head, bytes: Arc::new(bytes), how: How::Tried, behind: Vec::new() }
    }

    #[test]
    fn records_of_many_threads_stand_in_the_order_in_which_they_came() {
        let file = tempfile::tempfile().unwrap();
        let mut coder = Coder::new(PackWriter::new(file.try_clone().unwrap(), Hashing::Nested), Pool::default());
        let blocks: Vec<Vec<u8>> = (0_u8..40).map(|i| vec![i; 100_000 + 20_000 * usize::from(i)]).collect();
        for block in &blocks {
            coder.push(job(block.clone())).unwrap();
        }
        let (digest, entries) = coder.finish(|_| false).unwrap();
        assert_eq!(pack::digest_of(&file, Hashing::Nested).unwrap().0, digest);
        assert_eq!(pack::scan(&file).unwrap(), entries);
        let in_order: Vec<Digest> = entries.iter().map(|entry| entry.head.digest).collect();
        assert_eq!(in_order, blocks.iter().map(|block| Digest::of(block)).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_of_a_thread_comes_out_of_a_later_call() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut coder = Coder::new(PackWriter::new(full, Hashing::Nested), Pool::default());
        let noise =
            |seed: u32| (0..1_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed).to_le_bytes()[3]).collect();
        let pushed = (0..40).try_for_each(|seed| coder.push(job(noise(seed))));
        let error = pushed.and_then(|()| coder.finish(|_| false).map(|_| ())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
