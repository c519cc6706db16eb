//! Reading archives: strictly, in one pass, in bounded memory.

use std::io::{self, Read};

use tar::{EntryType, Header};
use xt_core::digest::Digest;
use xt_core::relpath::RelativePath;

use super::error::{ArchiveError, Rule};
use super::form::{self, BLOCK, Extension, MAX_EXTENSION};
use super::names::Names;
use super::tape::Tape;

/// What an archive may ask of its reader.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries.
    pub entries: u64,
    /// Bytes of all files together.
    pub bytes: u64,
}

impl Default for Limits {
    /// A million entries, 1 TiB.
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 1 << 40 }
    }
}

/// Reads an archive; gives the digest of its tar.
///
/// `member` gets the path, size and content of each file, in order; content that it leaves is read past. Only when this
/// function returns `Ok` is the archive known to be whole, so `member` must put what it reads aside until then.
pub fn read<R: Read, E: From<ArchiveError>>(
    input: R,
    limits: &Limits,
    mut member: impl FnMut(&RelativePath, u64, &mut dyn Read) -> Result<(), E>,
) -> Result<Digest, E> {
    let mut tape = Tape::new(input)?;
    let (mut names, mut left) = (Names::default(), *limits);
    while let Some(head) = next_head(&mut tape)? {
        let (path, bytes) = admit(&head, &mut names, &mut left, limits)?;
        let mut content = Content { tape: &mut tape, path: path.as_str(), left: bytes, fault: None };
        let taken = member(&path, bytes, &mut content);
        // What is wrong with the archive says more than what the visitor made of it.
        if let Some(fault) = content.fault.take() {
            return Err(fault.into());
        }
        taken?;
        content.skip()?;
        padding(&mut tape, &path, bytes)?;
    }
    Ok(tape.finish()?)
}

/// The headers of one file.
struct Head {
    /// Every byte of them.
    raw: Vec<u8>,
    header: Header,
    extension: Extension,
}

impl Head {
    fn path(&self) -> Vec<u8> {
        self.extension.path.clone().unwrap_or_else(|| self.header.path_bytes().into_owned())
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path()).into_owned()
    }
}

/// Reads up to the content of the next file; `None` after the two zero blocks.
fn next_head<R: Read>(tape: &mut Tape<'_, R>) -> Result<Option<Head>, ArchiveError> {
    let mut raw = Vec::new();
    let mut extension = None;
    loop {
        let Some(header) = block(tape)? else {
            let rule = if extension.is_some() { Rule::Extension } else { return Ok(None) };
            return Err(ArchiveError::refused("(end)", rule));
        };
        raw.extend_from_slice(header.as_bytes());
        let name = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        let refused = |rule| Err(ArchiveError::refused(&name, rule));
        if !sums_up(&header) {
            return refused(Rule::Checksum);
        }
        match header.entry_type() {
            EntryType::Regular if header.as_bytes()[156] == b'0' => {
                let extension = extension.unwrap_or_default();
                return Ok(Some(Head { raw, header, extension }));
            }
            EntryType::XHeader if extension.is_none() => {
                let records = extended(tape, &header, &name, &mut raw)?;
                extension = Some(form::extension(&records).map_err(|rule| ArchiveError::refused(&name, rule))?);
            }
            EntryType::XHeader => return refused(Rule::Extension),
            other => return refused(forbidden(other, header.as_bytes()[156])),
        }
    }
}

/// Reads a header block; `None` when it is the first of the two zero blocks.
fn block<R: Read>(tape: &mut Tape<'_, R>) -> Result<Option<Header>, ArchiveError> {
    const END: &str = "(end)";
    let mut header = Header::new_old();
    match tape.fill(header.as_mut_bytes(), END)? {
        BLOCK => {}
        0 => return Err(ArchiveError::refused(END, Rule::NoEnd)),
        _ => return Err(ArchiveError::refused(END, Rule::Cut)),
    }
    if header.as_bytes().iter().any(|byte| *byte != 0) {
        return Ok(Some(header));
    }
    let mut second = [0; BLOCK];
    if tape.fill(&mut second, END)? < BLOCK || second != [0; BLOCK] {
        return Err(ArchiveError::refused(END, Rule::NoEnd));
    }
    Ok(None)
}

