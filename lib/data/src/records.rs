//! Records of JSON Lines: a prompt and what completes it, or a text, as tokens.
//!
//! A line feed, with or without a carriage return before it, ends a line; empty lines are no records.

use std::collections::BTreeMap;

use xt_core::canonical::{Value, parse};
use xt_core::fault::Faults;
use xt_core::manifest::candidate::{LongRecord, Model, Predicted, Tokenizer};

use crate::labelled;
use crate::rows::shorten;
use crate::text::Text;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    prompt: String,
    completion: String,
}

/// The tokens of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// All of them, at most the context and one.
    pub tokens: Vec<u32>,
    /// Place of the first one that is predicted, at least 1; it may lie behind the last token.
    pub first: usize,
}

impl Sample {
    /// Tokens that are predicted.
    pub fn predicted(&self) -> u64 {
        self.tokens.len().saturating_sub(self.first) as u64
    }
}

/// The records of some files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// All of them, in order.
    pub samples: Vec<Sample>,
    /// How many each file holds.
    pub counts: Vec<u64>,
}

/// Every fault of a file as JSON Lines; `path` is what messages call it.
pub fn check(path: &str, bytes: &[u8]) -> Faults {
    let mut faults = Faults::new();
    let known = |line: &[u8]| match labelled::record(line) {
        Ok(_) => Ok(()),
        Err(_) => record(line).map(|_| ()),
    };
    let found = lines(path, bytes, &mut faults, known);
    if found.is_empty() && faults.is_empty() {
        faults.add(path, "data.empty", "has no record");
    }
    shorten(&mut faults);
    faults
}

/// Reads `files` (path and bytes) as `tokenizer` declares for `model`. Every fault of every file is told with its line.
pub fn read(tokenizer: &Tokenizer, text: &Text, model: &Model, files: &[(&str, Vec<u8>)]) -> Result<Records, Faults> {
    let Tokenizer::Records { predicted, end, long, .. } = tokenizer else {
        return Err(Faults::one("/tokenizer", "tokenizer.format", "only `records` reads records"));
    };
    let end = end.and_then(|end| u32::try_from(end).ok());
    let making = Making { text, model, predicted: *predicted, end, long: *long };
    let (mut faults, mut samples, mut counts) = (Faults::new(), Vec::new(), Vec::new());
    for (path, bytes) in files {
        let before = samples.len();
        for (line, record) in records(path, bytes, &mut faults) {
            match making.sample(&record) {
                Ok(sample) => samples.push(sample),
                Err((code, why)) => faults.add(*path, code, format!("line {line}: {why}")),
            }
        }
        counts.push((samples.len() - before) as u64);
    }
    if samples.is_empty() && faults.is_empty() {
        faults.add("data", "data.empty", "the split holds no record");
    }
    shorten(&mut faults);
    faults.or(Records { samples, counts })
}

/// The records of a file in a form that does not depend on how the JSON was written; a line that is no record gives none.
pub(crate) fn examples(bytes: &[u8]) -> Vec<Vec<u8>> {
    let found = records("", bytes, &mut Faults::new());
    let one = |(_, Record { prompt, completion }): (u64, Record)| {
        Value::List(vec![Value::String(prompt), Value::String(completion)]).canonical().into_bytes()
    };
    found.into_iter().map(one).collect()
}

/// How records become tokens.
struct Making<'a> {
    text: &'a Text,
    model: &'a Model,
    predicted: Predicted,
    end: Option<u32>,
    long: LongRecord,
}

impl Making<'_> {
    fn sample(&self, record: &Record) -> Result<Sample, (&'static str, String)> {
        let encode = |text: &str| {
            let tokens = self.text.encode(text.as_bytes());
            tokens.map_err(|fault| ("text.not-encodable", fault.to_string()))
        };
        let mut tokens = encode(&record.prompt)?;
        let prompt = tokens.len();
        tokens.extend(encode(&record.completion)?);
        tokens.extend(self.end);
        if tokens.is_empty() {
            return Err(("record.empty", "the record has no token".into()));
        }
        let vocabulary = self.model.vocabulary();
        if let Some(token) = tokens.iter().find(|token| u64::from(**token) >= vocabulary) {
            let message = format!("token {token} is outside of the model's vocabulary of {vocabulary}");
            return Err(("text.out-of-vocabulary", message));
        }
        let room = usize::try_from(self.model.context().saturating_add(1)).unwrap_or(usize::MAX);
        if tokens.len() > room && self.long == LongRecord::Refuse {
            let message = format!(
                "the record has {} tokens, and a context of {} and one more hold {room}; `cut` leaves the last ones out",
                tokens.len(),
                self.model.context()
            );
            return Err(("record.long", message));
        }
        tokens.truncate(room);
        let first = if self.predicted == Predicted::Completion { prompt } else { 0 };
        Ok(Sample { tokens, first: first.max(1) })
    }
}

