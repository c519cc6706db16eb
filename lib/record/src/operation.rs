//! Operations: what is asked of a runtime. The intent is in the record before the runtime is asked (X18–X20, X29–X35).

use std::path::Path;

use rusqlite::{Connection, Row, Transaction, params};
use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::{Field as _, object};
use xt_core::instant::Instant;
use xt_core::manifest::event::Level;
use xt_core::name::Name;
use xt_core::verb::settle::{
    AttemptState, EvaluationAttemptState, EvaluationRunState, Machine as _, NodeState, OperationState, RunState,
};

use crate::error::RecordError;
use crate::planning::{self, Compiled};
use crate::query::{self, Attempt, RunRow};
use crate::schema::Table;
use crate::state::{advance, created};
use crate::{Claim, Record, lease};

/// A workload that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The experiment it belongs to; created when new.
    pub experiment: Name,
    /// Fingerprint of the candidate.
    pub fingerprint: Digest,
    /// Seed of the run.
    pub seed: u64,
    /// Id of the plan.
    pub plan: Digest,
    /// Request digest of the plan: what makes two submissions the same one.
    pub request: Digest,
    /// The operation id; `None` mints one.
    pub operation: Option<Name>,
    /// What is evaluated, such as a bundle, when this is an evaluation of the candidate; `None` trains it.
    pub subject: Option<Digest>,
    /// What is asked for beside the plan, so that the request can be made again from the record; `None` for all of the
    /// plan and nothing else.
    pub scope: Option<Value>,
    /// The time.
    pub now: Instant,
}

/// The answer to a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is new; its intent is now in the record.
    New(Attempt),
    /// The operation id is known with the same request, and this is its attempt, whatever has become of it; or what was
    /// asked for under an experiment or candidate that has ended succeeded there, and this is the last attempt that did.
    Existing(Attempt),
}

impl Submitted {
    /// The attempt, new or not.
    pub fn attempt(self) -> Attempt {
        match self {
            Self::New(attempt) | Self::Existing(attempt) => attempt,
        }
    }
}

/// Something asked of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its id.
    pub id: Name,
    /// What is asked, such as `submit`.
    pub kind: Name,
    /// Request digest.
    pub request: Digest,
    /// The attempt it is about.
    pub attempt: Name,
    /// The action that it carries out; `None` for a submission.
    pub action: Option<Name>,
    /// Its state.
    pub state: OperationState,
    /// What came of it: the state in which the attempt ended.
    pub outcome: Option<AttemptState>,
}

const SUBMIT: &str = "submit";

impl Record {
    /// Records the wish for a workload, or finds the workload that this operation id already stands for. Without one, an
    /// experiment or candidate that has ended answers with what succeeded at the same request: it takes no new work, and
    /// a pipeline that runs again needs none.
    pub fn submit(&self, submission: &Submission) -> Result<Submitted, RecordError> {
        self.submit_with(submission, None)
    }

    /// The same for a workload that claims something of its host: it is given in the same commit, or nothing is recorded.
    /// A workload that exists already has what it has.
    pub fn submit_with(&self, submission: &Submission, claim: Option<&Claim>) -> Result<Submitted, RecordError> {
        self.write(|transaction| {
            if let Some(id) = &submission.operation
                && let Some(known) = operation(transaction, id)?
            {
                return existing(transaction, known, submission);
            }
            if submission.operation.is_none()
                && let Some(attempt) = succeeded_before_the_end(transaction, submission)?
            {
                return Ok(Submitted::Existing(attempt));
            }
            wished(transaction, None, submission, claim).map(Submitted::New)
        })
    }

