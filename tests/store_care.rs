//! Care of a store: pins, collection beside writers and readers, space by run, quarantine, repair, copies.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frozen::stored;
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_harness::{Folder, Outcome};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn number(outcome: &Outcome, pointer: &str) -> u64 {
    let document = outcome.documents().pop().unwrap();
    count(&document, pointer).unwrap_or_else(|| panic!("{pointer}: {}", outcome.stdout))
}

fn count(value: &Value, pointer: &str) -> Option<u64> {
    match value.pointer(pointer)? {
        Value::Integer(number) => number.to_u64(),
        _ => None,
    }
}

fn put(folder: &Folder, bytes: &[u8]) -> Digest {
    folder.xt("store").arg("put").input(bytes).run().expect(0);
    Digest::of(bytes)
}

#[test]
fn gc_says_what_would_go_and_only_apply_removes_it() {
    let folder = Folder::new();
    let (kept, waste) = (put(&folder, b"kept"), put(&folder, b"waste"));
    folder.xt("store").args(["pin", &kept.to_string(), "--reason", "dear"]).run().expect(0);
    let pins = folder.xt("store").arg("pin").run().expect(0);
    assert_eq!((pins.text("/digest"), pins.text("/reason")), (kept.to_string(), "dear".to_string()));
    let look = folder.xt("store").args(["gc", "--older-than", "0s", "--list"]).run().expect(0);
    assert_eq!(look.documents()[0].get("digest").and_then(Value::as_str), Some(&*waste.to_string()));
    assert_eq!((number(&look, "/named/objects"), number(&look, "/unnamed/objects")), (1, 1));
    assert!(look.stderr.contains("nothing was changed"), "{}", look.stderr);
    folder.xt("store").args(["get", &waste.to_string()]).run().expect(0);
    let young = folder.xt("store").args(["gc", "--apply"]).run().expect(0);
    assert_eq!(number(&young, "/spared/objects"), 1, "by default a day old things stay");
    let done = folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
    assert_eq!(number(&done, "/packs_removed"), 1);
    folder.xt("store").args(["get", &waste.to_string()]).run().expect(11);
    folder.xt("store").args(["get", &kept.to_string()]).run().expect(0);
    folder.xt("store").args(["unpin", &kept.to_string()]).run().expect(0);
    folder.xt("store").args(["unpin", &kept.to_string()]).run().expect(11);
    let told = folder.xt("store").args(["refs", "--remove", "nope"]).run().expect(11);
    assert!(told.stderr.contains("store.no-such-name") && told.stderr.contains("nope"), "{}", told.stderr);
    let done = folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
    assert_eq!(number(&done, "/packs_removed"), 1);
    let wrong = folder.xt("store").args(["gc", "--older-than", "soon"]).run().expect(2);
    assert!(wrong.stderr.contains("12h"), "{}", wrong.stderr);
}

#[test]
fn a_frozen_run_outlives_a_collection_whole_and_is_replaceable_by_its_archive() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.write("run.json", run.encode().canonical());
    folder.xt("freeze").args(["run.json", "-o", "m.tar.zst"]).run().expect(0);
    put(&folder, b"waste");
    let before = fs::read(folder.at("m.tar.zst")).unwrap();
    folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
    folder.xt("freeze").args(["run.json", "-o", "again.tar.zst"]).run().expect(0);
    assert_eq!(fs::read(folder.at("again.tar.zst")).unwrap(), before, "the history of the store decides nothing");
    folder.xt("store").arg("verify").run().expect(0);
}

