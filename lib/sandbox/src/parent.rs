//! The supervisor's side: it lays out bait, makes the processes, judges the proofs, and gives the word to go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getegid, geteuid, pipe2};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::intent::Profile;

use crate::admit::{Admitted, admit, check};
use crate::canary::Canary;
use crate::child::Setup;
use crate::collect::Outputs;
use crate::ending::{Ending, ended};
use crate::error::{SandboxError, doing};
use crate::evidence::{Evidence, judge};
use crate::group::Group;
use crate::guard::guard;
use crate::identity::Way;
use crate::limits::{Bounds, threads_of};
use crate::mapped::{Mapped, mapped};
use crate::policy::{Policy, Root};
use crate::probe::{self, Scene};
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
    group: Option<Group>,
    over: bool,
}

/// Sets everything up, proves it, and starts the trainer. The caller should have no other thread.
pub fn start(policy: Policy) -> Result<Running, SandboxError> {
    start_after(policy, &mut || Ok(()))
}

/// The same, with a last act of the caller's right before the trainer is given the word to start: what it leaves behind
/// tells whoever comes after a crash whether there can have been a trainer.
pub fn start_after(mut policy: Policy, last: &mut dyn FnMut() -> std::io::Result<()>) -> Result<Running, SandboxError> {
    check(&policy)?;
    add_places(&mut policy);
    let admitted = admit(&policy)?;
    let namespaces = policy.profile == Profile::Full;
    let mut standing = stand(&policy, &admitted, namespaces)?;
    // With this the controls were not even reached: it is no finding about the host.
    if let Some((stage, errno)) = standing.evidence.failed.take() {
        return Err(SandboxError::NotStarted { program: policy.program, stage, errno });
    }
    if brings_a_shell(&policy, &admitted) {
        standing.evidence.inside.remove("run_a_shell");
    }
    let custody = judge(&policy, &admitted, &standing.evidence);
    let missing = crate::evidence::missing(&custody);
    if !missing.is_empty() {
        return Err(SandboxError::Unenforced { custody: Box::new(custody), missing });
    }
    last().map_err(|error| doing("announcing the trainer")(crate::error::errno(&error)))?;
    standing.go(&policy, custody)
}

