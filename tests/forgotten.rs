//! A record that was lost, or restored from an earlier copy: the store around it knows more.

#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bench;

use bench::Bench;
use xt_core::manifest::run::Status;
use xt_core::name::Name;

#[test]
fn a_record_restored_from_an_earlier_copy_gives_no_id_again_that_has_left_something() {
    let bench = Bench::new();
    let (first, other) = (bench.plan("", 3), bench.plan("", 4));
    bench.run(&first, &[]).run(Status::Succeeded, 0);
    let copies = ["record.db", "record.db-wal"].map(|name| bench.store_path().join(name));
    let copies = copies.map(|path| (std::fs::read(&path).ok(), path));
    let before = bench.run(&other, &[]).run(Status::Succeeded, 0);
    let kept = |name: &str| std::fs::read(bench.run_folder(&before.attempt).join(name)).unwrap();
    let (telemetry, finished) = (kept("telemetry.jsonl"), kept("finished.json"));
    let named = bench.store().reference(&format!("runs/{}", before.attempt)).unwrap();
    for restored in [true, false] {
        for (bytes, path) in &copies {
            std::fs::remove_file(path).ok();
            if let Some(bytes) = bytes.as_ref().filter(|_| restored) {
                std::fs::write(path, bytes).unwrap();
            }
        }
        std::fs::remove_file(bench.store_path().join("record.db-shm")).ok();
        let after = bench.run(&other, &[]).run(Status::Succeeded, 0);
        assert_ne!(after.attempt, before.attempt, "restored: {restored}");
        assert!(kept("telemetry.jsonl") == telemetry && kept("finished.json") == finished, "restored: {restored}");
        assert_eq!(bench.store().reference(&format!("runs/{}", before.attempt)).unwrap(), named);
        // It can go on: the next one has a number of its own, too.
        let next = bench.run(&other, &[]).run(Status::Succeeded, 0);
        assert!(next.attempt != after.attempt && next.attempt != before.attempt, "{}", next.attempt);
    }
}

#[test]
fn a_record_that_was_lost_gives_no_id_again_that_has_left_something_in_quarantine() {
    let bench = Bench::new();
    let plan = bench.plan("", 3);
    let first = bench.run(&plan, &[]).run(Status::Succeeded, 0).attempt;
    let forget = |attempt: &Name| {
        for name in ["record.db", "record.db-wal", "record.db-shm"] {
            std::fs::remove_file(bench.store_path().join(name)).ok();
        }
        std::fs::remove_dir_all(bench.run_folder(attempt)).unwrap();
        std::fs::remove_file(bench.store_path().join("refs/runs").join(attempt.as_str())).unwrap();
    };
    forget(&first);
    let left = bench.store_path().join("quarantine").join(first.as_str());
    std::fs::create_dir_all(&left).unwrap();
    let second = bench.run(&plan, &[]).run(Status::Succeeded, 0).attempt;
    assert_ne!(second, first);
    // The control: without it the id is free.
    forget(&second);
    std::fs::remove_dir(&left).unwrap();
    assert_eq!(bench.run(&plan, &[]).run(Status::Succeeded, 0).attempt, first);
}
