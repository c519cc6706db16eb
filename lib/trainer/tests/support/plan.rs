//! Plans over a small text.

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::{Format, GroupBy, Splitting};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Tokens, compile};

/// What is learned.
pub const TEXT: &str = "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, \
    and nothing particular to interest me on shore, I thought I would sail about a little and see the watery part of \
    the world. It is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself \
    growing grim about the mouth; whenever it is a damp, drizzly November in my soul, I account it high time to get to sea.";

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"test","model":MODEL,
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"sequential","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},"optimizer":OPTIMIZER,
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":CLIPPING,
    "batching":{"samples":16,"remainder":"keep","accumulation":1,"accumulation_remainder":"flush"},
    "length":{"kind":"steps","steps":40},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

/// A small gpt.
pub fn model(width: u64, context: u64, initializer: &str) -> String {
    format!(
        r#"{{"kind":"gpt","layers":1,"heads":1,"width":{width},"inner":8,"context":{context},"vocabulary":256,
            "dropout":0,"layer_norm_epsilon":1e-5,"initializer_range":{initializer}}}"#
    )
}

/// Plain gradient descent.
pub fn sgd(rate: f64, weight_decay: f64) -> String {
    format!(
        r#"{{"kind":"sgd","learning_rate":{rate},"momentum":0,"nesterov":false,"weight_decay":{weight_decay},
            "decay":"matrices"}}"#
    )
}

/// The plan for a small text.
pub fn plan(model: &str, optimizer: &str, clipping: &str) -> Plan {
    let recipe = [("MODEL", model), ("OPTIMIZER", optimizer), ("CLIPPING", clipping)];
    plan_of(Format::Text, (TEXT, TEXT.len() as u64), &recipe)
}

/// The plan over a file with so many tokens or records.
pub fn plan_of(format: Format, (file, count): (&str, u64), changes: &[(&str, &str)]) -> Plan {
    let path = RelativePath::new("a.txt").unwrap();
    let offered = [Offered { path, digest: Digest::of(file.as_bytes()), bytes: file.len() as u64 }];
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: [].into() };
    let dataset = admit(format, &offered, &[].into(), splitting).unwrap();
    let mut text = CANDIDATE.replace("DATASET", &dataset.id().to_string());
    for (key, value) in changes {
        assert!(text.contains(key), "{key}");
        text = text.replace(key, value);
    }
    let candidate = Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap();
    let tokens = Tokens { vocabulary: 256, count, tokenizer_bytes: 0 };
    compile(candidate, dataset, Intent::default_for(1), 3, tokens).unwrap()
}
