//! Files that were stored before and have not changed since, so that they need not be read again.
//!
//! `cache/seen` lists them: `xtseen/1`, records of 88 bytes (device, inode, size, seconds and nanoseconds of the last change
//! of content and of the last change of anything, 8 bytes each, little endian; SHA-256), and the SHA-256 of all that. The
//! kernel sets the second of these times itself, so nobody can change a file and hide it, but a clock that is set back can.
//! A file that changed within the last seconds is not listed: it may change again without a difference in its times.
//!
//! It may be deleted at any time, and it is whenever damage is met: what is stored again is then read again, and that heals.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cap_std::fs::Dir;
use xt_core::digest::Digest;

use crate::block::{Extent, Kind};
use crate::disk::{self, Fingerprint};
use crate::error::StoreError;
use crate::layout::CACHE;
use crate::source::Source;
use crate::store::Store;
use crate::write::Writer;

/// Name of the file, and of the one that becomes it.
const FILE: &str = "seen";
const PREFIX: &[u8; 8] = b"xtseen/1";
/// Numbers of a record, and its length.
const NUMBERS: usize = 7;
const RECORD: usize = 8 * NUMBERS + 32;
/// So many files are remembered.
const MOST: usize = 100_000;
/// A file must have rested so many seconds.
const REST: i64 = 3;

type Key = [u64; NUMBERS];

/// What is known of files.
#[derive(Debug, Default)]
pub struct Seen {
    before: BTreeMap<Key, Digest>,
    /// Of this time: these are kept when there are too many.
    now: BTreeMap<Key, Digest>,
    fresh: bool,
}

impl Seen {
    fn load(store: &Store) -> Self {
        let mut bytes = Vec::new();
        let limit = (MOST * RECORD) as u64 + 64;
        let read = store
            .layout
            .folder(CACHE)
            .ok()
            .and_then(|folder| disk::open_regular(&folder, Path::new(FILE)).ok())
            .and_then(|file| file.take(limit).read_to_end(&mut bytes).ok());
        let before = read.and_then(|_| decode(&bytes)).unwrap_or_default();
        Self { before, now: BTreeMap::new(), fresh: false }
    }

    /// Writes it for the next time. It is a convenience, so a failure is none of the commit.
    pub fn save(mut self, store: &Store, tmp: &Dir) {
        if !self.fresh {
            return;
        }
        // What was read now is right, whatever was known before of a file that looks the same.
        self.before.retain(|key, _| !self.now.contains_key(key));
        let room = MOST.saturating_sub(self.now.len());
        self.now.extend(self.before.into_iter().take(room));
        let mut bytes = PREFIX.to_vec();
        for (key, digest) in self.now.iter().take(MOST) {
            for number in key {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend_from_slice(digest.bytes());
        }
        let sum = Digest::of(&bytes);
        bytes.extend_from_slice(sum.bytes());
        let Ok(folder) = store.layout.folder(CACHE) else { return };
        let written = disk::create_file(tmp, FILE).and_then(|mut file| file.write_all(&bytes));
        drop(written.and_then(|()| tmp.rename(FILE, &folder, FILE)));
    }
}

fn decode(bytes: &[u8]) -> Option<BTreeMap<Key, Digest>> {
    let (body, sum) = bytes.split_last_chunk::<32>()?;
    let records = body.strip_prefix(PREFIX)?;
    if Digest::of(body).bytes() != sum || !records.len().is_multiple_of(RECORD) {
        return None;
    }
    let record = |bytes: &[u8]| {
        let mut key = [0; NUMBERS];
        for (number, bytes) in key.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some((key, Digest::from_bytes(bytes[8 * NUMBERS..].try_into().ok()?)))
    };
    records.chunks_exact(RECORD).map(record).collect()
}

fn rested(fingerprint: &Fingerprint) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).is_ok_and(|now| fingerprint.last().saturating_add(REST) <= now)
}

impl Store {
    /// Forgets which files were stored before.
    pub(crate) fn forget_seen(&self) {
        if let Ok(folder) = self.layout.folder(CACHE) {
            drop(disk::remove(&folder, FILE.as_ref()));
        }
    }
}

impl Writer<'_> {
    /// What a file was when it was stored, if it has not changed since and the store still has all of it.
    pub(crate) fn remembered(&mut self, source: &Source) -> Result<Option<Digest>, StoreError> {
        Ok(self.recalled(|| Some(*source.fingerprint()))?.map(|(digest, _)| digest))
    }

    /// The same of a file that is looked at only when any is remembered; and its size.
    pub(crate) fn recalled(
        &mut self,
        look: impl FnOnce() -> Option<Fingerprint>,
    ) -> Result<Option<(Digest, u64)>, StoreError> {
        let store = self.store;
        let seen = self.seen.get_or_insert_with(|| Seen::load(store));
        if seen.before.is_empty() {
            return Ok(None);
        }
        let Some(fingerprint) = look().filter(rested) else { return Ok(None) };
        let key = fingerprint.key();
        let Some(digest) = seen.before.get(&key).copied() else { return Ok(None) };
        if !self.is_listed(digest)? {
            return Ok(None);
        }
        if let Some(seen) = &mut self.seen {
            seen.now.insert(key, digest);
        }
        Ok(Some((digest, fingerprint.bytes)))
    }

    /// Remembers a file.
    pub(crate) fn remember(&mut self, source: &Source, digest: Digest) {
        if !rested(source.fingerprint()) {
            return;
        }
        let store = self.store;
        let seen = self.seen.get_or_insert_with(|| Seen::load(store));
        seen.fresh = true;
        seen.now.insert(source.fingerprint().key(), digest);
    }

    /// Whether an object and all of its blocks are in packs that stay.
    fn is_listed(&mut self, digest: Digest) -> Result<bool, StoreError> {
        for place in self.places(digest, Kind::is_object) {
            if place.entry.head.kind == Kind::Whole {
                if self.stays(digest) {
                    return Ok(true);
                }
                continue;
            }
            let Some(stored) = self.sound(place.pack, self.store.record(&place))? else { continue };
            let extents = Extent::decode_all(&stored, place.entry.head.plain).unwrap_or_default();
            if extents.iter().all(|extent| self.stays(extent.block)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
