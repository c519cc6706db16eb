//! Verification: every byte of every pack, and every object through the same path that readers take.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure as _};

use crate::block::{Extent, Kind};
use crate::codec;
use crate::error::StoreError;
use crate::graph::Reach;
use crate::index::Place;
use crate::layout::{PINS, REFS};
use crate::pack;
use crate::restore::{batches, joined, threads};
use crate::store::Store;

/// The tag of the report.
const TAG: &str = "xt.store-report/1";

xt_core::record! {
    /// What a verification found.
    pub struct Report as TAG {
        /// Objects listed.
        objects: u64,
        /// Plain bytes of the objects.
        bytes: u64,
        /// Packs.
        packs: u64,
        /// Bytes of the packs.
        stored: u64,
        /// Everything that is wrong, objects first.
        damaged: Vec<Damage>,
        /// Packs without a sound index file; the next writer makes it again, and nothing is lost meanwhile.
        unindexed: Vec<Digest>,
        /// Damaged and missing objects that were brought back, when that was asked for.
        repaired: Vec<Digest>,
    }
}

xt_core::record! {
    /// Something wrong.
    pub struct Damage {
        /// The object that cannot be read; `null` when it is a pack whose bytes changed.
        object: Option<Digest>,
        /// The pack; `null` when it is gone.
        pack: Option<Digest>,
        /// What is wrong.
        problem: String,
        /// The names that lead to the object: `refs/…` and `pins/…`. Nothing that is named needs an object without any.
        breaks: Vec<String>,
    }
}

impl Report {
    /// The objects that are damaged or missing.
    pub fn wanted(&self) -> Vec<Digest> {
        self.damaged.iter().filter_map(|damage| damage.object).collect()
    }
}

impl Store {
    /// Reads everything. Damage is in the report; an error means that verification itself was not possible.
    pub fn verify(&self) -> Result<Report, StoreError> {
        self.verify_watched(|_, _| ())
    }

    /// The same; `watch` is told from time to time how many plain bytes are done, and how many there are.
    pub fn verify_watched(&self, mut watch: impl FnMut(u64, u64)) -> Result<Report, StoreError> {
        let objects = self.list()?;
        let mut report = self.report(&objects);
        self.verify_objects(objects, &mut report, &mut watch)?;
        self.verify_packs(&mut report)?;
        self.verify_names(&mut report)?;
        Ok(report)
    }

    /// Hashes every pack, and reads objects only where a pack is not what its name says. A damaged object in a pack whose bytes
    /// are right was damaged before it was stored; only [`Store::verify`] finds that.
    pub fn verify_stored(&self, mut watch: impl FnMut(u64, u64)) -> Result<Report, StoreError> {
        let objects = self.list()?;
        let mut report = self.report(&objects);
        self.verify_packs(&mut report)?;
        if report.damaged.is_empty() && self.all_listed(&objects) {
            watch(report.bytes, report.bytes);
        } else {
            let packs = std::mem::take(&mut report.damaged);
            self.verify_objects(objects, &mut report, &mut watch)?;
            report.damaged.extend(packs);
        }
        self.verify_names(&mut report)?;
        Ok(report)
    }

    /// Whether every block of every object is listed.
    fn all_listed(&self, objects: &[(Digest, u64)]) -> bool {
        let stored = |block| {
            let places = self.known_places(block, Kind::is_block);
            let alone = |place: &Place| place.entry.head.codec != codec::DIFFERENCE;
            let based = |place: &Place| {
                let base = self.base_digest(place);
                base.is_some_and(|base| self.known_places(base, Kind::is_block).iter().any(alone))
            };
            places.iter().any(|place| alone(place) || based(place))
        };
        let whole = |place: &Place| {
            let extents = (place.entry.head.kind == Kind::List).then(|| self.record(place).ok());
            let Some(extents) = extents else { return stored(place.entry.head.digest) };
            let extents = extents.and_then(|bytes| Extent::decode_all(&bytes, place.entry.head.plain));
            extents.is_some_and(|extents| extents.iter().all(|extent| stored(extent.block)))
        };
        objects.iter().all(|(object, _)| self.known_places(*object, Kind::is_object).iter().any(whole))
    }

    /// A report of which nothing but what is listed is known.
    fn report(&self, objects: &[(Digest, u64)]) -> Report {
        Report {
            objects: objects.len() as u64,
            bytes: objects.iter().fold(0, |all, (_, bytes)| all.saturating_add(*bytes)),
            packs: self.index.read().unwrap_or_else(PoisonError::into_inner).packs().len() as u64,
            stored: 0,
            damaged: Vec::new(),
            unindexed: Vec::new(),
            repaired: Vec::new(),
        }
    }

