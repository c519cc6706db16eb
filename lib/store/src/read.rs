//! Reading objects: every block and every whole object is hashed, every time.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use nix::fcntl::OFlag;
use xt_core::canonical;
use xt_core::digest::{Digest, Hasher};
use xt_core::fault::Faults;
use xt_core::field::Manifest;

use crate::block::{BLOCK, Extent, HEAD, Kind};
use crate::codec;
use crate::error::StoreError;
use crate::index::Place;
use crate::pack;
use crate::pool::give_spare;
use crate::store::{Part, Store};

/// So often a reader looks for a record. A listing of `packs/` that is made while a collection replaces a pack may show
/// neither the old nor the new one; that it happens to every look is as good as impossible.
const LOOKS: u32 = 4;

/// So many blocks that objects share are kept, 1 MiB each.
const SHARED: usize = 6;

/// Records of so many bytes are short.
const SHORT: usize = 4 << 10;
/// How much is read for short records that stand one behind the other, and how many such parts are kept.
const PART: usize = 64 << 10;
const PARTS: usize = 8;

/// What is wrong with a list whose pieces are not as long as its object.
const SUM: &str = "its list of blocks does not add up";
/// What is wrong with a list of other bytes.
const OTHER: &str = "its blocks are sound, but do not make up this object";

/// Why one copy of a record cannot be used.
pub enum Unusable {
    /// Its bytes are wrong or gone; another copy may be right.
    Damage(String),
    /// The system would not let us look.
    System(io::Error),
}

impl From<String> for Unusable {
    fn from(problem: String) -> Self {
        Self::Damage(problem)
    }
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
        // EIO is what a dying disk says about one sector.
        let sick = error.raw_os_error() == Some(nix::errno::Errno::EIO as i32);
        match error.kind() {
            NotFound => Self::Damage("the pack is gone".to_owned()),
            InvalidInput => Self::Damage(format!("the pack is {error}")),
            InvalidData | UnexpectedEof => Self::Damage(error.to_string()),
            _ if sick => Self::Damage(error.to_string()),
            _ => Self::System(error),
        }
    }
}

