//! Damage is found on every read, named, and healed by putting the same bytes again.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure as _};
use xt_store::{Store, StoreError};

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

fn packs(store: &Store, suffix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(store.path().join("packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_str().unwrap().ends_with(suffix));
    paths.sort();
    paths
}

fn flip(path: &Path, bit: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

/// A store with small, compressible, incompressible and large objects in one pack.
fn filled(directory: &Path) -> (Store, Vec<Vec<u8>>) {
    let mut random = Random(7);
    let store = Store::open_or_create(&directory.join("s")).unwrap();
    let mut objects: Vec<Vec<u8>> = (0..20).map(|i| format!("object {i}\n").repeat(i * 7).into_bytes()).collect();
    objects.push(random.bytes(5000));
    objects.push(random.bytes((2 << 20) + 99));
    objects.push(b"text of a larger file\n".repeat(100_000));
    objects.sort();
    objects.dedup();
    let mut writer = store.writer().unwrap();
    for bytes in &objects {
        writer.put(bytes).unwrap();
    }
    writer.commit().unwrap();
    (store, objects)
}

#[test]
fn a_flipped_bit_anywhere_in_a_pack_never_gives_wrong_bytes_and_is_found_by_verify_and_healed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, objects) = filled(directory.path());
    let pack = packs(&store, ".pack").pop().unwrap();
    let good = fs::read(&pack).unwrap();
    let mut random = Random(99);
    let index = packs(&store, ".idx").pop().unwrap();
    let good_index = fs::read(&index).unwrap();
    let mut unreadable = 0;
    for round in 0..60 {
        let before = unreadable;
        let bit = random.next() % (good.len() as u64 * 8);
        flip(&pack, bit);
        let store = Store::open(store.path()).unwrap();
        let mut bad = Vec::new();
        for bytes in &objects {
            match store.get(Digest::of(bytes)) {
                Ok(found) => assert_eq!(&found, bytes, "bit {bit}"),
                Err(error) => {
                    let digest = Digest::of(bytes);
                    assert!(matches!(error, StoreError::Damaged { digest: d, .. } if d == digest), "{error}");
                    assert_eq!((error.exit(), error.word()), (Exit::Store, "store.damaged"));
                    let hex = pack.file_stem().unwrap().to_str().unwrap();
                    assert!(error.to_string().contains(&digest.hex()) && error.to_string().contains(hex), "{error}");
                    bad.push(bytes);
                }
            }
        }
        unreadable += bad.len();
        if round % 10 == 0 {
            let report = store.verify().unwrap();
            assert!(!report.damaged.is_empty(), "bit {bit}");
            let named: Vec<Digest> = report.damaged.iter().filter_map(|damage| damage.object).collect();
            let mut expected: Vec<Digest> = bad.iter().map(|bytes| Digest::of(bytes)).collect();
            expected.sort_unstable();
            assert_eq!(named, expected, "bit {bit}");
        }
        for bytes in bad {
            assert_eq!(store.put(bytes).unwrap(), Digest::of(bytes));
            assert_eq!(&store.get(Digest::of(bytes)).unwrap(), bytes, "healed");
            assert_eq!(&Store::open(store.path()).unwrap().get(Digest::of(bytes)).unwrap(), bytes, "healed for others");
        }
        if unreadable > before {
            let report = Store::open(store.path()).unwrap().verify().unwrap();
            assert!(report.damaged.is_empty(), "healed, the store is whole: {report:?}");
            assert!(!pack.exists(), "the damaged pack is put aside");
            assert!(store.path().join("quarantine").join(pack.file_name().unwrap()).exists());
        }
        for extra in packs(&store, "") {
            fs::remove_file(extra).unwrap();
        }
        fs::write(&index, &good_index).unwrap();
        fs::write(&pack, &good).unwrap();
    }
    assert!(unreadable > 30, "the flips must hit objects: {unreadable}");
    assert!(Store::open(store.path()).unwrap().verify().unwrap().damaged.is_empty(), "control: unharmed, it is clean");
}

#[test]
fn a_pack_with_damage_that_nobody_healed_stays_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&directory.path().join("s")).unwrap();
    let mut random = Random(11);
    let objects: Vec<Vec<u8>> = (0..3).map(|_| random.bytes(10_000)).collect();
    let mut writer = store.writer().unwrap();
    for bytes in &objects {
        writer.put(bytes).unwrap();
    }
    writer.commit().unwrap();
    let pack = packs(&store, ".pack").pop().unwrap();
    flip(&pack, 8 * 5000);
    flip(&pack, 8 * 15_000);
    let named = |store: &Store| -> Vec<Digest> {
        Store::open(store.path()).unwrap().verify().unwrap().damaged.iter().filter_map(|d| d.object).collect()
    };
    assert_eq!(named(&store).len(), 2, "control");
    store.put(&objects[0]).unwrap();
    assert_eq!(named(&store), [Digest::of(&objects[1])]);
    assert!(pack.exists());
    store.put(&objects[1]).unwrap();
    assert!(named(&store).is_empty() && !pack.exists());
    assert!(Store::open(store.path()).unwrap().verify().unwrap().damaged.is_empty());
    for bytes in &objects {
        assert_eq!(&store.get(Digest::of(bytes)).unwrap(), bytes);
    }
}

