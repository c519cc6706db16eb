//! `xt-freeze`: only whole runs are frozen, archives depend on content alone, and no wrong byte passes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;

use forge::{Files, fix_sums, pack, unpack};
use frozen::stored;
use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::name::Name;
use xt_harness::{Folder, Outcome};
use xt_store::Store;

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/forge.rs"]
mod forge;
#[path = "support/frozen.rs"]
mod frozen;

fn text(run: &Run) -> String {
    run.encode().canonical()
}

/// The archive of the made-up run.
fn frozen(folder: &Folder) -> Vec<u8> {
    let run = stored(folder, |_| ());
    folder.xt("freeze").args(["-o", "model.tar.zst"]).input(text(&run)).run().expect(0);
    fs::read(folder.at("model.tar.zst")).unwrap()
}

fn file<'a>(files: &'a mut Files, path: &str) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(name, _)| name == path).unwrap_or_else(|| panic!("no {path}")).1
}

fn document<M: xt_core::field::Manifest>(files: &mut Files, path: &str) -> M {
    M::decode(&parse(file(files, path)).unwrap()).unwrap()
}

/// What a forger does who knows the form: every digest of the bundle and of `SHA256SUMS` is made to fit the files.
fn fix_outer_digests(files: &mut Files) {
    let mut bundle: Bundle = document(files, "bundle.json");
    for member in &mut bundle.members {
        let path = member.file.path.to_string();
        let bytes = file(files, &path);
        (member.file.digest, member.file.bytes) = (Digest::of(bytes), bytes.len() as u64);
    }
    let digest = |name: &str| {
        bundle.members.iter().find(|member| member.file.path.as_str() == format!("manifests/{name}.json")).unwrap()
    };
    let [run, plan, dataset, custody, trace] =
        ["run", "plan", "dataset", "custody", "trace"].map(|name| digest(name).file.digest);
    bundle = Bundle { run, plan, dataset: Some(dataset), custody, trace, ..bundle };
    let text = bundle.write().canonical();
    *file(files, "bundle.json") = text.into_bytes();
    fix_sums(files);
}

/// Verifies from a folder without any store.
fn verify(bytes: &[u8]) -> Outcome {
    let folder = Folder::new();
    folder.write("bundle.tar.zst", bytes);
    let outcome = folder.xt("freeze").args(["verify", "bundle.tar.zst"]).run();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "verifying leaves nothing behind");
    outcome
}

fn codes(outcome: &Outcome) -> Vec<(String, String)> {
    let document = outcome.document();
    let Some(Value::List(faults)) = document.get("faults") else { panic!("{}", outcome.stdout) };
    let text = |fault: &Value, key| fault.get(key).and_then(Value::as_str).unwrap().to_string();
    faults.iter().map(|fault| (text(fault, "pointer"), text(fault, "code"))).collect()
}

#[test]
fn a_succeeded_run_becomes_a_bundle_that_a_stranger_verifies() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    let outcome = folder.xt("freeze").args(["-o", "model.tar.zst"]).input(text(&run)).run().expect(0);
    assert_eq!(outcome.text("/run"), run.id().to_string());
    let id = outcome.text("/id");
    let report = verify(&fs::read(folder.at("model.tar.zst")).unwrap()).expect(0);
    assert_eq!((report.text("/bundle"), report.text("/run")), (id.clone(), run.id().to_string()));
    assert_eq!(report.document().get("verified"), Some(&Value::Bool(true)));
    assert!(report.stderr.contains("nobody vouches"), "{}", report.stderr);
    let store = Store::open(&folder.at(".xt")).unwrap();
    let name = format!("bundles/{}", id.trim_start_matches("sha256:"));
    assert_eq!(store.reference(&name).unwrap().map(|found| found.digest.to_string()), Some(id.clone()));
    let stored = folder.xt("freeze").args(["verify", &id]).run().expect(0);
    assert_eq!(stored.stdout, report.stdout, "a stored bundle verifies alike");
}

#[test]
fn plain_tools_check_an_archive_too() {
    let folder = Folder::new();
    frozen(&folder);
    let script = "zstd -dc model.tar.zst | tar x && sha256sum -c --strict SHA256SUMS && sha256sum bundle.json";
    let output = Command::new("sh").args(["-euc", script]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with(": OK")).count(), 14, "{text}");
    let id = folder.xt("freeze").args(["verify", "model.tar.zst"]).run().expect(0).text("/bundle");
    assert!(text.lines().last().unwrap().starts_with(id.trim_start_matches("sha256:")), "{text}");
}

