//! A program brought as it is, in a file system of its own: every file where it really lies on the host, and the ways by
//! which the loader comes to it. Links on those ways are made again, so that all paths mean what they mean outside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use crate::admit::{Admitted, loads, unreadable};
use crate::elf;
use crate::error::SandboxError;
use crate::policy::Policy;

/// Links that the kernel follows on one way (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// The program and its libraries, sorted by where they lie. A library of the program that is not listed is an error.
pub(crate) fn admit(policy: &Policy) -> Result<Vec<Admitted>, SandboxError> {
    let failed = |doing: &str, path: &Path, error: &std::io::Error| unreadable(policy, doing, path, error);
    let needs = elf::needs(&policy.program).map_err(|error| failed("reading", &policy.program, &error))?;
    let listed = |name: &str| {
        let name = Path::new(name).file_name();
        policy.libraries.iter().any(|library| library.file_name() == name)
    };
    if let Some(name) = needs.libraries.iter().find(|name| !listed(name)) {
        return Err(SandboxError::Library { program: policy.program.clone(), name: name.clone() });
    }
    let loader = needs.loader.as_deref().map(Path::new);
    let runs = |path: &Path| path == policy.program || Some(path) == loader || loads(path);
    let mut places: BTreeMap<PathBuf, Admitted> = BTreeMap::new();
    for path in policy.libraries.iter().map(PathBuf::as_path).chain(loader).chain([policy.program.as_path()]) {
        let source = path.canonicalize().map_err(|error| failed("opening", path, &error))?;
        let file = places.entry(source.clone()).or_insert_with(|| Admitted::at(source.clone(), path, source));
        file.ways.push(path.into());
        file.runs |= runs(path);
    }
    Ok(places.into_values().collect())
}

/// Whether the program or a library of it asks the loader to start from where it lies, which it learns from `/proc`.
pub(crate) fn needs_origin(policy: &Policy) -> bool {
    let asks = |path: &PathBuf| {
        let needs = elf::needs(path).unwrap_or_default();
        [needs.rpath, needs.runpath].into_iter().flatten().any(|path| path.contains("ORIGIN"))
    };
    policy.brought.program_at.is_some() && std::iter::once(&policy.program).chain(&policy.libraries).any(asks)
}

/// Where `path` leads on the host, and every link on the way there, with what it points to.
pub(crate) fn way(path: &Path) -> std::io::Result<(PathBuf, Vec<(PathBuf, PathBuf)>)> {
    let mut rest: Vec<OsString> = Vec::new();
    let (mut real, mut links) = (PathBuf::from("/"), Vec::new());
    push(&mut rest, path);
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let Ok(target) = std::fs::read_link(&next) else {
            real = next;
            continue;
        };
        if links.len() == MOST_LINKS {
            return Err(std::io::Error::from_raw_os_error(libc::ELOOP));
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        push(&mut rest, &target);
        links.push((next, target));
    }
    Ok((real, links))
}

/// Puts the parts of `path` on the pile, the first on top.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    rest.extend(path.components().rev().filter_map(part));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_way_goes_through_every_link_and_ends_where_the_kernel_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/bin")).unwrap();
        std::fs::write(root.join("real/lib.so.1.2"), "").unwrap();
        symlink("lib.so.1.2", root.join("real/lib.so.1")).unwrap();
        symlink(root.join("real/bin"), root.join("bin")).unwrap();
        // Up from where a link led, not from where it stood.
        let path = root.join("bin/../lib.so.1");
        let (end, links) = way(&path).unwrap();
        assert_eq!(end, path.canonicalize().unwrap());
        let at: Vec<PathBuf> = links.into_iter().map(|(at, _)| at).collect();
        assert_eq!(at, [root.join("bin"), root.join("real/lib.so.1")]);
        symlink("loop", root.join("loop")).unwrap();
        assert!(way(&root.join("loop")).is_err());
    }
}
