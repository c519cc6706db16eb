//! `xt-freeze`: signatures by a key that somebody trusts, and bundles as folders.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use frozen::stored;
use xt_core::canonical::{Value, parse};
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::{Bundle, Verification};
use xt_core::manifest::run::Run;
use xt_core::verb::statement;
use xt_harness::{Folder, Outcome};
use xt_signing::{Envelope, PrivateKey};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;

/// A folder with a pair of keys for each algorithm, and a bundle that is signed with the first.
fn signed() -> (Folder, Bundle) {
    let folder = Folder::new();
    for algorithm in ["p256", "ed25519"] {
        folder.xt("freeze").args(["keygen", "--algorithm", algorithm, &format!("{algorithm}.pem")]).run().expect(0);
    }
    let run = stored(&folder, |_| ()).encode().canonical();
    let arguments = ["-o", "model.tar.zst", "--sign", "p256.pem"];
    let outcome = folder.xt("freeze").args(arguments).input(run).run().expect(0);
    let bundle = Bundle::decode(&parse(outcome.stdout.as_bytes()).unwrap()).unwrap();
    (folder, bundle)
}

fn verify(folder: &Folder, arguments: &[&str]) -> (Outcome, Verification) {
    let outcome = folder.xt("freeze").arg("verify").args(arguments).run();
    let report = Verification::decode(&parse(outcome.stdout.as_bytes()).unwrap()).unwrap();
    (outcome, report)
}

fn codes(report: &Verification) -> Vec<&str> {
    report.faults.iter().map(|fault| fault.code.as_str()).collect()
}

#[test]
fn a_signed_bundle_verifies_with_its_key_and_with_no_other() {
    let (folder, bundle) = signed();
    let (outcome, report) = verify(&folder, &["--key", "p256.pem.pub", "model.tar.zst"]);
    assert_eq!(outcome.code, Some(0));
    let predicates: Vec<&str> = report.signatures.iter().map(|signature| signature.predicate.as_str()).collect();
    assert_eq!(predicates, ["https://slsa.dev/provenance/v1", "urn:xt:custody:1"]);
    // In the store, too, by the bundle's id.
    let id = bundle.id().to_string();
    assert_eq!(verify(&folder, &["--key", "p256.pem.pub", &id]).1.signatures, report.signatures);
    // The control: another key has signed nothing.
    let (outcome, report) = verify(&folder, &["--key", "ed25519.pem.pub", "model.tar.zst"]);
    assert_eq!((outcome.code, report.verified, codes(&report)), (Some(1), false, vec!["signature.missing"]));
    let (outcome, report) = verify(&folder, &["--key", "p256.pem.pub", "--key", "ed25519.pem.pub", "model.tar.zst"]);
    assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.missing"]), "all must have signed");
}

#[test]
fn an_unsigned_bundle_is_valid_and_said_to_be_unsigned() {
    let (folder, _) = signed();
    let (outcome, report) = verify(&folder, &["model.tar.zst"]);
    assert_eq!((outcome.code, report.signatures.len()), (Some(0), 0));
    assert!(outcome.stderr.contains("nobody vouches"), "{}", outcome.stderr);
    fs::remove_file(folder.at("model.tar.zst.intoto.jsonl")).unwrap();
    assert_eq!(verify(&folder, &["model.tar.zst"]).0.code, Some(0));
    let (outcome, report) = verify(&folder, &["--key", "p256.pem.pub", "model.tar.zst"]);
    assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.missing"]));
}

#[test]
fn signatures_that_lie_beside_an_archive_come_along_when_it_is_imported() {
    let (folder, bundle) = signed();
    let other = Folder::new();
    for name in ["model.tar.zst", "model.tar.zst.intoto.jsonl", "p256.pem.pub"] {
        other.write(name, fs::read(folder.at(name)).unwrap());
    }
    let imported = other.xt("freeze").args(["import", "model.tar.zst"]).run().expect(0);
    assert!(imported.stderr.contains("2 signatures came along"), "{}", imported.stderr);
    let (outcome, report) = verify(&other, &["--key", "p256.pem.pub", &bundle.id().to_string()]);
    assert_eq!((outcome.code, report.signatures.len()), (Some(0), 2));
    // The control: without the file there is nothing to come along, and that is said.
    fs::remove_file(other.at("model.tar.zst.intoto.jsonl")).unwrap();
    let bare = other.xt("freeze").args(["--store", "bare", "import", "model.tar.zst"]).run().expect(0);
    assert!(bare.stderr.contains("none came along"), "{}", bare.stderr);
    let id = bundle.id().to_string();
    let (outcome, _) = verify(&other, &["--store", "bare", "--key", "p256.pem.pub", &id]);
    assert_eq!(outcome.code, Some(1));
    other.write("model.tar.zst.intoto.jsonl", "no envelope");
    other.xt("freeze").args(["--store", "worse", "import", "model.tar.zst"]).run().expect(10);
}

