//! Collection: removing what no name leads to, beside any number of readers and writers.
//!
//! 1. Mark: everything that references, pins and the caller's roots lead to.
//! 2. Condemn: packs that are for a good part something else are listed in a new generation (`condemned.rs`).
//! 3. Sweep, when no writer is left that started before: mark again, copy out of the condemned packs what is needed after
//!    all, remove them.
//!
//! Nothing depends on a clock but how long things without a name are left alone, which is a courtesy and no safety.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use xt_core::digest::Digest;

use crate::block::HEAD;
use crate::condemned::{self, Generation};
use crate::disk;
use crate::error::StoreError;
use crate::graph::Reach;
use crate::index::{Entry, Place};
use crate::lease;
use crate::pack;
use crate::salvage::Fate;
use crate::store::Store;

/// The tag of the report.
const TAG: &str = "xt.gc-report/1";
/// A pack is rewritten when at least this part of it is not needed: one eighth. Copying more than that to gain less costs
/// more than the space is worth.
const WORTH: u64 = 8;
/// And at least so many bytes: a record that only gives a pack another name is shorter.
const LEAST: u64 = 256;
/// Tries to see the last of a lease that is just being given back, and how long to wait between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Collection {
    /// Whether to do it, or only to say what would be done.
    pub apply: bool,
    /// Packs that were written more recently are left alone, so that what was just put can still be given a name.
    pub older_than: Duration,
}

xt_core::record! {
    /// Objects by number and size.
    pub struct Sum {
        /// How many.
        objects: u64,
        /// Their plain bytes.
        bytes: u64,
    }
}

impl Sum {
    /// None yet.
    pub(crate) const NONE: Self = Self { objects: 0, bytes: 0 };

    /// One more, of this size as far as the store says so: what lies about itself makes no number overflow.
    pub(crate) const fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

xt_core::record! {
    /// What a collection found, and did.
    pub struct Collected as TAG {
        /// Whether anything was to be removed; otherwise all of this is what would be.
        applied: bool,
        /// Objects that a name leads to.
        named: Sum,
        /// Objects that no name leads to, and that are removed.
        unnamed: Sum,
        /// Objects that no name leads to, and that stay: they are too young, or share a pack with too much that is named.
        spared: Sum,
        /// Packs removed; `unnamed` counts the objects.
        packs_removed: u64,
        /// Bytes of the packs removed.
        freed: u64,
        /// Bytes of what was copied out of them first.
        moved: u64,
        /// Packs that are condemned and wait for writers that were at work before.
        packs_waiting: u64,
        /// Packs that must stay, since something in them is needed and damaged.
        stuck: Vec<Digest>,
    }
}

impl Collected {
    /// Nothing yet.
    const fn of(applied: bool) -> Self {
        Self {
            applied,
            named: Sum::NONE,
            unnamed: Sum::NONE,
            spared: Sum::NONE,
            packs_removed: 0,
            freed: 0,
            moved: 0,
            packs_waiting: 0,
            stuck: Vec::new(),
        }
    }
}

/// Roots that the caller knows of; asked more than once, since they may change meanwhile.
pub type Roots<'a, E> = &'a mut dyn FnMut() -> Result<Vec<Digest>, E>;

impl Store {
    /// Collects. `each` hears of every object that goes, with its size in bytes.
    pub fn collect<E: From<StoreError>>(
        &self,
        collection: &Collection,
        roots: Roots<'_, E>,
        each: &mut dyn FnMut(Digest, u64),
    ) -> Result<Collected, E> {
        self.collect_without(collection, &BTreeSet::new(), roots, each)
    }

    /// The same; the objects `without` are given up unless a name stands for them, whatever mentions them.
    pub fn collect_without<E: From<StoreError>>(
        &self,
        collection: &Collection,
        without: &BTreeSet<Digest>,
        roots: Roots<'_, E>,
        each: &mut dyn FnMut(Digest, u64),
    ) -> Result<Collected, E> {
        let _alone = collection.apply.then(|| condemned::collecting(&self.layout)).transpose()?;
        self.reload()?;
        let mut report = Collected::of(collection.apply);
        let before = condemned::generations(&self.layout)?;
        if collection.apply {
            for generation in &before {
                self.sweep(generation, (without, roots), &mut report)?;
            }
        }
        let reach = self.reach(without, roots)?;
        let listed = before.iter().flat_map(|generation| &generation.packs).copied().collect();
        let doomed = self.doomed(&reach, &listed, collection.older_than)?;
        self.sums(&reach, &doomed, &mut report, each)?;
        if collection.apply && !doomed.is_empty() {
            let generation = condemned::condemn(&self.layout, doomed)?;
            self.sweep(&generation, (without, roots), &mut report)?;
        }
        Ok(report)
    }

