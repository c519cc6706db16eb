//! Relative paths as manifests and archives hold them.

use alloc::string::{String, ToString};
use core::fmt;

/// A relative path: components joined by `/`, none empty, `.` or `..`, no control characters, backslashes or colons,
/// at most 255 bytes a component, 4096 in all and 64 components. Ordered by raw bytes of the whole path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(String);

/// Why a text is no relative path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAPath {
    /// No text at all.
    #[error("a path may not be empty")]
    Empty,
    /// Starts with `/`.
    #[error("a path must be relative")]
    Absolute,
    /// An empty, `.` or `..` component.
    #[error("a path may not have the components ``, `.` or `..`")]
    Component,
    /// A control character, backslash or colon.
    #[error("a path may not hold control characters, backslashes or colons")]
    Character,
    /// Longer or deeper than allowed.
    #[error("a path may have at most 255 bytes a component, 4096 bytes and 64 components")]
    Long,
}

impl RelativePath {
    /// The pattern as JSON Schema writes it. It counts characters where [`Self::new`] counts bytes, so outside ASCII it
    /// lets longer paths through.
    pub const PATTERN: &'static str =
        r"^(?!(.*/)?\.{0,2}(/|$))(?!.*[^/]{256})(?!([^/]*/){64})[^\u0000-\u001f\u007f-\u009f\\:]{1,4096}$";

    /// `text`, if it is a safe relative path.
    pub fn new(text: &str) -> Result<Self, NotAPath> {
        if text.is_empty() {
            return Err(NotAPath::Empty);
        }
        if text.starts_with('/') {
            return Err(NotAPath::Absolute);
        }
        if text.chars().any(|c| c.is_control() || c == '\\' || c == ':') {
            return Err(NotAPath::Character);
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(NotAPath::Component);
        }
        if text.len() > 4096 || text.split('/').count() > 64 || text.split('/').any(|part| part.len() > 255) {
            return Err(NotAPath::Long);
        }
        Ok(Self(text.to_string()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn escaping_and_odd_paths_are_refused() {
        let bad = ["", "/a", "../a", "a/../b", "a//b", "./a", "a/", "a\\b", "C:x", "a\nb", "\u{1b}[31m"];
        for text in bad {
            assert!(RelativePath::new(text).is_err(), "{text:?}");
        }
        assert_eq!(RelativePath::new("a/".repeat(64).trim_end_matches('/')).map(|_| ()), Ok(()));
        assert_eq!(RelativePath::new(&("a/".repeat(64) + "a")), Err(NotAPath::Long));
    }

    #[test]
    fn order_is_by_bytes_of_the_whole_path() {
        let mut paths = vec!["a/x", "a-b", "a0", "B", "é"];
        paths.sort_by_key(|text| RelativePath::new(text).ok());
        assert_eq!(paths, ["B", "a-b", "a/x", "a0", "é"]);
    }
}
