//! Control groups: the only limits on memory, processes and processor time that hold for a whole run. Version 1 and 2
//! (cgroups(7)); few hosts grant them without root.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
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
    processor: Result<Limited, Refused>,
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
    /// Periods of a tenth of a second in which processor time ran out.
    pub throttled_periods: Option<u64>,
    /// Nanoseconds that threads waited because of that.
    pub throttled_nanoseconds: Option<u64>,
}

/// Microseconds over which processor time is granted: the kernel's own choice (`cpu.max` in cgroups(7)).
const PERIOD: u64 = 100_000;

impl Group {
    /// Makes what the host grants. `extra` processes of our own come on top of the limit.
    pub(crate) fn make(limits: &Limits, extra: u64) -> Self {
        Self::below(&Parents::here(), limits, extra)
    }

    /// No limit at all.
    pub(crate) fn none() -> Self {
        Self { folders: Vec::new(), memory: Err(NOWHERE), processes: Err(NOWHERE), processor: Err(NOWHERE) }
    }

    fn below(parents: &Parents, limits: &Limits, extra: u64) -> Self {
        let mut group = Self::none();
        group.memory = group.limit(parents, "memory", |folder, unified| {
            let bytes = limits.memory_bytes.to_string();
            if unified {
                write(&folder.join("memory.max"), &bytes)?;
                // Without swap accounting there is no such file, and then nothing to limit.
                return ignore_missing(write(&folder.join("memory.swap.max"), "0"));
            }
            write(&folder.join("memory.limit_in_bytes"), &bytes)?;
            ignore_missing(write(&folder.join("memory.memsw.limit_in_bytes"), &bytes))
        });
        group.processes = group.limit(parents, "pids", |folder, _| {
            write(&folder.join("pids.max"), &(limits.processes + extra).to_string())
        });
        group.processor = group.limit(parents, "cpu", |folder, unified| {
            let quota = limits.cores.saturating_mul(PERIOD);
            if unified {
                return write(&folder.join("cpu.max"), &format!("{quota} {PERIOD}"));
            }
            write(&folder.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
            write(&folder.join("cpu.cfs_quota_us"), &quota.to_string())
        });
        group
    }

    fn limit(
        &mut self,
        parents: &Parents,
        controller: &str,
        set: impl Fn(&Path, bool) -> io::Result<()>,
    ) -> Result<Limited, Refused> {
        let (parent, unified) = parents.of(controller)?;
        let folder = self.folder(&parent).map_err(|error| ("making the group", errno(&error)))?;
        set(&folder, unified).map_err(|error| ("setting the limit", errno(&error)))?;
        Ok(Limited { folder, unified })
    }

    /// This run's folder below `parent`; the same one for every controller there.
    fn folder(&mut self, parent: &Path) -> io::Result<PathBuf> {
        if let Some(made) = self.folders.iter().find(|folder| folder.parent() == Some(parent)) {
            return Ok(made.clone());
        }
        sweep(parent);
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

    /// One file for each folder; a process that writes `0` to it joins. In version 1 it moves a thread, not a process: for
    /// a process of one thread that is the same, and the kernel need not wait for every processor before it does it.
    pub(crate) fn doors(&self) -> impl Iterator<Item = io::Result<OwnedFd>> {
        let open = |path: PathBuf| fs::File::options().write(true).open(path).map(OwnedFd::from);
        let unified = |folder: &Path| folder.join("cgroup.controllers").exists();
        self.folders.iter().map(move |folder| open(folder.join(if unified(folder) { "cgroup.procs" } else { "tasks" })))
    }

    /// Takes note that the door with this number did not open.
    pub(crate) fn refuse(&mut self, door: usize, errno: Errno) {
        let Some(folder) = self.folders.get(door) else { return };
        for limited in [&mut self.memory, &mut self.processes, &mut self.processor] {
            if limited.as_ref().is_ok_and(|limited| limited.folder == *folder) {
                *limited = Err(("joining the group", errno));
            }
        }
    }

    /// The mechanism that limits memory, or why there is none.
    pub(crate) fn memory(&self) -> Result<&'static str, Refused> {
        named(&self.memory, ["cgroup: memory", "cgroup2: memory"])
    }

    /// The mechanism that limits processes, or why there is none.
    pub(crate) fn processes(&self) -> Result<&'static str, Refused> {
        named(&self.processes, ["cgroup: pids", "cgroup2: pids"])
    }

