//! The supervisor's side: it lays out bait, makes the processes, judges the proofs, and gives the word to go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getegid, geteuid, pipe2, read, write};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::intent::Profile;

use crate::admit::{Admitted, admit, check, digests};
use crate::brought;
use crate::canary::Canary;
use crate::child::Setup;
use crate::collect::Outputs;
use crate::ending::{Ending, ended};
use crate::error::{SandboxError, doing};
use crate::evidence::{Evidence, judge, mounts};
use crate::group::Group;
use crate::guard::guard;
use crate::identity::Way;
use crate::limits::{Bounds, threads_of};
use crate::mapped::{Mapped, mapped};
use crate::outside::{Outside, note};
use crate::policy::Policy;
use crate::probe;
use crate::sys::{self, Fork};
use crate::wire::{Message, receive, send, wire};

/// A trainer that runs in custody.
#[derive(Debug)]
pub struct Running {
    custody: Custody,
    environment: BTreeMap<String, String>,
    guard: Pid,
    process: OwnedFd,
    wire: OwnedFd,
    trainer: Pid,
    streams: Option<(OwnedFd, OwnedFd)>,
    outputs: Option<Outputs>,
    group: Group,
    over: bool,
}

/// Sets everything up, proves it, and starts the trainer. The caller should have no other thread.
pub fn start(policy: Policy) -> Result<Running, SandboxError> {
    start_marking(policy, None)
}

/// The same, with a file in which the process that becomes the trainer writes a byte as its last act before the exec, and
/// which it keeps open until then. Whoever comes after a crash, and finds that no process has the file open any more (as
/// the lock of an open file tells, flock(2)), knows by its size whether there can have been a trainer.
///
/// The mark is not flushed: what a power failure loses, no process of this boot asks for.
pub fn start_marking(mut policy: Policy, mark: Option<BorrowedFd<'_>>) -> Result<Running, SandboxError> {
    check(&policy)?;
    add_places(&mut policy);
    let admitted = admit(&policy)?;
    let namespaces = policy.profile == Profile::Full;
    let mut standing = stand(&policy, &admitted, namespaces, mark)?;
    // With this the controls were not even reached: it is no finding about the host.
    if let Some((stage, errno)) = standing.evidence.failed.take() {
        return Err(SandboxError::NotStarted { program: policy.program, stage, errno });
    }
    if let Some(errno) = standing.evidence.without_proc.filter(|_| brought::needs_origin(&policy)) {
        let stage = "the loader looks for libraries from where the program lies ($ORIGIN), which it learns from /proc, and \
                     the host grants no fresh /proc";
        return Err(SandboxError::NotStarted { program: policy.program, stage: stage.into(), errno });
    }
    let mut custody = judge(&policy, &standing.evidence);
    let missing = crate::evidence::missing(&custody);
    if missing.is_empty() {
        standing.let_go()?;
    }
    // Hashing takes longer than all the rest, and nobody but the record waits for it: the trainer starts meanwhile.
    custody.mounts = mounts(&policy, &admitted, &digests(&policy, &admitted)?);
    if !missing.is_empty() {
        return Err(SandboxError::Unenforced { custody: Box::new(custody), missing });
    }
    standing.started(&policy, custody)
}

/// Tells the trainer where its folders are.
fn add_places(policy: &mut Policy) {
    let place = |path: &Path| path.to_string_lossy().into_owned();
    let (inputs, outputs) = (place(policy.inputs_inside()), place(policy.outputs_inside()));
    policy.environment.insert("XT_INPUTS".into(), inputs);
    policy.environment.insert("XT_OUTPUTS".into(), outputs);
    if policy.own_root() || policy.brought.program_at.is_some() {
        return;
    }
    let folders: std::collections::BTreeSet<String> =
        policy.libraries.iter().filter_map(|library| library.parent()).map(place).collect();
    if !folders.is_empty() {
        let joined = folders.into_iter().collect::<Vec<_>>().join(":");
        policy.environment.insert("LD_LIBRARY_PATH".into(), joined);
    }
}

