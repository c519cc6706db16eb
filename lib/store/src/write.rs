//! Writing objects: any number of them go into one pack, which becomes visible whole and durable, or not at all.

use std::collections::BTreeSet;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use xt_core::digest::Digest;
use xt_core::field::Manifest;

use crate::block::{BLOCK, Extent, HEAD, Head, Kind};
use crate::codec;
use crate::coder::{Coder, How, Job};
use crate::cut::Cutter;
use crate::disk;
use crate::error::StoreError;
use crate::group::Group;
use crate::index::{self, Entry, Place};
use crate::lane::Lane;
use crate::layout::TMP;
use crate::lease::Lease;
use crate::pack::{self, PackWriter};
use crate::pool::Pool;
use crate::read::Unusable;
use crate::seen::Seen;
use crate::source::Source;
use crate::store::Store;

const PACK: &str = "pack";
const INDEX: &str = "index";
/// Plain bytes after which the next pack begins: two of them are hashed twice as fast as one that is twice as long.
const FULL: u64 = 512 << 20;

/// A pack that is written: its digest and its records.
pub type Finished = (Digest, Vec<Entry>);

/// Takes in objects. Nothing is visible before [`Writer::commit`]; dropping the writer without it leaves nothing.
#[derive(Debug)]
pub struct Writer<'a> {
    pub(crate) store: &'a Store,
    lease: Lease,
    pack: Option<Coder>,
    /// Packs that hold as much as one should, on their way to the disk.
    full: Vec<JoinHandle<io::Result<Finished>>>,
    /// Packs that are on the disk and not yet visible.
    ready: Vec<Finished>,
    /// Small files that are to share a block.
    pub(crate) group: Group,
    /// Files that were stored before.
    pub(crate) seen: Option<Seen>,
    /// Digest and kind of each record of this pack.
    written: BTreeSet<(Digest, Kind)>,
    /// Packs that count as absent, since they are condemned.
    avoided: BTreeSet<Digest>,
    /// Packs in which damage was met.
    pub(crate) spoiled: BTreeSet<Digest>,
    /// Whether blocks are stored as they are.
    pub(crate) raw: bool,
    /// Hashes long objects.
    lane: Option<Lane>,
    pub(crate) pool: Pool,
}

impl Store {
    /// Starts writing. Takes a lease, and sweeps what dead writers left.
    pub fn writer(&self) -> Result<Writer<'_>, StoreError> {
        let lease = Lease::take(&self.layout)?;
        self.refresh()?;
        self.mend_indexes(&lease)?;
        let avoided = lease.condemned().clone();
        Ok(Writer {
            store: self,
            avoided,
            lease,
            pack: None,
            full: Vec::new(),
            ready: Vec::new(),
            group: Group::default(),
            seen: None,
            written: BTreeSet::new(),
            spoiled: BTreeSet::new(),
            raw: false,
            lane: None,
            pool: Pool::default(),
        })
    }

    /// Makes index files again that are missing or damaged. A pack that is damaged itself gets none: an index made from
    /// it would turn damaged objects into missing ones.
    fn mend_indexes(&self, lease: &Lease) -> Result<(), StoreError> {
        let unindexed = std::mem::take(&mut self.index.write().unwrap_or_else(PoisonError::into_inner).unindexed);
        for pack in unindexed {
            let Ok(file) = self.pack_file(pack) else { continue };
            let failed = |error| StoreError::system("index", &self.pack_path(&pack::file_name(pack)))(error);
            if pack::digest_of(&file, self.layout.hashing).map_err(failed)?.0 != pack {
                continue;
            }
            let bytes = index::encode(pack, &pack::scan(&file).map_err(failed)?);
            let made = disk::create_file(lease.directory(), INDEX).and_then(|mut file| file.write_all(&bytes));
            made.and_then(|()| lease.directory().rename(INDEX, &self.packs, pack::index_name(pack))).map_err(failed)?;
        }
        Ok(())
    }

    /// Stores `bytes`; they are durable when this returns.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let mut writer = self.writer()?;
        let digest = writer.put(bytes)?;
        writer.commit()?;
        Ok(digest)
    }

    /// Stores the canonical text of a document without its `id`, so that the digest of the object is the id.
    pub fn put_manifest(&self, manifest: &impl Manifest) -> Result<Digest, StoreError> {
        self.put(manifest.write().canonical().as_bytes())
    }
}

