//! Carrying out what people ask for: the record has the wish and its operations; the runtime is told by a file in the
//! folder of each run, which its supervisor looks for.

use xt_core::manifest::action::{Action, ActionKind, Step};
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{Machine as _, OperationState};
use xt_record::{Asked, Wish};

use crate::conclude::Place;
use crate::error::RuntimeError;
use crate::folder::{Folder, write_once};
use crate::run_documents::Cancel;
use crate::runtime::Runtime;

impl Runtime {
    /// Asks for the work of an experiment or of an attempt to be stopped. The wish is in the record before any
    /// supervisor hears of it; asking again while it is open tells again those that may not have heard.
    pub fn ask(&self, kind: ActionKind, level: Level, target: &Name, by: &str) -> Result<Asked, RuntimeError> {
        let place = self.place()?;
        let wish = Wish { kind, level, target: target.clone(), by: by.into(), now: place.clock.now() };
        let asked = place.record.ask(&wish)?;
        match &asked {
            Asked::New(action) | Asked::Open(action) => deliver(&place, action).map(|()| asked),
            Asked::Ended => Ok(asked),
        }
    }
}

/// Tells the supervisor of every attempt that an action concerns and that has not ended.
pub(crate) fn deliver(place: &Place, action: &Action) -> Result<(), RuntimeError> {
    let open = |step: &&Step| !step.state.is_terminal();
    action.operations.iter().filter(open).try_for_each(|step| tell(place, action, step))
}

fn tell(place: &Place, action: &Action, step: &Step) -> Result<(), RuntimeError> {
    let folder = Folder::of(place.store.path(), &step.attempt);
    let note = match action.kind {
        ActionKind::Cancel => folder.cancel(),
        ActionKind::Drain | ActionKind::Preempt => folder.drain(),
    };
    if step.state == OperationState::Intended || !note.exists() {
        folder.create()?;
        let wish = Cancel { attempt: step.attempt.clone(), by: action.by.clone(), at: action.at };
        write_once(&note, &wish)?;
        place.record.sent(&step.operation, place.clock.now())?;
    }
    match place.record.attempt(&step.attempt)? {
        Some(attempt)
            if action.kind == ActionKind::Cancel && attempt.process.is_none() && !attempt.state.is_terminal() =>
        {
            place.cancel_unclaimed(&attempt, &action.by).map(drop)
        }
        _ => Ok(()),
    }
}
