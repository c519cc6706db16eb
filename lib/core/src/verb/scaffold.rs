//! A complete candidate to start from, and what each field of it means.
//!
//! The tables here hold a value for every field of each family, optimiser and schedule. A field that is missing, or that
//! the manifest does not know, makes the scaffold no candidate, and the tests say so.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::{Value, parse};
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::{Field, Manifest, child};
use crate::manifest::candidate::{Base, Candidate, Model, Tokenizer};

/// What a family of models declares: its word, and the fields that depend on it, as they stand in a candidate.
pub const FAMILIES: &[(&str, &str)] = &[
    (
        "gpt",
        r#"  "model": {
    "kind": "gpt", "layers": 2, "heads": 2, "width": 64, "inner": 256, "context": 32, "vocabulary": 256,
    "dropout": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02
  },
  "base": {"kind": "random"},
  "tokenizer": {"kind": "bytes"},
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": {"kind": "next-token-cross-entropy", "label_smoothing": 0.0, "z_loss": 0.0},
"#,
    ),
    (
        "llama",
        r#"  "model": {
    "kind": "llama", "layers": 2, "heads": 4, "key_value_heads": 2, "width": 64, "inner": 176, "context": 32,
    "vocabulary": 256, "tied": false, "rotary_base": 10000.0, "dropout": 0.0, "rms_norm_epsilon": 1e-05,
    "initializer_range": 0.02
  },
  "base": {"kind": "random"},
  "tokenizer": {"kind": "bytes"},
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": {"kind": "next-token-cross-entropy", "label_smoothing": 0.0, "z_loss": 0.0},
"#,
    ),
];

/// What each optimiser declares.
pub const OPTIMIZERS: &[(&str, &str)] = &[
    (
        "adamw",
        r#"{
    "kind": "adamw", "learning_rate": 0.001, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-08,
    "weight_decay": 0.1, "decay": "matrices"
  }"#,
    ),
    (
        "adam",
        r#"{
    "kind": "adam", "learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08,
    "weight_decay": 0.0, "decay": "matrices"
  }"#,
    ),
    (
        "lion",
        r#"{
    "kind": "lion", "learning_rate": 0.0001, "beta1": 0.9, "beta2": 0.99, "weight_decay": 1.0, "decay": "matrices"
  }"#,
    ),
    (
        "adafactor",
        r#"{
    "kind": "adafactor", "learning_rate": 0.01, "decay_power": 0.8, "epsilon": 1e-07, "minimum_scale": 0.001,
    "update_limit": 1.0, "weight_decay": 0.0, "decay": "matrices"
  }"#,
    ),
    (
        "sgd",
        r#"{
    "kind": "sgd", "learning_rate": 0.1, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0, "decay": "matrices"
  }"#,
    ),
];

