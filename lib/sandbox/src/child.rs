//! The trainer's process from its birth to its exec: it gives up one thing after the other, has every probe made, and
//! waits for the word to go.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, stat, umask};
use nix::unistd::{chdir, execve, getppid, pipe2, read, setsid, write};
use xt_core::manifest::custody::Layer;
use xt_core::manifest::intent::{Network, Profile};

use crate::admit::Admitted;
use crate::identity::Way;
use crate::limits::Bounds;
use crate::namespace::{Failed, at};
use crate::policy::Policy;
use crate::probe::{Scene, outcomes};
use crate::processor::Stay;
use crate::sys::{self, Fork};
use crate::wire::{receive, send};
use crate::{filter, outside, rules};

/// Descriptors are moved here, out of the way of the numbers that the policy names.
const ASIDE: i32 = 100;
/// How a process ends that could not become the trainer; the wire says why.
const FAILED: i32 = 127;

/// All that the new processes need to know. It is copied by the fork.
pub(crate) struct Setup<'a> {
    /// What was asked.
    pub(crate) policy: &'a Policy,
    /// Files that enter.
    pub(crate) admitted: &'a [Admitted],
    /// As whom the trainer runs.
    pub(crate) way: Way,
    /// Whether there are namespaces.
    pub(crate) namespaces: bool,
    /// User and group that start the run.
    pub(crate) starter: (u32, u32),
    /// Where the new root is mounted.
    pub(crate) base: &'a Path,
    /// What the probes reach for from inside.
    pub(crate) scene: &'a Scene,
    /// Write ends of standard output and standard error.
    pub(crate) streams: [RawFd; 2],
    /// The supervisor's ends of both wires, which its children inherit.
    pub(crate) supervisor: [RawFd; 2],
    /// The guard's end of its wire.
    pub(crate) guard: RawFd,
    /// The trainer's end of its wire.
    pub(crate) stage: RawFd,
    /// Where the trainer's process leaves its mark right before the exec.
    pub(crate) mark: Option<RawFd>,
}

/// Becomes the trainer.
pub(crate) fn become_trainer(setup: &Setup, bounds: Bounds, scene: &Scene, handoff: &OwnedFd, stay: Option<Stay>) -> ! {
    let mut wire = setup.stage;
    if let Err((stage, errno)) = prepare(setup, bounds, scene, handoff, &mut wire, stay) {
        tell(wire, &["failed", &stage, &(errno as i32).to_string()]);
    }
    sys::leave(FAILED)
}

