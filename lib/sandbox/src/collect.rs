//! Takes what the trainer left, by descriptor, and refuses with a reason whatever is not a plain file.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;
use xt_core::digest::{Digest, Hasher};
use xt_core::relpath::RelativePath;

use crate::error::{SandboxError, doing, errno};
use crate::policy::Limits;

/// Folders lie no deeper than this below the output folder.
const DEEPEST: usize = 16;
/// Refusals listed; further ones are only counted.
const LISTED: usize = 100;

/// What the trainer left. The files stay readable through this after its file system is gone.
#[derive(Debug)]
pub struct Outputs {
    folder: OwnedFd,
}

/// A file that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Where it lies below the output folder.
    pub path: RelativePath,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes as they were copied.
    pub digest: Digest,
}

/// What was taken and what was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The files taken, sorted by path.
    pub files: Vec<Taken>,
    /// What was refused: its name, with every byte that is no printable ASCII escaped, and the reason.
    pub refused: Vec<(String, String)>,
    /// Refusals beyond the hundred that are listed.
    pub refused_more: u64,
    /// Sum of the sizes of the files taken.
    pub bytes: u64,
}

impl Outputs {
    pub(crate) fn new(folder: OwnedFd) -> Self {
        Self { folder }
    }

    /// A folder on the host, for profiles without a file system of their own.
    pub(crate) fn open(path: &Path) -> Result<Self, SandboxError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        open(path, flags, Mode::empty()).map(Self::new).map_err(doing("opening the output folder"))
    }

    /// The folder at `path` below this one, through no link.
    pub fn within(&self, path: &str) -> Result<Self, SandboxError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let step = |folder: Option<OwnedFd>, name: &str| {
            openat(folder.as_ref().unwrap_or(&self.folder), name, flags, Mode::empty()).map(Some)
        };
        let found = path.split('/').try_fold(None, step).map_err(doing("opening a folder of the outputs"))?;
        found.map(Self::new).ok_or_else(|| doing("opening a folder of the outputs")(nix::errno::Errno::ENOENT))
    }

    /// Whether no room is left for another byte or another file.
    pub fn are_full(&self) -> bool {
        fstatvfs(&self.folder).is_ok_and(|room| room.blocks_available() == 0 || room.files_available() == 0)
    }

    /// Copies every plain file to the same place below `into` and refuses everything else. `into` is made if it is
    /// missing; files in it are never replaced.
    pub fn collect(&self, into: &Path, limits: &Limits) -> Result<Collected, SandboxError> {
        std::fs::create_dir_all(into).map_err(|error| doing("making the folder for outputs")(errno(&error)))?;
        let mut collector = Collector { into, limits, seen: 0, collected: Collected::default() };
        collector.folder(&self.folder, "", 0)?;
        collector.collected.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(collector.collected)
    }
}

struct Collector<'a> {
    into: &'a Path,
    limits: &'a Limits,
    seen: u64,
    collected: Collected,
}

