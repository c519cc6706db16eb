//! What leads to what: which objects an object names in its text.
//!
//! The store does not know what its documents mean, so it goes by their bytes: in an object that begins like JSON, or like
//! a line of `sha256sum`, every 64 lower-case hexadecimal digits that stand alone are a digest. A number too many only
//! keeps something longer; no kind of document can be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure as _};

use crate::block::{Extent, Head, Kind};
use crate::error::StoreError;
use crate::store::Store;

/// Length of a digest in digits.
const DIGITS: usize = 64;

/// Everything that can be reached from some objects.
#[derive(Debug)]
pub struct Reach<'a> {
    store: &'a Store,
    /// The objects that are in the store.
    pub objects: BTreeSet<Digest>,
    /// The blocks that they are made of.
    pub blocks: BTreeSet<Digest>,
    /// Which objects name this one; also for what is not in the store.
    pub parents: BTreeMap<Digest, BTreeSet<Digest>>,
    /// What could not be read, so that it is not known where it leads.
    pub unreadable: BTreeMap<Digest, StoreError>,
    absent: BTreeSet<Digest>,
    /// Objects that are given up, though others name them.
    pub without: BTreeSet<Digest>,
}

impl<'a> Reach<'a> {
    /// Nothing yet. Looks for new packs first.
    pub fn new(store: &'a Store) -> Result<Self, StoreError> {
        store.refresh()?;
        Ok(Self {
            store,
            objects: BTreeSet::new(),
            blocks: BTreeSet::new(),
            parents: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            absent: BTreeSet::new(),
            without: BTreeSet::new(),
        })
    }

