//! Writing archives.

use std::io::{self, Read, Write};

use xt_core::digest::{Digest, Hasher};
use xt_core::relpath::RelativePath;

use super::error::ArchiveError;
use super::form::{self, BLOCK};
use super::names::Names;

/// Level of zstd: fast, since weights hardly shrink at any level.
const LEVEL: i32 = 3;

/// Writes an archive member by member.
pub struct Writer<W: Write> {
    zstd: zstd::Encoder<'static, W>,
    hasher: Hasher,
    names: Names,
}

/// Writes an archive of `members` (path, size in bytes, content) in the order given; gives the digest of the tar.
pub fn write<W: Write, R: Read>(
    out: W,
    members: impl IntoIterator<Item = (RelativePath, u64, R)>,
) -> Result<Digest, ArchiveError> {
    let mut writer = Writer::new(out)?;
    for (path, bytes, content) in members {
        writer.member(&path, bytes, content)?;
    }
    writer.finish().map(|(digest, _)| digest)
}

impl<W: Write> Writer<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Result<Self, ArchiveError> {
        let mut zstd = zstd::Encoder::new(out, LEVEL).map_err(failed)?;
        zstd.include_checksum(true).map_err(failed)?;
        Ok(Self { zstd, hasher: Hasher::new(), names: Names::default() })
    }

    /// Adds a file of `bytes` bytes. A path that readers would refuse is refused here.
    pub fn member(&mut self, path: &RelativePath, bytes: u64, mut content: impl Read) -> Result<(), ArchiveError> {
        self.names.add(path.as_str().as_bytes()).map_err(|rule| ArchiveError::refused(path.as_str(), rule))?;
        self.put(&form::head(path, bytes))?;
        let (mut found, mut buffer) = (0, vec![0; 1 << 17]);
        loop {
            let length = match content.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(ArchiveError::System { action: "read a member of", source }),
            };
            found += length as u64;
            if found > bytes || (length == 0 && found < bytes) {
                return Err(ArchiveError::Length { path: path.to_string(), announced: bytes, found });
            }
            if length == 0 {
                break;
            }
            self.put(&buffer[..length])?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of 512")]
        let over = (bytes % BLOCK as u64) as usize;
        self.put(&[0; BLOCK][..(BLOCK - over) % BLOCK])
    }

    /// Ends the archive; gives the digest of the tar, and the sink with everything written to it.
    pub fn finish(mut self) -> Result<(Digest, W), ArchiveError> {
        self.put(&[0; 2 * BLOCK])?;
        let mut out = self.zstd.finish().map_err(failed)?;
        out.flush().map_err(failed)?;
        Ok((self.hasher.finish(), out))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.hasher.update(bytes);
        self.zstd.write_all(bytes).map_err(failed)
    }
}

fn failed(source: io::Error) -> ArchiveError {
    ArchiveError::System { action: "write", source }
}
