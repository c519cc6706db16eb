//! The crash matrix of the store: put, import, freeze, gc, push and pack are killed at every write, flush, rename and removal.
//! Whatever the moment: the store opens, nothing named is missing, nobody has to step in, the same command works the
//! second time, and gc takes away the rest.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use frozen::stored;
use xt_core::canonical::Value;
use xt_core::field::Manifest as _;
use xt_harness::{Folder, NOW, Outcome, programs};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;

/// The calls that are points, one kind after the other.
const CALLS: [&str; 4] = ["write,pwrite64", "fsync,fdatasync", "rename,renameat,renameat2", "unlink,unlinkat,rmdir"];

fn has_strace() -> bool {
    let found =
        Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("not run here: strace is missing or may not trace");
    }
    found
}

/// Something that changes a store: the tool, its arguments, and the store that it changes.
struct Verb {
    tool: &'static str,
    arguments: &'static [&'static str],
    store: &'static str,
}

const VERBS: [Verb; 6] = [
    Verb { tool: "store", arguments: &["put", "-r", "in", "--name", "put/new"], store: ".xt" },
    Verb { tool: "freeze", arguments: &["--store", "imported", "import", "m.tar.zst"], store: "imported" },
    Verb { tool: "freeze", arguments: &["run.json", "-o", "new.tar.zst"], store: ".xt" },
    Verb { tool: "store", arguments: &["gc", "--apply", "--older-than", "0s"], store: ".xt" },
    Verb { tool: "store", arguments: &["push", "far"], store: "far" },
    Verb { tool: "store", arguments: &["pack"], store: "states" },
];

/// Two states of a model as files of safetensors, close to one another.
fn states() -> [Vec<u8>; 2] {
    let header = "{\"w\":{\"data_offsets\":[0,1200000],\"dtype\":\"F32\",\"shape\":[300000]}}";
    let number = |i: u32| f32::from_bits(0x3f80_0000 | (i.wrapping_mul(2_654_435_761) >> 9)) - 1.5;
    [0.0, 1.0].map(|step: f32| {
        let weights = (0..300_000_u32).flat_map(|i| (number(i) + number(i ^ 0x4d) * 1e-4 * step).to_le_bytes());
        let head = (header.len() as u64).to_le_bytes().into_iter().chain(header.bytes());
        head.chain(weights).collect()
    })
}

/// A store with a run, a bundle, names and waste; an archive; another store that has some of it.
fn scene() -> Folder {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.write("run.json", run.encode().canonical());
    folder.xt("freeze").args(["run.json", "-o", "m.tar.zst"]).run().expect(0);
    folder.write("in/a", vec![7; 1_200_000]);
    folder.write("in/b", "small");
    // A pack in which one thing is needed and the others are not.
    folder.write("mixed/kept", "kept");
    folder.write("mixed/waste", (0..40_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    let lines = folder.xt("store").args(["put", "mixed/kept", "mixed/waste"]).run().expect(0).documents();
    let kept = lines[0].get("digest").and_then(Value::as_str).unwrap().to_owned();
    folder.xt("store").args(["refs", "--set", "kept", &kept]).run().expect(0);
    for (number, state) in states().into_iter().enumerate() {
        let path = format!("state/{number}");
        folder.write(&path, state);
        let name = format!("states/{number}");
        folder.xt("store").args(["--store", "states", "put", "--raw", &path, "--name", &name]).run().expect(0);
    }
    for store in ["imported", "far"] {
        folder.xt("store").args(["--store", store, "put", "mixed/kept", "--name", "own"]).run().expect(0);
    }
    folder
}

fn copied(from: &Folder) -> Folder {
    let folder = Folder::new();
    let source = from.path().join(".");
    assert!(Command::new("cp").arg("-a").arg(source).arg(folder.path()).status().unwrap().success());
    folder
}

fn names(folder: &Folder, store: &str) -> BTreeSet<(String, String)> {
    let lines = folder.xt("store").args(["--store", store, "refs"]).run().expect(0).documents();
    let member = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).unwrap().to_owned();
    lines.iter().map(|line| (member(line, "name"), member(line, "digest"))).collect()
}

fn tampered(folder: &Folder, verb: &Verb, call: &str, number: usize) -> Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"]);
    command.arg(format!("inject={call}:signal=SIGKILL:when={number}"));
    command.arg(programs().join(format!("xt-{}", verb.tool))).args(verb.arguments).current_dir(folder.path());
    command.env_clear().env("XT_NOW", NOW).stdin(Stdio::null()).output().unwrap()
}

fn again(folder: &Folder, verb: &Verb) -> Outcome {
    folder.xt(verb.tool).args(verb.arguments).run()
}

/// Everything that must hold in the store that was being changed.
#[track_caller]
fn holds(folder: &Folder, verb: &Verb, before: &BTreeSet<(String, String)>, point: &str) {
    let found = names(folder, verb.store);
    assert!(found.is_superset(before), "{point}: a name is gone: {before:?} {found:?}");
    let verified = folder.xt("store").args(["--store", verb.store, "verify"]).run();
    assert_eq!(verified.code, Some(0), "{point}: {}", verified.stdout);
    for (name, digest) in &found {
        let read = folder.xt("store").args(["--store", verb.store, "get", digest, "-o", "out"]).run();
        assert_eq!(read.code, Some(0), "{point}: {name}: {}", read.stderr);
    }
    if let Some((_, bundle)) = found.iter().find(|(name, _)| name.starts_with("bundles/")) {
        let whole = folder.xt("freeze").args(["--store", verb.store, "verify", bundle]).run();
        assert_eq!(whole.code, Some(0), "{point}: a named bundle is whole: {}", whole.stderr);
    }
}

fn entries(path: impl AsRef<Path>) -> usize {
    fs::read_dir(path).map_or(0, Iterator::count)
}

#[test]
fn killed_at_any_point_no_verb_loses_a_name_or_needs_a_hand_and_gc_takes_the_rest() {
    if !has_strace() {
        return;
    }
    let scene = scene();
    for verb in &VERBS {
        let control = copied(&scene);
        let before = names(&control, verb.store);
        again(&control, verb).expect(0);
        let after = names(&control, verb.store);
        let mut points = 0;
        for call in CALLS {
            for number in 1.. {
                let folder = copied(&scene);
                let output = tampered(&folder, verb, call, number);
                if output.status.code().is_some_and(|code| code != 137) {
                    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                    break;
                }
                points += 1;
                let point = format!("xt-{} {:?}: {call} {number}", verb.tool, verb.arguments);
                holds(&folder, verb, &before, &point);
                again(&folder, verb).expect(0);
                holds(&folder, verb, &after, &point);
                let gc = folder.xt("store").args(["--store", verb.store, "gc", "--apply", "--older-than", "0s"]);
                gc.run().expect(0);
                holds(&folder, verb, &after, &point);
                let litter = entries(folder.at(verb.store).join("tmp")) + entries(folder.at(verb.store).join("leases"));
                assert_eq!(litter, 0, "{point}");
                let left = folder.xt("store").args(["--store", verb.store, "gc", "--older-than", "0s"]).run().expect(0);
                let unnamed = left.document().pointer("/unnamed/objects").cloned();
                assert_eq!(unnamed, Some(Value::from(0_u64)), "{point}: {}", left.stdout);
            }
        }
        eprintln!("xt-{} {}: {points} points", verb.tool, verb.arguments[0]);
        assert!(points >= 6, "{points}");
    }
}
