//! The little of ELF that is needed to ask a program's own loader for its libraries.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Type of the program header that names the loader (`PT_INTERP`, System V ABI).
const INTERPRETER: u32 = 3;
/// A path is no longer (`PATH_MAX`).
const LONGEST: u64 = 4096;

/// The loader that the program at `path` names; `None` for a static program. Only 64-bit little-endian ELF files are
/// programs here, and the loader must be one of the system.
pub(crate) fn loader(path: &Path) -> io::Result<Option<PathBuf>> {
    // Opening a FIFO would wait for a writer that never comes.
    if !path.metadata()?.is_file() {
        return Err(wrong("it is no regular file"));
    }
    let mut file = File::open(path)?;
    let mut head = [0; 64];
    file.read_exact(&mut head).map_err(|_| wrong("it is no ELF program"))?;
    if head[..6] != *b"\x7fELF\x02\x01" {
        return Err(wrong("it is no 64-bit little-endian ELF program"));
    }
    let table = u64::from_le_bytes(array(&head, 32));
    let size = u64::from(u16::from_le_bytes(array(&head, 54)));
    let count = u64::from(u16::from_le_bytes(array(&head, 56)));
    if size != 56 {
        return Err(wrong("its program headers have a size that ELF does not give them"));
    }
    let mut entries = vec![0; usize::try_from(size * count).unwrap_or(0)];
    file.seek(SeekFrom::Start(table))?;
    file.read_exact(&mut entries)?;
    let entry = entries.chunks_exact(56).find(|entry| u32::from_le_bytes(array(entry, 0)) == INTERPRETER);
    let Some(entry) = entry else { return Ok(None) };
    let (offset, length) = (u64::from_le_bytes(array(entry, 8)), u64::from_le_bytes(array(entry, 32)));
    let mut name = vec![0; usize::try_from(length.min(LONGEST)).unwrap_or(0)];
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut name)?;
    system_loader(&name).map(Some)
}

/// A loader is run outside the sandbox to list libraries, so it may only be one that the system itself uses.
fn system_loader(name: &[u8]) -> io::Result<PathBuf> {
    let text = std::str::from_utf8(name).unwrap_or_default().trim_end_matches('\0');
    let path = PathBuf::from(text);
    let real = std::fs::canonicalize(&path)?;
    let known = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"].iter().any(|root| real.starts_with(root));
    if known { Ok(path) } else { Err(wrong("it names a loader outside the system's library folders")) }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_this_test_is_a_loader_of_the_system() {
        let loader = loader(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(loader.file_name().unwrap().to_str().unwrap().starts_with("ld-"), "{}", loader.display());
    }

    #[test]
    fn a_loader_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("ld.so");
        std::fs::write(&own, "").unwrap();
        let name = format!("{}\0", own.display());
        assert!(system_loader(name.as_bytes()).is_err());
        assert!(system_loader(b"/lib64/ld-linux-x86-64.so.2\0").is_ok());
    }
}
