//! What a running trainer has really mapped to execute: a library that crept in by some search path shows here.

use std::collections::BTreeMap;

use nix::unistd::Pid;
use xt_core::digest::Digest;
use xt_core::manifest::custody::Custody;

use crate::error::{SandboxError, doing, errno};

/// A file that is mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where the trainer sees it.
    pub path: String,
    /// Digest of the admitted file at this place; absent when nothing was admitted there.
    pub digest: Option<Digest>,
}

/// The files that the process maps executable, sorted by path (proc_pid_maps(5)).
pub(crate) fn mapped(trainer: Pid, custody: &Custody) -> Result<Vec<Mapped>, SandboxError> {
    let maps = std::fs::read_to_string(format!("/proc/{trainer}/maps"))
        .map_err(|error| doing("reading what the trainer has mapped")(errno(&error)))?;
    let admitted: BTreeMap<&str, Option<Digest>> =
        custody.mounts.iter().map(|mount| (mount.at.as_str(), mount.digest)).collect();
    let mut paths: Vec<&str> = maps.lines().filter_map(executable).collect();
    paths.sort_unstable();
    paths.dedup();
    let found = |path: &str| Mapped { path: path.into(), digest: admitted.get(path).copied().flatten() };
    Ok(paths.into_iter().map(found).collect())
}

/// The file of a line, if it is mapped executable: address, permissions, offset, device, inode, and the path.
fn executable(line: &str) -> Option<&str> {
    let permissions = line.split(' ').nth(1)?;
    permissions.contains('x').then(|| line.find('/').map(|start| &line[start..])).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_files_count_and_paths_may_hold_spaces() {
        let code = "7f3e41a26000-7f3e41b9d000 r-xp 00026000 fe:00 1234       /lib/with space/libc.so.6";
        assert_eq!(executable(code), Some("/lib/with space/libc.so.6"));
        assert_eq!(executable(&code.replace("r-xp", "r--p")), None);
        assert_eq!(executable(&code.replace("r-xp", "rwxs")), Some("/lib/with space/libc.so.6"));
        assert_eq!(executable("7ffd5a9f1000-7ffd5a9f3000 r-xp 00000000 00:00 0      [vdso]"), None);
    }
}
