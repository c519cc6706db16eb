//! The file: foreign ones, newer ones, locked ones, read-only ones.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Moment};

use rusqlite::Connection;
use xt_core::fault::{Exit, Failure};
use xt_record::{FILE_NAME, FORMAT, Record, RecordError};

use crate::bench::{Bench, another, audit, given, said, submission};

fn folder(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// Both ways of opening fail with this word, and neither file nor folder changes.
fn refused(path: &Path, word: &str) {
    let before = (fs::read(path).unwrap(), folder(path));
    for refusal in [Record::open(path), Record::open_read_only(path)] {
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.exit(), refusal.word()), (Exit::Refused, word), "{refusal}");
    }
    assert_eq!((fs::read(path).unwrap(), folder(path)), before);
}

#[test]
fn a_newer_format_is_refused_with_its_bytes_unchanged_and_nothing_made_beside_it() {
    let bench = Bench::new();
    bench.record().submit(&submission("a", None)).unwrap();
    let mut bytes = fs::read(bench.path()).unwrap();
    bytes[60..64].copy_from_slice(&(FORMAT + 1).to_be_bytes());
    fs::write(bench.path(), bytes).unwrap();
    refused(&bench.path(), "record.newer");
    assert_eq!(folder(&bench.path()), [FILE_NAME]);
}

#[test]
fn a_newer_format_that_is_still_in_the_log_is_refused_too() {
    let bench = Bench::new();
    bench.record();
    let newer = Connection::open(bench.path()).unwrap();
    newer.pragma_update(None, "user_version", FORMAT + 1).unwrap();
    let head = fs::read(bench.path()).unwrap();
    assert_eq!(head[60..64], FORMAT.to_be_bytes(), "the new mark is in the log only");
    for refusal in [Record::open(&bench.path()), Record::open_read_only(&bench.path())] {
        assert!(matches!(refusal, Err(RecordError::Newer { found, .. }) if found == FORMAT + 1));
    }
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let bench = Bench::new();
    for bytes in [b"".to_vec(), b"SQLite format 3\0".to_vec(), b"words\n".repeat(1000)] {
        fs::write(bench.path(), bytes).unwrap();
        refused(&bench.path(), "record.foreign");
    }
    fs::remove_file(bench.path()).unwrap();
    Connection::open(bench.path()).unwrap().execute_batch("CREATE TABLE cookies (jar)").unwrap();
    refused(&bench.path(), "record.foreign");
}

#[test]
fn reading_needs_a_record_and_makes_none() {
    let bench = Bench::new();
    let absent = Record::open_read_only(&bench.path()).unwrap_err();
    assert_eq!((absent.exit(), absent.word()), (Exit::Store, "record.absent"));
    assert_eq!(folder(&bench.path()), [""; 0]);
}

#[test]
fn a_locked_record_is_not_now_after_the_time_to_wait() {
    let bench = Bench::new();
    let record = bench.record();
    let other = Connection::open(bench.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    record.wait_at_most(Duration::from_millis(300)).unwrap();
    let began = Moment::now();
    let locked = record.submit(&submission("a", None)).unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!((locked.exit(), locked.word()), (Exit::NotNow, "record.locked"));
    // Readers do not wait for writers, and the lock is the only reason.
    assert_eq!(record.events(0).unwrap(), []);
    other.execute_batch("COMMIT").unwrap();
    record.submit(&submission("a", None)).unwrap();
}

#[test]
fn a_writer_waits_for_another_writer() {
    let bench = Bench::new();
    let record = bench.record();
    let path = bench.path();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.execute_batch("COMMIT").unwrap();
    });
    record.submit(&submission("a", None)).unwrap();
    holder.join().unwrap();
}

#[test]
fn a_path_with_bytes_that_mean_something_in_a_uri_is_just_a_path() {
    let bench = Bench::new();
    let folder = bench.path().with_file_name(OsStr::from_bytes(b"a b%20?c#d&\xff"));
    fs::create_dir(&folder).unwrap();
    let path = folder.join(FILE_NAME);
    Record::open(&path).unwrap().submit(&submission("a", None)).unwrap();
    assert_eq!(Record::open(&path).unwrap().attempts().unwrap().len(), 1);
    assert_eq!(fs::read_dir(bench.path().parent().unwrap()).unwrap().count(), 1);
}

