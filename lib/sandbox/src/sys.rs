//! Every unsafe line of this crate: system calls for which no safe wrapper exists, or whose wrapper is itself unsafe.
#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

use std::ffi::CStr;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use nix::unistd::Pid;

/// On which side of a fork the caller finds itself.
pub(crate) enum Fork {
    /// In the parent; the child has this number.
    Parent(Pid),
    /// In the child.
    Child,
}

/// Makes a child process with `fork`.
pub(crate) fn fork() -> Result<Fork, Errno> {
    // SAFETY: glibc's fork leaves the child with a usable allocator even if other threads exist; the child runs only
    // code of this crate, which takes no lock that another thread could have held, and ends with `leave` or an exec.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::last()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent(Pid::from_raw(child))),
    }
}

/// Makes a child in the new namespaces named by `flags`. With `CLONE_PARENT` among them it is a child of the caller's
/// parent. The caller has a single thread.
pub(crate) fn clone(flags: i32) -> Result<Fork, Errno> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is a fork: the child goes on with a copy of everything. Callers
    // make sure that they have a single thread, so that no lock is held by anybody.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(Errno::last()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent(Pid::from_raw(i32::try_from(child).unwrap_or(-1)))),
    }
}

/// Does something in a process of its own that borrows this one's memory, while this one waits for its end: it costs a
/// fraction of a fork. Limits, descriptors, signals and everything that confines are its own. Gives its wait status.
pub(crate) fn apart(flags: i32, act: &mut dyn FnMut() -> i32) -> Result<i32, Errno> {
    /// Calls what `argument` points to.
    extern "C" fn call(argument: *mut libc::c_void) -> i32 {
        // SAFETY: the pointer comes from the call below, which waits while this runs.
        let act = unsafe { &mut *argument.cast::<&mut dyn FnMut() -> i32>() };
        act()
    }
    let mut stack = Vec::<u128>::with_capacity(STACK / size_of::<u128>());
    let mut act = act;
    // SAFETY: the stack is live, aligned to 16 bytes and grows down from its end. The kernel stops this thread until the
    // child has ended or executes a program (CLONE_VFORK), so that nothing is used by both at a time; the child leaves
    // without unwinding and without running destructors.
    let child = Errno::result(unsafe {
        let top = stack.as_mut_ptr().add(stack.capacity()).cast();
        let flags = flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(call, top, flags, (&raw mut act).cast())
    })?;
    wait_process(Pid::from_raw(child))
}

/// Bytes of stack for a process that borrows memory; only what it touches is really there.
const STACK: usize = 256 << 10;

/// Whether this process is known to have a single thread: its folder of threads has the two links of every folder, and
/// one more for each (proc_pid_task(5)).
pub(crate) fn has_one_thread() -> bool {
    nix::sys::stat::stat("/proc/self/task").is_ok_and(|folder| folder.st_nlink == 3)
}

/// Ends the process at once, without running anything of the parent's that a fork copied.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// `prctl` with plain numbers.
pub(crate) fn control(option: i32, argument: u64) -> Result<i32, Errno> {
    // SAFETY: the options used in this crate take plain numbers, none of them an address.
    Errno::result(unsafe { libc::prctl(option, argument, 0, 0, 0) })
}

/// Gives up every capability of the calling thread.
pub(crate) fn drop_capabilities() -> Result<(), Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, process: 0 };
    let data = [CapabilityData::default(); 2];
    // SAFETY: both pointers are to live values with the layout of version 3 (capget(2)): two data entries.
    let code = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    Errno::result(code).map(drop)
}

/// Effective capabilities of the calling thread, one bit each.
pub(crate) fn capabilities() -> Result<u64, Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, process: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: as in `drop_capabilities`; the kernel writes two entries.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].effective) | u64::from(data[1].effective) << 32)
}

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets mount attributes (`MOUNT_ATTR_*`) of the mount at `path`, with everything below it when `recursive`.
pub(crate) fn set_mount_attributes(path: &CStr, recursive: bool, attributes: u64) -> Result<(), Errno> {
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let value = Attributes { set: attributes, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: path and structure live across the call, and the size tells the kernel the structure's version.
    let code = unsafe {
        let call = libc::SYS_mount_setattr;
        libc::syscall(call, libc::AT_FDCWD, path.as_ptr(), flags, &raw const value, size_of::<Attributes>())
    };
    Errno::result(code).map(drop)
}

/// Closes every descriptor from `first` to `last`, both included.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> Result<(), Errno> {
    // SAFETY: called in a child about to exec; owners of the closed descriptors never run their destructors there.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Closes every descriptor that is not in `kept`, which is sorted.
pub(crate) fn close_others(kept: &[RawFd]) -> Result<(), Errno> {
    let mut next = 0;
    for fd in kept {
        if *fd > next {
            close_range(next, *fd - 1)?;
        }
        next = *fd + 1;
    }
    close_range(next, RawFd::MAX)
}

/// Makes `to` refer to what `from` refers to, open across an exec.
pub(crate) fn place(from: RawFd, to: RawFd) -> Result<(), Errno> {
    // SAFETY: called in a child about to exec, which owns no descriptor of that number any more.
    Errno::result(unsafe { libc::dup2(from, to) }).map(drop)
}

/// Takes over the open descriptor `number`, which whoever started this process left open for it. Take each number
/// once: it is closed when dropped. Standard input, output and error are refused, since they belong to `std`.
pub fn inherited(number: RawFd) -> std::io::Result<OwnedFd> {
    if number <= 2 {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "descriptors 0, 1 and 2 have another use"));
    }
    // SAFETY: this call takes numbers only and reports one that is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(own(number))
}

