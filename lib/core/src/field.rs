//! How manifests are read, written and described: one declaration gives the Rust type, a reader that reports every
//! fault at once with its JSON pointer, a writer, and the JSON Schema.
//!
//! serde stops at the first fault, and a refusal must list them all (design rule 6); that is why this exists.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::instant::Instant;
use crate::name::Name;
use crate::number::{Bits32, Bits64, Finite};
pub use crate::range::Range;
use crate::relpath::RelativePath;

/// A type that stands in a manifest.
pub trait Field: Sized {
    /// Reads it; `at` is the JSON pointer of `value`. `None` after at least one fault was noted.
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self>;

    /// Writes it.
    fn write(&self) -> Value;

    /// Its JSON Schema (draft 2020-12).
    fn schema() -> Value;

    /// The number to hold against a [`Range`], for numbers.
    fn magnitude(&self) -> Option<f64> {
        None
    }

    /// What stands for a field that is left out, for types that may be left out: only [`LeftOut`](crate::left_out::LeftOut).
    fn absent() -> Option<Self> {
        None
    }

    /// Whether the field is written at all.
    fn present(&self) -> bool {
        true
    }
}

/// A whole document with a `schema` field.
pub trait Manifest: Field {
    /// Kind and version, such as `xt.plan/1`.
    const TAG: &'static str;

    /// Reads a document and reports every fault.
    fn decode(value: &Value) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let read = Self::read(value, "", &mut faults);
        match read {
            Some(manifest) if faults.is_empty() => Ok(manifest),
            _ => Err(faults),
        }
    }

    /// The document with its `id`.
    fn encode(&self) -> Value {
        let mut value = self.write();
        let id = value.identity();
        if let Value::Object(members) = &mut value {
            members.insert("id".into(), id.to_string().as_str().into());
        }
        value
    }

    /// The digest of the canonical bytes without `id`.
    fn id(&self) -> Digest {
        self.write().identity()
    }
}

/// An object from its members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

/// A list of texts.
pub fn texts(items: &[&str]) -> Value {
    Value::List(items.iter().map(|item| (*item).into()).collect())
}

/// Notes that `value` is not what was due.
pub fn wrong_type(value: &Value, expected: &str, at: &str, faults: &mut Faults) {
    let shown: String = value.canonical().chars().take(60).collect();
    let kind = if *value == Value::Null { String::new() } else { format!("{} ", value.kind()) };
    faults.add(at, "field.type", format!("expected {expected}, found {kind}{shown}"));
}

