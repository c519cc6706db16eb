//! The guard: first process of the trainer's namespaces, or its parent where there are none. It answers refused system
//! calls, reaps orphans, ends everything with the trainer or with the supervisor, and reports.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid, sethostname};
use xt_core::manifest::custody::Layer;
use xt_core::manifest::intent::Network;

use crate::child::{Setup, become_trainer, tell};
use crate::ending::{DENIED, OPENED};
use crate::error::errno;
use crate::limits::Bounds;
use crate::namespace::{Failed, Tree, at, leave_the_host};
use crate::opened::opened;
use crate::probe::{Scene, outcomes};
use crate::processor::Stay;
use crate::sys::{self, Fork, Reaped};
use crate::wire::{receive, send, wire};
use crate::{filter, outside};

/// Refused calls recorded with their arguments; further ones are only counted.
const RECORDED: usize = 64;

/// Guards a trainer from before its birth to after its end.
pub(crate) fn guard(setup: &Setup) -> ! {
    if let Err((stage, errno)) = watch(setup) {
        tell(setup.guard, &["failed", &stage, &(errno as i32).to_string()]);
    }
    sys::leave(0)
}

fn watch(setup: &Setup) -> Result<(), Failed> {
    // While a copy of the supervisor's end is open here, its death would not end what is read from the wire: a supervisor
    // killed before the guard is tied to it would leave a guard that waits for ever.
    for end in setup.supervisor {
        sys::close_range(end, end).map_err(at("letting go of the supervisor's wires"))?;
    }
    enter(setup)?;
    let (bounds, scene) = begin(setup)?;
    if setup.namespaces {
        // In the group of the run, so that it is the top of what the trainer sees.
        unshare(CloneFlags::CLONE_NEWCGROUP).map_err(at("making a cgroup namespace"))?;
    }
    let signals = SigSet::from(Signal::SIGCHLD);
    signals.thread_block().map_err(at("blocking signals"))?;
    let children = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let children = children.map_err(at("watching children"))?;
    let (handoff, theirs) = wire().map_err(at("making a wire"))?;
    // Until the trainer is ready, both talk to each other all the time.
    let stay = Stay::here();
    let trainer = match sys::fork().map_err(at("forking the trainer"))? {
        Fork::Child => become_trainer(setup, bounds, &scene, &theirs, stay),
        Fork::Parent(trainer) => trainer,
    };
    let mut kept = [setup.guard, children.as_raw_fd(), handoff.as_raw_fd()];
    kept.sort_unstable();
    sys::close_others(&kept).map_err(at("closing descriptors"))?;
    // It was closed with the others.
    std::mem::forget(theirs);
    rooted(setup, &scene, &handoff)?;
    let mut guard = Guard { setup, trainer, children, handoff: Some(handoff), listener: None, heard: None, stay };
    let ended = guard.until_the_end()?;
    let survivors = guard.kill_survivors();
    guard.report(&ended, survivors);
    Ok(())
}

/// Takes its place: alone in new namespaces with a root of their own, or simply as the parent of what is to come.
fn enter(setup: &Setup) -> Result<(), Failed> {
    if !setup.namespaces {
        return sys::control(libc::PR_SET_CHILD_SUBREAPER, 1).map(drop).map_err(at("adopting orphans"));
    }
    sys::control(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.cast_unsigned()))
        .map_err(at("tying the guard to the supervisor"))?;
    setup.way.map(setup.starter.0, setup.starter.1)?;
    if setup.policy.network == Network::Loopback {
        sys::raise_loopback().map_err(at("switching loopback on"))?;
    }
    sethostname("xt").map_err(at("naming the host"))?;
    let tree = Tree { base: setup.base, policy: setup.policy, admitted: setup.admitted, owner: setup.way.user() };
    let built = tree.enter()?;
    // The trainer must not read the supervisor's memory or environment, of which this process holds a copy.
    sys::control(libc::PR_SET_DUMPABLE, 0).map_err(at("hiding the guard"))?;
    let wire = sys::borrow(setup.guard);
    outside::tell(wire, Layer::All.word(), &built.twins);
    let proc = built.without_proc.map_or(0, |errno| errno as i32).to_string();
    send(wire, &["outputs", &proc], Some(built.outputs.as_raw_fd())).map_err(at("handing over outputs"))
}