impl Collector<'_> {
    fn refuse(&mut self, path: &str, reason: impl Into<String>) {
        if self.collected.refused.len() < LISTED {
            self.collected.refused.push((path.into(), reason.into()));
        } else {
            self.collected.refused_more += 1;
        }
    }

    fn folder(&mut self, folder: &OwnedFd, prefix: &str, depth: usize) -> Result<(), SandboxError> {
        // A descriptor of its own: reading entries moves a position that others may share.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let listing = openat(folder, ".", flags, Mode::empty()).and_then(Dir::from_fd);
        let mut listing = match listing {
            Ok(listing) => listing,
            Err(errno) => {
                self.refuse(prefix, format!("a folder that cannot be listed: {errno}"));
                return Ok(());
            }
        };
        let mut names: Vec<Vec<u8>> = Vec::new();
        for entry in listing.iter() {
            let name = entry.map_err(doing("listing the outputs"))?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            self.seen += 1;
            if self.seen > self.limits.file_count {
                self.refuse(prefix, format!("more than {} files and folders", self.limits.file_count));
                break;
            }
            names.push(name);
        }
        names.sort_unstable();
        names.into_iter().try_for_each(|name| self.entry(folder, &name, prefix, depth))
    }

    fn entry(&mut self, folder: &OwnedFd, name: &[u8], prefix: &str, depth: usize) -> Result<(), SandboxError> {
        let shown = format!("{prefix}{}", name.escape_ascii());
        let path = std::str::from_utf8(name).ok().and_then(|name| RelativePath::new(&format!("{prefix}{name}")).ok());
        let Some(path) = path else {
            self.refuse(
                &shown,
                "its name is no portable path: not UTF-8, too long, or with control characters, `\\` or `:`",
            );
            return Ok(());
        };
        // Without following links and without waiting for a writer, as opening a FIFO would.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let probe = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let name = std::ffi::OsStr::from_bytes(name);
        let seen = openat(folder, name, probe, Mode::empty()).and_then(fstat);
        let seen = match seen {
            Ok(seen) => seen,
            Err(errno) => {
                self.refuse(&shown, format!("it cannot be looked at: {errno}"));
                return Ok(());
            }
        };
        let kind = SFlag::from_bits_truncate(seen.st_mode & SFlag::S_IFMT.bits());
        if let Some(reason) = unfit(kind, &seen) {
            self.refuse(&shown, reason);
            return Ok(());
        }
        let opened = match openat(folder, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(errno) => {
                self.refuse(&shown, format!("it cannot be opened: {errno}"));
                return Ok(());
            }
        };
        if kind == SFlag::S_IFDIR {
            if depth + 1 >= DEEPEST {
                self.refuse(&shown, format!("folders lie deeper than {DEEPEST}"));
                return Ok(());
            }
            return self.folder(&opened, &format!("{}/", path.as_str()), depth + 1);
        }
        self.take(opened, path, &seen)
    }

    fn take(&mut self, opened: OwnedFd, path: RelativePath, seen: &FileStat) -> Result<(), SandboxError> {
        let now = fstat(opened.as_fd()).map_err(doing("looking at an output"))?;
        let size = u64::try_from(seen.st_size).unwrap_or(u64::MAX);
        let room = self.limits.storage_bytes.saturating_sub(self.collected.bytes);
        if (now.st_ino, now.st_dev) != (seen.st_ino, seen.st_dev) {
            self.refuse(path.as_str(), "it was replaced while it was taken");
            return Ok(());
        }
        if size > room {
            self.refuse(path.as_str(), format!("the outputs exceed {} bytes", self.limits.storage_bytes));
            return Ok(());
        }
        let (bytes, digest) = copy(opened, &self.into.join(path.as_str()), size)
            .map_err(|error| doing("copying an output")(errno(&error)))?;
        self.collected.bytes += bytes;
        self.collected.files.push(Taken { path, bytes, digest });
        Ok(())
    }
}

/// Why something that is not a plain file of one name, or a folder, is refused.
fn unfit(kind: SFlag, seen: &FileStat) -> Option<&'static str> {
    let owner_may = if kind == SFlag::S_IFDIR { 0o500 } else { 0o400 };
    match kind {
        SFlag::S_IFLNK => Some("a symbolic link"),
        SFlag::S_IFIFO => Some("a FIFO"),
        SFlag::S_IFSOCK => Some("a socket"),
        SFlag::S_IFCHR | SFlag::S_IFBLK => Some("a device"),
        SFlag::S_IFREG if seen.st_nlink != 1 => Some("a file with more than one name"),
        SFlag::S_IFREG | SFlag::S_IFDIR if seen.st_mode & 0o7000 != 0 => Some("a set-id or sticky mode"),
        SFlag::S_IFREG | SFlag::S_IFDIR if seen.st_mode & owner_may != owner_may => {
            Some("a mode that its owner cannot read")
        }
        SFlag::S_IFREG | SFlag::S_IFDIR => None,
        _ => Some("neither file nor folder"),
    }
}