    /// Records the wish for another attempt at what `of` was an attempt at: the same plan and request under the same
    /// experiment, with an identity of its own (L72). Refused while an attempt at it is alive, and when one succeeded.
    pub fn retry(
        &self,
        of: &Name,
        operation: Option<Name>,
        claim: Option<&Claim>,
        now: Instant,
    ) -> Result<Attempt, RecordError> {
        self.write(|transaction| {
            let unknown = || RecordError::Unknown { level: Level::Attempt, name: of.clone() };
            let found = query::attempt(transaction, of)?.ok_or_else(unknown)?;
            let reasons = against(&found, &query::attempts_at(transaction, &found.node, found.request)?);
            if !reasons.is_empty() {
                return Err(RecordError::NoRetry { attempt: of.clone(), reasons });
            }
            let submission = Submission {
                experiment: found.experiment.clone(),
                fingerprint: found.fingerprint,
                seed: found.seed,
                plan: found.plan,
                request: found.request,
                operation,
                subject: query::run(transaction, &found.run)?.and_then(|run| run.subject),
                scope: found.scope.as_deref().map(scope).transpose()?,
                now,
            };
            wished(transaction, Some(of), &submission, claim)
        })
    }

    /// The operation with this id.
    pub fn operation(&self, id: &Name) -> Result<Option<Operation>, RecordError> {
        operation(&self.connection, id)
    }
}

pub fn operation(connection: &Connection, id: &Name) -> Result<Option<Operation>, RecordError> {
    query::one(connection, "SELECT * FROM operation WHERE id = ?1", id, read)
}

fn read(row: &Row<'_>) -> Result<Operation, RecordError> {
    let outcome = query::optional_name(row, "outcome")?;
    Ok(Operation {
        id: query::name(row, "id")?,
        kind: query::name(row, "kind")?,
        request: query::digest(row, "request")?,
        attempt: query::name(row, "attempt")?,
        action: query::optional_name(row, "action")?,
        state: query::word(row, "state", OperationState::parse)?,
        outcome: outcome.and_then(|word| AttemptState::parse(word.as_str())),
    })
}

/// Records a wish and all that it needs to exist, and gives it what it claims.
fn wished(
    transaction: &Transaction<'_>,
    retry_of: Option<&Name>,
    submission: &Submission,
    claim: Option<&Claim>,
) -> Result<Attempt, RecordError> {
    claim.map_or(Ok(()), |claim| lease::check(transaction, claim))?;
    planning::open_experiment(transaction, &submission.experiment, submission.now)?;
    let node = ready(transaction, submission)?;
    let run = run(transaction, &node, submission)?;
    let attempt = intend(transaction, &run, retry_of, submission)?;
    claim.map_or(Ok(()), |claim| lease::give(transaction, &attempt.id, claim, submission.now))?;
    if let Some(before) = claim.and_then(|claim| claim.follows.as_ref()) {
        let because = object([("handed_to", attempt.id.write())]);
        lease::release(transaction, before, submission.now, &because)?;
    }
    Ok(attempt)
}

/// What speaks against trying again what `of` tried, and `all` with it.
fn against(of: &Attempt, all: &[Attempt]) -> Vec<String> {
    let mut reasons = Vec::new();
    for attempt in all {
        let which =
            if attempt.id == of.id { "it".to_string() } else { format!("{}, which asked for the same,", attempt.id) };
        if attempt.state == AttemptState::Succeeded {
            reasons.push(format!("{which} succeeded"));
        } else if !attempt.state.is_terminal() {
            reasons.push(format!("{which} is {}", attempt.state));
        }
    }
    reasons
}

/// The attempt of a known operation, if it was asked for the same, under the same experiment.
fn existing(
    transaction: &Transaction<'_>,
    known: Operation,
    submission: &Submission,
) -> Result<Submitted, RecordError> {
    let asked = submission.request;
    if known.request != asked {
        return Err(RecordError::Conflict { operation: known.id, recorded: known.request, asked });
    }
    let unknown = || RecordError::Unknown { level: Level::Attempt, name: known.attempt.clone() };
    let attempt = query::attempt(transaction, &known.attempt)?.ok_or_else(unknown)?;
    if attempt.experiment != submission.experiment {
        let (recorded, asked) = (attempt.experiment, submission.experiment.clone());
        return Err(RecordError::Elsewhere { operation: known.id, recorded, asked });
    }
    Ok(Submitted::Existing(attempt))
}

/// What succeeded at the same request, if the experiment or the candidate has ended since.
fn succeeded_before_the_end(
    transaction: &Transaction<'_>,
    submission: &Submission,
) -> Result<Option<Attempt>, RecordError> {
    let Some(node) = planning::ended(transaction, &submission.experiment, &submission.fingerprint)? else {
        return Ok(None);
    };
    let attempts = query::attempts_at(transaction, &node, submission.request)?;
    Ok(attempts.into_iter().rev().find(|attempt| attempt.state == AttemptState::Succeeded))
}