#[test]
fn verify_says_which_names_damage_breaks_and_a_store_or_a_bundle_mends_it() {
    for from in ["other", "m.tar.zst"] {
        let folder = Folder::new();
        let run = stored(&folder, |_| ());
        folder.write("run.json", run.encode().canonical());
        let bundle = folder.xt("freeze").args(["run.json", "-o", "m.tar.zst"]).run().expect(0).text("/id");
        let bundle: Digest = bundle.parse().unwrap();
        put(&folder, b"beside");
        folder.xt("store").args(["push", "other"]).run().expect(0);
        let weights = run.artifacts.iter().find(|file| file.path.as_str() == "model/model.safetensors").unwrap();
        spoil(&folder, weights.digest);
        let report = folder.xt("store").arg("verify").run().expect(1);
        let report = report.document();
        let Some(Value::List(damaged)) = report.get("damaged") else { panic!("{report:?}") };
        let text = weights.digest.to_string();
        let hit = damaged.iter().find(|found| found.get("object").and_then(Value::as_str) == Some(&text)).unwrap();
        let Some(Value::List(breaks)) = hit.get("breaks") else { panic!("{hit:?}") };
        let name = format!("refs/bundles/{}", bundle.hex());
        assert!(breaks.iter().any(|found| found.as_str() == Some(&name)), "{breaks:?}");
        let mended = folder.xt("store").args(["verify", "--repair-from", from]).run().expect(0);
        let Some(Value::List(repaired)) = mended.document().get("repaired").cloned() else { panic!() };
        assert!(repaired.iter().any(|found| found.as_str() == Some(&text)), "{repaired:?}");
        folder.xt("store").arg("verify").run().expect(0);
        let kept = folder.xt("store").args(["quarantine", "ls"]).run().expect(0).documents();
        assert_eq!(kept[0].get("kind").and_then(Value::as_str), Some("pack"), "the damaged pack is not thrown away");
        folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
        let name = kept[0].get("name").and_then(Value::as_str).unwrap();
        assert!(folder.at(".xt/quarantine").join(name).exists(), "no collection touches quarantine");
        folder.xt("store").args(["quarantine", "rm", name, "no-such-thing"]).run().expect(11);
        assert!(folder.at(".xt/quarantine").join(name).exists(), "all or nothing");
        folder.xt("store").args(["quarantine", "rm", "../packs"]).run().expect(11);
        folder.xt("store").args(["quarantine", "rm", name]).run().expect(0);
        assert_eq!(folder.xt("store").args(["quarantine", "ls"]).run().expect(0).stdout, "");
    }
}

/// Flips a bit in the stored bytes of an object, wherever they lie.
fn spoil(folder: &Folder, digest: Digest) {
    for pack in packs(folder) {
        let mut bytes = fs::read(&pack).unwrap();
        let heads: Vec<usize> =
            (0..bytes.len().saturating_sub(32)).filter(|at| bytes[*at..*at + 32] == *digest.bytes()).collect();
        // The digest stands at byte 24 of the head, which is 72 bytes long.
        for at in heads {
            bytes[at - 24 + 72] ^= 1;
        }
        fs::write(&pack, bytes).unwrap();
    }
}

fn packs(folder: &Folder) -> Vec<PathBuf> {
    let all = fs::read_dir(folder.at(".xt/packs")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|suffix| suffix == "pack")).collect()
}

/// Four small files that share a block, of which one bit is wrong; several times, since which copy is tried first is up to
/// their digests.
#[test]
fn small_files_that_share_a_damaged_block_are_healed_one_by_one_or_together() {
    for trial in 0..6 {
        let folder = Folder::new();
        let files: Vec<Vec<u8>> = (0..4).map(|number| noise(900, trial * 10 + number)).collect();
        for (number, bytes) in files.iter().enumerate() {
            folder.write(format!("d/{number}"), bytes);
        }
        folder.xt("store").args(["put", "-r", "d", "--name", "d"]).run().expect(0);
        folder.sh("cp -r .xt clean && cp -r .xt one").run().expect(0);
        let digests: Vec<String> = files.iter().map(|bytes| Digest::of(bytes).to_string()).collect();
        let states = |store: &str| -> Vec<Option<i32>> {
            let get = |digest| folder.xt("store").args(["--store", store, "get", digest, "-o", "out"]).run().code;
            digests.iter().map(|digest| get(digest.as_str())).collect()
        };
        for store in [".xt", "one"] {
            for entry in fs::read_dir(folder.at(format!("{store}/packs"))).unwrap() {
                let path = entry.unwrap().path();
                let mut bytes = fs::read(&path).unwrap();
                if let Some(at) = bytes.windows(900).position(|found| found == files[0]) {
                    bytes[at + 3] ^= 1;
                    fs::write(path, bytes).unwrap();
                }
            }
            assert_eq!(states(store), [Some(11); 4], "{trial}: the control");
        }
        let repair = folder.xt("store").args(["verify", "--repair-from", "clean"]).run();
        assert!(digests.iter().all(|digest| repair.stdout.contains(digest)), "{}", repair.stdout);
        assert_eq!(states(".xt"), [Some(0); 4], "{trial}");
        // One alone is whole again, and the others are not.
        for number in 0..4 {
            folder.xt("store").args(["--store", "one", "put", &format!("d/{number}")]).run().expect(0);
            let whole = number + 1;
            let expected: Vec<Option<i32>> = (0..4).map(|other| Some(if other < whole { 0 } else { 11 })).collect();
            assert_eq!(states("one"), expected, "{trial}");
        }
    }
}

