//! Stores that earlier versions wrote are opened, verified, read, added to and swept by this one.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

fn place() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/stores")
}

/// A state of a model that is small once it is compressed: few different values, in which a later state differs a little.
fn state(step: u16) -> Vec<u8> {
    let header = br#"{"w":{"data_offsets":[0,1200000],"dtype":"F32","shape":[300000]}}"#;
    let value = |i: u32| {
        f32::from_bits(0x3f80_0000 | ((i % 251) << 12))
            + if i.is_multiple_of(97) { f32::from(step) * 1e-3 } else { 0.0 }
    };
    let head = (header.len() as u64).to_le_bytes().into_iter().chain(header.iter().copied());
    head.chain((0..300_000_u32).flat_map(|i| value(i).to_le_bytes())).collect()
}

fn names(folder: &Folder) -> BTreeSet<(String, String)> {
    let lines = folder.xt("store").args(["--store", "store", "refs"]).run().expect(0).documents();
    let member = |line: &Value, key: &str| line.get(key).and_then(Value::as_str).unwrap().to_owned();
    lines.iter().map(|line| (member(line, "name"), member(line, "digest"))).collect()
}

/// Makes a store of today with something of everything, and packs it.
fn make(archive: &Path) {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.write("run.json", run.encode().canonical());
    folder.xt("freeze").arg("run.json").run().expect(0);
    fs::rename(folder.at(".xt"), folder.at("store")).unwrap();
    let store = |arguments: &[&str]| folder.xt("store").args(["--store", "store"]).args(arguments).run().expect(0);
    for number in 0..40 {
        folder.write(
            format!("small/{}/{number}.txt", number % 3),
            format!("a line that all have, and {number}\n").repeat(4),
        );
    }
    store(&["put", "-r", "small", "--name", "small"]);
    folder.write("long.txt", "the quick brown fox jumps over the lazy dog\n".repeat(40_000));
    let long = store(&["put", "long.txt", "--name", "long"]).text("/digest");
    store(&["refs", "--set", "again", &long]);
    for step in 0..2 {
        folder.write(format!("state/{step}"), state(step));
        store(&["put", "--raw", &format!("state/{step}"), "--name", &format!("states/{step}")]);
    }
    folder.write("raw", b"stored as it is".repeat(20));
    store(&["put", "--raw", "raw", "--name", "raw"]);
    store(&["pack"]);
    let pinned =
        folder.xt("store").args(["--store", "store", "put"]).input("kept by a pin").run().expect(0).text("/digest");
    store(&["pin", &pinned]);
    folder.xt("store").args(["--store", "store", "put"]).input("waste").run().expect(0);
    let objective = r#"{"primary":{"name":"loss","direction":"minimize"},"target":1.0,"constraints":[]}"#;
    folder.write("objective.json", objective);
    folder
        .xt("log")
        .args(["--store", "store", "experiment", "new", "objective.json", "--name", "width"])
        .run()
        .expect(0);
    let lines =
        names(&folder).into_iter().map(|(name, digest)| format!("{{\"digest\":\"{digest}\",\"name\":\"{name}\"}}\n"));
    folder.write("names.jsonl", lines.collect::<String>());
    let pack = "rm -f store/packs/*.idx; rm -rf store/cache/*
        tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - store names.jsonl | zstd -19 > archive";
    folder.sh(pack).run().expect(0);
    fs::copy(folder.at("archive"), archive).unwrap();
}

#[test]
fn a_store_of_today_is_written_where_there_is_none() {
    let archive = place().join("second.tar.zst");
    if std::env::var_os("XT_STORES").is_some() && !archive.exists() {
        make(&archive);
    }
    assert!(fs::metadata(archive).unwrap().len() < 64 << 10, "a few kilobytes");
}

/// Each archive, unpacked.
fn each(look: impl Fn(&str, &Folder)) {
    let mut seen = 0;
    for entry in fs::read_dir(place()).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.zst") else { continue };
        let folder = Folder::new();
        fs::copy(&path, folder.at("archive")).unwrap();
        folder.sh("zstd -dcq archive | tar xf -").run().expect(0);
        look(name, &folder);
        seen += 1;
    }
    assert_eq!(seen, 2, "each version has its archive");
}

fn store(folder: &Folder, arguments: &[&str]) -> Outcome {
    folder.xt("store").args(["--store", "store"]).args(arguments).run()
}

fn read_all(folder: &Folder, note: &str) {
    for (name, digest) in names(folder) {
        store(folder, &["get", &digest, "-o", "out"]).expect(0);
        assert_eq!(Digest::of(&fs::read(folder.at("out")).unwrap()).to_string(), digest, "{note}: {name}");
        if let Some(id) = name.strip_prefix("bundles/") {
            folder.xt("freeze").args(["--store", "store", "verify", &format!("sha256:{id}")]).run().expect(0);
        }
    }
}

#[test]
fn a_store_of_an_earlier_version_is_read_added_to_and_swept() {
    each(|version, folder| {
        let listed = fs::read_to_string(folder.at("names.jsonl")).unwrap();
        let found = names(folder);
        assert_eq!(found.len(), listed.lines().count(), "{version}");
        for (name, digest) in &found {
            assert!(listed.contains(&format!("{{\"digest\":\"{digest}\",\"name\":\"{name}\"}}")), "{version}: {name}");
        }
        store(folder, &["verify"]).expect(0);
        read_all(folder, version);
        folder.xt("log").args(["--store", "store", "show", "width"]).run().expect(0);
        // What is there is not stored again, and what is new stands beside it.
        let long = found.iter().find(|(name, _)| name == "long").unwrap().1.clone();
        store(folder, &["get", &long, "-o", "long.txt"]).expect(0);
        let size = || store(folder, &["du"]).expect(0).stdout;
        let before = size();
        assert_eq!(store(folder, &["put", "long.txt"]).expect(0).text("/digest"), long);
        assert_eq!(size(), before, "{version}");
        folder.write("new", "new");
        store(folder, &["put", "new", "--name", "new"]).expect(0);
        assert_ne!(size(), before, "{version}: the control");
        store(folder, &["pack"]).expect(0);
        store(folder, &["gc", "--apply", "--older-than", "0s"]).expect(0);
        store(folder, &["verify"]).expect(0);
        assert_eq!(names(folder).len(), found.len() + 1);
        read_all(folder, version);
        let waste = Digest::of(b"waste").to_string();
        store(folder, &["get", &waste]).expect(11);
        store(folder, &["get", &Digest::of(b"kept by a pin").to_string()]).expect(0);
    });
}

#[test]
fn a_byte_that_is_wrong_in_a_store_of_an_earlier_version_is_found() {
    each(|version, folder| {
        for entry in fs::read_dir(folder.at("store/packs")).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        }
        assert_ne!(store(folder, &["verify"]).code, Some(0), "{version}");
    });
}

#[test]
fn the_archive_holds_records_of_every_codec_of_its_time() {
    each(|version, folder| {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(folder.at("store/packs")).unwrap() {
            found.extend(codecs(&fs::read(entry.unwrap().path()).unwrap()));
        }
        assert!(found.is_superset(&BTreeSet::from([0, 1, 2, 3])), "{version}: {found:?}");
    });
}

/// The codecs of the records of a pack (xt-store(5)): the tenth byte of each head.
fn codecs(pack: &[u8]) -> BTreeSet<u8> {
    pack.windows(10).filter(|head| head.starts_with(b"xtrecord")).map(|head| head[9]).collect()
}
