//! A store survives the death of its writers, at any moment and in any number.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_harness::{Folder, NOW, programs};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 24
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

fn entries(path: impl AsRef<Path>) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

/// Everything named is readable, nothing is damaged, and the next writer leaves no litter.
#[track_caller]
fn check(folder: &Folder) -> BTreeMap<String, Digest> {
    let names: BTreeMap<String, Digest> = folder
        .xt("store")
        .arg("refs")
        .run()
        .expect(0)
        .documents()
        .iter()
        .map(|line| {
            let member = |key: &str| line.get(key).and_then(Value::as_str).unwrap().to_owned();
            (member("name"), member("digest").parse().unwrap())
        })
        .collect();
    for digest in names.values() {
        folder.xt("store").args(["get", &digest.to_string(), "-o", "out"]).run().expect(0);
        assert_eq!(Digest::of(&fs::read(folder.at("out")).unwrap()), *digest);
    }
    folder.xt("store").arg("verify").run().expect(0);
    folder.xt("store").arg("put").input("the next writer").run().expect(0);
    let litter = entries(folder.at(".xt/tmp")) + entries(folder.at(".xt/leases"));
    assert_eq!(litter, 0, "the next writer sweeps");
    folder.xt("store").arg("verify").run().expect(0);
    names
}

const WAVES: usize = 3;

#[test]
fn killing_any_of_a_hundred_concurrent_puts_loses_nothing_that_was_named() {
    let mut random = Random(3);
    let folder = Folder::new();
    for number in 0..100_usize {
        folder.write(format!("in/{number}"), random.bytes(300_000 + 7000 * number));
    }
    let (mut killed, mut done) = (0, BTreeMap::new());
    for wave in 0..WAVES {
        let mut children: Vec<(String, Child)> = Vec::new();
        for number in 0..100_usize {
            let (file, name) = (format!("in/{number}"), format!("wave{wave}/{number}"));
            let child = folder.xt("store").args(["put", &file, "--name", &name]).start();
            children.push((name, child));
            // Half of them die, each at a moment of its own, while the others go on.
            let victim = number.saturating_sub(usize::try_from(random.next() % 12).unwrap());
            if number % 2 == 0 {
                children[victim].1.kill().unwrap();
            }
        }
        for (name, child) in children {
            let output = child.wait_with_output().unwrap();
            match output.status.code() {
                Some(0) => {
                    let line = parse(output.stdout.trim_ascii()).unwrap();
                    let digest: Digest = line.get("digest").and_then(Value::as_str).unwrap().parse().unwrap();
                    done.insert(name, digest);
                }
                Some(code) => panic!("{name}: exit {code}: {}", String::from_utf8_lossy(&output.stderr)),
                None => killed += 1,
            }
        }
    }
    let names = check(&folder);
    for (name, digest) in &done {
        assert_eq!(names.get(name), Some(digest), "{name} was reported as stored");
    }
    eprintln!("{killed} killed, {} done, {} named", done.len(), names.len());
    assert!(killed >= 10 * WAVES && done.len() >= 50 * WAVES, "some died and the others finished");
}

#[test]
fn a_put_that_is_fed_slowly_and_killed_half_way_leaves_nothing_but_what_the_next_one_sweeps() {
    let folder = Folder::new();
    let bytes = Random(5).bytes(6 << 20);
    folder.xt("store").arg("put").input("before").run().expect(0);
    let mut child = folder.xt("store").arg("put").start();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes[..5 << 20]).unwrap();
    let tmp = folder.at(".xt/tmp");
    while folder_bytes(&tmp) < 3 << 20 {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout.is_empty() && output.status.code().is_none());
    drop(stdin);
    assert_eq!(folder.xt("store").arg("ls").run().expect(0).documents().len(), 1);
    // The writer, and the hold that keeps what it stores until it has a name.
    assert_eq!((entries(&tmp), entries(folder.at(".xt/leases"))), (2, 2), "control: there is litter");
    folder.xt("store").arg("put").input(bytes.clone()).run().expect(0);
    assert_eq!((entries(&tmp), entries(folder.at(".xt/leases"))), (0, 0));
    folder.xt("store").args(["get", &Digest::of(&bytes).to_string(), "-o", "out"]).run().expect(0);
    assert_eq!(fs::read(folder.at("out")).unwrap(), bytes);
}