/// Lets go of the host while the trainer's process prepares itself, shows that it is out of reach, and lets that process
/// go on to be probed.
fn rooted(setup: &Setup, scene: &Scene, handoff: &OwnedFd) -> Result<(), Failed> {
    let mut tried = Vec::new();
    if setup.namespaces {
        leave_the_host()?;
        // Neither landlock nor filter stand here, and this process has more rights than the trainer will have.
        for stage in [Layer::Mount, Layer::Net, Layer::Process] {
            let outcomes = outcomes(scene, |attempt| attempt.stopped_by(stage, 0));
            tried.extend(outcomes.iter().map(|(name, outcome)| outside::said(stage.word(), name, outcome)));
        }
    }
    // The supervisor waits for this before it believes that the trainer is ready.
    let words: Vec<&str> = std::iter::once("rooted").chain(tried.iter().map(String::as_str)).collect();
    tell(setup.guard, &words);
    tell(handoff.as_raw_fd(), &["rooted"]);
    Ok(())
}

/// Joins the control groups whose doors the supervisor hands over, and waits for its word to begin.
fn begin(setup: &Setup) -> Result<(Bounds, Scene), Failed> {
    loop {
        let Ok(Some(mut message)) = receive(sys::borrow(setup.guard)) else { sys::leave(0) };
        match message.kind() {
            "join" => {
                let joined = message.descriptor.take().map(|door| File::from(door).write_all(b"0"));
                let errno = joined.and_then(Result::err).map_or(0, |error| errno(&error) as i32);
                tell(setup.guard, &["joined", message.word(1), &errno.to_string()]);
            }
            "begin" => {
                let numbers = [message.number(1), message.number(2)];
                let bounds = Bounds::from_numbers(setup.policy.limits, numbers);
                let neighbour = Pid::from_raw(i32::try_from(message.number(3)).unwrap_or(0));
                return Ok((bounds, Scene { neighbour, processes: Some(bounds.processes), ..setup.scene.clone() }));
            }
            _ => {}
        }
    }
}

struct Guard<'a> {
    setup: &'a Setup<'a>,
    trainer: Pid,
    children: SignalFd,
    handoff: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    /// None while they are not the trainer's own, and where somebody else listens.
    heard: Option<Heard>,
    stay: Option<Stay>,
}

/// Calls of the trainer that were handed over.
#[derive(Default)]
struct Heard {
    /// Those refused.
    denied: Noted,
    /// Those on an admitted network.
    opened: Noted,
}

/// Calls that were counted.
#[derive(Default)]
struct Noted {
    counts: BTreeMap<String, u64>,
    first: Vec<String>,
}

impl Noted {
    fn note(&mut self, name: String, shown: impl FnOnce() -> String) {
        if self.first.len() < RECORDED {
            self.first.push(shown());
        }
        *self.counts.entry(name).or_default() += 1;
    }

    /// Tells the supervisor, each call as one of `kind`.
    fn tell(&self, wire: i32, kind: &str) {
        for (name, count) in &self.counts {
            tell(wire, &["count", kind, name, &count.to_string()]);
        }
        for call in &self.first {
            tell(wire, &["call", kind, call]);
        }
    }
}

impl Heard {
    fn refused(&mut self, call: &sys::Handed) {
        let name = filter::name(call.number).map_or_else(|| call.number.to_string(), String::from);
        let arguments = || call.arguments.map(|argument| format!("{argument:x}")).join(",");
        self.denied.note(name.clone(), || format!("{name}({})", arguments()));
    }

    fn went_on(&mut self, listener: &OwnedFd, call: &sys::Handed) {
        if let Some((name, asked)) = opened(listener, call) {
            self.opened.note(name, || asked);
        }
    }
}

