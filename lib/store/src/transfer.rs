//! Copying what names lead to from one store into another.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use xt_core::digest::Digest;

use crate::error::StoreError;
use crate::gc::Sum;
use crate::graph::Reach;
use crate::refs::Reference;
use crate::store::Store;

/// The tag of the report.
const TAG: &str = "xt.transfer/1";
/// After so many bytes what was copied becomes durable; a copy that is cut short goes on from there.
const BATCH: u64 = 64 << 20;

xt_core::record! {
    /// What was copied.
    pub struct Transferred as TAG {
        /// Names set.
        names: u64,
        /// Objects copied.
        copied: Sum,
        /// Objects that were there, sound.
        present: Sum,
    }
}

impl Store {
    /// Copies into `other` everything that `names` lead to, reads it there again, and sets the names last. Each object is
    /// hashed as it is read here, as it is written there, and as it is read there. A name that stands for another object
    /// there is refused before anything is copied. `watch` hears how many of how many bytes are done.
    pub fn copy_to(
        &self,
        other: &Self,
        names: &[Reference],
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Transferred, StoreError> {
        other.free(names)?;
        // Nothing that is found in the other store, or put into it, goes before it has its name.
        let hold = other.hold()?;
        let mut reach = Reach::new(self)?;
        reach.add(names.iter().map(|name| name.digest))?;
        if let Some((_, error)) = std::mem::take(&mut reach.unreadable).pop_first() {
            return Err(error);
        }
        if let Some(missing) = names.iter().find(|name| !reach.objects.contains(&name.digest)) {
            return Err(StoreError::Missing { digest: missing.digest });
        }
        other.refresh()?;
        let mut report = Transferred { names: 0, copied: Sum::NONE, present: Sum::NONE };
        let mut in_order: Vec<Digest> = reach.objects.iter().copied().collect();
        self.sort_by_place(&mut in_order);
        let sized = |digest: &Digest| Ok((*digest, self.size(*digest)?.unwrap_or_default()));
        let objects: Vec<(Digest, u64)> = in_order.iter().map(sized).collect::<Result<_, StoreError>>()?;
        let total = objects.iter().fold(0, |all, (_, bytes)| u64::saturating_add(all, *bytes));
        let (mut done, mut batch, mut missing) = (0, Vec::new(), BTreeSet::new());
        for (digest, bytes) in objects {
            if hold.has(digest)? {
                report.present.add(bytes);
            } else {
                missing.insert(digest);
                batch.push(digest);
                report.copied.add(bytes);
            }
            let before = done;
            done = u64::saturating_add(done, bytes);
            if done / BATCH > before / BATCH {
                self.copy_batch(other, &std::mem::take(&mut batch))?;
            }
            watch(done, total);
        }
        self.copy_batch(other, &batch)?;
        for digest in missing {
            other.read(digest, &mut io::sink())?;
        }
        other.free(names)?;
        for name in names {
            other.set_reference(name.name.as_str(), name.digest, &name.reason)?;
            report.names += 1;
        }
        Ok(report)
    }

    fn copy_batch(&self, other: &Self, batch: &[Digest]) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut writer = other.writer()?;
        for digest in batch {
            let copied = writer.put_stream(self.object(*digest)?, Path::new("an object"));
            // A damaged object is a failure of the store that is read, not of the one that is written.
            let (found, _) = copied.map_err(|error| match error {
                StoreError::System { action, path, source } => match source.downcast::<StoreError>() {
                    Ok(error) => error,
                    Err(source) => StoreError::System { action, path, source },
                },
                other => other,
            })?;
            debug_assert_eq!(found, *digest, "every read is verified");
        }
        writer.commit()
    }

    /// Fails when one of these names stands for something else.
    fn free(&self, names: &[Reference]) -> Result<(), StoreError> {
        let mut taken = Vec::new();
        for name in names {
            let here = self.reference(name.name.as_str())?;
            if here.is_some_and(|here| here.digest != name.digest) {
                taken.push(name.name.to_string());
            }
        }
        if taken.is_empty() { Ok(()) } else { Err(StoreError::Taken { names: taken.join(", ") }) }
    }
}
