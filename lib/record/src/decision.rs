//! Decisions: each evaluation cycle of a candidate is decided once, in one commit with what follows (X70–X85).
//!
//! A decision is an event of its node; the document lies in the store, and the event holds its digest. Nothing here asks
//! whether the outcome is right: that is the engine's call (X80). What is checked is that it was made on the results of
//! the cycle, all of them and no others.

use std::collections::BTreeSet;

use rusqlite::{Connection, Transaction};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::Exit;
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::decision::{Operator, Outcome};
use xt_core::manifest::event::{Event, Level};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::settle::{NodeState, RunState};

use crate::error::RecordError;
use crate::event::{self, Entry, append};
use crate::query::{self, NodeRow, RunRow};
use crate::state::advance;
use crate::{Record, experiment_end};

/// What the log calls a decision, a decision that could not be made, and the choice of a bundle.
const DECIDED: &str = "decided";
const DEFERRED: &str = "deferred";
const PROMOTED: &str = "promoted";

/// A decision to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The experiment that it is about.
    pub experiment: Name,
    /// The candidate.
    pub node: Name,
    /// The evaluation cycle.
    pub cycle: u64,
    /// The evaluation runs whose results it was made on.
    pub results: Vec<Name>,
    /// Id of the `xt.decision/1`.
    pub decision: Digest,
    /// Fingerprint of what it was made on.
    pub input_fingerprint: Digest,
    /// What is proposed; `None` when nothing could be decided.
    pub outcome: Option<Outcome>,
    /// What the candidate has of the primary metric, and the relation in which a better one stands to a worse one.
    pub reached: Option<(Operator, Finite)>,
    /// Who or what records it.
    pub by: String,
    /// The time.
    pub now: Instant,
}

/// A decision in the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRow {
    /// Its place in the log.
    pub sequence: u64,
    /// When it was recorded.
    pub at: Instant,
    /// The candidate.
    pub node: Name,
    /// The evaluation cycle.
    pub cycle: u64,
    /// Id of the `xt.decision/1`.
    pub decision: Digest,
    /// Fingerprint of what it was made on.
    pub input_fingerprint: Digest,
    /// What was decided; `None` when it was put off.
    pub outcome: Option<Outcome>,
    /// Who or what recorded it.
    pub by: String,
}

/// The answer to a judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It is in the record now, with its effects.
    New(DecisionRow),
    /// It was there already.
    Existing(DecisionRow),
}

impl Decided {
    /// The decision, new or not.
    pub fn row(self) -> DecisionRow {
        match self {
            Self::New(row) | Self::Existing(row) => row,
        }
    }
}

/// Why a decision is not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecisionFault {
    /// The cycle is decided, and otherwise.
    #[error("cycle {cycle} of {node} is decided already, by {recorded}")]
    Decided {
        /// The candidate.
        node: Name,
        /// The cycle.
        cycle: u64,
        /// The decision in the record.
        recorded: Digest,
    },
    /// A later cycle has begun, or the cycle is none of the candidate's.
    #[error("cycle {cycle} of {node} cannot be decided: its last one is {last}")]
    OtherCycle {
        /// The candidate.
        node: Name,
        /// The cycle asked for.
        cycle: u64,
        /// The last one in the record; 0 before the first.
        last: u64,
    },
    /// The candidate belongs to another experiment.
    #[error("{node} belongs to experiment {recorded}, not {asked}")]
    Foreign {
        /// The candidate.
        node: Name,
        /// Its experiment.
        recorded: Name,
        /// The experiment asked for.
        asked: Name,
    },
    /// A result of the cycle is left out.
    #[error("the result of {run} belongs to the cycle and is left out")]
    LeftOut {
        /// The evaluation run.
        run: Name,
    },
    /// A result is none of the cycle.
    #[error("{run} gave no result in the cycle")]
    Outside {
        /// The evaluation run.
        run: Name,
    },
    /// A result is named twice.
    #[error("the result of {run} is named twice")]
    Twice {
        /// The evaluation run.
        run: Name,
    },
    /// An evaluation of the cycle has not succeeded yet.
    #[error("{node} is {state}: its evaluations are not all there")]
    Unfinished {
        /// The candidate.
        node: Name,
        /// Its state.
        state: NodeState,
    },
    /// The experiment would end while something of it still runs (E-21).
    #[error("{attempt} still runs, and the experiment would end")]
    Running {
        /// An attempt that has not ended.
        attempt: Name,
    },
    /// Another bundle was chosen before.
    #[error("experiment {experiment} has a promotion already: {recorded}")]
    Promoted {
        /// The experiment.
        experiment: Name,
        /// The promotion in the record.
        recorded: Digest,
    },
}

