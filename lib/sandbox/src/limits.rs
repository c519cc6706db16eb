//! Resource limits of the trainer's process (setrlimit(2)). They are only ever lowered.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use crate::namespace::{Failed, at};
use crate::policy::Limits;

/// Stack of the first thread, and of others unless they say otherwise: fixed, so that a run does not depend on who
/// starts it.
const STACK: u64 = 8 << 20;

/// Room in the address space beyond twice the memory: thread stacks and arenas are reserved, not used.
const RESERVED: u64 = 512 << 20;

/// What the kernel is told, which is more than what the policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    limits: Limits,
    /// Processes of the trainer's user, as the kernel counts them: those of the run and those that exist anyway.
    pub(crate) processes: u64,
    /// Bytes of address space, where no control group limits memory: it bounds shared memory, which the limit of data
    /// does not.
    address_space: u64,
}

impl Bounds {
    /// As two numbers, to be told to another process.
    pub(crate) fn numbers(&self) -> [u64; 2] {
        [self.processes, self.address_space]
    }

    /// From those numbers.
    pub(crate) fn from_numbers(limits: Limits, [processes, address_space]: [u64; 2]) -> Self {
        Self { limits, processes, address_space }
    }

    /// `others` is the number of processes of the same user that do not belong to the run, `mapped` the bytes of the
    /// files that the program maps, if the address space is to be limited.
    pub(crate) fn new(limits: Limits, others: u64, mapped: Option<u64>) -> Self {
        let room = |mapped: u64| limits.memory_bytes.saturating_add(mapped).saturating_mul(2).saturating_add(RESERVED);
        Self { limits, processes: limits.processes + others, address_space: mapped.map_or(RLIM_INFINITY, room) }
    }

    /// Sets every limit.
    pub(crate) fn apply(&self) -> Result<(), Failed> {
        let limits = &self.limits;
        let table = [
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_NOFILE, limits.open_files),
            (Resource::RLIMIT_FSIZE, limits.storage_bytes),
            (Resource::RLIMIT_DATA, limits.memory_bytes),
            (Resource::RLIMIT_AS, self.address_space),
            (Resource::RLIMIT_NPROC, self.processes),
            (Resource::RLIMIT_CPU, limits.cpu_seconds.unwrap_or(RLIM_INFINITY)),
            (Resource::RLIMIT_MSGQUEUE, 0),
            (Resource::RLIMIT_MEMLOCK, 0),
            (Resource::RLIMIT_STACK, STACK),
            (Resource::RLIMIT_NICE, 0),
            (Resource::RLIMIT_RTPRIO, 0),
        ];
        for (resource, wanted) in table {
            let (_, hard) = getrlimit(resource).map_err(at("reading a limit"))?;
            let value = wanted.min(hard);
            setrlimit(resource, value, value).map_err(|errno| (format!("limiting {resource:?}"), errno))?;
        }
        Ok(())
    }
}

/// Threads of `user` on the host now, which the kernel counts together with the trainer's.
pub(crate) fn threads_of(user: u32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let threads = entries.flatten().filter(|entry| {
        entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)
            && entry.metadata().is_ok_and(|found| found.uid() == user)
    });
    threads.map(|entry| fs::read_dir(entry.path().join("task")).map_or(1, |tasks| tasks.count() as u64)).sum()
}
