//! Packing: encoding anew what is stored as it was committed, so that it takes less space. No digest changes, and no name.
//!
//! Records that were stored as they are get the codec that a trial finds best. Blocks of objects that are alike, as the states
//! of one run are, become differences from those of a keyframe among them. A new pack holds every sound record of the old
//! ones; when it is durable and visible, the old ones are condemned and swept as a collection does it (`gc.rs`), so it is as
//! safe beside writers and readers, and as safe to kill.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use xt_core::digest::Digest;

use crate::block::{Extent, HEAD, Kind};
use crate::codec;
use crate::coder::{How, Job};
use crate::condemned;
use crate::disk;
use crate::error::StoreError;
use crate::gc::Roots;
use crate::index::{Entry, Place};
use crate::layout::CACHE;
use crate::lease::Lease;
use crate::store::Store;
use crate::write::Writer;

/// The tag of the report.
const TAG: &str = "xt.pack-report/1";
/// Old packs are replaced when at least this part of their bytes is saved: one thirty-second.
const WORTH: u64 = 32;
/// One in so many objects that are alike is the keyframe of those around it.
const KEYFRAME: usize = 5;
/// Objects of fewer blocks are not compared.
const BLOCKS: usize = 2;
/// The file that lists packs in which nothing is left to do.
const FILE: &str = "packed";

xt_core::record! {
    /// What packing did.
    pub struct Packed as TAG {
        /// Packs looked at: those that were not packed before.
        packs: u64,
        /// Their bytes.
        before: u64,
        /// Bytes of what they hold now.
        after: u64,
        /// Blocks stored as differences from others.
        differences: u64,
        /// Packs that are replaced, and wait for writers that were at work before.
        packs_waiting: u64,
        /// Packs that stay as they are, since something in them is damaged.
        damaged: Vec<Digest>,
    }
}

/// Which block each block is to be the difference from, and blocks that small files share.
#[derive(Default)]
struct Plan {
    bases: BTreeMap<Digest, Digest>,
    shared: BTreeSet<Digest>,
}

impl Store {
    /// Encodes anew what was not looked at before. `roots` as for [`Store::collect`]; `watch` hears how many bytes of how many
    /// are done.
    pub fn pack<E: From<StoreError>>(&self, roots: Roots<'_, E>, watch: &mut dyn FnMut(u64, u64)) -> Result<Packed, E> {
        let _alone = condemned::collecting(&self.layout)?;
        self.reload()?;
        let listed: BTreeSet<Digest> =
            condemned::generations(&self.layout)?.into_iter().flat_map(|generation| generation.packs).collect();
        let mut done = self.packed();
        let fresh: Vec<Digest> =
            self.present_packs()?.into_iter().filter(|pack| !done.contains(pack) && !listed.contains(pack)).collect();
        let mut report =
            Packed { packs: 0, before: 0, after: 0, differences: 0, packs_waiting: 0, damaged: Vec::new() };
        let mut packs = BTreeMap::new();
        for pack in fresh {
            // Without an index it is not known what a pack holds.
            let Some(mut entries) = self.index_file(pack)? else { continue };
            entries.sort_unstable_by_key(|entry| entry.offset);
            report.packs += 1;
            report.before += entries.iter().map(size).sum::<u64>();
            packs.insert(pack, entries);
        }
        report.after = report.before;
        if packs.is_empty() {
            return Ok(report);
        }
        let plan = self.plan(&packs)?;
        let mut writer = self.writer()?;
        writer.avoid(&packs.keys().copied().collect());
        let (mut seen, total) = (0, report.before);
        for pack in self.by_age(packs.keys().copied())? {
            let sound = writer.encode_anew(pack, &packs[&pack], &plan, &mut |bytes| {
                seen += bytes;
                watch(seen, total);
            })?;
            if !sound {
                report.damaged.push(pack);
                packs.remove(&pack);
            }
        }
        let old: u64 = packs.values().flatten().map(size).sum();
        let new = writer.finish()?;
        let made: Vec<Digest> = writer.made().map(|(digest, _)| *digest).collect();
        if new + old / WORTH > old {
            // Nothing of it becomes visible.
            drop(writer);
            done.extend(packs.into_keys());
            self.note_packed(&done);
            return Ok(report);
        }
        report.differences = writer
            .made()
            .flat_map(|(_, entries)| entries)
            .filter(|entry| entry.head.codec == codec::DIFFERENCE)
            .count() as u64;
        writer.commit()?;
        report.after = report.before - old + new;
        done.extend(made);
        let generation = condemned::condemn(&self.layout, packs.into_keys().collect())?;
        report.packs_waiting = self.sweep_packed(&generation, roots)?;
        self.note_packed(&done);
        Ok(report)
    }

    /// The packs with the oldest first, so that states of a run stand in their order.
    fn by_age(&self, packs: impl Iterator<Item = Digest>) -> Result<Vec<Digest>, StoreError> {
        let mut aged = packs.map(|pack| Ok((self.age(pack)?, pack))).collect::<Result<Vec<_>, StoreError>>()?;
        aged.sort_unstable_by_key(|(age, pack)| (std::cmp::Reverse(*age), *pack));
        Ok(aged.into_iter().map(|(_, pack)| pack).collect())
    }

