//! `xt-log lineage`: what came from what, read off the documents of a store.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use frozen::stored;
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_harness::Folder;

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/frozen.rs"]
mod frozen;

/// The ends of all links, each with its role.
fn links(folder: &Folder, arguments: &[&str], end: &str) -> BTreeSet<(String, String)> {
    let outcome = folder.xt("log").arg("lineage").args(arguments).run().expect(0);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap().to_string();
    outcome.documents().iter().map(|link| (text(link, "role"), text(link, end))).collect()
}

#[test]
fn a_model_leads_back_to_its_data_and_the_data_forward_to_the_bundle() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    let bundle = folder.xt("freeze").input(run.encode().canonical()).run().expect(0).text("/id");
    let plan = evidence::plan();
    let weights = run.artifacts.iter().find(|file| file.path.as_str() == "model/model.safetensors").unwrap().digest;
    let data = Digest::of(evidence::DATA[0].1);
    let expected = [
        ("model/model.safetensors", run.id()),
        ("plan", run.plan),
        ("candidate", plan.candidate.id()),
        ("dataset", plan.dataset_id().unwrap()),
        ("a.txt", data),
    ];
    let up = links(&folder, &[&weights.to_string()], "from");
    for (role, digest) in expected {
        assert!(up.contains(&(role.to_string(), digest.to_string())), "{role}: {up:?}");
    }
    let down = links(&folder, &["--down", &data.to_string()], "to");
    for (role, id) in [("run", bundle), ("model/model.safetensors", weights.to_string())] {
        assert!(down.contains(&(role.to_string(), id.clone())), "{role} {id}: {down:?}");
    }
    // A document stands for its digest, as a file and on standard input.
    let of_run = links(&folder, &[&run.id().to_string()], "from");
    folder.write("run.json", run.encode().canonical());
    assert_eq!(links(&folder, &["run.json"], "from"), of_run);
    let piped = folder.xt("log").args(["lineage", "-"]).input(run.encode().canonical()).run().expect(0);
    assert_eq!(
        piped.documents().len(),
        folder.xt("log").args(["lineage", "run.json"]).run().expect(0).documents().len()
    );
    assert_ne!(of_run, up);
    folder.write("other.json", plan.encode().canonical());
    assert_ne!(links(&folder, &["other.json"], "from"), of_run, "another document, another answer");
    // The control: nothing that came from the model is among what the model came from.
    assert!(!up.iter().any(|(role, _)| role == "run"), "{up:?}");
    let dot = folder.xt("log").args(["lineage", "--dot", &weights.to_string()]).run().expect(0).stdout;
    assert!(dot.starts_with("digraph") && dot.contains(&format!("\"{}\" -> \"{}\"", run.id().hex(), weights.hex())));
}

#[test]
fn other_bytes_that_look_like_documents_are_passed_over_and_what_is_unknown_is_said() {
    let folder = Folder::new();
    stored(&folder, |_| ());
    folder.write("odd", "{\"schema\":\"xt.run/1\",\"plan\":7}");
    folder.write("torn", "{\"schema\":");
    folder.xt("store").args(["put", "odd", "torn"]).run().expect(0);
    let unknown = Digest::of(b"nowhere").to_string();
    let outcome = folder.xt("log").args(["lineage", &unknown]).run().expect(11);
    assert!(outcome.stderr.contains(&unknown), "{}", outcome.stderr);
    let odd = Digest::of(b"{\"schema\":\"xt.run/1\",\"plan\":7}").to_string();
    assert_eq!(links(&folder, &[&odd], "from"), BTreeSet::new());
}

#[test]
fn what_came_from_something_withdrawn_is_marked_exactly_and_no_longer_verifies() {
    let folder = Folder::new();
    let run = stored(&folder, |_| ());
    folder.write("run.json", run.encode().canonical());
    let bundle = folder.xt("freeze").args(["run.json", "-o", "m.tar.zst"]).run().expect(0).text("/id");
    let data = Digest::of(evidence::DATA[0].1).to_string();
    folder.write("unrelated", "something else");
    let unrelated = folder.xt("store").args(["put", "unrelated"]).run().expect(0).text("/digest");
    let said = folder.xt("log").args(["withdraw", &unrelated, "--why", "a control"]).run().expect(0);
    assert_eq!(said.documents().len(), 1, "nothing came from it");
    for target in [bundle.as_str(), "m.tar.zst"] {
        folder.xt("freeze").args(["verify", target]).run().expect(0);
    }
    let down = folder.xt("log").args(["lineage", "--down", &data]).run().expect(0).documents();
    let ends = |lines: &[Value], key: &str| -> BTreeSet<String> {
        lines.iter().filter_map(|line| line.get(key)?.as_str().map(str::to_owned)).collect()
    };
    let said = folder.xt("log").args(["withdraw", &data, "--why", "mislabelled"]).run().expect(0).documents();
    assert_eq!(said[0].get("why").and_then(Value::as_str), Some("mislabelled"));
    assert_eq!(ends(&said[1..], "digest"), ends(&down, "to"), "exactly what came from it");
    for target in [bundle.as_str(), "m.tar.zst"] {
        let report = folder.xt("freeze").args(["verify", target]).run().expect(1);
        assert!(report.stderr.contains("mislabelled") && report.stderr.contains(&data), "{}", report.stderr);
    }
    let up = folder.xt("log").args(["lineage", &bundle]).run().expect(0).documents();
    for line in &up {
        let Some(Value::List(withdrawn)) = line.get("withdrawn") else { panic!("{line:?}") };
        let end = line.get("from").and_then(Value::as_str).unwrap();
        let marked = withdrawn.iter().any(|digest| digest.as_str() == Some(&data));
        let came = end == data || ends(&down, "to").contains(end);
        assert_eq!(marked, came, "{end}");
    }
    // Whoever freezes it again is told, and gets what was asked for.
    let again = folder.xt("freeze").arg("run.json").run().expect(0);
    assert!(again.stderr.contains("mislabelled") && again.text("/id") == bundle, "{}", again.stderr);
    let why = ["withdraw", data.as_str(), "--why"];
    for nothing in ["", " \t"] {
        let told = folder.xt("log").args(why).arg(nothing).run().expect(2);
        assert!(told.stderr.contains("say why"), "{}", told.stderr);
    }
    // Elsewhere nobody has withdrawn anything, and verifying needs no store.
    folder.xt("freeze").args(["--store", "none", "verify", "m.tar.zst"]).run().expect(0);
    let nowhere = Digest::of(b"nowhere").to_string();
    folder.xt("log").args(["withdraw", &nowhere, "--why", "x"]).run().expect(11);
}