/// Reads the record and tries to write it.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn read_and_try_to_write() {
    let record = Record::open_read_only(&given()).unwrap();
    println!("> {} {}", record.attempts().unwrap().len(), record.events(0).unwrap().len());
    println!("> {}", record.submit(&submission("no", None)).unwrap_err().word());
}

/// What [`read_and_try_to_write`] says as a user who may write nothing in the folder.
fn read_as_a_guest(path: &Path) -> Vec<String> {
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, PermissionsExt::from_mode(0o555)).unwrap();
    let mut command = another("file::read_and_try_to_write", path);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    said(&output.stdout)
}

#[test]
fn a_record_on_a_read_only_disk_can_be_read_with_and_without_a_log_beside_it() {
    let bench = Bench::new();
    let record = bench.record();
    record.submit(&submission("a", None)).unwrap();
    let log = bench.path().with_file_name(format!("{FILE_NAME}-wal"));
    assert!(fs::metadata(&log).unwrap().len() > 0);
    // A copy as a crash leaves it: the log holds what the file does not, and the index is gone.
    let crashed = Bench::new();
    fs::copy(bench.path(), crashed.path()).unwrap();
    fs::copy(&log, crashed.path().with_file_name(log.file_name().unwrap())).unwrap();
    let before = folder(&crashed.path());
    assert_eq!(read_as_a_guest(&crashed.path()), ["1 7", "record.read-only"]);
    assert_eq!(folder(&crashed.path()), before);
    // One that is being written: the log and its index are there.
    assert_eq!(read_as_a_guest(&bench.path()), ["1 7", "record.read-only"]);
    // One that was closed: the file alone.
    drop(record);
    assert_eq!(folder(&bench.path()), [FILE_NAME]);
    assert_eq!(read_as_a_guest(&bench.path()), ["1 7", "record.read-only"]);
    assert_eq!(folder(&bench.path()), [FILE_NAME]);
}

/// The last image of page 1 in a write-ahead log ("Database File Format", section 4: a head of 32 bytes, then frames of
/// 24 bytes and a page each, the page's number first).
fn first_page_of_log(log: &[u8]) -> &[u8] {
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let mut frames = log[32..].chunks_exact(24 + page);
    &frames.rfind(|frame| frame[..4] == 1u32.to_be_bytes()).unwrap()[24..]
}

#[test]
fn a_checkpoint_cut_short_after_its_first_page_is_no_damage() {
    let bench = Bench::new();
    let record = bench.record();
    for number in 0..40 {
        record.submit(&submission(&format!("{number}"), None)).unwrap();
    }
    let log = fs::read(bench.path().with_file_name(format!("{FILE_NAME}-wal"))).unwrap();
    let mut file = fs::read(bench.path()).unwrap();
    let first = first_page_of_log(&log);
    file[..first.len()].copy_from_slice(first);
    let pages = u32::from_be_bytes(first[28..32].try_into().unwrap()) as usize;
    assert!(pages * first.len() > file.len(), "the head tells of pages that the file has not yet");
    let cut = Bench::new();
    fs::write(cut.path(), file).unwrap();
    fs::write(cut.path().with_file_name(format!("{FILE_NAME}-wal")), log).unwrap();
    assert_eq!(Record::open_read_only(&cut.path()).unwrap().attempts().unwrap(), record.attempts().unwrap());
    assert_eq!(cut.record().attempts().unwrap().len(), 40);
    audit(&cut.path());
}

/// Submits until the disk is full, and says how that ended and whether the record is whole.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn fill_the_disk() {
    let record = Record::open(&given()).unwrap();
    let mut refusals = (0..).map(|number| record.submit(&submission(&format!("{number}"), None)));
    let full = refusals.find_map(Result::err).unwrap();
    println!("> {} {full}", full.exit().code());
    let attempts = record.attempts().unwrap().len();
    println!("> {}", if attempts > 10 { "many" } else { "few" });
    audit(&given());
    println!("> whole");
}

#[test]
fn a_full_disk_is_an_error_of_the_system_and_the_record_stays_whole() {
    let bench = Bench::new();
    let part = another("file::fill_the_disk", &bench.path());
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs -o size=1m none \"$0\" && \"$@\"",
    ]);
    command.arg(bench.path().parent().unwrap()).arg(part.get_program()).args(part.get_args());
    command.envs(part.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert_eq!(said(&output.stdout), ["20 SQLite: database or disk is full", "many", "whole"]);
    assert!(!bench.path().exists(), "the full disk was another one");
}
