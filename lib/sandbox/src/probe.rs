//! Attempts to do what a control forbids. Each is made once outside, as the trainer's user and without any layer, and
//! once inside with every layer on, before the trainer starts. Only an attempt that works outside and fails inside
//! proves anything.

use std::fs;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::kill;
use nix::unistd::{Pid, execve};

use crate::error::errno;
use crate::policy::Limits;
use crate::sys::{self, Fork};

/// What the attempts reach for.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Folder of the bait.
    pub(crate) folder: PathBuf,
    /// Name of the abstract socket.
    pub(crate) abstract_name: Vec<u8>,
    /// Where to make a file that must not be made; outside, a folder where it can be.
    pub(crate) inputs: PathBuf,
    /// Where outputs go; outside, a folder without limits.
    pub(crate) outputs: PathBuf,
    /// Port of the TCP listener on 127.0.0.1.
    pub(crate) tcp: u16,
    /// Port of the UDP socket on 127.0.0.1.
    pub(crate) udp: u16,
    /// A process of the same user.
    pub(crate) neighbour: Pid,
    /// An address that is mapped in that process.
    pub(crate) address: usize,
    /// A descriptor that an exec would pass on.
    pub(crate) inherited: RawFd,
    /// Limits in force; none outside.
    pub(crate) limits: Option<Limits>,
    /// Limit of processes as the kernel is told it; none outside.
    pub(crate) processes: Option<u64>,
}

type Attempt = fn(&Scene) -> Result<(), Errno>;

/// Every attempt: the control it proves, its name, and how it is made. Those marked `true` change the process that
/// makes them, so that they get one of their own.
pub(crate) const ATTEMPTS: &[(&str, &str, bool, Attempt)] = &[
    ("calls.filtered", "set_up_io_uring", false, set_up_io_uring),
    ("calls.filtered", "make_memory_file", false, make_memory_file),
    ("calls.filtered", "watch_a_file", false, watch_a_file),
    ("credentials.none", "read_a_private_key", false, |scene| read(scene.folder.join(".ssh/id_canary"))),
    ("credentials.none", "use_a_keyring", false, |_| sys::add_key()),
    ("descriptors.closed", "use_an_inherited_descriptor", false, use_an_inherited_descriptor),
    ("filesystem.read", "read_a_host_file", false, |scene| read(scene.folder.join("file"))),
    ("filesystem.read", "list_a_host_folder", false, |scene| list(scene.folder.clone())),
    ("filesystem.read", "run_a_shell", true, run_a_shell),
    ("filesystem.write", "write_into_a_host_folder", false, |scene| make(&scene.folder.join("open/made"))),
    ("filesystem.write", "write_into_the_inputs", false, |scene| make(&scene.inputs.join("made"))),
    ("limit.memory", "map_more_than_the_limit", false, map_more_than_the_limit),
    ("limit.processes", "fork_at_the_limit", true, fork_at_the_limit),
    ("limit.storage", "grow_a_file_beyond_the_limit", false, grow_a_file_beyond_the_limit),
    ("network.none", "connect_to_tcp", false, connect_to_tcp),
    ("network.none", "send_to_udp", false, send_to_udp),
    ("network.none", "connect_to_abstract_socket", false, connect_to_abstract_socket),
    ("network.none", "connect_to_path_socket", false, connect_to_path_socket),
    ("privileges.none", "gain_privileges_by_exec", false, gain_privileges_by_exec),
    ("privileges.none", "make_a_user_namespace", true, make_a_user_namespace),
    ("process.isolated", "signal_a_neighbour", false, |scene| kill(scene.neighbour, None)),
    ("process.isolated", "read_a_neighbours_environment", false, read_a_neighbours_environment),
    ("process.isolated", "read_a_neighbours_memory", false, |scene| sys::read_memory(scene.neighbour, scene.address)),
];

type FolderAttempt = fn(&Path) -> Result<(), Errno>;

/// Attempts to exceed a file system that grants [`TWIN_BYTES`] and [`TWIN_FILES`]. Inside, they are made on a small twin of
/// the output folder, mounted in the same way: filling the real one would cost its whole size.
pub(crate) const TWINS: &[(&str, &str, FolderAttempt)] = &[
    ("limit.files", "make_more_files_than_granted", make_too_many_files),
    ("limit.storage", "write_more_than_granted", write_too_much),
];
/// Bytes that the twin grants.
pub(crate) const TWIN_BYTES: u64 = 16 << 10;
/// Files that the twin grants.
pub(crate) const TWIN_FILES: u64 = 4;

/// Makes the attempts of [`TWINS`] in `folder`.
pub(crate) fn run_twins(folder: &Path, mut report: impl FnMut(&str, &str)) {
    for (_, name, attempt) in TWINS {
        report(name, &word(attempt(folder)));
    }
}

fn make_too_many_files(folder: &Path) -> Result<(), Errno> {
    let names: Vec<PathBuf> = (0..=TWIN_FILES).map(|number| folder.join(number.to_string())).collect();
    let outcome = io(names.iter().try_for_each(|name| fs::File::create_new(name).map(drop)));
    for name in names {
        // Those that could not be made are not there.
        fs::remove_file(name).ok();
    }
    outcome
}

fn write_too_much(folder: &Path) -> Result<(), Errno> {
    let path = folder.join("bytes");
    let outcome = io(fs::write(&path, vec![1; usize::try_from(TWIN_BYTES).unwrap_or(0) + 1]));
    fs::remove_file(path).ok();
    outcome
}