#[test]
fn ls_lists_every_file_in_order() {
    let folder = Folder::new();
    frozen(&folder);
    let listed = folder.xt("freeze").args(["ls", "model.tar.zst"]).run().expect(0).documents();
    let paths: Vec<&str> = listed.iter().map(|line| line.get("path").and_then(Value::as_str).unwrap()).collect();
    assert_eq!(paths[..3], ["bundle.json", "SHA256SUMS", "manifests/candidate.json"]);
    assert_eq!(
        paths[8..13],
        ["model/config.json", "model/model.safetensors", "trace/steps.jsonl", "log/stderr", "log/stdout"]
    );
    assert!(paths[13..].iter().all(|path| path.starts_with("data/")) && paths.len() == 15, "{paths:?}");
}

/// How many bundles have a name in the store.
fn bundles(folder: &Folder) -> usize {
    let names = Store::open(&folder.at(".xt")).unwrap().references().unwrap();
    names.iter().filter(|name| name.name.as_str().starts_with("bundles/")).count()
}

#[test]
fn no_other_ending_than_success_is_frozen_and_nothing_appears() {
    for status in [Status::Failed, Status::Cancelled, Status::Exhausted, Status::Held, Status::Lost] {
        let folder = Folder::new();
        let run = stored(&folder, |run| {
            run.status = status;
            run.cause = "the worker exited with code 1".into();
            run.exit.code = Some(1);
            run.progress.completed = false;
            run.quarantined = std::mem::take(&mut run.artifacts);
        });
        let refused = folder.xt("freeze").args(["-o", "model.tar.zst"]).input(text(&run)).run().expect(15);
        assert_eq!(refused.stdout, "");
        for word in ["bundle.status", "bundle.exit", "bundle.progress", "bundle.quarantined", "bundle.artifact"] {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
        }
        assert!(refused.stderr.contains("the worker exited with code 1"), "{}", refused.stderr);
        assert!(!folder.at("model.tar.zst").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        assert_eq!(bundles(&folder), 0);
    }
}

#[test]
fn a_partial_run_is_refused_although_it_succeeded() {
    let folder = Folder::new();
    let run = stored(&folder, |run| {
        run.progress.planned = 2;
        run.progress.steps = 2;
    });
    let refused = folder.xt("freeze").input(text(&run)).run().expect(15);
    assert!(refused.stderr.contains("/progress/planned") && refused.stderr.contains("/progress/steps"));
}

#[test]
fn a_record_that_the_store_does_not_hold_counts_for_nothing() {
    let folder = Folder::new();
    let mut run = stored(&folder, |run| run.status = Status::Failed);
    run.status = Status::Succeeded;
    folder.xt("freeze").input(text(&run)).run().expect(11);
    let forged = text(&run).replace("\"seed\":7", "\"seed\":8");
    let refused = folder.xt("freeze").input(forged).run().expect(10);
    assert!(refused.stderr.contains("id.mismatch"), "{}", refused.stderr);
    folder.xt("freeze").input("").run().expect(10);
    folder.xt("freeze").input("{}").run().expect(10);
}

#[test]
fn a_missing_object_is_a_failure_of_the_store() {
    let folder = Folder::new();
    let run = stored(&folder, |run| run.artifacts[1].digest = Digest::of(b"never written"));
    let failed = folder.xt("freeze").args(["-o", "model.tar.zst"]).input(text(&run)).run().expect(11);
    assert!(failed.stderr.contains("store.missing"), "{}", failed.stderr);
    assert!(!folder.at("model.tar.zst").exists());
}

/// Flips one bit of `object` in the packs of the store.
fn damage(folder: &Folder, object: &[u8]) {
    let mut hit = 0;
    for entry in fs::read_dir(folder.at(".xt/packs")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|end| end == "pack")
            && let Some(at) = bytes.windows(object.len()).position(|window| window == object)
        {
            bytes[at] ^= 1;
            hit += 1;
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        }
    }
    assert_eq!(hit, 1);
}

