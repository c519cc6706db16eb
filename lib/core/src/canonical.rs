//! Canonical JSON: one text for one value (design rule 3), read strictly.
//!
//! Keys are sorted by code point at every level, nothing is padded, everything outside printable ASCII is escaped in
//! lower case, floats are written as Python writes them, integers stay integers and exact, and there is no NaN.
//! `python3 -c 'json.dumps(x, sort_keys=True, separators=(",",":"))'` prints the same bytes.
//!
//! The reader is ours because identity hangs on it: serde_json reads `-0` as a float, integers above 64 bits as
//! floats, and keeps the last of two equal keys in silence.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::{Digest, hex};
use crate::number::{Finite, float_text};

/// Containers may be nested this deep; a deeper document is refused.
pub const MAX_DEPTH: usize = 127;
/// A document may be this many bytes long; a longer one is refused.
pub const MAX_BYTES: usize = 64 << 20;
/// An integer may have this many digits, as in Python; a longer one is refused.
pub const MAX_DIGITS: usize = 4300;

/// A JSON value. Integers and floats are different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number written without point and exponent.
    Integer(Integer),
    /// A number written with a point or an exponent.
    Float(Finite),
    /// Text.
    String(String),
    /// An ordered list.
    List(Vec<Value>),
    /// Names and values; the order of the map is the canonical order.
    Object(BTreeMap<String, Value>),
}

/// A whole number of any size, exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integer(String);

impl Integer {
    /// The digits, with a leading `-` for negative numbers.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The number, if it fits.
    pub fn to_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    /// The number, if it fits.
    pub fn to_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(Integer(value.to_string()))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(Integer(value.to_string()))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.to_string())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl Value {
    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.get(key),
            _ => None,
        }
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value at a JSON pointer (RFC 6901).
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        let Some(path) = pointer.strip_prefix('/') else { return pointer.is_empty().then_some(self) };
        path.split('/').try_fold(self, |value, token| {
            let token = token.replace("~1", "/").replace("~0", "~");
            match value {
                Self::Object(members) => members.get(&token),
                Self::List(items) => items.get(token.parse::<usize>().ok()?),
                _ => None,
            }
        })
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number with a fraction",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// The canonical text.
    pub fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The digest of the canonical text.
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical().as_bytes())
    }

    /// The digest of the canonical text of an object without its `id` member: a manifest's identity.
    pub fn identity(&self) -> Digest {
        match self {
            Self::Object(members) if members.contains_key("id") => {
                let mut bare = members.clone();
                bare.remove("id");
                Self::Object(bare).digest()
            }
            _ => self.digest(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Integer(integer) => out.push_str(integer.text()),
            Self::Float(value) => out.push_str(&float_text(*value)),
            Self::String(text) => write_string(text, out),
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    out.push_str("\\u");
                    out.push_str(&hex(&unit.to_be_bytes()));
                }
            }
        }
    }
    out.push('"');
}

/// Why a text is not one strict JSON document, and where (both counted from 1; columns count bytes).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ParseError {
    /// Line of the fault.
    pub line: usize,
    /// Column of the fault, in bytes.
    pub column: usize,
    /// What is wrong.
    pub problem: Problem,
}

impl ParseError {
    /// The fault right after `before`.
    fn after(before: &[u8], problem: Problem) -> Self {
        let last_line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = before.split(|byte| *byte == b'\n').count();
        Self { line, column: last_line.len() + 1, problem }
    }
}

/// What is wrong with a JSON text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Bytes EF BB BF, or those of UTF-16.
    #[error("byte-order mark: documents are plain UTF-8 without one")]
    ByteOrderMark,
    /// Bytes that are no UTF-8.
    #[error("these bytes are not UTF-8")]
    NotUtf8,
    /// Nothing but white space.
    #[error("expected a JSON document, found nothing")]
    Empty,
    /// The text ends where something is still due.
    #[error("the document ends too early: {0} is missing")]
    Cut(&'static str),
    /// Something that may not stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What may stand here.
        expected: &'static str,
        /// What stands here.
        found: String,
    },
    /// NaN, Infinity and their like.
    #[error("{0} is not a JSON number; manifests hold finite numbers")]
    NotFinite(String),
    /// A number whose nearest binary64 is infinite.
    #[error("the number {0} is out of the range of a 64-bit float")]
    OutOfRange(String),
    /// More than [`MAX_DIGITS`] digits.
    #[error("an integer of {0} digits is longer than {MAX_DIGITS}")]
    TooManyDigits(usize),
    /// The same key twice in one object.
    #[error("the key {0:?} occurs twice")]
    DuplicateKey(String),
    /// Half a surrogate pair.
    #[error("\\u{0:04x} is half a surrogate pair, so no text")]
    LoneSurrogate(u16),
    /// A control character inside a string.
    #[error("the control character U+{0:04X} must be escaped inside a string")]
    Control(u32),
    /// More than [`MAX_DEPTH`] containers inside one another.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More than [`MAX_BYTES`].
    #[error("the document is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Something after the document.
    #[error("there is more text after the end of the document")]
    Trailing,
}

