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
use crate::manifest::candidate::{Adapter, Base, Candidate, Group, Model, Tokenizer, Treatment};
use crate::manifest::dataset::Format;
use crate::manifest::encoding::Target;
use crate::manifest::network::ModuleTensor;
use crate::number::Finite;

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
    (
        "encoder",
        r#"  "model": {
    "kind": "encoder", "layers": 2, "heads": 2, "width": 64, "inner": 256, "context": 128, "vocabulary": 258,
    "segments": 1, "outputs": OUTPUTS, "dropout": 0.1, "layer_norm_epsilon": 1e-12, "initializer_range": 0.02
  },
  "base": {"kind": "random"},
  "tokenizer": {
    "kind": "labelled", "file": null, "levels": CONTENT, "start": 256, "end": 257, "length": 128, "long": "cut"
  },
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": {"kind": "cross-entropy", "label_smoothing": 0.0, "z_loss": 0.0},
"#,
    ),
    (
        "mlp",
        r#"  "model": {
    "kind": "mlp", "inputs": INPUTS, "widths": [64, 64], "outputs": OUTPUTS, "activation": "relu", "dropout": 0.1,
    "initializer_gain": 1.4142135623730951
  },
  "base": {"kind": "random"},
  "tokenizer": CONTENT,
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": OBJECTIVE,
"#,
    ),
    (
        "cnn",
        r#"  "model": {
    "kind": "cnn", "channels": CHANNELS, "height": HEIGHT, "width": WIDTH,
    "convolutions": [
      {"channels": 16, "kernel": 3, "stride": 1, "padding": 1, "pool": 1},
      {"channels": 32, "kernel": 3, "stride": 1, "padding": 1, "pool": POOL}
    ],
    "widths": [64], "outputs": OUTPUTS, "activation": "relu", "dropout": 0.3, "initializer_gain": 1.4142135623730951
  },
  "base": {"kind": "random"},
  "tokenizer": CONTENT,
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": OBJECTIVE,
"#,
    ),
    (
        "torchscript",
        r#"  "model": {
    "kind": "torchscript", "shape": SHAPE, "outputs": OUTPUTS,
    "parameters": [],
    "buffers": []
  },
  "base": {"kind": "random"},
  "tokenizer": CONTENT,
  "data": {
    "dataset": "DATASET",
    "split": "train", "order": "shuffled", "separator": null
  },
  "objective": OBJECTIVE,
"#,
    ),
];

/// What reads records instead of text.
const RECORDS: &str = r#"{"kind": "records", "file": null, "predicted": "completion", "end": null, "long": "cut"}"#;

/// What is minimised where classes are predicted.
const CLASSES: &str = r#"{"kind": "cross-entropy", "label_smoothing": 0.0, "z_loss": 0.0}"#;

/// What is minimised where a number is.
const NUMBER: &str = r#"{"kind": "mean-squared-error"}"#;

/// Tokens of a labelled text at most, when the model would take more.
const LENGTH: u64 = 128;

/// What a scaffold is to learn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Id of the dataset.
    pub dataset: Digest,
    /// Form of its files.
    pub format: Format,
    /// What was seen in them.
    pub content: Content,
}

/// What was seen in the files that a scaffold is to learn from.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text, of which nothing need be known.
    Text,
    /// Texts with these labels.
    Labelled(Vec<String>),
    /// Rows of numbers, which this reads.
    Rows(Tokenizer),
}

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
  "stops": {"non_finite": "hold", "early": {"kind": "none"}},
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

