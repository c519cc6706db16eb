//! Reading documents: from files, from standard input, or by digest from the store.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use xt_core::canonical::{self, Value};
use xt_core::digest::Digest;
use xt_core::fault::Faults;

use crate::error::{CliError, Error};

/// Where a document comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard input, written `-`.
    Stdin,
    /// An object of the store, written `sha256:…`.
    Digest(Digest),
    /// A file.
    File(PathBuf),
}

impl From<&OsStr> for Source {
    fn from(argument: &OsStr) -> Self {
        match argument.to_str() {
            Some("-") => Self::Stdin,
            Some(text) => text.parse().map_or_else(|_| Self::File(argument.into()), Self::Digest),
            None => Self::File(argument.into()),
        }
    }
}

/// A clap value parser could do the same, but this also serves tests.
impl From<std::ffi::OsString> for Source {
    fn from(argument: std::ffi::OsString) -> Self {
        Self::from(argument.as_os_str())
    }
}

impl Source {
    /// What messages call it.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".into(),
            Self::Digest(digest) => digest.to_string(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Why it cannot be read: a file that is not there may be a digest that was mistyped.
    pub fn unreadable(&self, error: io::Error) -> CliError {
        match self {
            Self::File(path) if error.kind() == io::ErrorKind::NotFound && like_a_digest(&path.to_string_lossy()) => {
                CliError::NoDigest(self.name())
            }
            _ => CliError::Read { name: self.name(), source: error },
        }
    }
}

/// A document and where it came from.
#[derive(Clone, Debug)]
pub struct Document {
    /// The document.
    pub value: Value,
    /// Where it came from, for messages.
    pub origin: String,
}

/// Finds the bytes behind a digest; a tool passes a look-up in its store.
pub type Lookup<'a> = &'a dyn Fn(Digest) -> Result<Vec<u8>, Error>;

/// All bytes of a source.
pub fn read_bytes(source: &Source, lookup: Lookup<'_>) -> Result<Vec<u8>, Error> {
    let read = |mut from: Box<dyn Read>| {
        // One byte more than a document may have, so that the reader can refuse it by its length.
        let mut bytes = Vec::new();
        from.by_ref().take(canonical::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = match source {
        Source::Digest(digest) => return lookup(*digest),
        Source::Stdin => read(Box::new(io::stdin())),
        Source::File(path) => File::open(path).and_then(|file| read(Box::new(file))),
    };
    bytes.map_err(|error| source.unreadable(error).into())
}

/// Whether somebody who wrote this meant a digest.
fn like_a_digest(text: &str) -> bool {
    let digits = text.split_once(':').map_or(text, |(_, digits)| digits);
    text.to_ascii_lowercase().starts_with("sha256:")
        || (digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a text that is no JSON is an archive: a zstd frame (RFC 8878), or a tar, whose header says so at byte 257 (POSIX).
fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&0xFD2F_B528_u32.to_le_bytes()) || bytes.get(257..262) == Some(b"ustar")
}

/// The documents in a text, or what it is instead.
fn parse(bytes: &[u8], name: &str) -> Result<Vec<Value>, Error> {
    canonical::parse_all(bytes).map_err(|source| {
        let name = name.to_owned();
        if is_archive(bytes) { CliError::Archive(name).into() } else { CliError::Parse { name, source }.into() }
    })
}

/// Every document of every source, in order; standard input when no source is named. At least one must be there.
pub fn read_documents(sources: &[Source], lookup: Lookup<'_>) -> Result<Vec<Document>, Error> {
    let stdin = [Source::Stdin];
    let sources = if sources.is_empty() { &stdin[..] } else { sources };
    let mut documents = Vec::new();
    for source in sources {
        documents.extend(parse_documents(&read_bytes(source, lookup)?, &source.name())?);
    }
    Ok(documents)
}

/// Every document in `bytes`, which came from `name`. At least one must be there.
pub fn parse_documents(bytes: &[u8], name: &str) -> Result<Vec<Document>, Error> {
    let values = parse(bytes, name)?;
    if values.is_empty() {
        return Err(CliError::NoDocument(name.into()).into());
    }
    Ok(values.into_iter().map(|value| Document { value, origin: name.into() }).collect())
}

/// Applies `verb` to every document. When one is refused, all faults of all documents come back; those of one among
/// several are told apart by its place and origin.
pub fn each<T>(documents: &[Document], verb: impl Fn(&Value) -> Result<T, Faults>) -> Result<Vec<T>, Faults> {
    let mut done = Vec::new();
    let mut refused = Faults::new();
    for (index, Document { value, origin }) in documents.iter().enumerate() {
        match verb(value) {
            Ok(result) => done.push(result),
            Err(faults) if documents.len() == 1 => return Err(faults),
            Err(faults) => refused.0.extend(faults.within(&format!("document {} ({origin})", index + 1)).0),
        }
    }
    refused.or(done)
}

/// The only document of a source.
pub fn read_one(source: &Source, lookup: Lookup<'_>) -> Result<Document, Error> {
    let mut documents = read_documents(std::slice::from_ref(source), lookup)?;
    match (documents.len(), documents.pop()) {
        (1, Some(document)) => Ok(document),
        (count, _) => Err(CliError::Several { name: source.name(), count }.into()),
    }
}

/// The only document in `bytes`, which came from `name`.
pub fn parse_one(bytes: &[u8], name: &str) -> Result<Value, Error> {
    let mut values = parse(bytes, name)?;
    match (values.len(), values.pop()) {
        (1, Some(value)) => Ok(value),
        (0, _) => Err(CliError::NoDocument(name.into()).into()),
        (count, _) => Err(CliError::Several { name: name.into(), count }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn arguments_are_told_apart() {
        let digest = Digest::of(b"");
        assert_eq!(Source::from(OsStr::new("-")), Source::Stdin);
        assert_eq!(Source::from(OsStr::new(&digest.to_string())), Source::Digest(digest));
        assert_eq!(Source::from(OsStr::from_bytes(b"b\xff")), Source::File(OsStr::from_bytes(b"b\xff").into()));
    }

    #[test]
    fn an_archive_and_a_mistyped_digest_are_called_what_they_are() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        for archive in [tar, b"\x28\xb5\x2f\xfd\0".to_vec()] {
            let found = [parse_one(&archive, "a").map(drop), parse_documents(&archive, "a").map(drop)];
            assert_eq!(found.map(|found| found.unwrap_err().0.word()), ["input.archive"; 2]);
        }
        assert_eq!(parse_one(b"x", "a").unwrap_err().0.word(), "input.json");
        let digits = Digest::of(b"").hex();
        let mistyped = [&digits[..], &digits.to_uppercase(), &format!("sha256:{}", &digits[1..]), "SHA256:0"];
        for (text, word) in mistyped.map(|text| (text, "usage")).into_iter().chain([("run.json", "system.read")]) {
            let error = read_bytes(&Source::File(text.into()), &|_| unreachable!()).unwrap_err();
            assert_eq!(error.0.word(), word, "{text}");
        }
    }

    #[test]
    fn an_empty_file_is_refused_with_a_hint_at_the_pipeline() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = read_documents(&[Source::File(file.path().into())], &|_| unreachable!()).unwrap_err();
        assert_eq!((error.0.exit().code(), error.0.word()), (10, "input.empty"));
        assert!(!error.0.hints().is_empty());
    }
}
