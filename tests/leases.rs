//! What runs have of their host: nothing is given twice, nobody waits for what does not concern them, and nothing stays
//! taken.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::process::{Command, Output, Stdio};

use bench::{Bench, Ended, member, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xt_core::canonical::{Value, parse_all};
use xt_core::field::Manifest as _;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::resources::{Admission, Inventory, Policy, Resources};
use xt_core::manifest::run::{Run, Status};
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;
use xt_record::Process;

fn log(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xt-log"));
    command.args(arguments).env_clear().env("XT_STORE", bench.store_path()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn resources(bench: &Bench, arguments: &[&str]) -> Resources {
    let output = log(bench, &[&["resources"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Resources::decode(&parse_all(&output.stdout).unwrap()[0]).unwrap()
}

fn names(texts: &[&str]) -> Vec<Name> {
    texts.iter().map(|text| Name::new(text).unwrap()).collect()
}

fn plan(bench: &Bench, behaviour: &str, steps: u64, domains: &[&str]) -> Plan {
    bench.plan_with(behaviour, steps, |intent| {
        intent.resources.conflict_domains = names(domains);
        intent.resources.memory_bytes = 64 << 20;
        intent.resources.storage_bytes = 16 << 20;
    })
}

fn inventory(cores: u64) -> Inventory {
    let policy = Policy {
        admission: Admission::Open,
        postponed: vec![],
        refused: vec![],
        spare_memory_bytes: 0,
        spare_storage_bytes: 0,
        highest_load: None,
        reason: "the host is being serviced".into(),
    };
    Inventory { cores, memory_bytes: 1 << 40, storage_bytes: 1 << 40, accelerators: vec![], policy }
}

fn declare(bench: &Bench, inventory: &Inventory) {
    fs::write(bench.path("inventory.json"), inventory.encode().canonical()).unwrap();
    let file = bench.path("inventory.json");
    assert!(resources(bench, &["--declare", file.to_str().unwrap()]).declared);
}

#[track_caller]
fn refused(ended: &Ended, code: i32, word: &str, reason: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("error[{word}]")) && ended.stderr.contains(reason), "{}", ended.stderr);
}

fn cancel(bench: &Bench, attempt: &Name) {
    Ended::of(bench.xt_run(&["--cancel", attempt.as_str()]).output().unwrap()).run(Status::Cancelled, 0);
}

#[test]
fn runs_of_one_conflict_domain_take_turns_and_others_are_undisturbed() {
    let bench = Bench::new();
    let first = bench.detach(&plan(&bench, "slow 20", 60, &["disk-a"]), &[]);
    let second = plan(&bench, "", 3, &["disk-a", "disk-b"]);
    let reason = format!("{first} has disk-a");
    refused(&bench.run(&second, &[]), 75, "lease.postponed", &reason);
    assert_eq!(bench.record().attempts().unwrap().len(), 1, "what was postponed is not recorded");
    bench.run(&plan(&bench, "", 3, &["disk-b"]), &[]).run(Status::Succeeded, 0);
    let taken = resources(&bench, &[]);
    assert_eq!((taken.declared, taken.leases.len()), (false, 1));
    assert_eq!((&taken.leases[0].attempt, &taken.leases[0].domains), (&first, &names(&["disk-a"])));
    let waited = bench.run(&second, &["--wait"]);
    assert!(waited.stderr.contains(&reason), "{}", waited.stderr);
    waited.run(Status::Succeeded, 0);
    let ended = bench.record().attempt(&first).unwrap().unwrap();
    assert_eq!(ended.state, AttemptState::Succeeded, "it was waited for and not disturbed");
    assert_eq!(resources(&bench, &[]).leases, []);
    assert!(log(&bench, &["rebuild", "--check"]).status.success());
}

#[test]
fn twelve_runs_of_one_domain_at_once_never_overlap() {
    let bench = Bench::new();
    let file = bench.write("plan.json", &plan(&bench, "slow 5", 4, &["alone"]));
    let children: Vec<_> = (0..12).map(|_| bench.xt_run(&["--wait", &file]).spawn().unwrap()).collect();
    for child in children {
        Ended::of(child.wait_with_output().unwrap()).run(Status::Succeeded, 0);
    }
    let mut held = 0_i32;
    let mut given = 0;
    for event in bench.record().events(0).unwrap() {
        match event.kind.as_str() {
            "lease.held" => (held, given) = (held + 1, given + 1),
            "lease.released" => held -= 1,
            _ => {}
        }
        assert!((0..=1).contains(&held), "event {}", event.sequence);
    }
    assert_eq!(given, 12);
}

#[test]
fn what_the_operator_declares_is_the_most_that_is_given() {
    let bench = Bench::new();
    let small = plan(&bench, "slow 20", 3000, &[]);
    let first = bench.detach(&small, &[]);
    let second = bench.detach(&small, &[]);
    declare(&bench, &inventory(2));
    refused(&bench.run(&small, &[]), 75, "lease.postponed", "1 cores are asked for, and 0 of 2 are free");
    let large = bench.plan_with("", 3, |intent| intent.resources.cores = 3);
    refused(&bench.run(&large, &[]), 10, "lease.unavailable", "3 cores are asked for, and there are 2 in all");
    cancel(&bench, &first);
    let third = bench.detach(&small, &[]);
    cancel(&bench, &second);
    cancel(&bench, &third);
    for (admission, code, word) in
        [(Admission::Postpone, 75, "lease.postponed"), (Admission::Refuse, 10, "lease.unavailable")]
    {
        let mut closed = inventory(2);
        closed.policy.admission = admission;
        declare(&bench, &closed);
        refused(&bench.run(&small, &[]), code, word, "the host is being serviced");
    }
    let mut crowded = inventory(2);
    crowded.policy.spare_memory_bytes = 1 << 60;
    declare(&bench, &crowded);
    refused(&bench.run(&small, &[]), 75, "lease.postponed", "bytes of memory are due");
    assert!(!resources(&bench, &["--undeclare"]).declared);
    bench.run(&plan(&bench, "", 3, &[]), &[]).run(Status::Succeeded, 0);
}

#[test]
fn a_killed_supervisor_keeps_nothing() {
    let bench = Bench::new();
    let first = bench.detach(&plan(&bench, "hang 3", 12, &["disk-a"]), &[]);
    let process = bench.until(AttemptState::Running, 4).process.unwrap();
    let next = plan(&bench, "", 3, &["disk-a"]);
    refused(&bench.run(&next, &[]), 75, "lease.postponed", "has disk-a");
    kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL).unwrap();
    wait_for("the end of the supervisor", || (!bench::runs(process.pid)).then_some(()));
    bench.run(&next, &[]).run(Status::Succeeded, 0);
    assert_eq!(bench.record().attempt(&first).unwrap().unwrap().state, AttemptState::Lost);
}

#[test]
fn a_retry_needs_what_its_first_attempt_needed() {
    let bench = Bench::new();
    let failed = bench.run(&plan(&bench, "crash 2", 3, &["disk-a"]), &[]).run(Status::Failed, 14);
    let other = bench.detach(&plan(&bench, "slow 20", 3000, &["disk-a"]), &[]);
    let retry = Ended::of(bench.xt_run(&["--retry", failed.attempt.as_str()]).output().unwrap());
    refused(&retry, 75, "lease.postponed", "has disk-a");
    cancel(&bench, &other);
    Ended::of(bench.xt_run(&["--retry", failed.attempt.as_str()]).output().unwrap()).run(Status::Failed, 14);
}

#[test]
fn what_nobody_can_see_stays_closed_until_a_person_opens_it() {
    let bench = Bench::new();
    let first = bench.detach(&plan(&bench, "slow 20", 3000, &["disk-a"]), &[]);
    bench.until(AttemptState::Running, 4);
    // As it looks from another container.
    let elsewhere = Process { namespace: 1, ..bench.attempt().process.unwrap() };
    let raw = rusqlite::Connection::open(bench.store().record_path()).unwrap();
    let text = xt_core::field::Field::write(&elsewhere.supervisor()).canonical();
    raw.execute("UPDATE attempt SET process = ?1", [text]).unwrap();
    let next = plan(&bench, "", 3, &["disk-a"]);
    refused(&bench.run(&next, &[]), 75, "lease.postponed", "has disk-a");
    let shown = resources(&bench, &[]);
    let [lease] = &shown.leases[..] else { panic!("{shown:?}") };
    let command = format!("xt-log resources --clear {} --reason TEXT", lease.lease);
    assert!(lease.why.contains("cannot be seen from here") && lease.why.contains(&command), "{}", lease.why);
    assert_eq!(resources(&bench, &["--clear", lease.lease.as_str(), "--reason", "looked at it"]).leases, []);
    let event = bench.record().events(0).unwrap().pop().unwrap();
    assert_eq!(
        (event.kind.as_str(), event.payload.get("cleared").and_then(Value::as_str)),
        ("lease.released", Some("looked at it"))
    );
    bench.run(&next, &[]).run(Status::Succeeded, 0);
    drop(raw);
    assert!(log(&bench, &["rebuild"]).status.success());
    cancel(&bench, &first);
}

#[test]
fn a_run_that_makes_room_drains_only_what_is_in_its_way_and_that_goes_on_bit_for_bit() {
    let bench = Bench::new();
    let undisturbed = bench.run(&plan(&bench, "slow 20", 120, &["disk-a"]), &[]).run(Status::Succeeded, 0);
    let in_the_way = bench.detach(&plan(&bench, "slow 20", 120, &["disk-a"]), &[]);
    let beside = bench.detach(&plan(&bench, "slow 20", 3000, &["disk-b"]), &[]);
    wait_for("some steps", || (bench.telemetry(&in_the_way) >= 4).then_some(()));
    let made = bench.run(&plan(&bench, "", 3, &["disk-a"]), &["--preempt"]);
    made.run(Status::Succeeded, 0);
    assert!(made.stderr.contains(&format!("{in_the_way} goes on as ")), "{}", made.stderr);
    let state = |attempt: &Name| bench.record().attempt(attempt).unwrap().unwrap().state;
    assert_eq!((state(&in_the_way), state(&beside)), (AttemptState::Drained, AttemptState::Running));
    let going_on = bench.record().attempts().unwrap().pop().unwrap();
    let rest = Ended::of(bench.xt_run(&["--attach", going_on.id.as_str()]).output().unwrap()).run(Status::Succeeded, 0);
    let drained: Run =
        bench.store().manifest(bench.record().attempt(&in_the_way).unwrap().unwrap().run_record.unwrap()).unwrap();
    assert!(drained.progress.steps > 0 && drained.progress.steps < 120, "{:?}", drained.progress);
    let chain = |run: &Run| run.trace.as_ref().map(|trace| trace.chain);
    assert_eq!(chain(&rest), chain(&undisturbed), "the trace is that of a run that nobody disturbed");
    assert_ne!(chain(&drained), chain(&undisturbed), "the control");
    cancel(&bench, &beside);
    assert_eq!(resources(&bench, &[]).leases, []);
    let actions = bench.record().actions().unwrap();
    assert!(actions.iter().any(|action| action.by == "xt-run --preempt" && action.state.to_string() == "done"));
    let status = log(&bench, &["rebuild", "--check"]);
    assert!(status.status.success(), "{}", member(&parse_all(&status.stdout).unwrap()[0], "/differences"));
}

/// The holders of a domain, event by event: from when `first` has it up to the last end, there must always be one.
#[track_caller]
fn never_free(bench: &Bench, first: &Name, domain: &str) {
    let mut holders = 0_i32;
    let mut begun = false;
    let mut of_it = std::collections::BTreeSet::new();
    let events = bench.record().events(0).unwrap();
    let last = events.iter().rposition(|event| event.kind.as_str() == "lease.released").unwrap();
    for event in &events[..last] {
        match event.kind.as_str() {
            "lease.held" if event.payload.canonical().contains(domain) => {
                of_it.insert(event.subject.clone());
                begun |= event.payload.get("attempt").and_then(Value::as_str) == Some(first.as_str());
                holders += 1;
            }
            "lease.released" if of_it.contains(&event.subject) => holders -= 1,
            _ => {}
        }
        assert!(!begun || holders >= 1, "free after event {}", event.sequence);
    }
}

fn chain(run: &Run) -> xt_core::digest::Digest {
    run.trace.as_ref().unwrap().chain
}

/// The last attempt, followed to its end.
#[track_caller]
fn last_to_its_end(bench: &Bench) -> Run {
    let last = bench.record().attempts().unwrap().pop().unwrap();
    Ended::of(bench.xt_run(&["--attach", last.id.as_str()]).output().unwrap()).run(Status::Succeeded, 0)
}

/// Waits until a run was asked to stop for another one, before it can have done so: its steps take a while.
fn asked_to_stop(bench: &Bench) {
    wait_for("the wish that it stops", || {
        let actions = bench.record().actions().unwrap();
        actions.iter().any(|action| action.kind.to_string() == "preempt").then_some(())
    });
}

#[test]
fn a_run_that_is_refused_after_it_made_room_leaves_the_host_as_it_was() {
    let bench = Bench::new();
    let undisturbed = bench.run(&plan(&bench, "slow 300", 8, &["disk-a"]), &[]).run(Status::Succeeded, 0);
    let first = bench.detach(&plan(&bench, "slow 300", 8, &["disk-a"]), &[]);
    wait_for("a step", || (bench.telemetry(&first) >= 2).then_some(()));
    let other = bench.start(&plan(&bench, "", 3, &["disk-a"]), &["--preempt"]);
    asked_to_stop(&bench);
    // The operator closes the host while it stops.
    let mut closed = inventory(8);
    closed.policy.admission = Admission::Refuse;
    declare(&bench, &closed);
    let other = Ended::of(other.wait_with_output().unwrap());
    refused(&other, 10, "lease.unavailable", "the host is being serviced");
    assert!(other.stderr.contains(&format!("{first} goes on as ")), "{}", other.stderr);
    assert_eq!(bench.record().attempt(&first).unwrap().unwrap().state, AttemptState::Drained);
    assert_eq!(bench.record().attempts().unwrap().len(), 3, "the one that was refused is not recorded");
    assert_eq!(chain(&last_to_its_end(&bench)), chain(&undisturbed), "it went on bit for bit");
    never_free(&bench, &first, "disk-a");
    assert_eq!(resources(&bench, &[]).leases, []);
}

#[test]
fn what_cannot_go_on_keeps_its_domain_closed_until_somebody_lets_it_go_on_or_gives_it_up() {
    let bench = Bench::new();
    fs::copy(env!("CARGO_BIN_EXE_xt-stand-in"), bench.path("worker")).unwrap();
    let worker = bench.path("worker").to_str().unwrap().to_string();
    let undisturbed = bench.run(&plan(&bench, "slow 300", 8, &["disk-a"]), &[]).run(Status::Succeeded, 0);
    let first = bench.detach(&plan(&bench, "slow 300", 8, &["disk-a"]), &["--worker", &worker]);
    wait_for("a step", || (bench.telemetry(&first) >= 2).then_some(()));
    let other = bench.start(&plan(&bench, "", 3, &["disk-a"]), &["--preempt", "--worker", &worker]);
    asked_to_stop(&bench);
    // The operator closes the host, and the worker is gone too: neither run can be started.
    let mut closed = inventory(8);
    closed.policy.admission = Admission::Refuse;
    declare(&bench, &closed);
    fs::rename(&worker, bench.path("away")).unwrap();
    let other = Ended::of(other.wait_with_output().unwrap());
    refused(&other, 10, "lease.unavailable", "the host is being serviced");
    assert!(other.stderr.contains("cannot go on, so what it had stays closed"), "{}", other.stderr);
    assert!(!resources(&bench, &["--undeclare"]).declared);
    // The host is open again, the domain is not, and it is said why and what to do.
    refused(&bench.run(&plan(&bench, "", 3, &["disk-a"]), &[]), 75, "lease.postponed", &format!("{first} has disk-a"));
    bench.run(&plan(&bench, "", 3, &["disk-b"]), &[]).run(Status::Succeeded, 0);
    let held = resources(&bench, &[]);
    let [lease] = &held.leases[..] else { panic!("{held:?}") };
    for part in ["uncertain", &format!("`xt-run --resume {first}`"), &format!("--clear {}", lease.lease)] {
        assert!(lease.why.contains(part), "{}", lease.why);
    }
    let waits = bench.run(&plan(&bench, "", 3, &["disk-a"]), &[]);
    assert_eq!(waits.code, Some(75), "{}", waits.stderr);
    fs::rename(bench.path("away"), &worker).unwrap();
    let resumed = bench.xt_run(&["--resume", first.as_str(), "--worker", &worker]).output().unwrap();
    assert_eq!(chain(&Ended::of(resumed).run(Status::Succeeded, 0)), chain(&undisturbed));
    never_free(&bench, &first, "disk-a");
    assert_eq!(resources(&bench, &[]).leases, []);
    assert!(log(&bench, &["rebuild", "--check"]).status.success());
}

#[test]
fn a_killed_client_that_made_room_leaves_it_closed_and_the_run_resumable() {
    let bench = Bench::new();
    let first = bench.detach(&plan(&bench, "slow 300", 8, &["disk-a"]), &[]);
    wait_for("a step", || (bench.telemetry(&first) >= 2).then_some(()));
    let mut other = bench.start(&plan(&bench, "", 3, &["disk-a"]), &["--preempt"]);
    asked_to_stop(&bench);
    other.kill().unwrap();
    other.wait().unwrap();
    // It may have been killed before it told the supervisor; whoever reconciles does.
    assert!(log(&bench, &["reconcile"]).status.success());
    bench.until(AttemptState::Drained, 1);
    let held = resources(&bench, &[]);
    let [lease] = &held.leases[..] else { panic!("{held:?}") };
    assert!(lease.why.contains("uncertain") && lease.domains == names(&["disk-a"]), "{}", lease.why);
    refused(&bench.run(&plan(&bench, "", 3, &["disk-a"]), &[]), 75, "lease.postponed", "has disk-a");
    // Given up: then anybody can have it.
    assert_eq!(resources(&bench, &["--clear", lease.lease.as_str(), "--reason", "not needed"]).leases, []);
    bench.run(&plan(&bench, "", 3, &["disk-a"]), &[]).run(Status::Succeeded, 0);
    let resumed = bench.xt_run(&["--resume", first.as_str()]).output().unwrap();
    Ended::of(resumed).run(Status::Succeeded, 0);
    assert_eq!(resources(&bench, &[]).leases, []);
}

#[test]
fn cores_are_made_room_for_by_the_youngest_run_and_no_other() {
    let bench = Bench::new();
    declare(&bench, &inventory(2));
    let undisturbed = bench.run(&plan(&bench, "slow 20", 120, &[]), &[]).run(Status::Succeeded, 0);
    let elder = bench.detach(&plan(&bench, "slow 20", 3000, &[]), &[]);
    let younger = bench.detach(&plan(&bench, "slow 20", 120, &[]), &[]);
    wait_for("some steps", || (bench.telemetry(&younger) >= 4).then_some(()));
    let small = plan(&bench, "", 3, &[]);
    refused(&bench.run(&small, &[]), 75, "lease.postponed", "1 cores are asked for, and 0 of 2 are free");
    let made = bench.run(&small, &["--preempt"]);
    made.run(Status::Succeeded, 0);
    assert!(made.stderr.contains(&format!("{younger} goes on as ")), "{}", made.stderr);
    let state = |attempt: &Name| bench.record().attempt(attempt).unwrap().unwrap().state;
    assert_eq!((state(&elder), state(&younger)), (AttemptState::Running, AttemptState::Drained));
    assert_eq!(chain(&last_to_its_end(&bench)), chain(&undisturbed));
    cancel(&bench, &elder);
    assert_eq!(resources(&bench, &[]).leases, []);
}

#[test]
fn memory_is_made_room_for_too_and_nobody_stops_in_vain() {
    let bench = Bench::new();
    let mut small = inventory(64);
    small.memory_bytes = 200 << 20;
    declare(&bench, &small);
    let first = bench.detach(&plan(&bench, "slow 20", 3000, &[]), &[]);
    wait_for("some steps", || (bench.telemetry(&first) >= 4).then_some(()));
    let large = |bytes: u64| {
        bench.plan_with("", 3, |intent| {
            intent.resources.memory_bytes = bytes;
            intent.resources.storage_bytes = 16 << 20;
        })
    };
    refused(&bench.run(&large(201 << 20), &["--preempt"]), 10, "lease.unavailable", "in all");
    assert!(bench.record().actions().unwrap().is_empty(), "what can never be had stops nobody");
    let made = bench.run(&large(150 << 20), &["--preempt"]);
    made.run(Status::Succeeded, 0);
    assert!(made.stderr.contains(&format!("{first} goes on as ")), "{}", made.stderr);
    let going_on = bench.record().attempts().unwrap().pop().unwrap().id;
    cancel(&bench, &going_on);
}

#[test]
fn a_waiting_client_hears_a_signal() {
    let bench = Bench::new();
    let first = bench.detach(&plan(&bench, "slow 20", 3000, &["disk-a"]), &[]);
    let waiting = bench.start(&plan(&bench, "", 3, &["disk-a"]), &["--wait"]);
    std::thread::sleep(std::time::Duration::from_millis(600));
    kill(Pid::from_raw(waiting.id().cast_signed()), Signal::SIGTERM).unwrap();
    let ended = Ended::of(waiting.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(143), ""), "{}", ended.stderr);
    assert_eq!(bench.record().attempts().unwrap().len(), 1, "it asked for nothing");
    cancel(&bench, &first);
}
