//! Licence and classes: declared where data is admitted and where a run is frozen, carried into the bundle, told by it and in
//! the words of other standards, and never told otherwise by a bundle that holds the data.
#![allow(clippy::unwrap_used)]

use std::fs;

use forge::{Files, fix_sums, pack, unpack};
use xt_core::canonical::{Value, parse};
use xt_harness::{Folder, Outcome, Xt, programs};

#[path = "../lib/core/tests/common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;
#[path = "support/forge.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod forge;

/// A folder with the record of a run that learned from data admitted with some flags.
struct World(Folder);

impl World {
    fn new(declared: &[&str]) -> Self {
        let world = Self(Folder::new());
        world.0.write("a.txt", "a".repeat(5000));
        let dataset = world.xt("compile").args(["dataset", "a.txt"]).args(declared).run().expect(0);
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/plan/seeds/in/candidate.json");
        let candidate = fs::read_to_string(golden).unwrap();
        let named = candidate.find("sha256:").unwrap();
        world.0.write("candidate.json", candidate.replace(&candidate[named..named + 71], &dataset.text("/id")));
        let plan = world.xt("compile").arg("candidate.json").run().expect(0);
        let run = world.xt("run").input(plan.stdout).run().expect(0);
        world.0.write("run.json", run.stdout);
        world
    }

    fn xt(&self, tool: &str) -> Xt {
        self.0.xt(tool).env("XT_TRAIN", programs().join("xt-stand-in"))
    }

    fn freeze(&self, flags: &[&str]) -> Outcome {
        self.xt("freeze").args(["run.json", "-o", "model.tar.zst"]).args(flags).run()
    }

    fn verify(&self, archive: &str) -> Outcome {
        self.xt("freeze").args(["verify", archive]).run()
    }
}

fn member(document: &Value, pointer: &str) -> String {
    document.pointer(pointer).unwrap_or(&Value::Null).canonical()
}

#[test]
fn what_is_declared_of_data_and_bundle_is_told_by_the_bundle_and_who_declares_nothing_gets_what_he_had() {
    let world = World::new(&["--licence", "CC-BY-4.0", "--class", "personal,confidential"]);
    let bundle =
        world.freeze(&["--licence", "MIT OR Apache-2.0", "--class", "confidential,personal,internal"]).expect(0);
    let terms = r#"{"classes":["internal","confidential","personal"],"licence":"MIT OR Apache-2.0"}"#;
    let data = r#"{"classes":["confidential","personal"],"licence":"CC-BY-4.0"}"#;
    let verified = world.verify("model.tar.zst").expect(0);
    for document in [bundle.document(), verified.document()] {
        assert_eq!((member(&document, "/terms"), member(&document, "/data_terms")), (terms.into(), data.into()));
    }
    let said = "declared of its data: licence CC-BY-4.0, confidential, personal";
    assert!(verified.stderr.contains(said), "{}", verified.stderr);
    // The control: a document without terms has neither field, and is as it was before there were any.
    let silent = World::new(&[]);
    let bundle = silent.freeze(&[]).expect(0).document();
    assert!(bundle.get("terms").is_none() && bundle.get("data_terms").is_none());
}

#[test]
fn data_that_is_not_for_everybody_goes_into_no_bundle_that_does_not_say_so() {
    let world = World::new(&["--class", "personal", "--class", "confidential"]);
    let count = |flags: &[&str], faults: usize| {
        let refused = world.freeze(flags).expect(15);
        assert_eq!(refused.stderr.matches("bundle.class").count(), faults, "{}", refused.stderr);
        assert!(!world.0.at("model.tar.zst").exists());
        refused.stderr
    };
    assert!(count(&[], 2).contains("--size thin"));
    count(&["--class", "public"], 2);
    count(&["--class", "personal"], 1);
    // Without the data in it, and with all said, it is frozen.
    world.freeze(&["--size", "thin"]).expect(0);
    let whole = world.freeze(&["--class", "confidential,personal"]).expect(0);
    assert_eq!(member(&whole.document(), "/terms/licence"), "null");
    world.verify("model.tar.zst").expect(0);
    // Data for everybody asks for nothing.
    World::new(&["--class", "public", "--licence", "CC0-1.0"]).freeze(&[]).expect(0);
}

