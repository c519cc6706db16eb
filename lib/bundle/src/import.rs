//! From an archive into a store: verified as it streams in, visible only when all of it was right.

use std::io::Read;

use xt_core::manifest::bundle::Bundle;
use xt_store::Store;

use crate::archive;
use crate::error::BundleError;
use crate::freeze;
use crate::layout::SUMS;
use crate::verify::Verdict;

/// Takes the bundle in the archive `input`, called `name` in messages, into the store, and gives it its name there. A
/// bundle that does not verify leaves nothing behind.
pub fn import(store: &Store, input: impl Read, name: &str) -> Result<Bundle, BundleError> {
    let mut writer = store.writer()?;
    let verdict = archive::read(input, &mut |path, content| {
        // The sums follow from the bundle; no store needs them.
        if path != SUMS {
            writer.put_reader(content)?;
        }
        Ok(())
    })?;
    match verdict {
        Verdict { report, bundle: Some(bundle), .. } if report.verified => {
            writer.commit()?;
            freeze::name(store, &bundle)?;
            Ok(bundle)
        }
        Verdict { faults, .. } => Err(BundleError::Refused { name: name.into(), faults }),
    }
}
