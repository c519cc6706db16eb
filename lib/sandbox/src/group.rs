//! Control groups: the only limits on memory and processes that hold for a whole run. Version 1 and version 2
//! (cgroups(7)); few hosts grant them without root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::error::errno;
use crate::policy::Limits;

/// Folders of all groups start like this; the number of the process that made it follows.
const PREFIX: &str = "xt-run-";

/// The group of one run. Its folders are removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    memory: Result<Limited, Refused>,
    processes: Result<Limited, Refused>,
}

/// Why there is no limit: the stage and the kernel's answer.
pub(crate) type Refused = (&'static str, Errno);

/// A limit in force.
#[derive(Clone, Debug)]
struct Limited {
    folder: PathBuf,
    unified: bool,
}

/// What a group counted; absent when nobody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kills by the kernel for lack of memory.
    pub out_of_memory_kills: Option<u64>,
    /// Largest memory use in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Forks refused at the limit.
    pub process_limit_hits: Option<u64>,
}

impl Group {
    /// Makes what the host grants. `extra` processes of our own come on top of the limit.
    pub(crate) fn make(limits: &Limits, extra: u64) -> Self {
        let mut group = Self { folders: Vec::new(), memory: Err(NOWHERE), processes: Err(NOWHERE) };
        let parents = Parents::here();
        group.memory = group.limit(&parents, "memory", |folder, unified| {
            let bytes = limits.memory_bytes.to_string();
            if unified {
                fs::write(folder.join("memory.max"), &bytes)?;
                // Without swap accounting there is no such file, and then nothing to limit.
                return ignore_missing(fs::write(folder.join("memory.swap.max"), "0"));
            }
            fs::write(folder.join("memory.limit_in_bytes"), &bytes)?;
            ignore_missing(fs::write(folder.join("memory.memsw.limit_in_bytes"), &bytes))
        });
        group.processes = group.limit(&parents, "pids", |folder, _| {
            fs::write(folder.join("pids.max"), (limits.processes + extra).to_string())
        });
        group
    }

    fn limit(
        &mut self,
        parents: &Parents,
        controller: &str,
        set: impl Fn(&Path, bool) -> io::Result<()>,
    ) -> Result<Limited, Refused> {
        let (parent, unified) = parents.of(controller).ok_or(NOWHERE)?;
        sweep(&parent);
        if unified {
            enable(&parent, controller).map_err(|error| ("enabling the controller", errno(&error)))?;
        }
        let folder = self.folder(&parent).map_err(|error| ("making the group", errno(&error)))?;
        set(&folder, unified).map_err(|error| ("setting the limit", errno(&error)))?;
        Ok(Limited { folder, unified })
    }

