//! Numbers with their nouns, as people read them.

use alloc::format;
use alloc::string::String;

/// `1 file`, `3 files`, `2 libraries`; the noun is given as for one.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    // Nothing that is counted in memory is more than that.
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        return format!("1 {noun}");
    }
    if ["ch", "s", "x"].iter().any(|end| noun.ends_with(end)) {
        return format!("{number} {noun}es");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_something_is_not_many() {
        for (number, noun, due) in [
            (0, "file", "0 files"),
            (1, "file", "1 file"),
            (1, "library", "1 library"),
            (2, "library", "2 libraries"),
            (2, "day", "2 days"),
            (2, "micro-batch", "2 micro-batches"),
            (2, "class", "2 classes"),
        ] {
            assert_eq!(counted(number, noun), due);
        }
        assert_eq!(counted(1_usize, "byte"), "1 byte");
        assert_eq!(counted(u64::MAX, "byte"), "18446744073709551615 bytes");
    }
}
