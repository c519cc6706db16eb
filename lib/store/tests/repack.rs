//! Packing takes less space and changes nothing else: every digest, every name, and what damage does.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xt_core::digest::Digest;
use xt_store::{Collection, Packed, Store, StoreError};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Between minus one half and one half.
    fn number(&mut self) -> f32 {
        f32::from_bits(0x3f80_0000 | u32::try_from(self.next() & 0x7f_ffff).unwrap()) - 1.5
    }
}

/// Files of safetensors as consecutive states of a training are: every number moves a little.
fn states(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(3);
    let numbers = 400_000;
    let header = format!(
        "{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{0}],\"data_offsets\":[0,{1}]}},\"b\":{{\"dtype\":\"F32\",\"shape\":[{0}],\"data_offsets\":[{1},{2}]}}}}",
        numbers / 2,
        numbers * 2,
        numbers * 4
    );
    let mut weights: Vec<f32> = (0..numbers).map(|_| random.number()).collect();
    let mut all = Vec::new();
    for _ in 0..count {
        for weight in &mut weights {
            *weight += random.number() * 1e-4;
        }
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
        all.push(file);
    }
    all
}

/// A store with these objects as they are, each in a pack of its own under a name of its own.
fn raw(objects: &[Vec<u8>]) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&folder.path().join("s")).unwrap();
    for (number, bytes) in objects.iter().enumerate() {
        let mut writer = store.writer().unwrap();
        writer.raw();
        let digest = writer.put(bytes).unwrap();
        writer.commit().unwrap();
        store.set_reference(&format!("states/{number}"), digest, "").unwrap();
    }
    (folder, store)
}

fn pack(store: &Store) -> Packed {
    store.pack::<StoreError>(&mut || Ok(Vec::new()), &mut |_, _| ()).unwrap()
}

fn files(store: &Store) -> Vec<PathBuf> {
    let all = fs::read_dir(store.path().join("packs")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|suffix| suffix == "pack")).collect()
}

fn stored(store: &Store) -> u64 {
    files(store).iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[track_caller]
fn all_there(path: &Path, objects: &[Vec<u8>]) {
    let store = Store::open(path).unwrap();
    for bytes in objects {
        assert!(store.get(Digest::of(bytes)).unwrap() == *bytes);
    }
    let report = store.verify().unwrap();
    assert!(report.damaged.is_empty(), "{report:?}");
    assert!(store.verify_stored(|_, _| ()).unwrap().damaged.is_empty());
}

#[test]
fn states_become_differences_from_a_keyframe_and_keep_their_digests() {
    let states = states(6);
    let (_folder, store) = raw(&states);
    let before = stored(&store);
    let plain: u64 = states.iter().map(|state| state.len() as u64).sum();
    assert!(before > plain, "control: raw is raw");
    let packed = pack(&store);
    assert_eq!((packed.packs, packed.packs_waiting, packed.damaged.len()), (6, 0, 0));
    assert!(packed.differences >= 10, "five of six states have two tensors each, in blocks: {packed:?}");
    let after = stored(&store);
    assert!(after * 100 < before * 70, "{before} {after}");
    all_there(store.path(), &states);
    let again = pack(&store);
    assert_eq!((again.packs, stored(&store)), (0, after), "a second time there is nothing to do");
}

#[test]
fn a_state_that_comes_later_differs_from_the_keyframe_that_is_there() {
    let states = states(5);
    let (_folder, store) = raw(&states[..3]);
    assert!(pack(&store).differences >= 4);
    for (number, state) in states.iter().enumerate().skip(3) {
        let digest = store.put(state).unwrap();
        store.set_reference(&format!("states/{number}"), digest, "").unwrap();
        let packed = pack(&store);
        assert_eq!(packed.packs, 1, "only what is new is looked at");
        assert!(packed.differences >= 2, "{packed:?}");
    }
    all_there(store.path(), &states);
    fs::remove_dir_all(store.path().join("cache")).unwrap();
    fs::create_dir(store.path().join("cache")).unwrap();
    let looked = pack(&store);
    assert!(looked.packs > 0, "what is forgotten is looked at again");
    all_there(store.path(), &states);
}

#[test]
fn what_others_differ_from_outlives_the_collection_of_its_own_object() {
    let states = states(3);
    let (_folder, store) = raw(&states);
    assert!(pack(&store).differences >= 4);
    // The keyframe is the one that needs no other; give up each in turn, so one of them is it.
    for gone in 0..2 {
        assert!(store.remove_reference(&format!("states/{gone}")).unwrap());
        let collection = Collection { apply: true, older_than: Duration::ZERO };
        store.collect::<StoreError>(&collection, &mut || Ok(Vec::new()), &mut |_, _| ()).unwrap();
        all_there(store.path(), &states[gone + 1..]);
    }
}

#[test]
fn what_is_best_as_it_is_stays_as_it_is() {
    let mut random = Random(5);
    let noise: Vec<u8> = (0..3 << 20).map(|_| random.next().to_le_bytes()[0]).collect();
    let (_folder, store) = raw(std::slice::from_ref(&noise));
    let before = files(&store);
    let packed = pack(&store);
    assert_eq!((packed.packs, packed.before, files(&store)), (1, packed.after, before));
    assert_eq!(pack(&store).packs, 0, "it is not tried again");
    all_there(store.path(), &[noise]);
}

#[test]
fn a_hold_keeps_the_old_packs_until_it_ends() {
    let states = states(3);
    let (_folder, store) = raw(&states);
    let hold = store.hold().unwrap();
    let packed = pack(&store);
    assert_eq!(packed.packs_waiting, 3);
    all_there(store.path(), &states);
    drop(hold);
    let collection = Collection { apply: true, older_than: Duration::ZERO };
    store.collect::<StoreError>(&collection, &mut || Ok(Vec::new()), &mut |_, _| ()).unwrap();
    assert_eq!(files(&store).len(), 1);
    all_there(store.path(), &states);
}

#[test]
fn a_damaged_pack_is_left_alone_and_named() {
    let states = states(3);
    let (_folder, store) = raw(&states);
    let victim = files(&store).pop().unwrap();
    let mut bytes = fs::read(&victim).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&victim, bytes).unwrap();
    let store = Store::open(store.path()).unwrap();
    let packed = pack(&store);
    assert_eq!(packed.damaged.len(), 1);
    assert!(victim.exists());
    let damaged = store.verify().unwrap().damaged.iter().filter(|damage| damage.object.is_some()).count();
    assert_eq!(damaged, 1, "one state is lost as before, the others are whole");
    for state in &states {
        store.put(state).unwrap();
    }
    all_there(store.path(), &states);
}

