//! Making room for a run: whatever must stop for it stops at a step boundary, keeps what it has, and goes on afterwards
//! (L18–L20, L75, L76).

use xt_core::manifest::action::ActionKind;
use xt_core::manifest::event::Level;
use xt_core::manifest::resources::Lease;
use xt_core::manifest::run::Status;
use xt_core::name::Name;
use xt_core::verb::lease::in_the_way;
use xt_core::verb::settle::Machine as _;
use xt_record::Attempt;

use crate::conclude::Place;
use crate::error::RuntimeError;
use crate::foreground::wait;
use crate::reconcile::FindWorker;
use crate::request::Request;
use crate::resources;
use crate::runtime::Runtime;

impl Runtime {
    /// Stops what must stop so that `request` can have what it asks for, and no more; nothing when stopping does not help.
    /// What was stopped stands in `request.beside` then, also when this fails half way: whoever calls this lets it go on
    /// afterwards, by [`Runtime::go_on`]. Until then nobody else gets what it had.
    pub fn make_room(&self, request: &mut Request) -> Result<(), RuntimeError> {
        let place = self.place()?;
        let mut held = place.record.leases()?;
        held.retain(|lease| !request.beside.contains(&lease.attempt));
        let claim = resources::claim(&place, request)?;
        let can_stop = |lease: &Lease| holder(&place, lease).is_ok_and(|holder| holder.is_some());
        let chosen = in_the_way(&claim.asked, claim.inventory.as_ref(), &held, &claim.seen, &can_stop);
        let chosen: Vec<Name> = chosen.into_iter().map(|lease| lease.attempt.clone()).collect();
        for attempt in &chosen {
            self.ask(ActionKind::Preempt, Level::Attempt, attempt, "xt-run --preempt")?;
        }
        let mut failed = None;
        for attempt in chosen {
            match wait(self, &attempt, &mut |_| {}) {
                Ok(run) if run.status == Status::Drained => request.beside.push(attempt),
                // It came to its own end, and has nothing any more.
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Lets go on what was stopped for another run: a new attempt takes over what it had.
    pub fn go_on(&self, attempt: &Name, worker: FindWorker<'_>) -> Result<Attempt, RuntimeError> {
        let worker = worker()?;
        self.submit_or_get(&self.resumption(attempt, &worker)?, &worker)
    }
}

/// Who has a lease, if it can be stopped and go on: a training run that nobody must give secrets again.
fn holder(place: &Place, lease: &Lease) -> Result<Option<Attempt>, RuntimeError> {
    let Some(attempt) = place.record.attempt(&lease.attempt)? else { return Ok(None) };
    if attempt.state.is_terminal() || attempt.level != Level::Attempt {
        return Ok(None);
    }
    let plan = place.plan(&attempt)?;
    Ok((plan.command().is_none() && plan.intent.secrets.is_empty()).then_some(attempt))
}