#[test]
fn whoever_signs_later_adds_signatures_beside_those_of_others() {
    let (folder, bundle) = signed();
    let id = bundle.id().to_string();
    folder.xt("freeze").args(["sign", "--key", "ed25519.pem", &id]).run().expect(0);
    let both = ["--key", "p256.pem.pub", "--key", "ed25519.pem.pub"];
    let (outcome, report) = verify(&folder, &[both.as_slice(), &[&id]].concat());
    let algorithms: Vec<&str> = report.signatures.iter().map(|signature| signature.algorithm.as_str()).collect();
    assert_eq!((outcome.code, algorithms), (Some(0), vec!["p256", "p256", "ed25519", "ed25519"]));
    let lines = folder.xt("freeze").args(["sign", "--key", "ed25519.pem", "model.tar.zst"]).run().expect(0).stdout;
    fs::write(folder.at("more.jsonl"), lines).unwrap();
    let arguments = ["--key", "ed25519.pem.pub", "--signatures", "more.jsonl", "model.tar.zst"];
    assert_eq!(verify(&folder, &arguments).0.code, Some(0));
}

#[test]
fn every_flipped_bit_of_a_signature_takes_it_away() {
    let (folder, _) = signed();
    let path = folder.at("model.tar.zst.intoto.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    let (line, rest) = good.split_once('\n').unwrap();
    let line = line.as_bytes();
    let places = (0..line.len()).step_by(line.len() / 40);
    let mut refused = 0;
    for place in places {
        let mut flipped = line.to_vec();
        flipped[place] ^= 4;
        fs::write(&path, [&flipped, b"\n".as_slice(), rest.as_bytes()].concat()).unwrap();
        let outcome = folder.xt("freeze").args(["verify", "--key", "p256.pem.pub", "model.tar.zst"]).run();
        // The name that a signature gives its key decides nothing.
        let in_key =
            String::from_utf8_lossy(line).find("\"keyid\":\"").is_some_and(|at| (at..at + 75).contains(&place));
        assert!(in_key || matches!(outcome.code, Some(1 | 10)), "{place}: {:?} {}", outcome.code, outcome.stderr);
        refused += usize::from(!in_key);
    }
    assert!(refused > 30, "{refused}");
    fs::write(&path, &good).unwrap();
    assert_eq!(verify(&folder, &["--key", "p256.pem.pub", "model.tar.zst"]).0.code, Some(0));
}

#[test]
fn a_statement_that_was_taken_away_from_beside_another_is_missed() {
    let (folder, _) = signed();
    let path = folder.at("model.tar.zst.intoto.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    for (kept, gone) in good.lines().zip([statement::CUSTODY, statement::PROVENANCE]) {
        fs::write(&path, kept).unwrap();
        let (outcome, report) = verify(&folder, &["--key", "p256.pem.pub", "model.tar.zst"]);
        assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.missing"]));
        assert!(outcome.stderr.contains(gone), "{}", outcome.stderr);
    }
    fs::write(&path, good).unwrap();
    assert_eq!(verify(&folder, &["--key", "p256.pem.pub", "model.tar.zst"]).0.code, Some(0));
}

#[test]
fn a_changed_envelope_beside_a_good_one_is_told_and_makes_the_answer_no() {
    let (folder, _) = signed();
    let good = fs::read_to_string(folder.at("model.tar.zst.intoto.jsonl")).unwrap();
    let line = parse(good.lines().next().unwrap().as_bytes()).unwrap();
    let change = |member: &str| {
        let Value::Object(mut members) = line.clone() else { panic!("an envelope is an object") };
        let Some(Value::List(signatures)) = members.get_mut("signatures") else { panic!("{line:?}") };
        let Value::Object(signature) = &mut signatures[0] else { panic!("{line:?}") };
        let member = if member == "payload" { members.get_mut("payload") } else { signature.get_mut(member) };
        let Some(Value::String(text)) = member else { panic!("{line:?}") };
        let other = if text.starts_with('e') { "f" } else { "e" };
        text.replace_range(..1, other);
        Value::Object(members).canonical()
    };
    let told = |extra: &str| {
        fs::write(folder.at("s.jsonl"), format!("{good}{extra}\n")).unwrap();
        verify(&folder, &["--key", "p256.pem.pub", "--signatures", "s.jsonl", "model.tar.zst"])
    };
    for changed in ["payload", "sig"] {
        let (outcome, report) = told(&change(changed));
        assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.broken"]), "{changed}");
        assert!(outcome.stderr.contains("envelope 3"), "{}", outcome.stderr);
    }
    // The controls: under the name of another key it is somebody else's, which is told; and nothing at all.
    let stranger = line.canonical().replace("\"keyid\":\"", "\"keyid\":\"x");
    let (outcome, _) = told(&stranger.replace("\"payload\":\"", "\"payload\":\"AAAA"));
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("not by a given key: 1 signature in"), "{}", outcome.stderr);
    let (outcome, _) = told("");
    assert!(outcome.code == Some(0) && !outcome.stderr.contains("given key"), "{}", outcome.stderr);
}