#[test]
fn a_damaged_object_is_named_and_nothing_is_frozen() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    let weights = &evidence::outputs()[1].1;
    damage(&folder, weights);
    let failed = folder.xt("freeze").args(["-o", "model.tar.zst"]).input(text(&run)).run().expect(11);
    assert!(failed.stderr.contains("store.damaged"), "{}", failed.stderr);
    assert!(failed.stderr.contains(&Digest::of(weights).to_string()), "{}", failed.stderr);
    assert!(!folder.at("model.tar.zst").exists());
    assert_eq!(bundles(&folder), 0);
}

#[test]
fn a_stored_bundle_does_not_verify_once_an_object_of_it_is_damaged() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    let id = folder.xt("freeze").input(text(&run)).run().expect(0).text("/id");
    folder.xt("freeze").args(["verify", &id]).run().expect(0);
    damage(&folder, evidence::DATA[0].1);
    let failed = folder.xt("freeze").args(["verify", &id]).run().expect(11);
    assert!(failed.stderr.contains(&Digest::of(evidence::DATA[0].1).to_string()), "{}", failed.stderr);
}

/// Row N-08.
#[test]
fn n_08_the_same_run_gives_the_same_archive_wherever_and_by_whomever_it_is_frozen() {
    let (first, second) = (Folder::new(), Folder::new());
    let one = frozen(&first);
    let run = stored(&second, |_| ());
    let script = r#"
        chmod -R go-rwx .xt
        find .xt -exec touch -d 2001-02-03 {} +
        mkdir -p elsewhere/deep
        umask 077
        cd elsewhere/deep
        exec "$XT" --store ../../.xt -o "$OUT" -"#;
    if nix::unistd::geteuid().is_root() {
        for entry in fs::read_dir(second.at(".xt/packs")).unwrap() {
            chown(entry.unwrap().path(), Some(1000), Some(1000)).unwrap();
        }
    }
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(second.path()).env_clear();
    command.env("XT", xt_harness::programs().join("xt-freeze")).env("OUT", second.at("two.tar.zst"));
    command.env("PATH", "/usr/bin:/bin").env("XT_NOW", "2040-01-01T00:00:00Z");
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text(&run).as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let two = fs::read(second.at("two.tar.zst")).unwrap();
    assert!(one == two, "the archives differ");
    let mode = fs::metadata(second.at("two.tar.zst")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the umask was in force");
    // The control: another run, another archive.
    let third = Folder::new();
    let run = stored(&third, |run| run.cause = "all done".into());
    third.xt("freeze").args(["-o", "three.tar.zst"]).input(text(&run)).run().expect(0);
    assert!(fs::read(third.at("three.tar.zst")).unwrap() != one);
}

/// Row N-09.
#[test]
fn n_09_an_archive_compressed_anew_at_any_level_is_the_same_bundle() {
    let folder = Folder::new();
    let bytes = frozen(&folder);
    let id = verify(&bytes).expect(0).text("/bundle");
    let tar = zstd::decode_all(&*bytes).unwrap();
    for level in [1, 3, 19] {
        let again = zstd::encode_all(&*tar, level).unwrap();
        assert_eq!(verify(&again).expect(0).text("/bundle"), id, "level {level}");
    }
    let mut long = zstd::Encoder::new(Vec::new(), 19).unwrap();
    long.long_distance_matching(true).unwrap();
    std::io::Write::write_all(&mut long, &tar).unwrap();
    assert_eq!(verify(&long.finish().unwrap()).expect(0).text("/bundle"), id);
}

#[test]
fn a_cut_archive_is_refused_wherever_it_was_cut() {
    let bytes = frozen(&Folder::new());
    for length in [0, 1, 3, 10, bytes.len() / 4, bytes.len() / 2, bytes.len() - 5, bytes.len() - 1] {
        let report = verify(&bytes[..length]).expect(1);
        assert!(codes(&report).iter().any(|(pointer, _)| pointer == "(archive)"), "{length}: {}", report.stdout);
    }
    let tar = zstd::decode_all(&*bytes).unwrap();
    for length in (0..tar.len()).step_by(509) {
        verify(&zstd::encode_all(&tar[..length], 1).unwrap()).expect(1);
    }
}

/// A generator of places.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

#[test]
fn one_bit_in_each_of_a_thousand_random_places_of_an_archive_is_found_or_changes_nothing() {
    let good = frozen(&Folder::new());
    let id = xt_bundle::verify_archive(&*good).unwrap().report.bundle.unwrap();
    let (mut random, mut harmless) = (Random(7), 0);
    for _ in 0..1000 {
        let (mut bad, bit) = (good.clone(), random.below(good.len() * 8));
        bad[bit / 8] ^= 1 << (bit % 8);
        let verdict = xt_bundle::verify_archive(&*bad).unwrap();
        if verdict.report.verified {
            // Some bits of zstd's frame header mean nothing; every byte that comes out is the same.
            assert_eq!(
                (verdict.report.bundle, zstd::decode_all(&*bad).unwrap()),
                (Some(id), zstd::decode_all(&*good).unwrap())
            );
            harmless += 1;
        } else {
            let text = verdict.faults.to_string();
            assert!(
                text.contains("(archive)") || text.contains('/') || text.contains("SHA256SUMS"),
                "bit {bit}: {text}"
            );
        }
    }
    eprintln!("{harmless} of 1000 changed nothing");
    assert!(harmless < 20, "{harmless}");
}

#[test]
fn an_archive_cut_at_every_border_of_a_file_and_in_200_random_places_is_refused() {
    let good = frozen(&Folder::new());
    let tar = zstd::decode_all(&*good).unwrap();
    let mut at = 0;
    let mut borders = Vec::new();
    for (_, bytes) in unpack(&good) {
        borders.push(at);
        borders.push(at + 512);
        at += 512 + bytes.len().next_multiple_of(512);
        assert_eq!(
            &tar[at - bytes.len().next_multiple_of(512)..][..bytes.len()],
            bytes,
            "each header is one block here"
        );
    }
    borders.extend([at, at + 512]);
    assert_eq!(at + 1024, tar.len());
    let mut random = Random(9);
    let plain = borders.into_iter().chain((0..200).map(|_| random.below(tar.len()))).collect::<Vec<_>>();
    for length in plain {
        let verdict = xt_bundle::verify_archive(&*zstd::encode_all(&tar[..length], 1).unwrap()).unwrap();
        assert!(!verdict.report.verified, "the tar cut at {length}");
    }
    for _ in 0..200 {
        let length = random.below(good.len());
        let verdict = xt_bundle::verify_archive(&good[..length]).unwrap();
        assert!(!verdict.report.verified && verdict.faults.to_string().contains("(archive)"), "cut at {length}");
    }
}

#[test]
fn one_file_of_an_archive_is_read_verified_and_nothing_behind_it_is_looked_at() {
    let folder = Folder::new();
    let good = frozen(&folder);
    let files = unpack(&good);
    let id = verify(&good).expect(0).text("/bundle");
    let outcome = folder.xt("freeze").args(["cat", "model.tar.zst", "model/config.json"]).run().expect(0);
    let config = &files.iter().find(|(path, _)| path == "model/config.json").unwrap().1;
    assert_eq!(outcome.stdout.as_bytes(), config);
    assert!(outcome.stderr.contains(&id), "which bundle is said: {}", outcome.stderr);
    assert_eq!(folder.xt("freeze").args(["cat", &id, "model/config.json"]).run().expect(0).stdout, outcome.stdout);
    // What comes behind it may be gone, or wrong; what comes before may not.
    let tar = zstd::decode_all(&*good).unwrap();
    let at = tar.windows(config.len()).position(|window| window == config).unwrap();
    let cut = zstd::encode_all(&tar[..at + config.len()], 1).unwrap();
    folder.write("cut.tar.zst", &cut);
    assert_eq!(
        folder.xt("freeze").args(["cat", "cut.tar.zst", "model/config.json"]).run().expect(0).stdout,
        outcome.stdout
    );
    folder.xt("freeze").args(["cat", "cut.tar.zst", "trace/steps.jsonl"]).run().expect(10);
    let mut wrong = tar;
    wrong[at] ^= 1;
    folder.write("wrong.tar.zst", zstd::encode_all(&*wrong, 1).unwrap());
    let refused = folder.xt("freeze").args(["cat", "wrong.tar.zst", "model/config.json"]).run().expect(10);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("model/config.json"), "{}", refused.stderr);
    folder.xt("freeze").args(["cat", "wrong.tar.zst", "model/config.json", "-o", "out"]).run().expect(10);
    assert!(!folder.at("out").exists());
    let unlisted = folder.xt("freeze").args(["cat", "model.tar.zst", "model/none"]).run().expect(10);
    assert!(unlisted.stderr.contains("lists no such file"), "{}", unlisted.stderr);
    folder.xt("freeze").args(["cat", "-", "model/config.json"]).input(good.clone()).run().expect(2);
    folder.xt("freeze").args(["cat", "-", "model/config.json", "-o", "out"]).input(good).run().expect(0);
    assert_eq!(&fs::read(folder.at("out")).unwrap(), config);
}

