//! The trainer's own file system, built by the first process of the new namespaces: an empty root that holds only what
//! was admitted.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, pivot_root};

use crate::admit::Admitted;
use crate::brought::way;
use crate::cache::CACHE;
use crate::error::errno;
use crate::policy::{INPUTS, LIBRARIES, OUTPUTS, Policy};
use crate::{cache, probe, sys};

// Attributes of mount_setattr(2), from linux/mount.h.
const READ_ONLY: u64 = 0x1;
const NO_SET_ID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const NO_EXECUTION: u64 = 0x8;
const NO_LINKS: u64 = 0x20_0000;

/// Attributes of the inputs and of every other thing that is only read as data.
const DATA: u64 = READ_ONLY | NO_SET_ID | NO_DEVICES | NO_EXECUTION | NO_LINKS;
/// Attributes of the root itself, and of what was made in it.
pub(crate) const ROOT: u64 = READ_ONLY | NO_SET_ID | NO_DEVICES | NO_EXECUTION;
/// Attributes of programs and libraries, which are mapped executable.
const CODE: u64 = READ_ONLY | NO_SET_ID | NO_DEVICES;
/// Attributes of device nodes: a write to `/dev/null` is no write to the file system.
const DEVICE: u64 = READ_ONLY | NO_SET_ID | NO_EXECUTION;
/// Attributes of the outputs.
const OUTPUT: u64 = NO_SET_ID | NO_DEVICES | NO_EXECUTION | NO_LINKS;

/// Device nodes that the trainer gets: libtorch aborts without the second.
pub(crate) const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// The stage that failed, and the kernel's answer.
pub(crate) type Failed = (String, Errno);

/// What the new root is made of.
pub(crate) struct Tree<'a> {
    /// An empty host folder to mount it on.
    pub(crate) base: &'a Path,
    /// What was asked.
    pub(crate) policy: &'a Policy,
    /// Files that enter.
    pub(crate) admitted: &'a [Admitted],
    /// Owner of the output folder, as numbered in here.
    pub(crate) owner: u32,
}

/// Attempts and how they went.
pub(crate) type Outcomes = Vec<(&'static str, String)>;

/// What came of it.
pub(crate) struct Built {
    /// The output folder.
    pub(crate) outputs: OwnedFd,
    /// Why there is no `/proc`, when there is none.
    pub(crate) without_proc: Option<Errno>,
    /// Outcomes of the attempts on the output folder while it was small.
    pub(crate) twins: Outcomes,
}

/// Names of the attributes in `bits`, for the record.
pub(crate) fn names(bits: u64) -> Vec<String> {
    let all = [
        (READ_ONLY, "ro"),
        (NO_SET_ID, "nosuid"),
        (NO_DEVICES, "nodev"),
        (NO_EXECUTION, "noexec"),
        (NO_LINKS, "nosymfollow"),
    ];
    all.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| String::from(name)).collect()
}

