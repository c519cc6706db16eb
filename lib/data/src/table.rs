//! Tables: comma-separated values with declared columns.
//!
//! The form is that of RFC 4180 in UTF-8: the first line names the columns; a line feed, with or without a carriage return
//! before it, ends a row; blank lines are no rows; a cell in quotes may hold anything. Cells are taken as they are.

use std::collections::{BTreeMap, BTreeSet};

use xt_core::fault::Faults;
use xt_core::manifest::encoding::{Column, Holds, Missing, NonFiniteCells, Target};

use crate::rows::{Raw, Span, Targets, shorten};

/// Every fault of a file as a table, whatever its columns hold; `path` is what messages call it.
pub fn check(path: &str, bytes: &[u8]) -> Faults {
    let mut faults = Faults::new();
    if let Some((_, rows)) = rows(path, bytes, &mut faults)
        && rows.is_empty()
        && faults.is_empty()
    {
        faults.add(path, "data.empty", "has no row behind the line that names the columns");
    }
    shorten(&mut faults);
    faults
}

/// A row: its line, from 1, and its cells.
pub(crate) type Row = (u64, csv::StringRecord);

/// The names of the columns and the rows that have as many cells; `None` when not even the names can be read.
pub(crate) fn rows(path: &str, bytes: &[u8], faults: &mut Faults) -> Option<(Vec<String>, Vec<Row>)> {
    let torn = check_bytes(path, bytes, faults);
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.records().filter_map(Result::ok);
    let Some(names) = records.next() else {
        faults.add(path, "data.empty", "has no line that names the columns");
        return None;
    };
    let names: Vec<String> = names.iter().map(String::from).collect();
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            faults.add(at(path, 1, index), "column.name", "a column without a name");
        } else if !seen.insert(name) {
            faults.add(at(path, 1, index), "column.twice", format!("a second column {name:?}"));
        }
    }
    let mut rows = Vec::new();
    let mut records = records.peekable();
    while let Some(record) = records.next() {
        let line = record.position().map_or(0, csv::Position::line);
        let next = records.peek().and_then(csv::StringRecord::position).map_or(u64::MAX, csv::Position::line);
        if record.len() == names.len() {
            rows.push((line, record));
        } else if torn.range(line..next.max(line + 1)).next().is_none() {
            // Where quotes or ends of lines are wrong, that was told, and the number of cells follows from it.
            let message = format!("has {} cells, the first line names {} columns", record.len(), names.len());
            faults.add(at(path, line, record.len().min(names.len())), "row.cells", message);
        }
    }
    Some((names, rows))
}

/// Notes what is wrong with the bytes, before they are rows: once for each cell. Gives the lines where quotes or ends of lines
/// are wrong.
fn check_bytes(path: &str, bytes: &[u8], faults: &mut Faults) -> BTreeSet<u64> {
    let mut torn = BTreeSet::new();
    let line_of = |offset: usize| bytes[..offset].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>() + 1;
    if let Err(error) = std::str::from_utf8(bytes) {
        let offset = error.valid_up_to();
        faults.add(path, "data.encoding", format!("line {}: byte {offset} is not UTF-8", line_of(offset)));
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        faults.add(path, "data.byte-order-mark", "starts with a byte-order mark; remove it");
    }
    let mut note = |line: u64, code, message: &str| {
        torn.insert(line);
        faults.add(path, code, format!("line {line}: {message}"));
    };
    let (mut cell, mut line, mut opened) = (Cell::Start, 1, 1);
    for (offset, byte) in bytes.iter().enumerate() {
        let next = bytes.get(offset + 1);
        cell = match (cell, byte) {
            (Cell::Quoted, b'"') => Cell::Closed,
            (Cell::Start, b'"') => {
                opened = line;
                Cell::Quoted
            }
            // Two quotes within quotes stand for one.
            (Cell::Closed, b'"') | (Cell::Quoted, _) => Cell::Quoted,
            (_, b',' | b'\n') => Cell::Start,
            (cell, b'\r') if next == Some(&b'\n') => cell,
            (_, b'\r') => {
                note(line, "row.carriage-return", "a carriage return without a line feed: does it end a row?");
                Cell::Start
            }
            (Cell::Closed, _) => {
                note(line, "row.quote", "something stands behind a closing quote");
                Cell::Told
            }
            (Cell::Open, b'"') => {
                note(line, "row.quote", "a quote stands in a cell that does not begin with one");
                Cell::Told
            }
            (Cell::Told, _) => Cell::Told,
            (Cell::Start | Cell::Open, _) => Cell::Open,
        };
        line += u64::from(*byte == b'\n');
    }
    if matches!(cell, Cell::Quoted) {
        note(opened, "row.quote", "a quote is opened and never closed");
    }
    torn
}