/// Makes every attempt and tells `report` how it went: `OK` or the error's name.
pub(crate) fn run(scene: &Scene, mut report: impl FnMut(&str, &str)) {
    sys::ignore_signal(libc::SIGXFSZ);
    for (_, name, apart, attempt) in ATTEMPTS {
        let outcome = if *apart { forked(|| attempt(scene)) } else { attempt(scene) };
        report(name, &word(outcome));
    }
}

/// The outcome as a word.
pub(crate) fn word(outcome: Result<(), Errno>) -> String {
    outcome.map_or_else(|errno| format!("{errno:?}"), |()| "OK".into())
}

/// Makes an attempt in a process of its own.
fn forked(attempt: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match sys::fork()? {
        Fork::Child => sys::leave(attempt().err().map_or(0, |errno| errno as i32)),
        Fork::Parent(pid) => match sys::wait_process(pid)? {
            0 => Ok(()),
            status if libc::WIFEXITED(status) => Err(Errno::from_raw(libc::WEXITSTATUS(status))),
            _ => Err(Errno::EINTR),
        },
    }
}

fn io<T>(result: std::io::Result<T>) -> Result<(), Errno> {
    result.map(drop).map_err(|error| errno(&error))
}

fn read(path: PathBuf) -> Result<(), Errno> {
    io(fs::read(path))
}

fn list(path: PathBuf) -> Result<(), Errno> {
    io(fs::read_dir(path))
}

fn make(path: &Path) -> Result<(), Errno> {
    io(fs::create_dir(path))?;
    io(fs::remove_dir(path))
}

fn run_a_shell(_: &Scene) -> Result<(), Errno> {
    let none: [&std::ffi::CStr; 0] = [];
    execve(c"/bin/sh", &[c"sh", c"-c", c":"], &none).map(drop)
}

fn set_up_io_uring(_: &Scene) -> Result<(), Errno> {
    // Without a structure the kernel answers EFAULT: that is reaching it.
    reached(sys::call(libc::SYS_io_uring_setup, [1, 0, 0, 0]), Errno::EFAULT)
}

fn make_memory_file(_: &Scene) -> Result<(), Errno> {
    reached(sys::call(libc::SYS_memfd_create, [0, 0, 0, 0]), Errno::EFAULT)
}

fn watch_a_file(_: &Scene) -> Result<(), Errno> {
    let descriptor = sys::call(libc::SYS_inotify_init1, [libc::O_CLOEXEC.cast_unsigned().into(), 0, 0, 0])?;
    drop(sys::own(i32::try_from(descriptor).unwrap_or(-1)));
    Ok(())
}

/// A call that got far enough to look at its arguments has passed every filter.
fn reached(result: Result<i64, Errno>, late: Errno) -> Result<(), Errno> {
    match result {
        Err(errno) if errno == late => Ok(()),
        other => other.map(drop),
    }
}

fn use_an_inherited_descriptor(scene: &Scene) -> Result<(), Errno> {
    nix::sys::stat::fstat(sys::borrow(scene.inherited)).map(drop)
}

fn map_more_than_the_limit(scene: &Scene) -> Result<(), Errno> {
    // Outside there is no limit to exceed, and half an address space shows that mapping works.
    let bytes = scene.limits.map_or(1 << 40, |limits| limits.memory_bytes + (1 << 20));
    sys::map_memory(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn fork_at_the_limit(scene: &Scene) -> Result<(), Errno> {
    if let Some(limit) = scene.processes {
        let (soft, _) = getrlimit(Resource::RLIMIT_NPROC)?;
        if soft == RLIM_INFINITY || soft > limit {
            return Ok(());
        }
        // The kernel refuses at the number asked for as it refuses at one.
        setrlimit(Resource::RLIMIT_NPROC, 1, 1)?;
    }
    match sys::fork()? {
        Fork::Child => sys::leave(0),
        Fork::Parent(pid) => sys::wait_process(pid).map(drop),
    }
}

fn grow_a_file_beyond_the_limit(scene: &Scene) -> Result<(), Errno> {
    let path = scene.outputs.join("grown");
    let grow = || -> std::io::Result<()> {
        let bytes = scene.limits.map_or(1 << 40, |limits| limits.storage_bytes + 1);
        fs::File::create_new(&path)?.set_len(bytes)
    };
    let outcome = io(grow());
    // An attempt that could not make the file leaves none.
    fs::remove_file(&path).ok();
    outcome
}

fn connect_to_tcp(scene: &Scene) -> Result<(), Errno> {
    io(TcpStream::connect((Ipv4Addr::LOCALHOST, scene.tcp)))
}

fn send_to_udp(scene: &Scene) -> Result<(), Errno> {
    let send = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(b"probe", (Ipv4Addr::LOCALHOST, scene.udp));
    io(send())
}

fn connect_to_abstract_socket(scene: &Scene) -> Result<(), Errno> {
    io(SocketAddr::from_abstract_name(&scene.abstract_name).and_then(|address| UnixStream::connect_addr(&address)))
}

fn connect_to_path_socket(scene: &Scene) -> Result<(), Errno> {
    io(UnixStream::connect(scene.folder.join("socket")))
}

/// Succeeds where a set-user-id program would still change the user.
fn gain_privileges_by_exec(_: &Scene) -> Result<(), Errno> {
    match sys::control(libc::PR_GET_NO_NEW_PRIVS, 0)? {
        0 => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

fn make_a_user_namespace(_: &Scene) -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWUSER)
}

fn read_a_neighbours_environment(scene: &Scene) -> Result<(), Errno> {
    read(format!("/proc/{}/environ", scene.neighbour).into())
}
