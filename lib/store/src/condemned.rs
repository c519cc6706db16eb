//! Packs that are to be swept, generation by generation.
//!
//! A generation is a file in `condemned/`, named by its number, that lists packs. A writer reads all of them when it
//! starts and counts what they list as absent; its lease says up to which number it has read. So once every lease of a
//! living writer says `number` or more, nobody can come to depend on what that generation lists, except by giving a name
//! to something old, and whoever does that copies it out first (`hold.rs`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use xt_core::canonical;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Field as _;

use crate::disk;
use crate::error::StoreError;
use crate::layout::{CONDEMNED, Layout};
use crate::lease::Lease;

/// What the file of a generation is.
const TAG: &str = "xt.condemned/1";
/// Name of the file before it is renamed.
const FRESH: &str = "condemned";
/// Held by the one process that collects.
const COLLECTING: &str = "lock";
/// Held while packs are removed, and while something is copied out of condemned ones.
const GATE: &str = "gate";

xt_core::record! {
    /// The packs of a generation.
    pub struct Listed as TAG {
        /// Each by its digest.
        packs: Vec<Digest>,
    }
}

/// Packs that were condemned together.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Numbers only grow.
    pub number: u64,
    /// The packs; some may be gone already.
    pub packs: BTreeSet<Digest>,
}

/// Every generation, the oldest first. The newest stays when it is swept, so that no number is used twice.
pub fn generations(layout: &Layout) -> Result<Vec<Generation>, StoreError> {
    let path = layout.path.join(CONDEMNED);
    let folder = layout.folder(CONDEMNED)?;
    let names = disk::names(&folder).map_err(StoreError::system("list", &path))?;
    let mut found = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()) {
        let Ok(number) = name.parse() else { continue };
        let mut bytes = Vec::new();
        match disk::open_regular(&folder, Path::new(name)).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => found.push(Generation { number, packs: decode(name, &bytes)? }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::system("read", &path.join(name))(error)),
        }
    }
    found.sort_by_key(|generation| generation.number);
    Ok(found)
}

fn decode(name: &str, bytes: &[u8]) -> Result<BTreeSet<Digest>, StoreError> {
    let damaged = |problem| StoreError::ReferenceDamaged { name: format!("{CONDEMNED}/{name}"), problem };
    let value = canonical::parse(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut faults = Faults::new();
    match Listed::read(&value, "", &mut faults).filter(|_| faults.is_empty()) {
        Some(Listed { packs }) => Ok(packs.into_iter().collect()),
        None => Err(damaged(faults.to_string())),
    }
}

/// Condemns packs; durable, and seen by every writer that starts from now on, when this returns.
pub fn condemn(layout: &Layout, packs: BTreeSet<Digest>) -> Result<Generation, StoreError> {
    let number = generations(layout)?.last().map_or(1, |last| last.number + 1);
    let name = format!("{number:016}");
    let failed = |error| StoreError::system("write", &layout.path.join(CONDEMNED).join(&name))(error);
    let folder = layout.folder(CONDEMNED)?;
    let text = format!("{}\n", Listed { packs: packs.iter().copied().collect() }.write().canonical());
    let lease = Lease::take(layout)?;
    let mut file = disk::create_file(lease.directory(), FRESH).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    lease.directory().rename(FRESH, &folder, &name).map_err(failed)?;
    disk::sync_directory(&folder).map_err(failed)?;
    Ok(Generation { number, packs })
}

/// Forgets a generation that is swept, unless it is the newest.
pub fn retire(layout: &Layout, swept: &Generation) -> Result<(), StoreError> {
    if generations(layout)?.last().is_none_or(|last| last.number <= swept.number) {
        return Ok(());
    }
    let name = format!("{:016}", swept.number);
    let folder = layout.folder(CONDEMNED)?;
    disk::remove(&folder, name.as_ref()).map_err(StoreError::system("remove", &layout.path.join(CONDEMNED).join(name)))
}

/// Waits until no other process collects, and keeps others from it for as long as the file is open.
pub fn collecting(layout: &Layout) -> Result<File, StoreError> {
    locked(layout, COLLECTING)
}

/// Waits for the gate, and holds it for as long as the file is open.
pub fn gate(layout: &Layout) -> Result<File, StoreError> {
    locked(layout, GATE)
}

fn locked(layout: &Layout, name: &str) -> Result<File, StoreError> {
    let folder = layout.folder(CONDEMNED)?;
    let file = disk::open_or_create_file(&folder, name).and_then(|file| file.lock().map(|()| file));
    file.map_err(StoreError::system("lock", &layout.path.join(CONDEMNED).join(name)))
}