/// Where in a cell a byte stands.
#[derive(Clone, Copy)]
enum Cell {
    /// Before its first byte.
    Start,
    /// In a cell without quotes.
    Open,
    /// In a cell of which something wrong was told.
    Told,
    /// Between quotes.
    Quoted,
    /// Behind a quote that closes it, or is the first of two.
    Closed,
}

/// What each row says to a model with these columns, in the order in which they are declared: rows that differ only in how a
/// number is written, in the order of the columns, or in columns that nothing is learned from, are one example.
pub fn examples(columns: &[Column], bytes: &[u8]) -> Vec<Vec<u8>> {
    let Some((names, rows)) = rows("", bytes, &mut Faults::new()) else { return Vec::new() };
    let learned = columns.iter().filter(|column| !matches!(column.holds, Holds::Id {} | Holds::Ignored {}));
    let places: Vec<(&Column, Option<usize>)> =
        learned.map(|column| (column, names.iter().position(|name| *name == column.name))).collect();
    let said = |(column, place): &(&Column, Option<usize>), record: &csv::StringRecord| {
        let cell = place.and_then(|place| record.get(place)).unwrap_or_default();
        match &column.holds {
            Holds::Number { .. } | Holds::TargetNumber { .. } => {
                // Zero has two signs and one value.
                number(cell, NonFiniteCells::Keep).map_or_else(|_| cell.into(), |value| (value + 0.0).to_string())
            }
            _ => format!("{cell:?}"),
        }
    };
    let row = |(_, record): &Row| {
        let cells: Vec<String> = places.iter().map(|place| said(place, record)).collect();
        cells.join(",").into_bytes()
    };
    rows.iter().map(row).collect()
}

/// The cells of these two columns in every row, with its line; the file has these columns and no other.
pub(crate) fn pairs(path: &str, bytes: &[u8], wanted: [&str; 2], faults: &mut Faults) -> Vec<(u64, [String; 2])> {
    let Some((names, rows)) = rows(path, bytes, faults) else { return Vec::new() };
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !wanted.contains(&name.as_str())) {
        let message = format!("the column {name:?} is neither {:?} nor {:?}", wanted[0], wanted[1]);
        faults.add(at(path, 1, index), "column.unknown", message);
    }
    let places = wanted.map(|wanted| {
        let place = names.iter().position(|name| name == wanted);
        if place.is_none() {
            faults.add(path, "column.missing", format!("has no column {wanted:?}"));
        }
        place
    });
    let [Some(first), Some(second)] = places else { return Vec::new() };
    let cell = |record: &csv::StringRecord, place: usize| record.get(place).unwrap_or_default().to_string();
    rows.iter().map(|(line, record)| (*line, [cell(record, first), cell(record, second)])).collect()
}

/// Where a cell stands: path, line and number of the column, from 1.
fn at(path: &str, line: u64, index: usize) -> String {
    format!("{path}:{line}:{}", index + 1)
}

/// Reads the files as tables of these columns; notes every cell that is not what its column holds.
pub fn read(columns: &[Column], files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Raw {
    let mut reader = Reader::new(columns);
    for (path, bytes) in files {
        let before = reader.raw.samples();
        if let Some((names, rows)) = rows(path, bytes, faults) {
            reader.file(path, &names, &rows, faults);
        }
        reader.raw.counts.push((reader.raw.samples() - before) as u64);
    }
    reader.raw
}

struct Reader<'a> {
    columns: &'a [Column],
    raw: Raw,
    /// Names of examples, and where each stands.
    ids: BTreeMap<String, String>,
}

impl<'a> Reader<'a> {
    fn new(columns: &'a [Column]) -> Self {
        let (mut spans, mut start) = (Vec::new(), 0);
        for column in columns.iter().filter(|column| column.inputs() > 0) {
            let width = usize::try_from(column.inputs()).unwrap_or(usize::MAX);
            let number = matches!(column.holds, Holds::Number { .. });
            spans.push(Span { column: column.name.clone(), start, width, number });
            start += width;
        }
        let target = columns.iter().find(|column| column.target().is_some());
        let targets = match target.and_then(Column::target) {
            Some(Target::Classes(_)) => Targets::Classes(Vec::new()),
            _ => Targets::Numbers(Vec::new()),
        };
        let target = target.map(|column| column.name.clone()).unwrap_or_default();
        let (values, missing, counts) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self {
            columns,
            raw: Raw { spans, width: start, values, missing, targets, target, counts },
            ids: BTreeMap::new(),
        }
    }

