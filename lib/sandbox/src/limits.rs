//! Resource limits of the trainer's process (setrlimit(2)). They are only ever lowered.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use crate::namespace::{Failed, at};
use crate::policy::Limits;

/// Stack of the first thread, and of others unless they say otherwise: fixed, so that a run does not depend on who
/// starts it.
const STACK: u64 = 8 << 20;

/// Sets every limit. `guard` is whether the guarding process counts as one of the trainer's user.
pub(crate) fn apply(limits: &Limits, guard: bool) -> Result<(), Failed> {
    let table = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, limits.open_files),
        (Resource::RLIMIT_FSIZE, limits.storage_bytes),
        (Resource::RLIMIT_DATA, limits.memory_bytes),
        (Resource::RLIMIT_NPROC, processes(limits, guard)),
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

/// The limit of processes as the kernel counts them.
pub(crate) fn processes(limits: &Limits, guard: bool) -> u64 {
    limits.processes + u64::from(guard)
}