/// Each record of a file with its line, from 1.
fn records(path: &str, bytes: &[u8], faults: &mut Faults) -> Vec<(u64, Record)> {
    lines(path, bytes, faults, record)
}

/// What `read` makes of each line of a file that is not empty, with the number of the line, from 1.
pub(crate) fn lines<T>(
    path: &str,
    bytes: &[u8],
    faults: &mut Faults,
    read: impl Fn(&[u8]) -> Result<T, (&'static str, String)>,
) -> Vec<(u64, T)> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        faults.add(path, "data.byte-order-mark", "starts with a byte-order mark; remove it");
    }
    // It was told: what follows is looked at as if it were not there.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut found = Vec::new();
    for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if bytes.is_empty() {
            continue;
        }
        match read(bytes) {
            Ok(record) => found.push((line, record)),
            Err((code, why)) => faults.add(path, code, format!("line {line}: {why}")),
        }
    }
    found
}

/// The members of the object in one line. The line is told by whoever knows its number, so only the column is told here.
pub(crate) fn members(line: &[u8]) -> Result<BTreeMap<String, Value>, (&'static str, String)> {
    match parse(line) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(other) => Err(("record.form", format!("expected an object, found {}", other.kind()))),
        Err(error) => Err(("record.json", format!("column {}: {}", error.column, error.problem))),
    }
}

fn record(bytes: &[u8]) -> Result<Record, (&'static str, String)> {
    let mut members = members(bytes)?;
    let names: Vec<String> = members.keys().cloned().collect();
    let mut take = |name: &str| text(&mut members, name);
    match names.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["completion", "prompt"] => Ok(Record { prompt: take("prompt")?, completion: take("completion")? }),
        ["text"] => Ok(Record { prompt: String::new(), completion: take("text")? }),
        ["label", "text"] => {
            Err(("record.members", "a record with a label is read by `labelled`, see xt-manifest(5)".into()))
        }
        _ => {
            let message =
                format!("expected the members prompt and completion, text alone, or text and label, found {names:?}");
            Err(("record.members", message))
        }
    }
}