#[test]
fn a_signature_of_another_bundle_vouches_for_nothing() {
    let (folder, _) = signed();
    let run = stored(&folder, |run| run.cause = "completed, and told in other words".into()).encode().canonical();
    let arguments = ["-o", "other.tar.zst", "--sign", "p256.pem"];
    folder.xt("freeze").args(arguments).input(run).run().expect(0);
    let arguments = ["--key", "p256.pem.pub", "--signatures", "other.tar.zst.intoto.jsonl", "model.tar.zst"];
    let (outcome, report) = verify(&folder, &arguments);
    assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.subject", "signature.subject"]));
}

#[test]
fn a_statement_that_says_something_else_of_the_same_files_vouches_for_nothing() {
    let (folder, bundle) = signed();
    let key = PrivateKey::from_pem(&fs::read_to_string(folder.at("p256.pem")).unwrap(), "p256.pem").unwrap();
    let good = fs::read_to_string(folder.at("model.tar.zst.intoto.jsonl")).unwrap();
    let custody = good.lines().nth(1).unwrap();
    let said = |kind: &str, predicate: &str| {
        let mut statement = statement::provenance(&bundle, &Run::decode(&run_of(&folder, &bundle)).unwrap());
        let Value::Object(members) = &mut statement else { panic!("a statement is an object") };
        members.insert("predicateType".into(), kind.into());
        if !predicate.is_empty() {
            members.insert("predicate".into(), parse(predicate.as_bytes()).unwrap());
        }
        let envelope = Envelope::sign(&statement, &key).write().canonical();
        fs::write(folder.at("s.jsonl"), format!("{envelope}\n{custody}\n")).unwrap();
        verify(&folder, &["--key", "p256.pem.pub", "--signatures", "s.jsonl", "model.tar.zst"])
    };
    for (kind, predicate) in [
        ("https://slsa.dev/verification_summary/v1", "{\"verificationResult\":\"FAILED\"}"),
        (statement::CUSTODY, "{\"lies\":true,\"profile\":\"full\"}"),
        (statement::PROVENANCE, "{}"),
    ] {
        let (outcome, report) = said(kind, predicate);
        assert_eq!((outcome.code, codes(&report)), (Some(1), vec!["signature.subject", "signature.missing"]), "{kind}");
    }
    // The control: the same statement, unchanged.
    assert_eq!(said(statement::PROVENANCE, "").0.code, Some(0));
}

fn run_of(folder: &Folder, bundle: &Bundle) -> Value {
    parse(folder.xt("store").args(["get", &bundle.run.to_string()]).run().expect(0).stdout.as_bytes()).unwrap()
}

#[test]
fn keys_of_openssl_sign_and_its_tools_check_what_we_sign() {
    let (folder, _) = signed();
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "pkcs8.pem"]);
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sec1.pem"]);
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "ed.pem"]);
    for key in ["pkcs8", "sec1", "ed"] {
        let (private, public) = (format!("{key}.pem"), format!("{key}.pub"));
        openssl(&["pkey", "-in", &private, "-pubout", "-out", &public]);
        folder.xt("freeze").args(["sign", "--key", &private, "-o", "s.jsonl", "model.tar.zst"]).run().expect(0);
        let arguments = ["--key", &public, "--signatures", "s.jsonl", "model.tar.zst"];
        assert_eq!(verify(&folder, &arguments).0.code, Some(0), "{key}");
    }
}