/// One bit of each file, with and without the outer digests made to fit. The message names the file.
#[test]
fn a_flipped_bit_in_any_file_never_verifies() {
    let whole = unpack(&frozen(&Folder::new()));
    verify(&pack(&whole)).expect(0);
    let paths: Vec<String> = whole.iter().map(|(path, _)| path.clone()).collect();
    for path in &paths {
        let mut files = whole.clone();
        let bytes = file(&mut files, path);
        if bytes.is_empty() {
            bytes.push(0);
        }
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let report = verify(&pack(&files)).expect(1);
        assert!(report.stderr.contains(path.as_str()), "{path}: {}", report.stderr);
        if path.starts_with("model/") || path.starts_with("data/") || path.starts_with("log/") {
            fix_outer_digests(&mut files);
            let report = verify(&pack(&files)).expect(1);
            assert!(report.stderr.contains(path.as_str()), "{path} with fitting digests: {}", report.stderr);
            assert!(codes(&report).contains(&(path.clone(), "bundle.derived".to_string())), "{}", report.stdout);
        }
    }
}

/// The changes that someone would make on purpose, each with all outer digests made to fit.
#[test]
fn a_forger_who_makes_all_outer_digests_fit_contradicts_the_evidence() {
    type Forgery = fn(&mut Files);
    let replaced = |files: &mut Files, path: &str, from: &str, to: &str| {
        let text = String::from_utf8(file(files, path).clone()).unwrap();
        assert!(text.contains(from), "{path} {from}");
        *file(files, path) = text.replacen(from, to, 1).into_bytes();
    };
    let forgeries: [(&str, Forgery); 9] = [
        ("run#/plan", |files| {
            let mut plan: Plan = document(files, "manifests/plan.json");
            plan.intent.purpose = "another".into();
            plan.request = xt_core::fingerprint::request(&plan);
            *file(files, "manifests/plan.json") = plan.write().canonical().into_bytes();
        }),
        ("plan#/request", |files| {
            let mut plan: Plan = document(files, "manifests/plan.json");
            plan.seed = 8;
            *file(files, "manifests/plan.json") = plan.write().canonical().into_bytes();
        }),
        ("run#/seed", |files| {
            let mut run: Run = document(files, "manifests/run.json");
            run.seed = 8;
            *file(files, "manifests/run.json") = run.write().canonical().into_bytes();
        }),
        ("run#/status", |files| {
            let mut run: Run = document(files, "manifests/run.json");
            run.status = Status::Failed;
            *file(files, "manifests/run.json") = run.write().canonical().into_bytes();
        }),
        ("custody#", |files| {
            let mut custody: Custody = document(files, "manifests/custody.json");
            custody.host.kernel = "7.0.0".into();
            *file(files, "manifests/custody.json") = custody.write().canonical().into_bytes();
        }),
        ("custody#/controls/10/state", |files| {
            let mut custody: Custody = document(files, "manifests/custody.json");
            custody.controls[10].state = State::Unavailable;
            custody.overall = State::Unavailable;
            let mut run: Run = document(files, "manifests/run.json");
            run.custody = Some(custody.id());
            *file(files, "manifests/run.json") = run.write().canonical().into_bytes();
            *file(files, "manifests/custody.json") = custody.write().canonical().into_bytes();
        }),
        ("trace/steps.jsonl#/3", |files| {
            let text = String::from_utf8(file(files, "trace/steps.jsonl").clone()).unwrap();
            let line = text.lines().nth(2).unwrap();
            let changed = text.replace(line, &line.replace("\"learning_rate\":0.003", "\"learning_rate\":0.004"));
            assert_ne!(text, changed);
            *file(files, "trace/steps.jsonl") = changed.into_bytes();
        }),
        ("run#/trace/digest", |files| {
            // The chain is made to fit as well; the run record still names the true trace.
            let plan = evidence::plan();
            let mut steps = evidence::steps(&plan);
            steps[2].gradients = Digest::of(b"forged");
            *file(files, "trace/steps.jsonl") = evidence::chained(plan.id(), steps);
        }),
        ("manifests/candidate.json", |files| {
            let text = String::from_utf8(file(files, "manifests/candidate.json").clone()).unwrap();
            *file(files, "manifests/candidate.json") = text.replace("tiny", "huge").into_bytes();
        }),
    ];
    let whole = unpack(&frozen(&Folder::new()));
    for (pointer, forge) in forgeries {
        let mut files = whole.clone();
        forge(&mut files);
        assert_ne!(files, whole, "{pointer}");
        fix_outer_digests(&mut files);
        let report = verify(&pack(&files)).expect(1);
        assert!(codes(&report).iter().any(|(at, _)| at == pointer), "{pointer}: {}", report.stderr);
        let folder = Folder::new();
        folder.write("bundle.tar.zst", pack(&files));
        let refused = folder.xt("freeze").args(["import", "bundle.tar.zst"]).run().expect(10);
        assert!(refused.stderr.contains(pointer) && refused.stdout.is_empty(), "{pointer}: {}", refused.stderr);
        assert_eq!(Store::open(&folder.at(".xt")).unwrap().list().unwrap(), [], "nothing is visible");
    }
    // The control: a change that contradicts nothing makes another bundle.
    let mut files = whole.clone();
    replaced(&mut files, "manifests/run.json", "\"all steps done\"", "\"all done\"");
    fix_outer_digests(&mut files);
    assert_ne!(verify(&pack(&files)).expect(0).text("/bundle"), verify(&pack(&whole)).expect(0).text("/bundle"));
}