/// The text of a complete candidate that learns from `learned`; `None` when a table does not know its word.
pub fn scaffold(family: &str, optimizer: &str, schedule: &str, learned: &Learned) -> Option<String> {
    let find = |table: &[(&str, &'static str)], wanted: &str| {
        table.iter().find(|(word, _)| *word == wanted).map(|(_, text)| *text)
    };
    let (parts, optimizer, schedule) =
        (find(FAMILIES, family)?, find(OPTIMIZERS, optimizer)?, find(SCHEDULES, schedule)?);
    let head = format!("{{\n  \"schema\": \"xt.candidate/1\",\n  \"name\": \"{family}\",\n");
    let recipe = format!("  \"optimizer\": {optimizer},\n  \"groups\": [],\n  \"schedule\": {schedule},\n");
    let Learned { dataset, format, content } = learned;
    let parts = parts.replace("DATASET", &dataset.to_string());
    let parts = match content {
        Content::Text if *format == Format::Jsonl => parts.replace(r#"{"kind": "bytes"}"#, RECORDS),
        Content::Text => parts,
        Content::Labelled(labels) => {
            let levels = Value::List(labels.iter().map(|label| label.as_str().into()).collect());
            parts.replace("OUTPUTS", &labels.len().to_string()).replace("CONTENT", &levels.canonical())
        }
        Content::Rows(tokenizer) => of_rows(&parts, tokenizer),
    };
    Some(head + &parts + &recipe + REST)
}

/// The parts of a candidate that reads rows of numbers.
fn of_rows(parts: &str, tokenizer: &Tokenizer) -> String {
    // What is no image has no such model, and is refused as that.
    let [channels, height, width] = tokenizer.image().unwrap_or([1; 3]);
    let (outputs, objective) = match tokenizer.target() {
        Some(Target::Classes(classes)) => (classes, CLASSES),
        Some(Target::Number) | None => (1, NUMBER),
    };
    let pool = if height.min(width) < 2 { 1 } else { 2 };
    let sizes = [
        ("INPUTS", tokenizer.inputs().unwrap_or(0)),
        ("OUTPUTS", outputs),
        ("CHANNELS", channels),
        ("HEIGHT", height),
        ("WIDTH", width),
        ("POOL", pool),
    ];
    let shape = match tokenizer {
        Tokenizer::Tensors { shape, .. } => shape.clone(),
        _ => tokenizer.image().map_or_else(|| Vec::from([tokenizer.inputs().unwrap_or(0)]), Vec::from),
    };
    let parts = parts.replace("SHAPE", &shape.write().canonical());
    let parts = sizes.iter().fold(parts, |parts, (word, size)| parts.replace(word, &size.to_string()));
    // What the data are called by comes last: nothing in it is replaced.
    parts.replace("OBJECTIVE", objective).replace("CONTENT", &lines_of(tokenizer))
}

/// A tokenizer as it stands in a candidate, a line for each column.
fn lines_of(tokenizer: &Tokenizer) -> String {
    let Tokenizer::Table { columns, scaling } = tokenizer else { return tokenizer.write().canonical() };
    let columns: Vec<String> = columns.iter().map(|column| format!("      {}", column.write().canonical())).collect();
    format!(
        "{{\n    \"kind\": \"table\", \"scaling\": \"{scaling}\",\n    \"columns\": [\n{}\n    ]\n  }}",
        columns.join(",\n")
    )
}

/// The model of a base for this candidate: as many outputs as it has.
pub fn model_on(candidate: &Candidate, offered: Model) -> Model {
    match (offered, &candidate.model) {
        (
            Model::Encoder {
                layers,
                heads,
                width,
                inner,
                context,
                vocabulary,
                segments,
                dropout,
                layer_norm_epsilon,
                initializer_range,
                ..
            },
            Model::Encoder { outputs, .. },
        ) => Model::Encoder {
            layers,
            heads,
            width,
            inner,
            context,
            vocabulary,
            segments,
            outputs: *outputs,
            dropout,
            layer_norm_epsilon,
            initializer_range,
        },
        (offered, _) => offered,
    }
}

/// What the candidate declares to read by the tokenizer of a base; `ends` are the tokens that it puts around a text.
pub fn tokenizer_on(candidate: &Candidate, model: &Model, offered: Tokenizer, ends: [Option<u64>; 2]) -> Tokenizer {
    let file = offered.digest();
    match (candidate.tokenizer.clone(), offered) {
        (Tokenizer::Labelled { levels, .. }, Tokenizer::Labelled { file, start, end, length, long, .. }) => {
            Tokenizer::Labelled { file, levels, start, end, length, long }
        }
        (Tokenizer::Labelled { levels, long, .. }, _) => {
            let length = LENGTH.min(model.context());
            Tokenizer::Labelled { file, levels, start: ends[0], end: ends[1], length, long }
        }
        (Tokenizer::Records { predicted, end, long, .. }, _) => Tokenizer::Records { file, predicted, end, long },
        (_, Tokenizer::Records { file: Some(digest), .. }) => Tokenizer::HuggingFace { digest },
        (_, Tokenizer::Records { file: None, .. }) => Tokenizer::Bytes {},
        (_, offered) => offered,
    }
}

/// The base with adapters beside it: of rank 8 on queries and values, which is where Hu et al. (LoRA, section 7.1) found them
/// to serve best. What the base lacks is trained whole.
pub fn with_lora(mut base: Base, model: &Model) -> Base {
    let targets: &[&str] = match model {
        Model::Gpt { .. } => &["*.attn.c_attn"],
        Model::Llama { .. } => &["*.self_attn.q_proj", "*.self_attn.v_proj"],
        Model::Encoder { .. } => &["*.attention.self.query", "*.attention.self.value"],
        Model::Mlp { .. } | Model::Cnn { .. } | Model::TorchScript { .. } => &[],
    };
    let targets = targets.iter().map(|target| (*target).to_string()).collect();
    let lora = |saved| Adapter::Lora {
        rank: 8,
        alpha: Finite::new(16.0).unwrap_or(Finite::ZERO),
        dropout: Finite::ZERO,
        targets,
        saved,
    };
    match &mut base {
        Base::Random {} | Base::Module { .. } => {}
        Base::Bundle { adapter, .. } => **adapter = lora(Vec::new()),
        Base::Safetensors { fresh, adapter, .. } => **adapter = lora(fresh.clone()),
    }
    base
}

/// The candidate in `text` of a model `torchscript`, with the tensors that its module has. A group freezes the buffers.
pub fn on_module(text: &str, digest: Digest, parameters: &[ModuleTensor], buffers: &[ModuleTensor]) -> String {
    let list = |tensors: &[ModuleTensor]| {
        let lines: Vec<String> = tensors.iter().map(|one| format!("\n      {}", one.write().canonical())).collect();
        if lines.is_empty() { "[]".to_string() } else { format!("[{}\n    ]", lines.join(",")) }
    };
    let frozen = |one: &ModuleTensor| {
        let group = Group { pattern: one.name.clone(), treatment: Treatment::Frozen {} };
        format!("\n    {}", group.write().canonical())
    };
    let groups: Vec<String> = buffers.iter().map(frozen).collect();
    let groups = if groups.is_empty() { "[]".to_string() } else { format!("[{}\n  ]", groups.join(",")) };
    let base = Base::Module { digest };
    text.replacen("\"parameters\": []", &format!("\"parameters\": {}", list(parameters)), 1)
        .replacen("\"buffers\": []", &format!("\"buffers\": {}", list(buffers)), 1)
        .replacen("{\"kind\": \"random\"}", &base.write().canonical(), 1)
        .replacen("\"groups\": []", &format!("\"groups\": {groups}"), 1)
}

/// The candidate in `text` with this model, which begins from `base`, and this tokenizer where there is one.
pub fn on(text: &str, model: &Model, base: &Base, tokenizer: Option<&Tokenizer>) -> String {
    let mut text = text.to_string();
    let parts =
        [("model", Some(model.write())), ("base", Some(base.write())), ("tokenizer", tokenizer.map(Field::write))];
    for (key, value) in parts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        let from = text.find(&format!("  \"{key}\": {{")).unwrap_or(text.len());
        // Each part ends where the next one begins: what lies inside of a part stands further to the right.
        let to = text[from..].find("\n  \"").map_or(text.len(), |length| from + length + 1);
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
    use crate::manifest::encoding::{Augmentation, Column, Holds, Missing, NonFiniteCells, Scaling};

    fn learned(format: Format, content: Content) -> Learned {
        Learned { dataset: Digest::of(b"data"), format, content }
    }

    /// Images of three colours in two classes.
    fn images() -> Tokenizer {
        let (scaling, augmentation) = (Scaling::Inputs, Augmentation::NONE);
        Tokenizer::Image { channels: 3, height: 9, width: 8, classes: 2, levels: None, scaling, augmentation }
    }

    /// What each family reads.
    fn fitting(family: &str) -> Learned {
        match family {
            "gpt" | "llama" => learned(Format::Text, Content::Text),
            "encoder" => learned(Format::Csv, Content::Labelled(["ham", "spam"].map(String::from).into())),
            "mlp" | "cnn" | "torchscript" => learned(Format::Idx, Content::Rows(images())),
            other => panic!("nothing is known that {other} reads"),
        }
    }

    fn all() -> Vec<String> {
        let mut all = Vec::new();
        for family in words(FAMILIES) {
            for optimizer in words(OPTIMIZERS) {
                all.extend(
                    words(SCHEDULES)
                        .iter()
                        .filter_map(|schedule| scaffold(family, optimizer, schedule, &fitting(family))),
                );
            }
        }
        all
    }

    /// Every word of the manifest that a table leads to has its values, so a new family, optimiser or schedule cannot be forgotten.
    #[test]
    fn every_family_optimizer_and_schedule_of_the_manifest_has_its_values() {
        let Value::Object(properties) = Candidate::schema().pointer("/properties").cloned().unwrap() else {
            unreachable!()
        };
        for (field, table) in [("model", FAMILIES), ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)] {
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
        assert_eq!(scaffold("rnn", "adamw", "cosine", &fitting("gpt")), None);
    }

    #[test]
    fn a_scaffold_that_lacks_a_field_is_none() {
        let text = scaffold("gpt", "adamw", "cosine", &fitting("gpt")).unwrap_or_default();
        let faults = describe(&text.replace("\"beta2\": 0.95, ", "")).err().unwrap_or_default();
        assert_eq!(faults.0.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(), ["/optimizer/beta2"]);
    }

    /// Of records the scaffold reads records, and of text text.
    #[test]
    fn what_a_scaffold_reads_is_what_its_dataset_holds() {
        let kind = |family: &str, learned: Learned| {
            let text = scaffold(family, "adamw", "cosine", &learned).unwrap_or_default();
            let candidate = parse(text.as_bytes()).map(|value| Candidate::decode(&value));
            candidate.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|faults| panic!("{faults}"))
        };
        for family in ["gpt", "llama"] {
            assert_eq!(kind(family, fitting(family)).tokenizer.word(), "bytes");
            assert_eq!(kind(family, learned(Format::Jsonl, Content::Text)).tokenizer.word(), "records");
        }
        let encoder = kind("encoder", fitting("encoder"));
        assert_eq!(encoder.model.ends(), Some((128, 2)));
        assert_eq!(crate::verb::fit::classes(&encoder.tokenizer), ["ham", "spam"]);
    }

    /// Models of rows have the ends of what they read, whatever its columns are called; another model or base stays apart
    /// from the columns.
    #[test]
    fn models_of_rows_have_the_inputs_and_outputs_of_their_data() {
        let names = ["OUTPUTS", "},\n  \"x", "OBJECTIVE"];
        let (missing, non_finite) = (Missing::Refuse, NonFiniteCells::Refuse);
        let mut columns: Vec<Column> =
            names.map(|name| Column { name: name.into(), holds: Holds::Number { missing, non_finite } }).into();
        columns.push(Column { name: "y".into(), holds: Holds::TargetNumber { non_finite } });
        let table = Tokenizer::Table { columns, scaling: Scaling::InputsAndTarget };
        let text = |family: &str, tokenizer: &Tokenizer| {
            scaffold(family, "adamw", "cosine", &learned(Format::Csv, Content::Rows(tokenizer.clone())))
                .unwrap_or_default()
        };
        let candidate = |text: &str| {
            Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{text}\n{faults}"))
        };
        let rows = candidate(&text("mlp", &table));
        assert_eq!((rows.model.ends(), rows.objective.word()), (Some((3, 1)), "mean-squared-error"));
        assert_eq!(rows.tokenizer, table);
        for family in ["mlp", "cnn"] {
            let pictures = candidate(&text(family, &images()));
            assert_eq!((pictures.model.ends(), pictures.objective.word()), (Some((216, 2)), "cross-entropy"));
        }
        let changed = candidate(&on(&text("mlp", &table), &rows.model, &Base::Random {}, Some(&images())));
        assert_eq!((changed.tokenizer, changed.objective), (images(), rows.objective));
    }
}
