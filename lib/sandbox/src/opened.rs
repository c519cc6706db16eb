//! Calls on an admitted network, as their caller asked for them. The address is read from the caller's memory when the
//! call is handed over; another thread of the caller may change it before the kernel reads it again. So this is a record
//! of what was asked for, and no proof of what was reached (seccomp_unotify(2) says why no filter can give one).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::filter;
use crate::sys::{self, Handed};

/// No socket address is longer (`struct sockaddr_storage`).
const LONGEST: usize = 128;
/// `msg_name` and `msg_namelen` at the head of `struct msghdr`.
const HEAD: usize = 12;

/// The name of a call and what it asks for; none for a message without an address, which goes where an earlier call has led.
pub(crate) fn opened(listener: &OwnedFd, call: &Handed) -> Option<(String, String)> {
    let name = filter::name(call.number)?;
    let asked = match address(listener, call) {
        Ok(Some(bytes)) => shown(&bytes),
        Ok(None) => return None,
        Err(errno) => format!("an address that cannot be read ({errno:?})"),
    };
    Some((name.into(), format!("{name} {asked}")))
}

/// The bytes of the address.
fn address(listener: &OwnedFd, call: &Handed) -> Result<Option<Vec<u8>>, Errno> {
    let number = i64::from(call.number);
    let (at, length) = match number {
        _ if number == libc::SYS_sendto => (call.arguments[4], call.arguments[5]),
        _ if number == libc::SYS_sendmsg => {
            let head = read(listener, call, call.arguments[1], HEAD)?;
            let (at, length) = head.split_at(8);
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
            (number(at), number(length))
        }
        _ => (call.arguments[1], call.arguments[2]),
    };
    if at == 0 || length == 0 {
        return Ok(None);
    }
    // The kernel takes the length as a 32-bit number.
    let length = usize::try_from(length & u64::from(u32::MAX)).unwrap_or(LONGEST).min(LONGEST);
    read(listener, call, at, length).map(Some)
}

/// Bytes of the caller's memory, if it still waits for an answer: its number could be another's by now.
fn read(listener: &OwnedFd, call: &Handed, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let at = usize::try_from(at).map_err(|_| Errno::EFAULT)?;
    let bytes = sys::read_bytes(Pid::from_raw(call.pid), at, length)?;
    sys::still_waits(listener, call).map(|()| bytes)
}

/// An address in words (`struct sockaddr_in`, `_in6` and `_un`).
fn shown(bytes: &[u8]) -> String {
    let slice = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
    let port = |bytes: &[u8]| bytes.iter().fold(0_u16, |all, byte| all << 8 | u16::from(*byte));
    let family = slice(0, 2).iter().rev().fold(0_i32, |all, byte| all << 8 | i32::from(*byte));
    match family {
        libc::AF_INET => <[u8; 4]>::try_from(slice(4, 8)).map_or_else(
            |_| "an address that is cut short".into(),
            |ip| SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port(slice(2, 4))).to_string(),
        ),
        libc::AF_INET6 => <[u8; 16]>::try_from(slice(8, 24)).map_or_else(
            |_| "an address that is cut short".into(),
            |ip| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port(slice(2, 4))).to_string(),
        ),
        libc::AF_UNIX => match bytes.get(2..).unwrap_or_default() {
            [] => "unix: without a name".into(),
            // Its name is all that follows, zero bytes included.
            [0, name @ ..] => format!("unix:@{}", name.escape_ascii()),
            path => format!("unix:{}", path.split(|byte| *byte == 0).next().unwrap_or_default().escape_ascii()),
        },
        other => format!("an address of family {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(shown(&v4), "127.0.0.1:8080");
        let mut v6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        v6.extend([0; 4]);
        assert_eq!(shown(&v6), "[::1]:80");
        assert_eq!(shown(b"\x01\x00/run/a\tb\x00rest"), "unix:/run/a\\tb");
        assert_eq!(shown(b"\x01\x00\x00hidden"), "unix:@hidden");
        assert_eq!(shown(b"\x01\x00"), "unix: without a name");
        assert_eq!(shown(&v4[..6]), "an address that is cut short");
        assert_eq!(shown(b"\x10\x00abc"), "an address of family 16");
        assert_eq!(shown(b""), "an address of family 0");
    }
}
