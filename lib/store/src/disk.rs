//! Files and directories as the store makes and opens them: fixed modes, no links followed, types checked on the handle.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// Mode of every file of a store, whatever the umask says.
const FILE_MODE: u32 = 0o644;
/// Mode of every directory of a store.
const DIRECTORY_MODE: u32 = 0o755;

/// Makes the directory `name`; it may be there already. True when it was made now.
pub fn make_directory(parent: &Dir, name: &str) -> io::Result<bool> {
    match parent.create_dir(name) {
        Ok(()) => {
            let made = open_directory(parent, Path::new(name))?.into_std_file();
            made.set_permissions(Permissions::from_mode(DIRECTORY_MODE))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a directory by its path in the file system, and its parents; the last new one gets the fixed mode.
pub fn make_root(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_root(parent)?;
    }
    match std::fs::create_dir(path) {
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

/// Opens the directory `name`, which must be one itself and not a link to one.
pub fn open_directory(parent: &Dir, name: &Path) -> io::Result<Dir> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY).bits();
    let file = parent.open_with(name, OpenOptions::new().read(true).custom_flags(flags))?;
    Ok(Dir::from_std_file(file.into_std()))
}

/// Makes the file `name`, which must not exist.
pub fn create_file(directory: &Dir, name: &str) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(FILE_MODE).custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = directory.open_with(name, &options)?.into_std();
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Opens the file `name`, and makes it when it is not there.
pub fn open_or_create_file(directory: &Dir, name: &str) -> io::Result<File> {
    loop {
        match open_regular(directory, Path::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        match create_file(directory, name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other,
        }
    }
}

/// Opens the regular file `name` for reading. A link, FIFO, socket, device or directory is an error of kind
/// `InvalidInput` that names what it is; nothing blocks, and devices are not opened.
pub fn open_regular(directory: &Dir, name: &Path) -> io::Result<File> {
    if let Some(odd) = odd_type(directory.symlink_metadata(name)?.file_type()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, odd));
    }
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = directory.open_with(name, OpenOptions::new().read(true).custom_flags(flags))?.into_std();
    // It may have been replaced since the look above; what counts is what was opened.
    let kind = file.metadata()?.file_type();
    if !kind.is_file() {
        let odd = if kind.is_fifo() { "a FIFO" } else { "not a regular file" };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, odd));
    }
    Ok(file)
}

/// What a directory entry is, when it is not a regular file.
pub fn odd_type(kind: cap_std::fs::FileType) -> Option<&'static str> {
    use cap_std::fs::FileTypeExt as _;
    if kind.is_file() {
        return None;
    }
    Some(if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "not a regular file"
    })
}

/// Makes the entries of a directory durable.
pub fn sync_directory(directory: &Dir) -> io::Result<()> {
    open_directory(directory, Path::new("."))?.into_std_file().sync_all()
}

/// The names in a directory, in byte order, and what each was when it was listed.
pub fn listed(directory: &Dir) -> io::Result<Vec<(std::ffi::OsString, cap_std::fs::FileType)>> {
    let named = |entry: io::Result<cap_std::fs::DirEntry>| {
        let (name, kind) = entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))?;
        // Not every file system tells it in a listing.
        let unknown = kind == cap_std::fs::FileType::unknown();
        let kind = if unknown { directory.symlink_metadata(&name)?.file_type() } else { kind };
        Ok((name, kind))
    };
    let mut listed = directory.entries()?.map(named).collect::<io::Result<Vec<_>>>()?;
    listed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(listed)
}

/// The names in a directory, in byte order.
pub fn names(directory: &Dir) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = directory.entries()?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Removes a file or a whole directory; that it is gone already is fine.
pub fn remove(directory: &Dir, name: &OsStr) -> io::Result<()> {
    let result = match directory.symlink_metadata(name) {
        Ok(found) if found.is_dir() => directory.remove_dir_all(name),
        Ok(_) => directory.remove_file(name),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What would differ if a file were written to between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Size in bytes.
    pub bytes: u64,
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Fingerprint {
    /// All of it as numbers.
    pub const fn key(&self) -> [u64; 7] {
        let ((modified, m), (changed, c)) = (self.modified, self.changed);
        [
            self.device,
            self.inode,
            self.bytes,
            modified.cast_unsigned(),
            m.cast_unsigned(),
            changed.cast_unsigned(),
            c.cast_unsigned(),
        ]
    }

    /// The second of the last change of any kind.
    pub fn last(&self) -> i64 {
        self.modified.0.max(self.changed.0)
    }
}

/// The fingerprint of a file now.
pub fn fingerprint(file: &File) -> io::Result<Fingerprint> {
    Ok(fingerprint_of(&file.metadata()?))
}

fn fingerprint_of(found: &std::fs::Metadata) -> Fingerprint {
    Fingerprint {
        bytes: found.size(),
        device: found.dev(),
        inode: found.ino(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    }
}

/// Opens the regular file `name`, which a listing of its directory showed as one, and looks at it. With fewer system calls
/// than [`open_regular`], which says more of what went wrong.
pub fn open_listed(directory: &Dir, name: &OsStr) -> io::Result<(File, Fingerprint)> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(directory, single(name)?, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_file() { Ok((file, fingerprint_of(&found))) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Makes the file `name`, which must not exist, with the fixed mode unless the umask or the file system says otherwise.
pub fn create_listed(directory: &Dir, name: &OsStr) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(File::from(openat(directory, single(name)?, flags, Mode::from_bits_truncate(FILE_MODE))?))
}

/// What a file is that is not opened; `None` when it is not there or no regular file.
pub fn look(directory: &Dir, name: &OsStr) -> Option<Fingerprint> {
    let found = fstatat(directory, single(name).ok()?, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
    (found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits()).then(|| Fingerprint {
        bytes: found.st_size.cast_unsigned(),
        device: found.st_dev,
        inode: found.st_ino,
        modified: (found.st_mtime, found.st_mtime_nsec),
        changed: (found.st_ctime, found.st_ctime_nsec),
    })
}

/// A name that leads nowhere but into the directory itself.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes.contains(&b'/') || [&b"."[..], b".."].contains(&bytes) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(name)
}

/// Whether a file has the fixed mode.
pub fn has_mode(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o7777 == FILE_MODE)
}

/// Gives a file the fixed mode.
pub fn set_mode(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}
