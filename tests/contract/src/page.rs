//! xt-manifest(5), from the JSON Schemas: every kind of document with every field, so that the page cannot drift.

use std::collections::BTreeMap;

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Field;
use xt_core::instant::Instant;
use xt_core::manifest::schemas;
use xt_core::manifest::trace::Step;
use xt_core::name::Name;
use xt_core::number::{Bits32, Bits64};
use xt_core::relpath::RelativePath;
use xt_core::tag;

/// What stands before the kinds.
const HEAD: &str = include_str!("page-head.roff");
/// What stands after them.
const TAIL: &str = include_str!("page-tail.roff");

/// The whole page.
pub fn manifest_page() -> String {
    let schemas = schemas();
    let mut page = String::from(HEAD);
    page.push_str(".SH KINDS\n");
    for tag in tag::ALL {
        let Some(schema) = schemas.get(tag) else { continue };
        section(&mut page, tag, schema);
    }
    page.push_str(".SH LINES OF A TRACE\n");
    page.push_str(
        "The lines of\n.I steps.jsonl\nare no documents of their own: they have no\n.B schema\nand no\n.BR id .\n",
    );
    section(&mut page, "A step", &Step::schema());
    page.push_str(TAIL);
    page
}

fn section(page: &mut String, title: &str, schema: &Value) {
    line(page, &format!(".SS {}", escaped(title)));
    sentences(page, text(schema, "description"));
    fields(page, schema);
}

/// The fields of an object, with the objects inside them indented.
fn fields(page: &mut String, schema: &Value) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    for (name, field) in properties.iter().filter(|(name, _)| own(properties, name)) {
        line(page, ".TP");
        line(page, &format!(".B {}", escaped(name)));
        sentences(page, text(field, "description"));
        // Of an object with its fields below there is nothing more to say.
        if shape(field) != "an object" {
            sentences(page, &format!("{}.", capital(&shape(field))));
        }
        inside(page, field);
    }
}

/// What a field holds, when that has parts of its own.
fn inside(page: &mut String, schema: &Value) {
    let inner = core(schema);
    if document(inner).is_some() {
        return;
    }
    if let Some(Value::List(options)) = inner.get("oneOf") {
        line(page, ".RS 4");
        for option in options {
            let word = option.get("const").or_else(|| option.pointer("/properties/kind/const"));
            line(page, ".TP");
            line(page, &format!(".B {}", escaped(&word.map_or_else(String::new, Value::canonical))));
            sentences(page, text(option, "description"));
            nested(page, option);
        }
        line(page, ".RE");
    } else {
        nested(page, inner);
    }
}

/// Whether a field is described here: `schema`, `kind` and the `id` of a whole document are said elsewhere.
fn own(properties: &BTreeMap<String, Value>, name: &str) -> bool {
    !matches!(name, "schema" | "kind") && (name != "id" || !properties.contains_key("schema"))
}

fn nested(page: &mut String, schema: &Value) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    if properties.keys().any(|name| own(properties, name)) {
        line(page, ".RS 4");
        fields(page, schema);
        line(page, ".RE");
    }
}

/// The schema of the things themselves, past `null`, lists and maps.
fn core(schema: &Value) -> &Value {
    let lists = [schema.pointer("/anyOf/0"), schema.get("items")];
    let map = schema.get("additionalProperties").filter(|each| matches!(each, Value::Object(_)));
    lists.into_iter().flatten().next().or(map).map_or(schema, core)
}

/// The kind, when the schema is that of a whole document.
fn document(schema: &Value) -> Option<&str> {
    schema.pointer("/properties/schema/const").and_then(Value::as_str)
}