impl DecisionFault {
    /// The exit code.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Decided { .. } | Self::Promoted { .. } => Exit::Conflict,
            Self::Running { .. } | Self::Unfinished { .. } => Exit::NotNow,
            _ => Exit::Refused,
        }
    }

    /// The code word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Decided { .. } => "decision.decided",
            Self::OtherCycle { .. } => "decision.other-cycle",
            Self::Foreign { .. } => "decision.foreign",
            Self::LeftOut { .. } => "decision.left-out",
            Self::Outside { .. } => "decision.outside",
            Self::Twice { .. } => "decision.duplicate",
            Self::Unfinished { .. } => "decision.unfinished",
            Self::Running { .. } => "decision.running",
            Self::Promoted { .. } => "decision.promoted",
        }
    }
}

impl From<DecisionFault> for RecordError {
    fn from(fault: DecisionFault) -> Self {
        Self::Decision(fault)
    }
}

impl Record {
    /// Records a decision with its effects, or finds that it is recorded already. What could not be decided is noted once
    /// for each cycle (X82), changes nothing, and can be decided later.
    pub fn decide(&self, judgement: &Judgement) -> Result<Decided, RecordError> {
        self.write(|transaction| {
            let node = checked_node(transaction, judgement)?;
            let rows = decisions(transaction, &node.id)?;
            let of_cycle = || rows.iter().filter(|row| row.cycle == judgement.cycle);
            if let Some(made) = of_cycle().find(|row| settles(row.outcome).is_some()) {
                if made.decision == judgement.decision {
                    return Ok(Decided::Existing(made.clone()));
                }
                let (node, cycle, recorded) = (node.id, made.cycle, made.decision);
                return Err(DecisionFault::Decided { node, cycle, recorded }.into());
            }
            check_cycle(transaction, judgement, &node)?;
            if settles(judgement.outcome).is_none()
                && let Some(deferred) = of_cycle().next()
            {
                return Ok(Decided::Existing(deferred.clone()));
            }
            note(transaction, judgement, &node)?;
            if let Some(outcome) = settles(judgement.outcome) {
                take_effect(transaction, judgement, &node, outcome)?;
            }
            let unknown = || RecordError::Damaged { what: format!("no event tells of the decision on {}", node.id) };
            decisions(transaction, &node.id)?.pop().map(Decided::New).ok_or_else(unknown)
        })
    }

    /// Every decision on a candidate, also those put off, in order.
    pub fn decisions(&self, node: &Name) -> Result<Vec<DecisionRow>, RecordError> {
        decisions(&self.connection, node)
    }

    /// Records that `bundle` of `node` was chosen, once for each experiment; the same again changes nothing. Gives
    /// whether it is new.
    pub fn promote(
        &self,
        experiment: &Name,
        promotion: Digest,
        (node, bundle): (&Name, Digest),
        by: &str,
        now: Instant,
    ) -> Result<bool, RecordError> {
        self.write(|transaction| {
            let unknown = || RecordError::Unknown { level: Level::Experiment, name: experiment.clone() };
            let found = query::experiment(transaction, experiment)?.ok_or_else(unknown)?;
            if let Some(recorded) = promotion_of(transaction, experiment)? {
                let fault = DecisionFault::Promoted { experiment: experiment.clone(), recorded };
                return if recorded == promotion { Ok(false) } else { Err(fault.into()) };
            }
            let payload = object([
                ("promotion", promotion.write()),
                ("node", node.write()),
                ("bundle", bundle.write()),
                ("by", by.into()),
            ]);
            let entry = Entry {
                level: Level::Experiment,
                subject: experiment,
                before: Some(found.state.word()),
                after: None,
                word: PROMOTED,
                payload: &payload,
            };
            append(transaction, now, &entry).map(|()| true)
        })
    }

    /// The candidate that a succeeded experiment names as the best it accepted.
    pub fn best(&self, experiment: &Name) -> Result<Option<Name>, RecordError> {
        Ok(experiment_end::best_of(&self.connection, experiment)?.map(|(best, _)| best))
    }

    /// Id of the promotion that was recorded for an experiment.
    pub fn promotion(&self, experiment: &Name) -> Result<Option<Digest>, RecordError> {
        promotion_of(&self.connection, experiment)
    }
}

fn promotion_of(connection: &Connection, experiment: &Name) -> Result<Option<Digest>, RecordError> {
    let events = event::of(connection, Level::Experiment, experiment, PROMOTED)?;
    events.first().map(|event| digest(event, "promotion")).transpose()
}

/// The node, if it is of the experiment that the judgement names.
fn checked_node(transaction: &Transaction<'_>, judgement: &Judgement) -> Result<NodeRow, RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Node, name: judgement.node.clone() };
    let node = query::node(transaction, &judgement.node)?.ok_or_else(unknown)?;
    if node.experiment != judgement.experiment {
        let (recorded, asked) = (node.experiment, judgement.experiment.clone());
        return Err(DecisionFault::Foreign { node: node.id, recorded, asked }.into());
    }
    Ok(node)
}