#[test]
fn files_that_are_missing_more_or_out_of_order_are_named() {
    let whole = unpack(&frozen(&Folder::new()));
    for index in 0..whole.len() {
        let mut files = whole.clone();
        let (path, bytes) = files.remove(index);
        let report = verify(&pack(&files)).expect(1);
        assert!(report.stderr.contains(&path), "{path}: {}", report.stderr);
        files.insert(if index == 0 { 1 } else { index - 1 }, (path.clone(), bytes));
        let report = verify(&pack(&files)).expect(1);
        let order = codes(&report).iter().any(|(_, code)| code == "member.order" || code == "bundle.first");
        assert!(order, "{path}: {}", report.stdout);
    }
    let mut files = whole.clone();
    files.push(("model/evil.bin".into(), vec![1]));
    let report = verify(&pack(&files)).expect(1);
    assert_eq!(codes(&report), [("model/evil.bin".to_string(), "member.unlisted".to_string())]);
    fix_sums(&mut files);
    assert!(codes(&verify(&pack(&files)).expect(1)).contains(&("SHA256SUMS".into(), "bundle.sums".into())));
}

#[test]
fn an_import_brings_all_that_a_replay_needs_and_can_be_frozen_to_the_same_archive() {
    let folder = Folder::new();
    let bytes = frozen(&folder);
    let other = Folder::new();
    let imported = other.xt("freeze").arg("import").input(bytes.clone()).run().expect(0);
    let store = Store::open(&other.at(".xt")).unwrap();
    let run: Run = store.manifest(imported.text("/run").parse().unwrap()).unwrap();
    for input in &run.inputs {
        assert_eq!(store.get(input.digest).unwrap().len() as u64, input.bytes);
    }
    let again = other.xt("freeze").args(["-o", "again.tar.zst", &run.id().to_string()]).run().expect(0);
    assert_eq!(again.stdout, imported.stdout);
    assert!(fs::read(other.at("again.tar.zst")).unwrap() == bytes);
    other.xt("freeze").args(["verify", &imported.text("/id")]).run().expect(0);
}