/// Reads exactly one document.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    let mut reader = Reader::new(bytes)?;
    let value = reader.document()?.ok_or_else(|| reader.error(Problem::Empty))?;
    reader.skip_space();
    if reader.at < bytes.len() {
        return Err(reader.error(Problem::Trailing));
    }
    Ok(value)
}

/// Reads any number of documents, one after the other.
pub fn parse_all(bytes: &[u8]) -> Result<Vec<Value>, ParseError> {
    let mut reader = Reader::new(bytes)?;
    let mut values = Vec::new();
    while let Some(value) = reader.document()? {
        values.push(value);
    }
    Ok(values)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let empty = Self { text: "", at: 0, depth: 0 };
        if [&b"\xef\xbb\xbf"[..], b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| bytes.starts_with(mark)) {
            return Err(empty.error(Problem::ByteOrderMark));
        }
        if bytes.len() > MAX_BYTES {
            return Err(empty.error(Problem::TooLong));
        }
        match core::str::from_utf8(bytes) {
            Ok(text) => Ok(Self { text, at: 0, depth: 0 }),
            Err(error) => Err(ParseError::after(&bytes[..error.valid_up_to()], Problem::NotUtf8)),
        }
    }

    fn error(&self, problem: Problem) -> ParseError {
        ParseError::after(&self.text.as_bytes()[..self.at.min(self.text.len())], problem)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Result<Option<Value>, ParseError> {
        self.skip_space();
        if self.at == self.text.len() {
            return Ok(None);
        }
        self.value().map(Some)
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        let found: String = self.text[self.at..].chars().take_while(|c| c.is_alphanumeric()).take(20).collect();
        let found = match (found.is_empty(), self.text[self.at..].chars().next()) {
            (_, None) => return self.error(Problem::Cut(expected)),
            (true, Some(character)) => alloc::format!("{character:?}"),
            (false, _) => found,
        };
        if matches!(found.as_str(), "NaN" | "nan" | "Infinity" | "inf") {
            return self.error(Problem::NotFinite(found));
        }
        self.error(Problem::Unexpected { expected, found })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        let rest = &self.text[self.at..];
        let whole = rest.starts_with(word) && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric());
        if !whole {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, ParseError>) -> Result<Value, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(Problem::TooDeep));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            self.skip_space();
            items.push(self.value()?);
            if self.separator(b']', "a comma or ] in a list")? {
                return Ok(Value::List(items));
            }
        }
    }

    fn object(&mut self) -> Result<Value, ParseError> {
        let mut members = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            let key = self.string()?;
            if members.contains_key(&key) {
                self.at = start;
                return Err(self.error(Problem::DuplicateKey(key)));
            }
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("a colon after a key"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value()?;
            members.insert(key, value);
            if self.separator(b'}', "a comma or } in an object")? {
                return Ok(Value::Object(members));
            }
        }
    }

    /// Consumes a comma (false) or the closing byte (true).
    fn separator(&mut self, close: u8, expected: &'static str) -> Result<bool, ParseError> {
        self.skip_space();
        match self.peek() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == close => {
                self.at += 1;
                return Ok(true);
            }
            _ => return Err(self.unexpected(expected)),
        }
        Ok(false)
    }

    fn string(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.bytes().position(|byte| byte < 0x20 || byte == b'"' || byte == b'\\');
            let Some(plain) = plain else { return Err(self.error(Problem::Cut("the closing quote of a string"))) };
            out.push_str(&rest[..plain]);
            self.at += plain;
            match rest.as_bytes()[plain] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => out.push(self.escape()?),
                control => return Err(self.error(Problem::Control(u32::from(control)))),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        self.at += 1;
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.unexpected("an escape: one of \" \\ / b f n r t u")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let start = self.at - 1;
        let first = self.unit()?;
        let mut units = [first, 0];
        let mut count = 1;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            self.at += 1;
            units[1] = self.unit()?;
            count = 2;
        }
        if let Some(Ok(character)) = char::decode_utf16(units[..count].iter().copied()).next() {
            return Ok(character);
        }
        self.at = start;
        Err(self.error(Problem::LoneSurrogate(first)))
    }

    /// Four hexadecimal digits after the `u` this stands on.
    fn unit(&mut self) -> Result<u16, ParseError> {
        self.at += 1;
        let digits = self.text.get(self.at..self.at + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) else {
            return Err(self.unexpected("four hexadecimal digits"));
        };
        self.at += 4;
        Ok(unit)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.at;
        let count = self.digits();
        if count == 0 {
            return Err(self.unexpected("a digit"));
        }
        if count > 1 && self.text.as_bytes()[whole] == b'0' {
            self.at = whole;
            return Err(self.error(Problem::Unexpected {
                expected: "a number without leading zeros",
                found: self.text[whole..whole + count.min(20)].to_string(),
            }));
        }
        let mut is_float = false;
        if self.peek() == Some(b'.') {
            is_float = true;
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.unexpected("a digit after the point"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            is_float = true;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.unexpected("a digit in the exponent"));
            }
        }
        let text = &self.text[start..self.at];
        if is_float {
            let value = text.parse().ok().and_then(Finite::new);
            return value.map(Value::Float).ok_or_else(|| {
                self.at = start;
                self.error(Problem::OutOfRange(text.chars().take(40).collect()))
            });
        }
        if count > MAX_DIGITS {
            self.at = start;
            return Err(self.error(Problem::TooManyDigits(count)));
        }
        // `-0` is the integer zero, as in Python.
        Ok(Value::Integer(Integer(if text == "-0" { "0" } else { text }.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn canonical(text: &str) -> String {
        parse(text.as_bytes()).map_or_else(|error| format!("refused: {error}"), |value| value.canonical())
    }

    fn problem(text: &[u8]) -> Option<Problem> {
        parse(text).err().map(|error| error.problem)
    }

    #[test]
    fn keys_are_sorted_by_code_point_not_by_utf16_unit() {
        assert_eq!(
            canonical("{\"\u{1f600}\":1,\"\u{ffff}\":2,\"a\":3,\"B\":4}"),
            "{\"B\":4,\"a\":3,\"\\uffff\":2,\"\\ud83d\\ude00\":1}"
        );
    }

    #[test]
    fn integers_are_exact_and_stay_apart_from_floats() {
        for text in ["9007199254740993", "18446744073709551616", "-9223372036854775809", "0", "1000.0", "-0.0"] {
            assert_eq!(canonical(text), text);
        }
        assert_eq!(canonical("[-0,1e3,-1e-999]"), "[0,1000.0,-0.0]");
    }

    #[test]
    fn what_other_readers_let_pass_is_refused() {
        let refused: [(&[u8], Problem); 12] = [
            (b"{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", Problem::DuplicateKey("c".into())),
            (b"\xef\xbb\xbf{}", Problem::ByteOrderMark),
            (b"\xff\xfe{\0}\0", Problem::ByteOrderMark),
            (b"\"\\ud800\"", Problem::LoneSurrogate(0xd800)),
            (b"\"\\ud83c\\u0061\"", Problem::LoneSurrogate(0xd83c)),
            (b"\"\\udc00\"", Problem::LoneSurrogate(0xdc00)),
            (b"\"\xff\"", Problem::NotUtf8),
            (b"NaN", Problem::NotFinite("NaN".into())),
            (b"1e400", Problem::OutOfRange("1e400".into())),
            (b"{} x", Problem::Trailing),
            (b"{}{}", Problem::Trailing),
            (b" ", Problem::Empty),
        ];
        for (text, expected) in refused {
            assert_eq!(problem(text), Some(expected), "{}", String::from_utf8_lossy(text));
        }
        for text in ["-Infinity", "01", "1.", "+1", "[1,]", "{\"a\":1,}", "'a'", "\"\t\"", "truex", "[", "\"a"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_without_touching_the_stack() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(problem(nested(MAX_DEPTH + 1).as_bytes()), Some(Problem::TooDeep));
        assert_eq!(problem("[".repeat(100_000).as_bytes()), Some(Problem::TooDeep));
    }

    #[test]
    fn faults_are_placed() {
        let error = parse(b"{\n \"a\": 1,\n \"a\": 2}").err();
        assert_eq!(error.map(|error| (error.line, error.column)), Some((3, 2)));
    }

    #[test]
    fn several_documents_may_follow_one_another() {
        assert_eq!(parse_all(b"{}[] 1\n\"x\"").map(|values| values.len()), Ok(4));
        assert_eq!(parse_all(b"  \n").map(|values| values.len()), Ok(0));
    }

    #[test]
    fn escapes_are_one_spelling() {
        assert_eq!(canonical("\"caf\u{e9}\\/\\u007f\u{2028}\""), "\"caf\\u00e9/\\u007f\\u2028\"");
        assert_eq!(canonical("\"caf\\u00E9/\u{7f}\\u2028\""), "\"caf\\u00e9/\\u007f\\u2028\"");
    }
}