impl Writer<'_> {
    /// Takes in `bytes`.
    pub fn put(&mut self, bytes: &[u8]) -> Result<Digest, StoreError> {
        if bytes.len() >= BLOCK {
            return self.put_reader(bytes).map(|(digest, _)| digest);
        }
        let digest = Digest::of(bytes);
        self.add_whole(digest, bytes)?;
        Ok(digest)
    }

    /// Takes in the canonical text of a document without its `id`.
    pub fn put_manifest(&mut self, manifest: &impl Manifest) -> Result<Digest, StoreError> {
        self.put(manifest.write().canonical().as_bytes())
    }

    /// Takes in a regular file, named by its path. A link, FIFO, socket or device is refused.
    pub fn put_file(&mut self, path: &Path) -> Result<(Digest, u64), StoreError> {
        self.put_source(Source::open(path)?)
    }

    /// Takes in an open file; one that changes while it is read is refused.
    pub fn put_source(&mut self, mut source: Source) -> Result<(Digest, u64), StoreError> {
        self.put_open(&mut source, &mut |_| ())
    }

    /// The same; one that has not changed since it was stored like this is not read again. `watch` hears how many bytes more
    /// are done.
    pub fn put_again(&mut self, mut source: Source, watch: &mut dyn FnMut(u64)) -> Result<(Digest, u64), StoreError> {
        if let Some(digest) = self.remembered(&source)? {
            watch(source.size());
            return Ok((digest, source.size()));
        }
        let put = self.put_open(&mut source, watch)?;
        self.remember(&source, put.0);
        Ok(put)
    }

    fn put_open(&mut self, source: &mut Source, watch: &mut dyn FnMut(u64)) -> Result<(Digest, u64), StoreError> {
        let path = source.path().to_path_buf();
        let put = self.put_stream(Watched(&mut *source, watch), &path)?;
        source.unchanged()?;
        Ok(put)
    }

    /// Takes in everything that `reader` gives, and says how long it was.
    pub fn put_reader(&mut self, reader: impl Read) -> Result<(Digest, u64), StoreError> {
        self.put_stream(reader, Path::new("the input"))
    }

    /// The same, with a name for the messages of errors.
    pub fn put_stream(&mut self, mut reader: impl Read, name: &Path) -> Result<(Digest, u64), StoreError> {
        let failed = |error| StoreError::system("read", name)(error);
        let mut buffer = self.pool.take();
        buffer.clear();
        fill_block(&mut reader, &mut buffer).map_err(failed)?;
        if buffer.len() < BLOCK {
            let put = (self.put(&buffer)?, buffer.len() as u64);
            self.pool.give(buffer);
            return Ok(put);
        }
        // One that fails half way is not used again: it has seen a part of an object.
        let lane = match self.lane.take() {
            Some(lane) => lane,
            None => Lane::start(self.pool.clone()).map_err(StoreError::system("start a thread for", name))?,
        };
        let (mut total, mut extents, mut cutter) = (0, Vec::new(), Cutter::new(&buffer));
        while !buffer.is_empty() {
            let cut = cutter.next(&buffer);
            let mut ahead = self.pool.take();
            ahead.clear();
            ahead.extend_from_slice(&buffer[cut..]);
            buffer.truncate(cut);
            let bytes = Arc::new(std::mem::replace(&mut buffer, ahead));
            lane.update(Arc::clone(&bytes)).map_err(failed)?;
            let block = self.store.layout.hashing.block(&bytes);
            self.add_block(Kind::Block, block, bytes)?;
            #[expect(clippy::cast_possible_truncation, reason = "a block is 1 MiB at most")]
            Extent { block, offset: 0, length: cut as u32 }.encode(&mut extents);
            total += cut as u64;
            fill_block(&mut reader, &mut buffer).map_err(failed)?;
        }
        let digest = lane.finish().map_err(failed)?;
        self.lane = Some(lane);
        self.add_list(digest, total, &extents)?;
        Ok((digest, total))
    }

    /// Stores blocks as they are from now on: that is quicker, and [`Store::pack`] encodes them later.
    pub fn raw(&mut self) {
        self.raw = true;
    }

    /// Makes everything durable, then visible. Packs in which damage was met are retired if nothing in them is lost.
    pub fn commit(mut self) -> Result<(), StoreError> {
        self.close_group()?;
        let mut spare = self.salvage()?;
        self.finish()?;
        for (number, (digest, entries)) in std::mem::take(&mut self.ready).into_iter().enumerate() {
            self.publish(number, digest, entries)?;
            spare.remove(&digest);
        }
        if let Some(seen) = self.seen.take() {
            seen.save(self.store, self.lease.directory());
        }
        self.store.quarantine(&spare)
    }

    /// Makes everything durable, and says how many bytes of records there are.
    pub(crate) fn finish(&mut self) -> Result<u64, StoreError> {
        self.close_group()?;
        let failed = |error| StoreError::system("write a pack in", &self.store.path().join(TMP))(error);
        for full in std::mem::take(&mut self.full) {
            let finished = full.join().unwrap_or_else(|_| Err(io::Error::other("the writer of the pack panicked")));
            self.ready.push(finished.map_err(failed)?);
        }
        if let Some(pack) = self.pack.take() {
            self.ready.push(pack.finish(|name| self.avoided.contains(&name)).map_err(failed)?);
        }
        let records = self.ready.iter().flat_map(|(_, entries)| entries);
        Ok(records.map(|entry| HEAD as u64 + u64::from(entry.head.stored)).sum())
    }

    /// Objects lie behind the blocks that they are made of, so packs become visible one after the other.
    fn publish(&self, number: usize, digest: Digest, entries: Vec<Entry>) -> Result<(), StoreError> {
        let failed = |error| StoreError::system("write a pack in", &self.store.path().join(TMP))(error);
        // The index is not flushed: when it is lost, it is made again from the pack.
        let bytes = index::encode(digest, &entries);
        disk::create_file(self.lease.directory(), INDEX).and_then(|mut file| file.write_all(&bytes)).map_err(failed)?;
        let (from, packs) = (self.lease.directory(), &self.store.packs);
        from.rename(temporary(number), packs, pack::file_name(digest)).map_err(failed)?;
        drop(from.rename(INDEX, packs, pack::index_name(digest)));
        disk::sync_directory(packs).map_err(failed)?;
        self.store.index.write().unwrap_or_else(PoisonError::into_inner).add(digest, entries);
        Ok(())
    }

    fn add_whole(&mut self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let mut copy = self.pool.take();
        copy.clear();
        copy.extend_from_slice(bytes);
        self.add_block(Kind::Whole, digest, Arc::new(copy))
    }

    pub(crate) fn add_block(&mut self, kind: Kind, digest: Digest, bytes: Arc<Vec<u8>>) -> Result<(), StoreError> {
        let wanted: fn(Kind) -> bool = if kind == Kind::Whole { Kind::is_object } else { Kind::is_block };
        if self.has_written(digest, wanted) || self.holds_block(digest, wanted, &bytes)? {
            return Ok(());
        }
        if kind == Kind::Whole && self.holds_list(digest, &bytes)? {
            return Ok(());
        }
        let head = Head { kind, codec: codec::RAW, stored: 0, plain: bytes.len() as u64, digest };
        let how = if self.raw { How::Stored } else { How::Tried };
        self.push(Job { head, bytes, how, behind: Vec::new() })
    }

    pub(crate) fn add_list(&mut self, digest: Digest, plain: u64, extents: &[u8]) -> Result<(), StoreError> {
        if self.has_written(digest, Kind::is_object) {
            return Ok(());
        }
        for place in self.places(digest, |kind| kind == Kind::List) {
            if self.sound(place.pack, self.store.record(&place))?.is_some_and(|stored| stored == extents) {
                return Ok(());
            }
        }
        self.append(Head { kind: Kind::List, codec: codec::RAW, stored: 0, plain, digest }, extents)
    }

    /// Counts these packs as absent.
    pub(crate) fn avoid(&mut self, packs: &BTreeSet<Digest>) {
        self.avoided.extend(packs);
    }

    /// Every copy that will not go.
    pub(crate) fn places(&self, digest: Digest, wanted: fn(Kind) -> bool) -> Vec<Place> {
        let mut places = self.store.known_places(digest, wanted);
        places.retain(|place| !self.avoided.contains(&place.pack));
        places
    }

    pub(crate) fn has_written(&self, digest: Digest, wanted: fn(Kind) -> bool) -> bool {
        [Kind::Block, Kind::List, Kind::Whole]
            .iter()
            .any(|kind| wanted(*kind) && self.written.contains(&(digest, *kind)))
    }

    pub(crate) fn has_written_as(&self, digest: Digest, kind: Kind) -> bool {
        self.written.contains(&(digest, kind))
    }

    /// The packs that are on the disk and not yet visible.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Finished> {
        self.ready.iter()
    }

    /// Whether the store has a sound copy. A damaged one counts as absent, so the bytes are stored anew: that heals it.
    pub(crate) fn holds_block(
        &mut self,
        digest: Digest,
        wanted: fn(Kind) -> bool,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        for place in self.places(digest, wanted).iter().filter(|place| place.entry.head.kind.is_block()) {
            let read = self.store.record(place).and_then(|stored| self.decoded(place, stored));
            match self.sound(place.pack, read)? {
                Some(found) if found == bytes => return Ok(true),
                _ => self.spoiled.insert(place.pack),
            };
        }
        Ok(false)
    }

    /// The plain bytes of a block, not hashed, if a block that it is the difference from stays, too.
    fn decoded(&self, place: &Place, stored: Vec<u8>) -> Result<Vec<u8>, Unusable> {
        let head = place.entry.head;
        codec::decode(head.codec, stored, head.plain, |base| self.store.base(base, &self.avoided))
    }

    /// Whether a copy of a block, and what it is the difference from, are in packs that stay.
    pub(crate) fn stays(&self, block: Digest) -> bool {
        for place in self.places(block, Kind::is_block) {
            if place.entry.head.codec != codec::DIFFERENCE {
                return true;
            }
            let base = self.store.base_digest(&place);
            let plain =
                |base| self.places(base, Kind::is_block).iter().any(|base| base.entry.head.codec != codec::DIFFERENCE);
            if base.is_some_and(plain) {
                return true;
            }
        }
        false
    }

    /// Whether the store has an object of these bytes that is made of pieces, all of them sound.
    pub(crate) fn holds_list(&mut self, digest: Digest, bytes: &[u8]) -> Result<bool, StoreError> {
        for place in self.places(digest, |kind| kind == Kind::List) {
            let Some(stored) = self.sound(place.pack, self.store.record(&place))? else { continue };
            let extents = Extent::decode_all(&stored, place.entry.head.plain).unwrap_or_default();
            let (mut rest, mut whole) = (bytes, true);
            for extent in extents {
                let Some((piece, behind)) = rest.split_at_checked(extent.length as usize) else { break };
                whole = whole && self.holds_piece(&extent, piece)?;
                rest = behind;
            }
            if whole && rest.is_empty() && place.entry.head.plain == bytes.len() as u64 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn holds_piece(&mut self, extent: &Extent, piece: &[u8]) -> Result<bool, StoreError> {
        let start = extent.offset as usize;
        for place in self.places(extent.block, Kind::is_block) {
            let read = self.store.shared_block(&place);
            let found = match read {
                Ok(block) => block.get(start..start + piece.len()).is_some_and(|found| found == piece),
                Err(Unusable::Damage(_)) => false,
                Err(Unusable::System(error)) => {
                    return Err(StoreError::system("read", &self.store.pack_path(&pack::file_name(place.pack)))(error));
                }
            };
            if found {
                return Ok(true);
            }
            self.spoiled.insert(place.pack);
        }
        Ok(false)
    }

    /// What was read, unless it is damaged; then the pack is noted.
    pub(crate) fn sound(
        &mut self,
        pack: Digest,
        read: Result<Vec<u8>, Unusable>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Unusable::Damage(_)) => {
                self.spoiled.insert(pack);
                Ok(None)
            }
            Err(Unusable::System(error)) => {
                Err(StoreError::system("read", &self.store.pack_path(&pack::file_name(pack)))(error))
            }
        }
    }

    pub(crate) fn append(&mut self, head: Head, stored: &[u8]) -> Result<(), StoreError> {
        self.push(Job { head, bytes: Arc::new(stored.to_vec()), how: How::Stored, behind: Vec::new() })
    }

    pub(crate) fn push(&mut self, job: Job) -> Result<(), StoreError> {
        let path = self.store.path().join(TMP);
        let failed = |error| StoreError::system("write a pack in", &path)(error);
        let written: Vec<(Digest, Kind)> = [&job.head]
            .into_iter()
            .chain(job.behind.iter().map(|(head, _)| head))
            .map(|head| (head.digest, head.kind))
            .collect();
        if let Some(full) = self.pack.take_if(|pack| pack.taken() >= FULL) {
            let avoided = self.avoided.clone();
            let finish = move || full.finish(|name| avoided.contains(&name));
            let handle = std::thread::Builder::new().name("finish".to_owned()).spawn(finish).map_err(failed)?;
            self.full.push(handle);
        }
        let pack = if let Some(pack) = &mut self.pack {
            pack
        } else {
            let name = temporary(self.full.len() + self.ready.len());
            let file = disk::create_file(self.lease.directory(), &name).map_err(failed)?;
            self.pack.insert(Coder::new(PackWriter::new(file, self.store.layout.hashing), self.pool.clone()))
        };
        pack.push(job).map_err(failed)?;
        self.written.extend(written);
        Ok(())
    }
}

/// The name of a pack that is being written.
fn temporary(number: usize) -> String {
    if number == 0 { PACK.to_owned() } else { format!("{PACK}-{number}") }
}

/// Tells how many bytes went through.
struct Watched<'a>(&'a mut Source, &'a mut dyn FnMut(u64));

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        (self.1)(length as u64);
        Ok(length)
    }
}

/// Reads behind what the buffer holds until it holds a block or the input ends.
fn fill_block(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<()> {
    let kept = buffer.len();
    buffer.resize(BLOCK, 0);
    let length = fill(reader, &mut buffer[kept..])?;
    buffer.truncate(kept + length);
    Ok(())
}

/// Reads until the buffer is full or the input ends.
pub fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}
