//! The crash matrix of the store: put, import, freeze, gc, push and pack are stopped or killed at every write, flush, rename
//! and removal, lose what they did not flush, or find the disk full from some moment on. Whatever the moment: the store
//! opens, nothing named is missing, nobody has to step in, the same command works the second time, and gc takes away the rest.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use frozen::stored;
use tamper::{Ended, Program, has_strace};
use unsynced::Cut;
use xt_core::canonical::Value;
use xt_core::field::Manifest as _;
use xt_harness::{Folder, Outcome, programs};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;
#[path = "support/tamper.rs"]
mod tamper;
#[path = "support/unsynced.rs"]
mod unsynced;

/// The calls that are points, one kind after the other.
const CALLS: [&str; 4] = ["write,pwrite64", "fsync,fdatasync", "rename,renameat,renameat2", "unlink,unlinkat,rmdir"];
/// The calls that a full disk refuses, and then goes on refusing.
const GROWING: [&str; 4] = ["write,pwrite64", "fsync,fdatasync", "rename,renameat,renameat2", "mkdir,mkdirat"];

/// Names, each with its digest.
type Names = BTreeSet<(String, String)>;

/// Something that changes a store: the tool, its arguments, and the store that it changes.
#[derive(Debug)]
struct Verb {
    tool: &'static str,
    arguments: &'static [&'static str],
    store: &'static str,
}

