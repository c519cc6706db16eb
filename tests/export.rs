//! `xt-log export`: what a run reported, in the forms of other programs. Those programs themselves read it in
//! `tests/ecosystem/curves`.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_core::canonical::Value;
use xt_harness::{Folder, Xt, programs};

/// A folder with the plan of three steps, and the tools, which find the stand-in.
struct World(Folder);

impl World {
    fn new() -> Self {
        let world = Self(Folder::new());
        world.0.write("a.txt", "a".repeat(5000));
        let id = world.xt("compile").args(["dataset", "a.txt"]).run().expect(0).text("/id");
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/plan/seeds/in/candidate.json");
        let candidate = fs::read_to_string(golden).unwrap();
        let named = candidate.find("sha256:").unwrap();
        world.0.write("candidate.json", candidate.replace(&candidate[named..named + 71], &id));
        world.xt("compile").args(["candidate.json", "-o", "plan.json"]).run().expect(0);
        world
    }

    fn xt(&self, tool: &str) -> Xt {
        self.0.xt(tool).env("XT_TRAIN", programs().join("xt-stand-in"))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.at(path)).unwrap()
    }
}

#[test]
fn a_run_is_exported_in_every_form_and_again_in_its_own_place() {
    let world = World::new();
    let attempt = world.xt("run").arg("plan.json").run().expect(0).text("/attempt");
    let said = world.xt("log").args(["tail", &attempt]).run().expect(0).documents();
    let steps = said.iter().filter(|message| message.pointer("/kind").and_then(Value::as_str) == Some("step")).count();
    assert!(steps > 1);
    let export = || {
        let forms = ["--csv", "steps.csv", "--tensorboard", "boards", "--dvclive", "dvclive", "--mlflow", "mlruns"];
        world.xt("log").args(["export", &attempt]).args(forms).run().expect(0);
        let events = fs::read_dir(world.0.at("boards").join(&attempt)).unwrap();
        let events: Vec<Vec<u8>> = events.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
        (
            world.read("steps.csv"),
            events,
            world.read("dvclive/plots/metrics/loss.tsv"),
            world.read("dvclive/metrics.json"),
        )
    };
    let first = export();
    assert_eq!(first.0.lines().count(), steps + 1);
    assert!(first.0.starts_with("step,seconds,gradient_norm,learning_rate,loss\n1,"), "{}", first.0);
    assert_eq!((first.1.len(), first.2.lines().count()), (1, steps + 1));
    assert_eq!(export(), first);
    let other = world.xt("run").args(["--operation-id", "other", "plan.json"]).run().expect(0).text("/attempt");
    world.xt("log").args(["export", &other, "--tensorboard", "boards", "--mlflow", "mlruns"]).run().expect(0);
    assert_eq!(fs::read_dir(world.0.at("boards")).unwrap().count(), 2, "runs lie beside each other");
}

#[test]
fn what_cannot_be_exported_is_said() {
    let world = World::new();
    world.xt("log").args(["export", "att-1"]).run().expect(2);
    let unknown = world.xt("log").args(["export", "att-1", "--csv", "x.csv"]).run();
    assert_ne!(unknown.code, Some(0));
    let attempt = world.xt("run").arg("plan.json").run().expect(0).text("/attempt");
    world.0.write("taken", "a file");
    let full = world.xt("log").args(["export", &attempt, "--dvclive", "taken"]).run().expect(20);
    assert!(full.stderr.contains("cannot write taken/"), "{}", full.stderr);
    assert_eq!(world.read("taken"), "a file");
}