/// JSON pointer of a member.
pub fn child(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Reads the member `key`; a missing one is a fault, since absent and `null` are different things.
pub fn member<T: Field>(
    members: &BTreeMap<String, Value>,
    key: &str,
    range: Option<Range>,
    at: &str,
    faults: &mut Faults,
) -> Option<T> {
    let pointer = child(at, key);
    let Some(value) = members.get(key) else {
        if let Some(absent) = T::absent() {
            return Some(absent);
        }
        faults.add(pointer, "field.missing", "this field must be declared");
        return None;
    };
    let read = T::read(value, &pointer, faults)?;
    if let (Some(range), Some(number)) = (range, read.magnitude())
        && !range.holds(number)
    {
        faults.add(pointer, "field.range", format!("expected a number {}, found {}", range.text(), value.canonical()));
        return None;
    }
    Some(read)
}

/// Notes every member that is not in `allowed`.
pub fn unknown(members: &BTreeMap<String, Value>, allowed: &[&str], at: &str, faults: &mut Faults) {
    for key in members.keys().filter(|key| !allowed.contains(&key.as_str())) {
        let message = format!("unknown field; the fields here are {}", allowed.join(", "));
        faults.add(child(at, key), "field.unknown", message);
    }
}

/// Checks the head of a document: `schema`, and `id` when it is there.
pub fn head(value: &Value, tag: &str, at: &str, faults: &mut Faults) -> bool {
    match value.get("schema") {
        None => faults.add(child(at, "schema"), "schema.missing", format!("expected \"schema\": \"{tag}\"")),
        Some(found) if found.as_str() == Some(tag) => {}
        Some(found) => {
            let message = format!("expected a document of kind {tag}, found {}", found.canonical());
            faults.add(child(at, "schema"), "schema.unknown", message);
            return false;
        }
    }
    if let Some(id) = value.get("id") {
        let right = value.identity().to_string();
        if id.as_str() != Some(&right) {
            let message = format!("the id {} does not belong to this content, whose id is {right}", id.canonical());
            faults.add(child(at, "id"), "id.mismatch", message);
        }
    }
    true
}

/// Schema of an object with these properties, all required, `id` optional for documents.
pub fn object_schema(doc: &str, tag: Option<&str>, properties: &[(&str, Value)]) -> Value {
    let mut required: Vec<&str> = properties.iter().map(|(key, _)| *key).collect();
    let mut all: BTreeMap<String, Value> = properties.iter().map(|(k, v)| ((*k).to_string(), v.clone())).collect();
    if let Some(tag) = tag {
        all.insert("schema".into(), object([("const", tag.into())]));
        all.insert("id".into(), Digest::schema());
        required.push("schema");
    }
    required.sort_unstable();
    let mut members = object([
        ("type", "object".into()),
        ("properties", Value::Object(all)),
        ("required", texts(&required)),
        ("additionalProperties", false.into()),
    ]);
    if let Value::Object(members) = &mut members
        && !doc.is_empty()
    {
        members.insert("description".into(), doc.into());
    }
    members
}

/// Adds a description to a schema.
pub fn described(schema: Value, doc: &str) -> Value {
    match schema {
        Value::Object(mut members) => {
            members.insert("description".into(), doc.into());
            Value::Object(members)
        }
        other => other,
    }
}

fn typed(name: &str) -> Value {
    object([("type", name.into())])
}

fn pattern(pattern: &str) -> Value {
    object([("type", "string".into()), ("pattern", pattern.into())])
}

impl Field for bool {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        if let Value::Bool(flag) = value {
            return Some(*flag);
        }
        wrong_type(value, "true or false", at, faults);
        None
    }

    fn write(&self) -> Value {
        Value::Bool(*self)
    }

    fn schema() -> Value {
        typed("boolean")
    }
}

impl Field for u64 {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let number = if let Value::Integer(integer) = value { integer.to_u64() } else { None };
        if number.is_none() {
            wrong_type(value, "a whole number from 0 to 18446744073709551615", at, faults);
        }
        number
    }

    fn write(&self) -> Value {
        (*self).into()
    }

    fn schema() -> Value {
        object([("type", "integer".into()), ("minimum", 0u64.into()), ("maximum", Self::MAX.into())])
    }

    #[expect(clippy::cast_precision_loss, reason = "only held against the bounds of a range")]
    fn magnitude(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Field for i64 {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let number = if let Value::Integer(integer) = value { integer.to_i64() } else { None };
        if number.is_none() {
            wrong_type(value, "a whole number of 64 bits", at, faults);
        }
        number
    }

    fn write(&self) -> Value {
        (*self).into()
    }

    fn schema() -> Value {
        object([("type", "integer".into()), ("minimum", Self::MIN.into()), ("maximum", Self::MAX.into())])
    }

    #[expect(clippy::cast_precision_loss, reason = "only held against the bounds of a range")]
    fn magnitude(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

/// A float field takes integer tokens that binary64 holds exactly, too; it is written as a float.
impl Field for Finite {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let number = match value {
            Value::Float(number) => Some(*number),
            #[expect(clippy::cast_precision_loss, reason = "the guard admits exact ones only")]
            Value::Integer(integer) => {
                integer.to_i64().filter(|n| n.unsigned_abs() <= 1 << 53).and_then(|n| Self::new(n as f64))
            }
            _ => None,
        };
        if number.is_none() {
            wrong_type(value, "a finite number", at, faults);
        }
        number
    }

    fn write(&self) -> Value {
        Value::Float(*self)
    }

    fn schema() -> Value {
        typed("number")
    }

    fn magnitude(&self) -> Option<f64> {
        Some(self.get())
    }
}

impl Field for String {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        if let Value::String(text) = value {
            return Some(text.clone());
        }
        wrong_type(value, "a string", at, faults);
        None
    }

    fn write(&self) -> Value {
        Value::String(self.clone())
    }

    fn schema() -> Value {
        typed("string")
    }
}

/// Any JSON value, kept as it is.
impl Field for Value {
    fn read(value: &Value, _: &str, _: &mut Faults) -> Option<Self> {
        Some(value.clone())
    }

    fn write(&self) -> Value {
        self.clone()
    }

    fn schema() -> Value {
        object([])
    }
}

