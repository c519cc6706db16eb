//! How decisions end an experiment. In whatever order the same decisions on the same candidates come, it ends in the same
//! state and names the same candidate as the best.
//!
//! It has succeeded as soon as a candidate is accepted (X71). It has failed when no candidate was accepted, none is left
//! that could be, and for at least one of them the engine said to stop: a missed target of one candidate says nothing
//! about another that is not judged yet. A rejection alone never ends it (X72).

use rusqlite::{Connection, Transaction};
use xt_core::canonical::Value;
use xt_core::fault::Faults;
use xt_core::field::{Field as _, object};
use xt_core::manifest::decision::Outcome;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::settle::{ExperimentState, Machine as _, NodeState};

use crate::decision::{DecisionFault, Judgement, decisions};
use crate::error::RecordError;
use crate::event::{self, Entry, append};
use crate::query::{self, ExperimentRow};
use crate::state::advance;

/// What the log calls it when a better candidate is accepted in an experiment that has succeeded already.
const BETTER: &str = "better";

/// What follows for its experiment from a decision whose candidate has its new state already (X71, X72).
pub fn follow(transaction: &Transaction<'_>, judgement: &Judgement, outcome: Outcome) -> Result<(), RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Experiment, name: judgement.experiment.clone() };
    let experiment = query::experiment(transaction, &judgement.experiment)?.ok_or_else(unknown)?;
    match (outcome, experiment.state) {
        (Outcome::StopSucceeded, ExperimentState::Succeeded) => better(transaction, judgement, &experiment),
        (_, state) if state.is_terminal() => Ok(()),
        (Outcome::StopSucceeded, _) => end(transaction, judgement, &experiment, ExperimentState::Succeeded),
        _ if has_failed(transaction, &experiment.id)? => {
            end(transaction, judgement, &experiment, ExperimentState::Failed)
        }
        _ => Ok(()),
    }
}

/// Whether every candidate is through, none accepted, and at least one of them with the word to stop.
fn has_failed(connection: &Connection, experiment: &Name) -> Result<bool, RecordError> {
    let mut stopped = false;
    for node in query::nodes_of_experiment(connection, experiment)? {
        if !node.state.is_terminal() || node.state == NodeState::Completed {
            return Ok(false);
        }
        stopped |= decisions(connection, &node.id)?.iter().any(|made| made.outcome == Some(Outcome::StopFailed));
    }
    Ok(stopped)
}

fn end(
    transaction: &Transaction<'_>,
    judgement: &Judgement,
    experiment: &ExperimentRow,
    to: ExperimentState,
) -> Result<(), RecordError> {
    let attempts = query::attempts_of_experiment(transaction, &experiment.id)?;
    if let Some(alive) = attempts.iter().find(|attempt| !attempt.state.is_terminal()) {
        return Err(DecisionFault::Running { attempt: alive.id.clone() }.into());
    }
    let best = (to == ExperimentState::Succeeded).then_some(&judgement.node);
    advance(transaction, &experiment.id, experiment.state, to, judgement.now, &named(judgement, best))
}

fn named(judgement: &Judgement, best: Option<&Name>) -> Value {
    let value = best.and(judgement.reached.as_ref()).map(|(_, value)| *value);
    object([
        ("decision", judgement.decision.write()),
        ("best", best.map_or(Value::Null, Name::write)),
        ("value", value.write()),
    ])
}

/// Names the candidate as the best of a succeeded experiment, if it is better than the one named before; of two that are
/// equally good it is the one that was known first.
fn better(transaction: &Transaction<'_>, judgement: &Judgement, experiment: &ExperimentRow) -> Result<(), RecordError> {
    let Some((best, value)) = best_of(transaction, &experiment.id)? else { return Ok(()) };
    let nodes = query::nodes_of_experiment(transaction, &experiment.id)?;
    let place = |id: &Name| nodes.iter().position(|node| node.id == *id);
    let earlier = place(&judgement.node) < place(&best);
    let is_better = match (&judgement.reached, value) {
        (Some((operator, new)), Some(old)) if *new != old => operator.holds(*new, old),
        (Some(_), None) => true,
        (None, Some(_)) => false,
        _ => earlier,
    };
    if !is_better {
        return Ok(());
    }
    let entry = Entry {
        level: Level::Experiment,
        subject: &experiment.id,
        before: Some(experiment.state.word()),
        after: None,
        word: BETTER,
        payload: &named(judgement, Some(&judgement.node)),
    };
    append(transaction, judgement.now, &entry)
}

/// The candidate that was named last as the best of an experiment, and what it reached.
pub fn best_of(connection: &Connection, experiment: &Name) -> Result<Option<(Name, Option<Finite>)>, RecordError> {
    let mut events = event::of(connection, Level::Experiment, experiment, ExperimentState::Succeeded.word())?;
    events.extend(event::of(connection, Level::Experiment, experiment, BETTER)?);
    let Some(last) = events.last() else { return Ok(None) };
    let best = last.payload.get("best").and_then(Value::as_str).and_then(Name::new);
    let value = last.payload.get("value").and_then(|value| Finite::read(value, "/value", &mut Faults::new()));
    let lacks = || RecordError::Damaged { what: format!("event {} names no best candidate", last.sequence) };
    Ok(Some((best.ok_or_else(lacks)?, value)))
}
