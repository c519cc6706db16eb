//! Collection: what goes, what stays, and what happens beside writers.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use xt_core::digest::Digest;
use xt_store::{Collected, Collection, Store, StoreError};

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_or_create(&folder.path().join("s")).unwrap();
    (folder, store)
}

const NOW: Collection = Collection { apply: true, older_than: Duration::ZERO };

fn collect(store: &Store, collection: &Collection) -> Collected {
    store.collect::<StoreError>(collection, &mut || Ok(Vec::new()), &mut |_, _| ()).unwrap()
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn packs(store: &Store) -> Vec<PathBuf> {
    let all = fs::read_dir(store.path().join("packs")).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|suffix| suffix == "pack")).collect()
}

#[test]
fn what_no_name_leads_to_goes_and_everything_else_stays() {
    let (_folder, store) = store();
    let data = store.put(&noise(3 << 20, 1)).unwrap();
    let listing = store.put(format!("{}  data\n", data.hex()).as_bytes()).unwrap();
    store.set_reference("kept", listing, "").unwrap();
    let pinned = store.put(&noise(2 << 20, 2)).unwrap();
    store.pin(pinned, "dear").unwrap();
    let waste = store.put(&noise(2 << 20, 3)).unwrap();
    let before = collect(&store, &Collection { apply: false, ..NOW });
    assert_eq!((before.named.objects, before.unnamed.objects, before.unnamed.bytes), (3, 1, 2 << 20));
    assert!(store.contains(waste).unwrap(), "control: a look changes nothing");
    let young = collect(&store, &Collection { older_than: Duration::from_hours(1), ..NOW });
    assert_eq!((young.spared.objects, young.packs_removed), (1, 0), "what was just put can still be named");
    let mut gone = Vec::new();
    let mut none = || Ok::<_, StoreError>(Vec::new());
    let done = store.collect(&NOW, &mut none, &mut |digest, _| gone.push(digest)).unwrap();
    assert_eq!((gone, done.packs_removed, done.packs_waiting), (vec![waste], 1, 0));
    assert!(done.freed > 2 << 20, "{done:?}");
    assert!(matches!(store.get(waste), Err(StoreError::Missing { .. })));
    for digest in [data, listing, pinned] {
        assert_eq!(Digest::of(&store.get(digest).unwrap()), digest);
    }
    assert!(store.verify().unwrap().damaged.is_empty());
    assert!(store.unpin(pinned).unwrap());
    assert_eq!(collect(&store, &NOW).packs_removed, 1, "a pin given up keeps nothing");
    assert!(!store.contains(pinned).unwrap());
}

#[test]
fn roots_of_the_caller_keep_what_they_lead_to() {
    let (_folder, store) = store();
    let data = store.put(b"data").unwrap();
    let top = store.put(format!("{{\"data\":\"{data}\"}}").as_bytes()).unwrap();
    store.collect(&NOW, &mut || Ok::<_, StoreError>(vec![top]), &mut |_, _| ()).unwrap();
    assert_eq!(store.get(data).unwrap(), b"data");
    collect(&store, &NOW);
    assert!(!store.contains(data).unwrap(), "control: without the root it goes");
}

#[test]
fn a_pack_that_is_partly_needed_is_rewritten() {
    let (_folder, store) = store();
    let mut writer = store.writer().unwrap();
    let kept = writer.put(&noise(400_000, 1)).unwrap();
    let block_shared = writer.put(&noise(3 << 20, 2)).unwrap();
    writer.put(&noise(3 << 20, 3)).unwrap();
    writer.commit().unwrap();
    store.set_reference("a", kept, "").unwrap();
    store.set_reference("b", block_shared, "").unwrap();
    let done = collect(&store, &NOW);
    assert_eq!((done.packs_removed, done.stuck.len()), (1, 0));
    assert!(done.moved > 3 << 20 && done.moved < 4 << 20, "{done:?}");
    assert_eq!(Digest::of(&store.get(kept).unwrap()), kept);
    assert_eq!(Digest::of(&store.get(block_shared).unwrap()), block_shared);
    assert_eq!(store.list().unwrap().len(), 2);
    let again = collect(&store, &NOW);
    assert_eq!((again.packs_removed, again.unnamed.objects, packs(&store).len()), (0, 0, 1), "nothing more to do");
}

#[test]
fn a_hold_keeps_what_has_no_name_yet_and_what_it_finds() {
    let (_folder, store) = store();
    let found = store.put(b"was there").unwrap();
    let other = Store::open(store.path()).unwrap();
    let hold = store.hold().unwrap();
    let stored = store.put(b"is put now").unwrap();
    let meanwhile = collect(&other, &NOW);
    assert_eq!((meanwhile.packs_removed, meanwhile.packs_waiting), (0, 2));
    store.set_reference("found", found, "").unwrap();
    drop(hold);
    let after = collect(&other, &NOW);
    assert_eq!((after.packs_removed, after.packs_waiting), (2, 0));
    assert_eq!(store.get(found).unwrap(), b"was there", "it was named while it was condemned");
    assert!(matches!(other.get(stored), Err(StoreError::Missing { .. })), "control: the other was not");
}

