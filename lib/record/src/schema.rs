//! The file: its format, how it comes to be, how it is opened.
//!
//! One table holds the log, the others the states, which follow from it. Each of these has `id` and `state`. No row is
//! ever deleted, so a `number` is never used twice.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use xt_core::manifest::event::Level;

use crate::error::RecordError;
use crate::{event, fold};

/// Marks the file as a record of this toolkit (`PRAGMA application_id`): "xtRe".
pub const APPLICATION_ID: u32 = 0x7874_5265;

/// The format that this version writes (`PRAGMA user_version`). Format 1 had neither actions nor leases,
/// format 2 no scopes; their logs give everything else.
pub const FORMAT: u32 = 3;

/// A table of states: one row for each thing that has a state.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns beside `number`, `id`, `state` and `level`; payloads of events have members of the same names.
    pub columns: &'static [&'static str],
    /// Whether it holds two levels, told apart by the column `level`.
    pub shared: bool,
}

const EXPERIMENT: Table = Table { name: "experiment", columns: &["objective"], shared: false };
const NODE: Table = Table { name: "node", columns: &["experiment", "fingerprint"], shared: false };
const RUN: Table = Table { name: "run", columns: &["node", "seed", "subject", "evaluation", "cycle"], shared: true };
const ATTEMPT: Table = Table {
    name: "attempt",
    columns: &["run", "operation", "plan", "request", "scope", "process", "run_record", "retry_of"],
    shared: true,
};
const OPERATION: Table =
    Table { name: "operation", columns: &["kind", "request", "attempt", "action", "outcome"], shared: false };
const LEASE: Table = Table {
    name: "lease",
    columns: &["attempt", "cores", "memory_bytes", "storage_bytes", "accelerators", "domains"],
    shared: false,
};
const ACTION: Table = Table { name: "action", columns: &["kind", "level", "target", "by"], shared: false };

/// Every table of states, each after those that it refers to, attempts and operations aside, which refer to each other.
pub const STATES: &[Table] = &[EXPERIMENT, NODE, RUN, ACTION, OPERATION, ATTEMPT, LEASE];

impl Table {
    /// The table of what is at this level.
    pub const fn of(level: Level) -> &'static Self {
        match level {
            Level::Experiment => &EXPERIMENT,
            Level::Node => &NODE,
            Level::Run | Level::EvaluationRun => &RUN,
            Level::Attempt | Level::EvaluationAttempt => &ATTEMPT,
            Level::Operation => &OPERATION,
            Level::Action => &ACTION,
            Level::Lease => &LEASE,
        }
    }
}

/// Everything but the log follows from the log.
pub const TABLES: &str = "
CREATE TABLE experiment (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, objective TEXT
) STRICT;
CREATE TABLE node (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    experiment TEXT NOT NULL REFERENCES experiment (id), fingerprint TEXT NOT NULL,
    UNIQUE (experiment, fingerprint)
) STRICT;
CREATE TABLE run (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, level TEXT NOT NULL,
    node TEXT NOT NULL REFERENCES node (id), seed TEXT NOT NULL, subject TEXT, evaluation TEXT, cycle TEXT
) STRICT;
CREATE INDEX run_of_node ON run (node, seed);
CREATE TABLE action (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    kind TEXT NOT NULL, level TEXT NOT NULL, target TEXT NOT NULL, by TEXT NOT NULL
) STRICT;
CREATE INDEX action_of_target ON action (target);
CREATE TABLE operation (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    kind TEXT NOT NULL, request TEXT NOT NULL, outcome TEXT,
    attempt TEXT NOT NULL REFERENCES attempt (id) DEFERRABLE INITIALLY DEFERRED,
    action TEXT REFERENCES action (id)
) STRICT;
CREATE INDEX operation_of_attempt ON operation (attempt);
CREATE INDEX operation_of_action ON operation (action);
CREATE TABLE attempt (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, level TEXT NOT NULL,
    run TEXT NOT NULL REFERENCES run (id), operation TEXT NOT NULL UNIQUE REFERENCES operation (id),
    plan TEXT NOT NULL, request TEXT NOT NULL, scope TEXT, process TEXT, run_record TEXT,
    retry_of TEXT REFERENCES attempt (id)
) STRICT;
CREATE INDEX attempt_of_run ON attempt (run);
CREATE TABLE lease (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    attempt TEXT NOT NULL REFERENCES attempt (id), cores TEXT NOT NULL, memory_bytes TEXT NOT NULL,
    storage_bytes TEXT NOT NULL, accelerators TEXT NOT NULL, domains TEXT NOT NULL
) STRICT;
CREATE INDEX lease_of_attempt ON lease (attempt);
";

const LOG: &str = "
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY, at INTEGER NOT NULL, level TEXT NOT NULL, subject TEXT NOT NULL,
    kind TEXT NOT NULL, before TEXT, after TEXT, payload TEXT NOT NULL
) STRICT;
CREATE INDEX event_of_subject ON event (level, subject);
CREATE INDEX event_of_plan ON event (json_extract(payload, '$.plan')) WHERE kind = 'node.compiled';
";