/// Takes ownership of a descriptor that the kernel has just handed out.
pub(crate) fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: callers pass only numbers that a system call has just returned and nobody else owns.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Borrows a descriptor by number: in a child, where the owner lives in the copied stack of the parent.
pub(crate) fn borrow(descriptor: RawFd) -> BorrowedFd<'static> {
    // SAFETY: callers pass descriptors that stay open until the exec or exit of the child.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

/// A descriptor for the process `pid`.
pub(crate) fn process_descriptor(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: plain numbers; on success the kernel returns a new descriptor.
    let code = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    Ok(own(i32::try_from(code).map_err(|_| Errno::EBADF)?))
}

/// Waits for the child behind a process descriptor to end and frees it.
pub(crate) fn wait_process(pid: Pid) -> Result<i32, Errno> {
    let mut status = 0;
    loop {
        // SAFETY: the status is a live integer.
        match Errno::result(unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL) }) {
            Ok(_) => return Ok(status),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// One child that has ended, its status and what it used: any child, or none if all still run.
pub(crate) fn reap_any(block: bool) -> Result<Option<Reaped>, Errno> {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    let options = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    // SAFETY: both pointers are to live values.
    let code = Errno::result(unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) })?;
    let nanoseconds = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    Ok((code > 0).then(|| Reaped {
        pid: Pid::from_raw(code),
        status,
        cpu_nanoseconds: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
        peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    }))
}

/// A child that has ended.
pub(crate) struct Reaped {
    /// Its number.
    pub(crate) pid: Pid,
    /// Its wait status.
    pub(crate) status: i32,
    /// Processor time of it and of its waited-for children.
    pub(crate) cpu_nanoseconds: u64,
    /// Largest resident size.
    pub(crate) peak_memory_bytes: u64,
}

/// Sets every signal to its default action; an exec keeps ignored signals ignored.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: the default action runs no code of ours; refusals (SIGKILL, SIGSTOP, the two of libc) are harmless.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Lets the calling thread, and the threads and processes that it starts, run when others leave the processor, and never take
/// it from them on waking up; `nice` is how much less than others they count where they compete (nice(2)).
pub fn give_way(nice: i32) {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter outlives the call, which only reads it; nice takes a number. A refusal changes nothing.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter);
        libc::nice(nice);
    }
}

/// Ignores `signal`.
pub(crate) fn ignore_signal(signal: i32) {
    // SAFETY: ignoring runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Lets `signal` do what it does by default.
pub(crate) fn default_signal(signal: i32) {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Installs a system-call filter for the calling thread. With `listen`, calls that the filter hands over arrive at
/// the returned descriptor.
pub(crate) fn install_filter(program: &[libc::sock_filter], listen: bool) -> Result<Option<OwnedFd>, Errno> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    let flags = if listen { libc::SECCOMP_FILTER_FLAG_NEW_LISTENER } else { 0 };
    // SAFETY: the program lives across the call and the kernel only reads it.
    let code = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    let code = Errno::result(code)?;
    Ok(listen.then(|| own(i32::try_from(code).unwrap_or(-1))))
}

/// Has the kernel hand calls over on the processor where they are made, which saves most of the way (Linux 6.6 and later;
/// earlier ones refuse, and nothing is lost).
pub(crate) fn hand_over_nearby(listener: &OwnedFd) {
    const SET_FLAGS: libc::c_ulong = 0x4008_2104; // SECCOMP_IOCTL_NOTIF_SET_FLAGS of linux/seccomp.h
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the request takes a plain number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
}

/// A system call that the filter handed over.
pub(crate) struct Handed {
    id: u64,
    /// Number of the thread that made it.
    pub(crate) pid: i32,
    /// Number of the call.
    pub(crate) number: i32,
    /// Its six arguments.
    pub(crate) arguments: [u64; 6],
}

/// The next system call waiting at `listener`.
pub(crate) fn next_call(listener: &OwnedFd) -> Result<Handed, Errno> {
    // SAFETY: all-zero bytes are a valid structure, and the kernel demands zeroes.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the request reads and writes one such structure.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) })?;
    Ok(Handed {
        id: call.id,
        pid: i32::try_from(call.pid).unwrap_or(0),
        number: call.data.nr,
        arguments: call.data.args,
    })
}

/// Lets a call go on as if nobody had looked.
pub(crate) fn let_call(listener: &OwnedFd, call: &Handed) -> Result<(), Errno> {
    const CONTINUE: u32 = 1; // SECCOMP_USER_NOTIF_FLAG_CONTINUE of linux/seccomp.h
    let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error: 0, flags: CONTINUE };
    // SAFETY: the request reads one such structure.
    let code = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    Errno::result(code).map(drop)
}

