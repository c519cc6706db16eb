//! Bundles of the size full: the worker and all that it loads are inside, and it replays where there is none.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use forge::{fix_sums, pack, unpack};
use xt_core::canonical::{Value, parse};
use xt_harness::{Folder, Outcome, programs};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/forge.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod forge;

/// A run of `worker` in a store of its own, and its record.
struct World {
    folder: Folder,
    worker: PathBuf,
}

impl World {
    fn new(worker: &str, candidate: &str) -> Self {
        let world = Self { folder: Folder::new(), worker: programs().join(worker) };
        let golden = |path: &str| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(path);
        world.folder.write("text.txt", fs::read(golden("train/in/text.txt")).unwrap());
        let dataset = world.folder.xt("compile").args(["dataset", "text.txt"]).run().expect(0).text("/id");
        let candidate = fs::read_to_string(golden(candidate)).unwrap();
        let named = candidate.find("sha256:").unwrap();
        world.folder.write("candidate.json", candidate.replace(&candidate[named..named + 71], &dataset));
        let plan = world.folder.xt("compile").arg("candidate.json").run().expect(0);
        let run = world.folder.xt("run").env("XT_TRAIN", &world.worker).input(plan.stdout).run().expect(0);
        world.folder.write("run.json", run.stdout);
        world
    }

    fn stand_in() -> Self {
        Self::new("xt-stand-in", "plan/seeds/in/candidate.json")
    }

    fn freeze(&self, size: &str) -> Outcome {
        let archive = format!("{size}.tar.zst");
        let freeze = self.folder.xt("freeze").env("XT_TRAIN", &self.worker);
        freeze.args(["run.json", "--size", size, "-o", &archive]).run()
    }

    /// Another machine: the tools alone, with no worker beside them, and an archive.
    fn stranger(&self, archive: &str) -> Folder {
        let folder = Folder::new();
        fs::create_dir(folder.at("bin")).unwrap();
        for tool in ["xt-replay", "xt-freeze", "xt-store"] {
            fs::copy(programs().join(tool), folder.at("bin").join(tool)).unwrap();
        }
        fs::copy(self.folder.at(archive), folder.at(archive)).unwrap();
        folder
    }
}

/// `script` where the tools are found as `bin/xt-replay`.
fn there(folder: &Folder, script: &str) -> Outcome {
    folder.sh(script).env("PATH", "/usr/bin:/bin").run()
}

fn paths(bundle: &Value) -> Vec<String> {
    let Some(Value::List(members)) = bundle.get("members") else { panic!("{}", bundle.canonical()) };
    members.iter().map(|member| member.pointer("/file/path").and_then(Value::as_str).unwrap().to_owned()).collect()
}

#[test]
fn a_full_bundle_replays_where_no_worker_is_and_a_sealed_one_does_not() {
    let world = World::stand_in();
    let inside = paths(&world.freeze("full").expect(0).document());
    let worker: Vec<&String> = inside.iter().filter(|path| path.starts_with("worker/")).collect();
    assert!(worker.iter().any(|path| *path == "worker/xt/bin/xt-stand-in"), "{worker:?}");
    for name in ["/libc.so.6", "/ld-linux"] {
        assert!(worker.iter().any(|path| path.contains(name)), "{worker:?}");
    }
    assert!(!paths(&world.freeze("sealed").expect(0).document()).iter().any(|path| path.starts_with("worker/")));
    let sealed = there(&world.stranger("sealed.tar.zst"), "bin/xt-replay sealed.tar.zst");
    assert_ne!(sealed.code, Some(0), "the control: nothing trains here");
    assert!(sealed.stderr.contains("worker"), "{}", sealed.stderr);
    let folder = world.stranger("full.tar.zst");
    there(&folder, "bin/xt-freeze verify full.tar.zst").expect(0);
    let full = there(&folder, "bin/xt-replay full.tar.zst").expect(0);
    assert!(full.stderr.contains("the worker is the one in the bundle; it runs in custody"), "{}", full.stderr);
    // What ran is in the record of the replay: under full isolation, with these files and no others.
    let replayed = there(&folder, &format!("bin/xt-store get {}", full.text("/replayed"))).expect(0);
    let custody = there(&folder, &format!("bin/xt-store get {}", replayed.text("/custody"))).expect(0).document();
    assert_eq!(custody.get("profile").and_then(Value::as_str), Some("full"));
    let mounted = custody.canonical();
    for path in worker {
        assert!(mounted.contains(&format!("\"at\":\"{}\"", path.trim_start_matches("worker"))), "{path}: {mounted}");
    }
    // Again, imported and by its digest; what was taken out is used again, and taken out anew when it was altered.
    let id = there(&folder, "bin/xt-freeze import full.tar.zst").expect(0).text("/id");
    let again = |note: &str| {
        let outcome = there(&folder, &format!("bin/xt-replay {id}"));
        assert_eq!(outcome.code, Some(0), "{note}: {}", outcome.stderr);
    };
    again("used again");
    there(&folder, "for file in .xt/cache/workers/*.root/xt/bin/xt-stand-in; do printf x >> $file; done").expect(0);
    again("altered");
    there(&folder, "rm .xt/cache/workers/*.root/lib*/*/libc.so.6").expect(0);
    again("one is missing");
}