#[test]
fn flags_may_stand_before_and_behind_a_subcommand() {
    let folder = Folder::new();
    frozen(&folder);
    for arguments in [["--store", "one", "import", "model.tar.zst"], ["import", "model.tar.zst", "--store", "two"]] {
        folder.xt("freeze").args(arguments).run().expect(0);
    }
    assert!(folder.at("one/packs").is_dir() && folder.at("two/packs").is_dir());
    folder.xt("freeze").args(["--size", "thin", "verify", "model.tar.zst"]).run().expect(2);
    folder.xt("freeze").args(["run.json", "verify", "model.tar.zst"]).run().expect(2);
    // A run record may be called like a subcommand.
    let run = stored(&folder, |_| ());
    folder.write("verify", text(&run));
    folder.xt("freeze").arg("./verify").run().expect(0);
}

#[test]
fn a_thin_bundle_leaves_the_data_out_and_verifies() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.xt("freeze").args(["--size", "thin", "-o", "thin.tar.zst"]).input(text(&run)).run().expect(0);
    assert_eq!(bundles(&folder), 1);
    let bytes = fs::read(folder.at("thin.tar.zst")).unwrap();
    assert!(unpack(&bytes).iter().all(|(path, _)| !path.starts_with("data/")));
    verify(&bytes).expect(0);
}

