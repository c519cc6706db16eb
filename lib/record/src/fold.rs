//! From events to states. Every change of a table is made here and nowhere else, from the entry of the log that tells of
//! it: so whoever has the log has everything (X16), and the tables can be made again from it.
//!
//! A column is filled from the member of the same name in the payload; a payload may hold more than there are columns.

use std::collections::BTreeMap;

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params_from_iter};
use xt_core::canonical::Value;
use xt_core::manifest::event::Event;
use xt_core::name::Name;
use xt_core::verb::settle::legal;

use crate::error::RecordError;
use crate::event::Entry;
use crate::schema::{self, Table};
use crate::{Record, event};

/// Makes the change that `entry` tells of.
pub fn apply(connection: &Connection, entry: &Entry<'_>) -> Result<(), RecordError> {
    let table = Table::of(entry.level);
    let columns = table.columns.iter().filter_map(|column| Some((*column, cell(entry.payload.get(column)?))));
    match (entry.before, entry.after) {
        (None, Some(state)) => insert(connection, table, entry, state, columns),
        (Some(before), after) => update(connection, table, entry, (before, after.unwrap_or(before)), columns),
        (None, None) => Ok(()),
    }
}

fn insert<'a>(
    connection: &Connection,
    table: &Table,
    entry: &Entry<'_>,
    state: &str,
    columns: impl Iterator<Item = (&'a str, Cell)>,
) -> Result<(), RecordError> {
    let text = |text: &str| Cell::Text(text.to_string());
    let mut names = vec!["id", "state"];
    let mut cells = vec![text(entry.subject.as_str()), text(state)];
    if table.shared {
        names.push("level");
        cells.push(text(entry.level.word()));
    }
    for (column, cell) in columns {
        names.push(column);
        cells.push(cell);
    }
    let places = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({places})", table.name, names.join(", "));
    connection.prepare_cached(&sql)?.execute(params_from_iter(cells))?;
    Ok(())
}

fn update<'a>(
    connection: &Connection,
    table: &Table,
    entry: &Entry<'_>,
    (before, after): (&str, &str),
    columns: impl Iterator<Item = (&'a str, Cell)>,
) -> Result<(), RecordError> {
    let mut names = vec!["state = ?"];
    let sets: Vec<(String, Cell)> = columns.map(|(column, cell)| (format!("{column} = ?"), cell)).collect();
    names.extend(sets.iter().map(|(set, _)| set.as_str()));
    let sql = format!("UPDATE {} SET {} WHERE id = ? AND state = ?", table.name, names.join(", "));
    let text = |text: &str| Cell::Text(text.to_string());
    let cells = [text(after)].into_iter().chain(sets.iter().map(|(_, cell)| cell.clone()));
    let cells = cells.chain([text(entry.subject.as_str()), text(before)]);
    if connection.prepare_cached(&sql)?.execute(params_from_iter(cells))? != 1 {
        return Err(RecordError::Damaged { what: format!("{} {} is not {before}", entry.level, entry.subject) });
    }
    Ok(())
}

/// What a column holds: text as it is, nothing as NULL, everything else as canonical JSON.
fn cell(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::String(text) => Cell::Text(text.clone()),
        other => Cell::Text(other.canonical()),
    }
}

/// What a rebuild found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// Events in the log.
    pub events: u64,
    /// Rows that the log gives.
    pub rows: u64,
    /// What the tables hold otherwise, a sentence each.
    pub differences: Vec<String>,
}

impl Record {
    /// Makes every table again from the log, in a second database, and holds the two against each other. Changes
    /// nothing.
    pub fn check(&self) -> Result<Rebuilt, RecordError> {
        self.read(|transaction| compare(transaction).map(|(found, _)| found))
    }

    /// The same, and then puts what the log gives in place of the tables.
    pub fn rebuild(&self) -> Result<Rebuilt, RecordError> {
        self.write(|transaction| {
            let (found, events) = compare(transaction)?;
            if !found.differences.is_empty() {
                refill(transaction, &events)?;
            }
            Ok(found)
        })
    }
}