#[test]
fn space_is_told_by_name_with_what_each_has_alone() {
    let folder = Folder::new();
    let (shared, own) = (put(&folder, &noise(300_000, 1)), put(&folder, &noise(200_000, 2)));
    let first = put(&folder, format!("{{\"a\":\"{shared}\",\"b\":\"{own}\"}}").as_bytes());
    let second = put(&folder, format!("{{\"a\":\"{shared}\"}}").as_bytes());
    put(&folder, &noise(50_000, 3));
    for (name, digest) in [("runs/a-1", first), ("snapshots/a-1/000000000005", own), ("other", second)] {
        folder.xt("store").args(["refs", "--set", name, &digest.to_string()]).run().expect(0);
    }
    let told = folder.xt("store").arg("du").run().expect(0).documents();
    let named: BTreeMap<&str, &Value> =
        told.iter().filter_map(|line| Some((line.get("name")?.as_str()?, line))).collect();
    let member = |name: &str, key: &str| count(named[name], &format!("/{key}")).unwrap();
    assert_eq!(named.len(), 2, "the states of a run are counted with it: {told:?}");
    assert_eq!(member("runs/a-1", "objects"), 3);
    assert!(member("runs/a-1", "alone") > 200_000 && member("runs/a-1", "alone") < 201_000, "{told:?}");
    assert!(member("other", "bytes") > 300_000 && member("other", "alone") < 1000, "{told:?}");
    assert_eq!(count(told.last().unwrap(), "/unnamed/bytes"), Some(50_000));
}

#[test]
fn names_are_pushed_and_pulled_whole_or_by_folder_and_never_over_others() {
    let folder = Folder::new();
    let data = put(&folder, &noise(3 << 20, 1));
    let top = put(&folder, format!("{{\"data\":\"{data}\"}}").as_bytes());
    folder.xt("store").args(["refs", "--set", "runs/one", &top.to_string()]).run().expect(0);
    folder.xt("store").args(["refs", "--set", "else", &put(&folder, b"else").to_string()]).run().expect(0);
    let pushed = folder.xt("store").args(["push", "far", "runs"]).run().expect(0);
    assert_eq!((number(&pushed, "/names"), number(&pushed, "/copied/objects")), (1, 2));
    let there = |arguments: &[&str]| folder.xt("store").args(["--store", "far"]).args(arguments).run();
    assert_eq!(there(&["refs"]).expect(0).text("/name"), "runs/one");
    there(&["verify"]).expect(0);
    let pulled = folder.xt("store").args(["--store", "third", "pull", "far"]).run().expect(0);
    assert_eq!(number(&pulled, "/copied/objects"), 2);
    let out = folder.xt("store").args(["--store", "third", "get", &data.to_string(), "-o", "out"]).run();
    out.expect(0);
    assert_eq!(Digest::of(&fs::read(folder.at("out")).unwrap()), data);
    folder.xt("store").args(["refs", "--set", "runs/one", &data.to_string()]).run().expect(0);
    let refused = folder.xt("store").args(["push", "far"]).run().expect(12);
    assert!(refused.stderr.contains("runs/one"), "{}", refused.stderr);
    assert_eq!(there(&["refs"]).expect(0).documents().len(), 1, "nothing was named, `else` neither");
    for wrong in [["push", "new", "runs", "nothing"].as_slice(), &["--store", "new", "pull", "far", "nothing"]] {
        folder.xt("store").args(wrong).run().expect(11);
        assert!(!folder.at("new").exists(), "a wrong name is refused before a store is made for it");
    }
}

/// So many of each work at once.
const WRITERS: u64 = 8;
const COLLECTORS: u64 = 3;
const READERS: u64 = 8;

