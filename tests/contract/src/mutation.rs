//! Changing valid documents, in every simple way and in some mixed ones.
//!
//! What no JSON Schema can see is left alone here and named in `tests/agreement.rs`: whole numbers written as floats,
//! integers beyond 2^53 where a float is due, an `id` of other content, and texts at limits that count bytes.

use std::collections::{BTreeMap, BTreeSet};

use xt_core::canonical::{Value, parse};
use xt_core::random::Stream;

/// The JSON pointers of all values in a document.
pub fn pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let children: Vec<(String, &Value)> = match value {
        Value::List(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, item)| (key.replace('~', "~0").replace('/', "~1"), item)).collect()
        }
        _ => Vec::new(),
    };
    for (token, child) in children {
        found.extend(pointers(child).into_iter().map(|rest| format!("/{token}{rest}")));
    }
    found
}

/// Every document that differs from one of these in one value: replaced, removed, or beside something new. What was
/// changed in one of them is not changed again where another, or another item of a list, has the same in the same place.
pub fn single(documents: &[Value]) -> Vec<Value> {
    let (mut changed, mut seen) = (Vec::new(), BTreeSet::new());
    for (document, pointer) in documents.iter().flat_map(|one| pointers(one).into_iter().map(move |at| (one, at))) {
        let Some(value) = document.pointer(&pointer).filter(|value| seen.insert(place(document, &pointer, value)))
        else {
            continue;
        };
        changed.extend(replacements(value, true).into_iter().map(|new| edited(document, &pointer, Some(new))));
        changed.push(edited(document, &pointer, None));
    }
    changed
}

/// Which part of a schema reads a value, and what of the value decides which changes are tried: the way to it, with the
/// form of every object on the way and one name for all items of a list, and the value without what lies in it.
fn place(document: &Value, pointer: &str, value: &Value) -> String {
    let (mut at, mut inside) = (String::new(), document);
    for token in pointer.split('/').skip(1) {
        at += &choice(inside);
        at += "/";
        at += if matches!(inside, Value::List(_)) { "*" } else { token };
        let token = format!("/{token}");
        inside = inside.pointer(&token).unwrap_or(inside);
    }
    let shown = match value {
        Value::List(items) => format!("{} items", items.len()),
        Value::Object(_) => choice(value),
        other => other.canonical(),
    };
    format!("{at} = {shown}")
}

/// What tells which of several forms an object has: its kind, and the members that it has.
fn choice(value: &Value) -> String {
    let Value::Object(members) = value else { return String::new() };
    format!("{:?} {:?}", value.get("kind"), members.keys().collect::<Vec<_>>())
}

/// A document with two or three changes, drawn from `draws`; parts of other documents come from `pool`.
pub fn mixed(document: &Value, pool: &[Value], draws: &mut Draws) -> Value {
    let mut changed = document.clone();
    for _ in 0..2 + draws.below(2) {
        let all = pointers(&changed);
        let pointer = &all[draws.below(all.len())];
        let Some(value) = changed.pointer(pointer).cloned() else { continue };
        let options = replacements(&value, false);
        let new = match draws.below(4) {
            0 => None,
            1 => Some(pool[draws.below(pool.len())].clone()),
            _ => Some(options[draws.below(options.len())].clone()),
        };
        changed = edited(&changed, pointer, new);
    }
    changed
}

/// All values inside some documents, as grafts for [`mixed`], except whole numbers written as floats.
pub fn pool<'a>(documents: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    documents
        .flat_map(|document| pointers(document).into_iter().filter_map(|pointer| document.pointer(&pointer).cloned()))
        .filter(|value| !has_whole_float(value))
        .collect()
}

fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.get() % 1.0 == 0.0,
        Value::List(items) => items.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        _ => false,
    }
}

/// A repeatable stream of choices.
#[derive(Debug)]
pub struct Draws {
    stream: Stream,
    next: u64,
}

impl Draws {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { stream: Stream::new(seed, "mutation", 0), next: 0 }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.next += 1;
        let limit = limit.max(1) as u64;
        usize::try_from(self.stream.word(self.next) % limit).unwrap_or(0)
    }
}

/// What may stand in the place of `value`. Only a first change may use numbers that have two spellings.
fn replacements(value: &Value, first: bool) -> Vec<Value> {
    let mut texts = vec!["null", "true", "[]", "{}", "\"\"", "\"word\"", "7", "-1", "0.5"];
    let mut new = Vec::new();
    match value {
        Value::Integer(_) => {
            texts.extend(["0", "1", "1.5", "-0.5"]);
            if first {
                texts.extend([
                    "9007199254740993",
                    "18446744073709551615",
                    "18446744073709551616",
                    "-9223372036854775809",
                ]);
                texts.extend(["9223372036854775807", "1000000000000000000000000000000", "1e300"]);
            }
        }
        Value::Float(_) => {
            texts.extend(["0", "1", "1e-60", "5e-324", "-0.5", "1000.5", "0.999"]);
            if first {
                texts.extend(["0.0", "1.0", "-0.0", "10.0", "1e300", "-1e300"]);
            }
        }
        Value::String(text) => new.extend(words(text).into_iter().map(Value::String)),
        Value::List(items) => new.extend(lists(items)),
        Value::Object(members) => new.extend(objects(members)),
        Value::Null | Value::Bool(_) => {}
    }
    new.extend(texts.into_iter().filter_map(|text| parse(text.as_bytes()).ok()));
    new
}