    /// This run's folder below `parent`; the same one for every controller there.
    fn folder(&mut self, parent: &Path) -> io::Result<PathBuf> {
        if let Some(made) = self.folders.iter().find(|folder| folder.parent() == Some(parent)) {
            return Ok(made.clone());
        }
        for attempt in 0..1000 {
            let folder = parent.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => {
                    self.folders.push(folder.clone());
                    return Ok(folder);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Puts a process into the group; its children follow.
    pub(crate) fn join(&self, pid: Pid) -> Result<(), Errno> {
        let joined = |folder: &PathBuf| fs::write(folder.join("cgroup.procs"), pid.to_string());
        self.folders.iter().try_for_each(joined).map_err(|error| errno(&error))
    }

    /// The mechanism that limits memory, or why there is none.
    pub(crate) fn memory(&self) -> Result<&'static str, Refused> {
        self.memory
            .as_ref()
            .map(|limited| if limited.unified { "cgroup2: memory" } else { "cgroup: memory" })
            .map_err(|r| *r)
    }

    /// The mechanism that limits processes, or why there is none.
    pub(crate) fn processes(&self) -> Result<&'static str, Refused> {
        self.processes
            .as_ref()
            .map(|limited| if limited.unified { "cgroup2: pids" } else { "cgroup: pids" })
            .map_err(|r| *r)
    }

    /// What it has counted so far.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        if let Ok(memory) = &self.memory {
            let (events, peak) = if memory.unified {
                ("memory.events", "memory.peak")
            } else {
                ("memory.oom_control", "memory.max_usage_in_bytes")
            };
            counters.out_of_memory_kills = keyed(&memory.folder.join(events), "oom_kill");
            counters.peak_memory_bytes = single(&memory.folder.join(peak));
        }
        if let Ok(processes) = &self.processes {
            counters.process_limit_hits = keyed(&processes.folder.join("pids.events"), "max");
        }
        counters
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // The kernel frees the last process a moment after its end was reported. What stays is swept later.
            for _ in 0..100 {
                match fs::remove_dir(folder) {
                    Err(error) if errno(&error) == Errno::EBUSY => {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

const NOWHERE: Refused = ("looking for the controller", Errno::ENOENT);

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(errno(&error), Errno::ENOENT | Errno::EACCES | Errno::EOPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Hands a controller of version 2 down to children, unless it already is.
fn enable(parent: &Path, controller: &str) -> io::Result<()> {
    let file = parent.join("cgroup.subtree_control");
    if fs::read_to_string(&file)?.split_whitespace().any(|enabled| enabled == controller) {
        return Ok(());
    }
    fs::write(file, format!("+{controller}"))
}

/// Removes groups whose maker is dead. A group with processes cannot be removed, and stays.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('-').next());
        let dead = maker.and_then(|maker| maker.parse().ok());
        if dead.is_some_and(|maker| kill(Pid::from_raw(maker), None) == Err(Errno::ESRCH)) {
            fs::remove_dir(entry.path()).ok();
        }
    }
}

fn single(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn keyed(path: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// Where this process may make groups, by controller.
struct Parents {
    mounts: String,
    groups: String,
}

impl Parents {
    fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self { mounts: read("/proc/self/mountinfo"), groups: read("/proc/self/cgroup") }
    }

    /// The folder of this process's own group for `controller`, and whether it is of version 2.
    fn of(&self, controller: &str) -> Option<(PathBuf, bool)> {
        let own = |wanted: &dyn Fn(&str) -> bool| {
            self.groups.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                wanted(names).then(|| path.to_string())
            })
        };
        if let Some(path) = own(&|names| names.split(',').any(|name| name == controller)) {
            let mount = self.mount("cgroup", |options| options.split(',').any(|option| option == controller))?;
            return Some((below(&mount, &path), false));
        }
        let path = own(&str::is_empty)?;
        let folder = below(&self.mount("cgroup2", |_| true)?, &path);
        let controllers = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
        controllers.split_whitespace().any(|name| name == controller).then_some((folder, true))
    }

    /// Where a file system of this kind and with such options is mounted (proc_pid_mountinfo(5)).
    fn mount(&self, kind: &str, options: impl Fn(&str) -> bool) -> Option<PathBuf> {
        self.mounts.lines().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut back = back.split(' ');
            let found = back.next()? == kind && options(back.nth(1).unwrap_or_default());
            found.then(|| PathBuf::from(front.split(' ').nth(4).unwrap_or_default()))
        })
    }
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parents(groups: &str) -> Parents {
        let mounts = "36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      42 31 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        Parents { mounts: mounts.into(), groups: groups.into() }
    }

    #[test]
    fn the_folder_of_a_controller_follows_the_mount_and_the_own_group() {
        let parents = parents("8:pids:/\n4:memory:/user/7\n0::/\n");
        assert_eq!(parents.of("memory"), Some(("/sys/fs/cgroup/memory/user/7".into(), false)));
        assert_eq!(parents.of("pids"), Some(("/sys/fs/cgroup/pids/".into(), false)));
        assert_eq!(parents.of("cpu"), None);
    }

    #[test]
    fn a_kill_for_lack_of_memory_is_not_confused_with_the_setting_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.oom_control");
        fs::write(&path, "oom_kill_disable 0\nunder_oom 1\noom_kill 3\n").unwrap();
        assert_eq!(keyed(&path, "oom_kill"), Some(3));
        assert_eq!(keyed(&path, "oom"), None);
        assert_eq!(keyed(&folder.path().join("none"), "oom_kill"), None);
    }
}