#[test]
fn eight_writers_three_collectors_and_eight_readers_lose_nothing() {
    // A minute of it is run by hand: XT_CROWD_SECONDS=60.
    let seconds = std::env::var("XT_CROWD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let folder = Folder::new();
    let crowd = Crowd { folder: &folder, end: Instant::now() + Duration::from_secs(seconds), done: Default::default() };
    for number in 0..24_u64 {
        // Few different contents, so that what one gives up another is just storing; some of several blocks.
        let length = if number % 6 == 0 { 1_500_000 } else { 3000 * (usize::try_from(number).unwrap() + 1) };
        folder.write(format!("in/{number}"), noise(length, number));
    }
    folder.xt("store").args(["put", "in/0", "--name", "0/0"]).run().expect(0);
    std::thread::scope(|scope| {
        let crowd = &crowd;
        for number in 0..WRITERS {
            scope.spawn(move || crowd.write(number));
        }
        for _ in 0..COLLECTORS {
            scope.spawn(|| crowd.collect());
        }
        for number in 0..READERS {
            scope.spawn(move || crowd.read(number));
        }
    });
    let [written, collected, removed, read] = crowd.done.map(AtomicU64::into_inner);
    eprintln!("{seconds} s: {written} written, {read} read, {collected} collections removed {removed} packs");
    assert!(written > 8 && read > 8 && collected > 3 && removed > 0, "all of them got to work");
    let names = folder.xt("store").arg("refs").run().expect(0).documents();
    for name in &names {
        let digest = name.get("digest").and_then(Value::as_str).unwrap();
        let found = get(&folder, digest);
        // What is put with -r is a listing as sha256sum prints it.
        if let Some(member) = found.strip_suffix(b"  file\n") {
            get(&folder, &format!("sha256:{}", str::from_utf8(member).unwrap()));
        }
    }
    folder.xt("store").arg("verify").run().expect(0);
    folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
    let left = folder.xt("store").args(["gc", "--older-than", "0s"]).run().expect(0);
    assert_eq!(number(&left, "/unnamed/objects"), 0, "{}", left.stdout);
    folder.xt("store").arg("verify").run().expect(0);
}

/// The bytes of an object, which must be there.
#[track_caller]
fn get(folder: &Folder, digest: &str) -> Vec<u8> {
    folder.xt("store").args(["get", digest, "-o", "out"]).run().expect(0);
    let bytes = fs::read(folder.at("out")).unwrap();
    assert_eq!(Digest::of(&bytes).to_string(), digest);
    bytes
}

struct Crowd<'a> {
    folder: &'a Folder,
    end: Instant,
    /// Written, collections, packs removed, read.
    done: [AtomicU64; 4],
}

