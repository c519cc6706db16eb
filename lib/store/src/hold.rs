//! Keeping what is at hand from being collected until it has a name.

use std::collections::BTreeSet;

use xt_core::digest::Digest;

use crate::condemned;
use crate::error::StoreError;
use crate::graph::Reach;
use crate::lease::Lease;
use crate::store::Store;

/// While it lives, nothing that is in the store now, and nothing that is put into it, is removed by a collection, with a
/// name or without. Whoever stores something in one step and names it in another takes one first.
#[derive(Debug)]
pub struct Hold<'a> {
    store: &'a Store,
    pub(crate) lease: Lease,
}

impl Store {
    /// Keeps collections from removing anything for as long as the result lives.
    pub fn hold(&self) -> Result<Hold<'_>, StoreError> {
        Ok(Hold { store: self, lease: Lease::take(&self.layout)? })
    }
}

impl Hold<'_> {
    /// Makes sure that these objects, and all that they lead to, outlive what was condemned before this hold was taken.
    /// Objects that are not in the store are passed over.
    pub fn keep(&self, digests: &[Digest]) -> Result<(), StoreError> {
        let present: BTreeSet<Digest> = self.store.present_packs()?.into_iter().collect();
        if self.lease.condemned().is_disjoint(&present) {
            return Ok(());
        }
        let _gate = condemned::gate(&self.store.layout)?;
        self.store.reload()?;
        let mut reach = Reach::new(self.store)?;
        reach.add(digests.iter().copied())?;
        let packs: BTreeSet<Digest> = self.lease.condemned().iter().copied().collect();
        self.store.copy_out(&reach, &packs).map(|_| ())
    }

    /// Whether the store has a sound copy of an object that will not go.
    pub(crate) fn has(&self, digest: Digest) -> Result<bool, StoreError> {
        let places = self.store.known_places(digest, crate::block::Kind::is_object);
        if places.iter().all(|place| self.lease.condemned().contains(&place.pack)) {
            return Ok(false);
        }
        self.store.is_sound(digest)
    }
}
