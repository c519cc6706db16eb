//! What works outside: every attempt made without a sandbox, as the trainer's user, and again under each layer that
//! stands without namespaces, alone. All of it happens while the sandbox is being built.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::sched_getcpu;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, pipe2, read};
use xt_core::manifest::custody::Layer;
use xt_core::manifest::intent::Network;

use crate::error::{SandboxError, doing};
use crate::filter;
use crate::identity::Way;
use crate::probe::{self, Scene, outcomes};
use crate::processor::stay_on;
use crate::rules;
use crate::sys::{self, Fork};
use crate::wire::{Message, receive, send, wire};

/// Process numbers below this could be met again inside a fresh process namespace.
const SMALL: i32 = 64;
/// How outcomes of attempts without any layer are marked.
pub(crate) const CONTROL: &str = "control";

/// A process of the trainer's user on the host, and what its children find. It ends when this is dropped.
pub(crate) struct Outside {
    pid: Pid,
    wire: OwnedFd,
    _keeps: OwnedFd,
}

impl Outside {
    /// Starts to try everything. With `layers`, landlock and the filter alone, too, as they are with this network.
    pub(crate) fn begin(way: Way, layers: Option<Network>, scene: &Scene) -> Result<Self, SandboxError> {
        let failed = || doing("making a neighbour");
        for _ in 0..=SMALL {
            let (wire, theirs) = wire().map_err(failed())?;
            let (ours, keeps) = pipe2(OFlag::O_CLOEXEC).map_err(failed())?;
            let here = sched_getcpu();
            match sys::fork().map_err(failed())? {
                Fork::Parent(pid) if pid.as_raw() < SMALL => {
                    sys::wait_process(pid).map_err(failed())?;
                }
                Fork::Parent(pid) => return Ok(Self { pid, wire, _keeps: keeps }),
                Fork::Child => {
                    drop((wire, keeps));
                    // Where this process waits most of the time; others build the sandbox meanwhile.
                    here.and_then(stay_on).ok();
                    sys::give_way(5);
                    be_a_neighbour(way, layers, scene, &theirs, &ours)
                }
            }
        }
        Err(failed()(Errno::EAGAIN))
    }

    /// Number of the neighbour.
    pub(crate) fn neighbour(&self) -> Pid {
        self.pid
    }

    /// Waits until the neighbour is what the trainer would be if nothing confined it: tried before, it would look out of
    /// reach to everyone.
    pub(crate) fn ready(&self) -> Result<(), SandboxError> {
        match receive(self.wire.as_fd()).map_err(doing("listening to the neighbour"))? {
            Some(message) if message.kind() == "ready" => Ok(()),
            _ => Err(SandboxError::Lost("its neighbour ended at once".into())),
        }
    }

    /// Ends the neighbour, which nobody needs once the trainer's process has been probed. It is waited for when this is
    /// dropped: its end takes a moment.
    pub(crate) fn dismiss(&self) {
        // It may be gone already.
        kill(self.pid, Signal::SIGKILL).ok();
    }

    /// Takes in every outcome, by `STAGE/ATTEMPT`.
    pub(crate) fn finish(&self, tried: &mut BTreeMap<String, String>) -> Result<(), SandboxError> {
        while let Some(message) = receive(self.wire.as_fd()).map_err(doing("listening to the control arm"))? {
            note(&message, tried);
        }
        Ok(())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.dismiss();
        sys::wait_process(self.pid).ok();
    }
}

/// Adds the outcomes that a message brings.
pub(crate) fn note(message: &Message, tried: &mut BTreeMap<String, String>) {
    for word in message.words.iter().skip(1) {
        if let Some((name, outcome)) = word.split_once('=') {
            tried.insert(name.into(), outcome.into());
        }
    }
}

/// An outcome as it is told.
pub(crate) fn said(stage: &str, name: &str, outcome: &str) -> String {
    format!("{stage}/{name}={outcome}")
}