/// What each schedule declares.
pub const SCHEDULES: &[(&str, &str)] = &[
    ("constant", r#"{"kind": "constant", "warmup_steps": 10}"#),
    ("linear", r#"{"kind": "linear", "warmup_steps": 10, "final_fraction": 0.0}"#),
    ("cosine", r#"{"kind": "cosine", "warmup_steps": 10, "final_fraction": 0.1}"#),
    ("step", r#"{"kind": "step", "warmup_steps": 10, "every": 50, "factor": 0.5}"#),
    ("inverse-square-root", r#"{"kind": "inverse-square-root", "warmup_steps": 10, "timescale_steps": 10}"#),
    (
        "warmup-stable-decay",
        r#"{
    "kind": "warmup-stable-decay", "warmup_steps": 10, "decay_steps": 40, "final_fraction": 0.0, "curve": "linear"
  }"#,
    ),
];

/// What every candidate declares beside.
const REST: &str = r#"  "clipping": {"kind": "norm", "maximum": 1.0},
  "averaging": {"kind": "none"},
  "batching": {"samples": 8, "remainder": "keep", "accumulation": 1, "accumulation_remainder": "flush"},
  "length": {"kind": "steps", "steps": 200},
  "stops": {"non_finite": "hold"},
  "precision": "float32",
  "execution": {
    "device": "cpu", "threads": 1, "cpu_capability": "default", "math_mode": "compatible", "onednn": false
  },
  "regime": "exact"
}
"#;

/// The words of a table.
pub fn words(table: &[(&'static str, &str)]) -> Vec<&'static str> {
    table.iter().map(|(word, _)| *word).collect()
}

/// The text of a complete candidate for `dataset`; `None` when a table does not know its word.
pub fn scaffold(family: &str, optimizer: &str, schedule: &str, dataset: Digest) -> Option<String> {
    let find = |table: &[(&str, &'static str)], wanted: &str| {
        table.iter().find(|(word, _)| *word == wanted).map(|(_, text)| *text)
    };
    let (parts, optimizer, schedule) =
        (find(FAMILIES, family)?, find(OPTIMIZERS, optimizer)?, find(SCHEDULES, schedule)?);
    let head = format!("{{\n  \"schema\": \"xt.candidate/1\",\n  \"name\": \"{family}\",\n");
    let recipe = format!("  \"optimizer\": {optimizer},\n  \"groups\": [],\n  \"schedule\": {schedule},\n");
    Some(head + &parts.replace("DATASET", &dataset.to_string()) + &recipe + REST)
}

/// The candidate in `text` with this model, which begins from `base`, and this tokenizer where there is one.
pub fn on(text: &str, model: &Model, base: &Base, tokenizer: Option<&Tokenizer>) -> String {
    let mut text = text.to_string();
    let parts =
        [("model", Some(model.write())), ("base", Some(base.write())), ("tokenizer", tokenizer.map(Field::write))];
    for (key, value) in parts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        let from = text.find(&format!("  \"{key}\": {{")).unwrap_or(text.len());
        // Each part ends with the first line that closes it, and none of these holds an object inside.
        let to = text[from..].find("},\n").map_or(text.len(), |length| from + length + 3);
        text.replace_range(from..to, &format!("  \"{key}\": {},\n", value.canonical()));
    }
    text
}

/// One line for each field of the candidate in `text`: where it stands, what it holds, and what it means.
pub fn describe(text: &str) -> Result<Vec<String>, Faults> {
    let value = parse(text.as_bytes()).map_err(|error| Faults::one("", "syntax", error.to_string()))?;
    Candidate::decode(&value)?;
    let mut lines = Vec::new();
    fields(&Candidate::schema(), &value, "", &mut lines);
    Ok(lines)
}

/// The fields of `value`, which `schema` describes.
fn fields(schema: &Value, value: &Value, at: &str, lines: &mut Vec<String>) {
    let Value::Object(members) = value else { return };
    let branch = branch(schema, value);
    for (key, member) in members.iter().filter(|(key, _)| *key != "schema") {
        let Some(of) = branch.get("properties").and_then(|properties| properties.get(key)) else { continue };
        let at = child(at, key);
        let text = |schema: &Value| schema.get("description").and_then(Value::as_str).unwrap_or("").to_string();
        if key == "kind" {
            lines.push(format!("{at} {}: {}{}", member.canonical(), text(branch), choices(schema)));
        } else if matches!(member, Value::Object(_)) {
            lines.push(format!("{at}: {}", text(of)));
            fields(of, member, &at, lines);
        } else {
            lines.push(format!("{at} {}: {}{}", member.canonical(), text(of), choices(of)));
        }
    }
}

/// The schema itself, or the one of its choices that `value` names.
fn branch<'a>(schema: &'a Value, value: &Value) -> &'a Value {
    let Some(Value::List(options)) = schema.get("oneOf") else { return schema };
    let named = |option: &&Value| option.pointer("/properties/kind/const") == value.get("kind");
    options.iter().find(named).unwrap_or(schema)
}

/// The words that may stand here.
fn choices(schema: &Value) -> String {
    let Some(Value::List(options)) = schema.get("oneOf") else { return String::new() };
    let word = |option: &Value| {
        let constant = option.get("const").or_else(|| option.pointer("/properties/kind/const"));
        constant.and_then(Value::as_str).map(String::from)
    };
    let words: Vec<String> = options.iter().filter_map(word).collect();
    if words.len() < 2 { String::new() } else { format!(" One of {}.", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        let dataset = Digest::of(b"data");
        let mut all = Vec::new();
        for family in words(FAMILIES) {
            for optimizer in words(OPTIMIZERS) {
                all.extend(
                    words(SCHEDULES).iter().filter_map(|schedule| scaffold(family, optimizer, schedule, dataset)),
                );
            }
        }
        all
    }

    /// Every word of the manifest that a table leads to has its values, so a new optimiser or schedule cannot be forgotten.
    #[test]
    fn every_optimizer_and_schedule_of_the_manifest_has_its_values() {
        let Value::Object(properties) = Candidate::schema().pointer("/properties").cloned().unwrap() else {
            unreachable!()
        };
        for (field, table) in [("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)] {
            let listed = choices(&properties[field]);
            let mut declared: Vec<&str> =
                listed.trim_start_matches(" One of ").trim_end_matches('.').split(", ").collect();
            declared.sort_unstable();
            let mut known = words(table);
            known.sort_unstable();
            assert_eq!(declared, known, "{field}");
        }
    }

    #[test]
    fn each_scaffold_is_a_candidate_and_each_of_its_fields_is_described() {
        let all = all();
        assert_eq!(all.len(), FAMILIES.len() * OPTIMIZERS.len() * SCHEDULES.len());
        for text in all {
            let lines = describe(&text).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
            assert!(lines.iter().all(|line| line.len() > line.find(": ").unwrap_or(0) + 10), "{lines:?}");
            assert!(lines.iter().any(|line| line.starts_with("/optimizer/weight_decay ")));
        }
        assert_eq!(scaffold("rnn", "adamw", "cosine", Digest::of(b"")), None);
    }

    #[test]
    fn a_scaffold_that_lacks_a_field_is_none() {
        let text = scaffold("gpt", "adamw", "cosine", Digest::of(b"")).unwrap_or_default();
        let faults = describe(&text.replace("\"beta2\": 0.95, ", "")).err().unwrap_or_default();
        assert_eq!(faults.0.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(), ["/optimizer/beta2"]);
    }
}