/// The format of the file at `path`; `None` when there is no file. Refuses other files and newer formats.
///
/// Read from the head of the file ("Database File Format", section 1.3): SQLite would make files beside it first, or, in
/// its `immutable` mode, trip over a checkpoint that another process is just writing.
pub fn format(path: &Path) -> Result<Option<u32>, RecordError> {
    let Some(head) = head(path).map_err(|source| io_error(path, source))? else { return Ok(None) };
    let number = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    match (head.starts_with(b"SQLite format 3\0"), number(APPLICATION_ID_AT), number(USER_VERSION_AT)) {
        (true, Some(APPLICATION_ID), Some(found)) => supported(path, found).map(Some),
        _ => Err(RecordError::Foreign { path: path.into() }),
    }
}

const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;
const HEAD: usize = 100;

/// Files whose heads were read, by device and inode. They stay open: closing any handle of a file drops all locks that
/// this process has on it, those of an open record too ("How To Corrupt An SQLite Database File", section 2.2).
static HEADS: Mutex<Vec<((u64, u64), File)>> = Mutex::new(Vec::new());

fn head(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut heads = HEADS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = |found: &Metadata| (found.dev(), found.ino());
    let wanted = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => key(&found?),
    };
    if let Some((_, file)) = heads.iter().find(|(known, _)| *known == wanted) {
        return read_head(file).map(Some);
    }
    let file = File::open(path)?;
    let read = file.metadata().and_then(|found| Ok((key(&found), read_head(&file)?)));
    // Kept in any case, also when it could not be read.
    heads.push((read.as_ref().map_or(wanted, |(key, _)| *key), file));
    read.map(|(_, head)| Some(head))
}

fn read_head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    while filled < HEAD {
        match file.read_at(&mut head[filled..], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// The path as a URI; every byte that could mean something in one is escaped.
fn immutable(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let escaped: String = path
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") })
        .collect();
    // Two slashes at the start would read as a host name.
    let start = if path.is_absolute() { "file://" } else { "file:./" };
    format!("{start}{escaped}?immutable=1")
}

/// `found`, unless it is a format that this version does not know.
pub fn supported(path: &Path, found: u32) -> Result<u32, RecordError> {
    if (1..=FORMAT).contains(&found) {
        return Ok(found);
    }
    Err(RecordError::Newer { path: path.into(), found, supported: FORMAT })
}

/// Takes a record of an older format to this one: the log stays as it is, and every other table is made again from it.
/// Of two processes that try at once, the second finds it done.
pub fn migrate(connection: &Connection) -> Result<(), RecordError> {
    // Tables that refer to each other cannot be dropped one by one while somebody watches the references.
    connection.pragma_update(None, "foreign_keys", false)?;
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found < FORMAT {
        for table in STATES {
            transaction.execute_batch(&format!("DROP TABLE IF EXISTS {}", table.name))?;
        }
        transaction.execute_batch(TABLES)?;
        fold::refill(&transaction, &event::all(&transaction)?)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()?;
    Ok(connection.pragma_update(None, "foreign_keys", true)?)
}

/// Creates the record at `path`: built whole under another name and linked into place, so that no process ever sees a
/// half-made one. When another process was quicker, its record stays.
pub fn create(path: &Path) -> Result<(), RecordError> {
    let draft = Draft::new(path)?;
    build(&draft.0)?;
    match fs::hard_link(&draft.0, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(path, error)),
        _ => sync_folder(path),
    }
}

fn build(path: &Path) -> Result<(), RecordError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(&format!(
        "BEGIN; {LOG} {TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT}; COMMIT;"
    ))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error.into())
}

/// A file of our own beside `path`, removed when dropped.
struct Draft(PathBuf);

impl Draft {
    fn new(path: &Path) -> Result<Self, RecordError> {
        let own = std::process::id();
        // Numbers until one is free: the same process number may exist in another container on the same store.
        for number in 0u32.. {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{own}-{number}.new"));
            let draft = PathBuf::from(name);
            match File::create_new(&draft) {
                Ok(_) => return Ok(Self(draft)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(path, error)),
            }
        }
        Err(RecordError::Damaged { what: format!("{} drafts lie beside it", u32::MAX) })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // What cannot be removed is harmless: nothing reads it.
        drop(fs::remove_file(&self.0));
    }
}

fn sync_folder(path: &Path) -> Result<(), RecordError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|source| io_error(folder, source))
}

/// A connection that writes.
pub fn connect(path: &Path) -> Result<Connection, RecordError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// A connection that only reads.
///
/// SQLite reads a write-ahead log through a shared index file, which it cannot make on a read-only disk. Where there is
/// none and none can be made, nobody else has the record open, and it is read without locks.
pub fn connect_read_only(path: &Path, patience: Duration) -> Result<Connection, RecordError> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(patience)?;
    let Err(error) = touch(&connection) else { return Ok(connection) };
    let no_index_can_be_made = matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly));
    if no_index_can_be_made && !beside(path, "-shm").exists() { connect_alone(path) } else { Err(error.into()) }
}

/// A log that is there is read with its index in memory ("Write-Ahead Logging", section 8, "Use of WAL Without
/// Shared-Memory"); where there is none, the file is all there is.
fn connect_alone(path: &Path) -> Result<Connection, RecordError> {
    let connection = if beside(path, "-wal").exists() {
        let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_ONLY, c"unix-none")?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection
    } else {
        connect_immutable(path)?
    };
    touch(&connection)?;
    Ok(connection)
}

fn connect_immutable(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(immutable(path), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// Opening alone does not look at the file; the first query does.
fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn io_error(path: &Path, source: io::Error) -> RecordError {
    RecordError::Io { path: path.into(), source }
}