impl Crowd<'_> {
    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Stores a file and a document that names it, gives the document a name, and gives up older names.
    fn write(&self, writer: u64) {
        for round in 0_u64.. {
            if !self.goes_on() {
                return;
            }
            let file = (writer * 7 + round * 5) % 24;
            let name = format!("{writer}/{}", round % 3);
            if round % 2 == 0 {
                let path = format!("in/{file}");
                self.folder.xt("store").args(["put", &path, "--name", &name]).run().expect(0);
            } else {
                // Two commits before the name: a tree, whose listing leads to the files.
                let path = format!("tree-{writer}");
                self.folder.write(format!("{path}/file"), fs::read(self.folder.at(format!("in/{file}"))).unwrap());
                self.folder.xt("store").args(["put", "-r", &path, "--name", &name]).run().expect(0);
            }
            if round % 4 == 3 {
                self.folder.xt("store").args(["refs", "--remove", &name]).run().expect(0);
            }
            self.done[0].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn collect(&self) {
        while self.goes_on() {
            let report = self.folder.xt("store").args(["gc", "--apply", "--older-than", "0s"]).run().expect(0);
            self.done[1].fetch_add(1, Ordering::Relaxed);
            self.done[2].fetch_add(number(&report, "/packs_removed"), Ordering::Relaxed);
            assert_eq!(report.document().get("stuck"), Some(&Value::List(Vec::new())));
        }
    }

    /// Reads what a name leads to; it may fail only when the name has gone or moved meanwhile.
    fn read(&self, reader: u64) {
        for round in reader.. {
            if !self.goes_on() {
                return;
            }
            let name = format!("{}/{}", round % WRITERS, round % 3);
            let Some(digest) = self.named(&name) else { continue };
            let out = format!("out-{reader}");
            let found = self.folder.xt("store").args(["get", &digest, "-o", &out]).run();
            if found.code == Some(0) {
                let bytes = fs::read(self.folder.at(&out)).unwrap();
                assert_eq!(Digest::of(&bytes).to_string(), digest, "never a wrong byte");
                self.done[3].fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(found.code, Some(11), "{}", found.stderr);
                assert_ne!(self.named(&name), Some(digest), "{name} still leads there: {}", found.stderr);
            }
        }
    }

    fn named(&self, name: &str) -> Option<String> {
        let names = self.folder.xt("store").arg("refs").run().expect(0).documents();
        let found = names.iter().find(|line| line.get("name").and_then(Value::as_str) == Some(name))?;
        Some(found.get("digest").and_then(Value::as_str)?.to_owned())
    }
}

#[test]
fn what_cannot_repair_is_said_at_once_although_nothing_is_damaged() {
    let folder = Folder::new();
    put(&folder, b"sound");
    folder.write("text", "no archive at all");
    for (other, says) in [("nonsense", "nonsense"), ("text", "neither a store nor an archive")] {
        let refused = folder.xt("store").args(["verify", "--repair-from", other]).run().expect(20);
        assert!(refused.stderr.contains(says) && refused.stdout.is_empty(), "{}", refused.stderr);
    }
    folder.xt("store").args(["--store", "other", "put"]).input("x").run().expect(0);
    let sound = folder.xt("store").args(["verify", "--repair-from", "other"]).run().expect(0);
    assert!(sound.stderr.contains("nothing is damaged"), "{}", sound.stderr);
}

#[test]
fn two_stores_pushed_and_pulled_beside_collections_that_are_killed_lose_nothing() {
    let folder = Folder::new();
    let end = Instant::now() + Duration::from_secs(5);
    let stores = [("west", "077"), ("east", "002")];
    for (store, umask) in stores {
        folder
            .sh(&format!("umask {umask}; echo first | xt-store --store {store} put --name {store}/first"))
            .run()
            .expect(0);
    }
    // Names that a put, and then a push or pull, has reported; each leads to a document that leads to data.
    let done: std::sync::Mutex<Vec<(String, Digest, Digest)>> = std::sync::Mutex::default();
    let (killed, collected) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (index, (store, umask)) in stores.into_iter().enumerate() {
            let (folder, done, killed, collected) = (&folder, &done, &killed, &collected);
            let other = stores[1 - index].0;
            scope.spawn(move || {
                for round in 0_u64.. {
                    if Instant::now() > end {
                        return;
                    }
                    let data = noise(if round % 3 == 0 { 1_300_000 } else { 5000 }, round * 2 + index as u64);
                    let data_digest = Digest::of(&data);
                    folder.write(format!("{store}.data"), data);
                    let text = format!("{{\"data\":\"{data_digest}\",\"round\":{round}}}");
                    folder.write(format!("{store}.text"), &text);
                    let name = format!("{store}/{round}");
                    let script = format!(
                        "umask {umask}; export XT_STORE={store}; xt-store put {store}.data --name {store}-data/{round}; \
                         xt-store put {store}.text --name {name}; xt-store refs --remove {store}-data/{round}; \
                         printf waste{round} | xt-store put; xt-store push {other} {name}; xt-store pull {other} {other}"
                    );
                    folder.sh(&script).run().expect(0);
                    done.lock().unwrap().push((name, Digest::of(text.as_bytes()), data_digest));
                }
            });
            scope.spawn(move || {
                for round in 0_u64.. {
                    if Instant::now() > end {
                        return;
                    }
                    let arguments = ["--store", store, "gc", "--apply", "--older-than", "0s"];
                    let mut child = folder.xt("store").args(arguments).start();
                    if round % 3 != 2 {
                        std::thread::sleep(Duration::from_millis(round * 7 % 40));
                        child.kill().unwrap();
                    }
                    let ended = child.wait_with_output().unwrap().status;
                    assert!(ended.code().is_none_or(|code| code == 0 || code == 75), "{ended}");
                    if ended.code().is_some() { collected } else { killed }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let (killed, collected) = (killed.into_inner(), collected.into_inner());
    eprintln!("{} pushed and pulled, {collected} collections, {killed} more were killed", done.len());
    assert!(done.len() > 2 && killed > 0 && collected > 0, "all of them got to work");
    for (store, _) in stores {
        let names = folder.xt("store").args(["--store", store, "refs"]).run().expect(0).stdout;
        for (name, text, data) in &done {
            assert!(names.contains(&format!("\"name\":\"{name}\"")), "{name} is gone from {store}");
            for digest in [text, data] {
                folder.xt("store").args(["--store", store, "get", &digest.to_string(), "-o", "out"]).run().expect(0);
                assert_eq!(Digest::of(&fs::read(folder.at("out")).unwrap()), *digest);
            }
        }
        folder.xt("store").args(["--store", store, "verify"]).run().expect(0);
        folder.xt("store").args(["--store", store, "gc", "--apply", "--older-than", "0s"]).run().expect(0);
        let left = folder.xt("store").args(["--store", store, "gc", "--older-than", "0s"]).run().expect(0);
        assert_eq!(number(&left, "/unnamed/objects"), 0, "{}", left.stdout);
    }
}
