//! What lies in `quarantine/`: damaged packs, and what runs that did not succeed left. Only a person removes it.

use std::path::Path;

use cap_std::fs::Dir;

use crate::disk;
use crate::error::StoreError;
use crate::layout::QUARANTINE;
use crate::pack;
use crate::store::Store;

xt_core::record! {
    /// Something in quarantine.
    pub struct Quarantined {
        /// Its name there: an attempt, or the file of a pack.
        name: String,
        /// `pack` or `run`.
        kind: String,
        /// Files in it, one for a pack.
        files: u64,
        /// Bytes of all of them.
        bytes: u64,
    }
}

impl Store {
    /// Everything in quarantine, by name.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, StoreError> {
        let folder = self.layout.folder(QUARANTINE)?;
        let failed = |error| StoreError::system("list", &self.path().join(QUARANTINE))(error);
        let mut found = Vec::new();
        for name in disk::names(&folder).map_err(failed)? {
            let (mut files, mut bytes) = (0, 0);
            measure(&folder, Path::new(&name), &mut files, &mut bytes).map_err(failed)?;
            let name = name.to_string_lossy().into_owned();
            let kind = if pack::from_file_name(&name).is_some() { "pack" } else { "run" };
            found.push(Quarantined { name, kind: kind.to_owned(), files, bytes });
        }
        Ok(found)
    }

    /// Removes something from quarantine for good; false when there is no such thing.
    pub fn remove_quarantined(&self, name: &str) -> Result<bool, StoreError> {
        let folder = self.layout.folder(QUARANTINE)?;
        let path = self.path().join(QUARANTINE).join(name);
        let names = disk::names(&folder).map_err(StoreError::system("list", &path))?;
        let Some(found) = names.iter().find(|found| found.to_str() == Some(name)) else { return Ok(false) };
        let removed = disk::remove(&folder, found).and_then(|()| disk::sync_directory(&folder));
        removed.map(|()| true).map_err(StoreError::system("remove", &path))
    }
}

/// Counts files and their bytes; links are counted, not followed.
fn measure(parent: &Dir, name: &Path, files: &mut u64, bytes: &mut u64) -> std::io::Result<()> {
    let found = parent.symlink_metadata(name)?;
    if !found.is_dir() {
        *files += 1;
        *bytes += found.len();
        return Ok(());
    }
    let inner = disk::open_directory(parent, name)?;
    for name in disk::names(&inner)? {
        measure(&inner, Path::new(&name), files, bytes)?;
    }
    Ok(())
}