/// Whether the judgement was made on the results of the last cycle, on each of them once, and on no others (X78, X79).
fn check_cycle(transaction: &Transaction<'_>, judgement: &Judgement, node: &NodeRow) -> Result<(), RecordError> {
    let runs = query::runs_of_node(transaction, &node.id)?;
    let last = runs.iter().filter_map(|run| run.cycle).max().unwrap_or(0);
    if judgement.cycle != last || last == 0 {
        let (node, cycle) = (node.id.clone(), judgement.cycle);
        return Err(DecisionFault::OtherCycle { node, cycle, last }.into());
    }
    let measured = |run: &&RunRow| run.cycle == Some(last) && run.state == RunState::Succeeded;
    let due: BTreeSet<&Name> = runs.iter().filter(measured).map(|run| &run.id).collect();
    let mut seen = BTreeSet::new();
    for run in &judgement.results {
        if !due.contains(run) {
            return Err(DecisionFault::Outside { run: run.clone() }.into());
        }
        if !seen.insert(run) {
            return Err(DecisionFault::Twice { run: run.clone() }.into());
        }
    }
    if let Some(run) = due.difference(&seen).next() {
        return Err(DecisionFault::LeftOut { run: (*run).clone() }.into());
    }
    if node.state != NodeState::Deciding {
        return Err(DecisionFault::Unfinished { node: node.id.clone(), state: node.state }.into());
    }
    Ok(())
}

/// Writes the decision into the log, beside the state that it does not change yet.
fn note(transaction: &Transaction<'_>, judgement: &Judgement, node: &NodeRow) -> Result<(), RecordError> {
    let payload = object([
        ("decision", judgement.decision.write()),
        ("cycle", judgement.cycle.write()),
        ("input_fingerprint", judgement.input_fingerprint.write()),
        ("outcome", judgement.outcome.write()),
        ("results", judgement.results.write()),
        ("by", judgement.by.write()),
    ]);
    let word = if settles(judgement.outcome).is_some() { DECIDED } else { DEFERRED };
    let before = Some(node.state.word());
    let entry = Entry { level: Level::Node, subject: &node.id, before, after: None, word, payload: &payload };
    append(transaction, judgement.now, &entry)
}

/// The outcome, if something follows from it: what the exact regime has to be asked about is open still (T73).
fn settles(outcome: Option<Outcome>) -> Option<Outcome> {
    outcome.filter(|outcome| *outcome != Outcome::Escalate)
}

/// What follows from an outcome (X71, X72). An experiment that has ended keeps its end.
fn take_effect(
    transaction: &Transaction<'_>,
    judgement: &Judgement,
    node: &NodeRow,
    outcome: Outcome,
) -> Result<(), RecordError> {
    let because = object([("decision", judgement.decision.write())]);
    let to = if outcome == Outcome::StopSucceeded { NodeState::Completed } else { NodeState::Rejected };
    advance(transaction, &node.id, node.state, to, judgement.now, &because)?;
    experiment_end::follow(transaction, judgement, outcome)
}

/// Every decision on a candidate, also those put off, in order.
pub fn decisions(connection: &Connection, node: &Name) -> Result<Vec<DecisionRow>, RecordError> {
    let mut events = event::of(connection, Level::Node, node, DECIDED)?;
    events.extend(event::of(connection, Level::Node, node, DEFERRED)?);
    events.sort_by_key(|event| event.sequence);
    events.iter().map(read).collect()
}

fn read(event: &Event) -> Result<DecisionRow, RecordError> {
    let text = |member: &str| event.payload.get(member).and_then(Value::as_str);
    let cycle = match event.payload.get("cycle") {
        Some(Value::Integer(integer)) => integer.to_u64(),
        _ => None,
    };
    Ok(DecisionRow {
        sequence: event.sequence,
        at: event.at,
        node: event.subject.clone(),
        cycle: cycle.ok_or_else(|| damaged(event, "cycle"))?,
        decision: digest(event, "decision")?,
        input_fingerprint: digest(event, "input_fingerprint")?,
        outcome: match text("outcome") {
            Some(word) => Some(Outcome::parse(word).ok_or_else(|| damaged(event, "outcome"))?),
            None => None,
        },
        by: text("by").unwrap_or_default().into(),
    })
}

fn digest(event: &Event, member: &str) -> Result<Digest, RecordError> {
    let text = event.payload.get(member).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| damaged(event, member))
}

fn damaged(event: &Event, member: &str) -> RecordError {
    RecordError::Damaged { what: format!("event {} has no {member}", event.sequence) }
}