/// Whether the header has the checksum of its bytes: their sum, the field itself counted as spaces.
fn sums_up(header: &Header) -> bool {
    let bytes = header.as_bytes();
    let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
    header.cksum().is_ok_and(|found| found == sum + 8 * u32::from(b' '))
}

fn forbidden(kind: EntryType, byte: u8) -> Rule {
    match kind {
        EntryType::Link | EntryType::Symlink => Rule::Link,
        EntryType::Char | EntryType::Block => Rule::Special("a device"),
        EntryType::Directory => Rule::Special("a directory"),
        EntryType::Fifo => Rule::Special("a FIFO"),
        EntryType::GNUSparse => Rule::Sparse,
        EntryType::GNULongName | EntryType::GNULongLink => Rule::GnuName,
        EntryType::XGlobalHeader => Rule::Global,
        _ => Rule::Kind(char::from(byte)),
    }
}

/// Reads the records of an extended header. Its length is checked before anything is allocated for it.
fn extended<R: Read>(
    tape: &mut Tape<'_, R>,
    header: &Header,
    name: &str,
    raw: &mut Vec<u8>,
) -> Result<Vec<u8>, ArchiveError> {
    let length = header.entry_size().map_err(|_| ArchiveError::refused(name, Rule::ExtensionForm))?;
    let padded = match usize::try_from(length) {
        Ok(short) if length <= MAX_EXTENSION => short.next_multiple_of(BLOCK),
        _ => return Err(ArchiveError::refused(name, Rule::ExtensionLong(length))),
    };
    let mut records = vec![0; padded];
    tape.exact(&mut records, name)?;
    raw.extend_from_slice(&records);
    #[expect(clippy::cast_possible_truncation, reason = "at most MAX_EXTENSION")]
    records.truncate(length as usize);
    Ok(records)
}

/// Whether a file may be in the archive: path, limits, and the header byte for byte.
fn admit(
    head: &Head,
    names: &mut Names,
    left: &mut Limits,
    limits: &Limits,
) -> Result<(RelativePath, u64), ArchiveError> {
    let refused = |rule| ArchiveError::refused(&head.shown(), rule);
    let path = names.add(&head.path()).map_err(refused)?;
    let bytes = match head.extension.bytes {
        Some(bytes) => bytes,
        None => head.header.entry_size().map_err(|_| refused(Rule::Form("the size")))?,
    };
    if let Some(field) = form::difference(&head.raw, &form::head(&path, bytes)) {
        return Err(refused(Rule::Form(field)));
    }
    left.entries = left.entries.checked_sub(1).ok_or_else(|| refused(Rule::Entries(limits.entries)))?;
    left.bytes = left.bytes.checked_sub(bytes).ok_or_else(|| refused(Rule::Bytes(limits.bytes)))?;
    Ok((path, bytes))
}

fn padding<R: Read>(tape: &mut Tape<'_, R>, path: &RelativePath, bytes: u64) -> Result<(), ArchiveError> {
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of 512")]
    let over = (bytes % BLOCK as u64) as usize;
    let mut fill = [0; BLOCK];
    let fill = &mut fill[..(BLOCK - over) % BLOCK];
    tape.exact(fill, path.as_str())?;
    if fill.iter().any(|byte| *byte != 0) {
        return Err(ArchiveError::refused(path.as_str(), Rule::Padding));
    }
    Ok(())
}

/// The content of one file.
struct Content<'a, 'b, R: Read> {
    tape: &'a mut Tape<'b, R>,
    path: &'a str,
    left: u64,
    /// What was wrong, for the caller of [`read`]; the visitor saw only an [`io::Error`].
    fault: Option<ArchiveError>,
}

impl<R: Read> Content<'_, '_, R> {
    fn take(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        self.tape.exact(&mut buffer[..length], self.path)?;
        self.left -= length as u64;
        Ok(length)
    }

    fn skip(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = vec![0; if self.left == 0 { 0 } else { 1 << 17 }];
        while self.left > 0 {
            self.take(&mut buffer)?;
        }
        Ok(())
    }
}

impl<R: Read> Read for Content<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.take(buffer).map_err(|error| {
            let message = error.to_string();
            self.fault = Some(error);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}
