//! Packs: files of records, named by the digest of all their bytes.
//!
//! A pack starts with `xtpack/1`; records follow one another without gaps (see block.rs). It is written once, in the
//! directory of its writer, and never changed after its rename into `packs/`.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use xt_core::digest::Digest;

use crate::block::{HEAD, Head, Kind, MAGIC};
use crate::codec::RAW;
use crate::hashing::{Hashing, PackHasher};
use crate::index::Entry;
use crate::pool::spare;

/// First bytes of a pack.
pub const PREFIX: &[u8; 8] = b"xtpack/1";
/// Bytes gathered before they are written, and looked through at once when searching.
const BUFFER: usize = 1 << 20;

/// Stored bytes from so many on are written without being gathered first.
const DIRECT: usize = 64 << 10;
/// After so many bytes the system is asked to begin bringing them to the disk, so that flushing has little left to do.
const BEGUN: u64 = 8 << 20;

/// Longer packs are hashed by one thread and read by another, which is so many parts ahead.
const LONG: u64 = 16 << 20;
const AHEAD: usize = 2;

/// A pack being written.
#[derive(Debug)]
pub struct PackWriter {
    file: File,
    hashing: Hashing,
    hasher: PackHasher,
    buffer: Vec<u8>,
    length: u64,
    /// Bytes given to the system, and those of them that it was asked to bring to the disk.
    written: u64,
    begun: u64,
    entries: Vec<Entry>,
}

impl PackWriter {
    /// Starts a pack in an empty file.
    pub fn new(file: File, hashing: Hashing) -> Self {
        let (buffer, length) = (PREFIX.to_vec(), PREFIX.len() as u64);
        Self { file, hashing, hasher: hashing.pack(), buffer, length, written: 0, begun: 0, entries: Vec::new() }
    }

    /// Appends a record.
    pub fn append(&mut self, head: Head, stored: &[u8]) -> io::Result<()> {
        self.entries.push(Entry { head, offset: self.length });
        self.buffer.extend_from_slice(&head.encode(stored));
        self.length += (HEAD + stored.len()) as u64;
        if stored.len() >= DIRECT {
            self.flush()?;
            return self.write(stored);
        }
        self.buffer.extend_from_slice(stored);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        buffer.clear();
        self.buffer = buffer;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        if self.written - self.begun >= BEGUN {
            // Linux begins to write what it is told is not needed in memory; that it does so is no more than a help.
            let part = (self.begun.cast_signed(), (self.written - self.begun).cast_signed());
            posix_fadvise(&self.file, part.0, part.1, PosixFadviseAdvice::POSIX_FADV_DONTNEED).ok();
            self.begun = self.written;
        }
        Ok(())
    }

    /// Makes the bytes durable, and says what the pack is called and holds. A name that is `taken`, as that of a pack which
    /// is to be removed, is avoided by a record that nobody asks for.
    pub fn finish(mut self, taken: impl Fn(Digest) -> bool) -> io::Result<(Digest, Vec<Entry>)> {
        self.flush()?;
        let mut digest = self.hasher.finish();
        for number in 0u32.. {
            if !taken(digest) {
                break;
            }
            let salt = format!("{number} {} {digest}", std::process::id());
            let stored = u32::try_from(salt.len()).unwrap_or_default();
            let plain = self.hashing.block(salt.as_bytes());
            let head = Head { kind: Kind::Block, codec: RAW, stored, plain: u64::from(stored), digest: plain };
            self.append(head, salt.as_bytes())?;
            self.flush()?;
            digest = self.hasher.finish();
        }
        self.file.sync_all()?;
        Ok((digest, self.entries))
    }
}

/// The digest of all bytes of a file, and how many there are. A long one is read ahead of the hash by a thread of its own.
pub fn digest_of(file: &File, hashing: Hashing) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut at) = (hashing.pack(), 0);
    if file.metadata()?.len() < LONG {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = fill_at(file, at, &mut buffer)?;
            hasher.update(&buffer[..length]);
            at += length as u64;
            if length < BUFFER {
                return Ok((hasher.finish(), at));
            }
        }
    }
    thread::scope(|scope| {
        let (sender, parts) = sync_channel(AHEAD);
        let (back, used) = channel();
        scope.spawn(move || read_ahead(file, &used, &sender));
        for part in parts {
            let part: Vec<u8> = part?;
            hasher.update(&part);
            at += part.len() as u64;
            // The thread that reads has ended when nobody takes it.
            drop(back.send(part));
        }
        Ok((hasher.finish(), at))
    })
}