/// Whether the plan itself admits the program that a probe tries to run: that it can be run shows nothing then.
fn brings_a_shell(policy: &Policy, admitted: &[Admitted]) -> bool {
    let Ok(shell) = Path::new("/bin/sh").canonicalize() else { return false };
    let in_root = |root: &Root| root.execute && root.path.canonicalize().is_ok_and(|path| shell.starts_with(path));
    admitted.iter().any(|file| file.runs && file.source == shell) || policy.brought.roots.iter().any(in_root)
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
    group: Option<Group>,
    _canary: Canary,
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
pub(crate) fn stand(policy: &Policy, admitted: &[Admitted], namespaces: bool) -> Result<Standing, SandboxError> {
    let way = if policy.profile == Profile::None { Way::Same } else { Way::here(namespaces) };
    let canary = Canary::place(way)?;
    let open = canary.open_folder();
    let control = ControlArm::begin(way, &canary.scene(&open, &open)?)?;
    if way == Way::Dedicated && !namespaces {
        give_outputs(policy, way)?;
    }
    let group = Some(Group::make(&policy.limits, 1));
    let mut scene = canary.scene(policy.inputs_inside(), policy.outputs_inside())?;
    let bounds = bounds(policy, admitted, way, group.as_ref());
    scene.limits = Some(policy.limits);
    scene.processes = Some(bounds.processes);
    let (guard_wire, guard_end) = wire().map_err(doing("making a wire"))?;
    let (stage, stage_end) = wire().map_err(doing("making a wire"))?;
    let (stdout, stdout_end) = pipe2(OFlag::O_CLOEXEC).map_err(doing("making a pipe"))?;
    let (stderr, stderr_end) = pipe2(OFlag::O_CLOEXEC).map_err(doing("making a pipe"))?;
    let setup = Setup {
        policy,
        admitted,
        way,
        namespaces,
        bounds,
        starter: (geteuid().as_raw(), getegid().as_raw()),
        base: &canary.root(),
        scene: &scene,
        streams: [stdout_end.as_raw_fd(), stderr_end.as_raw_fd()],
        supervisor: [guard_wire.as_raw_fd(), stage.as_raw_fd()],
        guard: guard_end.as_raw_fd(),
        stage: stage_end.as_raw_fd(),
    };
    let launched = launch(&setup)?;
    drop((guard_end, stage_end, stdout_end, stderr_end));
    let mut standing = Standing {
        evidence: Evidence::new(way, namespaces, group.as_ref()),
        guard: None,
        stage,
        streams: (stdout, stderr),
        trainer: None,
        outputs: None,
        group,
        _canary: canary,
    };
    match launched {
        Err(errno) => standing.evidence.namespaces = Err(("making namespaces".into(), errno)),
        Ok(()) => standing.follow(guard_wire)?,
    }
    standing.evidence.outside = control.finish()?;
    Ok(standing)
}

/// Room for processes of other runs of the same user.
const NEIGHBOURS: u64 = 1 << 20;

/// The limits as the kernel counts: with the guard and whoever else is the same user.
fn bounds(policy: &Policy, admitted: &[Admitted], way: Way, group: Option<&Group>) -> Bounds {
    let others = match way {
        Way::Mapped => 1,
        // The kernel counts every process of the user, and runs that start later are of the same user: where a control
        // group bounds this run alone, they must not use up its share.
        Way::Dedicated | Way::Same if group.is_some_and(|group| group.processes().is_ok()) => NEIGHBOURS,
        Way::Dedicated | Way::Same => threads_of(way.user()) + 1,
    };
    let size = |file: &Admitted| std::fs::metadata(&file.source).map_or(0, |found| found.len());
    let grouped = group.is_some_and(|group| group.memory().is_ok());
    let mapped = (policy.profile != Profile::None && !grouped).then(|| admitted.iter().map(size).sum());
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

/// The control arm: every attempt made without a sandbox, as the trainer's user, while the sandbox is being built.
struct ControlArm {
    pid: Pid,
    wire: OwnedFd,
}

impl ControlArm {
    fn begin(way: Way, scene: &Scene) -> Result<Self, SandboxError> {
        let (wire, theirs) = wire().map_err(doing("making a wire"))?;
        match sys::fork().map_err(doing("forking the control arm"))? {
            Fork::Parent(pid) => Ok(Self { pid, wire }),
            Fork::Child => {
                drop(wire);
                let report = |name: &str, outcome: &str| {
                    send(theirs.as_fd(), &["probe", name, outcome], None).ok();
                };
                if way.become_dedicated().is_ok() {
                    probe::run(scene, report);
                    probe::run_twins(&scene.outputs, report);
                }
                report("", "");
                sys::leave(0)
            }
        }
    }

    /// The outcomes by attempt.
    fn finish(self) -> Result<BTreeMap<String, String>, SandboxError> {
        let mut outcomes = BTreeMap::new();
        while let Some(message) = receive(self.wire.as_fd()).map_err(doing("listening to the control arm"))? {
            if message.word(1).is_empty() {
                break;
            }
            outcomes.insert(message.word(1).to_string(), message.word(2).to_string());
        }
        sys::wait_process(self.pid).map_err(doing("waiting for the control arm"))?;
        Ok(outcomes)
    }
}

/// Makes the guard. The inner error is the kernel's refusal of namespaces.
fn launch(setup: &Setup) -> Result<Result<(), Errno>, SandboxError> {
    if !setup.namespaces {
        return match sys::fork().map_err(doing("forking the guard"))? {
            Fork::Child => guard(setup),
            Fork::Parent(_) => Ok(Ok(())),
        };
    }
    // A process in between: it has one thread whatever the caller has, and its child is the caller's.
    match sys::fork().map_err(doing("forking"))? {
        Fork::Child => match sys::clone_sibling(setup.way.namespaces()) {
            Ok(Fork::Child) => guard(setup),
            Ok(Fork::Parent(_)) => sys::leave(0),
            Err(errno) => sys::leave(errno as i32),
        },
        Fork::Parent(pid) => match sys::wait_process(pid).map_err(doing("waiting for a fork"))? {
            0 => Ok(Ok(())),
            status if libc::WIFEXITED(status) => Ok(Err(Errno::from_raw(libc::WEXITSTATUS(status)))),
            _ => Ok(Err(Errno::EINTR)),
        },
    }
}

impl Standing {
    /// Takes in what guard and trainer report until the trainer waits for the word, or cannot.
    fn follow(&mut self, guard_wire: OwnedFd) -> Result<(), SandboxError> {
        let hello = receive(guard_wire.as_fd()).map_err(doing("listening to the guard"))?;
        let Some(hello) = hello else { return Err(SandboxError::Lost("it ended at once".into())) };
        let pid = hello.sender.ok_or_else(|| SandboxError::Lost("it did not name itself".into()))?;
        let process = sys::process_descriptor(pid).map_err(doing("opening the guard's process"))?;
        if hello.kind() != "here" {
            self.note(&hello);
            sys::wait_process(pid).map_err(doing("waiting for the guard"))?;
            return Ok(());
        }
        if let Some(group) = &self.group {
            group.join(pid).map_err(doing("joining the control group"))?;
        }
        send(guard_wire.as_fd(), &["begin"], None).map_err(doing("speaking to the guard"))?;
        self.guard = Some(Guarded { pid, process, wire: Some(guard_wire) });
        loop {
            let (from_guard, from_stage) = self.wait()?;
            if from_guard && self.take(true)? {
                // What the trainer's process had to say is worth more than that the guard is gone.
                while !self.take(false)? {}
                return Ok(());
            }
            // The guard had spoken of its root before it made the trainer's process.
            while from_stage && !self.evidence.standing() {
                if self.take(true)? {
                    return Ok(());
                }
            }
            if from_stage && self.take(false)? {
                return Ok(());
            }
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
        if message.kind() == "identity" {
            self.trainer = message.sender;
        }
        self.note(&message);
        Ok(matches!(message.kind(), "ready" | "failed"))
    }

    /// Adds a report to the evidence.
    fn note(&mut self, message: &Message) {
        let errno = |index| Errno::from_raw(i32::try_from(message.number(index)).unwrap_or(0));
        match message.kind() {
            "identity" => self.evidence.capabilities = Some(message.word(1).into()),
            "probe" => {
                self.evidence.inside.insert(message.word(1).into(), message.word(2).into());
            }
            "layer" => {
                let outcome =
                    if message.number(3) == 0 { Ok(()) } else { Err((message.word(2).to_string(), errno(3))) };
                self.evidence.layers.insert(message.word(1).into(), outcome);
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

    /// Lets the trainer go, and looks whether it really started.
    fn go(mut self, policy: &Policy, custody: Custody) -> Result<Running, SandboxError> {
        let lost = || SandboxError::Lost("it ended before the trainer started".into());
        let trainer = self.trainer.ok_or_else(lost)?;
        send(self.stage.as_fd(), &["go"], None).map_err(doing("giving the word to go"))?;
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

    /// Sends a signal to the trainer; nothing happens if it has just ended.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), SandboxError> {
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
        let counters = self.group.as_ref().map(Group::counters).unwrap_or_default();
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
