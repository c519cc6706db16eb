//! Attempts to do what a control forbids. Each is made once outside, as the trainer's user and without any layer; once
//! under every layer that is to stop it, alone; and once inside with every layer on, before the trainer starts. Only an
//! attempt that works outside and fails under a layer proves anything about that layer.

use std::ffi::CString;
use std::fs;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::kill;
use nix::unistd::{Pid, execve};
use xt_core::manifest::custody::Layer;
use xt_core::verb::custody::OWN_NETWORK;

use crate::error::errno;
use crate::policy::Limits;
use crate::sys;

/// The outcome of an attempt that did what it must not do.
pub(crate) const OK: &str = "OK";

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

/// An attempt.
pub(crate) struct Attempt {
    /// The control that it proves.
    pub(crate) control: &'static str,
    /// Its name.
    pub(crate) name: &'static str,
    make: fn(&Scene) -> Result<(), Errno>,
    /// The layers that stop it, each alone. For landlock: from which version on.
    layers: &'static [(Layer, u64)],
}

impl Attempt {
    /// Whether the layer alone is to stop it; `version` is that of landlock.
    pub(crate) fn stopped_by(&self, layer: Layer, version: u64) -> bool {
        self.layers.iter().any(|(stage, since)| *stage == layer && *since <= version)
    }
}

const MOUNT: (Layer, u64) = (Layer::Mount, 0);
const NET: (Layer, u64) = (Layer::Net, 0);
const PROCESS: (Layer, u64) = (Layer::Process, 0);
const FILTER: (Layer, u64) = (Layer::Filter, 0);
/// Versions of landlock that brought what is needed: files, TCP, abstract sockets and signals (landlock(7)).
const FILES: (Layer, u64) = (Layer::Landlock, 1);
const TCP: (Layer, u64) = (Layer::Landlock, 4);
const SCOPES: (Layer, u64) = (Layer::Landlock, 6);

const fn attempt(
    control: &'static str,
    name: &'static str,
    make: fn(&Scene) -> Result<(), Errno>,
    layers: &'static [(Layer, u64)],
) -> Attempt {
    Attempt { control, name, make, layers }
}

/// Every attempt.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("calls.filtered", "set_up_io_uring", set_up_io_uring, &[FILTER]),
    attempt("calls.filtered", "make_memory_file", make_memory_file, &[FILTER]),
    attempt("calls.filtered", "watch_a_file", watch_a_file, &[FILTER]),
    attempt("credentials.none", "read_a_private_key", read_a_private_key, &[MOUNT, FILES]),
    attempt("credentials.none", "use_a_keyring", |_| sys::add_key(), &[FILTER]),
    attempt("descriptors.closed", "use_an_inherited_descriptor", use_an_inherited_descriptor, &[]),
    attempt("filesystem.read", "read_a_host_file", |scene| read(scene.folder.join("file")), &[MOUNT, FILES]),
    attempt("filesystem.read", "list_a_host_folder", |scene| list(scene.folder.clone()), &[MOUNT, FILES]),
    attempt("filesystem.read", "run_a_host_program", run_a_host_program, &[FILES]),
    attempt("filesystem.write", "write_into_a_host_folder", write_into_a_host_folder, &[MOUNT, FILES]),
    attempt("filesystem.write", "write_into_the_inputs", |scene| make(&scene.inputs), &[MOUNT, FILES]),
    attempt("limit.memory", "map_more_than_the_limit", map_more_than_the_limit, &[]),
    attempt("limit.processes", "fork_at_the_limit", fork_at_the_limit, &[]),
    attempt("limit.storage", "grow_a_file_beyond_the_limit", grow_a_file_beyond_the_limit, &[]),
    attempt("network.none", "connect_to_tcp", connect_to_tcp, &[NET, TCP, FILTER]),
    attempt("network.none", "send_to_udp", send_to_udp, &[NET, FILTER]),
    attempt("network.none", "connect_to_abstract_socket", connect_to_abstract_socket, &[NET, SCOPES, FILTER]),
    attempt("network.none", "connect_to_path_socket", connect_to_path_socket, &[MOUNT, FILTER]),
    attempt("privileges.none", "gain_privileges_by_exec", gain_privileges_by_exec, &[]),
    attempt("privileges.none", "make_a_user_namespace", make_a_user_namespace, &[FILTER]),
    attempt("process.isolated", "signal_a_neighbour", |scene| kill(scene.neighbour, None), &[PROCESS, SCOPES]),
    attempt("process.isolated", "read_a_neighbours_environment", read_environment, &[PROCESS, FILES]),
    attempt("process.isolated", "read_a_neighbours_memory", read_memory, &[PROCESS, FILES, FILTER]),
];