fn read_ahead(file: &File, used: &Receiver<Vec<u8>>, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut at = 0;
    loop {
        let mut buffer = used.try_recv().unwrap_or_default();
        buffer.resize(BUFFER, 0);
        let read = fill_at(file, at, &mut buffer);
        let length = *read.as_ref().unwrap_or(&0);
        buffer.truncate(length);
        at += length as u64;
        if sender.send(read.map(|_| buffer)).is_err() || length < BUFFER {
            return;
        }
    }
}

/// Name of a pack's file.
pub fn file_name(pack: Digest) -> String {
    format!("{}.pack", pack.hex())
}

/// Name of the index file beside it.
pub fn index_name(pack: Digest) -> String {
    format!("{}.idx", pack.hex())
}

/// The pack that a file in `packs/` is by its name.
pub fn from_file_name(name: &str) -> Option<Digest> {
    name.strip_suffix(".pack").and_then(|hex| Digest::from_hex(hex).ok())
}

/// The stored bytes of a record, when its head is what the index says and the pack reaches that far.
pub fn read_record(file: &File, entry: &Entry) -> io::Result<Vec<u8>> {
    let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem);
    let end = entry.offset.saturating_add(HEAD as u64).saturating_add(u64::from(entry.head.stored));
    let length = file.metadata()?.len();
    if end > length {
        return Err(wrong(&format!("the pack ends at byte {length}, the record at byte {end}")));
    }
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, entry.offset)?;
    let mut stored = spare(entry.head.stored as usize);
    file.read_exact_at(&mut stored, entry.offset + HEAD as u64)?;
    if Head::peek(&head) != Some(entry.head) || !Head::holds(&head, entry.head.kind, &stored) {
        return Err(wrong(&format!("the head of the record at byte {} is wrong", entry.offset)));
    }
    Ok(stored)
}

/// The same out of bytes of the pack from `start` on; `None` when it is not whole in there, or not right.
pub fn record_in(part: &[u8], start: u64, entry: &Entry) -> Option<Vec<u8>> {
    let at = usize::try_from(entry.offset.checked_sub(start)?).ok()?;
    let (head, behind) = part.get(at..)?.split_first_chunk::<HEAD>()?;
    let stored = behind.get(..entry.head.stored as usize)?;
    let right = Head::peek(head) == Some(entry.head) && Head::holds(head, entry.head.kind, stored);
    right.then(|| stored.to_vec())
}