impl Guard<'_> {
    /// Serves the trainer until it has ended.
    fn until_the_end(&mut self) -> Result<Reaped, Failed> {
        loop {
            let [children, supervisor, handoff, listener] = self.wait()?;
            // Before the listener: what it says about the calls to come must be known when they come.
            if handoff {
                self.take_over();
            }
            if listener {
                self.answer();
            }
            if supervisor {
                self.obey();
            }
            if children && let Some(ended) = self.reap() {
                return Ok(ended);
            }
        }
    }

    /// Waits until something happens, and says where.
    fn wait(&self) -> Result<[bool; 4], Failed> {
        let supervisor = sys::borrow(self.setup.guard);
        let mut watched = vec![(0, self.children.as_fd()), (1, supervisor)];
        watched.extend(self.handoff.iter().map(|fd| (2, fd.as_fd())));
        watched.extend(self.listener.iter().map(|fd| (3, fd.as_fd())));
        let mut polled: Vec<PollFd> = watched.iter().map(|(_, fd)| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(("waiting".into(), errno)),
        }
        let mut happened = [false; 4];
        for ((index, _), poll) in watched.iter().zip(&polled) {
            happened[*index] = poll.any().unwrap_or(true);
        }
        Ok(happened)
    }

    /// A message of the trainer's process before its exec.
    fn take_over(&mut self) {
        let Some(handoff) = &self.handoff else { return };
        match receive(handoff.as_fd()) {
            Ok(Some(mut message)) if message.kind() == "listener" => {
                self.listener = message.descriptor.take();
                self.listener.iter().for_each(sys::hand_over_nearby);
            }
            Ok(Some(_)) => {
                // Without a listener nobody counts, which is not the same as nothing.
                self.heard = self.listener.as_ref().map(|_| Heard::default());
                // A guard that is kept where it is only answers later.
                if let Some(stay) = self.stay.take() {
                    stay.end().ok();
                }
            }
            Ok(None) | Err(_) => self.handoff = None,
        }
    }

    /// Refuses a call that the filter handed over, or lets one on an admitted network go on.
    fn answer(&mut self) {
        let Some(listener) = &self.listener else { return };
        match sys::next_call(listener) {
            Ok(call) if filter::is_noted(call.number, self.setup.policy.network) => {
                self.heard.iter_mut().for_each(|heard| heard.went_on(listener, &call));
                // The caller may have been killed meanwhile.
                sys::let_call(listener, &call).ok();
            }
            Ok(call) => {
                self.heard.iter_mut().for_each(|heard| heard.refused(&call));
                // The caller may have been killed meanwhile.
                sys::refuse_call(listener, &call, Errno::EPERM).ok();
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // ENOENT: the caller was killed before the call was taken, or nobody is left who could make one.
            Err(_) if self.deserted() => self.listener = None,
            Err(_) => {}
        }
    }

    fn deserted(&self) -> bool {
        let Some(listener) = &self.listener else { return true };
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).ok();
        polled[0].revents().is_none_or(|events| events.contains(PollFlags::POLLHUP))
    }

    /// A word of the supervisor; its silence for ever ends everything.
    fn obey(&mut self) {
        match receive(sys::borrow(self.setup.guard)) {
            Ok(Some(message)) if message.kind() == "signal" => {
                let signal = i32::try_from(message.number(1)).ok().and_then(|number| Signal::try_from(number).ok());
                // It may have ended a moment ago. One that was stopped is to hear it, too.
                kill(self.trainer, signal).ok();
                kill(self.trainer, Signal::SIGCONT).ok();
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                self.kill_survivors();
                sys::leave(0)
            }
        }
    }

    /// Frees every child that has ended; the trainer, if it is among them.
    fn reap(&mut self) -> Option<Reaped> {
        while let Ok(Some(_)) = self.children.read_signal() {}
        let mut trainer = None;
        while let Ok(Some(ended)) = sys::reap_any(false) {
            if ended.pid == self.trainer {
                trainer = Some(ended);
            }
        }
        trainer
    }

    /// Kills what is left and counts it.
    fn kill_survivors(&self) -> u64 {
        let mut killed = 0;
        loop {
            self.kill_all();
            match sys::reap_any(true) {
                Ok(Some(ended)) => {
                    killed +=
                        u64::from(libc::WIFSIGNALED(ended.status) && libc::WTERMSIG(ended.status) == libc::SIGKILL);
                }
                Ok(None) | Err(Errno::EINTR) => {}
                Err(_) => return killed,
            }
        }
    }

    fn kill_all(&self) {
        if self.setup.namespaces {
            // Everyone in this process namespace but its first process.
            kill(Pid::from_raw(-1), Signal::SIGKILL).ok();
            return;
        }
        // Orphans become children of this process, so that killing children over and over reaches everyone.
        let path = format!("/proc/self/task/{}/children", getpid());
        let children = std::fs::read_to_string(path).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            kill(Pid::from_raw(child), Signal::SIGKILL).ok();
        }
    }

    fn report(&self, ended: &Reaped, survivors: u64) {
        if let Some(heard) = &self.heard {
            heard.denied.tell(self.setup.guard, DENIED);
            heard.opened.tell(self.setup.guard, OPENED);
            tell(self.setup.guard, &["heard", self.setup.policy.network.word()]);
        }
        let numbers = [ended.cpu_nanoseconds, ended.peak_memory_bytes, survivors].map(|number| number.to_string());
        let [cpu, memory, survivors] = &numbers;
        tell(self.setup.guard, &["ended", &ended.status.to_string(), cpu, memory, survivors]);
    }
}
