//! A part of a run done again, so that the state after its last step is stored.

use std::path::Path;

use nix::sys::signal::Signal;
use xt_cli::{Common, Error, Progress};
use xt_core::fault::Faults;
use xt_core::manifest::job::Message;
use xt_core::manifest::run::{Run, Start};
use xt_core::verb::compare;
use xt_runtime::{Clock, Original, Role, Runtime, Signals, Unfinished, follow, pins};

/// What came of it.
pub enum Again {
    /// The run that was done; whether it succeeded stands in it.
    Done(Box<Run>),
    /// The machine is not the one that the run had, so it was not begun.
    Refused(Faults),
    /// A signal ended the waiting.
    Left(Signal),
}

/// Does the steps after `from` up to `step` again, for the tool `name`, and stores the state after the last of them.
pub fn again(
    common: &Common,
    name: &'static str,
    worker: &Path,
    original: &Original<'_>,
    (from, step): (Option<Start>, u64),
) -> Result<Again, Error> {
    let Some(stack) = &original.run.stack else {
        return Ok(Again::Refused(Faults::one("run#/stack", "replay.stack", "what the run ran on is not known")));
    };
    let differences = pins(stack, original.plan, worker)?;
    if !differences.is_empty() {
        return Ok(Again::Refused(compare::refusal(&differences)));
    }
    let begin = from.as_ref().map_or(0, |start| start.step);
    let clock = common.given_time().map_or(Clock::system(), Clock::fixed);
    let (runtime, signals) = (Runtime::new(&common.store, clock)?, Signals::block()?);
    let attempt = runtime.submit_or_get(&original.request(from, step, true), worker)?.id;
    let label = name.strip_prefix("xt-").unwrap_or(name);
    let mut progress = Progress::new(common, label, step.saturating_sub(begin), "steps");
    let followed = follow(&runtime, &attempt, Role::Owner(name), &signals, &mut |message| {
        if let Message::Step { line, .. } = message {
            progress.update(line.step.saturating_sub(begin), "computing again");
        }
    });
    progress.finish();
    match followed {
        Ok(followed) => Ok(Again::Done(Box::new(followed.run))),
        Err(Unfinished::Failed(error)) => Err(error.into()),
        Err(Unfinished::Left(signal)) => Ok(Again::Left(signal)),
    }
}
