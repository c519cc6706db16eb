//! kill -9 at any moment: what was committed is there, what was not left no trace.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant as Moment};

use xt_core::digest::Digest;
use xt_core::field::object;
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_record::{Process, Record};

use crate::bench::{Bench, another, at, audit, given, name, said, submission};

/// Lives through attempts without end, and says what it has committed.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn live_until_killed() {
    let record = Record::open(&given()).unwrap();
    let own = Process::own().unwrap();
    for round in 0.. {
        let attempt = record.submit(&submission(&format!("{round}"), None)).unwrap().attempt().id;
        println!("> {attempt} requested");
        record.claim(&attempt, &own, at(1)).unwrap();
        println!("> {attempt} starting");
        record.transition(&attempt, AttemptState::Running, at(2), &object([])).unwrap();
        println!("> {attempt} running");
        let end = if round % 3 == 0 { AttemptState::Failed } else { AttemptState::Succeeded };
        record.settle(&attempt, end, &Digest::of(b"record"), at(3)).unwrap();
        println!("> {attempt} {end}");
    }
}

#[test]
fn a_killed_writer_loses_nothing_it_had_committed_and_leaves_no_half_step() {
    let bench = Bench::new();
    let (mut events, mut last_seen) = (0, None);
    let mut states = BTreeSet::new();
    for round in 0..24u64 {
        let mut child = another("crash::live_until_killed", &bench.path()).stdout(Stdio::piped()).spawn().unwrap();
        // From "still opening" to "many attempts later", a prime apart so that the moments differ.
        std::thread::sleep(Duration::from_micros(2000 + round * 7919));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut output = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        if !bench.path().exists() {
            continue;
        }
        let now = audit(&bench.path());
        assert!(now >= events, "events went missing");
        events = now;
        let record = bench.record();
        let log: BTreeSet<_> = record.events(0).unwrap().iter().map(|e| (e.subject.clone(), e.kind.clone())).collect();
        for line in said(&output) {
            let Some((id, state)) = line.split_once(' ') else { continue };
            let Some(state) = AttemptState::parse(state) else { continue };
            last_seen = Some((id.to_string(), state));
            let held = record.attempt(&name(id)).unwrap().unwrap().state;
            assert!(held == state || !state.is_terminal(), "{id} was {state}, is {held}");
            assert!(log.contains(&(name(id), name(&format!("attempt.{state}")))), "{line} is not in the log");
        }
        states.extend(record.attempts().unwrap().iter().map(|attempt| attempt.state));
    }
    assert!(last_seen.is_some(), "no writer came as far as a commit");
    assert!(states.iter().any(|state| !state.is_terminal()), "no kill fell into the life of an attempt");
    assert!(events > 100, "only {events} events were looked at");
}

#[test]
fn a_writer_killed_while_it_holds_the_lock_does_not_keep_it() {
    let bench = Bench::new();
    bench.record();
    let mut child = another("crash::hold_the_lock", &bench.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    // The harness prints first; the lock is held when the mark comes.
    while byte != *b"!" {
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    }
    let record = bench.record();
    record.wait_at_most(Duration::from_millis(50)).unwrap();
    assert_eq!(xt_core::fault::Failure::word(&record.submit(&submission("a", None)).unwrap_err()), "record.locked");
    child.kill().unwrap();
    child.wait().unwrap();
    let began = Moment::now();
    record.submit(&submission("a", None)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    audit(&bench.path());
}

#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn hold_the_lock() {
    let raw = rusqlite::Connection::open(given()).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE; DELETE FROM event;").unwrap();
    println!("!");
    std::thread::sleep(Duration::from_mins(1));
}