fn words(text: &str) -> Vec<String> {
    let digits = "0123456789abcdef".repeat(4);
    vec![
        format!("{text}x"),
        format!("{text}\n"),
        format!(" {text}"),
        format!("/{text}"),
        format!("{text}/"),
        format!("./{text}"),
        format!("{text}/../b"),
        format!("{text}//b"),
        format!("{text}:c"),
        format!("{text}\\c"),
        format!("{text}\u{7f}"),
        format!("{text}\u{e9}\u{1f600}"),
        format!("...{text}"),
        text.to_uppercase(),
        text.chars().skip(1).collect(),
        "x".repeat(128),
        "x".repeat(129),
        "x".repeat(255),
        "x".repeat(256),
        "a/".repeat(63) + "a",
        "a/".repeat(64) + "a",
        // 4096 bytes, and one more.
        format!("{}y", format!("{}/", "y".repeat(127)).repeat(31)) + &"y".repeat(127),
        format!("{}y", format!("{}/", "y".repeat(127)).repeat(31)) + &"y".repeat(128),
        "..".into(),
        "sha256".into(),
        format!("sha256:{digits}"),
        format!("sha256:{digits}0"),
        format!("sha512:{digits}"),
        digits,
        "2026-11-29T12:00:00Z".into(),
        "2024-02-29T23:59:59Z".into(),
        "2026-02-30T00:00:00Z".into(),
        "2026-04-31T00:00:00Z".into(),
        "2026-13-01T00:00:00Z".into(),
        "2026-00-10T00:00:00Z".into(),
        "2026-01-00T00:00:00Z".into(),
        "2026-01-01T24:00:00Z".into(),
        "2026-01-01T00:00:60Z".into(),
        "2026-01-01 00:00:00Z".into(),
        "2026-01-01T00:00:00+01:00".into(),
        "1969-12-31T23:59:59Z".into(),
        "1970-01-01T00:00:00Z".into(),
        "9999-12-31T23:59:59Z".into(),
        "1796000000".into(),
    ]
}

fn lists(items: &[Value]) -> Vec<Value> {
    let with = |extra: Value| Value::List(items.iter().cloned().chain([extra]).collect());
    let mut new = vec![
        with(Value::Null),
        with(Value::Bool(true)),
        with("word".into()),
        Value::List(vec![Value::List(items.to_vec())]),
    ];
    if let Some(first) = items.first() {
        new.extend([with(first.clone()), Value::List(items[1..].to_vec()), first.clone()]);
    }
    new
}

fn objects(members: &BTreeMap<String, Value>) -> Vec<Value> {
    let with = |key: &str, value: Value| {
        let mut more = members.clone();
        more.insert(key.to_string(), value);
        Value::Object(more)
    };
    let mut new = vec![
        with("surplus", Value::Null),
        with("surplus", "word".into()),
        with("", 7u64.into()),
        with("Schema", "xt.plan/1".into()),
        with("schema", "xt.plan/2".into()),
        with("kind", "none".into()),
        Value::List(vec![Value::Object(members.clone())]),
    ];
    for (key, value) in members {
        let mut renamed = members.clone();
        renamed.remove(key);
        renamed.insert(format!("{key}_"), value.clone());
        new.push(Value::Object(renamed));
    }
    new
}

/// `document` with the value at `pointer` replaced, or taken out of its parent.
fn edited(document: &Value, pointer: &str, new: Option<Value>) -> Value {
    let Some(path) = pointer.strip_prefix('/') else { return new.unwrap_or(Value::Null) };
    let (token, rest) = path.split_once('/').map_or((path, String::new()), |(token, rest)| (token, format!("/{rest}")));
    let mut changed = document.clone();
    match &mut changed {
        Value::Object(members) => {
            let key = token.replace("~1", "/").replace("~0", "~");
            if let Some(child) = members.remove(&key)
                && (new.is_some() || !rest.is_empty())
            {
                members.insert(key, edited(&child, &rest, new));
            }
        }
        Value::List(items) => {
            let index: usize = token.parse().unwrap_or(usize::MAX);
            if rest.is_empty() && new.is_none() {
                items.remove(index);
            } else if let Some(child) = items.get_mut(index) {
                *child = edited(child, &rest, new);
            }
        }
        _ => {}
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_replaced_or_removed_and_the_rest_stays() {
        let document = parse(br#"{"a":[1,{"b":2}],"c/d":3}"#).unwrap();
        let new = |pointer: &str, value: Option<Value>| edited(&document, pointer, value).canonical();
        assert_eq!(new("/a/1/b", Some(Value::Null)), r#"{"a":[1,{"b":null}],"c/d":3}"#);
        assert_eq!(new("/a/0", None), r#"{"a":[{"b":2}],"c/d":3}"#);
        assert_eq!(new("/c~1d", None), r#"{"a":[1,{"b":2}]}"#);
        assert_eq!(pointers(&document), ["", "/a", "/a/0", "/a/1", "/a/1/b", "/c~1d"]);
    }

    #[test]
    fn draws_repeat_and_another_seed_gives_others() {
        let first = |seed| {
            (0..9)
                .map({
                    let mut draws = Draws::new(seed);
                    move |_| draws.below(1000)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
