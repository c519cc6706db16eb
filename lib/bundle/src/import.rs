//! From an archive into a store: verified as it streams in, visible only when all of it was right.

use std::io::{self, Read};

use xt_core::digest::{Digest, Hasher};
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
    // What is stored here has no name before the end.
    let _hold = store.hold()?;
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

/// Brings back objects that are damaged or missing in `store` from the archive called `name`, which is read twice: once
/// to see that it verifies, and once to take out what is `wanted`. Says what it had.
pub fn repair_from<R: Read>(
    store: &Store,
    open: impl Fn() -> io::Result<R>,
    name: &str,
    wanted: &[Digest],
) -> Result<Vec<Digest>, BundleError> {
    let open = || open().map_err(BundleError::stream("open", name));
    let mut held = Vec::new();
    let verdict = archive::read(open()?, &mut |path, content| {
        let mut hashed = Hashed { content, hasher: Hasher::new() };
        io::copy(&mut hashed, &mut io::sink()).map_err(BundleError::stream("read", path))?;
        held.push((path.to_owned(), hashed.hasher.finish()));
        Ok(())
    })?;
    if !verdict.report.verified {
        return Err(BundleError::Refused { name: name.into(), faults: verdict.faults });
    }
    held.retain(|(_, digest)| wanted.contains(digest));
    let mut writer = store.writer()?;
    let mut repaired = Vec::new();
    archive::read(open()?, &mut |path, content| {
        if held.iter().any(|(held, _)| held == path) {
            repaired.push(writer.put_reader(content)?.0);
        }
        Ok(())
    })?;
    // The archive may have changed between the two readings.
    repaired.retain(|digest| wanted.contains(digest));
    repaired.sort_unstable();
    repaired.dedup();
    writer.commit()?;
    Ok(repaired)
}

/// Hashes what is read.
struct Hashed<'a> {
    content: &'a mut dyn Read,
    hasher: Hasher,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.content.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}