/// A sandbox that stands, with a process in it that waits for the word to become the trainer.
pub(crate) struct Standing {
    pub(crate) evidence: Evidence,
    guard: Option<Guarded>,
    stage: OwnedFd,
    streams: (OwnedFd, OwnedFd),
    trainer: Option<Pid>,
    outputs: Option<OwnedFd>,
    group: Group,
    /// Whether the guard has said all that it had to say before the trainer's process was probed.
    rooted: bool,
    /// Alive until the trainer's process has been probed.
    outside: Option<Outside>,
    canary: Canary,
}

/// The guard's process. Dropped, it is killed with everything it guards.
struct Guarded {
    pid: Pid,
    process: OwnedFd,
    wire: Option<OwnedFd>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.take() {
            // Silence tells a guard without namespaces to kill its charges and go; others die with their namespace.
            drop(wire);
            sys::wait_process(self.pid).ok();
        }
    }
}

/// Makes the sandbox and has it probed.
pub(crate) fn stand(
    policy: &Policy,
    admitted: &[Admitted],
    namespaces: bool,
    mark: Option<BorrowedFd<'_>>,
) -> Result<Standing, SandboxError> {
    let way = if policy.profile == Profile::None { Way::Same } else { Way::here(namespaces) };
    let canary = Canary::place()?;
    if way == Way::Dedicated && !namespaces {
        give_outputs(policy, way)?;
    }
    let mut scene = canary.scene(policy.inputs_inside(), policy.outputs_inside())?;
    scene.limits = Some(policy.limits);
    let (guard_wire, guard_end) = wire().map_err(doing("making a wire"))?;
    let (stage, stage_end) = wire().map_err(doing("making a wire"))?;
    let (stdout, stdout_end) = pipe2(OFlag::O_CLOEXEC).map_err(doing("making a pipe"))?;
    let (stderr, stderr_end) = pipe2(OFlag::O_CLOEXEC).map_err(doing("making a pipe"))?;
    let setup = Setup {
        policy,
        admitted,
        way,
        namespaces,
        starter: (geteuid().as_raw(), getegid().as_raw()),
        base: &canary.root(),
        scene: &scene,
        streams: [stdout_end.as_raw_fd(), stderr_end.as_raw_fd()],
        supervisor: [guard_wire.as_raw_fd(), stage.as_raw_fd()],
        guard: guard_end.as_raw_fd(),
        stage: stage_end.as_raw_fd(),
        mark: mark.map(|mark| mark.as_raw_fd()),
    };
    let launched = launch(&setup)?;
    drop((guard_end, stage_end, stdout_end, stderr_end));
    let mut standing = Standing {
        evidence: Evidence::new(way, namespaces),
        guard: None,
        stage,
        streams: (stdout, stderr),
        trainer: None,
        outputs: None,
        group: Group::none(),
        rooted: false,
        outside: None,
        canary,
    };
    match launched {
        Err(errno) => standing.evidence.namespaces = Err(("making namespaces".into(), errno)),
        Ok(pid) => {
            let process = sys::process_descriptor(pid).map_err(doing("opening the guard's process"))?;
            standing.guard = Some(Guarded { pid, process, wire: Some(guard_wire) });
        }
    }
    // What follows happens while the guard builds its root, which waits for the groups first: they come before what only
    // has to be there at the end.
    standing.group = Group::make(&policy.limits, 1);
    standing.canary.lay_out()?;
    let open = standing.canary.open_folder();
    let layers = (policy.profile != Profile::None).then_some(policy.network);
    let outside = Outside::begin(way, layers, &standing.canary.scene(&open, &open)?)?;
    if standing.guard.is_some() {
        standing.follow(bounds(policy, admitted, way, &standing.group), &outside)?;
    }
    standing.evidence.limits(&standing.group);
    outside.finish(&mut standing.evidence.tried)?;
    outside.dismiss();
    standing.outside = Some(outside);
    Ok(standing)
}

/// Room for processes of other runs of the same user.
const NEIGHBOURS: u64 = 1 << 20;

