//! Leases: what each attempt has of its host. They are given in the same commit as the wish for the attempt and taken back
//! in the same commit as its end, so that nothing is ever given twice and nothing stays taken.

use rusqlite::{Connection, Row, Transaction};
use xt_core::canonical::{Value, parse};
use xt_core::fault::Faults;
use xt_core::field::{Field, object};
use xt_core::instant::Instant;
use xt_core::manifest::event::Level;
use xt_core::manifest::intent::Resources;
use xt_core::manifest::resources::{Inventory, Lease, Observation};
use xt_core::name::Name;
use xt_core::verb::lease::{Verdict, admit, take_over};
use xt_core::verb::settle::{LeaseState, Machine as _};

use crate::error::RecordError;
use crate::operation::{next, number_name};
use crate::query::{self, damaged};
use crate::state::{advance, created};
use crate::{Record, action};

/// What a run asks of its host, and what its host has and shows.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is asked for.
    pub asked: Resources,
    /// What there is, if the operator declared it.
    pub inventory: Option<Inventory>,
    /// What can be seen now.
    pub seen: Observation,
    /// Attempts that were drained for it: what they keep does not stand in its way.
    pub beside: Vec<Name>,
    /// The attempt that it goes on from: what that one keeps is handed over.
    pub follows: Option<Name>,
}

impl Record {
    /// What is taken now, in the order in which it was given.
    pub fn leases(&self) -> Result<Vec<Lease>, RecordError> {
        self.read(|transaction| held(transaction))
    }

    /// Takes a lease back from an attempt that nobody can ask any more. Whoever does this says why, and knows that the
    /// attempt does not run: the record cannot.
    pub fn clear_lease(&self, id: &Name, by: &str, now: Instant) -> Result<(), RecordError> {
        self.write(|transaction| {
            let found = held(transaction)?.into_iter().find(|lease| lease.lease == *id);
            let lease = found.ok_or_else(|| RecordError::Unknown { level: Level::Lease, name: id.clone() })?;
            let payload = object([("cleared", by.into())]);
            advance(transaction, &lease.lease, LeaseState::Held, LeaseState::Released, now, &payload)
        })
    }
}

/// Refuses or postpones a claim that cannot be granted now.
///
/// What was drained for a run does not stand in its way. What goes on takes over what it had: no policy is held against
/// it, and nobody else's claim to go on; only what runs now.
pub fn check(transaction: &Transaction<'_>, claim: &Claim) -> Result<(), RecordError> {
    let held = held(transaction)?;
    let mut runs = Vec::new();
    for lease in &held {
        let holder = query::attempt(transaction, &lease.attempt)?;
        runs.push(holder.is_some_and(|attempt| !attempt.state.is_terminal()));
    }
    let goes_on = |lease: &Lease| claim.follows.as_ref() == Some(&lease.attempt);
    let verdict = if held.iter().any(goes_on) {
        let others: Vec<Lease> =
            held.iter().zip(runs).filter(|(_, runs)| *runs).map(|(lease, _)| lease.clone()).collect();
        take_over(&claim.asked, claim.inventory.as_ref(), &others, &claim.seen)
    } else {
        let counts = |(lease, runs): &(&Lease, bool)| *runs || !claim.beside.contains(&lease.attempt);
        let others: Vec<Lease> = held.iter().zip(runs).filter(counts).map(|(lease, _)| lease.clone()).collect();
        admit(&claim.asked, claim.inventory.as_ref(), &others, &claim.seen)
    };
    match verdict {
        Verdict::Grant => Ok(()),
        Verdict::Postpone(reasons) => Err(RecordError::Postponed { reasons }),
        Verdict::Refuse(reasons) => Err(RecordError::Unavailable { reasons }),
    }
}

/// Gives an attempt what it asks for.
pub fn give(transaction: &Transaction<'_>, attempt: &Name, claim: &Claim, now: Instant) -> Result<(), RecordError> {
    let id = number_name("lease", None, next(transaction, Level::Lease)?);
    let asked = &claim.asked;
    let payload = object([
        ("attempt", attempt.write()),
        ("cores", asked.cores.write()),
        ("memory_bytes", asked.memory_bytes.write()),
        ("storage_bytes", asked.storage_bytes.write()),
        ("accelerators", asked.accelerators.write()),
        ("domains", asked.conflict_domains.write()),
    ]);
    created::<LeaseState>(transaction, &id, now, &payload)
}

/// Takes back what an attempt has, which has ended.
pub fn release(
    transaction: &Transaction<'_>,
    attempt: &Name,
    now: Instant,
    because: &Value,
) -> Result<(), RecordError> {
    let sql = "SELECT id FROM lease WHERE attempt = ?1 AND state = 'held' ORDER BY number";
    for id in action::names(transaction, sql, &[attempt.as_str()])? {
        advance(transaction, &id, LeaseState::Held, LeaseState::Released, now, because)?;
    }
    Ok(())
}

fn held(connection: &Connection) -> Result<Vec<Lease>, RecordError> {
    let mut leases = query::all(connection, "SELECT * FROM lease WHERE state = 'held' ORDER BY number", &[], read)?;
    for lease in &mut leases {
        if let Some(attempt) = query::attempt(connection, &lease.attempt)? {
            lease.why = match &attempt.process {
                None => "it was asked for, and no supervisor has it yet".into(),
                Some(process) => format!("it is {}, under {process}", attempt.state),
            };
        }
    }
    Ok(leases)
}

fn read(row: &Row<'_>) -> Result<Lease, RecordError> {
    let number = |column: &str| query::word(row, column, |text| text.parse().ok());
    Ok(Lease {
        lease: query::name(row, "id")?,
        attempt: query::name(row, "attempt")?,
        state: query::word(row, "state", LeaseState::parse)?,
        cores: number("cores")?,
        memory_bytes: number("memory_bytes")?,
        storage_bytes: number("storage_bytes")?,
        accelerators: names(row, "accelerators")?,
        domains: names(row, "domains")?,
        why: String::new(),
    })
}

fn names(row: &Row<'_>, column: &str) -> Result<Vec<Name>, RecordError> {
    let text: String = row.get(column)?;
    let mut faults = Faults::new();
    let list = parse(text.as_bytes()).ok().and_then(|value| Vec::<Name>::read(&value, "", &mut faults));
    list.filter(|_| faults.is_empty()).ok_or_else(|| damaged(row, column))
}
