//! What becomes of a damaged pack when its damaged objects are put again.
//!
//! A writer that meets a damaged copy stores the bytes anew. If nothing that the pack held is lost then, the writer also
//! copies what is sound in it, and moves the pack to `quarantine/`: nothing is thrown away, and the store is whole
//! again. A pack that still holds the only, damaged, copy of something stays, so that it goes on being reported.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use xt_core::digest::Digest;

use crate::block::Kind;
use crate::disk;
use crate::error::StoreError;
use crate::index::{Entry, Place};
use crate::layout::QUARANTINE;
use crate::pack;
use crate::read::Unusable;
use crate::store::Store;
use crate::write::Writer;

/// What is known about one record of a damaged pack.
#[derive(PartialEq, Eq)]
pub enum Fate {
    /// There is a sound copy elsewhere.
    Elsewhere,
    /// It is sound here, and only here.
    Here,
    /// No sound copy is left.
    Lost,
}

impl Writer<'_> {
    /// Copies what is sound in damaged packs, and says which of them are no longer needed.
    pub(crate) fn salvage(&mut self) -> Result<BTreeSet<Digest>, StoreError> {
        let mut spare = BTreeSet::new();
        for pack in std::mem::take(&mut self.spoiled) {
            // Without an index it is not known what the pack held, so it is not known what would be lost.
            let Some(entries) = self.store.index_file(pack)? else { continue };
            if self.rescue(pack, &entries)? {
                spare.insert(pack);
            }
        }
        Ok(spare)
    }

    fn rescue(&mut self, pack: Digest, entries: &[Entry]) -> Result<bool, StoreError> {
        let mut rescued = Vec::new();
        for entry in entries {
            match self.fate(&Place { pack, entry: *entry })? {
                Fate::Elsewhere => {}
                Fate::Here => rescued.push(*entry),
                Fate::Lost => return Ok(false),
            }
        }
        for entry in rescued {
            if !self.copy(&Place { pack, entry })? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is known about the record at `place`.
    pub(crate) fn fate(&self, place: &Place) -> Result<Fate, StoreError> {
        let (digest, kind) = (place.entry.head.digest, place.entry.head.kind);
        let serves: fn(Kind) -> bool = match kind {
            Kind::Block => Kind::is_block,
            Kind::List => |kind| kind == Kind::List,
            Kind::Whole => |kind| kind == Kind::Whole,
        };
        if self.has_written(digest, serves) {
            return Ok(Fate::Elsewhere);
        }
        let others = self.places(digest, serves).into_iter().filter(|other| other.pack != place.pack);
        for other in others {
            if self.usable(&other)? {
                return Ok(Fate::Elsewhere);
            }
        }
        Ok(if self.usable(place)? { Fate::Here } else { Fate::Lost })
    }

    /// Takes over a record as it is stored; false when it is damaged.
    pub(crate) fn copy(&mut self, place: &Place) -> Result<bool, StoreError> {
        let Some(stored) = self.sound(place.pack, self.store.record(place))? else { return Ok(false) };
        self.append(place.entry.head, &stored)?;
        Ok(true)
    }

    fn usable(&self, place: &Place) -> Result<bool, StoreError> {
        let checked = self.store.record(place).and_then(|stored| match place.entry.head.kind {
            // The head answers for a list.
            Kind::List => Ok(()),
            Kind::Block | Kind::Whole => self.store.plain(place, stored).map(|_| ()),
        });
        match checked {
            Ok(()) => Ok(true),
            Err(Unusable::Damage(_)) => Ok(false),
            Err(Unusable::System(error)) => {
                Err(StoreError::system("read", &self.store.pack_path(&pack::file_name(place.pack)))(error))
            }
        }
    }
}

impl Store {
    /// Moves packs out of the way. What was put is safe already, so a failure here is none of it: the pack stays, and
    /// verification goes on naming it.
    pub(crate) fn quarantine(&self, packs: &BTreeSet<Digest>) -> Result<(), StoreError> {
        if packs.is_empty() {
            return Ok(());
        }
        let quarantine = self.layout.folder(QUARANTINE)?;
        for pack in packs {
            let name = pack::file_name(*pack);
            if self.packs.rename(&name, &quarantine, &name).is_ok() {
                drop(disk::remove(&self.packs, OsStr::new(&pack::index_name(*pack))));
            }
        }
        drop(disk::sync_directory(&quarantine).and_then(|()| disk::sync_directory(&self.packs)));
        self.reload()
    }
}
