//! Reading objects: every block and every whole object is hashed, every time.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use xt_core::canonical;
use xt_core::digest::{Digest, Hasher};
use xt_core::fault::Faults;
use xt_core::field::Manifest;

use crate::block::{Extent, Kind};
use crate::codec;
use crate::error::StoreError;
use crate::index::Place;
use crate::pack;
use crate::store::Store;

/// Why one copy of a record cannot be used.
pub enum Unusable {
    /// Its bytes are wrong or gone; another copy may be right.
    Damage(String),
    /// The system would not let us look.
    System(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
        // EIO is what a dying disk says about one sector.
        let sick = error.raw_os_error() == Some(nix::errno::Errno::EIO as i32);
        match error.kind() {
            NotFound => Self::Damage("the pack is gone".to_owned()),
            InvalidInput => Self::Damage(format!("the pack is {error}")),
            InvalidData | UnexpectedEof => Self::Damage(error.to_string()),
            _ if sick => Self::Damage(error.to_string()),
            _ => Self::System(error),
        }
    }
}

impl Store {
    /// Whether an object with this digest is listed. Only reading it tells whether it is sound.
    pub fn contains(&self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.size(digest)?.is_some())
    }

    /// The size of an object in bytes, as listed.
    pub fn size(&self, digest: Digest) -> Result<Option<u64>, StoreError> {
        Ok(self.places(digest, Kind::is_object)?.first().map(|place| place.entry.head.plain))
    }

    /// Every object and its size in bytes, in the order of the digests.
    pub fn list(&self) -> Result<Vec<(Digest, u64)>, StoreError> {
        self.refresh()?;
        Ok(self.index.read().unwrap_or_else(std::sync::PoisonError::into_inner).objects())
    }

    /// The bytes of an object.
    pub fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        self.read(digest, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies an object to `out` and says how long it is. Every block is verified before it is written; after an error
    /// `out` may hold a beginning of the object.
    pub fn read(&self, digest: Digest, out: &mut dyn Write) -> Result<u64, StoreError> {
        let (place, stored) = self.first_sound(digest, digest, Kind::is_object, |place| {
            let stored = self.record(place)?;
            // A whole object is decoded and hashed here; a list is only a plan of what to read.
            if place.entry.head.kind == Kind::Whole { plain(place, stored) } else { Ok(stored) }
        })?;
        let head = place.entry.head;
        if head.kind == Kind::Whole {
            write(out, &stored)?;
            return Ok(head.plain);
        }
        let damaged = |problem: String| StoreError::Damaged { digest, pack: place.pack, problem };
        let extents = Extent::decode_all(&stored, head.plain)
            .ok_or_else(|| damaged("its list of blocks does not add up".to_owned()))?;
        let mut hasher = Hasher::new();
        for extent in extents {
            let block = self.block(digest, extent.block).map_err(|error| match error {
                StoreError::Missing { digest } => damaged(format!("its block {digest} is missing")),
                other => other,
            })?;
            let end = extent.offset as usize + extent.length as usize;
            let piece = block
                .get(extent.offset as usize..end)
                .ok_or_else(|| damaged(format!("a piece reaches beyond its block {}", extent.block)))?;
            hasher.update(piece);
            write(out, piece)?;
        }
        if hasher.finish() == digest {
            Ok(head.plain)
        } else {
            Err(damaged("its blocks are sound, but do not make up this object".to_owned()))
        }
    }

    /// Copies an object to a new file with mode 0644, and says how long it is. There must be no file of that name; when
    /// the object is damaged, none is left. The file is a copy of its own, so changing it does not touch the store.
    pub fn extract(&self, digest: Digest, path: &Path) -> Result<u64, StoreError> {
        let failed = |error| StoreError::system("write", path)(error);
        if !self.contains(digest)? {
            return Err(StoreError::Missing { digest });
        }
        let flags = OFlag::O_NOFOLLOW.bits();
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o644).custom_flags(flags).open(path).map_err(failed)?;
        let copied = self.read(digest, &mut file).map_err(|error| match error {
            StoreError::System { action: "write", source, .. } => failed(source),
            other => other,
        });
        let copied = copied.and_then(|length| {
            file.set_permissions(std::fs::Permissions::from_mode(0o644)).map(|()| length).map_err(failed)
        });
        if copied.is_err() {
            // The error that made us stop says more than one about removing what was made.
            drop(std::fs::remove_file(path));
        }
        copied
    }

    /// A document of the store.
    pub fn manifest<M: Manifest>(&self, digest: Digest) -> Result<M, StoreError> {
        let wrong = |faults| StoreError::Document { digest, faults };
        let value = canonical::parse(&self.get(digest)?)
            .map_err(|error| wrong(Faults::one("", "document.syntax", error.to_string())))?;
        let manifest = M::decode(&value).map_err(wrong)?;
        let id = manifest.id();
        if id != digest {
            let message = format!("the object is not the canonical text of this document, whose id is {id}");
            return Err(wrong(Faults::one("", "document.form", message)));
        }
        Ok(manifest)
    }

    /// The plain bytes of a block of `object`.
    fn block(&self, object: Digest, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.first_sound(object, digest, Kind::is_block, |place| plain(place, self.record(place)?))
            .map(|(_, bytes)| bytes)
    }

    /// The first copy of a record that can be used. Packs may move while we read, so there is a second look.
    fn first_sound(
        &self,
        object: Digest,
        digest: Digest,
        wanted: fn(Kind) -> bool,
        read: impl Fn(&Place) -> Result<Vec<u8>, Unusable>,
    ) -> Result<(Place, Vec<u8>), StoreError> {
        let mut fault = None;
        for again in [false, true] {
            if again {
                self.reload()?;
            }
            for place in self.places(digest, wanted)? {
                match read(&place) {
                    Ok(bytes) => return Ok((place, bytes)),
                    Err(Unusable::Damage(problem)) => fault = Some((place.pack, problem)),
                    Err(Unusable::System(error)) => {
                        return Err(StoreError::system("read", &self.pack_path(&pack::file_name(place.pack)))(error));
                    }
                }
            }
        }
        Err(match fault {
            Some((pack, problem)) => StoreError::Damaged { digest: object, pack, problem },
            None => StoreError::Missing { digest },
        })
    }

    /// The stored bytes of a record whose head is right.
    pub(crate) fn record(&self, place: &Place) -> Result<Vec<u8>, Unusable> {
        Ok(pack::read_record(&*self.pack_file(place.pack)?, &place.entry)?)
    }
}

/// The plain bytes of a block, hashed.
pub fn plain(place: &Place, stored: Vec<u8>) -> Result<Vec<u8>, Unusable> {
    let head = &place.entry.head;
    let bytes = codec::decode(head.codec, stored, head.plain).map_err(Unusable::Damage)?;
    if Digest::of(&bytes) == head.digest {
        Ok(bytes)
    } else {
        Err(Unusable::Damage(format!("the bytes of the block at byte {} are wrong", place.entry.offset)))
    }
}

fn write(out: &mut dyn Write, bytes: &[u8]) -> Result<(), StoreError> {
    out.write_all(bytes).map_err(StoreError::system("write", Path::new("the output")))
}