/// The limits as the kernel counts: with the guard and whoever else is the same user.
fn bounds(policy: &Policy, admitted: &[Admitted], way: Way, group: &Group) -> Bounds {
    let others = match way {
        Way::Mapped => 1,
        // The kernel counts every process of the user, and runs that start later are of the same user: where a control
        // group bounds this run alone, they must not use up its share.
        Way::Dedicated | Way::Same if group.processes().is_ok() => NEIGHBOURS,
        Way::Dedicated | Way::Same => threads_of(way.user()) + 1,
    };
    let size = |file: &Admitted| std::fs::metadata(&file.source).map_or(0, |found| found.len());
    let mapped = (policy.profile != Profile::None && group.memory().is_err()).then(|| admitted.iter().map(size).sum());
    Bounds::new(policy.limits, others, mapped)
}

/// Without a file system of its own, the trainer's user needs the output folder itself.
fn give_outputs(policy: &Policy, way: Way) -> Result<(), SandboxError> {
    std::os::unix::fs::chown(&policy.outputs, Some(way.user()), Some(way.user())).map_err(|error| {
        SandboxError::System {
            what: "giving the output folder to the trainer's user".into(),
            errno: crate::error::errno(&error),
        }
    })
}

/// Makes the guard. The inner error is the kernel's refusal of namespaces.
fn launch(setup: &Setup) -> Result<Result<Pid, Errno>, SandboxError> {
    if !setup.namespaces {
        return match sys::fork().map_err(doing("forking the guard"))? {
            Fork::Child => guard(setup),
            Fork::Parent(pid) => Ok(Ok(pid)),
        };
    }
    let flags = setup.way.namespaces(setup.policy.network);
    if !sys::has_one_thread() {
        return launch_among_threads(setup, flags);
    }
    Ok(match sys::clone(flags) {
        Ok(Fork::Child) => guard(setup),
        Ok(Fork::Parent(pid)) => Ok(pid),
        Err(errno) => Err(errno),
    })
}

/// Makes the guard by a process in between, which has one thread whatever the caller has: the guard is the caller's child.
fn launch_among_threads(setup: &Setup, flags: i32) -> Result<Result<Pid, Errno>, SandboxError> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(doing("making a pipe"))?;
    let between = match sys::fork().map_err(doing("forking"))? {
        Fork::Child => match sys::clone(flags | libc::CLONE_PARENT) {
            Ok(Fork::Child) => guard(setup),
            Ok(Fork::Parent(pid)) => {
                write(&writer, &pid.as_raw().to_ne_bytes()).ok();
                sys::leave(0)
            }
            Err(errno) => sys::leave(errno as i32),
        },
        Fork::Parent(between) => between,
    };
    drop(writer);
    let status = sys::wait_process(between).map_err(doing("waiting for a fork"))?;
    let mut number = [0; 4];
    match probe::ended(status) {
        Err(errno) => Ok(Err(errno)),
        Ok(()) if read(&reader, &mut number) == Ok(4) => Ok(Ok(Pid::from_raw(i32::from_ne_bytes(number)))),
        Ok(()) => Err(SandboxError::Lost("nobody knows its number".into())),
    }
}

impl Standing {
    /// Has the guard join the control groups and go on, and takes in what guard and trainer report until the trainer
    /// waits for the word, or cannot.
    fn follow(&mut self, bounds: Bounds, outside: &Outside) -> Result<(), SandboxError> {
        self.join();
        outside.ready()?;
        let [processes, space] = bounds.numbers().map(|number| number.to_string());
        self.say(&["begin", &processes, &space, &outside.neighbour().to_string()], None);
        loop {
            let (from_guard, from_stage) = self.wait()?;
            if from_guard && self.take(true)? {
                // What the trainer's process had to say is worth more than that the guard is gone.
                while !self.take(false)? {}
                return Ok(());
            }
            // What the guard had to say before the trainer's process was probed comes first.
            while from_stage && !self.rooted {
                if self.take(true)? {
                    return Ok(());
                }
            }
            if from_stage && self.take(false)? {
                return Ok(());
            }
        }
    }

