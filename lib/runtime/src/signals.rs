//! Requests of the system to stop, taken as data: blocked, and read from a descriptor when it suits.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::{RuntimeError, system};

/// SIGINT, SIGTERM and SIGHUP, waiting to be read.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the three for this process and every thread that it starts afterwards. A process that is to be told by
    /// them must be single-threaded here.
    pub fn block() -> Result<Self, RuntimeError> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block().map_err(system("sigprocmask"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&set, flags).map(Self).map_err(system("signalfd"))
    }

    /// The next signal that came, if one did.
    pub fn take(&self) -> Result<Option<Signal>, RuntimeError> {
        let taken = self.0.read_signal().map_err(system("read signalfd"))?;
        Ok(taken.and_then(|info| i32::try_from(info.ssi_signo).ok()).and_then(|number| Signal::try_from(number).ok()))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
