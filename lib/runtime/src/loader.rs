//! A program's own loader, asked for the libraries of the program.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{RuntimeError, file};

/// The libraries of the program at `program` as its own loader finds them under `library_path`, and that loader, sorted by
/// path; none for a static program.
pub(crate) fn libraries(program: &Path, library_path: Option<&str>) -> Result<Vec<PathBuf>, RuntimeError> {
    let unusable = |why: String| RuntimeError::Worker { path: program.into(), why };
    let Some(loader) = of(program).map_err(|error| unusable(error.to_string()))? else {
        return Ok(Vec::new());
    };
    let mut command = Command::new(&loader);
    command.arg("--list").arg(program).env_clear();
    if let Some(path) = library_path {
        command.env("LD_LIBRARY_PATH", path);
    }
    let output = command.output().map_err(file("run", &loader))?;
    if !output.status.success() {
        return Err(unusable(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    let mut libraries = listed(&String::from_utf8_lossy(&output.stdout)).map_err(unusable)?;
    libraries.push(loader);
    libraries.sort();
    libraries.dedup();
    Ok(libraries)
}

/// The loader that the program at `path` names; `None` for a static program. Only 64-bit little-endian ELF files are
/// programs here, and the loader must be one of the system.
fn of(path: &Path) -> io::Result<Option<PathBuf>> {
    // Opening a FIFO would wait for a writer that never comes.
    if !path.metadata()?.is_file() {
        return Err(wrong("it is no regular file"));
    }
    let needs = xt_sandbox::needs(path)?;
    if needs.machine == 0 {
        return Err(wrong("it is no 64-bit little-endian ELF program"));
    }
    needs.loader.as_deref().map(system_loader).transpose()
}

/// A loader is run outside the sandbox to list libraries, so it may only be one that the system itself uses.
fn system_loader(name: &str) -> io::Result<PathBuf> {
    let path = PathBuf::from(name);
    let real = std::fs::canonicalize(&path)?;
    let known = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"].iter().any(|root| real.starts_with(root));
    if known { Ok(path) } else { Err(wrong("it names a loader outside the system's library folders")) }
}

/// The paths in what `ld.so --list` prints: `name => path (address)` or `path (address)`. The virtual library of the
/// kernel has no path.
fn listed(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim) {
        let target = line.split_once(" => ").map_or(line, |(_, target)| target);
        if target.starts_with("not found") {
            return Err(format!("a library is missing: {line}"));
        }
        let path = target.rsplit_once(" (").map_or(target, |(path, _)| path);
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        } else if path.contains('/') {
            return Err(format!("a library would be looked for in the working directory, whichever that is: {line}"));
        }
    }
    Ok(paths)
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_this_test_is_a_loader_of_the_system() {
        let loader = of(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(loader.file_name().unwrap().to_str().unwrap().starts_with("ld-"), "{}", loader.display());
    }

    #[test]
    fn a_loader_elsewhere_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("ld.so");
        std::fs::write(&own, "").unwrap();
        assert!(system_loader(own.to_str().unwrap()).is_err());
        assert!(system_loader("/lib64/ld-linux-x86-64.so.2").is_ok());
    }

    #[test]
    fn a_missing_library_is_named() {
        let text = "\tlinux-vdso.so.1 (0x7ff)\n\tlibx.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n";
        assert_eq!(listed(text), Err("a library is missing: libx.so.1 => not found".into()));
        let text = "\tlinux-vdso.so.1 (0x7ff)\n\tlibc.so.6 => /a b/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x1)\n";
        assert_eq!(listed(text), Ok(vec!["/a b/libc.so.6".into(), "/lib64/ld.so.2".into()]));
        assert!(listed("\tlibx.so.1 => ./lib/libx.so.1 (0x1)\n").is_err());
    }
}
