//! Staying on one processor while the sandbox is made. Its processes are short and mostly wait for each other: left alone,
//! the scheduler crowds them together or moves them at every wake, which costs more than they compute.

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

const SELF: Pid = Pid::from_raw(0);

/// The processors that a process was allowed before it began to stay on one.
#[derive(Clone, Copy)]
pub(crate) struct Stay {
    before: CpuSet,
}

impl Stay {
    /// Keeps the calling process, and what it forks, on the processor where it is. Nothing where the kernel does not say
    /// which processors it may use, or has more of them than fit (`CpuSet::count`).
    pub(crate) fn here() -> Option<Self> {
        let before = sched_getaffinity(SELF).ok()?;
        stay_on(sched_getcpu().ok()?).ok()?;
        Some(Self { before })
    }

    /// Allows the calling process what it was allowed before.
    pub(crate) fn end(&self) -> Result<(), Errno> {
        sched_setaffinity(SELF, &self.before)
    }
}

/// Keeps the calling process, and what it forks, on a processor.
pub(crate) fn stay_on(processor: usize) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(processor)?;
    sched_setaffinity(SELF, &only)
}
