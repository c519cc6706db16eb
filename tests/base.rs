//! What training begins from, as the tools see it: scaffolds on a base, what fits and what does not, and where it came from.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;

use xt_core::canonical::{Value, parse};
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Field as _;
use xt_core::manifest::candidate::Model;
use xt_core::verb::configuration::configuration;
use xt_core::verb::parameters::parameters;
use xt_core::verb::weights::file;
use xt_harness::Folder;

const MODEL: &str = r#"{"kind":"llama","layers":2,"heads":2,"key_value_heads":1,"width":8,"inner":12,"context":8,
    "vocabulary":256,"tied":false,"rotary_base":10000.0,"dropout":0.0,"rms_norm_epsilon":1e-05,"initializer_range":0.02}"#;

fn model() -> Model {
    Model::read(&parse(MODEL.as_bytes()).unwrap(), "", &mut Faults::new()).unwrap()
}

/// The parameters of the model, each value a little above 0, and the same with one change.
fn tensors() -> BTreeMap<String, (Vec<u64>, Vec<f32>)> {
    let values = |shape: &[u64]| vec![0.125; usize::try_from(shape.iter().product::<u64>()).unwrap()];
    parameters(&model()).into_iter().map(|one| (one.name, (one.shape.clone(), values(&one.shape)))).collect()
}

fn offer(folder: &Folder, tensors: &BTreeMap<String, (Vec<u64>, Vec<f32>)>) {
    fs::create_dir_all(folder.at("tiny")).unwrap();
    fs::write(folder.at("tiny/model.safetensors"), file(tensors)).unwrap();
    fs::write(folder.at("tiny/config.json"), configuration(&model()).canonical()).unwrap();
}

fn admitted(folder: &Folder) {
    folder.write("text.txt", "Call me Ishmael. Some years ago, never mind how long precisely, I thought. ".repeat(20));
    let dataset = folder.xt("compile").args(["dataset", "text.txt"]).run().expect(0).stdout;
    folder.write("dataset.json", dataset);
}

fn scaffold(folder: &Folder) -> String {
    let arguments = ["scaffold", "llama", "--dataset", "dataset.json", "--base", "tiny"];
    let text = folder.xt("compile").args(arguments).run().expect(0).stdout;
    text.replace("\"samples\": 8", "\"samples\": 2").replace("\"steps\": 200", "\"steps\": 12")
}

#[test]
fn a_scaffold_on_a_base_pins_its_files_and_the_plan_reads_them() {
    let folder = Folder::new();
    admitted(&folder);
    offer(&folder, &tensors());
    let candidate = scaffold(&folder);
    let weights = Digest::of(&fs::read(folder.at("tiny/model.safetensors")).unwrap());
    let configuration = Digest::of(&fs::read(folder.at("tiny/config.json")).unwrap());
    let plan = folder.xt("compile").input(candidate.clone()).run().expect(0);
    let plan = &plan.documents()[0];
    let Some(Value::List(inputs)) = plan.get("inputs") else { panic!() };
    let base: Vec<String> = inputs
        .iter()
        .filter(|input| input.get("role").and_then(Value::as_str) == Some("base"))
        .map(|input| input.get("digest").and_then(Value::as_str).unwrap().to_string())
        .collect();
    let mut due = [weights.to_string(), configuration.to_string()];
    due.sort();
    assert_eq!(base, due);
    let explained = folder.xt("compile").arg("--explain").input(candidate.clone()).run().expect(0).stdout;
    assert!(explained.contains(&format!("base       safetensors {weights}")), "{explained}");
    assert!(explained.contains("parameters from the base"), "{explained}");
    let adapter = r#""adapter":{"kind":"none"}"#;
    let lora = r#""adapter":{"kind":"lora","rank":2,"alpha":4.0,"dropout":0.0,"targets":["*.q_proj"],"saved":[]}"#;
    assert!(candidate.contains(adapter), "{candidate}");
    let explained =
        folder.xt("compile").arg("--explain").input(candidate.replace(adapter, lora)).run().expect(0).stdout;
    assert!(explained.contains("parameters: LoRA of rank 2, alpha 4.0, dropout 0.0 on *.q_proj"), "{explained}");
}