#[test]
fn a_new_pair_of_keys_is_private_and_overwrites_nothing() {
    let (folder, _) = signed();
    let mode = fs::metadata(folder.at("p256.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(folder.at("p256.pem")).unwrap();
    folder.xt("freeze").args(["keygen", "p256.pem"]).run().expect(10);
    // Somebody's own key, without its public half: no half of another pair may appear beside it, nor remain.
    fs::copy(folder.at("p256.pem"), folder.at("own")).unwrap();
    folder.xt("freeze").args(["keygen", "own"]).run().expect(10);
    assert!(!folder.at("own.pub").exists());
    fs::write(folder.at("taken.pub"), "mine").unwrap();
    folder.xt("freeze").args(["keygen", "taken"]).run().expect(10);
    assert!(!folder.at("taken").exists() && fs::read(folder.at("taken.pub")).unwrap() == b"mine");
    assert_eq!(fs::read(folder.at("p256.pem")).unwrap(), before);
    let outcome = folder.xt("freeze").args(["sign", "--key", "p256.pem.pub", "model.tar.zst"]).run().expect(10);
    assert!(outcome.stderr.contains("PUBLIC KEY"), "{}", outcome.stderr);
}

#[test]
fn an_exported_folder_holds_the_files_of_its_sums_and_the_signature_of_model_signing() {
    let (folder, bundle) = signed();
    let arguments = ["export", "--sign", "p256.pem", "model.tar.zst", "out"];
    folder.xt("freeze").args(arguments).run().expect(0);
    let sums = Command::new("sha256sum").args(["-c", "--quiet", "SHA256SUMS"]).current_dir(folder.at("out")).status();
    assert!(sums.unwrap().success());
    let signature = parse(&fs::read(folder.at("out/model.sig")).unwrap()).unwrap();
    assert_eq!(
        signature.get("mediaType").and_then(Value::as_str),
        Some("application/vnd.dev.sigstore.bundle.v0.3+json")
    );
    let refused = folder.xt("freeze").args(["export", "model.tar.zst", "out"]).run().expect(10);
    assert!(refused.stderr.contains("exists"), "{}", refused.stderr);
    // From the store the same files, but for the signature.
    folder.xt("freeze").args(["export", &bundle.id().to_string(), "again"]).run().expect(0);
    fs::remove_file(folder.at("out/model.sig")).unwrap();
    let same = Command::new("diff").args(["-r", "out", "again"]).current_dir(folder.path()).status();
    assert!(same.unwrap().success());
    folder.xt("freeze").args(["export", "--hf", "model.tar.zst", "hf"]).run().expect(0);
    assert!(folder.at("hf/model.safetensors").is_file() && !folder.at("hf/bundle.json").exists());
}

#[test]
fn a_bundle_that_does_not_verify_is_neither_exported_nor_signed() {
    let (folder, _) = signed();
    let mut bytes = fs::read(folder.at("model.tar.zst")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(folder.at("bad.tar.zst"), bytes).unwrap();
    folder.xt("freeze").args(["export", "bad.tar.zst", "out"]).run().expect(10);
    folder.xt("freeze").args(["sign", "--key", "p256.pem", "bad.tar.zst"]).run().expect(10);
    let left: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|name| name == "out" || name.contains(".tmp")), "{left:?}");
}

#[test]
fn a_demanded_signature_that_is_nowhere_is_named_with_the_place_that_was_looked_at() {
    let (folder, _) = signed();
    fs::remove_file(folder.at("model.tar.zst.intoto.jsonl")).unwrap();
    let outcome = folder.xt("freeze").args(["verify", "--key", "p256.pem.pub", "model.tar.zst"]).run().expect(1);
    let says = ["model.tar.zst.intoto.jsonl", "there are no signatures here", "--signatures"];
    assert!(says.iter().all(|part| outcome.stderr.contains(part)), "{}", outcome.stderr);
}

#[test]
fn an_image_layout_has_every_file_as_a_blob_named_by_the_digest_of_the_bundle() {
    let (folder, bundle) = signed();
    folder.xt("freeze").args(["export", "--format", "oci", "model.tar.zst", "image"]).run().expect(0);
    let blob = |digest: &str| fs::read(folder.at("image/blobs/sha256").join(&digest["sha256:".len()..])).unwrap();
    let text = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let index = parse(&fs::read(folder.at("image/index.json")).unwrap()).unwrap();
    let manifest = parse(&blob(&text(&index, "/manifests/0/digest"))).unwrap();
    assert_eq!(text(&manifest, "/artifactType"), "application/vnd.cncf.model.manifest.v1+json");
    let Some(Value::List(layers)) = manifest.get("layers") else { panic!("{manifest:?}") };
    assert_eq!(layers.len(), bundle.members.len() + 2, "every member, bundle.json and SHA256SUMS");
    for member in &bundle.members {
        let layer = layers
            .iter()
            .find(|layer| {
                layer.pointer("/annotations/org.cncf.model.filepath").and_then(Value::as_str)
                    == Some(member.file.path.as_str())
            })
            .unwrap();
        assert_eq!(text(layer, "/digest"), member.file.digest.to_string());
        assert_eq!(xt_core::digest::Digest::of(&blob(&text(layer, "/digest"))), member.file.digest);
    }
    let config = parse(&blob(&text(&manifest, "/config/digest"))).unwrap();
    let Some(Value::List(ids)) = config.pointer("/modelfs/diffIds") else { panic!("{config:?}") };
    assert_eq!(ids.len(), layers.len());
    let blobs = fs::read_dir(folder.at("image/blobs/sha256")).unwrap().count();
    assert!(blobs <= layers.len() + 2 && !folder.at("image/incoming").exists(), "{blobs} blobs");
    // From the store the same.
    let id = bundle.id().to_string();
    folder.xt("freeze").args(["export", "--format", "oci", &id, "again"]).run().expect(0);
    let same = Command::new("diff").args(["-r", "image", "again"]).current_dir(folder.path()).status();
    assert!(same.unwrap().success());
    folder.xt("freeze").args(["export", "--format", "oci", "--hf", "model.tar.zst", "both"]).run().expect(2);
    folder.xt("freeze").args(["export", "--format", "oci", "--mlbom", "model.tar.zst", "both"]).run().expect(2);
}

#[test]
fn a_crate_and_a_bill_of_materials_name_every_file_with_its_digest_and_are_signed_too() {
    let (folder, bundle) = signed();
    let arguments = ["export", "--rocrate", "--mlbom", "--sign", "p256.pem", "model.tar.zst", "out"];
    folder.xt("freeze").args(arguments).run().expect(0);
    let [bill, metadata] =
        ["bom.cdx.json", "ro-crate-metadata.json"].map(|name| fs::read_to_string(folder.at("out").join(name)).unwrap());
    for member in &bundle.members {
        for text in [&bill, &metadata] {
            assert!(
                text.contains(&member.file.digest.hex()) && text.contains(member.file.path.as_str()),
                "{}",
                member.file.path
            );
        }
    }
    // In a folder of the model alone, too, the crate says what the run gave.
    folder.xt("freeze").args(["export", "--hf", "--rocrate", "model.tar.zst", "hf"]).run().expect(0);
    let alone = parse(&fs::read(folder.at("hf/ro-crate-metadata.json")).unwrap()).unwrap();
    let Some(Value::List(graph)) = alone.get("@graph") else { panic!("{alone:?}") };
    let run = graph.iter().find(|entity| entity.get("@id").and_then(Value::as_str) == Some("#run")).unwrap();
    assert!(run.get("result").unwrap().canonical().contains("model.safetensors"), "{run:?}");
    let bill = parse(bill.as_bytes()).unwrap();
    let hash = bill.pointer("/metadata/component/hashes/0/content").and_then(Value::as_str).unwrap();
    assert_eq!(hash, bundle.id().hex());
    let signature = fs::read_to_string(folder.at("out/model.sig")).unwrap();
    let payload = parse(signature.as_bytes()).unwrap();
    let payload = payload.pointer("/dsseEnvelope/payload").and_then(Value::as_str).unwrap().to_owned();
    let decoded = Command::new("base64")
        .arg("-d")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut decoded = decoded.unwrap();
    std::io::Write::write_all(&mut decoded.stdin.take().unwrap(), payload.as_bytes()).unwrap();
    let said = String::from_utf8(decoded.wait_with_output().unwrap().stdout).unwrap();
    assert!(said.contains("bom.cdx.json") && said.contains("ro-crate-metadata.json"), "{said}");
}
