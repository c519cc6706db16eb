//! What takes how much space, and for whom.

use std::collections::{BTreeMap, BTreeSet};

use xt_core::digest::Digest;

use crate::block::{Extent, HEAD, Kind};
use crate::error::StoreError;
use crate::gc::Sum;
use crate::graph::Reach;
use crate::pack;
use crate::store::Store;

xt_core::record! {
    /// What some names lead to.
    pub struct Usage {
        /// What the names have in common.
        name: String,
        /// Objects.
        objects: u64,
        /// Their plain bytes.
        bytes: u64,
        /// Bytes that they take in packs.
        stored: u64,
        /// Plain bytes of the objects that nothing else leads to.
        alone: u64,
    }
}

xt_core::record! {
    /// The whole store.
    pub struct Total {
        /// Objects that a name leads to.
        named: Sum,
        /// All others: what a collection may remove.
        unnamed: Sum,
        /// Bytes of all packs.
        packs: u64,
        /// Bytes in quarantine, which no collection touches.
        quarantine: u64,
    }
}

impl Store {
    /// What each group of roots leads to, and the sum of everything.
    pub fn usage(&self, groups: &BTreeMap<String, Vec<Digest>>) -> Result<(Vec<Usage>, Total), StoreError> {
        let mut reach = Reach::new(self)?;
        reach.add(groups.values().flatten().copied())?;
        let mut children: BTreeMap<Digest, Vec<Digest>> = BTreeMap::new();
        for (child, parents) in &reach.parents {
            for parent in parents {
                children.entry(*parent).or_default().push(*child);
            }
        }
        let below: Vec<(&String, BTreeSet<Digest>)> =
            groups.iter().map(|(name, roots)| (name, below(&reach, &children, roots))).collect();
        let mut owners: BTreeMap<Digest, u32> = BTreeMap::new();
        below.iter().flat_map(|(_, objects)| objects).for_each(|digest| *owners.entry(*digest).or_default() += 1);
        let mut found = Vec::new();
        for (name, objects) in below {
            let mut usage = Usage { name: name.clone(), objects: objects.len() as u64, bytes: 0, stored: 0, alone: 0 };
            let mut blocks = BTreeSet::new();
            for digest in objects {
                let bytes = self.size(digest)?.unwrap_or_default();
                let alone = if owners.get(&digest) == Some(&1) { bytes } else { 0 };
                usage.bytes = usage.bytes.saturating_add(bytes);
                usage.alone = usage.alone.saturating_add(alone);
                usage.stored += self.stored(digest, &mut blocks);
            }
            found.push(usage);
        }
        Ok((found, self.total(&reach)?))
    }

    fn total(&self, reach: &Reach<'_>) -> Result<Total, StoreError> {
        let mut total = Total {
            named: Sum::NONE,
            unnamed: Sum::NONE,
            packs: 0,
            quarantine: self.quarantined()?.iter().map(|found| found.bytes).sum(),
        };
        for (digest, bytes) in self.list()? {
            let sum = if reach.objects.contains(&digest) { &mut total.named } else { &mut total.unnamed };
            sum.add(bytes);
        }
        for pack in self.present_packs()? {
            let found = self.packs.symlink_metadata(pack::file_name(pack));
            total.packs += found.map_or(0, |found| found.len());
        }
        Ok(total)
    }

    /// Bytes that the records of an object take; blocks that were counted before are not counted again.
    fn stored(&self, digest: Digest, counted: &mut BTreeSet<Digest>) -> u64 {
        let Some(place) = self.known_places(digest, Kind::is_object).into_iter().next() else { return 0 };
        let own = HEAD as u64 + u64::from(place.entry.head.stored);
        let extents = if place.entry.head.kind == Kind::List { self.record(&place).ok() } else { None };
        let extents = extents.and_then(|bytes| Extent::decode_all(&bytes, place.entry.head.plain));
        let blocks = extents.into_iter().flatten().filter(|extent| counted.insert(extent.block));
        let size = |block| {
            let copy = self.known_places(block, Kind::is_block).into_iter().next();
            copy.map_or(0, |copy| HEAD as u64 + u64::from(copy.entry.head.stored))
        };
        own + blocks.map(|extent| size(extent.block)).sum::<u64>()
    }
}

/// The objects of the store that some roots lead to.
fn below(reach: &Reach<'_>, children: &BTreeMap<Digest, Vec<Digest>>, roots: &[Digest]) -> BTreeSet<Digest> {
    let (mut below, mut next) = (BTreeSet::new(), roots.to_vec());
    while let Some(digest) = next.pop() {
        if reach.objects.contains(&digest) && below.insert(digest) {
            next.extend(children.get(&digest).into_iter().flatten());
        }
    }
    below
}