    /// The mechanism that limits processor time, or why there is none.
    pub(crate) fn processor(&self) -> Result<&'static str, Refused> {
        named(&self.processor, ["cgroup: cpu", "cgroup2: cpu"])
    }

    /// Kills everything in it: what is left when nobody guards it any more. New processes are met in the next round; at the
    /// limit of processes there are no endless rounds.
    pub(crate) fn kill(&self) {
        for _ in 0..1000 {
            let lists = self.folders.iter().map(|folder| fs::read_to_string(folder.join("cgroup.procs")));
            let all: String = lists.map(Result::unwrap_or_default).collect();
            let numbers: Vec<i32> = all.split_whitespace().filter_map(|number| number.parse().ok()).collect();
            // 0 stands for whoever this process cannot see.
            for number in numbers.iter().filter(|number| **number > 0) {
                kill(Pid::from_raw(*number), Signal::SIGKILL).ok();
            }
            if numbers.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
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
        if let Ok(processor) = &self.processor {
            let path = processor.folder.join("cpu.stat");
            counters.throttled_periods = keyed(&path, "nr_throttled");
            counters.throttled_nanoseconds = if processor.unified {
                keyed(&path, "throttled_usec").map(|microseconds| microseconds.saturating_mul(1000))
            } else {
                keyed(&path, "throttled_time")
            };
        }
        counters
    }
}

