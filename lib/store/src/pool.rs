//! Buffers that are used again: getting a megabyte from the system and giving it back costs as much as copying it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// So many wait to be used again, 1 MiB each.
const MOST: usize = 24;

/// Where buffers wait. Every clone is the same place.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// A buffer; what it holds is of no meaning.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn give(&self, buffer: Vec<u8>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST && buffer.capacity() > 0 {
            waiting.push(buffer);
        }
    }

    /// Takes a buffer back if nobody else uses it.
    pub fn give_shared(&self, buffer: Arc<Vec<u8>>) {
        if let Some(buffer) = Arc::into_inner(buffer) {
            self.give(buffer);
        }
    }
}

/// So many wait for each thread that reads.
const SPARE: usize = 8;
/// Shorter ones are not worth keeping, much longer ones take too much.
const LONG: usize = 64 << 10;
const LONGEST: usize = 4 << 20;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of this thread with `length` bytes of no meaning.
pub fn spare(length: usize) -> Vec<u8> {
    let mut buffer = if length < LONG { Vec::new() } else { KEPT.with_borrow_mut(Vec::pop).unwrap_or_default() };
    buffer.resize(length, 0);
    buffer
}

/// Gives this thread a buffer back.
pub fn give_spare(buffer: Vec<u8>) {
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < SPARE && (LONG..LONGEST).contains(&buffer.capacity()) {
            kept.push(buffer);
        }
    });
}