    fn file(&mut self, path: &str, names: &[String], rows: &[Row], faults: &mut Faults) {
        for (index, name) in names.iter().enumerate() {
            if !self.columns.iter().any(|column| column.name == *name) {
                let message = format!("the column {name:?} is not declared; declare it as `ignored` to leave it out");
                faults.add(at(path, 1, index), "column.undeclared", message);
            }
        }
        let mut places = Vec::new();
        for column in self.columns {
            match names.iter().position(|name| *name == column.name) {
                Some(place) => places.push(place),
                None => {
                    faults.add(path, "column.missing", format!("has no column {:?}, which is declared", column.name));
                }
            }
        }
        if places.len() < self.columns.len() {
            return;
        }
        for (line, record) in rows {
            for (column, place) in self.columns.iter().zip(&places) {
                let cell = record.get(*place).unwrap_or_default();
                if let Err(why) = self.cell(column, cell, path, *line) {
                    faults.add(at(path, *line, *place), "row.cell", format!("column {:?}: {why}", column.name));
                }
            }
        }
    }

    /// Takes a cell in; what is wrong leaves a value of its place behind, so that other rows are read on.
    fn cell(&mut self, column: &Column, cell: &str, path: &str, line: u64) -> Result<(), String> {
        match &column.holds {
            Holds::Number { missing, non_finite } => {
                let number = if cell.is_empty() && *missing == Missing::Fill {
                    self.raw.missing.insert(self.raw.values.len());
                    Ok(0.0)
                } else {
                    number(cell, *non_finite)
                };
                self.raw.values.push(*number.as_ref().unwrap_or(&0.0));
                number.map(drop)
            }
            Holds::Category { levels, missing } => {
                let place =
                    if cell.is_empty() && *missing == Missing::Fill { Ok(None) } else { level(cell, levels).map(Some) };
                let marked = *place.as_ref().unwrap_or(&None);
                self.raw.values.extend((0..levels.len()).map(|index| if Some(index) == marked { 1.0 } else { 0.0 }));
                place.map(drop)
            }
            Holds::TargetNumber { non_finite } => {
                let number = number(cell, *non_finite);
                if let Targets::Numbers(all) = &mut self.raw.targets {
                    all.push(*number.as_ref().unwrap_or(&0.0));
                }
                number.map(drop)
            }
            Holds::TargetCategory { levels } => {
                let place = level(cell, levels);
                if let Targets::Classes(all) = &mut self.raw.targets {
                    all.push(i64::try_from(*place.as_ref().unwrap_or(&0)).unwrap_or(0));
                }
                place.map(drop)
            }
            Holds::Id {} => {
                if cell.is_empty() {
                    return Err("an example without a name".into());
                }
                let here = format!("{path}:{line}");
                match self.ids.insert(cell.into(), here) {
                    Some(there) => Err(format!("{cell:?} names the example at {there}, too")),
                    None => Ok(()),
                }
            }
            Holds::Ignored {} => Ok(()),
        }
    }
}

/// A number as binary32. Only plain decimal notation is one: digits, a point, a sign, an exponent.
pub(crate) fn number(cell: &str, non_finite: NonFiniteCells) -> Result<f32, String> {
    if cell.is_empty() {
        return Err("the cell is empty".into());
    }
    let named = match cell.to_ascii_lowercase().as_str() {
        "nan" => Some(f32::NAN),
        "inf" => Some(f32::INFINITY),
        "-inf" => Some(f32::NEG_INFINITY),
        _ => None,
    };
    match (named, non_finite) {
        (Some(value), NonFiniteCells::Keep) => return Ok(value),
        (Some(_), NonFiniteCells::Refuse) => {
            return Err(format!("{cell} is not finite, and the column does not declare such cells"));
        }
        (None, _) => {}
    }
    let plain = cell.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match cell.parse::<f32>() {
        Ok(value) if plain && value.is_finite() => Ok(value),
        Ok(_) if plain => Err(format!("{cell} is beyond binary32")),
        _ => Err(format!("expected a number, found {cell:?}")),
    }
}

/// Which level a text is; or why it is none, with the first of them.
pub(crate) fn level(cell: &str, levels: &[String]) -> Result<usize, String> {
    let found = levels.iter().position(|level| level == cell);
    found.ok_or_else(|| {
        let known: Vec<String> = levels.iter().take(12).map(|level| format!("{level:?}")).collect();
        let more = if levels.len() > 12 { ", ..." } else { "" };
        let found = if cell.is_empty() { "an empty cell".into() } else { format!("{cell:?}") };
        format!("expected one of {}{more}, found {found}", known.join(", "))
    })
}