/// The bytes of a pack from `start` on, at most `length` of them.
pub fn part(file: &File, start: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = fill_at(file, start, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads from `start` on until the buffer is full or the file ends.
fn fill_at(file: &File, start: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], start + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Finds the records of a pack without its index. What cannot be read is skipped up to the next head.
pub fn scan(file: &File) -> io::Result<Vec<Entry>> {
    let length = file.metadata()?.len();
    let mut entries = Vec::new();
    let mut offset = PREFIX.len() as u64;
    while offset < length {
        if let Some(head) = head_at(file, offset, length)? {
            entries.push(Entry { head, offset });
            offset += HEAD as u64 + u64::from(head.stored);
        } else {
            let Some(next) = find_magic(file, offset + 1, length)? else { break };
            offset = next;
        }
    }
    Ok(entries)
}

fn head_at(file: &File, offset: u64, length: u64) -> io::Result<Option<Head>> {
    let start = offset + HEAD as u64;
    if start > length {
        return Ok(None);
    }
    let mut bytes = [0; HEAD];
    file.read_exact_at(&mut bytes, offset)?;
    let Some(head) = Head::peek(&bytes).filter(|head| u64::from(head.stored) <= length - start) else {
        return Ok(None);
    };
    let mut payload = Vec::new();
    if head.kind == Kind::List {
        payload.resize(head.stored as usize, 0);
        file.read_exact_at(&mut payload, start)?;
    }
    Ok(Head::holds(&bytes, head.kind, &payload).then_some(head))
}

fn find_magic(file: &File, mut offset: u64, length: u64) -> io::Result<Option<u64>> {
    let mut window = vec![0; BUFFER];
    while offset + (HEAD as u64) <= length {
        let size = usize::try_from(length - offset).unwrap_or(BUFFER).min(BUFFER);
        file.read_exact_at(&mut window[..size], offset)?;
        if let Some(found) = window[..size].windows(MAGIC.len()).position(|bytes| bytes == MAGIC) {
            return Ok(Some(offset + found as u64));
        }
        // The magic may straddle two windows.
        offset += (size - (MAGIC.len() - 1)) as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASHING: Hashing = Hashing::Nested;

    #[test]
    fn a_large_pack_is_written_in_parts_to_the_same_bytes() {
        let block = vec![7; 700_000];
        let (file, digest, entries) = pack_of(&[&block, b"small", &block, &block, b"end"]);
        assert_eq!(digest_of(&file, HASHING).unwrap(), (digest, file.metadata().unwrap().len()));
        assert_eq!(read_record(&file, &entries[3]).unwrap(), block);
        assert_eq!(scan(&file).unwrap(), entries);
    }

    #[test]
    fn an_error_of_the_disk_comes_out() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = PackWriter::new(full, HASHING);
        let block = vec![7; 1 << 20];
        let head = Head { kind: Kind::Block, codec: 0, stored: 1 << 20, plain: 1 << 20, digest: Digest::of(&block) };
        let appended = (0..10).try_for_each(|_| writer.append(head, &block));
        let error = appended.and_then(|()| writer.finish(|_| false).map(|_| ())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    fn pack_of(texts: &[&[u8]]) -> (File, Digest, Vec<Entry>) {
        let file = tempfile::tempfile().unwrap();
        let mut writer = PackWriter::new(file.try_clone().unwrap(), HASHING);
        for text in texts {
            let stored = u32::try_from(text.len()).unwrap();
            let head = Head { kind: Kind::Whole, codec: 0, stored, plain: text.len() as u64, digest: Digest::of(text) };
            writer.append(head, text).unwrap();
        }
        let (digest, entries) = writer.finish(|_| false).unwrap();
        (file, digest, entries)
    }

    #[test]
    fn a_pack_is_named_by_its_bytes_and_scanned_without_an_index() {
        let (file, digest, entries) = pack_of(&[b"one", b"", b"three"]);
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let mut hasher = HASHING.pack();
        hasher.update(&bytes);
        assert_eq!(hasher.finish(), digest);
        assert_eq!(scan(&file).unwrap(), entries);
        assert_eq!(read_record(&file, &entries[2]).unwrap(), b"three");
        assert_eq!(from_file_name(&file_name(digest)), Some(digest));
    }

    #[test]
    fn a_name_that_is_taken_is_avoided_and_the_pack_is_whole() {
        let (_, first, _) = pack_of(&[b"one"]);
        let file = tempfile::tempfile().unwrap();
        let mut writer = PackWriter::new(file.try_clone().unwrap(), HASHING);
        let head = Head { kind: Kind::Whole, codec: 0, stored: 3, plain: 3, digest: Digest::of(b"one") };
        writer.append(head, b"one").unwrap();
        let (second, entries) = writer.finish(|digest| digest == first).unwrap();
        assert_ne!(first, second);
        assert_eq!(digest_of(&file, HASHING).unwrap().0, second);
        assert_eq!((entries.len(), scan(&file).unwrap()), (2, entries));
    }

    #[test]
    fn a_scan_goes_on_behind_a_broken_head_and_behind_a_false_magic() {
        let (file, _, entries) = pack_of(&[b"one", b"xtrecordxtrecord", b"three"]);
        file.write_all_at(&[0xff], entries[1].offset + 30).unwrap();
        assert_eq!(scan(&file).unwrap(), [entries[0], entries[2]]);
        assert!(read_record(&file, &entries[1]).is_err());
    }

    #[test]
    fn a_cut_pack_gives_what_is_whole() {
        let (file, _, entries) = pack_of(&[b"one", b"two"]);
        for length in 0..file.metadata().unwrap().len() {
            let (cut, _, _) = pack_of(&[b"one", b"two"]);
            cut.set_len(length).unwrap();
            let whole = entries.iter().filter(|e| e.offset + HEAD as u64 + u64::from(e.head.stored) <= length);
            assert_eq!(scan(&cut).unwrap(), whole.copied().collect::<Vec<_>>(), "{length}");
            assert!(read_record(&cut, &entries[1]).is_err());
        }
    }
}