/// Every mount of the trainer but files: where, and with which attributes.
pub(crate) fn folders() -> [(&'static str, u64); 5] {
    [
        ("/", ROOT),
        (INPUTS, DATA),
        (OUTPUTS, OUTPUT),
        ("/proc/pid", NO_SET_ID | NO_DEVICES | NO_EXECUTION),
        ("/dev", DEVICE),
    ]
}

/// Attributes of an admitted file.
pub(crate) fn code_attributes() -> u64 {
    CODE
}

impl Tree<'_> {
    /// Builds the root and moves into it. The host's is still mounted beside it: [`leave_the_host`] ends that.
    pub(crate) fn enter(&self) -> Result<Built, Failed> {
        // What is made here is for the trainer's user, whatever whoever started this hides from others.
        umask(Mode::from_bits_truncate(0o022));
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).map_err(at("making mounts private"))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("xt"), self.base, Some("tmpfs"), flags, Some("size=1m,nr_inodes=4096,mode=0755"))
            .map_err(at("mounting the root"))?;
        for folder in ["/dev", "/proc/pid", INPUTS, OUTPUTS, LIBRARIES] {
            fs::create_dir_all(self.place(Path::new(folder)))
                .map_err(|error| (format!("making {folder}"), errno(&error)))?;
        }
        let without_proc = self.process_folder()?;
        self.bind(&self.policy.inputs, Path::new(INPUTS), true, DATA)?;
        let roots = self.bind_roots()?;
        for file in self.admitted {
            file.ways.iter().try_for_each(|path| self.lead_to(path, &roots).map(drop))?;
            if !lies_in(&file.at, &roots) {
                self.bind_file(&file.source, &file.at, CODE)?;
            }
        }
        self.loaders_cache()?;
        for device in DEVICES {
            self.bind_file(Path::new(device), Path::new(device), DEVICE)?;
        }
        let twins = self.output_folder()?;
        self.pivot()?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let outputs = open(OUTPUTS, flags, Mode::empty()).map_err(at("opening the output folder"))?;
        Ok(Built { outputs, without_proc, twins })
    }

    fn place(&self, inside: &Path) -> PathBuf {
        self.base.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    fn bind_file(&self, source: &Path, inside: &Path, attributes: u64) -> Result<(), Failed> {
        let place = self.place(inside);
        let made = place.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::File::create(&place));
        made.map_err(|error| (format!("making {}", inside.display()), errno(&error)))?;
        self.bind(source, inside, false, attributes)
    }

    /// Files and folders of the host at their own places, and the links that lead there.
    fn bind_roots(&self) -> Result<Vec<PathBuf>, Failed> {
        let mut bound: Vec<PathBuf> = Vec::new();
        for root in &self.policy.brought.roots {
            let real = self.lead_to(&root.path, &bound)?;
            if real.is_dir() {
                fs::create_dir_all(self.place(&real))
                    .map_err(|error| (format!("making {}", real.display()), errno(&error)))?;
                self.bind(&real, &real, true, CODE)?;
            } else {
                self.bind_file(&real, &real, CODE)?;
            }
            bound.push(real);
        }
        Ok(bound)
    }

    /// Makes the links on the way to `path` again but for those in `roots`, and gives the end of the way.
    fn lead_to(&self, path: &Path, roots: &[PathBuf]) -> Result<PathBuf, Failed> {
        let (real, links) = way(path).map_err(|error| (format!("following {}", path.display()), errno(&error)))?;
        for (at, target) in links.iter().filter(|(at, _)| !lies_in(at, roots)) {
            let place = self.place(at);
            let made = place.parent().map_or(Ok(()), fs::create_dir_all);
            let made = made.and_then(|()| std::os::unix::fs::symlink(target, &place));
            match made {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err((format!("making the link {}", at.display()), errno(&error)));
                }
                _ => {}
            }
        }
        Ok(real)
    }

    /// What tells the loader of libraries outside its own folders, as the host's cache would.
    fn loaders_cache(&self) -> Result<(), Failed> {
        let Some(bytes) = cache::of_policy(self.policy) else { return Ok(()) };
        let place = self.place(Path::new(CACHE));
        if place.exists() {
            return Ok(());
        }
        let made = place.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&place, bytes));
        made.map_err(|error| (format!("making {CACHE}"), errno(&error)))
    }

    fn bind(&self, source: &Path, inside: &Path, recursive: bool, attributes: u64) -> Result<(), Failed> {
        let place = self.place(inside);
        let flags = if recursive { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
        mount(Some(source), &place, None::<&str>, flags, None::<&str>)
            .map_err(|errno| (format!("binding {}", source.display()), errno))?;
        attribute(&place, recursive, attributes)
    }

    /// `/proc` with the processor's description and, below `pid`, the trainer's own processes and nothing else.
    fn process_folder(&self) -> Result<Option<Errno>, Failed> {
        let folder = self.place(Path::new("/proc"));
        let write = || -> std::io::Result<()> {
            fs::File::create(folder.join("cpuinfo"))?.write_all(processor().as_bytes())?;
            std::os::unix::fs::symlink("pid/self", folder.join("self"))?;
            std::os::unix::fs::symlink("pid/thread-self", folder.join("thread-self"))
        };
        write().map_err(|error| ("filling /proc".into(), errno(&error)))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let options = Some("subset=pid,hidepid=2");
        Ok(mount(Some("proc"), &folder.join("pid"), Some("proc"), flags, options).err())
    }

    /// Mounts the output folder: first so small that going beyond its limits costs nothing, then with its real ones.
    fn output_folder(&self) -> Result<Outcomes, Failed> {
        let place = self.place(Path::new(OUTPUTS));
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        // The root folder of a tmpfs takes a file number itself.
        let limits = |bytes: u64, files: u64| format!("size={bytes},nr_inodes={}", files + 1);
        let (small, owner) = (limits(probe::TWIN_BYTES, probe::TWIN_FILES), self.owner);
        let options = format!("{small},mode=0700,uid={owner},gid={owner}");
        mount(Some("outputs"), &place, Some("tmpfs"), flags, Some(options.as_str()))
            .map_err(at("mounting the output folder"))?;
        let twins = probe::run_twins(&place);
        let real = limits(self.policy.limits.storage_bytes, self.policy.limits.file_count);
        mount(None::<&str>, &place, None::<&str>, flags | MsFlags::MS_REMOUNT, Some(real.as_str()))
            .map_err(at("widening the output folder"))?;
        attribute(&place, false, OUTPUT)?;
        Ok(twins)
    }

    fn pivot(&self) -> Result<(), Failed> {
        chdir(self.base).map_err(at("entering the root"))?;
        pivot_root(".", ".").map_err(at("changing the root"))?;
        chdir("/").map_err(at("entering the root"))?;
        attribute(Path::new("/"), false, ROOT)
    }
}

/// Lets go of the host's root. The kernel makes everyone on every processor notice that first, so that it takes a moment.
/// Whoever was forked meanwhile must not have gone up from `/`.
pub(crate) fn leave_the_host() -> Result<(), Failed> {
    umount2("/..", MntFlags::MNT_DETACH).map_err(at("leaving the host's root"))
}

fn lies_in(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

fn attribute(place: &Path, recursive: bool, attributes: u64) -> Result<(), Failed> {
    let stage = || format!("protecting {}", place.display());
    let path = CString::new(place.as_os_str().as_bytes()).map_err(|_| (stage(), Errno::EINVAL))?;
    sys::set_mount_attributes(&path, recursive, attributes).map_err(|errno| (stage(), errno))
}

/// The processor's description without what varies from moment to moment.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let varies = |line: &&str| line.starts_with("cpu MHz") || line.starts_with("bogomips");
    text.lines().filter(|line| !varies(line)).fold(String::new(), |all, line| all + line + "\n")
}

/// Names the stage at which a system call failed.
pub(crate) fn at(stage: &str) -> impl FnOnce(Errno) -> Failed + '_ {
    move |errno| (stage.into(), errno)
}
