//! The names of an archive: safe, and different from one another on every file system.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;
use xt_core::relpath::RelativePath;

use super::error::Rule;

/// Paths of an archive may have so many bytes together: the names are all that reading keeps in memory.
const MAX_BYTES: usize = 256 << 20;

/// The names met so far.
#[derive(Debug, Default)]
pub struct Names {
    /// Folded path to the path as written; folders map to `None`.
    seen: BTreeMap<String, Option<String>>,
    bytes: usize,
}

impl Names {
    /// Takes in a path as written in an archive.
    pub fn add(&mut self, bytes: &[u8]) -> Result<RelativePath, Rule> {
        let text = std::str::from_utf8(bytes).map_err(|_| Rule::Text)?;
        let path = RelativePath::new(text).map_err(Rule::Path)?;
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(Rule::Bytes(MAX_BYTES as u64));
        }
        let folded = fold(text);
        if folded.split('/').any(|part| part == ".git" || part.starts_with(".xt")) {
            return Err(Rule::Reserved);
        }
        match self.seen.get(&folded) {
            Some(Some(other)) if other == text => return Err(Rule::Duplicate),
            Some(Some(other)) => return Err(Rule::Collision(other.clone())),
            Some(None) => return Err(Rule::FileAndFolder),
            None => {}
        }
        for (end, _) in folded.match_indices('/') {
            if self.seen.entry(folded[..end].to_owned()).or_insert(None).is_some() {
                return Err(Rule::FileAndFolder);
            }
        }
        self.seen.insert(folded, Some(text.to_owned()));
        Ok(path)
    }
}

/// One text for all that some file system takes for one name: upper then lower case gives the full case folding of
/// Unicode but for rare letters (so sharp s meets `ss`), between two canonical normal forms.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add_all(paths: &[&str]) -> Result<(), Rule> {
        let mut names = Names::default();
        paths.iter().try_for_each(|path| names.add(path.as_bytes()).map(|_| ()))
    }

    #[test]
    fn names_that_some_file_system_takes_for_one_are_refused() {
        for pair in [["Model.bin", "model.bin"], ["\u{e9}", "e\u{301}"], ["stra\u{df}e", "STRASSE"], ["A/x", "a/X"]] {
            assert_eq!(add_all(&pair), Err(Rule::Collision(pair[0].to_owned())), "{pair:?}");
        }
        assert_eq!(add_all(&["a", "a"]), Err(Rule::Duplicate));
        for pair in [["a", "a/b"], ["a/b", "a"], ["A", "a/b"], ["x/y/z", "X/Y"]] {
            assert_eq!(add_all(&pair), Err(Rule::FileAndFolder), "{pair:?}");
        }
        assert_eq!(add_all(&["a/b", "a/c", "a-b", "\u{e9}", "e", "b/a"]), Ok(()), "control");
    }

    #[test]
    fn names_kept_for_tools_are_refused() {
        for name in [".git/hooks/post-checkout", "a/.GIT/config", ".xt/FORMAT", ".XT", "a/.xt-lock"] {
            assert_eq!(add_all(&[name]), Err(Rule::Reserved), "{name}");
        }
        assert_eq!(add_all(&[".gitattributes", "xt", "a.xt"]), Ok(()), "control");
    }
}
