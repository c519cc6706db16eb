//! Texts with a class each, as tokens: records of JSON Lines with the members `text` and `label`, or tables with the columns
//! `text` and `label`.

use std::collections::{BTreeMap, BTreeSet};

use xt_core::canonical::Value;
use xt_core::fault::Faults;
use xt_core::manifest::candidate::{LongRecord, Tokenizer};

use crate::rows::{Raw, Targets, shorten};
use crate::text::Text;
use crate::{records, table};

/// A text and its class by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// The text.
    pub text: String,
    /// Its label.
    pub label: String,
}

/// Behind the tokens of a text that is shorter than the samples: a number that no token has.
pub const FILLED: f32 = -1.0;

/// Tokens up to this one are numbers of binary32.
const LARGEST: u32 = 1 << 24;

/// Reads `files` (path and bytes) as `tokenizer` declares: a row of tokens for each text, as numbers, filled up with
/// [`FILLED`]. Every fault of every file is told with its line.
pub fn read(tokenizer: &Tokenizer, text: &Text, vocabulary: u64, files: &[(&str, Vec<u8>)]) -> Result<Raw, Faults> {
    let Tokenizer::Labelled { levels, start, end, length, long, .. } = tokenizer else {
        return Err(Faults::one("/tokenizer", "tokenizer.format", "only `labelled` reads texts with a label"));
    };
    let width = usize::try_from(*length).unwrap_or(usize::MAX);
    let token = |token: &Option<u64>| token.and_then(|token| u32::try_from(token).ok());
    let making = Making { text, vocabulary, ends: [token(start), token(end)], width, long: *long };
    let (mut faults, mut values, mut classes, mut counts) = (Faults::new(), Vec::new(), Vec::new(), Vec::new());
    for (path, bytes) in files {
        let before = classes.len();
        for (line, Labelled { text, label }) in texts(path, bytes, &mut faults) {
            let class = table::level(&label, levels).map(|place| i64::try_from(place).unwrap_or(i64::MAX));
            match (making.row(&text), class) {
                (Ok(row), Ok(class)) => {
                    values.extend(row);
                    classes.push(class);
                }
                (Err((code, why)), _) => faults.add(*path, code, format!("line {line}: {why}")),
                (_, Err(why)) => faults.add(*path, "label.unknown", format!("line {line}: the label: {why}")),
            }
        }
        counts.push((classes.len() - before) as u64);
    }
    if classes.is_empty() && faults.is_empty() {
        faults.add("data", "data.empty", "the split holds no text");
    }
    shorten(&mut faults);
    let (targets, target) = (Targets::Classes(classes), "label".into());
    faults.or(Raw { spans: Vec::new(), width, values, missing: BTreeSet::new(), targets, target, counts })
}

/// The labels in these files, each once, in the order of their characters. What is no text with a label has none.
pub fn labels<'a>(files: impl Iterator<Item = &'a [u8]>) -> BTreeSet<String> {
    files.flat_map(|bytes| texts("", bytes, &mut Faults::new())).map(|(_, labelled)| labelled.label).collect()
}

/// The texts of a file: what must not be both learned from and measured on, under whatever label.
pub(crate) fn examples(bytes: &[u8]) -> Vec<Vec<u8>> {
    texts("", bytes, &mut Faults::new()).into_iter().map(|(_, labelled)| labelled.text.into_bytes()).collect()
}

/// How texts become rows of tokens.
struct Making<'a> {
    text: &'a Text,
    vocabulary: u64,
    /// Before and behind each text.
    ends: [Option<u32>; 2],
    width: usize,
    long: LongRecord,
}

impl Making<'_> {
    fn row(&self, text: &str) -> Result<Vec<f32>, (&'static str, String)> {
        let [start, end] = self.ends;
        let found = self.text.encode(text.as_bytes()).map_err(|fault| ("text.not-encodable", fault.to_string()))?;
        let room = self.width.saturating_sub(start.iter().chain(&end).count());
        if found.len() > room && self.long == LongRecord::Refuse {
            let message =
                format!("the text has {} tokens, and {room} have room; `cut` leaves the last ones out", found.len());
            return Err(("record.long", message));
        }
        let tokens: Vec<u32> = start.into_iter().chain(found.into_iter().take(room)).chain(end).collect();
        if tokens.is_empty() {
            return Err(("record.empty", "the text has no token".into()));
        }
        let outside = |token: &&u32| u64::from(**token) >= self.vocabulary || **token >= LARGEST;
        if let Some(token) = tokens.iter().find(outside) {
            let message = format!("token {token} is outside of the model's vocabulary of {}", self.vocabulary);
            return Err(("text.out-of-vocabulary", message));
        }
        #[expect(clippy::cast_precision_loss, reason = "below 2^24, so it is a number of binary32")]
        let mut row: Vec<f32> = tokens.iter().map(|token| *token as f32).collect();
        row.resize(self.width, FILLED);
        Ok(row)
    }
}

/// Each text of a file with its line. A file of records begins with a brace, which the first line of a table, that names the
/// columns, never does.
fn texts(path: &str, bytes: &[u8], faults: &mut Faults) -> Vec<(u64, Labelled)> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        records::lines(path, bytes, faults, record)
    } else {
        let rows = table::pairs(path, bytes, ["text", "label"], faults);
        rows.into_iter().map(|(line, [text, label])| (line, Labelled { text, label })).collect()
    }
}

