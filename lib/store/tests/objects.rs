//! Objects go in and come out, by whom and however they are put.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure as _};
use xt_store::{Store, StoreError};

/// Bytes that no codec shrinks, from a seed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&directory.path().join("s")).unwrap();
    (directory, store)
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn objects_of_all_sizes_come_back_by_the_digest_that_sha256sum_prints() {
    let (_directory, store) = store();
    let mib = 1 << 20;
    let sizes = [0, 1, 71, 4096, mib - 1, mib, mib + 1, 3 * mib, 3 * mib + 17];
    let mut all = Vec::new();
    for (size, seed) in sizes.into_iter().zip(1..) {
        for bytes in [noise(size, seed), b"abcdefg\n".iter().copied().cycle().take(size).collect()] {
            let digest = store.put(&bytes).unwrap();
            assert_eq!(digest, Digest::of(&bytes));
            assert_eq!(store.get(digest).unwrap(), bytes);
            assert_eq!(store.size(digest).unwrap(), Some(size as u64));
            let mut piecewise = Vec::new();
            store.object(digest).unwrap().read_to_end(&mut piecewise).unwrap();
            assert_eq!(piecewise, bytes);
            all.push((digest, size as u64));
        }
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(store.list().unwrap(), all);
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.list().unwrap(), all);
    let report = again.verify().unwrap();
    assert!(report.damaged.is_empty() && report.unindexed.is_empty(), "{report:?}");
    assert_eq!(report.objects, all.len() as u64);
}

#[test]
fn what_is_there_already_is_not_stored_twice() {
    let (_directory, store) = store();
    let bytes = noise(3 << 20, 1);
    store.put(&bytes).unwrap();
    let packs = store.path().join("packs");
    let before = entries(&packs);
    store.put(&bytes).unwrap();
    assert_eq!(entries(&packs), before);
    // A changed end shares the blocks before it: at most one block is stored anew.
    let mut longer = bytes.clone();
    longer.extend_from_slice(&noise(1000, 2));
    let size = || fs::read_dir(&packs).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>();
    let stored = size();
    let digest = store.put(&longer).unwrap();
    assert!(size() - stored < (1 << 20) + 3000, "{}", size() - stored);
    assert_eq!(store.get(digest).unwrap(), longer);
}

#[test]
fn nothing_is_visible_before_the_commit_and_nothing_is_left_without_it() {
    let (_directory, store) = store();
    let mut writer = store.writer().unwrap();
    let small = writer.put(b"small").unwrap();
    let (large, _) = writer.put_reader(&noise(5 << 20, 3)[..]).unwrap();
    let other = Store::open(store.path()).unwrap();
    assert!(!other.contains(small).unwrap() && !store.contains(large).unwrap());
    drop(writer);
    for folder in ["tmp", "leases", "packs"] {
        assert_eq!(entries(&store.path().join(folder)), 0, "{folder}");
    }
    let mut writer = store.writer().unwrap();
    writer.put(b"small").unwrap();
    writer.commit().unwrap();
    assert!(other.contains(small).unwrap(), "a store opened earlier sees what others commit later");
    assert!(matches!(other.get(large), Err(StoreError::Missing { digest }) if digest == large));
    assert_eq!(entries(&store.path().join("tmp")) + entries(&store.path().join("leases")), 0);
}

#[test]
fn an_extracted_file_is_a_copy_of_its_own_and_never_replaces_another() {
    let (directory, store) = store();
    let digest = store.put(b"kept").unwrap();
    let path = directory.path().join("out");
    assert_eq!(store.extract(digest, &path).unwrap(), 4);
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x").unwrap();
    assert_eq!(store.get(digest).unwrap(), b"kept");
    let error = store.extract(digest, &path).unwrap_err();
    assert_eq!(error.exit(), Exit::System);
    assert_eq!(fs::read(&path).unwrap(), b"keptx");
    let absent = Digest::of(b"absent");
    assert!(store.extract(absent, &directory.path().join("none")).is_err());
    assert!(!directory.path().join("none").exists());
}