#[test]
fn a_bundle_whose_terms_were_altered_does_not_verify() {
    let world = World::new(&["--class", "personal", "--licence", "CC-BY-4.0"]);
    world.freeze(&["--class", "personal"]).expect(0);
    let archive = fs::read(world.0.at("model.tar.zst")).unwrap();
    let altered = |from: &str, to: &str| {
        let mut files: Files = unpack(&archive);
        let text = String::from_utf8(files[0].1.clone()).unwrap();
        assert!(text.contains(from), "{text}");
        let value = parse(text.replacen(from, to, 1).as_bytes()).unwrap();
        files[0].1 = value.canonical().into_bytes();
        fix_sums(&mut files);
        world.0.write("altered.tar.zst", pack(&files));
        world.verify("altered.tar.zst").expect(1)
    };
    // The terms of the bundle stand behind those of its data.
    let own = r#""terms":{"classes":["personal"],"licence":null}"#;
    assert!(altered(own, r#""terms":{"classes":[],"licence":null}"#).stdout.contains("bundle.class"));
    assert!(altered("CC-BY-4.0", "CC0-1.0").stdout.contains("bundle.derived"));
    let order = altered(own, r#""terms":{"classes":["personal","internal"],"licence":null}"#);
    assert!(order.stdout.contains("terms.classes"), "{}", order.stdout);
    let nonsense = altered(own, r#""terms":{"classes":["personal"],"licence":"CC BY 4"}"#);
    assert!(nonsense.stdout.contains("terms.licence"), "{}", nonsense.stdout);
    // The control: what was taken apart and put together again verifies.
    let mut files = unpack(&archive);
    fix_sums(&mut files);
    world.0.write("same.tar.zst", pack(&files));
    world.verify("same.tar.zst").expect(0);
}

#[test]
fn terms_that_are_none_are_refused_before_anything_is_stored() {
    let folder = Folder::new();
    folder.write("a.txt", "a");
    for (flags, said) in [
        (["--licence", "MTI"], "is no SPDX expression"),
        (["--licence", "free for all"], "is no SPDX expression"),
        (["--class", "secret"], "possible values: public, internal, confidential, personal"),
        (["--class", "personal,public"], "what is public is of no other class"),
    ] {
        let refused = folder.xt("compile").args(["dataset", "a.txt"]).args(flags).run().expect(2);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        assert!(!folder.at(".xt").exists());
    }
    folder.xt("compile").args(["dataset", "a.txt", "--license", "MIT"]).run().expect(0);
}

#[test]
fn a_bill_of_materials_and_a_crate_name_licences_and_classes() {
    let world = World::new(&["--licence", "CC-BY-4.0", "--class", "personal"]);
    world.freeze(&["--licence", "MIT OR Apache-2.0", "--class", "personal"]).expect(0);
    world.xt("freeze").args(["export", "--mlbom", "--rocrate", "model.tar.zst", "out"]).run().expect(0);
    let read = |name: &str| parse(&fs::read(world.0.at("out").join(name)).unwrap()).unwrap();
    let bill = read("bom.cdx.json");
    let model = r#"[{"expression":"MIT OR Apache-2.0"}]"#;
    assert_eq!(member(&bill, "/metadata/component/licenses"), model);
    let Some(Value::List(parts)) = bill.get("components") else { panic!("{}", bill.canonical()) };
    let data: Vec<&Value> = parts.iter().filter(|part| part.get("licenses").is_some()).collect();
    assert_eq!(data.len(), 1);
    assert_eq!(member(data[0], "/licenses"), r#"[{"expression":"CC-BY-4.0"}]"#);
    assert_eq!(member(data[0], "/data/0/classification"), r#""personal""#);
    let graph = read("ro-crate-metadata.json");
    let Some(Value::List(entities)) = graph.get("@graph") else { panic!("{}", graph.canonical()) };
    let of = |id: &str| {
        entities
            .iter()
            .find(|entity| entity.get("@id").and_then(Value::as_str) == Some(id))
            .unwrap_or_else(|| panic!("{id}"))
    };
    let named = |entity: &Value| entity.pointer("/license/@id").and_then(Value::as_str).map(str::to_owned).unwrap();
    assert_eq!(member(of(&named(of("./"))), "/identifier"), r#""MIT OR Apache-2.0""#);
    let data = entities.iter().find(|entity| member(entity, "/@id").starts_with(r#""data/"#)).unwrap();
    assert_eq!(named(data), "https://spdx.org/licenses/CC-BY-4.0");
    assert_eq!(member(of(&named(data)), "/identifier"), r#""CC-BY-4.0""#);
    assert_eq!(member(data, "/keywords"), r#"["personal"]"#);
}
