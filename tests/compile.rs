//! `xt-compile`: admission of data and candidates to plans.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use xt_core::canonical::{Value, parse};
use xt_harness::Folder;

/// A complete candidate for the dataset `DATASET`.
const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"tiny",
    "model":{"kind":"gpt","layers":1,"heads":1,"width":8,"inner":16,"context":8,"vocabulary":256,
        "dropout":0.1,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"sgd","learning_rate":0.5,"momentum":0.9,"nesterov":true,"weight_decay":0.0,"decay":"all"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":{"kind":"none"},
    "batching":{"samples":2,"remainder":"keep","accumulation":1,"accumulation_remainder":"flush"},
    "length":{"kind":"epochs","epochs":2},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

fn admitted(folder: &Folder) -> String {
    folder.write("text.txt", "Call me Ishmael. Some years ago, never mind how long precisely, I thought.");
    folder.xt("compile").args(["dataset", "text.txt"]).run().expect(0).text("/id")
}

fn candidate(folder: &Folder, changes: &[(&str, &str)]) -> String {
    let mut text = CANDIDATE.replace("DATASET", &admitted(folder));
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

fn code_words(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.rsplit_once('[')?.1.strip_suffix(']')).collect()
}

#[test]
fn a_range_of_seeds_gives_a_plan_each_and_one_fingerprint() {
    let folder = Folder::new();
    let plans =
        folder.xt("compile").args(["--seed", "1..5"]).input(candidate(&folder, &[])).run().expect(0).documents();
    let seeds: Vec<String> = plans.iter().map(|plan| plan.pointer("/seed").unwrap().canonical()).collect();
    assert_eq!(seeds, ["1", "2", "3", "4", "5"]);
    assert!(plans.iter().all(|plan| plan.get("fingerprint") == plans[0].get("fingerprint")));
    assert!(plans[1..].iter().all(|plan| plan.get("request") != plans[0].get("request")));
    // 74 bytes: 9 samples of 8 tokens, 5 micro-batches an epoch, two epochs.
    assert_eq!(plans[0].pointer("/work/steps").unwrap().canonical(), "10");
}

#[test]
fn seeds_that_are_no_seeds_are_a_wrong_command_line() {
    let folder = Folder::new();
    for seed in ["", "x", "-1", "5..1", "1..2..3", "1.5", "18446744073709551616", "0..9999999999"] {
        folder.xt("compile").arg(format!("--seed={seed}")).input(candidate(&folder, &[])).run().expect(2);
    }
    let many = folder.xt("compile").arg("--seed=0..1000000").input(candidate(&folder, &[])).run().expect(2);
    assert!(many.stderr.contains("at most 1000000 seeds"), "{}", many.stderr);
    let last = folder.xt("compile").args(["--seed", "18446744073709551615"]).input(candidate(&folder, &[])).run();
    assert_eq!(last.expect(0).document().pointer("/seed").unwrap().canonical(), "18446744073709551615");
}

#[test]
fn every_fault_is_named_at_once_and_nothing_is_written() {
    let folder = Folder::new();
    let bad = candidate(
        &folder,
        &[
            ("\"layers\":1,", ""),
            ("\"dropout\":0.1", "\"dropout\":1.0"),
            ("\"samples\":2", "\"samples\":\"4\""),
            ("\"order\":\"shuffled\"", "\"order\":\"shufle\""),
            ("\"regime\":\"exact\"", "\"regime\":\"exact\",\"shufle\":true"),
        ],
    );
    let before = listing(&folder);
    let refused = folder.xt("compile").args(["--refusals", "json", "-o", "plan.json"]).input(bad).run().expect(10);
    let mut words = code_words(&refused.stderr);
    words.sort_unstable();
    assert_eq!(words, ["field.choice", "field.missing", "field.range", "field.type", "field.unknown"]);
    let Some(Value::List(faults)) = refused.document().get("faults").cloned() else { panic!("{}", refused.stdout) };
    assert_eq!(faults.len(), 5);
    assert_eq!(listing(&folder), before);
}

fn listing(folder: &Folder) -> Vec<String> {
    let output = Command::new("find").arg(folder.path()).args(["-type", "f", "-printf", "%P %s\n"]).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Row D-07: a mistyped option was ignored.
#[test]
fn a_typing_error_in_a_key_is_refused_with_the_keys_that_exist() {
    let folder = Folder::new();
    let refused = folder.xt("compile").input(candidate(&folder, &[("\"heads\"", "\"head\"")])).run().expect(10);
    assert!(
        refused.stderr.contains("/model/head: unknown field") && refused.stderr.contains("heads"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_dataset_that_is_not_there_or_not_the_named_one_is_refused() {
    let folder = Folder::new();
    let other = format!("sha256:{}", "0".repeat(64));
    let text = candidate(&folder, &[]);
    let named = parse(text.as_bytes()).unwrap().pointer("/data/dataset").unwrap().as_str().unwrap().to_string();
    folder.xt("compile").input(text.replace(&named, &other)).run().expect(11);
    let dataset = folder.xt("compile").args(["dataset", "text.txt", "-o", "dataset.json"]).run().expect(0);
    assert_eq!(dataset.stdout, "");
    let refused = folder.xt("compile").args(["--dataset", "dataset.json"]).input(text.replace(&named, &other)).run();
    assert_eq!(code_words(&refused.expect(10).stderr), ["data.other"]);
}

#[test]
fn an_edited_document_whose_id_no_longer_fits_is_refused() {
    let folder = Folder::new();
    admitted(&folder);
    folder.xt("compile").args(["dataset", "text.txt", "-o", "dataset.json"]).run().expect(0);
    let edited = fs::read_to_string(folder.at("dataset.json")).unwrap().replace("text.txt", "test.txt");
    folder.write("dataset.json", edited);
    let refused = folder.xt("compile").args(["--dataset", "dataset.json"]).input(candidate(&folder, &[])).run();
    assert!(refused.expect(10).stderr.contains("dataset#/id"));
}

/// Rows N-05 and N-06: order of creation, order of walking, locale.
#[test]
fn n_05_and_n_06_equal_trees_give_one_dataset_however_they_came_about() {
    let names = ["a/x", "a-b", "a0", "B", "é"];
    let ids: Vec<String> = [names.to_vec(), names.iter().rev().copied().collect()]
        .iter()
        .zip(["C", "en_US.UTF-8"])
        .map(|(order, locale)| {
            let folder = Folder::new();
            for name in order {
                folder.write(format!("tree/{name}"), name);
            }
            let dataset = folder.xt("compile").args(["dataset", "tree"]).env("LC_ALL", locale).run().expect(0);
            let Some(Value::List(members)) = dataset.document().get("members").cloned() else { panic!() };
            let paths: Vec<_> = members.iter().map(|m| m.get("path").unwrap().as_str().unwrap().to_string()).collect();
            assert_eq!(paths, ["B", "a-b", "a/x", "a0", "é"]);
            dataset.text("/id")
        })
        .collect();
    assert_eq!(ids[0], ids[1]);
}

/// Row S-10: a rewrite of the same size with the old time stamp.
#[test]
fn a_rewrite_that_keeps_size_and_time_gives_another_digest() {
    let folder = Folder::new();
    folder.write("x", "x=1");
    let before = folder.xt("compile").args(["dataset", "x"]).run().expect(0).text("/id");
    let time = fs::metadata(folder.at("x")).unwrap().modified().unwrap();
    folder.write("x", "x=2");
    fs::File::options().write(true).open(folder.at("x")).unwrap().set_modified(time).unwrap();
    assert_ne!(folder.xt("compile").args(["dataset", "x"]).run().expect(0).text("/id"), before);
}

/// Row S-09: line ends are content.
#[test]
fn bytes_are_kept_as_they_are_and_sha256sum_agrees() {
    let folder = Folder::new();
    folder.write("dos", "a\r\n");
    folder.write("unix", "a\n");
    let dataset = folder.xt("compile").args(["dataset", "dos", "unix"]).run().expect(0);
    let sums = Command::new("sha256sum").args(["dos", "unix"]).current_dir(folder.path()).output().unwrap();
    for (index, line) in String::from_utf8(sums.stdout).unwrap().lines().enumerate() {
        let expected = format!("sha256:{}", line.split(' ').next().unwrap());
        assert_eq!(dataset.text(&format!("/members/{index}/digest")), expected);
    }
}

/// Rows S-12 and S-13: links and special files.
#[test]
fn links_and_special_files_are_refused_by_name_without_waiting() {
    let folder = Folder::new();
    folder.write("tree/good", "text");
    symlink("..", folder.at("tree/up")).unwrap();
    symlink("/etc/passwd", folder.at("tree/secret")).unwrap();
    symlink("nowhere", folder.at("tree/dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.at("tree/pipe")).status().unwrap().success());
    let refused = folder.xt("compile").args(["dataset", "tree"]).run().expect(10);
    for name in ["up", "secret", "dangling", "pipe"] {
        assert!(refused.stderr.contains(name), "{name}: {}", refused.stderr);
    }
    symlink("tree", folder.at("link")).unwrap();
    folder.xt("compile").args(["dataset", "link"]).run().expect(10);
    assert!(!folder.at(".xt").exists());
}

/// Rows D-09, D-10 and J-13: empty files, other encodings, marks.
#[test]
fn text_that_is_none_is_refused_with_its_offset_and_bytes_are_an_explicit_choice() {
    let folder = Folder::new();
    folder.write("bad", b"ab\xffc");
    folder.write("mark", b"\xef\xbb\xbfabc");
    folder.write("empty", b"");
    let refused = folder.xt("compile").args(["dataset", "bad", "mark", "empty"]).run().expect(10);
    assert_eq!(code_words(&refused.stderr), ["data.encoding", "data.byte-order-mark", "data.empty"]);
    assert!(refused.stderr.contains("byte 2 is not UTF-8"));
    folder.xt("compile").args(["dataset", "--format", "bytes", "bad", "mark"]).run().expect(0);
}

#[test]
fn splits_and_exclusions_are_in_the_manifest_with_their_reasons() {
    let folder = Folder::new();
    for number in 0..20 {
        folder.write(format!("d/{number:02}"), format!("text {number}"));
    }
    let arguments = ["dataset", "d", "--split", "dev=100", "--exclude", "07=withdrawn by its author"];
    let dataset = folder.xt("compile").args(arguments).run().expect(0);
    let counts = dataset.document().get("counts").unwrap().canonical();
    assert!(counts.contains("\"dev\":{\"bytes\":") && counts.contains("\"groups\":18"), "{counts}");
    assert_eq!(dataset.text("/exclusions/0/reason"), "withdrawn by its author");
    // What is wrong by itself is a wrong command line; what no file bears out is a refused input.
    for (bad, code, says) in [
        (&["--split", "dev=0"][..], 2, "1 to 999"),
        (&["--split", "dev=2000"], 2, "1 to 999"),
        (&["--split", "train=10"], 2, "other than train"),
        (&["--split", "dev=10", "--split", "dev=20"], 2, "dev twice"),
        (&["--exclude", "07"], 2, "PATH=REASON"),
        (&["--exclude", "07=x", "--exclude", "07=y"], 2, "07 twice"),
        (&["--exclude", "99=x"], 10, "no offered file"),
        (&["--split", "dev=999", "--split", "test=999"], 10, "too few"),
    ] {
        let told = folder.xt("compile").args(["dataset", "d"]).args(bad).run().expect(code);
        assert!(told.stderr.contains(says) && told.stdout.is_empty(), "{bad:?}: {}", told.stderr);
    }
}

#[test]
fn a_file_that_cannot_be_taken_gives_one_reason_and_none_that_only_follows_from_it() {
    let folder = Folder::new();
    folder.write("a.txt", "a text");
    symlink("a.txt", folder.at("link")).unwrap();
    let arguments = ["dataset", "link", "--exclude", "link=a link", "--split", "dev=100"];
    let refused = folder.xt("compile").args(arguments).run().expect(10);
    assert_eq!(code_words(&refused.stderr), ["input.special"]);
    folder.write("empty.csv", "");
    let refused = folder.xt("compile").args(["dataset", "--format", "csv", "empty.csv"]).run().expect(10);
    assert_eq!(code_words(&refused.stderr), ["data.empty"]);
    // The control: with nothing left in the dataset that is what is told.
    let refused = folder.xt("compile").args(["dataset", "a.txt", "--exclude", "a.txt=no"]).run().expect(10);
    assert_eq!(code_words(&refused.stderr), ["data.empty"]);
}

/// Row D-05: tokenizer and model that do not fit.
#[test]
fn a_vocabulary_smaller_than_the_tokenizer_is_refused_before_training() {
    let folder = Folder::new();
    let small = candidate(&folder, &[("\"vocabulary\":256", "\"vocabulary\":100")]);
    let refused = folder.xt("compile").input(small).run().expect(10);
    assert!(refused.stderr.contains("text.txt"), "{}", refused.stderr);
}

#[test]
fn an_explanation_is_for_people_and_no_document() {
    let folder = Folder::new();
    let explained = folder.xt("compile").arg("--explain").input(candidate(&folder, &[])).run().expect(0);
    assert!(explained.stdout.contains("10 (2 epochs)"), "{}", explained.stdout);
}

/// What is written compiles as it is, with each optimiser and schedule, and says what its fields mean.
#[test]
fn a_scaffold_compiles_as_it_is_and_its_fields_are_explained() {
    let folder = Folder::new();
    folder.write("text.txt", "Call me Ishmael. Some years ago, never mind how long precisely. ".repeat(20));
    let dataset = folder.xt("compile").args(["dataset", "text.txt"]).run().expect(0);
    folder.write("dataset.json", &dataset.stdout);
    let scaffold = |more: &[&str]| {
        let arguments = [&["scaffold", "gpt", "--dataset", "dataset.json"], more].concat();
        folder.xt("compile").args(&arguments).run()
    };
    for optimizer in ["adamw", "adam", "lion", "adafactor", "sgd"] {
        let candidate = scaffold(&["--optimizer", optimizer]).expect(0).stdout;
        let plan = folder.xt("compile").input(candidate).run().expect(0).document();
        assert_eq!(plan.pointer("/candidate/optimizer/kind").unwrap().as_str(), Some(optimizer));
    }
    for schedule in ["constant", "linear", "cosine", "step", "inverse-square-root", "warmup-stable-decay"] {
        let candidate = scaffold(&["--schedule", schedule]).expect(0).stdout;
        let plan = folder.xt("compile").input(candidate).run().expect(0).document();
        assert_eq!(plan.pointer("/candidate/schedule/kind").unwrap().as_str(), Some(schedule));
    }
    let explained = scaffold(&["--explain"]).expect(0).stdout;
    assert!(explained.contains("/optimizer/beta1 0.9: Decay of the first moment."), "{explained}");
    assert!(explained.contains("One of constant, linear, cosine, step"), "{explained}");
    scaffold(&["--optimizer", "rmsprop"]).expect(2);
    folder.xt("compile").args(["scaffold", "gpt"]).run().expect(2);
}

/// Records are read as records and texts with labels as such; what a family cannot read gets no scaffold.
#[test]
fn a_scaffold_reads_what_its_dataset_holds_or_is_refused() {
    let folder = Folder::new();
    folder.write("pairs.jsonl", "{\"prompt\":\"Call me\",\"completion\":\" Ishmael.\"}\n".repeat(12));
    folder.write(
        "labels.csv",
        "text,label\nCall me,ham\nWin now!,spam\n".to_string() + &"Some years ago,ham\n".repeat(20),
    );
    folder.write("text.txt", "Call me Ishmael. ".repeat(20));
    for (name, format) in [("pairs.jsonl", "jsonl"), ("labels.csv", "csv"), ("text.txt", "text")] {
        let dataset = folder.xt("compile").args(["dataset", "--format", format, name]).run().expect(0).stdout;
        folder.write(format!("{format}.json"), dataset);
    }
    let scaffold = |family: &str, format: &str| {
        folder.xt("compile").args(["scaffold", family, "--dataset", &format!("{format}.json")]).run()
    };
    for (family, format, tokenizer) in
        [("gpt", "jsonl", "records"), ("llama", "jsonl", "records"), ("encoder", "csv", "labelled")]
    {
        let candidate = scaffold(family, format).expect(0).stdout;
        let plan = folder.xt("compile").input(candidate).run().expect(0).document();
        assert_eq!(plan.pointer("/candidate/tokenizer/kind").unwrap().as_str(), Some(tokenizer), "{family}");
    }
    let encoder = scaffold("encoder", "csv").expect(0).stdout;
    assert!(encoder.contains(r#""levels": ["ham","spam"]"#) && encoder.contains(r#""outputs": 2"#), "{encoder}");
    for (family, format) in [("gpt", "csv"), ("encoder", "text")] {
        let refused = scaffold(family, format).expect(10);
        assert!(refused.stdout.is_empty() && refused.stderr.contains("tokenizer.format"), "{}", refused.stderr);
    }
    let unknown = encoder.replace(r#"["ham","spam"]"#, r#"["ham","eggs"]"#);
    let refused = folder.xt("compile").input(unknown).run().expect(10).stderr;
    assert!(refused.contains("line 3: the label: expected one of \"ham\", \"eggs\", found \"spam\""), "{refused}");
}