    /// Adds these objects and everything that they lead to.
    pub fn add(&mut self, digests: impl IntoIterator<Item = Digest>) -> Result<(), StoreError> {
        let mut next: Vec<Digest> = digests.into_iter().collect();
        while let Some(digest) = next.pop() {
            if [&self.objects, &self.absent, &self.without].iter().any(|known| known.contains(&digest)) {
                continue;
            }
            let copies = self.store.known_places(digest, Kind::is_object);
            if copies.is_empty() {
                self.absent.insert(digest);
                continue;
            }
            self.objects.insert(digest);
            for place in copies.iter().filter(|place| place.entry.head.kind == Kind::List) {
                // A copy that cannot be read makes nothing of the object; another one may be sound.
                let extents = self.store.record(place).ok();
                let extents = extents.and_then(|bytes| Extent::decode_all(&bytes, place.entry.head.plain));
                for extent in extents.into_iter().flatten() {
                    self.add_block(extent.block);
                }
            }
            self.add_bases(digest);
            match mentions(self.store, digest) {
                Ok(found) => {
                    let mut children: Vec<Digest> = found.into_iter().filter(|child| *child != digest).collect();
                    self.store.sort_by_place(&mut children);
                    for child in &children {
                        self.parents.entry(*child).or_default().insert(digest);
                    }
                    next.extend(children);
                }
                Err(error) if error.exit() == Exit::Store => drop(self.unreadable.insert(digest, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add_block(&mut self, block: Digest) {
        if self.blocks.insert(block) {
            self.add_bases(block);
        }
    }

    /// Adds the blocks from which copies of this one differ.
    fn add_bases(&mut self, block: Digest) {
        for place in self.store.known_places(block, Kind::is_block) {
            self.blocks.extend(self.store.base_digest(&place));
        }
    }

    /// Whether a record is part of what was reached.
    pub fn needs(&self, head: &Head) -> bool {
        (head.kind.is_object() && self.objects.contains(&head.digest))
            || (head.kind.is_block() && self.blocks.contains(&head.digest))
    }

    /// Everything that leads to `digest`, itself included.
    pub fn above(&self, digest: Digest) -> BTreeSet<Digest> {
        let (mut above, mut next) = (BTreeSet::new(), vec![digest]);
        while let Some(digest) = next.pop() {
            if above.insert(digest) {
                next.extend(self.parents.get(&digest).into_iter().flatten());
            }
        }
        above
    }

    /// Fails when something could not be read: what it leads to is not known.
    pub fn complete(&self) -> Result<(), StoreError> {
        match self.unreadable.keys().next() {
            None => Ok(()),
            Some(first) => Err(StoreError::Unreadable { digest: *first, others: self.unreadable.len() as u64 - 1 }),
        }
    }
}

impl Store {
    /// Which objects name each of `objects`, of those that references, pins and `roots` lead to; a name counts as no object.
    pub fn parents(
        &self,
        objects: &BTreeSet<Digest>,
        roots: &[Digest],
    ) -> Result<BTreeMap<Digest, BTreeSet<Digest>>, StoreError> {
        let mut reach = Reach::new(self)?;
        let named = self.references()?.into_iter().chain(self.pins()?).map(|reference| reference.digest);
        reach.add(named.chain(roots.iter().copied()))?;
        reach.complete()?;
        let parents = |object: &Digest| (*object, reach.parents.get(object).cloned().unwrap_or_default());
        Ok(objects.iter().map(parents).collect())
    }
}

/// The digests in a text: 64 lower-case hexadecimal digits that stand alone.
pub fn digests_in(text: &[u8]) -> BTreeSet<Digest> {
    let mut digits = Digits::default();
    let mut found: BTreeSet<Digest> = text.iter().filter_map(|byte| digits.push(*byte)).collect();
    found.extend(digits.end());
    found
}

/// The digests in the text of an object; none when it is no text that could hold some.
fn mentions(store: &Store, digest: Digest) -> Result<BTreeSet<Digest>, StoreError> {
    let mut object = store.object(digest)?;
    let (mut found, mut digits, mut buffer, mut first) = (BTreeSet::new(), Digits::default(), vec![0; 1 << 16], true);
    loop {
        let length = object.read(&mut buffer).map_err(|error| match error.downcast::<StoreError>() {
            Ok(error) => error,
            Err(error) => StoreError::system("read", store.path())(error),
        })?;
        let bytes = &buffer[..length];
        if length == 0 || (first && !is_text(bytes)) {
            found.extend(digits.end());
            return Ok(found);
        }
        first = false;
        found.extend(bytes.iter().filter_map(|byte| digits.push(*byte)));
    }
}

/// Whether an object that begins like this may name others.
fn is_text(bytes: &[u8]) -> bool {
    let digits = bytes.iter().take_while(|byte| is_digit(**byte)).count();
    matches!(bytes.first(), Some(b'{' | b'[' | b'"')) || digits == DIGITS
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Finds digests in bytes that come one after the other.
struct Digits {
    run: usize,
    last: [u8; DIGITS],
}

impl Default for Digits {
    fn default() -> Self {
        Self { run: 0, last: [0; DIGITS] }
    }
}

impl Digits {
    fn push(&mut self, byte: u8) -> Option<Digest> {
        if is_digit(byte) {
            if self.run < DIGITS {
                self.last[self.run] = byte;
            }
            self.run += 1;
            return None;
        }
        self.end()
    }

    fn end(&mut self) -> Option<Digest> {
        let run = std::mem::take(&mut self.run);
        let text = std::str::from_utf8(&self.last).ok().filter(|_| run == DIGITS)?;
        Digest::from_hex(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Digest> {
        digests_in(text.as_bytes()).into_iter().collect()
    }

    #[test]
    fn sixty_four_digits_alone_are_a_digest_and_more_or_fewer_are_none() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let both: Vec<Digest> = BTreeSet::from([a, b]).into_iter().collect();
        assert_eq!(found(&format!("{{\"x\":\"{a}\",\"y\":\"{}\"}}", b.hex())), both);
        assert_eq!(found(&format!("{}  a.txt\n{}  b.txt", a.hex(), b.hex())), both);
        assert_eq!(found(&b.hex()), [b]);
        assert_eq!(found(&format!("0{}", a.hex())), []);
        assert_eq!(found(&a.hex()[1..]), []);
        assert_eq!(found(&a.hex().to_uppercase()), []);
    }

    #[test]
    fn what_a_named_document_names_is_reached_through_any_number_of_steps() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(&directory.path().join("s")).unwrap();
        let data = store.put(&vec![7; 3 << 20]).unwrap();
        let middle = store.put(format!("{}  data\n", data.hex()).as_bytes()).unwrap();
        let absent = Digest::of(b"elsewhere");
        let top = store.put(format!("{{\"a\":\"{middle}\",\"b\":\"{absent}\"}}").as_bytes()).unwrap();
        let binary = store.put(format!("\u{1}{top}").as_bytes()).unwrap();
        let mut reach = Reach::new(&store).unwrap();
        reach.add([top]).unwrap();
        assert_eq!(reach.objects, [top, middle, data].into());
        assert_eq!(reach.blocks.len(), 1, "three equal blocks");
        assert_eq!(reach.above(data), [top, middle, data].into());
        let mut reach = Reach::new(&store).unwrap();
        reach.add([binary]).unwrap();
        assert_eq!(reach.objects, [binary].into(), "control: what is no text leads nowhere");
    }
}
