//! The event log: one entry for each change, in the same commit as the change, which follows from it.

use rusqlite::{Connection, Row, Transaction, params};
use xt_core::canonical::{Value, parse};
use xt_core::instant::Instant;
use xt_core::manifest::event::{Event, Level};
use xt_core::name::Name;

use crate::error::RecordError;
use crate::query::{damaged, name, optional_name};
use crate::{Record, fold, query};

/// What goes into an entry besides place and time.
pub struct Entry<'a> {
    pub level: Level,
    pub subject: &'a Name,
    /// State before; `None` when the subject is new.
    pub before: Option<&'a str>,
    /// State after; `None` when it stays.
    pub after: Option<&'a str>,
    /// What happened; the state after, where there is one.
    pub word: &'a str,
    pub payload: &'a Value,
}

/// Appends an entry and makes the change it tells of. The caller's transaction holds the write lock, so the numbers have
/// no gaps.
pub fn append(transaction: &Transaction<'_>, now: Instant, entry: &Entry<'_>) -> Result<(), RecordError> {
    let kind = format!("{}.{}", entry.level, entry.word);
    transaction
        .prepare_cached(
            "INSERT INTO event (sequence, at, level, subject, kind, before, after, payload)
             SELECT coalesce(max(sequence), 0) + 1, ?1, ?2, ?3, ?4, ?5, ?6, ?7 FROM event",
        )?
        .execute(params![
            now.unix().cast_signed(),
            entry.level.word(),
            entry.subject.as_str(),
            kind,
            entry.before,
            entry.after,
            entry.payload.canonical()
        ])?;
    fold::apply(transaction, entry)
}

impl Record {
    /// Every event after the one with this sequence number, in order; 0 gives all.
    pub fn events(&self, after: u64) -> Result<Vec<Event>, RecordError> {
        self.events_at_most(after, u32::MAX)
    }

    /// The first `limit` events after the one with this sequence number, in order.
    pub fn events_at_most(&self, after: u64, limit: u32) -> Result<Vec<Event>, RecordError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT sequence, at, level, subject, kind, before, after, payload
             FROM event WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
        )?;
        // SQLite counts to 2^63 - 1; nothing comes after that.
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![after, limit])?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push(read(row)?);
        }
        Ok(events)
    }
}

/// Every event, in order.
pub fn all(connection: &Connection) -> Result<Vec<Event>, RecordError> {
    let mut statement = connection
        .prepare("SELECT sequence, at, level, subject, kind, before, after, payload FROM event ORDER BY sequence")?;
    let mut rows = statement.query([])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(read(row)?);
    }
    Ok(events)
}

/// The events about a subject that tell of this, in order.
pub fn of(connection: &Connection, level: Level, subject: &Name, word: &str) -> Result<Vec<Event>, RecordError> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, at, level, subject, kind, before, after, payload
         FROM event WHERE level = ?1 AND subject = ?2 AND kind = ?3 ORDER BY sequence",
    )?;
    let mut rows = statement.query([level.word(), subject.as_str(), &format!("{level}.{word}")])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(read(row)?);
    }
    Ok(events)
}

/// The first event about a subject.
pub fn first(connection: &Connection, level: Level, subject: &Name) -> Result<Option<Event>, RecordError> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, at, level, subject, kind, before, after, payload
         FROM event WHERE level = ?1 AND subject = ?2 ORDER BY sequence LIMIT 1",
    )?;
    let mut rows = statement.query([level.word(), subject.as_str()])?;
    rows.next()?.map(read).transpose()
}

/// The last event about a subject.
pub fn last(connection: &Connection, level: Level, subject: &Name) -> Result<Option<Event>, RecordError> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, at, level, subject, kind, before, after, payload
         FROM event WHERE level = ?1 AND subject = ?2 ORDER BY sequence DESC LIMIT 1",
    )?;
    let mut rows = statement.query([level.word(), subject.as_str()])?;
    rows.next()?.map(read).transpose()
}

fn read(row: &Row<'_>) -> Result<Event, RecordError> {
    let payload: String = row.get("payload")?;
    Ok(Event {
        sequence: query::unsigned(row, "sequence")?,
        at: Instant::from_unix(query::unsigned(row, "at")?).ok_or_else(|| damaged(row, "at"))?,
        subject: name(row, "subject")?,
        level: query::word(row, "level", Level::parse)?,
        kind: name(row, "kind")?,
        before: optional_name(row, "before")?,
        after: optional_name(row, "after")?,
        payload: parse(payload.as_bytes()).map_err(|_| damaged(row, "payload"))?,
    })
}
