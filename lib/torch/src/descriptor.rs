//! Descriptors that the launcher left open for this process.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};

/// Takes over the open descriptor `number`. Standard input, output and error are refused, since they belong to `std`.
///
/// Take each number once: the file closes it when dropped.
pub fn inherited(number: RawFd) -> io::Result<File> {
    if number <= 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "descriptors 0, 1 and 2 have another use"));
    }
    // SAFETY: this call takes numbers only and reports one that is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nothing in this process has taken it: the launcher opened it for the worker's main.
    Ok(unsafe { File::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::IntoRawFd;

    #[test]
    fn an_open_descriptor_is_taken_over_and_a_closed_one_is_refused() {
        let number = File::open("Cargo.toml").unwrap().into_raw_fd();
        let mut text = String::new();
        inherited(number).unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains("xt-torch"));
        assert!(inherited(9999).is_err() && inherited(1).is_err());
    }
}
