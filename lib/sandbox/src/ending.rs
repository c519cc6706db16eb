//! How a run ended, from what was counted and waited for, not from what anybody says.

use std::collections::BTreeMap;

use xt_core::manifest::intent::Network;

use crate::collect::Outputs;
use crate::error::SandboxError;
use crate::group::Counters;
use crate::wire::Message;

/// How a run ended. Absent figures were not observed.
#[derive(Debug)]
pub struct Ending {
    /// Exit code of the trainer, when it exited.
    pub code: Option<i32>,
    /// Signal that ended the trainer, when one did.
    pub signal: Option<i32>,
    /// Processor time of the trainer and of the children it waited for.
    pub cpu_nanoseconds: Option<u64>,
    /// Largest resident size of the trainer's process.
    pub peak_resident_bytes: Option<u64>,
    /// Processes of the run that were still alive when the trainer ended, and were killed.
    pub survivors_killed: Option<u64>,
    /// What the control group counted.
    pub counters: Counters,
    /// System calls refused by the filter, each of the first with its arguments in hexadecimal digits. Absent when the
    /// guard is gone without a report, and where it could not listen.
    pub denied: Option<Calls>,
    /// Calls on an admitted network, each of the first with its address. Absent without one, too.
    pub opened: Option<Calls>,
    /// What the trainer left.
    pub outputs: Outputs,
}

/// Calls that were counted, by name, and the first 64 of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many of each.
    pub counts: BTreeMap<String, u64>,
    /// The first of them, in their order.
    pub first: Vec<String>,
}

/// Marks of the two kinds of calls in messages.
pub(crate) const DENIED: &str = "denied";
pub(crate) const OPENED: &str = "opened";

impl Ending {
    /// Number of refused system calls.
    pub fn denied_total(&self) -> Option<u64> {
        self.denied.as_ref().map(|denied| denied.counts.values().sum())
    }
}

/// Puts the guard's messages together.
pub(crate) fn ended(
    messages: &[Message],
    guard: i32,
    counters: Counters,
    outputs: Outputs,
) -> Result<Ending, SandboxError> {
    let Some(last) = messages.iter().find(|message| message.kind() == "ended") else {
        return lost(messages, guard, counters, outputs);
    };
    let status = i32::try_from(last.number(1)).unwrap_or(0);
    let heard = messages.iter().find(|message| message.kind() == "heard");
    let admitted = heard.filter(|message| message.word(1) != Network::None.word());
    Ok(Ending {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        cpu_nanoseconds: Some(last.number(2)),
        peak_resident_bytes: Some(last.number(3)),
        survivors_killed: Some(last.number(4)),
        counters,
        denied: heard.map(|_| calls(messages, DENIED)),
        opened: admitted.map(|_| calls(messages, OPENED)),
        outputs,
    })
}

fn calls(messages: &[Message], kind: &str) -> Calls {
    let all = messages.iter().filter(|message| message.word(1) == kind);
    let (counts, first): (Vec<&Message>, Vec<&Message>) = all.partition(|message| message.kind() == "count");
    Calls {
        counts: counts.into_iter().map(|message| (message.word(2).to_string(), message.number(3))).collect(),
        first: first.into_iter().map(|message| message.word(2).to_string()).collect(),
    }
}

/// The guard itself was killed, and everything with it: by the kernel for lack of memory, or by someone outside.
fn lost(messages: &[Message], guard: i32, counters: Counters, outputs: Outputs) -> Result<Ending, SandboxError> {
    if !libc::WIFSIGNALED(guard) {
        let why = messages.iter().find(|message| message.kind() == "failed");
        return Err(SandboxError::Lost(why.map_or("it exited".into(), |message| message.words.join(" "))));
    }
    Ok(Ending {
        code: None,
        signal: Some(libc::WTERMSIG(guard)),
        cpu_nanoseconds: None,
        peak_resident_bytes: None,
        survivors_killed: None,
        counters,
        denied: None,
        opened: None,
        outputs,
    })
}
