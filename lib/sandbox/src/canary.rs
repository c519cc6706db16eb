//! Bait on the host: files, sockets and a process that anyone on the host can reach, and the trainer must not.

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
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2, read};

use crate::error::{SandboxError, errno};
use crate::identity::Way;
use crate::probe::Scene;
use crate::sys::{self, Fork};

/// Folders of all canaries start like this; the number of the process that made it follows.
const PREFIX: &str = "xt-canary-";
/// A number that nothing else uses: descriptors of the policy end at 99 and are moved to 100 and above.
const INHERITED: i32 = 600;
/// Process numbers below this could be met again inside a fresh process namespace.
const SMALL: i32 = 64;

/// A byte to be read in the neighbour's memory, which is a copy of ours.
static SEEN: u8 = 1;

/// Bait on the host. It is gone when this is dropped.
pub(crate) struct Canary {
    folder: PathBuf,
    tcp: TcpListener,
    udp: UdpSocket,
    _paths: UnixListener,
    _abstract: UnixListener,
    neighbour: Pid,
    _keeps_neighbour: OwnedFd,
    inherited: OwnedFd,
}

impl Canary {
    /// Lays out the bait, after removing what killed predecessors left.
    pub(crate) fn place(way: Way) -> Result<Self, SandboxError> {
        let system = |what: &str| {
            let what = format!("laying out a canary: {what}");
            move |error: io::Error| SandboxError::System { what, errno: errno(&error) }
        };
        let folder = fresh_folder().map_err(system("folder"))?;
        let fill = || -> io::Result<()> {
            for (name, mode) in [("root", 0o755), (".ssh", 0o755), ("open", 0o777)] {
                fs::create_dir(folder.join(name))?;
                fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode))?;
            }
            for name in ["file", ".ssh/id_canary"] {
                fs::write(folder.join(name), "canary\n")?;
                fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o644))?;
            }
            Ok(())
        };
        fill().map_err(system("files"))?;
        let listen = || -> io::Result<(TcpListener, UdpSocket, UnixListener, UnixListener)> {
            let paths = UnixListener::bind(folder.join("socket"))?;
            fs::set_permissions(folder.join("socket"), fs::Permissions::from_mode(0o777))?;
            let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(&folder))?)?;
            Ok((TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?, paths, hidden))
        };
        let (tcp, udp, paths, hidden) = listen().map_err(system("sockets"))?;
        let (neighbour, keeps) = neighbour(way).map_err(|errno| system("process")(errno.into()))?;
        let inherited =
            fcntl(&tcp, FcntlArg::F_DUPFD(INHERITED)).map_err(|errno| system("descriptor")(errno.into()))?;
        Ok(Self {
            folder,
            tcp,
            udp,
            _paths: paths,
            _abstract: hidden,
            neighbour,
            _keeps_neighbour: keeps,
            inherited: sys::own(inherited),
        })
    }

    /// An empty folder to mount the trainer's root on.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
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
            neighbour: self.neighbour,
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
        // Both may already be gone; there is nothing better to do about a failure here than the sweep of the next start.
        kill(self.neighbour, Signal::SIGKILL).ok();
        sys::wait_process(self.neighbour).ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn abstract_name(folder: &Path) -> Vec<u8> {
    folder.file_name().unwrap_or_default().as_encoded_bytes().to_vec()
}

/// A new folder in a place that every user can reach. No name is used twice by one process: a socket of an earlier one
/// may still be open in some child.
pub(crate) fn fresh_folder() -> io::Result<PathBuf> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for parent in [PathBuf::from("/tmp"), PathBuf::from("/var/tmp"), PathBuf::from("/dev/shm"), std::env::temp_dir()] {
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

/// A process of the trainer's user that waits until its maker closes a pipe.
fn neighbour(way: Way) -> Result<(Pid, OwnedFd), Errno> {
    for _ in 0..=SMALL {
        let (ours, theirs) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (ready, announce) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        match sys::fork()? {
            Fork::Parent(pid) if pid.as_raw() < SMALL => {
                drop(theirs);
                sys::wait_process(pid)?;
            }
            Fork::Parent(pid) => {
                // Probed before it has changed its user, it would look out of reach to everyone.
                drop(announce);
                while read(&ready, &mut [0]) == Err(Errno::EINTR) {}
                return Ok((pid, theirs));
            }
            Fork::Child => {
                drop(theirs);
                let small = nix::unistd::getpid().as_raw() < SMALL;
                if small || way.become_dedicated().is_err() {
                    sys::leave(1);
                }
                // A change of user makes a process unreadable for others of that user; bait must be readable.
                let set = sys::control(libc::PR_SET_DUMPABLE, 1)
                    .and_then(|_| sys::control(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.cast_unsigned())));
                drop(announce);
                // Nobody is to wait for the end of something that only this copy keeps open.
                let number = ours.as_raw_fd();
                sys::close_others(&[number]).ok();
                let mut byte = [0];
                while set.is_ok() && read(&ours, &mut byte) == Err(Errno::EINTR) {}
                sys::leave(0);
            }
        }
    }
    Err(Errno::EAGAIN)
}
