//! What is said of attempts while their supervisors come and go.

use std::process::{Child, Stdio};

use xt_core::digest::Digest;
use xt_core::field::object;
use xt_core::manifest::status::Observed;
use xt_core::verb::settle::AttemptState;
use xt_record::{Process, Record};

use crate::bench::{Bench, another, at, given, submission};

/// Supervises one attempt after the other to its recorded end, then ends.
#[test]
#[ignore = "a part of another test, run as a process of its own"]
fn supervise() {
    let record = Record::open(&given()).unwrap();
    let attempt = record.submit(&submission("a", None)).unwrap().attempt().id;
    record.claim(&attempt, &Process::own().unwrap(), at(1)).unwrap();
    record.transition(&attempt, AttemptState::Running, at(2), &object([])).unwrap();
    record.settle(&attempt, AttemptState::Succeeded, &Digest::of(b"record"), at(3)).unwrap();
    // As fast as a process can end.
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_supervisor_that_records_the_end_and_goes_is_never_called_lost() {
    let bench = Bench::new();
    let record = bench.record();
    let (mut looks, mut working) = (0, 0);
    for _ in 0..40 {
        let mut child: Child = another("standing::supervise", &bench.path()).stdout(Stdio::null()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            for status in record.standing().unwrap() {
                looks += 1;
                working += u64::from(status.observed == Observed::Working);
                assert_ne!(status.observed, Observed::Lost, "look {looks}: {}", status.why);
            }
        }
    }
    assert_eq!(record.attempts().unwrap().len(), 40);
    assert!(working > 0, "no supervisor was seen at work in {looks} looks");
}