/// A field whose JSON form is a string with a pattern.
macro_rules! text_field {
    ($type:ty, $expected:literal, $pattern:expr, $parse:expr) => {
        impl Field for $type {
            fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
                let parse: fn(&str) -> Option<$type> = $parse;
                let read = value.as_str().and_then(parse);
                if read.is_none() {
                    wrong_type(value, $expected, at, faults);
                }
                read
            }

            fn write(&self) -> Value {
                Value::String(self.to_string())
            }

            fn schema() -> Value {
                pattern($pattern)
            }
        }
    };
}

text_field!(Digest, "a digest (`sha256:` and 64 lower-case hexadecimal digits)", "^sha256:[0-9a-f]{64}$", |text| {
    text.parse().ok()
});
text_field!(
    Name,
    "an identifier (a letter or digit, then up to 127 of letters, digits and . _ : / @ -)",
    Name::PATTERN,
    Name::new
);
text_field!(Instant, "a time such as 2026-11-29T12:00:00Z", Instant::PATTERN, |text| {
    // Whole seconds are a spelling for command lines, not for manifests.
    text.contains('T').then(|| Instant::parse(text))?
});
text_field!(Bits32, "the 8 hexadecimal digits of a binary32", "^[0-9a-f]{8}$", Bits32::parse);
text_field!(Bits64, "the 16 hexadecimal digits of a binary64", "^[0-9a-f]{16}$", Bits64::parse);
text_field!(
    RelativePath,
    "a relative path without `.`, `..`, control characters, backslash or colon",
    RelativePath::PATTERN,
    |text| RelativePath::new(text).ok()
);

/// `null` means that there is none; the field itself must be there.
impl<T: Field> Field for Option<T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            other => T::read(other, at, faults).map(Some),
        }
    }

    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn schema() -> Value {
        object([("anyOf", Value::List([T::schema(), typed("null")].into()))])
    }

    fn magnitude(&self) -> Option<f64> {
        self.as_ref().and_then(T::magnitude)
    }
}

impl<T: Field> Field for Box<T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        T::read(value, at, faults).map(Self::new)
    }

    fn write(&self) -> Value {
        T::write(self)
    }

    fn schema() -> Value {
        T::schema()
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let Value::List(items) = value else {
            wrong_type(value, "a list", at, faults);
            return None;
        };
        let read: Self =
            items.iter().enumerate().filter_map(|(i, item)| T::read(item, &format!("{at}/{i}"), faults)).collect();
        (read.len() == items.len()).then_some(read)
    }

    fn write(&self) -> Value {
        Value::List(self.iter().map(T::write).collect())
    }

    fn schema() -> Value {
        object([("type", "array".into()), ("items", T::schema())])
    }
}

impl<T: Field> Field for BTreeMap<String, T> {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let Value::Object(members) = value else {
            wrong_type(value, "an object", at, faults);
            return None;
        };
        let read: Self = members
            .iter()
            .filter_map(|(key, item)| Some((key.clone(), T::read(item, &child(at, key), faults)?)))
            .collect();
        (read.len() == members.len()).then_some(read)
    }

    fn write(&self) -> Value {
        Value::Object(self.iter().map(|(key, item)| (key.clone(), item.write())).collect())
    }

    fn schema() -> Value {
        object([("type", "object".into()), ("additionalProperties", T::schema())])
    }
}

