//! Getting what a run asks for: waiting for it, making room for it, and giving it back.

use std::time::Duration;

use xt_cli::Error;
use xt_core::name::Name;
use xt_record::{Attempt, RecordError};
use xt_runtime::{Request, Runtime, RuntimeError, Signals, worker};

use crate::requests::Finder;
use crate::results::eprintln_quietly;
use crate::{Left, XtRun};

/// How long to wait before asking again for what could not be had.
const PAUSE: Duration = Duration::from_millis(200);
impl XtRun {
    /// Submits a request, and waits or makes room for it when that was asked for; what was drained for it is then in
    /// `request.beside`, also when this fails. `None` when a signal ended the waiting.
    pub(crate) fn granted(
        &self,
        runtime: &Runtime,
        request: &mut Request,
        signals: Option<&Signals>,
        left: &Left,
    ) -> Result<Option<Attempt>, Error> {
        // Looked for once: a run that waits does so with what was there when it was asked for.
        let (mut told, mut worker) = (false, None);
        loop {
            let find = || Finder::new(self.worker.as_deref()).of(&request.plan);
            let turn = self.once.then(|| runtime.turn()).transpose()?;
            if let Some(turn) = &turn
                && let Some(standing) = runtime.standing_started(request, find, turn)?
            {
                return Ok(Some(standing));
            }
            let found = worker.take().map_or_else(find, Ok)?;
            let submitted = runtime.submit_or_get(request, &found);
            worker = Some(found);
            drop(turn);
            let reasons = match submitted {
                Err(RuntimeError::Record(RecordError::Postponed { reasons })) if self.wait || self.preempt => reasons,
                answer => return Ok(Some(answer?)),
            };
            if !told {
                eprintln_quietly(&format!("xt-run: waiting: {}", reasons.join("; ")));
                told = true;
            }
            if self.preempt {
                runtime.make_room(request)?;
            }
            if pause(signals, left)? {
                return Ok(None);
            }
        }
    }

    /// Lets go on what was drained for a run. Whatever cannot go on now keeps what it has, closed to everybody else.
    pub(crate) fn restore(
        &self,
        runtime: &Runtime,
        drained: &[Name],
        signals: Option<&Signals>,
        left: &Left,
    ) -> Result<(), Error> {
        let find = || worker::find(self.worker.as_deref());
        for attempt in drained {
            let mut started = runtime.go_on(attempt, &find);
            while matches!(started, Err(RuntimeError::Record(RecordError::Postponed { .. }))) && !pause(signals, left)?
            {
                started = runtime.go_on(attempt, &find);
            }
            let text = match started {
                Ok(going_on) => format!("xt-run: {attempt} goes on as {}", going_on.id),
                Err(error) => format!(
                    "xt-run: {attempt} was drained and cannot go on, so what it had stays closed: {error}\nhint: \
                     `xt-run --resume {attempt}` lets it go on; `xt-log resources` says what is closed, and how to open it"
                ),
            };
            eprintln_quietly(&text);
        }
        Ok(())
    }
}

/// Waits a little; whether a signal ends the waiting.
fn pause(signals: Option<&Signals>, left: &Left) -> Result<bool, Error> {
    std::thread::sleep(PAUSE);
    let signal = signals.map(Signals::take).transpose()?.flatten();
    left.set(signal.or(left.get()));
    Ok(signal.is_some())
}
