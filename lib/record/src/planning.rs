//! What plans were made for. A plan says nothing of experiments, so that it is the same in each; the record says for which
//! it was compiled, before anybody runs it.

use rusqlite::Transaction;
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::action::ActionKind;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{ExperimentState, Machine, NodeState};

use crate::error::RecordError;
use crate::event::{Entry, append};
use crate::operation::{next, number_name};
use crate::query::{self, NodeRow};
use crate::state::{advance, created};
use crate::{Record, action};

/// A plan, by what the record needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Its id.
    pub plan: Digest,
    /// Fingerprint of its candidate.
    pub fingerprint: Digest,
}

/// What the log calls it when a plan was compiled for an experiment.
const COMPILED: &str = "compiled";

impl Record {
    /// Notes that plans were compiled for an experiment, which is created when new; all of them or none. Noting a plan
    /// again changes nothing. An experiment or candidate that has ended takes no plans but those that it has.
    pub fn compiled_for(&self, experiment: &Name, plans: &[Compiled], now: Instant) -> Result<(), RecordError> {
        self.write(|transaction| {
            if plans.is_empty() || !all_noted(transaction, experiment, plans)? {
                open_experiment(transaction, experiment, now)?;
            }
            plans.iter().try_for_each(|plan| note(transaction, experiment, plan, now))
        })
    }

    /// The experiment that a plan was compiled for; `None` when it was for none in particular. Of several, those that have
    /// ended do not count; if several are left, a person must say which is meant.
    pub fn experiment_of_plan(&self, plan: Digest) -> Result<Option<Name>, RecordError> {
        // Found by the index of the same expression and condition.
        let sql = "SELECT experiment.* FROM event JOIN node ON node.id = event.subject
             JOIN experiment ON experiment.id = node.experiment
             WHERE event.kind = 'node.compiled' AND json_extract(event.payload, '$.plan') = ?1 ORDER BY event.sequence";
        let mut all = query::all(&self.connection, sql, &[&plan.to_string()], query::read_experiment)?;
        let last = all.last().map(|experiment| experiment.id.clone());
        all.retain(|experiment| !experiment.state.is_terminal());
        match &all[..] {
            [] => Ok(last),
            [one] => Ok(Some(one.id.clone())),
            several => {
                let experiments = several.iter().map(|experiment| experiment.id.to_string()).collect();
                Err(RecordError::Ambiguous { plan, experiments })
            }
        }
    }
}

fn all_noted(transaction: &Transaction<'_>, experiment: &Name, plans: &[Compiled]) -> Result<bool, RecordError> {
    for plan in plans {
        if !is_noted(transaction, experiment, plan)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_noted(transaction: &Transaction<'_>, experiment: &Name, compiled: &Compiled) -> Result<bool, RecordError> {
    let Some(node) = find_node(transaction, experiment, &compiled.fingerprint.to_string())? else { return Ok(false) };
    let sql = "SELECT subject AS id FROM event WHERE kind = 'node.compiled' AND json_extract(payload, '$.plan') = ?1
               AND subject = ?2";
    Ok(!action::names(transaction, sql, &[&compiled.plan.to_string(), node.id.as_str()])?.is_empty())
}

/// Notes a plan, unless that is done.
fn note(
    transaction: &Transaction<'_>,
    experiment: &Name,
    compiled: &Compiled,
    now: Instant,
) -> Result<(), RecordError> {
    if is_noted(transaction, experiment, compiled)? {
        return Ok(());
    }
    let node = node(transaction, experiment, compiled, now)?;
    let before = Some(node.state.word());
    let payload = object([("plan", compiled.plan.write())]);
    let entry = Entry { level: Level::Node, subject: &node.id, before, after: None, word: COMPILED, payload: &payload };
    append(transaction, now, &entry)
}

/// The experiment, made if it is new. Refused when it has ended or is being cancelled.
pub fn open_experiment(transaction: &Transaction<'_>, id: &Name, now: Instant) -> Result<(), RecordError> {
    let Some(known) = query::experiment(transaction, id)? else {
        if is_given(id) {
            return Err(RecordError::Unknown { level: Level::Experiment, name: id.clone() });
        }
        return created::<ExperimentState>(transaction, id, now, &object([]));
    };
    open(id, known.state)?;
    match action::open(transaction, ActionKind::Cancel, id)? {
        None => Ok(()),
        Some(action) => Err(RecordError::Closing { level: Level::Experiment, subject: id.clone(), action }),
    }
}

/// Whether a name is one that nobody chooses: a digest, or an id that `xt-log experiment new` makes of one. An experiment
/// that is called so is not made in passing, since whoever names it means one that is there.
fn is_given(id: &Name) -> bool {
    let made = id.as_str().strip_prefix("exp-");
    let of_a_digest = made.is_some_and(|rest| rest.len() == 12 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    of_a_digest || id.as_str().parse::<Digest>().is_ok()
}

/// The node of the candidate of a plan, made if it is new: then it has its first plan. Refused when it has ended.
pub fn node(
    transaction: &Transaction<'_>,
    experiment: &Name,
    compiled: &Compiled,
    now: Instant,
) -> Result<NodeRow, RecordError> {
    let fingerprint = compiled.fingerprint.to_string();
    if let Some(known) = find_node(transaction, experiment, &fingerprint)? {
        return open(&known.id, known.state).map(|()| known);
    }
    let id = number_name("node", Some(&compiled.fingerprint), next(transaction, Level::Node)?);
    let members = [("experiment", experiment.as_str().into()), ("fingerprint", fingerprint.as_str().into())];
    created::<NodeState>(transaction, &id, now, &object(members))?;
    let plan: Value = object([("plan", compiled.plan.write())]);
    advance(transaction, &id, NodeState::Created, NodeState::Planned, now, &plan)?;
    let (experiment, state) = (experiment.clone(), NodeState::Planned);
    Ok(NodeRow { id, experiment, fingerprint: compiled.fingerprint, state })
}

/// The node of a candidate that takes no new work, since it or its experiment has ended.
pub fn ended(
    transaction: &Transaction<'_>,
    experiment: &Name,
    fingerprint: &Digest,
) -> Result<Option<Name>, RecordError> {
    let known = query::experiment(transaction, experiment)?;
    let closed = known.is_some_and(|experiment| experiment.state.is_terminal());
    let node = find_node(transaction, experiment, &fingerprint.to_string())?;
    Ok(node.filter(|node| closed || node.state.is_terminal()).map(|node| node.id))
}

fn find_node(
    transaction: &Transaction<'_>,
    experiment: &Name,
    fingerprint: &str,
) -> Result<Option<NodeRow>, RecordError> {
    let mut statement = transaction.prepare_cached("SELECT * FROM node WHERE experiment = ?1 AND fingerprint = ?2")?;
    let mut rows = statement.query([experiment.as_str(), fingerprint])?;
    rows.next()?.map(query::read_node).transpose()
}

/// Refuses new work under something that has ended.
fn open<S: Machine>(subject: &Name, state: S) -> Result<(), RecordError> {
    if state.is_terminal() {
        return Err(RecordError::Closed { level: S::LEVEL, subject: subject.clone(), state: state.name() });
    }
    Ok(())
}