/// Declares an object: `record! { /// doc pub struct Name as "xt.name/1" { /// doc field: Type [range], } }`.
/// With `as`, it is a whole document. Every field must be present but those that are [`LeftOut`](crate::left_out::LeftOut);
/// `Option` means that `null` is allowed.
#[macro_export]
macro_rules! record {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident $(as $tag:path)? {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ty $([$range:expr])?,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }

        impl $crate::field::Field for $name {
            fn read(
                value: &$crate::canonical::Value, at: &str, faults: &mut $crate::fault::Faults,
            ) -> Option<Self> {
                let $crate::canonical::Value::Object(members) = value else {
                    $crate::field::wrong_type(value, "an object", at, faults);
                    return None;
                };
                let tag: Option<&str> = $crate::record!(@tag $($tag)?);
                if let Some(tag) = tag && !$crate::field::head(value, tag, at, faults) {
                    return None;
                }
                let allowed = [$(stringify!($field),)* "schema", "id"];
                let allowed = &allowed[..allowed.len() - if tag.is_some() { 0 } else { 2 }];
                $crate::field::unknown(members, allowed, at, faults);
                $(let $field = $crate::field::member::<$type>(
                    members, stringify!($field), $crate::record!(@range $($range)?), at, faults);)*
                Some(Self { $($field: $field?,)* })
            }

            fn write(&self) -> $crate::canonical::Value {
                let mut members = ::alloc::collections::BTreeMap::new();
                $(if $crate::field::Field::present(&self.$field) {
                    members.insert(::alloc::string::String::from(stringify!($field)),
                        $crate::field::Field::write(&self.$field));
                })*
                let tag: Option<&str> = $crate::record!(@tag $($tag)?);
                if let Some(tag) = tag {
                    members.insert("schema".into(), tag.into());
                }
                $crate::canonical::Value::Object(members)
            }

            fn schema() -> $crate::canonical::Value {
                let properties = [$((stringify!($field), $crate::field::described(
                    $crate::record!(@schema $type $(, $range)?), concat!($($field_doc,)* "").trim())),)*];
                let optional = [$((stringify!($field), <$type as $crate::field::Field>::absent().is_some()),)*];
                let schema = $crate::field::object_schema(
                    concat!($($doc,)* "").trim(), $crate::record!(@tag $($tag)?), &properties);
                $crate::left_out::optional(schema, &optional)
            }
        }

        $(impl $crate::field::Manifest for $name {
            const TAG: &'static str = $tag;
        })?
    };
    (@tag) => { None };
    (@tag $tag:path) => { Some($tag) };
    (@range) => { None };
    (@range $range:expr) => { Some($range) };
    (@schema $type:ty) => { <$type as $crate::field::Field>::schema() };
    (@schema $type:ty, $range:expr) => { $range.describe(<$type as $crate::field::Field>::schema()) };
}

/// Declares a choice between objects, told apart by the member `kind`:
/// `choice! { /// doc pub enum Name { /// doc Variant "word" { /// doc field: Type [range], }, } }`.
#[macro_export]
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $($(#[doc = $variant_doc:literal])* $variant:ident $word:literal {
                $($(#[doc = $field_doc:literal])* $field:ident: $type:ty $([$range:expr])?,)*
            },)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_doc])* $variant {
                $($(#[doc = $field_doc])* $field: $type,)*
            },)*
        }

        impl $name {
            /// The word that names the choice.
            pub const fn word(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $word,)* }
            }
        }

        impl $crate::field::Field for $name {
            #[allow(unused_variables, reason = "a choice without fields reads none")]
            fn read(
                value: &$crate::canonical::Value, at: &str, faults: &mut $crate::fault::Faults,
            ) -> Option<Self> {
                let $crate::canonical::Value::Object(members) = value else {
                    $crate::field::wrong_type(value, "an object with the field `kind`", at, faults);
                    return None;
                };
                let kind: ::alloc::string::String = $crate::field::member(members, "kind", None, at, faults)?;
                match kind.as_str() {
                    $($word => {
                        $crate::field::unknown(members, &["kind", $(stringify!($field),)*], at, faults);
                        $(let $field = $crate::field::member::<$type>(
                            members, stringify!($field), $crate::record!(@range $($range)?), at, faults);)*
                        Some(Self::$variant { $($field: $field?,)* })
                    })*
                    other => {
                        let message = ::alloc::format!("expected one of {}, found {other:?}", [$($word),*].join(", "));
                        faults.add($crate::field::child(at, "kind"), "field.choice", message);
                        None
                    }
                }
            }

            fn write(&self) -> $crate::canonical::Value {
                let mut members = ::alloc::collections::BTreeMap::new();
                members.insert(::alloc::string::String::from("kind"), self.word().into());
                match self {
                    $(Self::$variant { $($field,)* } => {
                        $(members.insert(stringify!($field).into(), $crate::field::Field::write($field));)*
                    })*
                }
                $crate::canonical::Value::Object(members)
            }

            fn schema() -> $crate::canonical::Value {
                let options = ::alloc::vec![$($crate::field::object_schema(
                    concat!($($variant_doc,)* "").trim(), None, &[
                        ("kind", $crate::field::object([("const", $word.into())])),
                        $((stringify!($field), $crate::field::described(
                            $crate::record!(@schema $type $(, $range)?), concat!($($field_doc,)* "").trim())),)*
                    ]),)*];
                $crate::field::object([
                    ("oneOf", $crate::canonical::Value::List(options)),
                    ("description", concat!($($doc,)* "").trim().into()),
                ])
            }
        }
    };
}

