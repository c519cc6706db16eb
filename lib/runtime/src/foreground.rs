//! Following a run from a terminal or a pipeline: messages as they come, and signals to this process.

use nix::sys::signal::Signal;
use xt_core::manifest::job::Message;
use xt_core::manifest::run::Run;
use xt_core::name::Name;

use crate::error::RuntimeError;
use crate::runtime::{Next, Runtime, Sight};
use crate::signals::Signals;

/// How many signals it takes to leave a run that does not stop. The first asks for it to be cancelled.
const INSISTENCE: u32 = 3;

/// Who follows a run, which says what a signal to this process means.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// The tool of this name started the run in the foreground: a signal asks for the run to be cancelled.
    Owner(&'a str),
    /// Someone looks on: a signal ends the looking, and the run goes on.
    Onlooker,
}

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

/// Follows `attempt` to its end.
pub fn follow(
    runtime: &Runtime,
    attempt: &Name,
    role: Role<'_>,
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
            first = first.or(Some(signal));
            match role {
                Role::Owner(tool) if count == 1 => {
                    runtime.cancel(attempt, &format!("{signal} to {tool}")).map(drop)?;
                }
                Role::Owner(_) => {}
                Role::Onlooker => return Ok(Next::Leave),
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