#[test]
fn the_same_bytes_put_again_beside_a_condemned_copy_outlive_it() {
    let (_folder, store) = store();
    let first = store.put(b"the same bytes").unwrap();
    let hold = store.hold().unwrap();
    assert_eq!(collect(&store, &NOW).packs_waiting, 1);
    let other = Store::open(store.path()).unwrap();
    let again = other.hold().unwrap();
    assert_eq!(other.put(b"the same bytes").unwrap(), first);
    assert_eq!(packs(&store).len(), 2, "under a name of its own");
    drop(hold);
    assert_eq!(collect(&store, &NOW).packs_removed, 1);
    assert_eq!(other.get(first).unwrap(), b"the same bytes");
    drop(again);
    assert_eq!(collect(&store, &NOW).packs_removed, 1);
    assert!(!Store::open(store.path()).unwrap().contains(first).unwrap());
}

#[test]
fn giving_a_name_to_something_condemned_saves_it_and_all_that_it_leads_to() {
    let (_folder, store) = store();
    let data = store.put(&noise(2 << 20, 7)).unwrap();
    let top = store.put(format!("{{\"data\":\"{data}\"}}").as_bytes()).unwrap();
    let elder = store.hold().unwrap();
    assert_eq!(collect(&store, &NOW).packs_waiting, 2);
    let other = Store::open(store.path()).unwrap();
    other.set_reference("late", top, "").unwrap();
    drop(elder);
    let done = collect(&store, &NOW);
    assert_eq!((done.packs_removed, done.stuck.len()), (2, 0));
    assert_eq!(Digest::of(&other.get(data).unwrap()), data);
    assert!(other.verify().unwrap().damaged.is_empty());
}

#[test]
fn a_named_document_that_cannot_be_read_stops_the_collection() {
    let (_folder, store) = store();
    let data = store.put(&noise(5000, 1)).unwrap();
    let top = store.put(format!("{{\"data\":\"{data}\"}}").as_bytes()).unwrap();
    store.set_reference("top", top, "").unwrap();
    let waste = store.put(b"waste").unwrap();
    // The pack of the document is the one that is not much longer than it.
    let pack = packs(&store).into_iter().find(|path| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(7).any(|window| window == b"{\"data\"") || bytes.len() < 250 && bytes.len() > 150
    });
    let pack = pack.unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 4;
    fs::write(&pack, bytes).unwrap();
    let fresh = Store::open(store.path()).unwrap();
    let error = fresh.collect::<StoreError>(&NOW, &mut || Ok(Vec::new()), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { digest, others: 0 } if digest == top), "{error}");
    assert!(fresh.contains(waste).unwrap() && fresh.contains(data).unwrap(), "nothing was removed");
}

#[test]
fn a_copy_to_another_store_brings_everything_once_and_respects_its_names() {
    let (_folder, store) = store();
    let data = store.put(&noise(3 << 20, 9)).unwrap();
    let top = store.put(format!("{{\"data\":\"{data}\"}}").as_bytes()).unwrap();
    store.set_reference("a/top", top, "why").unwrap();
    store.put(b"unnamed").unwrap();
    let (_other_folder, other) = self::store();
    let names = store.references().unwrap();
    let moved = store.copy_to(&other, &names, &mut |_, _| ()).unwrap();
    assert_eq!((moved.copied.objects, moved.present.objects, moved.names), (2, 0, 1));
    assert_eq!(other.references().unwrap(), names);
    assert_eq!(other.list().unwrap().len(), 2, "what has no name stays behind");
    assert_eq!(Digest::of(&other.get(data).unwrap()), data);
    let again = store.copy_to(&other, &names, &mut |_, _| ()).unwrap();
    assert_eq!((again.copied.objects, again.present.objects), (0, 2));
    let own = other.put(b"something else").unwrap();
    other.set_reference("a/top", own, "mine").unwrap();
    let error = store.copy_to(&other, &names, &mut |_, _| ()).unwrap_err();
    assert!(matches!(&error, StoreError::Taken { names } if names == "a/top"), "{error}");
    assert_eq!(other.reference("a/top").unwrap().unwrap().digest, own);
}

#[test]
fn what_is_given_up_goes_although_it_is_mentioned_but_not_when_it_has_a_name() {
    let (_folder, store) = store();
    let [given_up, named] = [21, 22].map(|seed| store.put(&noise(1 << 20, seed)).unwrap());
    let listing = format!("{}  a\n{}  b\n", given_up.hex(), named.hex());
    let listing = store.put(listing.as_bytes()).unwrap();
    store.set_reference("listing", listing, "").unwrap();
    store.set_reference("named", named, "").unwrap();
    let control = collect(&store, &NOW);
    assert_eq!((control.named.objects, control.unnamed.objects), (3, 0));
    let without = [given_up, named].into();
    let parents = store.parents(&without, &[]).unwrap();
    assert!(parents.values().all(|parents| parents.iter().eq([&listing])));
    let mut none = || Ok::<_, StoreError>(Vec::new());
    let done = store.collect_without(&NOW, &without, &mut none, &mut |_, _| ()).unwrap();
    assert_eq!((done.unnamed.objects, done.packs_removed), (1, 1));
    assert!(!store.contains(given_up).unwrap() && store.contains(named).unwrap());
    assert!(store.verify().unwrap().damaged.is_empty(), "what was given up is no damage");
    assert_eq!(store.put(&noise(1 << 20, 21)).unwrap(), given_up);
    assert_eq!(collect(&store, &NOW).named.objects, 3, "what comes back is kept again");
}