#[test]
fn the_base_of_a_run_is_in_its_lineage_and_story_and_bundle() {
    let folder = Folder::new();
    admitted(&folder);
    offer(&folder, &tensors());
    let plan = folder.xt("compile").input(scaffold(&folder)).run().expect(0).stdout;
    let run = folder.xt("run").input(plan).run().expect(0);
    let attempt = run.text("/attempt");
    let weights = Digest::of(&fs::read(folder.at("tiny/model.safetensors")).unwrap());
    let story = folder.xt("log").args(["why", &attempt]).run().expect(0).stdout;
    assert!(story.contains(&format!("Its parameters began as those of safetensors {weights}")), "{story}");
    let lineage = folder.xt("log").args(["lineage", &run.text("/id")]).run().expect(0).stdout;
    assert!(lineage.contains(&weights.hex()[..12]) && lineage.contains("base"), "{lineage}");
    let frozen = folder.xt("freeze").input(run.stdout.clone()).run().expect(0);
    assert_eq!(frozen.text("/base"), weights.to_string());
    let path = format!("base/{}", weights.hex());
    assert!(frozen.stdout.contains(&path), "a sealed bundle holds what its training began from");
}

#[test]
fn everything_that_does_not_fit_is_refused_at_once() {
    let folder = Folder::new();
    admitted(&folder);
    let mut wrong = tensors();
    wrong.remove("model.norm.weight");
    wrong.insert("lm_head.weight".into(), (vec![3, 1], vec![0.5; 3]));
    wrong.insert("visual.weight".into(), (vec![1], vec![0.5]));
    offer(&folder, &wrong);
    // A scaffold would draw what is missing and leave out what is too much: here nobody declared it.
    let candidate = scaffold(&folder)
        .replace(r#""fresh":["model.norm.*"]"#, r#""fresh":[]"#)
        .replace(r#""unused":["visual.weight"]"#, r#""unused":[]"#);
    let changed =
        candidate.replace("\"rotary_base\":10000.0", "\"rotary_base\":500.0").replace("\"inner\":12", "\"inner\":16");
    let refused = folder.xt("compile").input(changed).run().expect(10).stderr;
    for part in [
        "base/config.json#/rope_theta: the candidate's model has 500.0, the base 10000.0",
        "base/config.json#/intermediate_size: the candidate's model has 16, the base 12",
        "base#model.norm.weight: the base has no such tensor",
        "base#lm_head.weight: the model has [256, 8], the base [3, 1]",
        "base#visual.weight: the model has no such parameter",
        "base#model.layers.1.mlp.up_proj.weight: the model has [16, 8], the base [12, 8]",
    ] {
        assert!(refused.contains(part), "{part}\n{refused}");
    }
    let declared = candidate.replace(r#""fresh":[]"#, r#""fresh":["model.norm.*","lm_head.*"]"#);
    let declared = declared.replace(r#""unused":[]"#, r#""unused":["visual.*","lm_head.*"]"#);
    folder.xt("compile").input(declared.clone()).run().expect(0);
    let lora = r#""adapter":{"kind":"lora","rank":2,"alpha":4.0,"dropout":0.0,"targets":["*.q_proj","*.c_attn"],"saved":["lm_head.*"]}"#;
    let refused =
        folder.xt("compile").input(declared.replace(r#""adapter":{"kind":"none"}"#, lora)).run().expect(10).stderr;
    assert!(refused.contains("/base/adapter/targets/1") && refused.contains("adapter.nothing"), "{refused}");
    assert!(
        refused.contains("model.norm.weight is drawn from the seed, so it must be saved with the adapter"),
        "{refused}"
    );
}

/// What was pinned before is looked at again when it is compiled, and a scaffold refuses it before it is stored.
#[test]
fn a_base_that_was_cut_off_or_whose_tensors_overlap_is_refused_before_anything_runs() {
    let folder = Folder::new();
    admitted(&folder);
    offer(&folder, &tensors());
    let candidate = scaffold(&folder);
    let whole = fs::read(folder.at("tiny/model.safetensors")).unwrap();
    let text = String::from_utf8_lossy(&whole).into_owned();
    // The second tensor of the header begins where the first does.
    let at = text.find("\"data_offsets\":[0,").unwrap() + "\"data_offsets\":[".len();
    let second = at + text[at..].find("\"data_offsets\":[").unwrap() + "\"data_offsets\":[".len();
    let mut overlapping = whole.clone();
    overlapping[second] = if whole[second] == b'1' { b'2' } else { b'1' };
    let cases = [
        (whole[..whole.len() - 4].to_vec(), "and the file has"),
        ([&whole[..], b"more"].concat(), "its tensors end at byte"),
        (overlapping, "its shape takes"),
    ];
    for (bytes, says) in cases {
        let pinned = folder.xt("store").arg("put").input(bytes.clone()).run().expect(0).text("/digest");
        let changed = candidate.replace(&Digest::of(&whole).to_string(), &pinned);
        let refused = folder.xt("compile").input(changed).run().expect(10);
        assert!(refused.stderr.contains("base.file") && refused.stderr.contains(says), "{says}: {}", refused.stderr);
        assert!(refused.stdout.is_empty());
        fs::write(folder.at("tiny/model.safetensors"), &bytes).unwrap();
        let arguments = ["--store", "bare", "scaffold", "llama", "--dataset", "dataset.json", "--base", "tiny"];
        let refused = folder.xt("compile").args(arguments).run().expect(10);
        assert!(refused.stderr.contains(says), "{says}: {}", refused.stderr);
        assert!(folder.xt("store").args(["--store", "bare", "ls"]).run().expect(0).stdout.is_empty());
    }
    // The control: what is whole.
    folder.xt("compile").input(candidate).run().expect(0);
}

#[test]
fn a_pickle_is_refused_with_the_reason_by_name_and_by_content() {
    let folder = Folder::new();
    admitted(&folder);
    fs::create_dir(folder.at("old")).unwrap();
    fs::write(folder.at("old/pytorch_model.bin"), b"PK\x03\x04").unwrap();
    let arguments = ["scaffold", "llama", "--dataset", "dataset.json", "--base"];
    for path in ["old", "old/pytorch_model.bin"] {
        let refused = folder.xt("compile").args(arguments).arg(path).run().expect(10).stderr;
        assert!(refused.contains("this is a pickle") && refused.contains("save_file"), "{refused}");
    }
    offer(&folder, &tensors());
    fs::write(folder.at("tiny/model.safetensors"), b"\x80\x02}q\x00and more").unwrap();
    let refused = folder.xt("compile").args(arguments).arg("tiny").run().expect(10).stderr;
    assert!(refused.contains("this is a pickle"), "{refused}");
}

/// A file of the inner model, as it is saved without its head: the scaffold says what the names lack and what is drawn anew.
#[test]
fn a_scaffold_finds_what_a_file_lacks_and_adapters_are_counted() {
    let folder = Folder::new();
    admitted(&folder);
    let mut inner: BTreeMap<_, _> =
        tensors().into_iter().filter_map(|(name, one)| Some((name.strip_prefix("model.")?.to_string(), one))).collect();
    inner.insert("rotary".into(), (vec![1], vec![0.5]));
    offer(&folder, &inner);
    let arguments = ["scaffold", "llama", "--dataset", "dataset.json", "--base", "tiny", "--lora"];
    let text = folder.xt("compile").args(arguments).run().expect(0).stdout;
    let base = parse(text.as_bytes()).unwrap().get("base").unwrap().clone();
    let part = |name: &str| base.get(name).unwrap().canonical();
    assert_eq!((part("prefix"), part("fresh")), ("\"model.\"".into(), "[\"lm_head.*\"]".into()));
    assert_eq!(part("unused"), "[\"rotary\"]");
    let text = text.replace("\"samples\": 8", "\"samples\": 2").replace("\"steps\": 200", "\"steps\": 12");
    let explained = folder.xt("compile").arg("--explain").input(text).run().expect(0).stdout;
    // Rank 8 beside two layers of each of two blocks, 8 wide and 8 or 4 high, and the head.
    let due = 2 * (8 * 8 + 8 * 8 + 8 * 8 + 4 * 8) + 256 * 8;
    assert!(explained.contains(&format!("trains     {due} parameters: LoRA of rank 8")), "{explained}");
    let whole = ["scaffold", "llama", "--dataset", "dataset.json", "--lora"];
    folder.xt("compile").args(whole).run().expect(2);
    fs::create_dir(folder.at("empty")).unwrap();
    let arguments = ["scaffold", "llama", "--dataset", "dataset.json", "--base", "empty"];
    let refused = folder.xt("compile").args(arguments).run().expect(10).stderr;
    assert!(refused.contains("error[base.refused]") && refused.contains("hint: a base is a folder"), "{refused}");
}
