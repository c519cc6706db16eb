//! An open store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cap_std::fs::Dir;
use xt_core::digest::Digest;

use crate::block::Kind;
use crate::disk;
use crate::error::StoreError;
use crate::index::{self, Entry, Index, Place};
use crate::layout::{Layout, PACKS, RECORD, RUNS};
use crate::pack;

/// So many packs are kept open for reading.
const OPEN_PACKS: usize = 64;

/// An open store. It may be shared between threads; other processes may write to it at any time.
#[derive(Debug)]
pub struct Store {
    pub(crate) layout: Layout,
    pub(crate) packs: Dir,
    pub(crate) index: RwLock<Index>,
    files: Mutex<BTreeMap<Digest, Arc<File>>>,
    /// Blocks that several objects share, verified and decoded, the latest first.
    pub(crate) shared: Mutex<Vec<(Place, Arc<Vec<u8>>)>>,
    /// Parts of packs in which short records stand, the latest first.
    pub(crate) parts: Mutex<Vec<Part>>,
}

/// Bytes of a pack, from some place on.
#[derive(Clone, Debug)]
pub struct Part {
    /// The pack.
    pub pack: Digest,
    /// Where they begin in it.
    pub start: u64,
    /// The bytes.
    pub bytes: Arc<Vec<u8>>,
}

impl Store {
    /// Opens the store in the directory `path`, which must be there. Needs no write access.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Layout::open(path).and_then(Self::new)
    }

    /// Opens the store in the directory `path`, or makes it when the directory is absent or empty.
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        Layout::open_or_create(path).and_then(Self::new)
    }

    fn new(layout: Layout) -> Result<Self, StoreError> {
        let packs = layout.folder(PACKS)?;
        Ok(Self {
            layout,
            packs,
            index: RwLock::default(),
            files: Mutex::default(),
            shared: Mutex::default(),
            parts: Mutex::default(),
        })
    }

    /// The absolute path of its directory.
    pub fn path(&self) -> &Path {
        &self.layout.path
    }

    /// The folder that holds a directory per run.
    pub fn runs(&self) -> PathBuf {
        self.path().join(RUNS)
    }

    /// The file that holds the record of states and events.
    pub fn record_path(&self) -> PathBuf {
        self.path().join(RECORD)
    }

    /// The path of a file in `packs/`, for messages.
    pub(crate) fn pack_path(&self, name: &str) -> PathBuf {
        self.path().join(PACKS).join(name)
    }

    /// Every copy of the records with this digest. Looks for new packs when none is known.
    pub(crate) fn places(&self, digest: Digest, wanted: fn(Kind) -> bool) -> Result<Vec<Place>, StoreError> {
        let known = self.known_places(digest, wanted);
        if !known.is_empty() {
            return Ok(known);
        }
        self.refresh()?;
        Ok(self.known_places(digest, wanted))
    }

    /// Every copy in the packs that were read so far.
    pub(crate) fn known_places(&self, digest: Digest, wanted: fn(Kind) -> bool) -> Vec<Place> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).places(digest, wanted)
    }

    /// Sorts objects in the order in which they lie in packs, so that what shares a block is read one after the other.
    pub(crate) fn sort_by_place(&self, objects: &mut [Digest]) {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        objects.sort_by_cached_key(|digest| {
            index.places(*digest, Kind::is_object).first().map(|place| (place.pack, place.entry.offset))
        });
    }

    /// Takes in packs that appeared, and forgets those that are gone.
    pub(crate) fn refresh(&self) -> Result<(), StoreError> {
        let present = self.present_packs()?;
        let known: Vec<Digest> = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            index.packs().to_vec()
        };
        let gone = known.iter().any(|pack| present.binary_search(pack).is_err());
        let mut fresh = Vec::new();
        for pack in present.into_iter().filter(|pack| gone || !known.contains(pack)) {
            if let Some(entries) = self.index_file(pack)? {
                fresh.push((pack, entries, true));
            } else if let Some(entries) = self.scan(pack)? {
                fresh.push((pack, entries, false));
            }
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        if gone {
            *index = Index::default();
        }
        for (pack, entries, indexed) in fresh {
            index.add(pack, entries);
            if !indexed {
                index.unindexed.insert(pack);
            }
        }
        Ok(())
    }

    /// Forgets open files and looks at `packs/` again: a pack may have been replaced by a healed one of the same name.
    pub(crate) fn reload(&self) -> Result<(), StoreError> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.refresh()
    }

    /// The packs in the directory, sorted.
    pub(crate) fn present_packs(&self) -> Result<Vec<Digest>, StoreError> {
        let names = disk::names(&self.packs).map_err(StoreError::system("list", &self.pack_path("")))?;
        Ok(names.iter().filter_map(|name| pack::from_file_name(name.to_str()?)).collect())
    }

    /// The records of a pack as the pack itself tells them; `None` when it is gone. Something else in its place holds
    /// no record.
    pub(crate) fn scan(&self, pack: Digest) -> Result<Option<Vec<Entry>>, StoreError> {
        let name = pack::file_name(pack);
        match disk::open_regular(&self.packs, Path::new(&name)).and_then(|file| pack::scan(&file)) {
            Ok(entries) => Ok(Some(entries)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(Some(Vec::new())),
            Err(error) => Err(StoreError::system("read", &self.pack_path(&name))(error)),
        }
    }

    /// The records that the index file of a pack lists; `None` when it is missing or damaged.
    pub(crate) fn index_file(&self, pack: Digest) -> Result<Option<Vec<Entry>>, StoreError> {
        let name = pack::index_name(pack);
        let mut bytes = Vec::new();
        match disk::open_regular(&self.packs, Path::new(&name)).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(index::decode(pack, &bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => Ok(None),
            Err(error) => Err(StoreError::system("read", &self.pack_path(&name))(error)),
        }
    }

    /// The open file of a pack.
    pub(crate) fn pack_file(&self, pack: Digest) -> io::Result<Arc<File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&pack) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(disk::open_regular(&self.packs, Path::new(&pack::file_name(pack)))?);
        if files.len() >= OPEN_PACKS {
            files.pop_first();
        }
        files.insert(pack, Arc::clone(&file));
        Ok(file)
    }
}
