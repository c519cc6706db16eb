//! A store with a made-up run that may be frozen.

use xt_core::field::Manifest as _;
use xt_core::manifest::run::Run;
use xt_harness::Folder;
use xt_store::Store;

use crate::evidence;

/// A folder whose store holds the made-up run and everything it names; gives the run record.
pub fn stored(folder: &Folder, change: impl FnOnce(&mut Run)) -> Run {
    let plan = evidence::plan();
    let lines = evidence::lines(&plan);
    let custody = evidence::custody(&plan);
    let mut run = evidence::run(&plan, &custody, &evidence::tally(&plan, &lines));
    change(&mut run);
    let store = Store::open_or_create(&folder.at(".xt")).unwrap();
    let mut writer = store.writer().unwrap();
    for (_, bytes) in evidence::DATA {
        writer.put(bytes).unwrap();
    }
    for (_, bytes) in evidence::outputs() {
        writer.put(&bytes).unwrap();
    }
    writer.put(b"").unwrap();
    writer.put(&lines).unwrap();
    writer.put_manifest(&plan).unwrap();
    writer.put_manifest(&custody).unwrap();
    writer.put_manifest(&run).unwrap();
    writer.commit().unwrap();
    // As a run's end is named, and as it comes from another store.
    store.set_reference(&format!("runs/{}", run.attempt), run.id(), "made up").unwrap();
    run
}
