//! Following a run from a terminal or a pipeline: messages as they come, and a signal to this process as a request to
//! cancel the run.

use nix::sys::signal::Signal;
use xt_core::manifest::job::Message;
use xt_core::manifest::run::Run;
use xt_core::name::Name;

use crate::error::RuntimeError;
use crate::runtime::{Next, Runtime, Sight};
use crate::signals::Signals;

/// How many signals it takes to leave a run that does not stop. The first asks for it to be cancelled.
const INSISTENCE: u32 = 3;

/// How following a run ended.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The run record.
    pub run: Run,
    /// The first signal that came meanwhile.
    pub signal: Option<Signal>,
}

/// Why there is no run record.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// Something failed.
    #[error(transparent)]
    Failed(#[from] RuntimeError),
    /// This signal, repeated, ended the waiting; the run is its supervisor's.
    #[error("left by signal {0}")]
    Left(Signal),
}

/// Follows `attempt` to its end. `tool` is what the run record calls this program when a signal cancels the run.
pub fn follow(
    runtime: &Runtime,
    attempt: &Name,
    tool: &str,
    signals: &Signals,
    on_message: &mut dyn FnMut(&Message),
) -> Result<Followed, Unfinished> {
    let (mut first, mut count) = (None, 0);
    let run = runtime.observe(attempt, &mut |sight| {
        if let Sight::Message(message) = sight {
            on_message(message);
        }
        while let Some(signal) = signals.take()? {
            count += 1;
            if first.is_none() {
                first = Some(signal);
                runtime.cancel(attempt, &format!("{signal} to {tool}"))?;
            }
        }
        Ok(if count >= INSISTENCE { Next::Leave } else { Next::Stay })
    })?;
    match (run, first) {
        (Some(run), signal) => Ok(Followed { run, signal }),
        (None, signal) => Err(Unfinished::Left(signal.unwrap_or(Signal::SIGTERM))),
    }
}

/// Follows `attempt` to its end without listening to signals.
pub fn wait(runtime: &Runtime, attempt: &Name, on_message: &mut dyn FnMut(&Message)) -> Result<Run, RuntimeError> {
    let run = runtime.observe(attempt, &mut |sight| {
        if let Sight::Message(message) = sight {
            on_message(message);
        }
        Ok(Next::Stay)
    })?;
    run.ok_or_else(|| RuntimeError::Left(attempt.clone()))
}
