//! Messages between the supervisor and the processes it makes: one datagram each, words separated by tabs.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixCredentials, recvmsg,
    sendmsg, setsockopt, socketpair, sockopt,
};
use nix::unistd::Pid;

use crate::sys;

/// No message is longer.
const LONGEST: usize = 16_384;

/// A message: its words, its sender, and a descriptor if one came with it.
pub(crate) struct Message {
    /// Who sent it, as the kernel says, numbered as the receiver sees it.
    pub(crate) sender: Option<Pid>,
    /// The words; the first says what it is.
    pub(crate) words: Vec<String>,
    /// A descriptor that came along.
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Message {
    /// What it is.
    pub(crate) fn kind(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The word at `index`, or nothing.
    pub(crate) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The number at `index`; 0 when there is none.
    pub(crate) fn number(&self, index: usize) -> u64 {
        self.word(index).parse().unwrap_or(0)
    }
}

/// Both ends of a wire; neither survives an exec. At the first end the kernel names the sender of each message.
pub(crate) fn wire() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (here, there) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    setsockopt(&here, sockopt::PassCred, &true)?;
    Ok((here, there))
}

/// Sends a message, with a descriptor if one is given.
pub(crate) fn send(to: BorrowedFd<'_>, words: &[&str], descriptor: Option<RawFd>) -> Result<(), Errno> {
    let mut text = words.join("\t").into_bytes();
    text.truncate(LONGEST);
    let parts = [IoSlice::new(&text)];
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
    loop {
        match sendmsg::<()>(to.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

/// The next message; none when nobody can send any more.
pub(crate) fn receive(from: BorrowedFd<'_>) -> Result<Option<Message>, Errno> {
    let mut buffer = [0; LONGEST];
    let mut space = cmsg_space!(RawFd, UnixCredentials);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let (mut sender, mut descriptor) = (None, None);
    let count = loop {
        match recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno),
            Ok(received) => {
                for message in received.cmsgs()? {
                    match message {
                        ControlMessageOwned::ScmRights(rights) => {
                            descriptor = rights.first().copied().map(sys::own);
                        }
                        ControlMessageOwned::ScmCredentials(from) => sender = Some(Pid::from_raw(from.pid())),
                        _ => {}
                    }
                }
                break received.bytes;
            }
        }
    };
    if count == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&buffer[..count]);
    Ok(Some(Message { sender, words: text.split('\t').map(String::from).collect(), descriptor }))
}
