//! The directory of a store: its format and its folders.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use xt_core::canonical::{self, Value};

use crate::disk;
use crate::error::StoreError;
use crate::hashing::Hashing;
use crate::lease::Lease;

/// Name of the file that says which version wrote the store. It is read before anything else, and made last.
pub const FORMAT: &str = "FORMAT";
/// What the file says, and what that means; the first is what a new store says. A later version that adds a codec or a kind of
/// record adds a feature, and then this version refuses the store instead of misreading it.
const FORMATS: [(&str, Hashing); 2] = [
    ("{\"features\":[\"blake3\"],\"hash\":\"sha256\",\"schema\":\"xt.store/1\"}", Hashing::Nested),
    ("{\"features\":[],\"hash\":\"sha256\",\"schema\":\"xt.store/1\"}", Hashing::Plain),
];
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
    let known = canonical::parse(FORMATS[0].0.as_bytes()).unwrap_or(Value::Null);
    let Ok(said) = canonical::parse(found) else {
        return format!("this is no description of a store: {}", found.escape_ascii());
    };
    let [here, there] = [&known, &said].map(|value| value.get("schema").and_then(Value::as_str).unwrap_or("no format"));
    if here != there {
        let there = there.escape_debug();
        return format!("this store has the format {there}, and this version of xt reads {here}");
    }
    let features = |value: &Value| match value.get("features") {
        Some(Value::List(features)) => features.clone(),
        _ => Vec::new(),
    };
    let known_here = features(&known);
    let unknown = features(&said).into_iter().filter(|feature| !known_here.contains(feature));
    let names: Vec<String> = unknown.map(|name| name.as_str().unwrap_or("?").escape_debug().to_string()).collect();
    if !names.is_empty() {
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
    /// How its blocks and packs are named.
    pub hashing: Hashing,
}

impl Layout {
    /// Opens an existing store.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let layout = Self::handle(path)?;
        match layout.format()? {
            Some(hashing) => Ok(Self { hashing, ..layout }),
            None => Err(StoreError::Absent { path: layout.path }),
        }
    }

    /// Opens a store, or makes one in an absent or empty directory. Any number of processes may do so at once.
    pub fn open_or_create(path: &Path) -> Result<Self, StoreError> {
        disk::make_root(path).map_err(StoreError::system("make", path))?;
        let layout = Self::handle(path)?;
        let found = layout.format()?;
        if found.is_none() {
            layout.create()?;
        }
        Ok(Self { hashing: found.unwrap_or(layout.hashing), ..layout })
    }

    fn handle(path: &Path) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(StoreError::system("find", path))?;
        // The path to the store is the caller's own, so links on the way to it are followed; none inside it is.
        match std::fs::File::open(&path) {
            Ok(file) if file.metadata().is_ok_and(|found| found.is_dir()) => {
                Ok(Self { path, root: Dir::from_std_file(file), hashing: FORMATS[0].1 })
            }
            Ok(_) => Err(StoreError::Absent { path }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(StoreError::Absent { path }),
            Err(error) => Err(StoreError::system("open", &path)(error)),
        }
    }

    /// What the FORMAT file says, if there is one; one that says what this version does not know is an error.
    fn format(&self) -> Result<Option<Hashing>, StoreError> {
        let path = self.path.join(FORMAT);
        let file = match disk::open_regular(&self.root, Path::new(FORMAT)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::system("read", &path)(error)),
        };
        let mut found = Vec::new();
        file.take(4096).read_to_end(&mut found).map_err(StoreError::system("read", &path))?;
        let text = found.strip_suffix(b"\n");
        let known = FORMATS.iter().find(|(known, _)| text == Some(known.as_bytes()));
        let unknown = || StoreError::Format { path, problem: strange(&found) };
        known.map(|(_, hashing)| Some(*hashing)).ok_or_else(unknown)
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
        file.write_all(format!("{}\n", FORMATS[0].0).as_bytes()).and_then(|()| file.sync_all()).map_err(here)?;
        disk::sync_directory(&self.root).map_err(here)?;
        lease.directory().rename(FORMAT, &self.root, FORMAT).map_err(here)?;
        disk::sync_directory(&self.root).map_err(here)
    }

    /// The folder `name` of the store.
    pub fn folder(&self, name: &'static str) -> Result<Dir, StoreError> {
        disk::open_directory(&self.root, Path::new(name)).map_err(StoreError::system("open", &self.path.join(name)))
    }
}
