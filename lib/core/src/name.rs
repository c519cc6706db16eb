//! Identifiers: names that people give to things.

use alloc::string::{String, ToString};
use core::fmt;

/// An identifier: an ASCII letter or digit, then up to 127 of letters, digits, `.`, `_`, `:`, `/`, `@`, `-` (row I06).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The pattern as JSON Schema writes it.
    pub const PATTERN: &'static str = "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$";

    /// `text`, if it is an identifier.
    pub fn new(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let first = bytes.first()?.is_ascii_alphanumeric();
        let rest = bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._:/@-".contains(b));
        (first && rest && bytes.len() <= 128).then(|| Self(text.to_string()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ascii_identifiers_of_at_most_128_characters() {
        for good in ["a", "0", "team:data", "a/b@c-d_e.f", &"x".repeat(128)] {
            assert!(Name::new(good).is_some(), "{good}");
        }
        for bad in ["", ".a", "-", "a b", "é", "a\n", &"x".repeat(129)] {
            assert!(Name::new(bad).is_none(), "{bad}");
        }
    }
}
