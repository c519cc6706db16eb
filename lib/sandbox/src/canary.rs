//! Bait on the host: files and sockets that anyone on the host can reach, and the trainer must not.

use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::error::{SandboxError, errno};
use crate::probe::Scene;
use crate::sys;

/// Folders of all canaries start like this; the number of the process that made it follows.
const PREFIX: &str = "xt-canary-";
/// The folder in it that the trainer's root is mounted on.
const ROOT: &str = "root";
/// A number that nothing else uses: descriptors of the policy end at 99 and are moved to 100 and above.
const INHERITED: i32 = 600;

/// A byte to be read in the memory of a neighbour, which is a copy of ours.
static SEEN: u8 = 1;

/// A program that exits with 0: an ELF header, one segment that is the whole file, and at 120 the code (elf(5)).
#[cfg(target_arch = "x86_64")]
const PROGRAM: &[u8] = &program(62, [0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0, 0, 0]);
#[cfg(target_arch = "aarch64")]
const PROGRAM: &[u8] = &program(183, [0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4]);

/// The program for a machine (`e_machine`), from its code: exit(0).
const fn program(machine: u8, code: [u8; 12]) -> [u8; 132] {
    let mut file = [0; 132];
    // (offset, byte): magic, 64 bits, little-endian, version; executable file; machine; version; entry at 0x400078;
    // program headers at 64; size of this header, of a program header, and how many; then the segment: loaded, readable
    // and executable, at 0x400000, 132 bytes in file and memory, aligned to 0x1000.
    let set: [(usize, u8); 27] = [
        (0, 0x7f),
        (1, b'E'),
        (2, b'L'),
        (3, b'F'),
        (4, 2),
        (5, 1),
        (6, 1),
        (16, 2),
        (18, machine),
        (20, 1),
        (24, 0x78),
        (26, 0x40),
        (32, 64),
        (52, 64),
        (54, 56),
        (56, 1),
        (64, 1),
        (68, 5),
        (82, 0x40),
        (90, 0x40),
        (96, 132),
        (104, 132),
        (113, 0x10),
        (120, code[0]),
        (121, code[1]),
        (122, code[2]),
        (123, code[3]),
    ];
    let mut next = 0;
    while next < set.len() {
        file[set[next].0] = set[next].1;
        next += 1;
    }
    let mut step = 4;
    while step < code.len() {
        file[120 + step] = code[step];
        step += 1;
    }
    file
}

/// Bait on the host. It is gone when this is dropped.
pub(crate) struct Canary {
    folder: PathBuf,
    tcp: TcpListener,
    udp: UdpSocket,
    inherited: OwnedFd,
    paths: Option<[UnixListener; 2]>,
}

impl Canary {
    /// Makes what other processes inherit or are told of, after removing what killed predecessors left. The bait itself
    /// is laid out by [`Canary::lay_out`], while they prepare themselves.
    pub(crate) fn place() -> Result<Self, SandboxError> {
        let folder = fresh_folder().map_err(system("folder"))?;
        fs::create_dir(folder.join(ROOT)).map_err(system("folder"))?;
        fs::set_permissions(folder.join(ROOT), fs::Permissions::from_mode(0o755)).map_err(system("folder"))?;
        let tcp = TcpListener::bind("127.0.0.1:0").map_err(system("sockets"))?;
        let udp = UdpSocket::bind("127.0.0.1:0").map_err(system("sockets"))?;
        let inherited =
            fcntl(&tcp, FcntlArg::F_DUPFD(INHERITED)).map_err(|errno| system("descriptor")(errno.into()))?;
        Ok(Self { folder, tcp, udp, inherited: sys::own(inherited), paths: None })
    }

    /// Lays out files and sockets. They must be there before anything is tried.
    pub(crate) fn lay_out(&mut self) -> Result<(), SandboxError> {
        let folder = &self.folder;
        let fill = || -> io::Result<()> {
            for (name, mode) in [(".ssh", 0o755), ("open", 0o777)] {
                fs::create_dir(folder.join(name))?;
                fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode))?;
            }
            let bait: [(&str, &[u8], u32); 3] =
                [("file", b"canary\n", 0o644), (".ssh/id_canary", b"canary\n", 0o644), ("program", PROGRAM, 0o755)];
            for (name, bytes, mode) in bait {
                fs::write(folder.join(name), bytes)?;
                fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode))?;
            }
            Ok(())
        };
        fill().map_err(system("files"))?;
        let listen = || -> io::Result<[UnixListener; 2]> {
            let paths = UnixListener::bind(folder.join("socket"))?;
            fs::set_permissions(folder.join("socket"), fs::Permissions::from_mode(0o777))?;
            let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(folder))?)?;
            Ok([paths, hidden])
        };
        self.paths = Some(listen().map_err(system("sockets"))?);
        Ok(())
    }

    /// An empty folder to mount the trainer's root on.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join(ROOT)
    }

    /// The bait as the probes see it: with these folders for inputs and outputs.
    pub(crate) fn scene(&self, inputs: &Path, outputs: &Path) -> Result<Scene, SandboxError> {
        let port = |address: io::Result<std::net::SocketAddr>| {
            address.map(|address| address.port()).map_err(|error| SandboxError::System {
                what: "asking for the canary's port".into(),
                errno: errno(&error),
            })
        };
        Ok(Scene {
            folder: self.folder.clone(),
            abstract_name: abstract_name(&self.folder),
            inputs: inputs.into(),
            outputs: outputs.into(),
            tcp: port(self.tcp.local_addr())?,
            udp: port(self.udp.local_addr())?,
            // Known when it has been made.
            neighbour: Pid::from_raw(0),
            address: &raw const SEEN as usize,
            inherited: self.inherited.as_raw_fd(),
            limits: None,
            processes: None,
        })
    }

    /// The folder where anyone may write.
    pub(crate) fn open_folder(&self) -> PathBuf {
        self.folder.join("open")
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // There is nothing better to do about a failure here than the sweep of the next start.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Where a canary could not be laid out.
fn system(what: &str) -> impl FnOnce(io::Error) -> SandboxError + use<> {
    let what = format!("laying out a canary: {what}");
    move |error| SandboxError::System { what, errno: errno(&error) }
}

fn abstract_name(folder: &Path) -> Vec<u8> {
    folder.file_name().unwrap_or_default().as_encoded_bytes().to_vec()
}

/// A new folder in a place that every user can reach. No name is used twice by one process: a socket of an earlier one
/// may still be open in some child.
pub(crate) fn fresh_folder() -> io::Result<PathBuf> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for parent in ["/dev/shm", "/tmp", "/var/tmp"].map(PathBuf::from).into_iter().chain([std::env::temp_dir()]) {
        sweep(&parent);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
                return Ok(folder);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Removes canaries whose maker is dead. Those of others, or already removed by others, are left alone.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let dead = maker
            .and_then(|maker| maker.parse().ok())
            .is_some_and(|maker| kill(Pid::from_raw(maker), None) == Err(Errno::ESRCH));
        if dead {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