#[test]
fn an_emptied_a_cut_and_a_missing_pack_are_damage_of_the_named_object() {
    let directory = tempfile::tempdir().unwrap();
    let (store, objects) = filled(directory.path());
    let pack = packs(&store, ".pack").pop().unwrap();
    let good = fs::read(&pack).unwrap();
    for length in [0, 1, 8, 50, good.len() - 1] {
        fs::write(&pack, &good[..length]).unwrap();
        let store = Store::open(store.path()).unwrap();
        let bad = objects.iter().filter(|bytes| store.get(Digest::of(bytes)).is_err()).count();
        assert!(bad > 0 && (length > 50 || bad == objects.len()), "{length}: {bad}");
        assert!(!store.verify().unwrap().damaged.is_empty());
        let bytes = &objects[0];
        store.put(bytes).unwrap();
        assert_eq!(&store.get(Digest::of(bytes)).unwrap(), bytes);
        for extra in packs(&store, "").into_iter().filter(|path| path.file_stem() != pack.file_stem()) {
            fs::remove_file(extra).unwrap();
        }
    }
    let open = Store::open(store.path()).unwrap();
    fs::write(&pack, &good).unwrap();
    let digest = Digest::of(&objects[3]);
    assert_eq!(open.get(digest).unwrap(), objects[3]);
    fs::remove_file(&pack).unwrap();
    let fresh = Store::open(store.path()).unwrap();
    assert_eq!(fresh.get(digest).unwrap_err().exit(), Exit::Store);
}

#[test]
fn a_missing_or_damaged_index_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, objects) = filled(directory.path());
    let index = packs(&store, ".idx").pop().unwrap();
    let good = fs::read(&index).unwrap();
    let check = |what: &str| {
        let store = Store::open(store.path()).unwrap();
        assert_eq!(store.list().unwrap().len(), objects.len(), "{what}");
        for bytes in &objects {
            assert_eq!(&store.get(Digest::of(bytes)).unwrap(), bytes, "{what}");
        }
        let report = store.verify().unwrap();
        assert!(report.damaged.is_empty(), "{what}");
        report.unindexed.len()
    };
    assert_eq!(check("control"), 0);
    let mut random = Random(5);
    for _ in 0..20 {
        flip(&index, random.next() % (good.len() as u64 * 8));
        assert_eq!(check("flipped"), 1);
        fs::write(&index, &good).unwrap();
    }
    fs::write(&index, b"").unwrap();
    assert_eq!(check("emptied"), 1);
    fs::remove_file(&index).unwrap();
    assert_eq!(check("missing"), 1);
    Store::open(store.path()).unwrap().put(b"something new").unwrap();
    assert_eq!(fs::read(&index).unwrap(), good, "the next writer makes the index again");
}

#[test]
fn a_link_or_fifo_in_the_place_of_a_pack_is_named_and_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&directory.path().join("s")).unwrap();
    let digest = store.put(b"x").unwrap();
    let pack = packs(&store, ".pack").pop().unwrap();
    let aside = directory.path().join("aside");
    fs::rename(&pack, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &pack).unwrap();
    let error = Store::open(store.path()).unwrap().get(digest).unwrap_err();
    assert!(error.to_string().contains("symbolic link") && error.exit() == Exit::Store, "{error}");
    fs::remove_file(&pack).unwrap();
    nix::unistd::mkfifo(&pack, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = Store::open(store.path()).unwrap().get(digest).unwrap_err();
    assert!(error.to_string().contains("FIFO"), "{error}");
    let bytes = store.put(b"x").unwrap();
    assert_eq!(store.get(bytes).unwrap(), b"x");
}

#[test]
fn one_bit_in_each_of_a_thousand_random_places_is_found_at_read_by_name_and_healed_by_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&directory.path().join("s")).unwrap();
    let mut random = Random(2024);
    let lengths = [1, 40, 900, 20_000, 131_072, (1 << 20) + 70_000];
    let objects: Vec<Vec<u8>> = lengths.iter().map(|length| random.bytes(*length)).collect();
    let mut writer = store.writer().unwrap();
    for bytes in &objects {
        writer.put(bytes).unwrap();
    }
    writer.commit().unwrap();
    let pack = packs(&store, ".pack").pop().unwrap();
    let (good, index) = (fs::read(&pack).unwrap(), packs(&store, ".idx").pop().unwrap());
    let good_index = fs::read(&index).unwrap();
    // The first eight bytes say what the file is; they belong to no object, and verify sees them.
    let first = 8 * 8;
    for _ in 0..1000 {
        let bit = first + random.next() % (good.len() as u64 * 8 - first);
        flip(&pack, bit);
        let fresh = Store::open(store.path()).unwrap();
        let mut damaged = Vec::new();
        for bytes in &objects {
            match fresh.get(Digest::of(bytes)) {
                Ok(found) => assert_eq!(&found, bytes, "bit {bit}: a wrong byte was returned"),
                Err(StoreError::Damaged { digest, .. }) if digest == Digest::of(bytes) => damaged.push(bytes),
                Err(error) => panic!("bit {bit}: {error}"),
            }
        }
        assert_eq!(damaged.len(), 1, "bit {bit}: found, and the object named");
        fresh.put(damaged[0]).unwrap();
        let healed = Store::open(store.path()).unwrap();
        assert_eq!(&healed.get(Digest::of(damaged[0])).unwrap(), damaged[0], "bit {bit}: healed");
        for extra in packs(&store, "") {
            fs::remove_file(extra).unwrap();
        }
        fs::write(&index, &good_index).unwrap();
        fs::write(&pack, &good).unwrap();
    }
    assert!(Store::open(store.path()).unwrap().verify().unwrap().damaged.is_empty(), "control: unharmed, it is clean");
}