fn folder_bytes(path: &Path) -> u64 {
    let size =
        |path: PathBuf| fs::metadata(&path).map_or(0, |m| if m.is_dir() { folder_bytes(&path) } else { m.len() });
    fs::read_dir(path).map_or(0, |entries| entries.flatten().map(|entry| size(entry.path())).sum())
}

#[test]
fn a_living_writer_keeps_its_unfinished_work_while_others_come_and_go() {
    let folder = Folder::new();
    let bytes = Random(6).bytes(4 << 20);
    folder.xt("store").arg("put").input("before").run().expect(0);
    let mut child = folder.xt("store").arg("put").start();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes[..3 << 20]).unwrap();
    while folder_bytes(&folder.at(".xt/tmp")) < 1 << 20 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..5 {
        folder.xt("store").arg("put").input(format!("other {number}")).run().expect(0);
    }
    assert_eq!(entries(folder.at(".xt/tmp")), 2);
    stdin.write_all(&bytes[3 << 20..]).unwrap();
    drop(stdin);
    assert!(child.wait_with_output().unwrap().status.success());
    folder.xt("store").args(["get", &Digest::of(&bytes).to_string(), "-o", "out"]).run().expect(0);
    check(&folder);
}

/// `xt-store put in --name kept`, with strace doing something to the n-th call of a kind.
fn tampered(folder: &Folder, call: &str, action: &str, number: usize) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "trace", "-e", &format!("trace={call}"), "-e"]);
    command.arg(format!("inject={call}:{action}:when={number}"));
    command.arg(programs().join("xt-store")).args(["put", "in", "--name", "kept", "--reason", "new"]);
    command.current_dir(folder.path()).env_clear().env("XT_NOW", NOW).stdin(Stdio::null()).output().unwrap()
}

fn has_strace() -> bool {
    let found =
        Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("not run here: strace is missing or may not trace");
    }
    found
}

/// The calls by which a put changes the disk or waits for it.
const CALLS: [&str; 8] = [
    "write",
    "fsync",
    "rename,renameat,renameat2",
    "mkdir,mkdirat",
    "unlink,unlinkat,rmdir",
    "openat,openat2",
    "flock",
    "fchmod,chmod,fchmodat",
];