fn named(limited: &Result<Limited, Refused>, names: [&'static str; 2]) -> Result<&'static str, Refused> {
    limited.as_ref().map(|limited| names[usize::from(limited.unified)]).map_err(|refused| *refused)
}

/// Writes to a file of the kernel, which nobody makes by opening it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut fs::File::options().write(true).open(path)?, text.as_bytes())
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // The kernel frees the last process a moment after its end was reported. What stays is swept later.
            for attempt in 0..60 {
                match fs::remove_dir(folder) {
                    Err(error) if errno(&error) == Errno::EBUSY => {
                        std::thread::sleep(std::time::Duration::from_micros(50 << (attempt / 8)));
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

/// The group of version 2 below which one with this controller can be made: the nearest, from the own one up to the top of
/// what is mounted, that hands the controller down. Most often it is an ancestor, because a group with processes of its own
/// cannot (the rule of no internal processes, cgroups(7)).
fn dividing(mount: &Path, own: &Path, controller: &str) -> Result<PathBuf, Refused> {
    let holds = |file: PathBuf| {
        fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|name| name == controller))
    };
    if !holds(own.join("cgroup.controllers")) {
        return Err(NOWHERE);
    }
    let handed_down = |folder: &&Path| holds(folder.join("cgroup.subtree_control"));
    if let Some(folder) = own.ancestors().take_while(|folder| folder.starts_with(mount)).find(handed_down) {
        return Ok(folder.into());
    }
    // Only here: what an ancestor hands down is not ours to change.
    match write(&own.join("cgroup.subtree_control"), &format!("+{controller}")) {
        Ok(()) => Ok(own.into()),
        Err(error) => Err(("enabling the controller", errno(&error))),
    }
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

    /// The folder below which a group with `controller` can be made, and whether it is of version 2.
    fn of(&self, controller: &str) -> Result<(PathBuf, bool), Refused> {
        let own = |wanted: &dyn Fn(&str) -> bool| {
            self.groups.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                wanted(names).then(|| path.to_string())
            })
        };
        if let Some(path) = own(&|names| names.split(',').any(|name| name == controller)) {
            let mount = self.mount("cgroup", |options| options.split(',').any(|option| option == controller));
            return mount.map(|mount| (below(&mount, &path), false)).ok_or(NOWHERE);
        }
        let path = own(&str::is_empty).ok_or(NOWHERE)?;
        let mount = self.mount("cgroup2", |_| true).ok_or(NOWHERE)?;
        dividing(&mount, &below(&mount, &path), controller).map(|folder| (folder, true))
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

    const LIMITS: Limits = Limits { processes: 40, ..Limits::of(3, 256 << 20, 1 << 20) };

    /// A folder that looks like a mounted version 2, with a group `a/b` for this process, and who may hand down what.
    fn unified(own: &str, handed_down: &[(&str, &str)]) -> (tempfile::TempDir, Parents) {
        let mount = tempfile::tempdir().unwrap();
        fs::create_dir_all(mount.path().join("a/b")).unwrap();
        for folder in ["", "a", "a/b"] {
            fs::write(mount.path().join(folder).join("cgroup.controllers"), "cpuset cpu memory pids\n").unwrap();
        }
        for (folder, controllers) in handed_down {
            fs::write(mount.path().join(folder).join("cgroup.subtree_control"), controllers).unwrap();
        }
        let mounts = format!("42 31 0:39 / {} rw - cgroup2 cgroup2 rw\n", mount.path().display());
        (mount, Parents { mounts, groups: format!("0::{own}\n") })
    }

    /// A group of version 2 in a folder whose files are made when the folder is, as the kernel makes them.
    fn group_in(folder: &Path) -> Group {
        for (name, text) in [
            ("memory.max", "max\n"),
            ("memory.events", "low 0\nhigh 2\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n"),
            ("memory.peak", "123456\n"),
            ("pids.max", "max\n"),
            ("pids.events", "max 7\n"),
            ("cpu.max", "max 100000\n"),
            ("cpu.stat", "usage_usec 9\nnr_periods 5\nnr_throttled 2\nthrottled_usec 31\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let limited = || Ok(Limited { folder: folder.into(), unified: true });
        Group { folders: Vec::new(), memory: limited(), processes: limited(), processor: limited() }
    }

    #[test]
    fn the_counters_of_version_2_are_read_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let group = group_in(folder.path());
        let expected = Counters {
            out_of_memory_kills: Some(3),
            peak_memory_bytes: Some(123_456),
            process_limit_hits: Some(7),
            throttled_periods: Some(2),
            throttled_nanoseconds: Some(31_000),
        };
        assert_eq!(group.counters(), expected);
        assert_eq!(group.memory(), Ok("cgroup2: memory"));
        assert_eq!((group.processes(), group.processor()), (Ok("cgroup2: pids"), Ok("cgroup2: cpu")));
    }

    #[test]
    fn a_group_of_version_2_goes_below_the_nearest_one_that_hands_the_controller_down() {
        let (mount, parents) = unified("/a/b", &[("a", "cpu memory"), ("", "cpu memory pids")]);
        assert_eq!(parents.of("memory"), Ok((mount.path().join("a"), true)));
        assert_eq!(parents.of("pids"), Ok((mount.path().to_path_buf(), true)));
        // Nothing is handed down yet, and it can be: the file takes what is written.
        let (mount, parents) = unified("/a/b", &[("a/b", "")]);
        assert_eq!(parents.of("memory"), Ok((mount.path().join("a/b"), true)));
        let written = fs::read_to_string(mount.path().join("a/b/cgroup.subtree_control")).unwrap();
        assert_eq!(written, "+memory");
        // Nobody can hand it down, or it does not exist at all.
        let (_mount, parents) = unified("/a/b", &[]);
        assert_eq!(parents.of("memory"), Err(("enabling the controller", Errno::ENOENT)));
        assert_eq!(parents.of("rdma"), Err(NOWHERE));
    }

    #[test]
    fn a_limit_of_version_2_that_cannot_be_set_is_refused_with_its_stage() {
        // In a folder that is no control group there are no files to write to.
        let (mount, parents) = unified("/a/b", &[("a/b", "cpu memory pids")]);
        let group = Group::below(&parents, &LIMITS, 1);
        assert_eq!(group.memory(), Err(("setting the limit", Errno::ENOENT)));
        assert_eq!(group.folders, [mount.path().join(format!("a/b/{PREFIX}{}-0", std::process::id()))]);
        let made = group.folders[0].clone();
        drop(group);
        assert!(!made.exists(), "the folder outlives its group");
    }

    #[test]
    fn a_door_that_stays_shut_takes_its_limits_away_and_no_others() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut group = group_in(one.path());
        group.processor = Ok(Limited { folder: other.path().into(), unified: false });
        group.folders = vec![one.path().into(), other.path().into()];
        group.refuse(1, Errno::EINVAL);
        assert_eq!(group.processor(), Err(("joining the group", Errno::EINVAL)));
        assert_eq!(group.memory(), Ok("cgroup2: memory"));
        group.folders.clear();
    }

    fn parents(groups: &str) -> Parents {
        let mounts = "36 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      42 31 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        Parents { mounts: mounts.into(), groups: groups.into() }
    }

    #[test]
    fn the_folder_of_a_controller_follows_the_mount_and_the_own_group() {
        let parents = parents("8:pids:/\n4:memory:/user/7\n0::/\n");
        assert_eq!(parents.of("memory"), Ok(("/sys/fs/cgroup/memory/user/7".into(), false)));
        assert_eq!(parents.of("pids"), Ok(("/sys/fs/cgroup/pids/".into(), false)));
        assert_eq!(parents.of("cpu"), Err(NOWHERE));
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