#[test]
fn a_flipped_bit_anywhere_in_a_packed_store_gives_no_wrong_bytes_and_heals() {
    let states = states(3);
    let (_folder, store) = raw(&states);
    assert!(pack(&store).differences >= 4);
    let [file] = &files(&store)[..] else { panic!("one pack") };
    let index = file.with_extension("idx");
    let (good, good_index) = (fs::read(file).unwrap(), fs::read(&index).unwrap());
    let mut random = Random(11);
    let mut unreadable = 0;
    for _ in 0..24 {
        let mut bad = good.clone();
        let bit = usize::try_from(random.next()).unwrap() % (good.len() * 8);
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bad).unwrap();
        let store = Store::open(store.path()).unwrap();
        let lost: Vec<&Vec<u8>> = states
            .iter()
            .filter(|state| match store.get(Digest::of(state)) {
                Ok(found) => {
                    assert!(found == **state, "bit {bit}");
                    false
                }
                Err(StoreError::Damaged { .. }) => true,
                Err(error) => panic!("bit {bit}: {error}"),
            })
            .collect();
        unreadable += lost.len();
        assert!(!Store::open(store.path()).unwrap().verify_stored(|_, _| ()).unwrap().damaged.is_empty(), "bit {bit}");
        for state in &lost {
            store.put(state).unwrap();
        }
        if !lost.is_empty() {
            all_there(store.path(), &states);
        }
        for path in fs::read_dir(store.path().join("packs")).unwrap() {
            fs::remove_file(path.unwrap().path()).unwrap();
        }
        fs::write(&index, &good_index).unwrap();
    }
    assert!(unreadable > 12, "the flips must hit: {unreadable}");
    fs::write(file, &good).unwrap();
    all_there(store.path(), &states);
}

#[test]
fn a_put_finds_what_is_stored_as_a_difference() {
    let states = states(3);
    let (_folder, store) = raw(&states);
    assert!(pack(&store).differences >= 4);
    let before = files(&store);
    for state in &states {
        store.put(state).unwrap();
    }
    assert_eq!(files(&store), before, "nothing is stored twice");
}