    /// Hands the doors of the control groups over to the guard.
    fn join(&mut self) {
        let doors: Vec<std::io::Result<OwnedFd>> = self.group.doors().collect();
        for (number, door) in doors.into_iter().enumerate() {
            match door {
                Ok(door) => self.say(&["join", &number.to_string()], Some(door.as_raw_fd())),
                Err(error) => self.group.refuse(number, crate::error::errno(&error)),
            }
        }
    }

    /// Says something to the guard. When it is gone, what it said last says why.
    fn say(&self, words: &[&str], descriptor: Option<i32>) {
        if let Some(wire) = self.guard.as_ref().and_then(|guard| guard.wire.as_ref()) {
            send(wire.as_fd(), words, descriptor).ok();
        }
    }

    fn wait(&self) -> Result<(bool, bool), SandboxError> {
        let guard = self.guard.as_ref().and_then(|guard| guard.wire.as_ref());
        let guard = guard.ok_or_else(|| SandboxError::Lost("its wire is gone".into()))?;
        let mut polled =
            [PollFd::new(guard.as_fd(), PollFlags::POLLIN), PollFd::new(self.stage.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(doing("waiting for the sandbox")(errno)),
        }
        Ok((polled[0].any().unwrap_or(true), polled[1].any().unwrap_or(true)))
    }

    /// Takes one message; `true` when there is nothing more to wait for.
    fn take(&mut self, from_guard: bool) -> Result<bool, SandboxError> {
        let guard = self.guard.as_ref().and_then(|guard| guard.wire.as_ref());
        let wire = if from_guard { guard.unwrap_or(&self.stage) } else { &self.stage };
        let Some(mut message) = receive(wire.as_fd()).map_err(doing("listening to the sandbox"))? else {
            if self.evidence.failed.is_none() && self.evidence.namespaces.is_ok() {
                self.evidence.failed = Some(("the sandbox ended before the trainer was ready".into(), Errno::ESRCH));
            }
            return Ok(true);
        };
        if message.kind() == "outputs" {
            self.outputs = message.descriptor.take();
        }
        if message.kind() == "ready" {
            self.trainer = message.sender;
        }
        self.note(&message);
        Ok(matches!(message.kind(), "ready" | "failed"))
    }

    /// Adds a report to the evidence.
    fn note(&mut self, message: &Message) {
        let errno = |index| Errno::from_raw(i32::try_from(message.number(index)).unwrap_or(0));
        match message.kind() {
            "ready" => {
                self.evidence.capabilities = Some(message.word(1).into());
                for place in (2..message.words.len()).step_by(3) {
                    let failed = (message.word(place + 1).to_string(), errno(place + 2));
                    let outcome = if message.number(place + 2) == 0 { Ok(()) } else { Err(failed) };
                    self.evidence.layers.insert(message.word(place).into(), outcome);
                }
            }
            "probes" => note(message, &mut self.evidence.tried),
            "rooted" => {
                self.rooted = true;
                note(message, &mut self.evidence.tried);
            }
            "joined" if message.number(2) != 0 => {
                self.group.refuse(usize::try_from(message.number(1)).unwrap_or(usize::MAX), errno(2));
            }
            "outputs" => {
                self.evidence.entered = true;
                self.evidence.without_proc = (message.number(1) != 0).then(|| errno(1));
            }
            "failed" => {
                let failed = (message.word(1).to_string(), errno(2));
                if self.evidence.standing() {
                    self.evidence.failed = Some(failed);
                } else {
                    self.evidence.namespaces = Err(failed);
                }
            }
            _ => {}
        }
    }

    /// Lets the trainer go.
    fn let_go(&self) -> Result<(), SandboxError> {
        send(self.stage.as_fd(), &["go"], None).map_err(doing("giving the word to go"))
    }

    /// Looks whether the trainer really started.
    fn started(mut self, policy: &Policy, custody: Custody) -> Result<Running, SandboxError> {
        let lost = || SandboxError::Lost("it ended before the trainer started".into());
        let trainer = self.trainer.ok_or_else(lost)?;
        // The wire closes with the exec; a message means that there was none.
        if let Some(message) = receive(self.stage.as_fd()).map_err(doing("watching the exec"))? {
            let errno = Errno::from_raw(i32::try_from(message.number(2)).unwrap_or(libc::EIO));
            let stage = message.word(1).to_string();
            return Err(SandboxError::NotStarted { program: policy.program.clone(), stage, errno });
        }
        let mut guard = self.guard.take().ok_or_else(lost)?;
        let wire = guard.wire.take().ok_or_else(lost)?;
        let process =
            guard.process.try_clone().map_err(|error| doing("keeping the guard")(crate::error::errno(&error)))?;
        let outputs = match self.outputs.take() {
            Some(folder) => Outputs::new(folder),
            None => Outputs::open(&policy.outputs)?,
        };
        Ok(Running {
            custody,
            environment: policy.environment.clone(),
            guard: guard.pid,
            process,
            wire,
            trainer,
            streams: Some(self.streams),
            outputs: Some(outputs),
            group: self.group,
            over: false,
        })
    }
}

impl Running {
    /// The evidence: each control, its state and its proof.
    pub fn custody(&self) -> &Custody {
        &self.custody
    }