    /// Finds objects that are alike, and decides which blocks are to be differences.
    fn plan(&self, packs: &BTreeMap<Digest, Vec<Entry>>) -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        let mut families: BTreeMap<(Digest, usize), Vec<Vec<Extent>>> = BTreeMap::new();
        let mut kept = BTreeSet::new();
        for pack in self.by_age(self.present_packs()?.into_iter())? {
            let mut entries = match packs.get(&pack) {
                Some(entries) => entries.clone(),
                None => self.index_file(pack)?.unwrap_or_default(),
            };
            entries.sort_unstable_by_key(|entry| entry.offset);
            for entry in entries {
                let place = Place { pack, entry };
                kept.extend(self.base_digest(&place));
                if entry.head.kind != Kind::List {
                    continue;
                }
                let stored = self.record(&place).ok();
                let Some(extents) = stored.and_then(|bytes| Extent::decode_all(&bytes, entry.head.plain)) else {
                    continue;
                };
                if extents.len() < BLOCKS {
                    plan.shared.extend(extents.iter().map(|extent| extent.block));
                    continue;
                }
                let alike = families.entry((extents[0].block, extents.len())).or_default();
                if !alike.contains(&extents) {
                    alike.push(extents);
                }
            }
        }
        for alike in families.into_values().filter(|alike| alike.len() > 1) {
            let keyframes = keyframes(&alike, &kept);
            kept.extend(keyframes.iter().flat_map(|key| alike[*key].iter().map(|extent| extent.block)));
            for (number, object) in alike.iter().enumerate() {
                let Some(nearest) = keyframes.iter().min_by_key(|key| key.abs_diff(number)) else { continue };
                for (own, base) in object.iter().zip(&alike[*nearest]) {
                    if own.block != base.block && own.length == base.length {
                        plan.bases.entry(own.block).or_insert(base.block);
                    }
                }
            }
        }
        // What others differ from stays as it is: nothing is the difference from a difference.
        plan.bases.retain(|block, _| !kept.contains(block));
        Ok(plan)
    }

    fn packed(&self) -> BTreeSet<Digest> {
        let mut text = String::new();
        let file = self.layout.folder(CACHE).ok().and_then(|folder| disk::open_regular(&folder, Path::new(FILE)).ok());
        let read = file.and_then(|mut file| file.read_to_string(&mut text).ok());
        read.map_or_else(BTreeSet::new, |_| text.lines().filter_map(|line| Digest::from_hex(line).ok()).collect())
    }

    /// Remembers which packs need not be looked at again. It is a convenience, so a failure is none of packing.
    fn note_packed(&self, packs: &BTreeSet<Digest>) {
        let Ok(present) = self.present_packs() else { return };
        let text: String = present.iter().filter(|pack| packs.contains(pack)).map(|pack| pack.hex() + "\n").collect();
        let (Ok(folder), Ok(lease)) = (self.layout.folder(CACHE), Lease::take(&self.layout)) else { return };
        let written = disk::create_file(lease.directory(), FILE).and_then(|mut file| file.write_all(text.as_bytes()));
        drop(written.and_then(|()| lease.directory().rename(FILE, &folder, FILE)));
    }
}

/// Which of the objects others are to differ from: those that some do already, or one in five, with its neighbours on both
/// sides.
fn keyframes(alike: &[Vec<Extent>], kept: &BTreeSet<Digest>) -> Vec<usize> {
    // The first block is what makes them alike; each has it.
    let is_base = |number: &usize| alike[*number].iter().skip(1).any(|extent| kept.contains(&extent.block));
    let mut keyframes: Vec<usize> = (0..alike.len()).filter(is_base).collect();
    let next = keyframes.last().map_or(KEYFRAME / 2, |last| last + KEYFRAME);
    keyframes.extend((next..alike.len()).step_by(KEYFRAME));
    if keyframes.is_empty() {
        keyframes.push(0);
    }
    keyframes
}

fn size(entry: &Entry) -> u64 {
    HEAD as u64 + u64::from(entry.head.stored)
}

impl Writer<'_> {
    /// Takes over the records of a pack; false when one of them is damaged.
    fn encode_anew(
        &mut self,
        pack: Digest,
        entries: &[Entry],
        plan: &Plan,
        watch: &mut dyn FnMut(u64),
    ) -> Result<bool, StoreError> {
        for entry in entries {
            let place = Place { pack, entry: *entry };
            let written = match entry.head.kind {
                Kind::Block => self.has_written(entry.head.digest, Kind::is_block),
                kind => self.has_written_as(entry.head.digest, kind),
            };
            if !written && !self.take_anew(&place, plan)? {
                return Ok(false);
            }
            watch(size(entry));
        }
        Ok(true)
    }

    fn take_anew(&mut self, place: &Place, plan: &Plan) -> Result<bool, StoreError> {
        let head = place.entry.head;
        let base = plan.bases.get(&head.digest).filter(|_| head.codec != codec::DIFFERENCE);
        if !head.kind.is_block() || (base.is_none() && head.codec != codec::RAW) {
            return self.copy(place);
        }
        let read = self.store.record(place).and_then(|stored| self.store.plain(place, stored));
        let Some(bytes) = self.sound(place.pack, read)? else { return Ok(false) };
        // A base that cannot be read makes the block stand alone; whoever reads the base itself says what is wrong.
        let base = base.and_then(|base| Some((*base, self.store.base(*base, &BTreeSet::new()).ok()?)));
        let how = match base {
            Some((base, other)) => How::Difference(base, Arc::new(other)),
            None if plan.shared.contains(&head.digest) => How::Text,
            None => How::Tried,
        };
        let head = crate::block::Head { codec: codec::RAW, stored: 0, ..head };
        self.push(Job { head, bytes: Arc::new(bytes), how, behind: Vec::new() })?;
        Ok(true)
    }
}