/// Copies at most `size` bytes, hashing them, to a file that must not exist.
fn copy(from: OwnedFd, to: &Path, size: u64) -> io::Result<(u64, Digest)> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut source = File::from(from).take(size);
    let mut target = File::create_new(to)?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            return Ok((bytes, hasher.finish()));
        }
        hasher.update(&buffer[..count]);
        target.write_all(&buffer[..count])?;
        bytes += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use nix::sys::stat::{makedev, mknod};
    use nix::unistd::{Uid, mkfifo};

    use super::*;

    /// What is taken of a folder that `fill` filled, and the place it was taken to.
    fn collected(limits: &Limits, fill: impl FnOnce(&Path)) -> (tempfile::TempDir, Collected) {
        let place = tempfile::tempdir().unwrap();
        let from = place.path().join("from");
        fs::create_dir(&from).unwrap();
        fill(&from);
        let found = Outputs::open(&from).unwrap().collect(&place.path().join("to"), limits).unwrap();
        (place, found)
    }

    fn limits() -> Limits {
        Limits::of(1, 1 << 30, 1 << 20)
    }

    fn taken(found: &Collected) -> Vec<&str> {
        found.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn plain_files_are_taken_and_everything_else_is_refused_with_its_reason() {
        let mode = |path: PathBuf, mode: u32| {
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let (place, found) = collected(&limits(), |from| {
            fs::create_dir(from.join("folder")).unwrap();
            fs::write(from.join("folder/plain"), "bytes").unwrap();
            symlink("/etc/passwd", from.join("link")).unwrap();
            fs::write(from.join("one"), "shared").unwrap();
            fs::hard_link(from.join("one"), from.join("two")).unwrap();
            mkfifo(&from.join("fifo"), Mode::S_IRWXU).unwrap();
            drop(UnixListener::bind(from.join("socket")).unwrap());
            mode(from.join("setuid"), 0o4755);
            mode(from.join("setgid"), 0o2755);
            mode(from.join("locked"), 0o000);
            fs::write(from.join(OsStr::from_bytes(b"odd\xff")), "x").unwrap();
            fs::write(from.join("line\nfeed"), "x").unwrap();
            if Uid::effective().is_root() {
                mknod(&from.join("device"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3)).unwrap();
            } else {
                println!("not tested: a device, which only root can make");
            }
        });
        assert_eq!(taken(&found), ["folder/plain"]);
        assert_eq!(fs::read(place.path().join("to/folder/plain")).unwrap(), b"bytes");
        assert_eq!(found.files[0].digest, Digest::of(b"bytes"));
        let why = |name: &str| {
            let refused = found.refused.iter().find(|(refused, _)| refused == name);
            refused.unwrap_or_else(|| panic!("{name}: {:?}", found.refused)).1.clone()
        };
        for (name, reason) in [
            ("link", "symbolic link"),
            ("one", "more than one name"),
            ("two", "more than one name"),
            ("fifo", "FIFO"),
            ("socket", "socket"),
            ("setuid", "set-id"),
            ("setgid", "set-id"),
            ("locked", "cannot read"),
            ("odd\\xff", "not UTF-8"),
            ("line\\nfeed", "control characters"),
        ] {
            assert!(why(name).contains(reason), "{name}: {}", why(name));
        }
        if Uid::effective().is_root() {
            assert!(why("device").contains("device"));
        }
        assert_eq!(found.refused.len(), 10 + usize::from(Uid::effective().is_root()));
    }

    #[test]
    fn what_is_too_deep_too_many_or_too_much_is_refused() {
        let deep = vec!["d"; DEEPEST + 2].join("/");
        let (_place, found) = collected(&limits(), |from| {
            fs::create_dir_all(from.join(&deep)).unwrap();
            fs::write(from.join(&deep).join("x"), "x").unwrap();
            fs::write(from.join("shallow"), "x").unwrap();
        });
        assert_eq!(taken(&found), ["shallow"]);
        assert!(found.refused[0].1.contains("deeper"), "{:?}", found.refused);

        let few = Limits { file_count: 5, ..limits() };
        let (_place, found) =
            collected(&few, |from| (0..9).for_each(|n| fs::write(from.join(n.to_string()), "x").unwrap()));
        assert_eq!((found.files.len(), found.refused.len()), (5, 1));
        assert!(found.refused[0].1.contains("more than 5"), "{:?}", found.refused);

        let small = Limits { storage_bytes: 10, ..limits() };
        let (_place, found) = collected(&small, |from| {
            fs::write(from.join("a"), [1; 8]).unwrap();
            fs::write(from.join("b"), [1; 8]).unwrap();
        });
        assert_eq!((taken(&found), found.bytes), (vec!["a"], 8));
        assert!(found.refused[0].1.contains("exceed 10 bytes"), "{:?}", found.refused);
    }

    #[test]
    fn a_hundred_refusals_are_listed_and_the_rest_is_counted() {
        let (_place, found) =
            collected(&limits(), |from| (0..130).for_each(|n| symlink("x", from.join(n.to_string())).unwrap()));
        assert_eq!((found.files.len(), found.refused.len(), found.refused_more), (0, 100, 30));
    }
}