/// Empties the tables and fills them from `events`.
pub fn refill(connection: &Connection, events: &[Event]) -> Result<(), RecordError> {
    connection.execute_batch("PRAGMA defer_foreign_keys = ON")?;
    for table in schema::STATES.iter().rev() {
        connection.execute(&format!("DELETE FROM {}", table.name), [])?;
    }
    replay(connection, events)
}

fn compare(connection: &Connection) -> Result<(Rebuilt, Vec<Event>), RecordError> {
    let events = event::all(connection)?;
    let second = Connection::open_in_memory()?;
    second.execute_batch(schema::TABLES)?;
    second.execute_batch("BEGIN")?;
    replay(&second, &events)?;
    second.execute_batch("COMMIT")?;
    let mut differences = Vec::new();
    let mut rows = 0;
    for table in schema::STATES {
        let (held, told) = (dump(connection, table)?, dump(&second, table)?);
        rows += told.len() as u64;
        differences.extend(differing(table, &held, &told));
    }
    Ok((Rebuilt { events: events.len() as u64, rows, differences }, events))
}

/// Applies the events in their order. A log with a gap, or with a step that its machine does not allow, is no log.
fn replay(connection: &Connection, events: &[Event]) -> Result<(), RecordError> {
    for (event, sequence) in events.iter().zip(1..) {
        if event.sequence != sequence {
            return Err(RecordError::Damaged { what: format!("event {sequence} is not in the log") });
        }
        let (before, after) = (event.before.as_ref().map(Name::as_str), event.after.as_ref().map(Name::as_str));
        if let Some(after) = after
            && !legal(event.level, before, after)
        {
            let from = before.unwrap_or("nothing");
            let what = format!("event {sequence}: {} {} cannot go from {from} to {after}", event.level, event.subject);
            return Err(RecordError::Damaged { what });
        }
        let entry =
            Entry { level: event.level, subject: &event.subject, before, after, word: "", payload: &event.payload };
        apply(connection, &entry).map_err(|error| match error {
            RecordError::Damaged { what } => RecordError::Damaged { what: format!("event {sequence}: {what}") },
            RecordError::Sqlite(error) => RecordError::Damaged { what: format!("event {sequence}: {error}") },
            other => other,
        })?;
    }
    Ok(())
}

type Row = Vec<(String, Cell)>;

fn dump(connection: &Connection, table: &Table) -> Result<Vec<Row>, RecordError> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {} ORDER BY number", table.name))?;
    let names: Vec<String> = statement.column_names().map(Into::into).collect();
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let cells = names.iter().enumerate().map(|(at, name)| Ok((name.clone(), row.get(at)?)));
        found.push(cells.collect::<rusqlite::Result<Row>>()?);
    }
    Ok(found)
}

fn differing(table: &Table, held: &[Row], told: &[Row]) -> Vec<String> {
    let id = |row: &Row| row.iter().find(|(name, _)| name == "id").map_or_else(String::new, |(_, cell)| shown(cell));
    let held: BTreeMap<String, &Row> = held.iter().map(|row| (id(row), row)).collect();
    let told: BTreeMap<String, &Row> = told.iter().map(|row| (id(row), row)).collect();
    let mut found = Vec::new();
    for (id, told) in &told {
        let Some(held) = held.get(id) else {
            found.push(format!("{} {id} is missing", table.name));
            continue;
        };
        for ((name, held), (_, told)) in held.iter().zip(told.iter()).filter(|(held, told)| held != told) {
            found.push(format!("{} {id}: {name} is {}, and by the log {}", table.name, shown(held), shown(told)));
        }
    }
    let extra = held.keys().filter(|id| !told.contains_key(*id));
    found.extend(extra.map(|id| format!("no event tells of {} {id}", table.name)));
    found
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Null => "nothing".into(),
        Cell::Text(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
