//! Bundles as archives: writing one, looking at one.

use std::io::{Read, Write};

use xt_core::canonical::MAX_BYTES;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::bundle::Bundle;
use xt_core::relpath::RelativePath;
use xt_store::archive::{self, ArchiveError, Limits, Writer};
use xt_store::{Store, StoreError};

use crate::error::BundleError;
use crate::layout::{self, BUNDLE, SUMS};
use crate::verify::{Pass, Verdict, Verifier, document};

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

/// What a search in an archive ended with before the archive did.
enum Stop {
    Found,
    Failed(BundleError),
}

impl From<ArchiveError> for Stop {
    fn from(error: ArchiveError) -> Self {
        Self::Failed(error.into())
    }
}

/// Copies the file `wanted` of the archive called `name` to `out`, and reads nothing that comes after it. Its digest is
/// held against the list that stands at the beginning; says which bundle that is. After an error `out` may hold anything.
pub fn cat(input: impl Read, name: &str, wanted: &str, out: &mut dyn Write) -> Result<Digest, BundleError> {
    let refused = |code, message: String| BundleError::Refused {
        name: name.into(),
        faults: xt_core::fault::Faults::one(wanted, code, message),
    };
    let mut listed: Option<(Digest, Vec<(String, Digest)>)> = None;
    let stopped = archive::read(input, &Limits::default(), |path, bytes, content| {
        let path = path.as_str();
        if listed.is_none() {
            let mut text = Vec::new();
            content.take(MAX_BYTES as u64 + 1).read_to_end(&mut text).map_err(|error| failed(path, error))?;
            let bundle = (path == BUNDLE).then(|| document::<Bundle>(&text)).transpose();
            let bundle = bundle.map_err(|faults| Stop::Failed(BundleError::Refused { name: name.into(), faults }))?;
            let Some(bundle) = bundle else {
                return Err(Stop::Failed(refused("bundle.first", format!("the first file of a bundle is {BUNDLE}"))));
            };
            let found = listed.insert((bundle.id(), listing(&bundle)));
            if wanted == BUNDLE {
                out.write_all(&text).map_err(|error| failed(path, error))?;
                return Err(Stop::Found);
            }
            if !found.1.iter().any(|(listed, _)| listed == wanted) {
                return Err(Stop::Failed(refused("member.unlisted", "the bundle lists no such file".into())));
            }
        } else if path == wanted {
            let mut hasher = xt_core::digest::Hasher::new();
            let mut buffer = vec![0; 1 << 17];
            loop {
                match content.read(&mut buffer).map_err(|error| failed(path, error))? {
                    0 => break,
                    count => {
                        hasher.update(&buffer[..count]);
                        out.write_all(&buffer[..count]).map_err(|error| failed(path, error))?;
                    }
                }
            }
            let found = hasher.finish();
            let right =
                listed.iter().flat_map(|(_, all)| all).any(|(listed, digest)| listed == path && *digest == found);
            let wrong =
                || refused("member.digest", format!("the {bytes} bytes give {found}, and the bundle lists another"));
            return Err(if right { Stop::Found } else { Stop::Failed(wrong()) });
        }
        Ok(())
    });
    match (stopped, listed) {
        (Err(Stop::Found), Some((bundle, _))) => Ok(bundle),
        (Err(Stop::Failed(error)), _) => Err(error),
        _ => Err(refused("member.missing", "the bundle lists this file, and it is not there".into())),
    }
}

fn failed(path: &str, error: std::io::Error) -> Stop {
    Stop::Failed(BundleError::stream("read", path)(error))
}

/// Every file of a bundle with the digest that it must have.
fn listing(bundle: &Bundle) -> Vec<(String, Digest)> {
    let sums = (SUMS.to_owned(), Digest::of(layout::sums(bundle).as_bytes()));
    let members = bundle.members.iter().map(|member| (member.file.path.to_string(), member.file.digest));
    members.chain([sums]).collect()
}

/// Verifies an archive, without any store.
pub fn verify_archive(input: impl Read) -> Result<Verdict, BundleError> {
    read(input, &mut |_, _| Ok(()))
}

/// Verifies an archive; `pass` may read each file on the way, in the order of the archive.
pub(crate) fn read(input: impl Read, pass: Pass<'_>) -> Result<Verdict, BundleError> {
    let mut verifier = Verifier::default();
    let whole = archive::read(input, &Limits::default(), |path, bytes, content| {
        if let Some(rule) = verifier.excess(path.as_str(), bytes) {
            return Err(ArchiveError::Refused { entry: path.to_string(), rule }.into());
        }
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