/// What stands there, in words.
fn shape(schema: &Value) -> String {
    if let Some(Value::List(options)) = schema.get("anyOf") {
        return format!("{}, or `null`", options.first().map_or_else(String::new, shape));
    }
    if let Some(kind) = document(schema) {
        return format!("an `{kind}` document");
    }
    if let Some(Value::List(options)) = schema.get("oneOf") {
        let words = options.iter().all(|option| option.get("const").is_some());
        return if words { "one of these words".into() } else { "one of these objects, told apart by `kind`".into() };
    }
    match text(schema, "type") {
        "integer" => format!("a whole number{}", bounds(schema)),
        "number" => format!("a number{}", bounds(schema)),
        "boolean" => "true or false".into(),
        "string" => string(text(schema, "pattern")).into(),
        "array" => format!("a list; each item is {}", schema.get("items").map_or_else(String::new, shape)),
        "object" => match schema.get("additionalProperties") {
            Some(each @ Value::Object(_)) => format!("an object with names of any kind; each value is {}", shape(each)),
            _ => "an object".into(),
        },
        _ => "any JSON value".into(),
    }
}

fn string(pattern: &str) -> &'static str {
    fn is<T: Field>(pattern: &str) -> bool {
        text(&T::schema(), "pattern") == pattern
    }
    match pattern {
        "" => "a text",
        pattern if is::<Digest>(pattern) => "a digest",
        pattern if is::<Name>(pattern) => "an identifier",
        pattern if is::<Instant>(pattern) => "a time",
        pattern if is::<RelativePath>(pattern) => "a relative path",
        pattern if is::<Bits32>(pattern) => "the bits of a 32-bit float, as 8 hexadecimal digits",
        pattern if is::<Bits64>(pattern) => "the bits of a 64-bit float, as 16 hexadecimal digits",
        _ => "a text of a certain form",
    }
}

fn bounds(schema: &Value) -> String {
    // The bounds of the 64-bit types go without saying.
    let wide = [u64::MAX.to_string(), i64::MAX.to_string(), i64::MIN.to_string()];
    let bound = |key: &str| schema.get(key).map(Value::canonical).filter(|number| !wide.contains(number));
    let low = bound("exclusiveMinimum").map(|low| format!("above {low}"));
    let low = low.or_else(|| bound("minimum").map(|low| format!("at least {low}")));
    let high = bound("exclusiveMaximum").map(|high| format!("below {high}"));
    let high = high.or_else(|| bound("maximum").map(|high| format!("at most {high}")));
    match (low, high) {
        (None, None) => String::new(),
        (Some(one), None) | (None, Some(one)) => format!(", {one}"),
        (Some(low), Some(high)) => format!(", {low} and {high}"),
    }
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// Text for roff: nothing in it is a request or an escape; what stands in backticks is bold.
fn escaped(text: &str) -> String {
    let plain = text.replace('\\', "\\e").replace('-', "\\-");
    let mut out = String::new();
    for (index, part) in plain.split('`').enumerate() {
        out.push_str(match index {
            0 => "",
            odd if odd % 2 == 1 => "\\fB",
            _ => "\\fR",
        });
        for character in part.chars() {
            match u32::from(character) {
                0..=127 => out.push(character),
                code => out.extend([format!("\\[u{code:04X}]")]),
            }
        }
    }
    guarded(&out)
}

/// A line of text that starts with a point or an apostrophe would be a request.
fn guarded(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_string() }
}

/// One sentence a line, and no line longer than 80 characters.
fn sentences(page: &mut String, text: &str) {
    let mut current = String::new();
    for word in escaped(text).split_whitespace() {
        let ended = current.ends_with(['.', ';', ':']);
        if !current.is_empty() && (current.len() + word.len() >= 78 || ended) {
            line(page, &guarded(&current));
            current.clear();
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    if !current.is_empty() {
        line(page, &guarded(&current));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roff_sees_no_request_in_a_text() {
        assert_eq!(escaped(".xt \\ a-b `kind`"), "\\&.xt \\e a\\-b \\fBkind\\fR");
        let mut page = String::new();
        sentences(&mut page, "One. Two `x`, then.\n Three");
        assert_eq!(page, "One.\nTwo \\fBx\\fR, then.\nThree\n");
    }

    #[test]
    fn bounds_and_null_are_in_words() {
        let schema = |text: &str| xt_core::canonical::parse(text.as_bytes()).unwrap();
        let rate = schema(r#"{"anyOf":[{"type":"number","exclusiveMinimum":0,"maximum":1},{"type":"null"}]}"#);
        assert_eq!(shape(&rate), "a number, above 0 and at most 1, or `null`");
        assert_eq!(shape(&u64::schema()), "a whole number, at least 0");
    }
}
