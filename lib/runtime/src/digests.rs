//! Digests of files that were read before. Hashing an interpreter's folders anew for every run would take longer than
//! many a run, so what is known of a file is kept in the store's `cache/` and believed as long as device, inode, size and
//! both times are what they were.
//!
//! A change always moves the time of change, which no program can set; the clock of a file system has a tick, though,
//! so that a file written a moment ago could change again without a new time. Such a file is hashed and not kept.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use xt_core::digest::Digest;

use crate::error::{RuntimeError, file};
use crate::pinned;

/// A file is old enough when nothing happened to it for so many seconds: longer than the tick of any file system.
const SETTLED: i64 = 3;
/// So many digests are kept.
const MOST: usize = 200_000;

/// Device, inode, size, time of the last write and time of the last change, each with nanoseconds.
type Key = [i64; 7];

fn key(found: &Metadata) -> Key {
    let number = |number: u64| number.cast_signed();
    let (written, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    [number(found.dev()), number(found.ino()), number(found.size()), written.0, written.1, changed.0, changed.1]
}

/// What is known of files.
#[derive(Debug, Default)]
pub struct Digests {
    place: Option<PathBuf>,
    known: BTreeMap<Key, Digest>,
    learned: bool,
    cached: u64,
}

impl Digests {
    /// What the store at `store` knows; nothing when it knows nothing, or when what it has is damaged.
    pub fn open(store: &Path) -> Self {
        let place = store.join("cache").join("digests");
        let known = fs::read(&place).ok().and_then(|bytes| read(&bytes)).unwrap_or_default();
        Self { place: Some(place), known, learned: false, cached: 0 }
    }

    /// Files whose digest was known.
    pub fn cached(&self) -> u64 {
        self.cached
    }

    /// SHA-256 of an open file, read only when it is not known.
    pub(crate) fn digest(&mut self, opened: &mut File, path: &Path) -> Result<Digest, RuntimeError> {
        let stat = |opened: &File| opened.metadata().map_err(file("read", path));
        let before = stat(opened)?;
        if let Some(digest) = self.known.get(&key(&before)) {
            self.cached += 1;
            return Ok(*digest);
        }
        let digest = pinned::digest_of(opened, path)?;
        let after = stat(opened)?;
        if key(&before) != key(&after) {
            return Err(RuntimeError::Altered(path.into()));
        }
        if settled(&after) {
            self.learned = true;
            self.known.insert(key(&after), digest);
        }
        Ok(digest)
    }

    /// Keeps what was learned. A cache that cannot be written costs time and nothing else.
    pub fn keep(&mut self) {
        let Some(place) = self.place.as_ref().filter(|_| self.learned) else { return };
        while self.known.len() > MOST {
            self.known.pop_first();
        }
        let temporary = place.with_file_name(format!("digests.{}.tmp", std::process::id()));
        let write = || -> std::io::Result<()> {
            File::create(&temporary)?.write_all(&text(&self.known))?;
            fs::rename(&temporary, place)
        };
        if write().is_err() {
            drop(fs::remove_file(&temporary));
        }
        self.learned = false;
    }
}

fn settled(found: &Metadata) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    let now = i64::try_from(now).unwrap_or(0);
    now - found.mtime() >= SETTLED && now - found.ctime() >= SETTLED
}

/// One line a file, and the SHA-256 of all of them as the last line: a file that was cut or damaged is no cache.
fn text(known: &BTreeMap<Key, Digest>) -> Vec<u8> {
    let line = |(key, digest): (&Key, &Digest)| {
        key.iter().map(|number| number.to_string() + " ").collect::<String>() + &digest.hex() + "\n"
    };
    let lines: String = known.iter().map(line).collect();
    let sum = Digest::of(lines.as_bytes()).hex();
    (lines + &sum + "\n").into_bytes()
}

fn read(bytes: &[u8]) -> Option<BTreeMap<Key, Digest>> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let (lines, sum) = text.rsplit_once('\n').map_or(("", text), |(lines, sum)| (&text[..=lines.len()], sum));
    (Digest::of(lines.as_bytes()).hex() == sum).then_some(())?;
    lines.lines().map(entry).collect()
}

fn entry(line: &str) -> Option<(Key, Digest)> {
    let mut words = line.split(' ');
    let mut key = Key::default();
    for number in &mut key {
        *number = words.next()?.parse().ok()?;
    }
    let digest = format!("sha256:{}", words.next()?).parse().ok()?;
    words.next().is_none().then_some((key, digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(path: &Path) {
        let old = SystemTime::now() - std::time::Duration::from_hours(1);
        File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }

    #[test]
    fn a_file_that_was_just_written_is_read_again_and_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("cache")).unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "one").unwrap();
        age(&path);
        let mut digests = Digests::open(folder.path());
        let ask = |digests: &mut Digests| digests.digest(&mut File::open(&path).unwrap(), &path).unwrap();
        assert_eq!(ask(&mut digests), Digest::of(b"one"));
        assert_eq!(ask(&mut digests), Digest::of(b"one"));
        assert_eq!(digests.cached(), 0, "its time of change is now, whatever the other time says");
    }

    #[test]
    fn what_is_known_survives_and_a_damaged_cache_is_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("cache")).unwrap();
        let known =
            BTreeMap::from([([1, 2, 3, 4, 5, 6, 7], Digest::of(b"a")), ([-1, 0, 0, 0, 0, 0, 0], Digest::of(b"b"))]);
        let place = folder.path().join("cache/digests");
        let whole = text(&known);
        fs::write(&place, &whole).unwrap();
        assert_eq!(Digests::open(folder.path()).known, known);
        assert_eq!(read(&text(&BTreeMap::new())), Some(BTreeMap::new()));
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed), None, "byte {at}");
            assert_eq!(read(&whole[..at]), None, "cut at {at}");
        }
    }
}