fn text(members: &mut BTreeMap<String, Value>, name: &str) -> Result<String, (&'static str, String)> {
    match members.remove(name) {
        Some(Value::String(text)) => Ok(text),
        other => {
            let found = other.as_ref().map_or("nothing", Value::kind);
            Err(("record.members", format!("{name}: expected a string, found {found}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xt_core::number::Finite;

    fn gpt(context: u64, vocabulary: u64) -> Model {
        let (layers, heads, width, inner) = (1, 1, 8, 8);
        let number = |value| Finite::new(value).unwrap();
        let (dropout, layer_norm_epsilon, initializer_range) = (number(0.0), number(1e-5), number(0.02));
        Model::Gpt { layers, heads, width, inner, context, vocabulary, dropout, layer_norm_epsilon, initializer_range }
    }

    fn tokenizer(predicted: Predicted, end: Option<u64>, long: LongRecord) -> Tokenizer {
        Tokenizer::Records { file: None, predicted, end, long }
    }

    fn read_all(tokenizer: &Tokenizer, context: u64, file: &str) -> Result<Records, Faults> {
        let text = Text::load(tokenizer, None).unwrap();
        read(tokenizer, &text, &gpt(context, 256), &[("a.jsonl", file.as_bytes().into())])
    }

    const FILE: &str =
        "{\"prompt\":\"ab\",\"completion\":\"cd\"}\r\n\n{\"completion\":\"\",\"prompt\":\"xyz\"}\n{\"text\":\"hey\"}";

    /// Worked out by hand.
    #[test]
    fn completions_and_the_end_behind_them_are_predicted_and_prompts_are_not() {
        let found = read_all(&tokenizer(Predicted::Completion, Some(0), LongRecord::Refuse), 8, FILE).unwrap();
        assert_eq!(found.counts, [3]);
        let samples: Vec<(&[u32], usize, u64)> =
            found.samples.iter().map(|one| (one.tokens.as_slice(), one.first, one.predicted())).collect();
        assert_eq!(
            samples,
            [
                (&[97, 98, 99, 100, 0][..], 2, 3),
                (&[120, 121, 122, 0], 3, 1),
                // Nothing stands before the first token, so it is not predicted.
                (&[104, 101, 121, 0], 1, 3),
            ]
        );
        let all = read_all(&tokenizer(Predicted::All, None, LongRecord::Refuse), 8, FILE).unwrap();
        assert_eq!(all.samples.iter().map(Sample::predicted).collect::<Vec<_>>(), [3, 2, 2]);
    }

    #[test]
    fn long_records_are_refused_with_their_line_or_cut_even_if_nothing_is_left_to_predict() {
        let declared = |long| tokenizer(Predicted::Completion, Some(0), long);
        let refused = read_all(&declared(LongRecord::Refuse), 3, FILE).unwrap_err();
        assert_eq!(refused.0.iter().map(|fault| fault.code).collect::<Vec<_>>(), ["record.long"]);
        assert!(refused.0[0].message.starts_with("line 1: the record has 5 tokens"), "{refused}");
        let cut = read_all(&declared(LongRecord::Cut), 1, FILE).unwrap();
        assert_eq!(cut.samples.iter().map(Sample::predicted).collect::<Vec<_>>(), [0, 0, 1]);
        assert!(cut.samples.iter().all(|sample| sample.tokens.len() == 2));
    }

    #[test]
    fn every_line_that_is_no_record_is_told_with_its_number() {
        let file =
            "{\"prompt\":\"a\"}\n[1]\n{\"text\":7}\n{\"text\":\"a\",\"text\":\"b\"}\nnot json\n{\"text\":\"\"}\n";
        let faults = read_all(&tokenizer(Predicted::All, None, LongRecord::Cut), 8, file).unwrap_err();
        let told: Vec<(&str, &str)> = faults.0.iter().map(|fault| (fault.code, &fault.message[..6])).collect();
        let due = [
            ("record.members", "line 1"),
            ("record.form", "line 2"),
            ("record.members", "line 3"),
            ("record.json", "line 4"),
            ("record.json", "line 5"),
            ("record.empty", "line 6"),
        ];
        assert_eq!(told, due);
        assert_eq!(check("a.jsonl", b"\n\n\n\n\n").0[0].code, "data.empty");
        assert_eq!(check("a.jsonl", b"\xef\xbb\xbf{\"text\":\"a\"}").0[0].code, "data.byte-order-mark");
        let broken = check("a.jsonl", b"{\"text\":\"a\"}\n\n{\"text\":}");
        assert!(broken.0[0].message.starts_with("line 3: column 9: expected"), "{broken}");
        let marked = check("a.jsonl", b"\xef\xbb\xbf{\"text\":\"a\"}");
        assert_eq!(marked.0.iter().map(|fault| fault.code).collect::<Vec<_>>(), ["data.byte-order-mark"]);
        assert_eq!(check("a.jsonl", b"{\"text\":\"\xff\"}").0[0].code, "record.json");
        assert!(check("a.jsonl", FILE.as_bytes()).is_empty());
        // Records with labels are a form of their own: admitted, and not predicted token by token.
        let labelled = "{\"text\":\"a\",\"label\":\"b\"}";
        assert!(check("a.jsonl", labelled.as_bytes()).is_empty());
        let faults = read_all(&tokenizer(Predicted::All, None, LongRecord::Cut), 8, labelled).unwrap_err();
        assert!(faults.0[0].message.contains("`labelled`"), "{faults}");
    }

    #[test]
    fn a_token_outside_of_the_vocabulary_is_refused_with_its_line() {
        let tokenizer = tokenizer(Predicted::All, None, LongRecord::Cut);
        let text = Text::load(&tokenizer, None).unwrap();
        let faults = read(&tokenizer, &text, &gpt(8, 122), &[("a", FILE.as_bytes().into())]).unwrap_err();
        assert_eq!(faults.0.len(), 1);
        assert!(faults.0[0].message.starts_with("line 3: token 122"), "{faults}");
    }

    #[test]
    fn a_record_is_the_same_example_however_its_json_is_written() {
        let first = examples(FILE.as_bytes());
        assert_eq!(first.len(), 3);
        let again = r#"{ "completion": "cd", "prompt": "\u0061b" }"#;
        assert_eq!(examples(again.as_bytes()), first[..1]);
        // A prompt is no text, and the border between prompt and completion is part of the record.
        for other in [r#"{"text":"abcd"}"#, r#"{"prompt":"abc","completion":"d"}"#] {
            assert_ne!(examples(other.as_bytes()), first[..1], "{other}");
        }
    }
}
