//! Small files of one folder share blocks of about 1 MiB: they compress better together, and one record of a pack is cheaper
//! than a hundred. Only what is stored in one go under one listing is put together, since a block stays as long as anything
//! in it is needed.

use std::io::Read as _;

use xt_core::digest::Digest;

use crate::block::{BLOCK, Extent, Head, Kind};
use crate::codec;
use crate::coder::Job;
use crate::error::StoreError;
use crate::source::Source;
use crate::write::Writer;

/// So many files share a block at most: who joins is looked for among all that wait.
const MOST: usize = 4096;
/// Larger files are stored for themselves.
const SMALL: u64 = 512 << 10;

/// Files that are to share the next block.
#[derive(Debug, Default)]
pub struct Group {
    bytes: Vec<u8>,
    /// Digest, and where in the block.
    members: Vec<(Digest, u32, u32)>,
}

impl Writer<'_> {
    /// Takes in a file of a folder; small ones that come one after the other are stored together.
    pub fn put_member(&mut self, mut source: Source) -> Result<(Digest, u64), StoreError> {
        if source.size() >= SMALL || source.size() == 0 {
            return self.put_again(source, &mut |_| ());
        }
        let size = source.size();
        if let Some(digest) = self.remembered(&source)? {
            return Ok((digest, size));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let path = source.path().to_path_buf();
        (&mut source).take(size + 1).read_to_end(&mut bytes).map_err(StoreError::system("read", &path))?;
        source.unchanged()?;
        let digest = Digest::of(&bytes);
        self.remember(&source, digest);
        self.add_member(digest, &bytes)?;
        Ok((digest, bytes.len() as u64))
    }

    fn add_member(&mut self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let waits = self.group.members.iter().any(|(member, ..)| *member == digest);
        if waits || self.has_written(digest, Kind::is_object) {
            return Ok(());
        }
        if self.holds_block(digest, Kind::is_object, bytes)? || self.holds_list(digest, bytes)? {
            return Ok(());
        }
        if self.group.bytes.len() + bytes.len() > BLOCK || self.group.members.len() == MOST {
            self.close_group()?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a group has 1 MiB at most")]
        let (offset, length) = (self.group.bytes.len() as u32, bytes.len() as u32);
        self.group.members.push((digest, offset, length));
        self.group.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Stores what waits. A file that is alone is an object by itself.
    pub(crate) fn close_group(&mut self) -> Result<(), StoreError> {
        let Group { bytes, members } = std::mem::take(&mut self.group);
        match members[..] {
            [] => Ok(()),
            [(digest, ..)] => self.add_block(Kind::Whole, digest, bytes),
            _ => self.store_group(bytes, &members),
        }
    }

    fn store_group(&mut self, bytes: Vec<u8>, members: &[(Digest, u32, u32)]) -> Result<(), StoreError> {
        let block = Digest::of(&bytes);
        if !self.has_written(block, Kind::is_block) && !self.holds_block(block, Kind::is_block, &bytes)? {
            let head =
                Head { kind: Kind::Block, codec: codec::RAW, stored: 0, plain: bytes.len() as u64, digest: block };
            self.push(Job::Text(head, bytes))?;
        }
        for (digest, offset, length) in members {
            let mut extent = Vec::new();
            Extent { block, offset: *offset, length: *length }.encode(&mut extent);
            self.add_list(*digest, u64::from(*length), &extent)?;
        }
        Ok(())
    }
}