/// The node of the candidate, ready: the plan that is being submitted was admitted.
fn ready(transaction: &Transaction<'_>, submission: &Submission) -> Result<Name, RecordError> {
    let compiled = Compiled { plan: submission.plan, fingerprint: submission.fingerprint };
    let node = planning::node(transaction, &submission.experiment, &compiled, submission.now)?;
    if node.state == NodeState::Planned {
        let plan = payload(&[("plan", &submission.plan.to_string())]);
        advance(transaction, &node.id, node.state, NodeState::Ready, submission.now, &plan)?;
    }
    Ok(node.id)
}

/// The run of the seed that has not ended, or a new one: what has ended stays as it ended.
fn run(transaction: &Transaction<'_>, node: &Name, submission: &Submission) -> Result<Name, RecordError> {
    let level = if submission.subject.is_some() { Level::EvaluationRun } else { Level::Run };
    let same = |run: &RunRow| {
        run.seed == submission.seed
            && run.level == level
            && run.subject == submission.subject
            && (level == Level::Run || run.evaluation == Some(submission.request))
    };
    let runs = query::runs_of_node(transaction, node)?;
    if let Some(known) = runs.iter().rev().find(|run| same(run)).filter(|run| !run.state.is_terminal()) {
        return Ok(known.id.clone());
    }
    let head = if level == Level::Run { "run" } else { "eval" };
    let id = number_name(head, Some(&submission.fingerprint), next(transaction, level)?);
    let mut payload = object([("node", node.as_str().into()), ("seed", submission.seed.into())]);
    if let (Some(subject), Value::Object(members)) = (submission.subject, &mut payload) {
        members.insert("subject".into(), subject.write());
        members.insert("evaluation".into(), submission.request.write());
        members.insert("cycle".into(), cycle(transaction, node, &runs, &same)?.into());
    }
    if level == Level::Run {
        created::<RunState>(transaction, &id, submission.now, &payload)?;
    } else {
        created::<EvaluationRunState>(transaction, &id, submission.now, &payload)?;
    }
    Ok(id)
}

/// The evaluation cycle that a new evaluation of `node` belongs to: the one that is open, or the next (X52). One that has
/// its results and is not decided yet still takes what it does not hold, such as the bundle of another seed.
fn cycle(
    transaction: &Transaction<'_>,
    node: &Name,
    runs: &[RunRow],
    same: &dyn Fn(&RunRow) -> bool,
) -> Result<u64, RecordError> {
    let last = runs.iter().filter_map(|run| run.cycle).max().unwrap_or(0);
    let state = query::node(transaction, node)?.map(|node| node.state);
    let of_last = || runs.iter().filter(|run| run.cycle == Some(last));
    let asked_for = of_last().any(|run| run.state == RunState::Created);
    let open = state == Some(NodeState::Evaluating) || asked_for;
    let takes_more = state == Some(NodeState::Deciding) && !of_last().any(same);
    Ok(if last > 0 && (open || takes_more) { last } else { last + 1 })
}

/// Writes the operation and the attempt it asks for.
fn intend(
    transaction: &Transaction<'_>,
    run: &Name,
    retry_of: Option<&Name>,
    submission: &Submission,
) -> Result<Attempt, RecordError> {
    let evaluates = submission.subject.is_some();
    let level = if evaluates { Level::EvaluationAttempt } else { Level::Attempt };
    let id = unused(transaction, submission, level)?;
    let operation = match &submission.operation {
        Some(given) => given.clone(),
        None => mint(transaction)?,
    };
    let (plan, request) = (submission.plan.to_string(), submission.request.to_string());
    let asked = [("kind", SUBMIT), ("request", request.as_str()), ("attempt", id.as_str())];
    created::<OperationState>(transaction, &operation, submission.now, &payload(&asked))?;
    let mut members =
        vec![("run", run.as_str()), ("operation", operation.as_str()), ("plan", &plan), ("request", &request)];
    members.extend(retry_of.map(|of| ("retry_of", of.as_str())));
    let mut payload = payload(&members);
    if let (Some(scope), Value::Object(members)) = (&submission.scope, &mut payload) {
        members.insert("scope".into(), scope.clone());
    }
    if evaluates {
        created::<EvaluationAttemptState>(transaction, &id, submission.now, &payload)?;
    } else {
        created::<AttemptState>(transaction, &id, submission.now, &payload)?;
    }
    query::attempt(transaction, &id)?.ok_or(RecordError::Unknown { level: Level::Attempt, name: id })
}

