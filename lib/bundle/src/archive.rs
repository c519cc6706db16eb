//! Bundles as archives: writing one, looking at one.

use std::io::{Read, Write};

use xt_core::digest::Digest;
use xt_core::field::Field as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::relpath::RelativePath;
use xt_store::archive::{self, ArchiveError, Limits, Writer};
use xt_store::{Store, StoreError};

use crate::error::BundleError;
use crate::layout::{self, BUNDLE, SUMS};
use crate::verify::{Pass, Verdict, Verifier};

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path.
    pub path: RelativePath,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub digest: Digest,
}

/// Writes the archive of a stored bundle; gives the digest of its tar, which depends on the bundle alone. Every object
/// is hashed as it is read. `progress` hears how many of how many bytes are written.
pub fn write(
    store: &Store,
    bundle: &Bundle,
    out: impl Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Digest, BundleError> {
    let mut archive = Writer::new(out)?;
    for (name, text) in [(BUNDLE, bundle.write().canonical()), (SUMS, layout::sums(bundle))] {
        let path = RelativePath::new(name)
            .map_err(|error| ArchiveError::Refused { entry: name.into(), rule: archive::Rule::Path(error) })?;
        archive.member(&path, text.len() as u64, text.as_bytes())?;
    }
    let total = bundle.members.iter().map(|member| member.file.bytes).sum();
    let mut done = 0;
    for member in layout::order(bundle) {
        let file = &member.file;
        archive.member(&file.path, file.bytes, store.object(file.digest)?).map_err(unwrapped)?;
        done += file.bytes;
        progress(done, total);
    }
    Ok(archive.finish()?.0)
}

/// An object that turns out damaged while it is read is a failure of the store, not of the archive.
fn unwrapped(error: ArchiveError) -> BundleError {
    match error {
        ArchiveError::System { action, source } => match source.downcast::<StoreError>() {
            Ok(error) => error.into(),
            Err(source) => ArchiveError::System { action, source }.into(),
        },
        other => other.into(),
    }
}

/// Every file of an archive, in order, hashed; nothing is believed, and nothing but the form of the archive is checked.
pub fn list(input: impl Read) -> Result<Vec<Entry>, BundleError> {
    let mut entries = Vec::new();
    archive::read(input, &Limits::default(), |path, bytes, content| {
        let mut hashed = xt_core::digest::Hasher::new();
        let mut buffer = vec![0; 1 << 17];
        loop {
            match content.read(&mut buffer).map_err(BundleError::stream("read", path.as_str()))? {
                0 => break,
                count => hashed.update(&buffer[..count]),
            }
        }
        entries.push(Entry { path: path.clone(), bytes, digest: hashed.finish() });
        Ok::<(), BundleError>(())
    })?;
    Ok(entries)
}

/// Verifies an archive, without any store.
pub fn verify_archive(input: impl Read) -> Result<Verdict, BundleError> {
    read(input, &mut |_, _| Ok(()))
}

/// Verifies an archive; `pass` may read each file on the way, in the order of the archive.
pub(crate) fn read(input: impl Read, pass: Pass<'_>) -> Result<Verdict, BundleError> {
    let mut verifier = Verifier::default();
    let whole = archive::read(input, &Limits::default(), |path, bytes, content| {
        verifier.file(path.as_str(), bytes, content, pass)
    });
    match whole {
        Ok(_) => {}
        Err(BundleError::Archive(error @ (ArchiveError::Refused { .. } | ArchiveError::Length { .. }))) => {
            verifier.broken(xt_core::fault::Failure::word(&error), error.to_string());
        }
        Err(error) => return Err(error),
    }
    Ok(verifier.finish())
}
