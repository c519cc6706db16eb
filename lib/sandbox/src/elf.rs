//! The little of ELF that is needed to know what a program will load: its loader, the names of its libraries, and where
//! it wants them looked for (System V ABI, chapters 4 and 5; only 64-bit little-endian files).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const PROGRAM_HEADER: usize = 56;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const TAG_NEEDED: u64 = 1;
const TAG_STRINGS: u64 = 5;
const TAG_RPATH: u64 = 15;
const TAG_RUNPATH: u64 = 29;
/// More than any real file has; a bound for what a damaged one can make us read.
const LONGEST: u64 = 1 << 20;

/// What a file asks the loader for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The loader it names, if it is a dynamic program.
    pub loader: Option<String>,
    /// Names of the libraries it needs, in order.
    pub libraries: Vec<String>,
    /// Folders for its libraries and for those of its libraries (`DT_RPATH`), as written, joined by colons.
    pub rpath: Option<String>,
    /// Folders for its own libraries (`DT_RUNPATH`), as written, joined by colons; where there are any, `rpath` does not
    /// count.
    pub runpath: Option<String>,
    /// For which processor it is (`e_machine`); 0 for what is no such ELF file.
    pub machine: u16,
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

/// What the file at `path` asks for; nothing if it is no such ELF file.
pub fn needs(path: &Path) -> io::Result<Needs> {
    let file = File::open(path)?;
    let mut head = [0; 64];
    if file.read_exact_at(&mut head, 0).is_err() || head[..6] != *b"\x7fELF\x02\x01" {
        return Ok(Needs::default());
    }
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let segments = segments(&file, &head)?;
    let find = |kind| segments.iter().find(move |segment| segment.kind == kind);
    let loader = match find(INTERPRETER) {
        Some(segment) => Some(text(&read(&file, segment.offset, segment.size)?, 0)),
        None => None,
    };
    let bare = Needs { loader, machine, ..Needs::default() };
    let Some(dynamic) = find(DYNAMIC) else { return Ok(bare) };
    let entries: Vec<(u64, u64)> = read(&file, dynamic.offset, dynamic.size)?
        .chunks_exact(16)
        .map(|entry| (number(entry, 0), number(entry, 8)))
        .take_while(|(tag, _)| *tag != 0)
        .collect();
    let strings = entries.iter().find(|(tag, _)| *tag == TAG_STRINGS).map_or(0, |(_, address)| *address);
    let Some(start) = place(&segments, strings) else { return Ok(bare) };
    let all = |wanted: u64| -> io::Result<Vec<String>> {
        let named = entries.iter().filter(|(tag, _)| *tag == wanted);
        named.map(|(_, offset)| string(&file, start.saturating_add(*offset))).collect()
    };
    let one = |wanted: u64| all(wanted).map(|found| found.into_iter().next());
    Ok(Needs { libraries: all(TAG_NEEDED)?, rpath: one(TAG_RPATH)?, runpath: one(TAG_RUNPATH)?, ..bare })
}

/// The text at `offset`, which ends with a zero byte; no path is longer than what is read (`PATH_MAX`), and a list of
/// paths may be.
fn string(file: &File, offset: u64) -> io::Result<String> {
    let mut bytes = vec![0; 4096];
    loop {
        let count = file.read_at(&mut bytes, offset)?;
        if bytes[..count].contains(&0) || count < bytes.len() || count as u64 >= LONGEST {
            bytes.truncate(count);
            return Ok(text(&bytes, 0));
        }
        bytes.resize(bytes.len() * 2, 0);
    }
}

fn segments(file: &File, head: &[u8; 64]) -> io::Result<Vec<Segment>> {
    let short = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (table, size, count) = (number(head, 32), short(54), short(56));
    if size != PROGRAM_HEADER as u64 {
        return Ok(Vec::new());
    }
    let bytes = read(file, table, size * count)?;
    let segment = |entry: &[u8]| Segment {
        kind: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
        offset: number(entry, 8),
        address: number(entry, 16),
        size: number(entry, 32),
    };
    Ok(bytes.chunks_exact(PROGRAM_HEADER).map(segment).collect())
}

/// Where in the file the byte lies that is loaded to `address`.
fn place(segments: &[Segment], address: u64) -> Option<u64> {
    let holds = |s: &&Segment| s.kind == LOAD && address >= s.address && address - s.address < s.size;
    segments.iter().find(holds).and_then(|segment| segment.offset.checked_add(address - segment.address))
}

fn read(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size.min(LONGEST)).unwrap_or(0)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

fn text(bytes: &[u8], start: usize) -> String {
    let tail = bytes.get(start..).unwrap_or_default();
    String::from_utf8_lossy(tail.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needs_of_this_test_are_its_loader_and_the_c_library() {
        let needs = needs(&std::env::current_exe().unwrap()).unwrap();
        assert!(needs.loader.as_deref().is_some_and(|loader| loader.contains("ld-linux")), "{needs:?}");
        assert!(needs.libraries.iter().any(|name| name == "libc.so.6"), "{needs:?}");
        assert!(needs.machine != 0, "{needs:?}");
    }

    #[test]
    fn what_is_no_program_needs_nothing_and_a_cut_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(needs(&path).unwrap(), Needs::default());
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        std::fs::write(&path, &whole[..100]).unwrap();
        assert!(needs(&path).is_err());
    }
}