/// The id of a new attempt: the next number that stands for nothing in the record, nor in the store around it. A record
/// that was lost, or restored from an earlier copy, knows less than the store: what its attempts left there is kept.
fn unused(transaction: &Transaction<'_>, submission: &Submission, level: Level) -> Result<Name, RecordError> {
    let store = transaction.path().map(Path::new).and_then(Path::parent);
    let left = |id: &Name| {
        let there = |folder: &str| store.is_some_and(|store| store.join(folder).join(id.as_str()).exists());
        there("runs") || there("refs/runs") || there("quarantine")
    };
    let mut number = next(transaction, level)?;
    loop {
        let id = number_name("att", Some(&submission.plan), number);
        if query::attempt(transaction, &id)?.is_none() && !left(&id) {
            return Ok(id);
        }
        number += 1;
    }
}

/// What an earlier attempt was asked for beside its plan.
fn scope(text: &str) -> Result<Value, RecordError> {
    parse(text.as_bytes()).map_err(|error| RecordError::Damaged { what: format!("the scope {text:?}: {error}") })
}

/// An operation id that nobody has used.
pub fn mint(transaction: &Transaction<'_>) -> Result<Name, RecordError> {
    let mut number = next(transaction, Level::Operation)?;
    loop {
        let id = number_name("op", None, number);
        if operation(transaction, &id)?.is_none() {
            return Ok(id);
        }
        number += 1;
    }
}

/// Notes that the runtime has it.
pub fn sent(transaction: &Transaction<'_>, id: &Name, now: Instant, because: &Value) -> Result<(), RecordError> {
    advance(transaction, id, OperationState::Intended, OperationState::Sent, now, because)
}

/// Closes a submission with the end of its attempt. An end that nobody saw leaves it open, as uncertain.
pub fn close(
    transaction: &Transaction<'_>,
    id: &Name,
    end: AttemptState,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let unknown = || RecordError::Unknown { level: Level::Operation, name: id.clone() };
    let from = operation(transaction, id)?.ok_or_else(unknown)?.state;
    let to = match (end, from) {
        (AttemptState::Lost, _) => OperationState::Uncertain,
        (AttemptState::Cancelled, OperationState::Intended) => OperationState::Withdrawn,
        (AttemptState::NotStarted, _) => OperationState::Failed,
        _ => OperationState::Done,
    };
    let mut payload = because.clone();
    if let Value::Object(members) = &mut payload {
        members.insert("outcome".into(), end.word().into());
    }
    advance(transaction, id, from, to, now, &payload)
}

fn payload(members: &[(&str, &str)]) -> Value {
    Value::Object(members.iter().map(|(key, value)| ((*key).to_string(), (*value).into())).collect())
}

/// The next number at this level; rows are never deleted, so no number comes twice.
pub fn next(transaction: &Transaction<'_>, level: Level) -> Result<i64, RecordError> {
    let sql = format!("SELECT coalesce(max(number), 0) + 1 FROM {}", Table::of(level).name);
    Ok(transaction.prepare_cached(&sql)?.query_row(params![], |row| row.get(0))?)
}

/// Such as `att-0123456789ab-7`: what it is, the first 12 digits of a digest, and its number in the record.
pub fn number_name(head: &str, digest: Option<&Digest>, number: i64) -> Name {
    let middle = digest.map_or_else(String::new, |digest| format!("{}-", &digest.hex()[..12]));
    let text = format!("{head}-{middle}{number}");
    Name::new(&text).unwrap_or_else(|| unreachable!("letters, digits and hyphens, fewer than 128"))
}