/// Whether the thread that made a call still waits for an answer: if not, its number may be another's.
pub(crate) fn still_waits(listener: &OwnedFd, call: &Handed) -> Result<(), Errno> {
    let mut id = call.id;
    // SAFETY: the request reads one 64-bit number.
    let code = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw mut id) };
    Errno::result(code).map(drop)
}

/// Reads `length` bytes of another process at `address`; fewer where its memory ends.
pub(crate) fn read_bytes(pid: Pid, address: usize, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; length];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: length };
    // SAFETY: the local vector covers the live buffer; the remote address is checked by the kernel.
    let count = unsafe { libc::process_vm_readv(pid.as_raw(), &raw const local, 1, &raw const remote, 1, 0) };
    bytes.truncate(usize::try_from(Errno::result(count)?).unwrap_or(0));
    Ok(bytes)
}

/// Switches the loopback interface of the caller's network namespace on (netdevice(7)).
pub(crate) fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: plain numbers; on success the kernel returns a new descriptor.
    let socket = own(Errno::result(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?);
    // SAFETY: all-zero bytes are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).unwrap_or(0);
    // SAFETY: the request reads one such structure.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) }).map(drop)
}

/// Answers a call with `errno`; it never runs.
pub(crate) fn refuse_call(listener: &OwnedFd, call: &Handed, errno: Errno) -> Result<(), Errno> {
    let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error: -(errno as i32), flags: 0 };
    // SAFETY: the request reads one such structure.
    let code = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    Errno::result(code).map(drop)
}

/// Makes a system call that takes plain numbers, for probes.
pub(crate) fn call(number: i64, arguments: [u64; 4]) -> Result<i64, Errno> {
    let [a, b, c, d] = arguments;
    // SAFETY: probes pass plain numbers, or null where an address is expected: the kernel then answers EFAULT.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d) })
}

/// Adds a key to the process keyring, which ends with the process.
pub(crate) fn add_key() -> Result<(), Errno> {
    let process_keyring: libc::c_long = -2; // KEY_SPEC_PROCESS_KEYRING of linux/keyctl.h
    let (kind, name, payload) = (c"user", c"xt-probe", [0_u8; 1]);
    // SAFETY: all pointers are to live values, the length is that of the payload.
    let code = unsafe {
        let (kind, name) = (kind.as_ptr(), name.as_ptr());
        libc::syscall(libc::SYS_add_key, kind, name, payload.as_ptr(), payload.len(), process_keyring)
    };
    Errno::result(code).map(drop)
}

/// Reads one byte of another process at `address`.
pub(crate) fn read_memory(pid: Pid, address: usize) -> Result<(), Errno> {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: 1 };
    // SAFETY: the local vector covers one live byte; the remote address is checked by the kernel.
    let count = unsafe { libc::process_vm_readv(pid.as_raw(), &raw const local, 1, &raw const remote, 1, 0) };
    Errno::result(count).map(drop)
}

/// Maps `bytes` of private writable memory and unmaps it again without touching it.
pub(crate) fn map_memory(bytes: usize) -> Result<(), Errno> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice, never touched.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: exactly the mapping made above.
    Errno::result(unsafe { libc::munmap(address, bytes) }).map(drop)
}

/// Bit n tells that stream n was closed when the process started.
static CLOSED_STREAMS: AtomicU8 = AtomicU8::new(0);

/// Runs before `main`: afterwards the standard library has put /dev/null in the place of closed streams, and what is
/// written there is lost in silence.
extern "C" fn look_at_streams() {
    for stream in 0..3 {
        // SAFETY: asks for the flags of a descriptor by number; touches no memory.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            CLOSED_STREAMS.fetch_or(1 << stream, Ordering::Relaxed);
        }
    }
}

// SAFETY: the loader calls each pointer of this section once, before `main`; the function needs nothing set up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STREAMS: extern "C" fn() = look_at_streams;

/// Whether standard input (0), output (1) or error (2) was closed when the process started.
pub fn stream_was_closed(stream: u8) -> bool {
    CLOSED_STREAMS.load(Ordering::Relaxed) & 1 << stream != 0
}