#[test]
fn the_libraries_inside_are_used_where_those_of_the_machine_are_others() {
    let world = World::stand_in();
    world.freeze("full").expect(0);
    world.freeze("sealed").expect(0);
    let folder = world.stranger("full.tar.zst");
    fs::copy(world.folder.at("sealed.tar.zst"), folder.at("sealed.tar.zst")).unwrap();
    fs::copy(&world.worker, folder.at("bin/xt-train")).unwrap();
    if !Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("not run here: mounting needs root and a mount namespace");
        return;
    }
    // A byte behind its end changes a library and nothing that it does.
    let script = "library=$(realpath $(ldd bin/xt-train | sed -n 's/.*libgcc_s.so.1 => \\([^ ]*\\).*/\\1/p'))
        cp $library other; printf x >> other; mount --bind other $library
        code=0; bin/xt-replay --store sealed sealed.tar.zst 2> refused || code=$?; echo $code
        grep -c 'libgcc_s.so.1' refused
        bin/xt-replay --store full full.tar.zst > replay.json";
    folder.write("script", script);
    let outcome = there(&folder, "exec unshare --mount sh -eu script").expect(0);
    assert_eq!(outcome.stdout.lines().next(), Some("10"), "the control: {}", outcome.stdout);
    let replay = parse(&fs::read(folder.at("replay.json")).unwrap()).unwrap();
    assert_eq!(replay.get("outcome").and_then(Value::as_str), Some("equal"), "{}", replay.canonical());
}

#[test]
fn another_worker_than_that_of_the_run_goes_into_no_bundle() {
    let world = World::stand_in();
    fs::copy(&world.worker, world.folder.at("other")).unwrap();
    world.folder.sh("printf x >> other").run().expect(0);
    let refused = world.folder.xt("freeze").args(["--size", "full", "--worker", "other", "run.json"]).run().expect(15);
    assert!(refused.stderr.contains("bundle.worker") && refused.stderr.contains("the worker of the run is"));
    assert!(!refused.stderr.contains("libc.so.6"), "the libraries are the same: {}", refused.stderr);
}

#[test]
fn a_full_bundle_with_another_worker_or_one_file_less_does_not_verify() {
    let world = World::stand_in();
    world.freeze("full").expect(0);
    let archive = fs::read(world.folder.at("full.tar.zst")).unwrap();
    let verify = |files: &forge::Files| {
        world.folder.write("altered.tar.zst", pack(files));
        world.folder.xt("freeze").args(["verify", "altered.tar.zst"]).run()
    };
    let mut files = unpack(&archive);
    let worker = files.iter().position(|(path, _)| path == "worker/xt/bin/xt-stand-in").unwrap();
    files[worker].1.push(0);
    let altered = verify(&files).expect(1);
    assert!(altered.stdout.contains("member.digest"), "{}", altered.stdout);
    // The same with a bundle that lists it so: the run record says which worker it was.
    let text = String::from_utf8(files[0].1.clone()).unwrap();
    let (old, new) = (&unpack(&archive)[worker].1, &files[worker].1);
    let digest = |bytes: &[u8]| xt_core::digest::Digest::of(bytes).to_string();
    let worker_member = format!("{{\"bytes\":{},\"digest\":\"{}\"", old.len(), digest(old));
    assert!(text.contains(&worker_member));
    let listed = text.replace(&worker_member, &format!("{{\"bytes\":{},\"digest\":\"{}\"", new.len(), digest(new)));
    files[0].1 = listed.into_bytes();
    fix_sums(&mut files);
    let listed = verify(&files).expect(1);
    assert!(listed.stdout.contains("bundle.worker"), "{}", listed.stdout);
    let mut files = unpack(&archive);
    files.remove(worker);
    assert!(verify(&files).expect(1).stdout.contains("member.missing"));
    verify(&unpack(&archive)).expect(0);
}

#[test]
fn the_true_worker_travels_with_its_four_hundred_megabytes() {
    if !programs().join("xt-train").exists() {
        eprintln!("not run here: xt-train is not built");
        return;
    }
    let world = World::new("xt-train", "train/in/candidate.json");
    let inside = paths(&world.freeze("full").expect(0).document());
    assert!(inside.iter().any(|path| path == "worker/xt/bin/lib/libtorch_cpu.so"), "{inside:?}");
    let folder = world.stranger("full.tar.zst");
    drop(world);
    let full = there(&folder, "bin/xt-replay full.tar.zst").expect(0);
    assert_eq!(full.text("/outcome"), "equal");
    assert!(full.stderr.contains("the one in the bundle"), "{}", full.stderr);
}
