//! The cache of the dynamic loader, `/etc/ld.so.cache`: where it finds libraries outside its own folders. Format
//! `glibc-ld.so.cache1.1` of glibc: 48 bytes of head, entries of 24 bytes, zero-terminated texts.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::policy::Policy;

/// Where the loader looks for it.
pub(crate) const CACHE: &str = "/etc/ld.so.cache";

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEAD: usize = 48;
const ENTRY: usize = 24;
/// The head says that numbers are little-endian.
const LITTLE_ENDIAN: u8 = 2;
/// Kind of a library of the C library 6 for this processor with 64-bit addresses (`_DL_CACHE_DEFAULT_ID`).
const KIND: u32 = if cfg!(target_arch = "aarch64") { 0x0a03 } else { 0x0303 };

/// The libraries for this processor in the cache of the host, by name. Empty without a cache.
pub(crate) fn of_host() -> BTreeMap<String, Vec<PathBuf>> {
    read(&std::fs::read(CACHE).unwrap_or_default())
}

fn read(bytes: &[u8]) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    // An older form may stand before it.
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return found };
    let cache = &bytes[start..];
    let count = number(cache, MAGIC.len()) as usize;
    for entry in cache.get(HEAD..).unwrap_or_default().chunks_exact(ENTRY).take(count) {
        if number(entry, 0) == KIND {
            let path = PathBuf::from(text(cache, number(entry, 8) as usize));
            let paths = found.entry(text(cache, number(entry, 4) as usize)).or_default();
            paths.extend(path.is_absolute().then_some(path));
        }
    }
    found
}

/// A cache with these libraries, by name; `None` when there are none.
fn write(libraries: &BTreeMap<String, PathBuf>) -> Option<Vec<u8>> {
    let mut all: Vec<(&String, &PathBuf)> = libraries.iter().collect();
    // The loader halves the list from its greatest name to its least.
    all.sort_by(|a, b| order(b.0.as_bytes(), a.0.as_bytes()));
    let texts_at = HEAD + ENTRY * all.len();
    let (mut entries, mut texts) = (Vec::new(), Vec::new());
    let mut add = |text: &[u8]| {
        let at = texts_at + texts.len();
        texts.extend_from_slice(text);
        texts.push(0);
        small(at)
    };
    for (name, path) in &all {
        let (name, path) = (add(name.as_bytes()), add(path.as_os_str().as_encoded_bytes()));
        entries.extend([KIND, name, path, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes));
    }
    let mut cache = MAGIC.to_vec();
    cache.extend([small(all.len()), small(texts.len())].into_iter().flat_map(u32::to_le_bytes));
    cache.push(LITTLE_ENDIAN);
    cache.resize(HEAD, 0);
    cache.extend(entries);
    cache.extend(texts);
    (!all.is_empty()).then_some(cache)
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// How the loader orders names: runs of digits by their number, everything else by its bytes.
fn order(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = |text: &[u8]| text.iter().fold(0_u64, |n, d| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0')));
        let step = match (digits(a), digits(b)) {
            (0, 0) => match (a.first(), b.first()) {
                (Some(x), Some(y)) if x == y => Ok((1, 1)),
                (x, y) => Err(x.cmp(&y)),
            },
            (0, _) => Err(Ordering::Less),
            (_, 0) => Err(Ordering::Greater),
            (m, n) => match number(&a[..m]).cmp(&number(&b[..n])) {
                Ordering::Equal => Ok((m, n)),
                other => Err(other),
            },
        };
        match step {
            // Both have ended.
            Err(Ordering::Equal) => return Ordering::Equal,
            Err(other) => return other,
            Ok((m, n)) => (a, b) = (&a[m..], &b[n..]),
        }
    }
}

/// The cache that the program of `policy` needs: its libraries that lie where no loader looks by itself. `None` when it
/// needs none, or was not brought.
pub(crate) fn of_policy(policy: &Policy) -> Option<Vec<u8>> {
    policy.brought.program_at.as_ref()?;
    let mut libraries = BTreeMap::new();
    for library in policy.libraries.iter().filter(|library| !crate::search::is_default(library)) {
        if let Some(name) = library.file_name().and_then(|name| name.to_str()) {
            libraries.entry(name.to_string()).or_insert_with(|| library.clone());
        }
    }
    for library in policy.libraries.iter().filter(|library| crate::search::is_default(library)) {
        libraries.remove(library.file_name().and_then(|name| name.to_str()).unwrap_or_default());
    }
    write(&libraries)
}

/// Whether the program of `policy` is confined on the host's own file system and needs the host's cache there.
pub(crate) fn needs_hosts(policy: &Policy) -> bool {
    !policy.own_root() && Path::new(CACHE).is_file() && of_policy(policy).is_some()
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

fn text(bytes: &[u8], at: usize) -> String {
    let tail = bytes.get(at..).unwrap_or_default();
    String::from_utf8_lossy(tail.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_cache_of_this_host_knows_the_c_library() {
        let one: BTreeMap<String, PathBuf> = [("liba.so.10", "/a/liba.so.10"), ("liba.so.9", "/b/liba.so.9")]
            .map(|(name, path)| (name.to_string(), PathBuf::from(path)))
            .into();
        let written = write(&one).unwrap();
        let back: BTreeMap<String, PathBuf> =
            read(&written).into_iter().map(|(name, mut paths)| (name, paths.remove(0))).collect();
        assert_eq!(back, one);
        assert_eq!(write(&BTreeMap::new()), None);
        assert!(read(&written[..60]).is_empty() || read(&written[..60]).values().all(Vec::is_empty));
        if Path::new(CACHE).exists() {
            assert!(of_host().contains_key("libc.so.6"));
        }
    }

    #[test]
    fn names_are_ordered_as_the_loader_orders_them() {
        for (less, greater) in [("libm.so.9", "libm.so.10"), ("liba", "libb"), ("lib", "liba"), ("liba", "lib1")] {
            assert_eq!(order(less.as_bytes(), greater.as_bytes()), Ordering::Less, "{less} {greater}");
            assert_eq!(order(greater.as_bytes(), less.as_bytes()), Ordering::Greater, "{less} {greater}");
        }
        assert_eq!(order(b"lib01", b"lib1"), Ordering::Equal);
    }

    #[test]
    fn the_cache_of_this_host_stands_in_the_order_that_is_written() {
        let bytes = std::fs::read(CACHE).unwrap_or_default();
        let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else { return };
        let cache = &bytes[start..];
        let entries = cache[HEAD..].chunks_exact(ENTRY).take(number(cache, MAGIC.len()) as usize);
        let names: Vec<String> = entries.map(|entry| text(cache, number(entry, 4) as usize)).collect();
        let falls = |pair: &[String]| order(pair[0].as_bytes(), pair[1].as_bytes()) != Ordering::Less;
        assert!(names.len() > 1 && names.windows(2).all(falls));
    }
}
