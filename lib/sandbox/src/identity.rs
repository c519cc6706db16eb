//! As whom the trainer runs, and how it gets there.

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use xt_core::manifest::intent::Network;

use crate::namespace::{Failed, at};
use crate::sys;

/// User and group of the trainer when root starts it: a number that no distribution gives to anybody (the range 60578
/// to 61183 is unused, says systemd's list of user numbers).
const DEDICATED: u32 = 61_183;
/// User and group of the trainer inside a user namespace of its own.
const MAPPED: u32 = 1000;
/// Highest capability number there can be.
const LAST_CAPABILITY: u64 = 63;

/// `CAP_SETGID` and `CAP_SETUID` of linux/capability.h.
const SET_GROUP_AND_USER: u64 = 1 << 6 | 1 << 7;

/// How the trainer is separated from the user who starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Root starts it: it becomes a user of its own.
    Dedicated,
    /// Anybody starts it: it stays the same user, in a user namespace of its own.
    Mapped,
    /// Anybody starts it and there are no namespaces: it stays the same user.
    Same,
}

impl Way {
    /// The way that this process can go. `namespaces` is whether the run gets namespaces.
    pub(crate) fn here(namespaces: bool) -> Self {
        if Uid::effective().is_root() && maps_dedicated() {
            Self::Dedicated
        } else if namespaces {
            Self::Mapped
        } else {
            Self::Same
        }
    }

    /// User number of the trainer as it sees itself.
    pub(crate) fn user(self) -> u32 {
        match self {
            Self::Dedicated => DEDICATED,
            Self::Mapped => MAPPED,
            Self::Same => Uid::effective().as_raw(),
        }
    }

    /// Namespaces to make, as flags of clone(2). Only an admitted network of the host is none of its own.
    pub(crate) fn namespaces(self, network: Network) -> i32 {
        let always = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        let all = if network == Network::Host { always } else { always | libc::CLONE_NEWNET };
        if self == Self::Mapped { all | libc::CLONE_NEWUSER } else { all }
    }

    /// In the first process of a new user namespace: names the user in it.
    pub(crate) fn map(self, user: u32, group: u32) -> Result<(), Failed> {
        if self != Self::Mapped {
            return Ok(());
        }
        let write = |name: &str, text: String| {
            std::fs::write(format!("/proc/self/{name}"), text)
                .map_err(|error| (format!("writing {name}"), crate::error::errno(&error)))
        };
        write("uid_map", format!("{MAPPED} {user} 1"))?;
        write("setgroups", "deny".into())?;
        write("gid_map", format!("{MAPPED} {group} 1"))
    }

    /// Gives up every privilege of the calling process for ever; needs no capability to have been there.
    pub(crate) fn assume(self) -> Result<(), Failed> {
        for capability in 0..=LAST_CAPABILITY {
            match sys::control(libc::PR_CAPBSET_DROP, capability) {
                Ok(_) => {}
                Err(Errno::EINVAL) => break,
                // Without CAP_SETPCAP nothing can be dropped; no new privileges then closes the way through an exec.
                Err(Errno::EPERM) if self == Self::Same => break,
                Err(errno) => return Err(("dropping capabilities".into(), errno)),
            }
        }
        if self == Self::Dedicated {
            self.become_dedicated()?;
        }
        sys::drop_capabilities().map_err(at("dropping capabilities"))
    }

    /// Becomes the trainer's user, but not yet harmless: what the control arm of the probes runs as.
    pub(crate) fn become_dedicated(self) -> Result<(), Failed> {
        if self != Self::Dedicated {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(DEDICATED), Gid::from_raw(DEDICATED));
        setgroups(&[]).map_err(at("leaving groups"))?;
        setresgid(group, group, group).map_err(at("changing the group"))?;
        setresuid(user, user, user).map_err(at("changing the user"))
    }
}

/// Whether this user namespace knows the dedicated number, and this process may take it.
fn maps_dedicated() -> bool {
    let covers = |line: &str| {
        let mut fields = line.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
        let (first, _, count) = (fields.next(), fields.next(), fields.next());
        first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&u64::from(DEDICATED)))
    };
    let maps = |name: &str| std::fs::read_to_string(name).is_ok_and(|text| text.lines().any(covers));
    let may = sys::capabilities().is_ok_and(|held| held & SET_GROUP_AND_USER == SET_GROUP_AND_USER);
    may && maps("/proc/self/uid_map") && maps("/proc/self/gid_map")
}
