//! Classes of texts in the real worker: learned, restored in a new process bit for bit, with adapters beside a base.

use std::fmt::Write;

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::{Format, GroupBy, Splitting};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::manifest::snapshot::Cadence;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Seen, Tokens, check, compile_seen};
use xt_core::verb::weights::views;

use crate::desk::{Desk, Left};

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"texts",
    "model":{"kind":"encoder","layers":2,"heads":2,"width":16,"inner":24,"context":24,"vocabulary":258,"segments":2,
        "outputs":2,"dropout":0.1,"layer_norm_epsilon":1e-12,"initializer_range":0.1},
    "base":{"kind":"random"},
    "tokenizer":{"kind":"labelled","file":null,"levels":["ham","spam"],"start":256,"end":257,"length":20,"long":"cut"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":null},
    "objective":{"kind":"cross-entropy","label_smoothing":0.0,"z_loss":0.0},"groups":[],"averaging":{"kind":"none"},
    "optimizer":{"kind":"adamw","learning_rate":0.01,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,
        "weight_decay":0.01,"decay":"matrices"},
    "schedule":{"kind":"constant","warmup_steps":2},
    "clipping":{"kind":"norm","maximum":1},
    "batching":{"samples":6,"remainder":"keep","accumulation":2,"accumulation_remainder":"flush"},
    "length":{"kind":"steps","steps":12},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

const WEIGHTS: &str = "model/model.safetensors";
const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };

/// Texts of different lengths; the exclamation mark tells the class.
pub fn file(format: Format) -> String {
    let mut file = if format == Format::Csv { "text,label\n".into() } else { String::new() };
    for row in 0..40u32 {
        let words = ["win", "a ship", "call me", "money now"][row as usize % 4].repeat(1 + row as usize % 3);
        let (mark, label) = if row % 3 == 0 { ("!", "spam") } else { (".", "ham") };
        let written = match format {
            Format::Csv => writeln!(file, "{mark} {words} {row},{label}"),
            _ => writeln!(file, "{{\"label\":\"{label}\",\"text\":\"{mark} {words} {row}\"}}"),
        };
        written.unwrap();
    }
    file
}

pub fn plan(format: Format, changes: &[(&str, &str)]) -> Plan {
    let bytes = file(format);
    let offered = [Offered {
        path: RelativePath::new("a").unwrap(),
        digest: Digest::of(bytes.as_bytes()),
        bytes: bytes.len() as u64,
    }];
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: [].into() };
    let dataset = admit(format, &offered, &[].into(), splitting).unwrap();
    let mut text = CANDIDATE.replace("DATASET", &dataset.id().to_string());
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let candidate = Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{faults}"));
    let mut faults = Faults::new();
    check(&candidate, &dataset, &Intent::default_for(1), &mut faults);
    assert_eq!(faults, Faults::new());
    let tokens = Tokens { vocabulary: 256, count: 40, tokenizer_bytes: 0 };
    let files = candidate.base.files().into_iter().flatten();
    let base = files.map(|digest| Input { digest, bytes: 1, role: Role::Base }).collect();
    compile_seen(candidate, dataset, Intent::default_for(1), 3, Seen { tokens, fitted: Vec::new(), base }).unwrap()
}

fn train(plan: &Plan, format: Format, given: &[&[u8]]) -> Left {
    let desk = Desk::new(plan);
    desk.give(file(format).as_bytes());
    for bytes in given {
        desk.give(bytes);
    }
    let left = desk.train_part(plan, None, &EACH, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

fn losses(left: &Left) -> Vec<f64> {
    left.told().iter().map(|step| step.loss.unwrap().get()).collect()
}

#[test]
fn an_encoder_learns_a_class_from_records_and_tables_alike() {
    let long = [("\"steps\":12", "\"steps\":60"), ("\"dropout\":0.1", "\"dropout\":0.0")];
    let [records, table] = [Format::Jsonl, Format::Csv].map(|format| {
        let plan = plan(format, &long);
        train(&plan, format, &[])
    });
    assert_eq!(losses(&records), losses(&table));
    assert_eq!(records.output(WEIGHTS), table.output(WEIGHTS));
    let losses = losses(&records);
    let sum = |losses: &[f64]| losses.iter().sum::<f64>();
    assert!(sum(&losses[..5]) > 2.5 && sum(&losses[55..]) < 0.5, "{losses:?}");
}

#[test]
fn an_encoder_goes_on_bit_for_bit_in_a_new_process_in_every_precision() {
    let mut seen = Vec::new();
    for precision in ["float32", "bfloat16", "float16"] {
        let plan = plan(Format::Jsonl, &[("float32", precision)]);
        let straight = train(&plan, Format::Jsonl, &[]);
        let desk = Desk::new(&plan);
        desk.give(file(Format::Jsonl).as_bytes());
        let resumed = desk.train_part(&plan, None, &EACH, Some(&straight.shot(&plan, 5)));
        assert_eq!(resumed.told(), straight.told()[5..], "{precision}");
        assert_eq!(resumed.output(WEIGHTS), straight.output(WEIGHTS));
        assert!(losses(&straight).iter().all(|loss| (0.0..3.0).contains(loss)));
        seen.push(losses(&straight));
    }
    // The control: the precisions are near one another, and no two of them are the same.
    assert!(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
    assert!((seen[0][0] - seen[1][0]).abs() < 0.05 && (seen[0][0] - seen[2][0]).abs() < 0.05, "{seen:?}");
}

/// A base without a head, as models of embeddings are saved: adapters and a new head learn on it, and nothing else is saved.
#[test]
fn adapters_and_a_new_head_learn_on_a_base_that_has_none() {
    let made = plan(Format::Jsonl, &[("\"steps\":12", "\"steps\":60")]);
    let left = train(&made, Format::Jsonl, &[]);
    let (weights, config) = (left.output(WEIGHTS), left.output("model/config.json"));
    let base = |adapter: &str| {
        format!(
            r#""base":{{"kind":"safetensors","digest":"{}","configuration":"{}","prefix":"","fresh":["classifier.*"],
            "unused":["classifier.*"],"adapter":{adapter}}}"#,
            Digest::of(&weights),
            Digest::of(&config)
        )
    };
    let lora = base(
        r#"{"kind":"lora","rank":2,"alpha":4.0,"dropout":0.1,"targets":["*.query","*.value"],"saved":["classifier.*"]}"#,
    );
    let plan = plan(Format::Jsonl, &[("\"base\":{\"kind\":\"random\"}", &lora), ("\"steps\":12", "\"steps\":40")]);
    let left = train(&plan, Format::Jsonl, &[&weights, &config]);
    let saved: Vec<String> =
        views(&left.output("model/adapter_model.safetensors")).unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(saved.len(), 2 * 2 * 2 + 2, "{saved:?}");
    assert!(saved.contains(&"base_model.model.classifier.weight".to_string()), "{saved:?}");
    let config = parse(&left.output("model/adapter_config.json")).unwrap();
    assert_eq!(config.get("task_type").unwrap().canonical(), "\"SEQ_CLS\"");
    assert_eq!(config.get("modules_to_save").unwrap().canonical(), "[\"classifier\"]");
    let losses = losses(&left);
    assert!(losses[35..].iter().sum::<f64>() < losses[..5].iter().sum::<f64>() * 0.5, "{losses:?}");
}