/// One line of JSON Lines. A label may be a string or a whole number, which is its own name.
pub(crate) fn record(bytes: &[u8]) -> Result<Labelled, (&'static str, String)> {
    let members = records::members(bytes)?;
    let names: Vec<&str> = members.keys().map(String::as_str).collect();
    if names != ["label", "text"] {
        return Err(("record.members", format!("expected the members text and label, found {names:?}")));
    }
    let label = match members.get("label") {
        Some(Value::Integer(number)) => number.text().to_string(),
        _ => member(&members, "label")?,
    };
    Ok(Labelled { text: member(&members, "text")?, label })
}

fn member(members: &BTreeMap<String, Value>, name: &str) -> Result<String, (&'static str, String)> {
    let found = members.get(name);
    found.and_then(Value::as_str).map(String::from).ok_or_else(|| {
        let found = found.map_or("nothing", Value::kind);
        ("record.members", format!("{name}: expected a string, found {found}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(length: u64, start: Option<u64>, long: LongRecord) -> Tokenizer {
        let levels = ["ham", "spam"].map(String::from).into();
        Tokenizer::Labelled { file: None, levels, start, end: Some(257), length, long }
    }

    fn read_all(tokenizer: &Tokenizer, file: &str) -> Result<Raw, Faults> {
        let text = Text::load(tokenizer, None).unwrap();
        read(tokenizer, &text, 258, &[("a", file.as_bytes().into())])
    }

    const RECORDS: &str = "{\"text\":\"hi\",\"label\":\"ham\"}\n\n{\"label\":\"spam\",\"text\":\"a, b\"}\n";
    const TABLE: &str = "label,text\nham,hi\nspam,\"a, b\"\n";

    /// Worked out by hand.
    #[test]
    fn records_and_tables_with_the_same_texts_are_the_same_rows() {
        let declared = tokenizer(7, Some(256), LongRecord::Refuse);
        let raw = read_all(&declared, RECORDS).unwrap();
        assert_eq!(
            raw.values,
            [256.0, 104.0, 105.0, 257.0, -1.0, -1.0, -1.0, 256.0, 97.0, 44.0, 32.0, 98.0, 257.0, -1.0]
        );
        assert_eq!((&raw.targets, &raw.counts), (&Targets::Classes(vec![0, 1]), &vec![2]));
        assert_eq!(read_all(&declared, TABLE).unwrap(), raw);
        assert_ne!(read_all(&tokenizer(7, None, LongRecord::Refuse), TABLE).unwrap(), raw);
        assert_eq!(examples(TABLE.as_bytes()), examples(RECORDS.as_bytes()));
        let labels = labels([TABLE.as_bytes(), b"{\"text\":\"x\",\"label\":3}"].into_iter());
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), ["3", "ham", "spam"]);
    }

    #[test]
    fn a_long_text_is_refused_with_its_line_or_cut_between_its_ends() {
        let refused = read_all(&tokenizer(5, Some(256), LongRecord::Refuse), RECORDS).unwrap_err();
        assert_eq!(refused.0.len(), 1);
        assert!(refused.0[0].message.starts_with("line 3: the text has 4 tokens, and 3 have room"), "{refused}");
        let cut = read_all(&tokenizer(5, Some(256), LongRecord::Cut), RECORDS).unwrap();
        assert_eq!(cut.values[5..], [256.0, 97.0, 44.0, 32.0, 257.0]);
    }

    #[test]
    fn every_line_that_is_no_labelled_text_is_told_with_its_number() {
        let file = "{\"text\":\"a\",\"label\":\"eggs\"}\n{\"text\":\"a\"}\n[]\n{\"text\":1,\"label\":\"ham\"}\nno\n";
        let faults = read_all(&tokenizer(9, None, LongRecord::Cut), file).unwrap_err();
        let told: Vec<(&str, &str)> = faults.0.iter().map(|fault| (fault.code, &fault.message[..6])).collect();
        let due = [
            ("record.members", "line 2"),
            ("record.form", "line 3"),
            ("record.members", "line 4"),
            ("record.json", "line 5"),
            ("label.unknown", "line 1"),
        ];
        assert_eq!(told, due);
        for (file, code) in [
            ("text\na\n", "column.missing"),
            ("text,label,more\na,ham,b\n", "column.unknown"),
            ("text,label\na,ham\nb\n", "row.cells"),
            ("text,label\n", "data.empty"),
        ] {
            let faults = read_all(&tokenizer(9, None, LongRecord::Cut), file).unwrap_err();
            assert_eq!(faults.0[0].code, code, "{file}: {faults}");
        }
        let high = Tokenizer::Labelled {
            file: None,
            levels: vec!["ham".into(), "spam".into()],
            start: None,
            end: None,
            length: 9,
            long: LongRecord::Cut,
        };
        let text = Text::load(&high, None).unwrap();
        let faults = read(&high, &text, 100, &[("a", RECORDS.as_bytes().into())]).unwrap_err();
        assert!(faults.0[0].message.starts_with("line 1: token 104"), "{faults}");
    }
}
