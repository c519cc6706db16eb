//! Which process it was, and whether it still is. A process number alone says nothing: numbers are used again.

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use xt_core::canonical::parse;
use xt_core::fault::Faults;
use xt_core::field::Field as _;
use xt_core::manifest::status::{Liveness, Supervisor};

/// One process of one boot of one machine (X88).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number, within its namespace.
    pub pid: u32,
    /// Clock ticks from boot to its start: field 22 of `/proc/PID/stat` (proc_pid_stat(5)).
    pub start_time: u64,
    /// Id of the boot: `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// The namespace that the number belongs to: inode of `/proc/PID/ns/pid`.
    pub namespace: u64,
}

impl Process {
    /// This process.
    pub fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this number now, seen from this process's namespace.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, start_time) = state_and_start(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, start_time, boot_id: boot_id()?, namespace: own_namespace()? })
    }

    /// Whether it still runs. It is looked at, never signalled.
    ///
    /// Another boot counts as over: a store lies on one machine, since SQLite's write-ahead log cannot be shared
    /// between two.
    pub fn liveness(&self) -> Liveness {
        match (boot_id(), own_namespace()) {
            (Ok(boot), _) if boot != self.boot_id => Liveness::Dead,
            (Ok(_), Ok(namespace)) if namespace == self.namespace => self.look(),
            _ => Liveness::Unknown,
        }
    }

    fn look(&self) -> Liveness {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok();
        judge(stat.as_deref().and_then(state_and_start), self.start_time, || self.exists())
    }

    /// Asks with signal 0, which is delivered to nobody: kill(2), "existence and permission checks".
    fn exists(&self) -> Result<(), Errno> {
        let pid = i32::try_from(self.pid).ok().filter(|pid| *pid > 0).ok_or(Errno::ESRCH)?;
        kill(Pid::from_raw(pid), None)
    }

    /// As it stands in the record.
    pub fn parse(text: &str) -> Option<Self> {
        let mut faults = Faults::new();
        let found = Supervisor::read(&parse(text.as_bytes()).ok()?, "", &mut faults)?;
        let pid = u32::try_from(found.pid).ok()?;
        Some(Self { pid, start_time: found.start_time, boot_id: found.boot_id, namespace: found.namespace })
    }

    /// As it stands in documents and in an event's payload.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor {
            pid: self.pid.into(),
            start_time: self.start_time,
            boot_id: self.boot_id.clone(),
            namespace: self.namespace,
        }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} (start {}, boot {})", self.pid, self.start_time, self.boot_id)
    }
}

/// Judges from state and start time of the process that has the number, if `/proc` shows one, and from the kernel's
/// answer whether the number is in use: `/proc` may be mounted so that it hides processes of others.
fn judge(shown: Option<(char, u64)>, start_time: u64, exists: impl FnOnce() -> Result<(), Errno>) -> Liveness {
    match shown {
        // An ended process whose parent has not asked for its exit status keeps its number.
        Some(('Z' | 'X', _)) => Liveness::Dead,
        Some((_, start)) if start == start_time => Liveness::Alive,
        Some(_) => Liveness::Dead,
        None if exists() == Err(Errno::ESRCH) => Liveness::Dead,
        None => Liveness::Unknown,
    }
}

/// Fields 3 and 22 of `/proc/PID/stat`. Field 2 is the program's name in parentheses and may itself hold blanks and
/// parentheses, so counting begins after the last one.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_string())
}

/// The namespace whose numbers `/proc` shows and this process uses. When the two differ, as after entering a namespace
/// without mounting its `/proc`, numbers found there mean something else, and there is no answer.
fn own_namespace() -> io::Result<u64> {
    let shown = fs::read_link("/proc/self")?;
    if shown.to_str() != Some(std::process::id().to_string().as_str()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let link = fs::read_link("/proc/self/ns/pid")?;
    let inode = link.to_str().and_then(|text| text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    inode.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let fields: Vec<String> = (4..=52).map(|n| (n * 10).to_string()).collect();
        let stat = format!("7 (a) b (c) S {}", fields.join(" "));
        assert_eq!(state_and_start(&stat), Some(('S', 220)));
        assert_eq!(state_and_start("7 (a) S 1 2"), None);
    }

    #[test]
    fn only_a_free_number_or_another_start_time_is_dead() {
        let free = || Err(Errno::ESRCH);
        for (shown, exists, liveness) in [
            (Some(('S', 5)), Ok(()), Liveness::Alive),
            (Some(('R', 5)), Err(Errno::EPERM), Liveness::Alive),
            (Some(('S', 6)), Ok(()), Liveness::Dead),
            (Some(('Z', 5)), Ok(()), Liveness::Dead),
            (None, free(), Liveness::Dead),
            (None, Err(Errno::EPERM), Liveness::Unknown),
            (None, Ok(()), Liveness::Unknown),
            (None, Err(Errno::EINVAL), Liveness::Unknown),
        ] {
            assert_eq!(judge(shown, 5, || exists), liveness, "{shown:?} {exists:?}");
        }
    }
}