/// Tells outcomes, each as `STAGE/ATTEMPT=OUTCOME`.
pub(crate) fn tell(wire: BorrowedFd<'_>, stage: &str, outcomes: &[(&str, String)]) {
    let words: Vec<String> = outcomes.iter().map(|(name, outcome)| said(stage, name, outcome)).collect();
    let words: Vec<&str> = std::iter::once("probes").chain(words.iter().map(String::as_str)).collect();
    // Nobody listens any more: then this process is about to end anyway.
    send(wire, &words, None).ok();
}

/// Is there to be found by others until its maker closes a pipe.
fn be_a_neighbour(way: Way, layers: Option<Network>, scene: &Scene, wire: &OwnedFd, ours: &OwnedFd) -> ! {
    let own = getpid();
    if own.as_raw() < SMALL || way.become_dedicated().is_err() || be_readable().is_err() {
        sys::leave(1);
    }
    send(wire.as_fd(), &["ready"], None).ok();
    // Nobody waits for the processes below.
    sys::ignore_signal(libc::SIGCHLD);
    let scene = Scene { neighbour: own, ..scene.clone() };
    apart(|| {
        without_layers(&scene, wire);
        // In the same process, which costs less than another: before this one, no layer stands.
        if let Some(network) = layers {
            landlock_alone(&scene, wire, network);
        }
    });
    if let Some(network) = layers {
        // The neighbour itself is not confined by what a child of it does to itself.
        sys::apart(0, &mut || filter_alone(&scene, wire, network)).ok();
    }
    // Nobody is to wait for the end of something that only this copy keeps open.
    sys::close_others(&[ours.as_raw_fd()]).ok();
    while read(ours, &mut [0]) == Err(Errno::EINTR) {}
    sys::leave(0)
}

/// Does something in a process of its own, with memory of its own: the memory of another one would be open to it.
fn apart(act: impl FnOnce()) {
    if let Ok(Fork::Child) = sys::fork() {
        sys::default_signal(libc::SIGCHLD);
        act();
        sys::leave(0)
    }
}

/// A change of user makes a process unreadable for others of that user, and Yama lets a process be read by its ancestors
/// alone unless it says otherwise; bait must be readable.
fn be_readable() -> Result<(), Errno> {
    sys::control(libc::PR_SET_DUMPABLE, 1)?;
    sys::control(libc::PR_SET_PDEATHSIG, u64::from(libc::SIGKILL.cast_unsigned()))?;
    // Without Yama there is no such option.
    sys::control(libc::PR_SET_PTRACER, u64::MAX).ok();
    Ok(())
}

fn without_layers(scene: &Scene, wire: &OwnedFd) {
    let mut tried = outcomes(scene, |_| true);
    tried.extend(probe::run_twins(&scene.outputs));
    tell(wire.as_fd(), CONTROL, &tried);
}

/// The filter, without handing calls over: nobody would answer them.
fn filter_alone(scene: &Scene, wire: &OwnedFd, network: Network) -> i32 {
    sys::default_signal(libc::SIGCHLD);
    let installed = sys::control(libc::PR_SET_NO_NEW_PRIVS, 1)
        .and_then(|_| sys::install_filter(&filter::program(true, false, network), false).map(drop));
    if installed.is_ok() {
        let stage = Layer::Filter;
        tell(wire.as_fd(), stage.word(), &outcomes(scene, |attempt| attempt.stopped_by(stage, 0)));
    }
    0
}

/// Landlock with the rights of a trainer and nothing granted but to read in a folder.
fn landlock_alone(scene: &Scene, wire: &OwnedFd, network: Network) {
    let confined = sys::control(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(|errno| (String::new(), errno));
    if confined.and_then(|_| rules::confine_to_read(&scene.inputs, network)).is_ok() {
        let (stage, version) = (Layer::Landlock, rules::version());
        tell(wire.as_fd(), stage.word(), &outcomes(scene, |attempt| attempt.stopped_by(stage, version)));
    }
}
