//! A scaffold of every family is a candidate that compiles as it is and trains, with the true worker.

use std::path::Path;

use xt_core::verb::scaffold::{FAMILIES, words};
use xt_harness::{Folder, programs};

const SPEC: &str = r#"{"schema":"xt.evaluation-spec/1","name":"held","seed":1,"slices":"none","parameters":"trained",
    "evaluator":{"kind":"classification","batch":7,"resamples":100,"confidence":0.95,"bins":5},
    "data":{"dataset":"DATASET","split":"train"},"leakage":{"minimum_bytes":32,"shared":"refuse"}}"#;

/// A fitting dataset for a family, as the arguments that admit it.
fn admit(folder: &Folder, family: &str) -> Vec<&'static str> {
    match family {
        "gpt" | "llama" => {
            folder.write("text.txt", "Call me Ishmael. Some years ago, never mind how long precisely. ".repeat(20));
            vec!["text.txt"]
        }
        "encoder" => {
            let texts = "Call me,ham\nWin now!,spam\n".repeat(8);
            folder.write("labels.csv", format!("text,label\n{texts}"));
            vec!["--format", "csv", "labels.csv"]
        }
        "mlp" => {
            let row = |number: u32| format!("{number},{},{}\n", ["red", "blue"][(number % 2) as usize], number * 3 % 7);
            folder.write("table.csv", "size,colour,gain\n".to_string() + &(0..40).map(row).collect::<String>());
            vec!["--format", "csv", "table.csv"]
        }
        "cnn" => {
            let images: Vec<u8> = (0..16 * 36u32).map(|place| (place * 37 % 251) as u8).collect();
            let labels: Vec<u8> = (0..16u8).map(|image| image % 3).collect();
            let head = |sizes: &[u8]| {
                let count = u8::try_from(sizes.len()).unwrap_or(0);
                [vec![0, 0, 8, count], sizes.iter().flat_map(|size| [0, 0, 0, *size]).collect()].concat()
            };
            folder.write("images/t-images", [head(&[16, 6, 6]), images].concat());
            folder.write("images/t-labels", [head(&[16]), labels].concat());
            vec!["--format", "idx", "images"]
        }
        "torchscript" => {
            folder.write("module.pt", include_bytes!("../lib/trainer/tests/reference/module.pt"));
            folder.write("module.json", include_str!("../lib/trainer/tests/reference/module.json"));
            let row =
                |number: u32| format!("{number},1,{},0.5,-1,{}\n", number % 5, ["p", "q", "r"][(number % 3) as usize]);
            folder.write("rows.csv", "a,b,c,d,e,t\n".to_string() + &(0..40).map(row).collect::<String>());
            vec!["--format", "csv", "rows.csv"]
        }
        other => panic!("a scaffold of {other} was never trained: say what it learns from"),
    }
}

/// A scaffold of this family, over its dataset.
fn scaffold(folder: &Folder, family: &str) -> String {
    let dataset = folder.xt("compile").arg("dataset").args(admit(folder, family)).run().expect(0);
    folder.write("dataset.json", &dataset.stdout);
    let module = if family == "torchscript" { &["--module", "module.pt", "--tensors", "module.json"][..] } else { &[] };
    let arguments = [&["scaffold", family, "--dataset", "dataset.json"], module].concat();
    folder.xt("compile").args(arguments).run().expect(0).stdout
}

#[test]
fn every_family_has_a_scaffold_that_compiles_as_it_is_and_trains() {
    if !Path::new(&programs()).join("xt-train").exists() {
        println!("not run here: xt-train is not built");
        return;
    }
    for family in words(FAMILIES) {
        let folder = Folder::new();
        let candidate = scaffold(&folder, family);
        folder.xt("compile").input(candidate.as_str()).run().expect(0);
        let short = candidate.replace("\"steps\": 200", "\"steps\": 2").replace("_steps\": 10", "_steps\": 1");
        let plan = folder.xt("compile").input(short).run().expect(0);
        let run = folder.xt("run").input(plan.stdout).run().expect(0);
        let found = run.document();
        let steps = found.pointer("/progress/steps").map(xt_core::canonical::Value::canonical);
        assert_eq!((run.text("/status").as_str(), steps.as_deref()), ("succeeded", Some("2")), "{family}");
    }
}

/// A module goes all the way: frozen, measured on other rows, and replayed from its archive in an empty store.
#[test]
fn a_module_is_frozen_measured_and_replayed_bit_for_bit() {
    if !Path::new(&programs()).join("xt-train").exists() {
        println!("not run here: xt-train is not built");
        return;
    }
    let folder = Folder::new();
    let candidate = scaffold(&folder, "torchscript").replace("\"steps\": 200", "\"steps\": 12");
    let plan = folder.xt("compile").input(candidate).run().expect(0).stdout;
    folder.write("run.json", folder.xt("run").input(plan).run().expect(0).stdout);
    folder.xt("freeze").args(["run.json", "-o", "model.tar.zst"]).run().expect(0);
    let row = |number: u32| format!("{number},1,{},0.25,-2,{}\n", number % 4, ["p", "q", "r"][(number % 3) as usize]);
    folder.write("held.csv", "a,b,c,d,e,t\n".to_string() + &(100..130).map(row).collect::<String>());
    let held = folder.xt("compile").args(["dataset", "--format", "csv", "held.csv"]).run().expect(0).text("/id");
    folder.write("spec.json", SPEC.replace("DATASET", &held));
    let plan = folder.xt("compile").args(["evaluate", "spec.json", "model.tar.zst"]).run().expect(0).stdout;
    let measured = |plan: &str| folder.xt("run").input(plan).run().expect(0).document();
    let metrics =
        |found: &xt_core::canonical::Value| found.pointer("/metrics").map(xt_core::canonical::Value::canonical);
    let (first, again) = (measured(&plan), measured(&plan));
    assert!(metrics(&first).is_some_and(|found| found.contains("accuracy")), "{}", first.canonical());
    assert_eq!(metrics(&first), metrics(&again));
    let replayed = folder.xt("replay").args(["--store", "empty", "model.tar.zst"]).run().expect(0);
    assert_eq!(replayed.text("/outcome"), "equal");
}

/// Rows that a family does not read, a target that is none, and a target of text are refused by name.
#[test]
fn what_a_family_of_rows_cannot_read_has_no_scaffold() {
    let folder = Folder::new();
    let candidate = scaffold(&folder, "mlp");
    assert!(
        candidate
            .contains(r#"{"holds":{"kind":"category","levels":["blue","red"],"missing":"refuse"},"name":"colour"}"#)
    );
    let asked = |family: &str, more: &[&str]| {
        folder.xt("compile").args(["scaffold", family, "--dataset", "dataset.json"]).args(more).run()
    };
    let named = asked("mlp", &["--target", "colour"]).expect(0).stdout;
    assert!(named.contains(r#""outputs": 2"#) && named.contains("cross-entropy"), "{named}");
    let refused = asked("mlp", &["--target", "colours"]).expect(10).stderr;
    assert!(refused.contains("column.target") && refused.contains("size, colour, gain"), "{refused}");
    assert!(asked("cnn", &[]).expect(10).stderr.contains("a model `cnn` does not read what `table` gives"));
    asked("gpt", &["--target", "gain"]).expect(2);
    asked("torchscript", &[]).expect(2);
    scaffold(&folder, "gpt");
    assert!(asked("mlp", &[]).expect(10).stderr.contains("the dataset holds text, which has no rows of numbers"));
}
