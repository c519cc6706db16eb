//! The JSON Schemas and the readers give the same verdict on thousands of changed documents.
#![allow(clippy::unwrap_used)]

use jsonschema::Validator;
use serde_json::Value as Json;
use xt_contract::documents;
use xt_contract::mutation::{Draws, mixed, pool, single};
use xt_core::canonical::{Value, parse};
use xt_core::manifest::schemas;
use xt_core::tag;

fn json(value: &Value) -> Json {
    serde_json::from_str(&value.canonical()).unwrap()
}

fn validator(schema: &Value) -> Validator {
    jsonschema::draft202012::new(&json(schema)).unwrap()
}

fn documents_of(tag: &str) -> Vec<Value> {
    documents::all().into_iter().filter(|(kind, _)| *kind == tag).map(|(_, value)| value).collect()
}

/// What the reader and the schema say, if they disagree.
fn disagreement(tag: &str, validator: &Validator, document: &Value) -> Option<String> {
    let json = json(document);
    let read = documents::read(tag, document);
    if read.is_ok() == validator.is_valid(&json) {
        return None;
    }
    let schema: Vec<String> =
        validator.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
    let text: String = document.canonical().chars().take(2000).collect();
    Some(format!("{tag}\n reader: {:?}\n schema: {schema:?}\n document: {text}", read.err()))
}

#[test]
fn every_kind_has_a_schema_and_a_document() {
    let schemas = schemas();
    for tag in tag::ALL {
        assert!(schemas.contains_key(tag), "{tag} has no schema");
        assert!(!documents_of(tag).is_empty(), "{tag} has no document");
    }
    assert_eq!(schemas.len(), tag::ALL.len());
}

#[test]
fn the_documents_are_valid_with_and_without_their_id() {
    let schemas = schemas();
    for (tag, document) in documents::all() {
        let validator = validator(&schemas[tag]);
        assert!(documents::read(tag, &document).is_ok() && validator.is_valid(&json(&document)), "{tag}");
        let Value::Object(mut members) = document.clone() else { unreachable!() };
        members.insert("id".into(), document.identity().to_string().as_str().into());
        let named = Value::Object(members.clone());
        assert!(documents::read(tag, &named).is_ok() && validator.is_valid(&json(&named)), "{tag}");
        for wrong in [Value::Null, "sha256:0".into(), 7u64.into()] {
            members.insert("id".into(), wrong);
            let wrong = Value::Object(members.clone());
            assert!(documents::read(tag, &wrong).is_err() && !validator.is_valid(&json(&wrong)), "{tag}");
        }
    }
}

/// Lists the parts of a schema that no value shows: fields without a value, words of `null`, kinds of a choice.
fn unseen(schema: &Value, values: &[&Value], at: &str, gaps: &mut Vec<String>) {
    if values.is_empty() {
        gaps.push(at.to_string());
        return;
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (key, schema) in properties.iter().filter(|(key, _)| *key != "id") {
            let inside: Vec<&Value> = values.iter().filter_map(|value| value.get(key)).collect();
            unseen(schema, &inside, &format!("{at}/{key}"), gaps);
        }
    }
    if let Some(Value::List(options)) = schema.get("oneOf") {
        // The options of words have no kind; no document needs to show every word.
        for (option, kind) in
            options.iter().filter_map(|option| Some((option, option.pointer("/properties/kind/const")?)))
        {
            let inside: Vec<&Value> = values.iter().copied().filter(|value| value.get("kind") == Some(kind)).collect();
            unseen(option, &inside, &format!("{at}={}", kind.canonical()), gaps);
        }
    }
    if let Some(Value::List(options)) = schema.get("anyOf") {
        let some: Vec<&Value> = values.iter().copied().filter(|value| **value != Value::Null).collect();
        unseen(&options[0], &some, at, gaps);
        if some.len() == values.len() {
            gaps.push(format!("{at}=null"));
        }
    }
    for inner in ["items", "additionalProperties"].iter().filter_map(|key| schema.get(key)) {
        if matches!(inner, Value::Object(_)) {
            let inside: Vec<&Value> = values.iter().flat_map(|value| items(value)).collect();
            unseen(inner, &inside, &format!("{at}/*"), gaps);
        }
    }
}

fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::List(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_documents_show_every_field_every_null_and_every_choice() {
    for (tag, schema) in schemas() {
        let documents = documents_of(tag);
        let mut gaps = Vec::new();
        unseen(&schema, &documents.iter().collect::<Vec<_>>(), tag, &mut gaps);
        // The same parts are seen in intents of their own.
        gaps.retain(|gap| !gap.starts_with("xt.plan/1/intent/") && !gap.starts_with("xt.run/1/intent/"));
        assert!(gaps.is_empty(), "{gaps:#?}");
    }
}

#[test]
fn schema_and_reader_agree_on_every_single_change() {
    let schemas = schemas();
    for tag in tag::ALL {
        let validator = validator(&schemas[tag]);
        let (mut accepted, mut refused) = (0, 0);
        for changed in single(&documents_of(tag)) {
            if let Some(text) = disagreement(tag, &validator, &changed) {
                panic!("{text}");
            }
            *(if documents::read(tag, &changed).is_ok() { &mut accepted } else { &mut refused }) += 1;
        }
        assert!(accepted > 5 && refused > 100, "{tag}: {accepted} accepted, {refused} refused");
        println!("{tag}: {accepted} accepted, {refused} refused");
    }
}

#[test]
fn schema_and_reader_agree_on_thousands_of_mixed_changes() {
    let schemas = schemas();
    let all = documents::all();
    let pool = pool(all.iter().map(|(_, document)| document));
    let mut draws = Draws::new(20_261_129);
    let mut accepted = 0;
    for tag in tag::ALL {
        let validator = validator(&schemas[tag]);
        let documents = documents_of(tag);
        for round in 0..1000 {
            let changed = mixed(&documents[round % documents.len()], &pool, &mut draws);
            if let Some(text) = disagreement(tag, &validator, &changed) {
                panic!("round {round} of {text}");
            }
            accepted += usize::from(documents::read(tag, &changed).is_ok());
        }
    }
    assert!(accepted > 100, "{accepted} accepted");
}

/// Every schema that lacks one rule of `schema`: a required field, a bound, a type, a pattern, a list of words.
fn weakened(schema: &Value) -> Vec<(String, Value)> {
    const RULES: [&str; 10] = [
        "additionalProperties",
        "const",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maximum",
        "minimum",
        "pattern",
        "required",
        "type",
        "items",
    ];
    let mut weaker = Vec::new();
    for pointer in xt_contract::mutation::pointers(schema) {
        let Some(Value::Object(_)) = schema.pointer(&pointer) else { continue };
        // Names of fields are not rules, even when a field is called `type`.
        if pointer.ends_with("/properties") || pointer.ends_with("/properties/id") {
            continue;
        }
        weaker.extend(
            RULES.iter().filter_map(|rule| Some((format!("{pointer}/{rule}"), without(schema, &pointer, rule)?))),
        );
    }
    weaker
}

fn without(schema: &Value, pointer: &str, rule: &str) -> Option<Value> {
    let Value::Object(members) = schema else {
        let Value::List(items) = schema else { return None };
        let (token, rest) = split(pointer)?;
        let mut items = items.clone();
        let index: usize = token.parse().ok()?;
        items[index] = without(&items[index], &rest, rule)?;
        return Some(Value::List(items));
    };
    let mut members = members.clone();
    match split(pointer) {
        None => drop(members.remove(rule)?),
        Some((token, rest)) => {
            let inner = without(members.get(&token)?, &rest, rule)?;
            members.insert(token, inner);
        }
    }
    Some(Value::Object(members))
}

fn split(pointer: &str) -> Option<(String, String)> {
    let path = pointer.strip_prefix('/')?;
    let (token, rest) = path.split_once('/').map_or((path, String::new()), |(token, rest)| (token, format!("/{rest}")));
    Some((token.replace("~1", "/").replace("~0", "~"), rest))
}

/// The control of this file: whatever rule a schema forgets, some changed document shows it.
#[test]
fn a_schema_that_forgets_any_one_rule_is_found_out() {
    let schemas = schemas();
    for tag in ["xt.candidate/1", "xt.event/1", "xt.dataset/1"] {
        let changed: Vec<(Json, bool)> = single(&documents_of(tag))
            .into_iter()
            .map(|document| (json(&document), documents::read(tag, &document).is_ok()))
            .collect();
        // Neighbouring rules are shown by neighbouring documents: the search begins where the last one ended.
        let mut near = 0;
        for (rule, schema) in weakened(&schemas[tag]) {
            let validator = validator(&schema);
            let shows = |index: &usize| validator.is_valid(&changed[*index].0) != changed[*index].1;
            let found = (near..changed.len()).chain((0..near).rev()).find(shows);
            near = found.unwrap_or_else(|| panic!("{tag}: nothing shows that {rule} is missing"));
        }
    }
}

/// What JSON Schema cannot say. Each of these is accepted by the schema and refused by the reader; schemas/README.md
/// lists them for people who validate with other programs.
#[test]
fn the_reader_is_stricter_in_five_named_ways_and_no_others() {
    let schemas = schemas();
    let (leap, long) = ("2027-02-29T00:00:00Z", "\u{e9}".repeat(200));
    let other = documents_of("xt.trace/1")[0].identity().to_string();
    let cases: [(&str, &str, &str, &str); 5] = [
        ("a whole number written as a float", "xt.trace/1", "\"steps\":33", "\"steps\":33.0"),
        (
            "an integer beyond 2^53 where a float is due",
            "xt.candidate/1",
            "\"maximum\":0.7",
            "\"maximum\":9007199254740993",
        ),
        ("a day that its year lacks", "xt.event/1", "\"at\":\"2026-11-30T00:53:20Z\"", &format!("\"at\":\"{leap}\"")),
        ("a path whose limit in bytes is passed", "xt.bundle/1", "model/model.safetensors", &long),
        ("an id of other content", "xt.event/1", "\"kind\":", &format!("\"id\":\"{other}\",\"kind\":")),
    ];
    for (what, tag, from, to) in cases {
        let text = documents_of(tag)[0].canonical();
        assert!(text.contains(from), "{what}: {text}");
        let changed = parse(text.replace(from, to).as_bytes()).unwrap();
        assert!(validator(&schemas[tag]).is_valid(&json(&changed)), "{what}: the schema refuses it, too");
        assert!(documents::read(tag, &changed).is_err(), "{what}: the reader accepts it");
    }
}