impl Store {
    /// Whether an object with this digest is listed. Only reading it tells whether it is sound.
    pub fn contains(&self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.size(digest)?.is_some())
    }

    /// The size of an object in bytes, as listed.
    pub fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        Ok(self.places(digest, Kind::is_object)?.first().map(|place| place.entry.head.plain))
    }

    /// Every object and its size in bytes, in the order of the digests.
    pub fn list(&self) -> Result<Vec<(Digest, u64)>, StoreError> {
        self.refresh()?;
        Ok(self.index.read().unwrap_or_else(PoisonError::into_inner).objects())
    }

    /// The bytes of an object.
    pub fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        self.read(digest, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies an object to `out` and says how long it is. Every block is verified before it is written; after an error
    /// `out` may hold a beginning of the object.
    pub fn read(&self, digest: Digest, out: &mut dyn Write) -> Result<u64, StoreError> {
        self.object(digest)?.copy_to(out)
    }

    /// The same for an output that nobody uses before the end: an object of several blocks is hashed as a whole, its blocks are
    /// not. `again` makes the output empty once more when something is wrong: then every block is hashed, which tells what is
    /// damaged and finds other copies.
    pub(crate) fn read_whole<W: Write>(
        &self,
        digest: Digest,
        out: &mut W,
        again: impl FnOnce(&mut W) -> io::Result<()>,
    ) -> Result<u64, StoreError> {
        let swift = self.object(digest).and_then(|mut object| {
            object.swift = true;
            object.copy_to(out)
        });
        if swift.is_ok() {
            return swift;
        }
        again(out).map_err(StoreError::system("write", Path::new("the output")))?;
        self.read(digest, out)
    }

    /// Whether the whole object can be read.
    pub(crate) fn is_sound(&self, digest: Digest) -> Result<bool, StoreError> {
        match self.read(digest, &mut io::sink()) {
            Ok(_) => Ok(true),
            Err(StoreError::Damaged { .. } | StoreError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens an object for reading piece by piece.
    pub fn object(&self, digest: Digest) -> Result<Object<'_>, StoreError> {
        let (place, stored) = self.first_sound(digest, digest, Kind::is_object, |place| {
            let stored = self.record(place)?;
            // A whole object is decoded and hashed here, and so is a small one that shares its block: another copy may be
            // sound. The list of a long one is only a plan of what to read, and each block may have other copies.
            match place.entry.head.kind {
                Kind::Whole => self.plain(place, stored),
                _ if place.entry.head.plain < BLOCK as u64 => self.assembled(digest, place, &stored),
                _ => Ok(stored),
            }
        })?;
        let bytes = place.entry.head.plain;
        let mut object = Object {
            store: self,
            digest,
            bytes,
            pack: place.pack,
            whole: None,
            extents: Vec::new().into_iter(),
            hasher: None,
            swift: false,
            piece: Piece::default(),
            at: 0,
        };
        if place.entry.head.kind == Kind::Whole || bytes < BLOCK as u64 {
            object.whole = Some(stored);
        } else {
            let extents = Extent::decode_all(&stored, bytes).ok_or_else(|| object.damaged(SUM.to_owned()))?;
            object.extents = extents.into_iter();
            object.hasher = Some(Hasher::new());
        }
        Ok(object)
    }

    /// Copies an object to a new file with mode 0644, and says how long it is. There must be no file of that name; when
    /// the object is damaged, none is left. The file is a copy of its own, so changing it does not touch the store.
    pub fn extract(&self, digest: Digest, path: &Path) -> Result<u64, StoreError> {
        let failed = |error| StoreError::system("write", path)(error);
        if !self.contains(digest)? {
            return Err(StoreError::Missing { digest });
        }
        let flags = OFlag::O_NOFOLLOW.bits();
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o644).custom_flags(flags).open(path).map_err(failed)?;
        let copied = self.read(digest, &mut file).map_err(|error| match error {
            StoreError::System { action: "write", source, .. } => failed(source),
            other => other,
        });
        let copied = copied.and_then(|length| {
            file.set_permissions(std::fs::Permissions::from_mode(0o644)).map(|()| length).map_err(failed)
        });
        if copied.is_err() {
            // The error that made us stop says more than one about removing what was made.
            drop(std::fs::remove_file(path));
        }
        copied
    }

    /// A document of the store.
    pub fn manifest<M: Manifest>(&self, digest: Digest) -> Result<M, StoreError> {
        let wrong = |faults| StoreError::Document { digest, faults };
        let value = canonical::parse(&self.get(digest)?)
            .map_err(|error| wrong(Faults::one("", "document.syntax", error.to_string())))?;
        let manifest = M::decode(&value).map_err(wrong)?;
        let id = manifest.id();
        if id != digest {
            let message = format!("the object is not the canonical text of this document, whose id is {id}");
            return Err(wrong(Faults::one("", "document.form", message)));
        }
        Ok(manifest)
    }

    /// Shows every document of the store. What is damaged, or looks like a document and is none, is passed over: whoever
    /// wants to know about damage verifies.
    pub fn documents(&self, each: &mut dyn FnMut(Digest, &canonical::Value)) -> Result<(), StoreError> {
        let listed = self.list()?.into_iter().filter(|(_, bytes)| *bytes <= canonical::MAX_BYTES as u64);
        let mut digests: Vec<Digest> = listed.map(|(digest, _)| digest).collect();
        self.sort_by_place(&mut digests);
        for digest in digests {
            if !self.begins(digest, b"{\"")? {
                continue;
            }
            let text = match self.get(digest) {
                Ok(text) => text,
                Err(StoreError::Damaged { .. } | StoreError::Missing { .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Ok(value) = canonical::parse(&text) {
                each(digest, &value);
            }
        }
        Ok(())
    }

    /// Whether an object begins with these bytes; a damaged one begins with none.
    fn begins(&self, digest: Digest, bytes: &[u8]) -> Result<bool, StoreError> {
        let mut object = match self.object(digest) {
            Ok(object) => object,
            Err(StoreError::Damaged { .. } | StoreError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        match object.next_piece() {
            Ok(any) => Ok(any && object.piece.starts_with(bytes)),
            Err(StoreError::Damaged { .. } | StoreError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The bytes of an object that is made of pieces, hashed.
    fn assembled(&self, object: Digest, place: &Place, list: &[u8]) -> Result<Vec<u8>, Unusable> {
        let extents = Extent::decode_all(list, place.entry.head.plain).ok_or_else(|| SUM.to_owned())?;
        let mut bytes = Vec::new();
        for extent in extents {
            let piece = self.piece(object, &extent, false).map_err(|error| match error {
                StoreError::Damaged { problem, .. } => Unusable::Damage(problem),
                StoreError::Missing { digest } => Unusable::Damage(format!("its block {digest} is missing")),
                StoreError::System { source, .. } => Unusable::System(source),
                other => Unusable::Damage(other.to_string()),
            })?;
            bytes.extend_from_slice(&piece);
        }
        if Digest::of(&bytes) == object { Ok(bytes) } else { Err(Unusable::Damage(OTHER.to_owned())) }
    }

    /// The bytes of a piece of `object`.
    fn piece(&self, object: Digest, extent: &Extent, swift: bool) -> Result<Piece, StoreError> {
        let (start, end) = (extent.offset as usize, extent.offset as usize + extent.length as usize);
        let beyond = || Unusable::Damage(format!("a piece reaches beyond its block {}", extent.block));
        self.first_sound(object, extent.block, Kind::is_block, |place| {
            if place.entry.head.plain > u64::from(extent.length) {
                let block = self.shared_block(place)?;
                return if end <= block.len() { Ok(Piece { block, start, end }) } else { Err(beyond()) };
            }
            let stored = self.record(place)?;
            let bytes = if swift { self.decoded(place, stored)? } else { self.plain(place, stored)? };
            if (start, end) == (0, bytes.len()) { Ok(Piece::from(bytes)) } else { Err(beyond()) }
        })
        .map(|(_, bytes)| bytes)
    }

    /// The verified bytes of a block that several objects share. Objects that lie beside one another are often read one after
    /// the other, so the last ones are kept.
    pub(crate) fn shared_block(&self, place: &Place) -> Result<Arc<Vec<u8>>, Unusable> {
        let kept = || self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept().iter().find(|(known, _)| known == place).map(|(_, block)| Arc::clone(block));
        if let Some(block) = found {
            return Ok(block);
        }
        let block = Arc::new(self.plain(place, self.record(place)?)?);
        let mut kept = kept();
        kept.insert(0, (*place, Arc::clone(&block)));
        kept.truncate(SHARED);
        Ok(block)
    }

    /// The first copy of a record that can be used. Packs may be replaced while we read, so there are more looks.
    fn first_sound<T>(
        &self,
        object: Digest,
        digest: Digest,
        wanted: fn(Kind) -> bool,
        read: impl Fn(&Place) -> Result<T, Unusable>,
    ) -> Result<(Place, T), StoreError> {
        let mut fault = None;
        for look in 0..LOOKS {
            if look > 0 {
                self.reload()?;
            }
            for place in self.places(digest, wanted)? {
                match read(&place) {
                    Ok(bytes) => return Ok((place, bytes)),
                    Err(Unusable::Damage(problem)) => fault = Some((place.pack, problem)),
                    Err(Unusable::System(error)) => {
                        return Err(StoreError::system("read", &self.pack_path(&pack::file_name(place.pack)))(error));
                    }
                }
            }
        }
        Err(match fault {
            Some((pack, problem)) => {
                // Whoever stores the same file again is to have it read, and so healed.
                self.forget_seen();
                StoreError::Damaged { digest: object, pack, problem }
            }
            None => StoreError::Missing { digest },
        })
    }

    /// The plain bytes of a block, hashed.
    pub(crate) fn plain(&self, place: &Place, stored: Vec<u8>) -> Result<Vec<u8>, Unusable> {
        let bytes = self.decoded(place, stored)?;
        let head = &place.entry.head;
        let right = match head.kind {
            Kind::Block => self.layout.hashing.names_block(head.digest, &bytes),
            Kind::List | Kind::Whole => Digest::of(&bytes) == head.digest,
        };
        if right {
            Ok(bytes)
        } else {
            Err(Unusable::Damage(format!("the bytes of the block at byte {} are wrong", place.entry.offset)))
        }
    }

    /// The plain bytes of a block, not hashed.
    fn decoded(&self, place: &Place, stored: Vec<u8>) -> Result<Vec<u8>, Unusable> {
        let head = &place.entry.head;
        codec::decode(head.codec, stored, head.plain, |base| self.base(base, &BTreeSet::new()))
    }

    /// The plain bytes of a block from which another one differs, out of a pack that is not to be avoided. It is never a
    /// difference itself.
    pub(crate) fn base(&self, digest: Digest, avoided: &BTreeSet<Digest>) -> Result<Vec<u8>, Unusable> {
        let mut problem = format!("its base {digest} is missing");
        for place in self.known_places(digest, Kind::is_block) {
            if place.entry.head.codec == codec::DIFFERENCE || avoided.contains(&place.pack) {
                continue;
            }
            match self.record(&place).and_then(|stored| self.plain(&place, stored)) {
                Ok(bytes) => return Ok(bytes),
                Err(Unusable::Damage(why)) => problem = format!("its base {digest} is damaged: {why}"),
                Err(error @ Unusable::System(_)) => return Err(error),
            }
        }
        Err(Unusable::Damage(problem))
    }

    /// The block from which the one at `place` differs; `None` when it is stored alone, or cannot be read.
    pub(crate) fn base_digest(&self, place: &Place) -> Option<Digest> {
        if place.entry.head.codec != codec::DIFFERENCE {
            return None;
        }
        let start = place.entry.offset + HEAD as u64;
        let bytes = self.pack_file(place.pack).and_then(|file| pack::part(&file, start, codec::BASE)).ok()?;
        codec::base_of(&bytes).map(|(base, _)| base)
    }

    /// The stored bytes of a record whose head is right.
    pub(crate) fn record(&self, place: &Place) -> Result<Vec<u8>, Unusable> {
        let short = place.entry.head.stored as usize <= SHORT;
        if let Some(stored) = short.then(|| self.short_record(place)).flatten() {
            return Ok(stored);
        }
        Ok(pack::read_record(&*self.pack_file(place.pack)?, &place.entry)?)
    }

    /// A short record out of a part of its pack, which is read in one go for all that stand there; `None` when it is not
    /// right there: reading it alone says why.
    fn short_record(&self, place: &Place) -> Option<Vec<u8>> {
        let kept = || self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let found = |part: &Part| pack::record_in(&part.bytes, part.start, &place.entry);
        let of_pack: Vec<Part> = kept().iter().filter(|part| part.pack == place.pack).cloned().collect();
        if let Some(stored) = of_pack.iter().find_map(found) {
            return Some(stored);
        }
        let start = place.entry.offset;
        let bytes = self.pack_file(place.pack).and_then(|file| pack::part(&file, start, PART)).ok()?;
        let part = Part { pack: place.pack, start, bytes: Arc::new(bytes) };
        let stored = found(&part)?;
        let mut kept = kept();
        kept.insert(0, part);
        kept.truncate(PARTS);
        Some(stored)
    }
}

/// An object being read. Each piece is verified before it is given out, and the whole before the end is reported; as a
/// [`Read`] it wraps the [`StoreError`] in the error it gives.
#[derive(Debug)]
pub struct Object<'a> {
    store: &'a Store,
    digest: Digest,
    bytes: u64,
    /// The pack that lists the pieces.
    pack: Digest,
    /// The bytes of an object of one piece, hashed when it was opened.
    whole: Option<Vec<u8>>,
    extents: std::vec::IntoIter<Extent>,
    /// For an object of several pieces.
    hasher: Option<Hasher>,
    /// Whether blocks are not hashed by themselves.
    swift: bool,
    piece: Piece,
    /// How much of the piece was given out.
    at: usize,
}

/// Verified bytes: all of a block, or what of it belongs to an object.
#[derive(Debug, Default)]
struct Piece {
    block: Arc<Vec<u8>>,
    start: usize,
    end: usize,
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self { start: 0, end: bytes.len(), block: Arc::new(bytes) }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[self.start..self.end]
    }
}

impl Object<'_> {
    /// Its size in bytes.
    pub const fn size(&self) -> u64 {
        self.bytes
    }

    fn copy_to(mut self, out: &mut dyn Write) -> Result<u64, StoreError> {
        while self.next_piece()? {
            out.write_all(&self.piece).map_err(StoreError::system("write", Path::new("the output")))?;
            if let Some(buffer) = Arc::into_inner(std::mem::take(&mut self.piece).block) {
                give_spare(buffer);
            }
        }
        Ok(self.bytes)
    }

    fn damaged(&self, problem: String) -> StoreError {
        StoreError::Damaged { digest: self.digest, pack: self.pack, problem }
    }

    /// Loads the next piece; false at the end.
    fn next_piece(&mut self) -> Result<bool, StoreError> {
        if let Some(bytes) = self.whole.take() {
            (self.piece, self.at) = (Piece::from(bytes), 0);
            return Ok(true);
        }
        let Some(extent) = self.extents.next() else {
            let right = self.hasher.as_ref().is_none_or(|hasher| hasher.clone().finish() == self.digest);
            return if right { Ok(false) } else { Err(self.damaged(OTHER.to_owned())) };
        };
        let block = self.store.piece(self.digest, &extent, self.swift).map_err(|error| match error {
            StoreError::Missing { digest } => self.damaged(format!("its block {digest} is missing")),
            other => other,
        })?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&block);
        }
        (self.piece, self.at) = (block, 0);
        Ok(true)
    }
}

impl Read for Object<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The end is an answer of its own, given after the whole was verified.
        while self.at >= self.piece.len() {
            if buffer.is_empty() || !self.next_piece().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.piece.len() - self.at);
        buffer[..length].copy_from_slice(&self.piece[self.at..self.at + length]);
        self.at += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Head, MAX_BLOCK};
    use crate::disk;
    use crate::hashing::Hashing;
    use crate::index;
    use crate::pack::PackWriter;

    const HASHING: Hashing = Hashing::Nested;

    /// A store with one pack of records that no writer would make.
    fn planted(records: &[(Kind, u8, u64, Digest, Vec<u8>)]) -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(&directory.path().join("s")).unwrap();
        let mut writer = PackWriter::new(disk::create_file(&store.packs, "new").unwrap(), store.layout.hashing);
        for (kind, codec, plain, digest, stored) in records {
            let length = u32::try_from(stored.len()).unwrap();
            let head = Head { kind: *kind, codec: *codec, stored: length, plain: *plain, digest: *digest };
            writer.append(head, stored).unwrap();
        }
        let (pack, entries) = writer.finish(|_| false).unwrap();
        store.packs.rename("new", &store.packs, pack::file_name(pack)).unwrap();
        store.packs.write(pack::index_name(pack), index::encode(pack, &entries)).unwrap();
        (directory, store)
    }

    fn list(extents: &[(Digest, u32, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (block, offset, length) in extents {
            Extent { block: *block, offset: *offset, length: *length }.encode(&mut bytes);
        }
        bytes
    }

    #[test]
    fn records_that_lie_are_damage_and_cost_nothing() {
        let (block, object) = (HASHING.block(b"block"), Digest::of(b"object"));
        let sound = (Kind::Block, codec::RAW, 5, block, b"block".to_vec());
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        let lists = [
            (5, vec![(block, 1, 5)], "beyond its block"),
            (5, vec![(block, u32::MAX, 5)], "beyond its block"),
            (u64::MAX, vec![(block, 0, 5)], "add up"),
            (4, vec![(block, 0, 5)], "add up"),
            (5, vec![(object, 0, 5)], "is missing"),
            (5, vec![(Digest::of(b"none"), 0, 5)], "is missing"),
            (5, vec![(block, 0, 5)], "do not make up"),
            (u64::from(u32::MAX) * 1000, vec![(block, 0, u32::MAX); 1000], "beyond its block"),
        ];
        let lists = lists.into_iter().map(|(plain, extents, says)| {
            (vec![sound.clone(), (Kind::List, codec::RAW, plain, object, list(&extents))], says)
        });
        let wholes = [
            (9, 5, b"bytes".to_vec(), "unknown codec 9"),
            (codec::RAW, 6, b"bytes".to_vec(), "5 bytes instead of 6"),
            (codec::RAW, u64::MAX, b"bytes".to_vec(), "longer than"),
            (codec::ZSTD, 1 << 20, bomb.clone(), "zstd"),
            (codec::ZSTD, MAX_BLOCK + 1, bomb, "longer than"),
            (codec::ZSTD, 5, b"bytes".to_vec(), "zstd"),
            (codec::RAW, 5, b"bytes".to_vec(), "are wrong"),
        ];
        let wholes = wholes
            .into_iter()
            .map(|(codec, plain, stored, says)| (vec![(Kind::Whole, codec, plain, object, stored)], says));
        for (records, says) in lists.chain(wholes) {
            let (_directory, store) = planted(&records);
            let start = std::time::Instant::now();
            let error = store.get(object).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { digest, .. } if digest == object), "{error}");
            assert!(error.to_string().contains(says), "{says}: {error}");
            assert!(start.elapsed().as_secs() < 1, "{says}");
            let report = store.verify().unwrap();
            assert!(report.damaged.iter().any(|damage| damage.object == Some(object)), "{says}: {report:?}");
        }
    }

    #[test]
    fn sizes_that_lie_add_up_to_no_panic_and_both_objects_are_damaged() {
        let (block, one, other) = (HASHING.block(b"block"), Digest::of(b"one"), Digest::of(b"other"));
        let lie = |object| (Kind::List, codec::RAW, u64::MAX, object, list(&[(block, 0, 5)]));
        let (_directory, store) =
            planted(&[(Kind::Block, codec::RAW, 5, block, b"block".to_vec()), lie(one), lie(other)]);
        let report = store.verify().unwrap();
        assert_eq!((report.damaged.len(), report.bytes), (2, u64::MAX));
    }

    #[test]
    fn an_object_may_be_cut_anywhere_and_share_its_blocks() {
        let block = HASHING.block(b"shared block");
        let object = Digest::of(b"block shared");
        let records = [
            (Kind::Block, codec::RAW, 12, block, b"shared block".to_vec()),
            (Kind::List, codec::RAW, 12, object, list(&[(block, 7, 5), (block, 6, 1), (block, 0, 6)])),
        ];
        let (_directory, store) = planted(&records);
        assert_eq!(store.get(object).unwrap(), b"block shared");
        assert!(store.verify().unwrap().damaged.is_empty());
    }
}
