//! A scaffold of every family is a candidate that compiles as it is and trains, with the true worker.

use std::path::Path;

use xt_core::verb::scaffold::{FAMILIES, words};
use xt_harness::{Folder, programs};

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
        other => panic!("a scaffold of {other} was never trained: say what it learns from"),
    }
}

/// A scaffold of this family, over its dataset.
fn scaffold(folder: &Folder, family: &str) -> String {
    let dataset = folder.xt("compile").arg("dataset").args(admit(folder, family)).run().expect(0);
    folder.write("dataset.json", &dataset.stdout);
    folder.xt("compile").args(["scaffold", family, "--dataset", "dataset.json"]).run().expect(0).stdout
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
    scaffold(&folder, "gpt");
    assert!(asked("mlp", &[]).expect(10).stderr.contains("the dataset holds text, which has no rows of numbers"));
}