    /// Everything that references, pins and `roots` lead to. Fails when something on the way cannot be read.
    fn reach<E: From<StoreError>>(&self, without: &BTreeSet<Digest>, roots: Roots<'_, E>) -> Result<Reach<'_>, E> {
        let more = roots()?;
        let mut reach = Reach::new(self)?;
        let named: Vec<Digest> =
            self.references()?.into_iter().chain(self.pins()?).map(|reference| reference.digest).collect();
        reach.without = without.iter().filter(|digest| !named.contains(digest)).copied().collect();
        reach.add(named.into_iter().chain(more))?;
        reach.complete()?;
        Ok(reach)
    }

    /// The packs that are worth removing, and old enough.
    fn doomed(
        &self,
        reach: &Reach<'_>,
        listed: &BTreeSet<Digest>,
        older_than: Duration,
    ) -> Result<BTreeSet<Digest>, StoreError> {
        let mut doomed = BTreeSet::new();
        for pack in self.present_packs()?.into_iter().filter(|pack| !listed.contains(pack)) {
            let Some(entries) = self.entries(pack)? else { continue };
            let size = |entry: &Entry| HEAD as u64 + u64::from(entry.head.stored);
            let all: u64 = entries.iter().map(size).sum();
            let needed: u64 = entries.iter().filter(|entry| reach.needs(&entry.head)).map(size).sum();
            let waste = all - needed;
            let worth = needed == 0 || (waste >= LEAST && waste * WORTH >= all);
            if worth && self.age(pack)? >= older_than {
                doomed.insert(pack);
            }
        }
        Ok(doomed)
    }

    /// How long ago a pack was written; nothing for one from the future.
    pub(crate) fn age(&self, pack: Digest) -> Result<Duration, StoreError> {
        let name = pack::file_name(pack);
        let written = self.packs.symlink_metadata(&name).and_then(|found| found.modified());
        match written {
            Ok(written) => Ok(SystemTime::now().duration_since(written.into_std()).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Duration::ZERO),
            Err(error) => Err(StoreError::system("look at", &self.pack_path(&name))(error)),
        }
    }

    fn sums(
        &self,
        reach: &Reach<'_>,
        doomed: &BTreeSet<Digest>,
        report: &mut Collected,
        each: &mut dyn FnMut(Digest, u64),
    ) -> Result<(), StoreError> {
        for (digest, bytes) in self.list()? {
            let stays = || {
                let places = self.known_places(digest, crate::block::Kind::is_object);
                places.iter().any(|place| !doomed.contains(&place.pack))
            };
            let sum = if reach.objects.contains(&digest) {
                &mut report.named
            } else if stays() {
                &mut report.spared
            } else {
                each(digest, bytes);
                &mut report.unnamed
            };
            sum.add(bytes);
        }
        Ok(())
    }

    /// Removes packs that were packed anew, and says how many wait for writers.
    pub(crate) fn sweep_packed<E: From<StoreError>>(
        &self,
        generation: &Generation,
        roots: Roots<'_, E>,
    ) -> Result<u64, E> {
        let mut report = Collected::of(true);
        self.sweep(generation, (&BTreeSet::new(), roots), &mut report)?;
        Ok(report.packs_waiting)
    }

    /// Removes the packs of a generation if nobody at work can depend on them.
    fn sweep<E: From<StoreError>>(
        &self,
        generation: &Generation,
        (without, roots): (&BTreeSet<Digest>, Roots<'_, E>),
        report: &mut Collected,
    ) -> Result<(), E> {
        let present: BTreeSet<Digest> = self.present_packs()?.into_iter().collect();
        let packs: BTreeSet<Digest> = generation.packs.intersection(&present).copied().collect();
        if packs.is_empty() {
            return Ok(condemned::retire(&self.layout, generation)?);
        }
        if self.elders(generation.number)? {
            report.packs_waiting += packs.len() as u64;
            return Ok(());
        }
        // From here on whoever gives a name to something in these packs copies it out first.
        let reach = self.reach(without, roots)?;
        let _gate = condemned::gate(&self.layout)?;
        let (moved, stuck) = self.copy_out(&reach, &packs)?;
        report.moved += moved;
        for pack in packs.difference(&stuck) {
            report.freed += self.remove_pack(*pack)?;
            report.packs_removed += 1;
        }
        disk::sync_directory(&self.packs).map_err(StoreError::system("write", &self.pack_path("")))?;
        if stuck.is_empty() {
            condemned::retire(&self.layout, generation)?;
        }
        report.stuck.extend(stuck);
        Ok(self.reload()?)
    }

    /// Whether a writer is at work that may not know of a generation.
    fn elders(&self, number: u64) -> Result<bool, StoreError> {
        for _ in 0..TRIES {
            if !lease::elders(&self.layout, number)? {
                return Ok(false);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(true)
    }

    fn remove_pack(&self, pack: Digest) -> Result<u64, StoreError> {
        let name = pack::file_name(pack);
        let failed = |error| StoreError::system("remove", &self.pack_path(&name))(error);
        let bytes = self.packs.symlink_metadata(&name).map_err(failed)?.len();
        disk::remove(&self.packs, OsStr::new(&name)).map_err(failed)?;
        disk::remove(&self.packs, OsStr::new(&pack::index_name(pack))).map_err(failed)?;
        Ok(bytes)
    }

    /// The records of a pack, by its index or by itself; `None` when it is gone.
    fn entries(&self, pack: Digest) -> Result<Option<Vec<Entry>>, StoreError> {
        match self.index_file(pack)? {
            Some(entries) => Ok(Some(entries)),
            None => self.scan(pack),
        }
    }

    /// Copies into a new pack what `reach` needs and only `packs`, or others that are condemned, have. Says how many bytes
    /// that were, and which packs hold something needed that is damaged everywhere.
    pub(crate) fn copy_out(
        &self,
        reach: &Reach<'_>,
        packs: &BTreeSet<Digest>,
    ) -> Result<(u64, BTreeSet<Digest>), StoreError> {
        let (mut moved, mut stuck) = (0, BTreeSet::new());
        let mut writer = self.writer()?;
        writer.avoid(packs);
        for pack in packs {
            for entry in self.entries(*pack)?.unwrap_or_default() {
                let place = Place { pack: *pack, entry };
                if !reach.needs(&entry.head) {
                    continue;
                }
                match writer.fate(&place)? {
                    Fate::Elsewhere => {}
                    Fate::Here if writer.copy(&place)? => moved += HEAD as u64 + u64::from(entry.head.stored),
                    Fate::Here | Fate::Lost => drop(stuck.insert(*pack)),
                }
            }
        }
        writer.commit()?;
        Ok((moved, stuck))
    }
}