#[test]
fn what_is_no_archive_is_called_what_it_is() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.write("run.json", text(&run));
    folder.xt("freeze").args(["-o", "m.tar.zst", "run.json"]).run().expect(0);
    for verb in ["verify", "ls", "import"] {
        let said = |argument: &str, code| folder.xt("freeze").args([verb, argument]).run().expect(code).stderr;
        assert!(said("run.json", 10).contains("input.document"), "{verb}");
        assert!(said("sha256:12", 2).contains("is no digest"), "{verb}");
        assert!(said("none.tar.zst", 20).contains("system.read"), "{verb}");
        said("m.tar.zst", 0);
    }
}

#[test]
fn several_runs_give_a_line_each_and_no_common_archive() {
    let folder = Folder::new();
    let one = stored(&folder, |_| ());
    let two = stored(&folder, |run| run.attempt = Name::new("run-2").unwrap());
    let both = format!("{}\n{}\n", text(&one), text(&two));
    assert_eq!(folder.xt("freeze").input(both.clone()).run().expect(0).documents().len(), 2);
    folder.xt("freeze").args(["-o", "x.tar.zst"]).input(both).run().expect(2);
    assert!(!folder.at("x.tar.zst").exists());
}

#[test]
fn hostile_archives_are_refused_and_nothing_outside_is_touched() {
    let whole = unpack(&frozen(&Folder::new()));
    verify(&compressed(&tar_of(&whole, |_| ()))).expect(0);
    let cases = hostile(&whole);
    assert!(cases.len() >= 20);
    for (name, bytes, rule) in cases {
        let folder = Folder::new();
        let place = folder.at("in/side");
        fs::create_dir_all(&place).unwrap();
        folder.write("outside", "untouched");
        folder.write("in/side/bundle.tar.zst", &bytes);
        for (tool, command, refused) in [("freeze", "verify", 1), ("freeze", "import", 10), ("replay", "--quiet", 10)] {
            let mut run = folder.xt(tool).args([command, "bundle.tar.zst"]).command();
            let output = run.current_dir(&place).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(refused), "{name}: xt-{tool} {command}: {stderr}");
            // What does not begin like an archive is a document for xt-replay, and a bad one.
            let rule = if tool == "replay" && rule == "archive.zstd" { "input." } else { rule };
            assert!(stderr.contains(rule), "{name}: expected {rule} in {stderr}");
            assert!(
                !stderr.chars().any(|c| c.is_control() && c != '\n'),
                "{name}: control characters reach the terminal"
            );
        }
        assert_eq!(fs::read(folder.at("outside")).unwrap(), b"untouched", "{name}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "{name} left something outside");
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2, "{name}: only archive and store are there");
        assert_eq!(Store::open(&place.join(".xt")).unwrap().list().unwrap(), [], "{name}: something is visible");
    }
}