#[test]
fn references_name_only_what_is_there_and_come_back_sorted() {
    let (_directory, store) = store();
    let (a, b) = (store.put(b"a").unwrap(), store.put(b"b").unwrap());
    store.set_reference("runs/second", a, "first try").unwrap();
    store.set_reference("runs/first", a, "kept").unwrap();
    store.set_reference("base", b, "the base").unwrap();
    store.set_reference("runs/second", b, "moved").unwrap();
    let all = store.references().unwrap();
    let names: Vec<&str> = all.iter().map(|reference| reference.name.as_str()).collect();
    assert_eq!(names, ["base", "runs/first", "runs/second"]);
    let second = store.reference("runs/second").unwrap().unwrap();
    assert_eq!((second.digest, second.reason.as_str()), (b, "moved"));
    assert_eq!(store.reference("runs").unwrap(), None, "a folder is no reference");
    assert_eq!(store.reference("runs/first/deeper").unwrap(), None);
    let absent = Digest::of(b"absent");
    assert_eq!(store.set_reference("x", absent, "").unwrap_err().word(), "store.missing");
    assert_eq!(store.reference("x").unwrap(), None);
    for name in ["", "/a", "../a", "a/../b", "a//b", "a\\b", "C:a", "a\nb"] {
        assert_eq!(store.set_reference(name, a, "").unwrap_err().word(), "reference.name", "{name:?}");
    }
    assert!(store.remove_reference("base").unwrap());
    assert!(!store.remove_reference("base").unwrap());
    assert_eq!(store.references().unwrap().len(), 2);
    store.pin(a, "keep").unwrap();
    assert_eq!(store.pins().unwrap()[0].digest, a);
    assert!(store.unpin(a).unwrap());
}

#[test]
fn another_version_is_refused_before_anything_else_is_read() {
    let (_directory, store) = store();
    let path = store.path().to_path_buf();
    let digest = store.put(b"x").unwrap();
    let format = fs::read_to_string(path.join("FORMAT")).unwrap();
    fs::write(path.join("FORMAT"), format.replace("store/1", "store/2")).unwrap();
    fs::remove_dir_all(path.join("packs")).unwrap();
    for open in [Store::open, Store::open_or_create] {
        let error = open(&path).unwrap_err();
        assert_eq!((error.word(), error.exit()), ("store.format", Exit::Refused), "{error}");
        let said = "this store has the format xt.store/2, and this version of xt reads xt.store/1";
        assert!(error.to_string().ends_with(said), "{error}");
    }
    fs::write(path.join("FORMAT"), format.replace("[\"blake3\"]", "[\"blake3\",\"codec/9\",\"parity\"]")).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(error.to_string().ends_with("does not know: codec/9, parity"), "{error}");
    fs::write(path.join("FORMAT"), "").unwrap();
    assert_eq!(Store::open(&path).unwrap_err().word(), "store.format");
    fs::remove_file(path.join("FORMAT")).unwrap();
    assert_eq!(Store::open(&path).unwrap_err().word(), "store.absent");
    Store::open_or_create(&path).unwrap();
    assert!(!Store::open(&path).unwrap().contains(digest).unwrap());
}

#[test]
fn a_directory_of_other_things_does_not_become_a_store() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "x").unwrap();
    let error = Store::open_or_create(directory.path()).unwrap_err();
    assert_eq!((error.word(), error.exit()), ("store.foreign", Exit::Refused));
    assert_eq!(entries(directory.path()), 1);
    assert_eq!(Store::open(directory.path()).unwrap_err().word(), "store.absent");
    assert_eq!(Store::open(&directory.path().join("no")).unwrap_err().exit(), Exit::Store);
}

fn check_modes(path: &Path) {
    let found = fs::symlink_metadata(path).unwrap();
    let expected = if found.is_dir() { 0o755 } else { 0o644 };
    assert_eq!(found.permissions().mode() & 0o7777, expected, "{}", path.display());
    if found.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            check_modes(&entry.unwrap().path());
        }
    }
}

#[test]
fn every_mode_is_ours() {
    let (_directory, store) = store();
    let digest = store.put(&noise(2 << 20, 1)).unwrap();
    store.set_reference("a/b", digest, "").unwrap();
    check_modes(store.path());
}
