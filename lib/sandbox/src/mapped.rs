//! What a running trainer has really mapped to execute: a library that crept in by some search path shows here.

use std::collections::BTreeMap;

use nix::unistd::Pid;
use xt_core::digest::Digest;
use xt_core::manifest::custody::Custody;
use xt_core::manifest::intent::Profile;

use crate::error::{SandboxError, doing, errno};
use crate::policy::INPUTS;

/// A file that is mapped executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Where the trainer sees it.
    pub path: String,
    /// Digest of the admitted file at this place; absent when nothing was admitted there.
    pub digest: Option<Digest>,
    /// Whether it is an admitted file or lies in an admitted root.
    pub admitted: bool,
}

/// The files that the process maps executable, sorted by path (proc_pid_maps(5)).
pub(crate) fn mapped(trainer: Pid, custody: &Custody) -> Result<Vec<Mapped>, SandboxError> {
    let maps = std::fs::read_to_string(format!("/proc/{trainer}/maps"))
        .map_err(|error| doing("reading what the trainer has mapped")(errno(&error)))?;
    let admitted = admitted(custody);
    let mut paths: Vec<&str> = maps.lines().filter_map(executable).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        // It has ended, and nobody has waited for it yet.
        return Err(doing("reading what the trainer has mapped")(nix::errno::Errno::ESRCH));
    }
    let in_root = |path: &str| {
        let root = |at: &str| at != INPUTS && std::path::Path::new(path).starts_with(at);
        admitted.iter().any(|(at, digest)| digest.is_some() && root(at))
    };
    let found = |path: &str| Mapped {
        path: path.into(),
        digest: admitted.get(path).copied().flatten(),
        admitted: in_root(path),
    };
    Ok(paths.into_iter().map(found).collect())
}

/// Digests by place. On the host's own file system a place may lead through links, and the kernel names what is at their
/// end.
fn admitted(custody: &Custody) -> BTreeMap<String, Option<Digest>> {
    let own_root = custody.profile == Profile::Full;
    let real = |at: &str| std::fs::canonicalize(at).ok().map(|path| path.to_string_lossy().into_owned());
    let mounts = custody.mounts.iter().map(|mount| (mount.at.clone(), mount.digest));
    let ends = custody.mounts.iter().filter(|_| !own_root).filter_map(|mount| Some((real(&mount.at)?, mount.digest)));
    ends.chain(mounts).collect()
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