/// Archives made by hand: name, bytes, and the code word that refuses them.
fn hostile(whole: &Files) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    use tar::EntryType;
    let sound = tar_of(whole, |_| ());
    let with = |change: &dyn Fn(&mut tar::Builder<Vec<u8>>)| compressed(&tar_of(whole, change));
    let entry = |kind: EntryType, name: &str, link: &str, mode: u32| {
        let (name, link) = (name.to_string(), link.to_string());
        with(&move |builder: &mut tar::Builder<Vec<u8>>| {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_size(0);
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        })
    };
    let behind = |bytes: &[u8]| [compressed(&sound).as_slice(), bytes].concat();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"evil"].concat();
    let regular = EntryType::Regular;
    vec![
        ("parent", entry(regular, "../evil", "", 0o644), "archive.path"),
        ("absolute", entry(regular, "/tmp/evil", "", 0o644), "archive.path"),
        ("inner parent", entry(regular, "a/../../evil", "", 0o644), "archive.path"),
        ("backslash", entry(regular, "..\\evil", "", 0o644), "archive.path"),
        ("drive", entry(regular, "C:evil", "", 0o644), "archive.path"),
        ("symlink", entry(EntryType::Symlink, "lnk", "/etc", 0o777), "archive.link"),
        ("hard link", entry(EntryType::Link, "lnk", "../outside", 0o644), "archive.link"),
        ("device", entry(EntryType::Char, "dev", "", 0o644), "archive.kind"),
        ("fifo", entry(EntryType::Fifo, "fifo", "", 0o644), "archive.kind"),
        ("directory", entry(EntryType::Directory, "dir", "", 0o755), "archive.kind"),
        ("sparse", entry(EntryType::GNUSparse, "sparse", "", 0o644), "archive.kind"),
        ("unknown kind", entry(EntryType::new(b'Z'), "z", "", 0o644), "archive.kind"),
        ("set-uid", entry(regular, "model/suid", "", 0o4755), "archive.form"),
        ("duplicate", entry(regular, "model/config.json", "", 0o644), "archive.duplicate"),
        ("case", entry(regular, "model/Config.json", "", 0o644), "archive.collision"),
        ("escape", entry(regular, "model/\x1b[31m", "", 0o644), "archive.path"),
        ("reserved", entry(regular, ".xt/FORMAT", "", 0o644), "archive.reserved"),
        (
            "not UTF-8",
            {
                let bytes = entry(regular, "model/x", "", 0o644);
                let mut tar = zstd::decode_all(&*bytes).unwrap();
                let at = tar.windows(8).rposition(|window| window == b"model/x\0").unwrap();
                tar[at + 6] = 0xff;
                let sum: u32 =
                    (0..512).map(|i| if (148..156).contains(&i) { 32 } else { u32::from(tar[at + i]) }).sum();
                tar[at + 148..at + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
                compressed(&tar)
            },
            "archive.path",
        ),
        ("second frame", behind(&compressed(b"evil")), "archive.trailing"),
        ("skippable frame", behind(&skippable), "archive.trailing"),
        ("junk", behind(b"evil"), "archive.trailing"),
        ("a second tar", compressed(&[sound.as_slice(), &sound].concat()), "archive.trailing"),
        ("no end", compressed(&sound[..sound.len() - 1024]), "archive.cut"),
        ("no zstd", sound.clone(), "archive.zstd"),
        ("empty", Vec::new(), "archive.zstd"),
    ]
}

fn tar_of(files: &Files, change: impl Fn(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_path(path).unwrap();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        builder.append(&header, bytes.as_slice()).unwrap();
    }
    change(&mut builder);
    builder.into_inner().unwrap()
}

fn compressed(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 1).unwrap()
}

#[test]
fn a_tool_that_is_killed_while_it_writes_a_file_leaves_nothing_beside_it() {
    let folder = Folder::new();
    let bytes = frozen(&folder);
    let before: BTreeSet<_> = entries_of(folder.path());
    let mut child = folder.xt("freeze").args(["cat", "-", "model/model.safetensors", "-o", "weights"]).start();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes[..bytes.len() / 2]).unwrap();
    let opened = PathBuf::from(format!("/proc/{}/fd", child.id()));
    // It has a file open in this folder that has no name.
    let nameless = || {
        let links = fs::read_dir(&opened).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(folder.path()) && link.to_string_lossy().ends_with("(deleted)")).count()
    };
    while nameless() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it waits for the rest of its input");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "killed");
    assert_eq!(entries_of(folder.path()), before);
    drop(stdin);
    let cat = ["cat", "-", "model/model.safetensors", "-o", "weights"];
    folder.xt("freeze").args(cat).input(bytes).run().expect(0);
    assert_eq!(entries_of(folder.path()).difference(&before).count(), 1, "control: the file itself");
}

fn entries_of(path: &std::path::Path) -> BTreeSet<std::ffi::OsString> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}