/// Attempts that a network of its own stops although sockets are granted, each with the layers that stop it then.
const OWN_NETWORK_ATTEMPTS: [(&str, &[(Layer, u64)]); 3] =
    [("connect_to_tcp", &[NET]), ("connect_to_abstract_socket", &[NET, SCOPES]), ("connect_to_path_socket", &[MOUNT])];

/// The attempts that prove a control, each with the layers that stop it alone and since which version.
pub(crate) fn attempts_of(control: &str) -> Vec<(&'static str, &'static [(Layer, u64)])> {
    if control == OWN_NETWORK {
        return OWN_NETWORK_ATTEMPTS.to_vec();
    }
    ATTEMPTS.iter().filter(|attempt| attempt.control == control).map(|attempt| (attempt.name, attempt.layers)).collect()
}

type FolderAttempt = fn(&Path) -> Result<(), Errno>;

/// Attempts to exceed a file system that grants [`TWIN_BYTES`] and [`TWIN_FILES`]. Inside, they are made in the output
/// folder while it is still that small: filling it would cost its whole size.
pub(crate) const TWINS: &[(&str, &str, FolderAttempt)] = &[
    ("limit.files", "make_more_files_than_granted", make_too_many_files),
    ("limit.storage", "write_more_than_granted", write_too_much),
];
/// Bytes that the twin grants.
pub(crate) const TWIN_BYTES: u64 = 16 << 10;
/// Files that the twin grants.
pub(crate) const TWIN_FILES: u64 = 4;

/// Makes the attempts of [`TWINS`] in `folder`.
pub(crate) fn run_twins(folder: &Path) -> Vec<(&'static str, String)> {
    TWINS.iter().map(|(_, name, attempt)| (*name, word(attempt(folder)))).collect()
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

/// Makes the wanted attempts and says how each went: `OK` or the error's name.
pub(crate) fn outcomes(scene: &Scene, wanted: impl Fn(&Attempt) -> bool) -> Vec<(&'static str, String)> {
    sys::ignore_signal(libc::SIGXFSZ);
    let chosen = ATTEMPTS.iter().filter(|attempt| wanted(attempt));
    chosen.map(|attempt| (attempt.name, word((attempt.make)(scene)))).collect()
}

/// The outcome as a word.
pub(crate) fn word(outcome: Result<(), Errno>) -> String {
    outcome.map_or_else(|errno| format!("{errno:?}"), |()| OK.into())
}

/// The outcome that a process's end tells, which left with an error number or was replaced by a program.
pub(crate) fn ended(status: i32) -> Result<(), Errno> {
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code if libc::WIFEXITED(status) => Err(Errno::from_raw(code)),
        _ => Err(Errno::EINTR),
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

/// Makes a folder in `folder` by a name of this process alone: layers are tried at the same time, and what another just
/// made would be answered with EEXIST, which says nothing about the layer.
fn make(folder: &Path) -> Result<(), Errno> {
    let path = folder.join(format!("made.{}", std::process::id()));
    io(fs::create_dir(&path))?;
    io(fs::remove_dir(path))
}

fn read_a_private_key(scene: &Scene) -> Result<(), Errno> {
    read(scene.folder.join(".ssh/id_canary"))
}

fn write_into_a_host_folder(scene: &Scene) -> Result<(), Errno> {
    make(&scene.folder.join("open"))
}

fn run_a_host_program(scene: &Scene) -> Result<(), Errno> {
    let path = CString::new(scene.folder.join("program").as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let none: [&std::ffi::CStr; 0] = [];
    let mut busy = 0;
    loop {
        let status = sys::apart(0, &mut || {
            let Err(errno) = execve(&path, &[c"program"], &none);
            errno as i32
        })?;
        match ended(status) {
            // Another thread has just forked a process, which has not yet closed what wrote the program.
            Err(Errno::ETXTBSY) if busy < 50 => busy += 1,
            outcome => return outcome,
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

fn make_a_user_namespace(_: &Scene) -> Result<(), Errno> {
    sys::apart(libc::CLONE_NEWUSER, &mut || 0).map(drop)
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
    let fork = || sys::apart(0, &mut || 0).map(drop);
    let Some(limit) = scene.processes else { return fork() };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    if soft == RLIM_INFINITY || soft > limit {
        return Ok(());
    }
    // The kernel refuses at the number asked for as it refuses at one.
    setrlimit(Resource::RLIMIT_NPROC, 1, hard)?;
    let outcome = fork();
    setrlimit(Resource::RLIMIT_NPROC, soft, hard)?;
    outcome
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

fn read_environment(scene: &Scene) -> Result<(), Errno> {
    read(format!("/proc/{}/environ", scene.neighbour).into())
}

fn read_memory(scene: &Scene) -> Result<(), Errno> {
    sys::read_memory(scene.neighbour, scene.address)
}
