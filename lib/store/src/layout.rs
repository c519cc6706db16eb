//! The directory of a store: its format and its folders.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use xt_core::canonical::{self, Value};

use crate::disk;
use crate::error::StoreError;
use crate::lease::Lease;

/// Name of the file that says which version wrote the store. It is read before anything else, and made last.
pub const FORMAT: &str = "FORMAT";
/// What the file says. A later version that adds a codec or a kind of record adds a feature, and then this version
/// refuses the store instead of misreading it.
pub const FORMAT_TEXT: &str = "{\"features\":[],\"hash\":\"sha256\",\"schema\":\"xt.store/1\"}";
/// Objects.
pub const PACKS: &str = "packs";
/// Names of objects.
pub const REFS: &str = "refs";
/// Objects that are to be kept, though nothing refers to them.
pub const PINS: &str = "pins";
/// One locked file per living writer.
pub const LEASES: &str = "leases";
/// One directory per living writer.
pub const TMP: &str = "tmp";
/// Packs that are to be swept.
pub const CONDEMNED: &str = "condemned";
/// Damaged packs and partial results of runs.
pub const QUARANTINE: &str = "quarantine";
/// The directories of runs.
pub const RUNS: &str = "runs";
/// What may be deleted at any time.
pub const CACHE: &str = "cache";
/// The record of states and events.
pub const RECORD: &str = "record.db";

const FOLDERS: [&str; 9] = [PACKS, REFS, PINS, LEASES, TMP, CONDEMNED, QUARANTINE, RUNS, CACHE];

/// What a FORMAT file says that this version does not know.
fn strange(found: &[u8]) -> String {
    let known = canonical::parse(FORMAT_TEXT.as_bytes()).unwrap_or(Value::Null);
    let Ok(said) = canonical::parse(found) else {
        return format!("this is no description of a store: {}", found.escape_ascii());
    };
    let [here, there] = [&known, &said].map(|value| value.get("schema").and_then(Value::as_str).unwrap_or("no format"));
    if here != there {
        let there = there.escape_debug();
        return format!("this store has the format {there}, and this version of xt reads {here}");
    }
    if let Some(Value::List(features)) = said.get("features").filter(|features| **features != Value::List(Vec::new())) {
        let names: Vec<String> =
            features.iter().map(|name| name.as_str().unwrap_or("?").escape_debug().to_string()).collect();
        return format!("this store uses what this version of xt does not know: {}", names.join(", "));
    }
    format!("expected {}, found {}", known.canonical(), said.canonical())
}

/// An open store directory.
#[derive(Debug)]
pub struct Layout {
    /// Its absolute path, for messages and for those who get paths.
    pub path: PathBuf,
    /// Its handle; nothing outside it can be reached from here.
    pub root: Dir,
}

impl Layout {
    /// Opens an existing store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let layout = Self::handle(path)?;
        if layout.has_format()? { Ok(layout) } else { Err(StoreError::Absent { path: layout.path }) }
    }

    /// Opens a store, or makes one in an absent or empty directory. Any number of processes may do so at once.
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        disk::make_root(path).map_err(StoreError::system("make", path))?;
        let layout = Self::handle(path)?;
        if !layout.has_format()? {
            layout.create()?;
        }
        Ok(layout)
    }

    fn handle(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(StoreError::system("find", path))?;
        // The path to the store is the caller's own, so links on the way to it are followed; none inside it is.
        match std::fs::File::open(&path) {
            Ok(file) if file.metadata().is_ok_and(|found| found.is_dir()) => {
                Ok(Self { path, root: Dir::from_std_file(file) })
            }
            Ok(_) => Err(StoreError::Absent { path }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(StoreError::Absent { path }),
            Err(error) => Err(StoreError::system("open", &path)(error)),
        }
    }

    /// Whether there is a FORMAT file; one that says something else than ours is an error.
    fn has_format(&self) -> Result<bool, StoreError> {
        let path = self.path.join(FORMAT);
        let file = match disk::open_regular(&self.root, Path::new(FORMAT)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(StoreError::system("read", &path)(error)),
        };
        let mut found = Vec::new();
        file.take(4096).read_to_end(&mut found).map_err(StoreError::system("read", &path))?;
        if found.strip_suffix(b"\n") == Some(FORMAT_TEXT.as_bytes()) {
            return Ok(true);
        }
        Err(StoreError::Format { path, problem: strange(&found) })
    }

    fn create(&self) -> Result<(), StoreError> {
        let here = |error| StoreError::system("make a store in", &self.path)(error);
        for name in disk::names(&self.root).map_err(here)? {
            let name = name.to_string_lossy();
            if name != FORMAT && !FOLDERS.contains(&&*name) && !name.starts_with(RECORD) {
                return Err(StoreError::Foreign { path: self.path.clone(), entry: name.into_owned() });
            }
        }
        for folder in FOLDERS {
            disk::make_directory(&self.root, folder).map_err(here)?;
        }
        // FORMAT comes last: who sees it sees all the folders. Another process may do the same; the text is the same.
        let lease = Lease::take(self)?;
        let mut file = disk::create_file(lease.directory(), FORMAT).map_err(here)?;
        file.write_all(format!("{FORMAT_TEXT}\n").as_bytes()).and_then(|()| file.sync_all()).map_err(here)?;
        disk::sync_directory(&self.root).map_err(here)?;
        lease.directory().rename(FORMAT, &self.root, FORMAT).map_err(here)?;
        disk::sync_directory(&self.root).map_err(here)
    }

    /// The folder `name` of the store.
    pub fn folder(&self, name: &'static str) -> Result<Dir, StoreError> {
        disk::open_directory(&self.root, Path::new(name)).map_err(StoreError::system("open", &self.path.join(name)))
    }
}
