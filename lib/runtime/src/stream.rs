//! One end of a pipe that a worker writes to, read without waiting.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::error::{RuntimeError, system};

/// One end of a pipe; closed when the other end is.
#[derive(Debug)]
pub(crate) struct Stream(Option<File>);

impl Stream {
    /// Reads from `descriptor` from now on without waiting.
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, RuntimeError> {
        fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(system("fcntl"))?;
        Ok(Self(Some(descriptor.into())))
    }

    /// The descriptor to wait for; none when no more will come.
    pub(crate) fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|file| file.as_fd())
    }

    /// Some of what is there to read now; nothing when there is none.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let Some(file) = &mut self.0 else { return Vec::new() };
        match file.read(&mut buffer) {
            Ok(count) if count > 0 => {
                buffer.truncate(count);
                return buffer;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            _ => self.0 = None,
        }
        Vec::new()
    }
}