    /// Adds names that lead to nothing, and says of each damaged object which names need it.
    fn verify_names(&self, report: &mut Report) -> Result<(), StoreError> {
        let names =
            self.references()?.into_iter().map(|reference| (format!("{REFS}/{}", reference.name), reference.digest));
        let pins = self.pins()?.into_iter().map(|pin| (format!("{PINS}/{}", pin.name), pin.digest));
        let names: Vec<(String, Digest)> = names.chain(pins).collect();
        for (_, digest) in &names {
            let known = report.damaged.iter().any(|damage| damage.object == Some(*digest));
            if !known && !self.contains(*digest)? {
                let problem = "it is missing".to_owned();
                report.damaged.push(Damage { object: Some(*digest), pack: None, problem, breaks: Vec::new() });
            }
        }
        if report.damaged.iter().all(|damage| damage.object.is_none()) {
            return Ok(());
        }
        let mut reach = Reach::new(self)?;
        reach.add(names.iter().map(|(_, digest)| *digest))?;
        for damage in &mut report.damaged {
            let Some(object) = damage.object else { continue };
            let above = reach.above(object);
            damage.breaks =
                names.iter().filter(|(_, root)| above.contains(root)).map(|(name, _)| name.clone()).collect();
        }
        Ok(())
    }

    /// Brings back objects that are damaged or missing here from sound copies in `other`, and says which. Storing the
    /// right bytes again is all it takes: damaged packs that are no longer needed go to quarantine.
    pub fn repair_from(&self, other: &Self, wanted: &[Digest]) -> Result<Vec<Digest>, StoreError> {
        let mut writer = self.writer()?;
        let mut repaired = Vec::new();
        for digest in wanted {
            if other.contains(*digest)? && other.is_sound(*digest)? {
                writer.put_stream(other.object(*digest)?, Path::new("the other store"))?;
                repaired.push(*digest);
            }
        }
        writer.commit()?;
        Ok(repaired)
    }

    /// Reads every object, in the order in which they lie in packs, on several threads.
    fn verify_objects(
        &self,
        objects: Vec<(Digest, u64)>,
        report: &mut Report,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let sizes: BTreeMap<Digest, u64> = objects.into_iter().collect();
        let mut digests: Vec<Digest> = sizes.keys().copied().collect();
        self.sort_by_place(&mut digests);
        let digests = batches(digests.into_iter().map(|digest| (sizes[&digest], digest)).collect());
        let (next, total) = (AtomicUsize::new(0), report.bytes);
        let (sender, results) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads() {
                let (sender, digests, next) = (sender.clone(), &digests, &next);
                scope.spawn(move || {
                    while let Some(batch) = digests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        for digest in batch {
                            if sender.send((*digest, self.read_whole(*digest, &mut io::sink(), |_| Ok(())))).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
            drop(sender);
            let mut done = 0;
            for (digest, read) in results {
                if let Err(error) = read {
                    report.damaged.push(damage(digest, error)?);
                }
                done = u64::saturating_add(done, sizes.get(&digest).copied().unwrap_or_default());
                watch(done, total);
            }
            Ok(())
        })?;
        report.damaged.sort_by_key(|damage| damage.object);
        Ok(())
    }

    /// The digest of the bytes of a pack, in the way in which it was named, and their number.
    fn pack_digest(&self, pack: Digest, file: &File) -> io::Result<(Digest, u64)> {
        let found = pack::digest_of(file, self.layout.hashing)?;
        let other = || pack::digest_of(file, self.layout.hashing.other()).ok().filter(|(digest, _)| *digest == pack);
        Ok(if found.0 == pack { found } else { other().unwrap_or(found) })
    }

    /// Hashes every pack, on several threads.
    fn verify_packs(&self, report: &mut Report) -> Result<(), StoreError> {
        let packs = self.index.read().unwrap_or_else(PoisonError::into_inner).packs().to_vec();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut found = Vec::new();
            while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)) {
                found.push((*pack, self.pack_file(*pack).and_then(|file| self.pack_digest(*pack, &file))));
            }
            found
        };
        let mut found: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(joined).collect()
        });
        found.sort_by_key(|(pack, _)| *pack);
        for (pack, hashed) in found {
            let problem = match hashed {
                Ok((digest, bytes)) => {
                    report.stored += bytes;
                    (digest != pack).then(|| format!("its bytes have the digest {digest}"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                report.damaged.push(Damage { object: None, pack: Some(pack), problem, breaks: Vec::new() });
            }
            if self.index_file(pack)?.is_none() {
                report.unindexed.push(pack);
            }
        }
        Ok(())
    }
}

/// How an object is damaged; an error of another kind is none of it.
fn damage(digest: Digest, error: StoreError) -> Result<Damage, StoreError> {
    if error.exit() != Exit::Store {
        return Err(error);
    }
    let (pack, problem) = match error {
        StoreError::Damaged { pack, problem, .. } => (Some(pack), problem),
        other => (None, other.to_string()),
    };
    Ok(Damage { object: Some(digest), pack, problem, breaks: Vec::new() })
}
