//! The hash of a long object, computed beside the writer, which hashes its blocks meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use xt_core::digest::{Digest, Hasher};

use crate::pool::Pool;

/// So many blocks may wait.
const WAITING: usize = 4;

/// A thread that hashes one object after another.
#[derive(Debug)]
pub struct Lane {
    steps: SyncSender<Step>,
    digests: Receiver<Digest>,
}

enum Step {
    Bytes(Arc<Vec<u8>>),
    End,
}

impl Lane {
    /// Starts the thread.
    pub fn start(pool: Pool) -> io::Result<Self> {
        let (steps, taken) = sync_channel(WAITING);
        let (answers, digests) = sync_channel(1);
        let run = move || {
            let mut hasher = Hasher::new();
            for step in taken {
                match step {
                    Step::Bytes(bytes) => {
                        hasher.update(&bytes);
                        pool.give_shared(bytes);
                    }
                    Step::End if answers.send(std::mem::take(&mut hasher).finish()).is_err() => return,
                    Step::End => {}
                }
            }
        };
        drop(Builder::new().name("hash".to_owned()).spawn(run)?);
        Ok(Self { steps, digests })
    }

    /// The next bytes of the object.
    pub fn update(&self, bytes: Arc<Vec<u8>>) -> io::Result<()> {
        self.steps.send(Step::Bytes(bytes)).map_err(|_| gone())
    }

    /// The digest of all bytes since the last one.
    pub fn finish(&self) -> io::Result<Digest> {
        self.steps.send(Step::End).map_err(|_| gone())?;
        self.digests.recv().map_err(|_| gone())
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that hashes ended early")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_after_another_has_its_own_digest() {
        let lane = Lane::start(Pool::default()).unwrap();
        for text in [&b"first"[..], b"second, longer", b""] {
            for piece in text.chunks(3) {
                lane.update(Arc::new(piece.to_vec())).unwrap();
            }
            assert_eq!(lane.finish().unwrap(), Digest::of(text));
        }
    }
}
