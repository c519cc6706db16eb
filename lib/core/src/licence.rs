//! Licences, as SPDX expressions (SPDX 2.3, annex D).

use alloc::format;
use alloc::string::{String, ToString};

use spdx::{Expression, ParseMode};

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, object, wrong_type};

/// No expression that anybody uses is longer.
const LONGEST: usize = 256;
/// The characters of an expression. What they must make up is more than a pattern can say.
const PATTERN: &str = "^[A-Za-z0-9.:+() -]{1,256}$";

/// An SPDX expression, such as `MIT` or `MIT OR Apache-2.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Licence(String);

impl Licence {
    /// The expression in `text`, of identifiers that SPDX lists today, or of one's own after `LicenseRef-`; or what is wrong.
    pub fn declare(text: &str) -> Result<Self, String> {
        Self::parse(text, ParseMode::STRICT)
    }

    /// What is wrong with one that stands in a document, whose writer may know identifiers that were listed later, or are no
    /// longer.
    pub fn wrong(&self) -> Option<String> {
        let mode = ParseMode { allow_unknown: true, allow_deprecated: true, ..ParseMode::STRICT };
        Self::parse(&self.0, mode).err()
    }

    fn parse(text: &str, mode: ParseMode) -> Result<Self, String> {
        let failed = |why: String| format!("{text:?} is no SPDX expression: {why}");
        let at = |error: &spdx::ParseError| {
            format!("{} at {:?}", error.reason, text.get(error.span.clone()).unwrap_or_default())
        };
        Expression::parse_mode(text, mode).map_err(|error| failed(at(&error)))?;
        Self::new(text).ok_or_else(|| failed(format!("it is longer than {LONGEST} characters")))
    }

    /// Text of the characters that expressions are made of.
    fn new(text: &str) -> Option<Self> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".:+() -".contains(&byte);
        ((1..=LONGEST).contains(&text.len()) && text.bytes().all(fits)).then(|| Self(text.to_string()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl core::fmt::Display for Licence {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Field for Licence {
    fn read(value: &Value, at: &str, faults: &mut Faults) -> Option<Self> {
        let read = value.as_str().and_then(Self::new);
        if read.is_none() {
            wrong_type(value, "an SPDX expression", at, faults);
        }
        read
    }

    fn write(&self) -> Value {
        self.as_str().into()
    }

    fn schema() -> Value {
        object([("type", "string".into()), ("pattern", PATTERN.into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_taken_as_it_stands_and_anything_else_is_refused_where_it_goes_wrong() {
        for good in ["MIT", "MIT OR Apache-2.0", "GPL-2.0-only WITH Classpath-exception-2.0", "LicenseRef-ours"] {
            assert_eq!(Licence::declare(good).unwrap().as_str(), good);
        }
        for (bad, at) in [("MTI", "MTI"), ("MIT OR", ""), ("", ""), ("MIT/Apache-2.0", "/"), ("free for all", "free")] {
            let why = Licence::declare(bad).unwrap_err();
            assert!(why.contains(&format!("{bad:?} is no SPDX expression")) && why.contains(at), "{why}");
        }
    }

    #[test]
    fn a_document_may_name_a_licence_that_is_not_listed_here_but_no_nonsense() {
        let mut faults = Faults::new();
        let mut wrong = |text: &str| Licence::read(&text.into(), "", &mut faults).unwrap().wrong();
        assert_eq!(wrong("Listed-Later-9.9"), None);
        assert!(Licence::declare("Listed-Later-9.9").is_err(), "the control");
        assert!(wrong("MIT OR").is_some());
        assert!(Licence::read(&"MIT\n".into(), "", &mut faults).is_none());
    }
}