const VERBS: [Verb; 6] = [
    Verb { tool: "store", arguments: &["put", "-r", "in", "--name", "put/new"], store: ".xt" },
    Verb { tool: "freeze", arguments: &["--store", "imported", "import", "m.tar.zst"], store: "imported" },
    Verb { tool: "freeze", arguments: &["--store", "fresh", "run.json", "-o", "new.tar.zst"], store: "fresh" },
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
    // One store in which the run is not frozen yet.
    assert!(Command::new("cp").arg("-a").arg(folder.at(".xt")).arg(folder.at("fresh")).status().unwrap().success());
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
    for store in ["imported", "far", "fresh"] {
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

fn names(folder: &Folder, store: &str) -> Names {
    let lines = folder.xt("store").args(["--store", store, "refs"]).run().expect(0).documents();
    let member = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).unwrap().to_owned();
    lines.iter().map(|line| (member(line, "name"), member(line, "digest"))).collect()
}

fn again(folder: &Folder, verb: &Verb) -> Outcome {
    folder.xt(verb.tool).args(verb.arguments).run()
}

/// Everything that must hold in the store that was being changed.
#[track_caller]
fn holds(folder: &Folder, verb: &Verb, before: &Names, point: &str) {
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

impl Verb {
    fn program<'a>(&'a self, folder: &'a Folder) -> Program<'a> {
        Program { tool: self.tool, arguments: self.arguments, folder: folder.path() }
    }
}

/// The scene, and for each verb the names before and after it, had nothing come between.
struct Matrix {
    scene: Folder,
    verbs: Vec<(&'static Verb, [Names; 2])>,
}

impl Matrix {
    fn new() -> Self {
        let scene = scene();
        let told = |verb: &'static Verb| {
            let control = copied(&scene);
            let before = names(&control, verb.store);
            again(&control, verb).expect(0);
            (verb, [before, names(&control, verb.store)])
        };
        let verbs = VERBS.iter().map(told).collect();
        Self { scene, verbs }
    }

    /// Lets `harm` do something to each verb at its first, second and every further point of each kind, until there are no
    /// more. `harm` is given the folder and says whether it did something; the store must then hold what was named before.
    fn at_every_point(&self, kinds: &[&str], least: usize, harm: impl Fn(&Verb, &Folder, &str, usize) -> Harm) {
        for (verb, [before, after]) in &self.verbs {
            let mut points = 0;
            for kind in kinds {
                for number in 1.. {
                    let folder = copied(&self.scene);
                    let point = format!("xt-{} {:?}: {kind} {number}", verb.tool, verb.arguments);
                    let due = match harm(verb, &folder, kind, number) {
                        Harm::None => break,
                        Harm::Done => before,
                        Harm::Finished => after,
                    };
                    points += 1;
                    holds(&folder, verb, due, &point);
                    again(&folder, verb).expect(0);
                    holds(&folder, verb, after, &point);
                    swept(&folder, verb, after, &point);
                }
            }
            eprintln!("xt-{} {}: {points} points", verb.tool, verb.arguments[0]);
            assert!(points >= least, "{points}");
        }
    }
}

/// What was done to a verb.
enum Harm {
    /// Nothing: there is no such point.
    None,
    /// It came to no end, or to a bad one.
    Done,
    /// It ended well all the same, so what it reported must be there.
    Finished,
}

/// The next gc takes away everything that has no name, and leaves what has one.
#[track_caller]
fn swept(folder: &Folder, verb: &Verb, names: &Names, point: &str) {
    let gc = |more: &[&str]| {
        folder.xt("store").args(["--store", verb.store, "gc", "--older-than", "0s"]).args(more).run().expect(0)
    };
    gc(&["--apply"]);
    holds(folder, verb, names, point);
    let litter = entries(folder.at(verb.store).join("tmp")) + entries(folder.at(verb.store).join("leases"));
    assert_eq!(litter, 0, "{point}");
    let left = gc(&[]);
    let unnamed = left.document().pointer("/unnamed/objects").cloned();
    assert_eq!(unnamed, Some(Value::from(0_u64)), "{point}: {}", left.stdout);
}

/// It ends by itself, and well.
#[track_caller]
fn finished(child: &mut Child) {
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it is held up");
    };
    assert!(status.success(), "{status}");
}

#[track_caller]
fn well(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn killed_at_any_point_no_verb_loses_a_name_or_needs_a_hand_and_gc_takes_the_rest() {
    if !has_strace() {
        return;
    }
    Matrix::new().at_every_point(&CALLS, 6, |verb, folder, kind, number| {
        let ended = verb.program(folder).run(&format!("{kind}:signal=SIGKILL:when={number}"), || false);
        if ended.code.is_none() {
            return Harm::Done;
        }
        well(&ended);
        Harm::None
    });
}

#[test]
fn stopped_at_any_point_a_verb_holds_up_nobody_and_then_goes_on_or_dies_as_if_nothing_had_been() {
    if !has_strace() {
        return;
    }
    Matrix::new().at_every_point(&CALLS, 6, |verb, folder, kind, number| {
        let neighbours = RefCell::new(Vec::new());
        // Others write and sweep beside it. Those who must wait for a gc that is stopped wait until it goes on, or is dead.
        let meanwhile = || {
            for arguments in [&["put", "mixed/waste"][..], &["gc", "--apply", "--older-than", "0s"]] {
                let beside = folder.xt("store").args(["--store", verb.store]).args(arguments).start();
                neighbours.borrow_mut().push(beside);
            }
            if verb.arguments[0] == "gc" {
                std::thread::sleep(Duration::from_millis(200));
            } else {
                neighbours.borrow_mut().iter_mut().for_each(finished);
            }
            number % 2 == 0
        };
        let ended = verb.program(folder).run(&format!("{kind}:signal=SIGSTOP:when={number}"), meanwhile);
        neighbours.borrow_mut().iter_mut().for_each(finished);
        match ended.code {
            None => Harm::Done,
            _ if !ended.was_hit() => Harm::None,
            _ => {
                well(&ended);
                Harm::Finished
            }
        }
    });
}

#[test]
fn a_power_cut_at_any_point_takes_no_name_and_nothing_that_was_reported() {
    if !has_strace() {
        return;
    }
    let matrix = Matrix::new();
    matrix.at_every_point(&CALLS, 6, |verb, folder, kind, number| {
        let ended = verb.program(folder).run(&format!("{kind}:signal=SIGKILL:when={number}"), || false);
        let cut = Cut { removals: number % 2 == 0, halves: u64::from(number % 3 == 0) };
        unsynced::lose(&ended.trace, folder.path(), matrix.scene.path(), cut);
        match ended.code {
            None => Harm::Done,
            // The last of each kind was not hit: the power went when all was done, and that must be there.
            _ if number > 1 => {
                well(&ended);
                let (_, [_, after]) = matrix.verbs.iter().find(|(one, _)| one.arguments == verb.arguments).unwrap();
                holds(folder, verb, after, "the power goes when all is done");
                Harm::None
            }
            _ => Harm::None,
        }
    });
}

#[test]
fn the_model_of_a_power_cut_finds_a_put_whose_flushes_do_nothing() {
    if !has_strace() {
        return;
    }
    let (scene, verb) = (scene(), &VERBS[0]);
    let mut found = Vec::new();
    // The control: with its flushes, nothing is lost.
    for injection in ["fsync,fdatasync:retval=0", "rmdir:retval=0:when=1000"] {
        let folder = copied(&scene);
        let ended = verb.program(&folder).run(injection, || false);
        well(&ended);
        let named = |folder: &Folder| names(folder, verb.store).iter().any(|(name, _)| name == "put/new");
        assert!(named(&folder));
        let cut = Cut { removals: true, halves: 0 };
        let lost = unsynced::lose(&ended.trace, folder.path(), scene.path(), cut);
        found.push((lost > 0, named(&folder)));
    }
    assert_eq!(found, [(true, false), (true, true)]);
}

#[test]
fn a_disk_that_is_full_from_any_moment_on_is_reported_and_costs_no_name() {
    if !has_strace() {
        return;
    }
    Matrix::new().at_every_point(&GROWING, 6, |verb, folder, kind, number| {
        let ended = verb.program(folder).run(&format!("{kind}:error=ENOSPC:when={number}+"), || false);
        if !ended.was_hit() {
            well(&ended);
            return Harm::None;
        }
        // The index file may be lost without harm, and so may the list of files that were seen.
        assert!(matches!(ended.code, Some(0 | 20)), "{number}: {:?} {}", ended.code, ended.stderr);
        if ended.code == Some(0) { Harm::Finished } else { Harm::Done }
    });
}

/// `$1` kilobytes are left on a disk of its own, `$2` is the store, what follows the verb. Its code comes first, then the names
/// that are there, whole; then the same once there is room.
const SMALL: &str = r#"
room=$1 store=$2; shift 2
mkdir disk; mount -t tmpfs -o size=64m none disk; cp -a scene/. disk; cd disk
mount -o remount,size=$(($(du -sk . | cut -f1) + room))k .
code=0; "$@" > ../out 2> ../err || code=$?
echo $code
[ $code = 0 ] || grep -q "No space left" ../err || { cat ../err; exit 1; }
for size in 0 64m; do
  if [ $size != 0 ]; then mount -o remount,size=$size .; "$@" > ../out 2> ../err || { cat ../err; exit 1; }; fi
  xt-store --store $store verify > ../verified || { cat ../verified; exit 1; }
  xt-store --store $store refs > ../refs; wc -l < ../refs
done
xt-store --store $store gc --apply --older-than 0s > ../gc
xt-store --store $store verify > ../verified
ls $store/tmp $store/leases | grep -v : | grep . && exit 1
true
"#;

#[test]
fn a_disk_that_is_truly_full_is_reported_and_all_is_well_once_there_is_room() {
    let matrix = Matrix::new();
    let mut codes = BTreeSet::new();
    for (verb, [before, after]) in &matrix.verbs {
        for room in ["0", "64", "1024"] {
            let folder = Folder::new();
            std::os::unix::fs::symlink(matrix.scene.path(), folder.at("scene")).unwrap();
            folder.write("small", SMALL);
            let script =
                format!("exec unshare --user --map-root-user --mount sh -eu small {room} {} \"$@\"", verb.store);
            let tool = programs().join(format!("xt-{}", verb.tool));
            let outcome = folder.sh(&script).arg("sh").arg(tool).args(verb.arguments).run();
            let point =
                format!("xt-{} {:?}, {room} KiB: {}{}", verb.tool, verb.arguments, outcome.stdout, outcome.stderr);
            assert_eq!(outcome.code, Some(0), "{point}");
            let lines: Vec<&str> = outcome.stdout.lines().collect();
            codes.insert((verb.arguments[0], lines[0].to_owned()));
            assert!(["0", "20"].contains(&lines[0]), "{point}");
            let due = if lines[0] == "0" { after } else { before };
            assert!(lines[1].parse::<usize>().unwrap() >= due.len(), "{point}");
            assert_eq!(lines[2].parse::<usize>().unwrap(), after.len(), "{point}");
        }
    }
    eprintln!("{codes:?}");
    let full = codes.iter().filter(|(_, code)| code == "20").count();
    assert!(full >= 4, "the control: the disk was full for most of them: {codes:?}");
}