    /// The whole environment of the trainer.
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// Read ends of standard output and standard error; only the first call gets them.
    pub fn take_streams(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        self.streams.take()
    }

    /// What the trainer has left so far.
    pub fn outputs(&self) -> Option<&Outputs> {
        self.outputs.as_ref()
    }

    /// Number of the trainer's process on the host.
    pub fn pid(&self) -> Pid {
        self.trainer
    }

    /// The files that the trainer has mapped executable now, with the digests of those that were admitted. Worth asking
    /// once it says that it is ready; an error when it has already ended.
    pub fn mapped(&self) -> Result<Vec<Mapped>, SandboxError> {
        mapped(self.trainer, &self.custody)
    }

    /// A descriptor that becomes readable when trainer and guard have ended and nothing of the run is alive: for
    /// poll(2).
    pub fn over(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Sends a signal to the trainer; nothing happens if it has just ended. Whoever of trainer and guard was stopped goes on.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), SandboxError> {
        // It may be gone.
        nix::sys::signal::kill(self.guard, nix::sys::signal::Signal::SIGCONT).ok();
        match send(self.wire.as_fd(), &["signal", &(signal as i32).to_string()], None) {
            Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
            Err(errno) => Err(doing("speaking to the guard")(errno)),
        }
    }

    /// Kills the trainer; [`Running::finish`] then tells what it had done.
    pub fn kill(&self) -> Result<(), SandboxError> {
        self.signal(nix::sys::signal::Signal::SIGKILL)
    }

    /// Waits until nothing of the run is alive, and tells how it ended. Standard output and standard error should be
    /// read meanwhile: a trainer that cannot write does not end.
    pub fn finish(mut self) -> Result<Ending, SandboxError> {
        let mut messages = Vec::new();
        while let Some(message) = receive(self.wire.as_fd()).map_err(doing("listening to the guard"))? {
            let last = message.kind() == "ended" || message.kind() == "failed";
            messages.push(message);
            if last {
                break;
            }
        }
        let status = sys::wait_process(self.guard).map_err(doing("waiting for the guard"))?;
        self.over = true;
        if libc::WIFSIGNALED(status) {
            // Without namespaces nobody else ends what the guard had in its charge.
            self.group.kill();
        }
        let counters = self.group.counters();
        let outputs = self.outputs.take().ok_or_else(|| SandboxError::Lost("its outputs are gone".into()))?;
        ended(&messages, status, counters, outputs)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.over {
            // A run that nobody watches any more ends: its guard kills everything when this wire closes.
            nix::sys::socket::shutdown(self.wire.as_raw_fd(), nix::sys::socket::Shutdown::Both).ok();
            sys::wait_process(self.guard).ok();
        }
    }
}