#[test]
fn killed_at_any_system_call_a_put_has_happened_whole_or_not_at_all() {
    if !has_strace() {
        return;
    }
    let mut points = 0;
    for call in CALLS {
        for number in 1.. {
            let folder = Folder::new();
            folder.write("in", "old");
            // Every other point starts without a store, so that making one is cut short, too.
            let old = number % 2 == 0;
            if old {
                folder.xt("store").args(["put", "in", "--name", "kept", "--reason", "old"]).run().expect(0);
            }
            folder.write("in", Random(8).bytes(1_500_000));
            let output = tampered(&folder, call, "signal=SIGKILL", number);
            if output.status.code().is_some() && !killed_itself(&output) {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            points += 1;
            folder.xt("store").arg("put").input("the next").run().expect(0);
            let named = check(&folder).get("kept").copied();
            let (before, after) = (old.then(|| Digest::of(b"old")), Some(Digest::of(&Random(8).bytes(1_500_000))));
            assert!(named == before || named == after, "{call} {number}: {named:?}");
            folder.xt("store").args(["put", "in", "--name", "kept"]).run().expect(0);
            assert_eq!(check(&folder).get("kept").copied(), after, "{call} {number}");
        }
    }
    eprintln!("killed at {points} points");
    assert!(points > 50, "{points}");
}

/// strace ends the way its child did, by a signal; some versions turn that into 137.
fn killed_itself(output: &Output) -> bool {
    output.status.code() == Some(137)
}

#[test]
fn an_error_at_any_system_call_is_reported_and_leaves_nothing_half_done() {
    if !has_strace() {
        return;
    }
    let mut points = 0;
    let calls =
        [("write", "ENOSPC"), ("fsync", "EIO"), ("rename,renameat,renameat2", "EDQUOT"), ("mkdir,mkdirat", "ENOSPC")];
    for (call, error) in calls.into_iter().chain([("flock", "ENOLCK"), ("fchmod,chmod,fchmodat", "EPERM")]) {
        for number in 1.. {
            let folder = Folder::new();
            folder.write("in", "old");
            let old = number % 2 == 0;
            if old {
                folder.xt("store").args(["put", "in", "--name", "kept", "--reason", "old"]).run().expect(0);
            }
            folder.write("in", Random(8).bytes(1_500_000));
            let output = tampered(&folder, call, &format!("error={error}"), number);
            let hit = fs::read_to_string(folder.at("trace")).unwrap().contains("(INJECTED)");
            if !hit {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            points += 1;
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let code = output.status.code();
            // The index file may be lost without harm; everything else must be said.
            assert!(
                code == Some(20) || (code == Some(0) && call.starts_with("rename")),
                "{call} {number}: {code:?} {stderr}"
            );
            assert!(code == Some(0) || stderr.contains("os error"), "{call} {number}: {stderr}");
            let litter = entries(folder.at(".xt/tmp")) + entries(folder.at(".xt/leases"));
            assert_eq!(litter, 0, "{call} {number}: {stderr}");
            folder.xt("store").args(["put", "in", "--name", "kept"]).run().expect(0);
            assert_eq!(check(&folder).get("kept"), Some(&Digest::of(&Random(8).bytes(1_500_000))), "{call} {number}");
        }
    }
    eprintln!("failed at {points} points");
    assert!(points > 15, "{points}");
}

#[test]
fn bytes_are_flushed_before_they_get_a_name_and_names_before_they_are_reported() {
    if !has_strace() {
        return;
    }
    let folder = Folder::new();
    folder.write("in", Random(8).bytes(3 << 20));
    folder.xt("store").arg("put").input("x").run().expect(0);
    let mut command = Command::new("strace");
    command.args(["-y", "-qq", "-o", "trace", "-e", "trace=fsync,rename,renameat,renameat2,write"]);
    command.arg(programs().join("xt-store")).args(["put", "in", "--name", "a/kept"]);
    let output = command.current_dir(folder.path()).env_clear().output().unwrap();
    assert!(output.status.success());
    let trace = fs::read_to_string(folder.at("trace")).unwrap();
    let steps: Vec<&str> = trace.lines().filter_map(step).collect();
    let expected = [
        "fsync pack",
        "rename pack",
        "rename index",
        "fsync packs",
        "fsync reference",
        "fsync refs",
        "rename reference",
        "fsync refs/a",
        "report",
    ];
    assert_eq!(steps, expected, "{trace}");
    assert!(trace.lines().filter(|line| line.starts_with("fsync")).count() <= 6, "{trace}");
}

/// What a line of the trace does, in words.
fn step(line: &str) -> Option<&'static str> {
    let is = |call: &str, part: &str| line.starts_with(call) && line.contains(part);
    Some(match line {
        _ if is("fsync", "/pack>") => "fsync pack",
        _ if is("fsync", "/reference>") => "fsync reference",
        _ if is("fsync", "/packs>") => "fsync packs",
        _ if is("fsync", "/refs>") => "fsync refs",
        _ if is("fsync", "/refs/a>") => "fsync refs/a",
        _ if is("rename", ".pack\"") => "rename pack",
        _ if is("rename", ".idx\"") => "rename index",
        _ if is("rename", "\"reference\"") => "rename reference",
        _ if is("write(1<", "digest") => "report",
        _ if line.starts_with("fsync") || line.starts_with("rename") => "something else",
        _ => return None,
    })
}