/// Everything up to the exec; returns only with an error.
fn prepare(
    setup: &Setup,
    bounds: Bounds,
    scene: &Scene,
    handoff: &OwnedFd,
    wire: &mut RawFd,
    stay: Option<Stay>,
) -> Result<(), Failed> {
    let policy = setup.policy;
    setsid().map_err(at("making a session"))?;
    die_with_parent()?;
    let aside = |fd: RawFd| fcntl(sys::borrow(fd), FcntlArg::F_DUPFD_CLOEXEC(ASIDE)).map_err(at("moving a descriptor"));
    let handoff = aside(handoff.as_raw_fd())?;
    *wire = aside(setup.stage)?;
    let mark = setup.mark.map(aside).transpose()?;
    let kept: Vec<RawFd> = [*wire, handoff].into_iter().chain(mark).collect();
    place_descriptors(setup, &kept)?;
    bounds.apply()?;
    if policy.profile != Profile::None {
        setup.way.assume()?;
        sys::control(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(at("giving up new privileges"))?;
        // The change of user has cleared it.
        die_with_parent()?;
    }
    let capabilities = sys::capabilities().map_err(at("reading capabilities"))?;
    if setup.namespaces && getppid().as_raw() != 1 {
        return Err(("finding the guard".into(), Errno::ESRCH));
    }
    umask(Mode::from_bits_truncate(0o077));
    chdir(policy.outputs_inside()).map_err(at("entering the output folder"))?;
    let program = text(policy.program_inside().as_os_str().as_bytes())?;
    readable(setup.admitted)?;
    let mut layers = Vec::new();
    if policy.profile != Profile::None {
        layers.extend(layer("landlock", rules::confine(policy, setup.admitted, setup.namespaces)));
    }
    match receive(sys::borrow(handoff)) {
        Ok(Some(message)) if message.kind() == "rooted" => {}
        _ => sys::leave(0),
    }
    if policy.profile != Profile::None {
        layers.extend(layer("filter", install(setup.namespaces, policy.network, handoff)));
    }
    probes(scene, *wire)?;
    let capabilities = format!("{capabilities:x}");
    let words: Vec<&str> = ["ready", &capabilities].into_iter().chain(layers.iter().map(String::as_str)).collect();
    tell(*wire, &words);
    // From here on refused and noted calls are the trainer's own.
    tell(handoff, &["counting"]);
    match receive(sys::borrow(*wire)) {
        Ok(Some(message)) if message.kind() == "go" => {}
        _ => sys::leave(0),
    }
    let mut arguments = vec![program.clone()];
    for argument in &policy.arguments {
        arguments.push(text(argument.as_bytes())?);
    }
    let environment = environment(policy)?;
    stay.map_or(Ok(()), |stay| stay.end()).map_err(at("going back to all processors"))?;
    sys::reset_signals();
    SigSet::empty().thread_set_mask().map_err(at("clearing the signal mask"))?;
    if let Some(mark) = mark {
        write(sys::borrow(mark), b"1").map_err(at("leaving the mark of a start"))?;
    }
    let Err(errno) = execve(&program, &arguments, &environment);
    Err(("exec".into(), errno))
}

/// The environment as the exec passes it on, sorted by name.
fn environment(policy: &Policy) -> Result<Vec<CString>, Failed> {
    policy.environment.iter().map(|(key, value)| text(format!("{key}={value}").as_bytes())).collect()
}

fn text(bytes: &[u8]) -> Result<CString, Failed> {
    CString::new(bytes).map_err(|_| ("a text with a zero byte".into(), Errno::EINVAL))
}

fn die_with_parent() -> Result<(), Failed> {
    let signal = u64::from(libc::SIGKILL.cast_unsigned());
    sys::control(libc::PR_SET_PDEATHSIG, signal).map(drop).map_err(at("tying the trainer to its guard"))
}

/// Puts every descriptor at its number and closes all others but those in `kept`, which do not survive the exec.
fn place_descriptors(setup: &Setup, kept: &[RawFd]) -> Result<(), Failed> {
    let failed = || at("placing descriptors");
    let mut moved = Vec::new();
    let given = setup.policy.descriptors.iter().map(|(fd, target)| (fd.as_raw_fd(), *target));
    for (fd, target) in given.chain([(setup.streams[0], 1), (setup.streams[1], 2)]) {
        moved.push((fcntl(sys::borrow(fd), FcntlArg::F_DUPFD_CLOEXEC(ASIDE)).map_err(failed())?, target));
    }
    let null = open("/dev/null", OFlag::O_RDONLY, Mode::empty()).map_err(at("opening /dev/null"))?;
    sys::place(null.as_raw_fd(), 0).map_err(failed())?;
    std::mem::forget(null);
    for (fd, target) in &moved {
        sys::place(*fd, *target).map_err(failed())?;
    }
    let mut open: Vec<RawFd> = moved.iter().map(|(_, target)| *target).chain([0]).chain(kept.iter().copied()).collect();
    open.sort_unstable();
    sys::close_others(&open).map_err(at("closing descriptors"))
}

/// Says now, and with the file's name, what would otherwise be a puzzle of the loader.
fn readable(admitted: &[Admitted]) -> Result<(), Failed> {
    for file in admitted {
        let opened = open(&file.at, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        opened.map_err(|errno| (format!("reading {}", file.at.display()), errno))?;
        file.ways.iter().try_for_each(|path| leads_to(path, &file.at))?;
    }
    Ok(())
}

/// Makes sure that the loader, which comes by `path`, finds what lies at `at`.
fn leads_to(path: &Path, at: &Path) -> Result<(), Failed> {
    let failed = |errno| (format!("finding {} by {}", at.display(), path.display()), errno);
    let [found, meant] = [stat(path).map_err(failed)?, stat(at).map_err(failed)?];
    let same = (found.st_dev, found.st_ino) == (meant.st_dev, meant.st_ino);
    if same { Ok(()) } else { Err(failed(Errno::ESTALE)) }
}

/// How a layer fared: its name, the stage that failed and the error number. Going on without one is the supervisor's
/// decision, by its policy. Landlock comes before the filter, which would otherwise have to let it pass.
fn layer(name: &str, outcome: Result<(), Failed>) -> [String; 3] {
    match outcome {
        Ok(()) => [name.into(), String::new(), "0".into()],
        Err((stage, errno)) => [name.into(), stage, (errno as i32).to_string()],
    }
}

fn install(metadata: bool, network: Network, handoff: RawFd) -> Result<(), Failed> {
    if network != Network::None {
        return install_with_help(metadata, network, handoff);
    }
    match listener(metadata, network)? {
        Some(listener) => hand_over(listener.as_raw_fd(), handoff),
        None => Ok(()),
    }
}

fn listener(metadata: bool, network: Network) -> Result<Option<OwnedFd>, Failed> {
    let listener = match sys::install_filter(&filter::program(metadata, true, network), true) {
        // Someone around us already listens; calls are then refused without being counted, or go on without being noted.
        Err(Errno::EBUSY) => sys::install_filter(&filter::program(metadata, false, network), false),
        other => other,
    };
    listener.map_err(at("installing the filter"))
}

fn hand_over(listener: RawFd, handoff: RawFd) -> Result<(), Failed> {
    send(sys::borrow(handoff), &["listener"], Some(listener)).map_err(at("handing over the filter"))
}

/// Where messages are noted, handing the listener over would itself wait for somebody who listens. A process without the
/// filter, which has the same table of descriptors, does it.
fn install_with_help(metadata: bool, network: Network, handoff: RawFd) -> Result<(), Failed> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(at("making a pipe"))?;
    let helper = match sys::clone(libc::CLONE_FILES).map_err(at("making a helper"))? {
        Fork::Child => {
            let mut number = [0; 4];
            let listener = read(&reader, &mut number).ok().map(|_| i32::from_ne_bytes(number)).filter(|fd| *fd > 0);
            let handed = listener.map_or(Ok(()), |listener| hand_over(listener, handoff));
            sys::leave(i32::from(handed.is_err()))
        }
        Fork::Parent(helper) => helper,
    };
    let listener = listener(metadata, network);
    let number = listener.as_ref().ok().and_then(Option::as_ref).map_or(0, std::os::fd::AsRawFd::as_raw_fd);
    write(&writer, &number.to_ne_bytes()).map_err(at("asking the helper"))?;
    let status = sys::wait_process(helper).map_err(at("waiting for the helper"))?;
    // Kept open until the helper is gone: closed here, it would be closed there.
    listener.and_then(|_| if status == 0 { Ok(()) } else { Err(("handing over the filter".into(), Errno::EIO)) })
}

/// Has every probe made by a process that is what the trainer will be.
fn probes(scene: &Scene, wire: RawFd) -> Result<(), Failed> {
    let mut probe = || {
        outside::tell(sys::borrow(wire), Layer::All.word(), &outcomes(scene, |_| true));
        0
    };
    match sys::apart(0, &mut probe).map_err(at("making a probe"))? {
        0 => Ok(()),
        _ => Err(("a probe died".into(), Errno::EINTR)),
    }
}

/// Says something to whoever still listens; if nobody does, this process is about to end anyway.
pub(crate) fn tell(wire: RawFd, words: &[&str]) {
    send(sys::borrow(wire), words, None).ok();
}