/// Declares a choice between words: `words! { /// doc pub enum Name { /// doc Variant "word", } }`.
#[macro_export]
macro_rules! words {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident { $($(#[doc = $variant_doc:literal])* $variant:ident $word:literal,)* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $variant_doc])* $variant,)* }

        impl $name {
            /// Every word, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The choice with this word.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.word())
            }
        }

        impl $crate::field::Field for $name {
            fn read(
                value: &$crate::canonical::Value, at: &str, faults: &mut $crate::fault::Faults,
            ) -> Option<Self> {
                let read = value.as_str().and_then(Self::parse);
                if read.is_none() {
                    let message = ::alloc::format!(
                        "expected one of {}, found {}", [$($word),*].join(", "), value.canonical());
                    faults.add(at, "field.choice", message);
                }
                read
            }

            fn write(&self) -> $crate::canonical::Value {
                self.word().into()
            }

            fn schema() -> $crate::canonical::Value {
                // `oneOf` and not `enum`, because each word has a description.
                let options = ::alloc::vec![$($crate::field::object([
                    ("const", $word.into()),
                    ("description", concat!($($variant_doc,)* "").trim().into()),
                ]),)*];
                $crate::field::object([
                    ("oneOf", $crate::canonical::Value::List(options)),
                    ("description", concat!($($doc,)* "").trim().into()),
                ])
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::parse;

    const TAG: &str = "xt.sample/1";

    record! {
        /// A document for this test.
        pub struct Sample as TAG {
            /// A count.
            count: u64 [Range::from(1.0).to(9.0)],
            /// A rate.
            rate: Option<Finite> [Range::above(0.0)],
            /// A way.
            way: Way,
        }
    }

    choice! {
        /// Ways.
        pub enum Way {
            /// Straight on.
            Straight "straight" {
                /// How far.
                far: u64,
            },
            /// Not at all.
            None "none" {},
        }
    }

    fn decode(text: &str) -> Result<Sample, Faults> {
        Sample::decode(&parse(text.as_bytes()).unwrap_or(Value::Null))
    }

    #[test]
    fn every_fault_is_reported_at_once_with_its_pointer() {
        let text = r#"{"schema":"xt.sample/1","count":"4","way":{"kind":"straight","fra":1},"shufle":true}"#;
        let faults = decode(text).err().unwrap_or_default();
        let found: Vec<(&str, &str)> = faults.0.iter().map(|f| (f.pointer.as_str(), f.code)).collect();
        assert_eq!(
            found,
            [
                ("/shufle", "field.unknown"),
                ("/count", "field.type"),
                ("/rate", "field.missing"),
                ("/way/fra", "field.unknown"),
                ("/way/far", "field.missing"),
            ]
        );
    }

    #[test]
    fn a_document_survives_its_text_and_a_wrong_id_is_refused() {
        let text = r#"{"schema":"xt.sample/1","count":4,"rate":1,"way":{"kind":"none"}}"#;
        let sample = decode(text).unwrap_or_else(|faults| panic!("{faults}"));
        let encoded = sample.encode();
        assert_eq!(Sample::decode(&encoded), Ok(sample.clone()));
        assert_eq!(encoded.get("id").and_then(Value::as_str), Some(sample.id().to_string().as_str()));
        let changed = encoded.canonical().replace("\"count\":4", "\"count\":5");
        assert_eq!(decode(&changed).err().map(|f| f.0[0].code), Some("id.mismatch"));
    }

    #[test]
    fn ranges_null_and_other_versions() {
        let with = |count: &str, rate: &str| {
            decode(&format!(r#"{{"schema":"xt.sample/1","count":{count},"rate":{rate},"way":{{"kind":"none"}}}}"#))
        };
        assert!(with("1", "null").is_ok() && with("9", "1e-300").is_ok());
        for (count, rate) in [("0", "1"), ("10", "1"), ("1", "0"), ("1", "-0.0"), ("1.0", "1"), ("1", "\"1\"")] {
            assert!(with(count, rate).is_err(), "{count} {rate}");
        }
        let other = decode(r#"{"schema":"xt.sample/2"}"#).err().map(|f| f.0[0].code);
        assert_eq!(other, Some("schema.unknown"));
    }
}
