//! Small files of one folder share blocks of about 1 MiB: they compress better together, and one record of a pack is cheaper
//! than a hundred. Only what is stored in one go under one listing is put together, since a block stays as long as anything
//! in it is needed.

use std::collections::BTreeSet;
use std::sync::Arc;

use xt_core::digest::Digest;
use xt_core::relpath::RelativePath;

use crate::block::{BLOCK, Extent, Head, Kind};
use crate::codec;
use crate::coder::{How, Job};
use crate::error::StoreError;
use crate::source::Source;
use crate::tree::Tree;
use crate::write::{Writer, fill};

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
    waiting: BTreeSet<Digest>,
    /// The file that is being read.
    file: Vec<u8>,
}

impl Writer<'_> {
    /// Takes in a file of a folder; small ones that come one after the other are stored together. One that has not changed
    /// since it was stored is not opened.
    pub fn put_member(&mut self, tree: &Tree, file: &RelativePath) -> Result<(Digest, u64), StoreError> {
        if let Some(found) = self.recalled(|| tree.look(file))? {
            return Ok(found);
        }
        let source = tree.source(file)?;
        if source.size() >= SMALL || source.size() == 0 {
            return self.put_again(source, &mut |_| ());
        }
        self.put_small(source)
    }

    fn put_small(&mut self, mut source: Source) -> Result<(Digest, u64), StoreError> {
        let mut bytes = std::mem::take(&mut self.group.file);
        bytes.resize(usize::try_from(source.size()).unwrap_or_default(), 0);
        // One that has become longer or shorter has changed.
        let read = fill(&mut source, &mut bytes);
        let length = read.map_err(StoreError::system("read", source.path()))?;
        source.unchanged()?;
        let digest = Digest::of(&bytes[..length]);
        self.remember(&source, digest);
        self.add_member(digest, &bytes[..length])?;
        self.group.file = bytes;
        Ok((digest, length as u64))
    }

    fn add_member(&mut self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        if self.group.waiting.contains(&digest) || self.has_written(digest, Kind::is_object) {
            return Ok(());
        }
        if self.holds_block(digest, Kind::is_object, bytes)? || self.holds_list(digest, bytes)? {
            return Ok(());
        }
        if self.group.bytes.len() + bytes.len() > BLOCK || self.group.members.len() == MOST {
            self.close_group()?;
        }
        if self.group.members.is_empty() {
            self.group.bytes = self.pool.take();
            self.group.bytes.clear();
        }
        #[expect(clippy::cast_possible_truncation, reason = "a group has 1 MiB at most")]
        let (offset, length) = (self.group.bytes.len() as u32, bytes.len() as u32);
        self.group.members.push((digest, offset, length));
        self.group.waiting.insert(digest);
        self.group.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Stores what waits. A file that is alone is an object by itself.
    pub(crate) fn close_group(&mut self) -> Result<(), StoreError> {
        let bytes = Arc::new(std::mem::take(&mut self.group.bytes));
        let members = std::mem::take(&mut self.group.members);
        self.group.waiting.clear();
        match members[..] {
            [] => Ok(()),
            [(digest, ..)] => self.add_block(Kind::Whole, digest, bytes),
            _ => self.store_group(bytes, &members),
        }
    }

    /// None of the members is in the store, so neither is their block, or it is of no use there.
    fn store_group(&mut self, bytes: Arc<Vec<u8>>, members: &[(Digest, u32, u32)]) -> Result<(), StoreError> {
        let block = self.store.layout.hashing.block(&bytes);
        let list = |(digest, offset, length): &(Digest, u32, u32)| {
            let mut extent = Vec::new();
            Extent { block, offset: *offset, length: *length }.encode(&mut extent);
            let head =
                Head { kind: Kind::List, codec: codec::RAW, stored: 0, plain: u64::from(*length), digest: *digest };
            (head, extent)
        };
        let behind = members.iter().map(list).collect();
        let head = Head { kind: Kind::Block, codec: codec::RAW, stored: 0, plain: bytes.len() as u64, digest: block };
        let how = if self.raw { How::Stored } else { How::Text };
        self.push(Job { head, bytes, how, behind })
    }
}
