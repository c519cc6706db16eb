//! Arrays as NumPy saves them (NEP 1, "A simple file format for NumPy arrays", and `numpy.lib.format`): the magic, a version,
//! the length of the header, the header, which is a Python literal, and the values.
//!
//! Nothing of the literal is evaluated: three known keys are read, and everything else is refused. Arrays of objects are
//! pickles, which are programs; they are refused, too.

use super::array::{Array, Kind};

/// What every file begins with.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Takes a file apart, or says what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as a file of NumPy does (93 4e 55 4d 50 59)")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("it ends before its version")?;
    let (length, rest) = match version {
        [1, 0] => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or("it ends before the length of its header")?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        [2 | 3, 0] => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or("it ends before the length of its header")?;
            (usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX), rest)
        }
        [major, minor] => return Err(format!("it has version {major}.{minor}; 1.0, 2.0 and 3.0 are known")),
    };
    let (header, values) = rest.split_at_checked(length).ok_or("it ends inside its header")?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not UTF-8")?;
    let Header { descr, fortran_order, shape } = Reader(header).header()?;
    let kind = kind(&descr)?;
    if fortran_order {
        return Err("its values are in Fortran order; save `numpy.ascontiguousarray` of it".into());
    }
    if !(1..=4).contains(&shape.len()) || shape.contains(&0) {
        return Err(format!("it has the shape {shape:?}, expected 1 to 4 dimensions of at least 1"));
    }
    if kind == Kind::Integers && shape.len() > 1 {
        return Err("its images are 64-bit whole numbers, expected `u1` or `<f4`; only labels may be such".into());
    }
    Array::new(kind, shape, values)
}

fn kind(descr: &str) -> Result<Kind, String> {
    match descr {
        "|u1" | "u1" | "<u1" => Ok(Kind::Bytes),
        "<f4" => Ok(Kind::FloatsLittle),
        "<i8" => Ok(Kind::Integers),
        _ if descr.contains('O') => Err(format!(
            "its values are Python objects ({descr:?}), which are stored as a pickle, a program that reading it would run: \
             save it with the dtype `u1` or `<f4`"
        )),
        _ => Err(format!("its values are {descr:?}, expected `u1` or `<f4`, or `<i8` for labels")),
    }
}

/// Reads a header from its front.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn header(mut self) -> Result<Header, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.due("{")?;
        while !self.takes("}") {
            let key = self.text()?;
            self.due(":")?;
            let new = match key.as_str() {
                "descr" => descr.replace(self.text()?).is_none(),
                "fortran_order" => fortran_order.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.sizes()?).is_none(),
                _ => return Err(format!("its header has the key {key:?}; descr, fortran_order and shape are known")),
            };
            if !new {
                return Err(format!("its header has the key {key:?} twice"));
            }
            if !self.takes(",") {
                self.due("}")?;
                break;
            }
        }
        if !self.0.trim_start().is_empty() {
            return Err("something stands behind the header's closing brace".into());
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
            _ => Err("its header lacks one of descr, fortran_order and shape".into()),
        }
    }

    /// Whether this stands here; then it is passed.
    fn takes(&mut self, word: &str) -> bool {
        let Some(rest) = self.0.trim_start().strip_prefix(word) else { return false };
        self.0 = rest;
        true
    }

    fn due(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) { Ok(()) } else { Err(self.wrong(&format!("`{word}`"))) }
    }

    fn wrong(&self, due: &str) -> String {
        let found: String = self.0.trim_start().chars().take(20).collect();
        format!("its header has {found:?} where {due} was due")
    }

    /// A text in single or double quotes, without escapes.
    fn text(&mut self) -> Result<String, String> {
        let quote = ["'", "\""].into_iter().find(|quote| self.takes(quote));
        let quote = quote.ok_or_else(|| self.wrong("a text in quotes"))?;
        match self.0.split_once(quote) {
            Some((text, rest)) if !text.contains('\\') => {
                self.0 = rest;
                Ok(text.into())
            }
            _ => Err(self.wrong("a text that is closed")),
        }
    }

    fn truth(&mut self) -> Result<bool, String> {
        match (self.takes("True"), self.takes("False")) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => Err(self.wrong("True or False")),
        }
    }

    /// A tuple of whole numbers.
    fn sizes(&mut self) -> Result<Vec<usize>, String> {
        let mut sizes = Vec::new();
        self.due("(")?;
        while !self.takes(")") {
            let text = self.0.trim_start();
            let end = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
            let size = text[..end].parse().map_err(|_| self.wrong("a whole number"))?;
            (self.0, sizes) = (&text[end..], [sizes, vec![size]].concat());
            if !self.takes(",") {
                self.due(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file as `numpy.save` writes it.
    pub fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        with(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), values)
    }

    fn with(header: &str, values: &[u8]) -> Vec<u8> {
        let header = format!("{header:<117}\n");
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), values].concat()
    }

    #[test]
    fn a_header_is_read_whatever_the_order_of_its_keys_and_its_quotes() {
        let good = npy("|u1", "(2, 1, 2)", &[1, 2, 3, 4]);
        let array = parse(&good).unwrap();
        assert_eq!(
            (array.kind, array.dimensions.as_slice(), array.values),
            (Kind::Bytes, &[2, 1, 2][..], &[1, 2, 3, 4][..])
        );
        let other = with(r#"{"shape": (2,1,2), "descr":"|u1","fortran_order":False}"#, &[1, 2, 3, 4]);
        assert_eq!(parse(&other).unwrap(), array);
        let labels = npy("<i8", "(2,)", &[1i64.to_le_bytes(), (-3i64).to_le_bytes()].concat());
        assert_eq!(parse(&labels).unwrap().labels(), Some(vec![1, -3]));
        let floats = npy("<f4", "(1, 1, 2)", &[1.5f32.to_le_bytes(), f32::INFINITY.to_le_bytes()].concat());
        assert_eq!(parse(&floats).unwrap().floats(), [1.5, f32::INFINITY]);
        let mut second = good[..6].to_vec();
        second.extend([2, 0]);
        second.extend(u32::from(u16::from_le_bytes([good[8], good[9]])).to_le_bytes());
        second.extend(&good[10..]);
        assert_eq!(parse(&second).unwrap(), array);
    }

    #[test]
    fn each_fault_of_a_file_is_refused_with_its_reason() {
        let good = npy("|u1", "(2, 1, 2)", &[1, 2, 3, 4]);
        let fortran = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 1, 2), }";
        let cases = [
            (good[..3].to_vec(), "does not begin"),
            (good[..7].to_vec(), "before its version"),
            (good[..9].to_vec(), "before the length"),
            (good[..40].to_vec(), "inside its header"),
            (good[..good.len() - 1].to_vec(), "make 4 bytes, and 3 are behind"),
            ([good.as_slice(), b"x"].concat(), "make 4 bytes, and 5 are behind"),
            ([&good[..6], &[9, 9], &good[8..]].concat(), "version 9.9"),
            (npy("|O", "(2,)", b"\x80\x04."), "Python objects (\"|O\"), which are stored as a pickle"),
            (npy(">f4", "(1, 1, 1)", &[0; 4]), "\">f4\", expected"),
            (npy("<f8", "(1, 1, 1)", &[0; 8]), "\"<f8\", expected"),
            (npy("<i8", "(1, 1, 1)", &[0; 8]), "64-bit whole numbers"),
            (npy("|u1", "()", &[0]), "1 to 4 dimensions"),
            (npy("|u1", "(0, 2, 2)", &[]), "at least 1"),
            (npy("|u1", "(18446744073709551615, 18446744073709551615, 2)", &[]), "more bytes than there can be"),
            (with(fortran, &[1, 2, 3, 4]), "Fortran order"),
            (with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", &[0; 4]), "a text in quotes"),
            (with("{'descr': '|u1', 'shape': (1,), }", &[0]), "lacks one of"),
            (with("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (1,), }", &[0]), "twice"),
            (with("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,), }", &[0]), "a whole number was due"),
            (with("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'x': 1}", &[0]), "the key \"x\""),
            (with("{'descr': '|u1', 'fortran_order': False, 'shape': (1,), } + f()", &[0]), "behind the header's"),
        ];
        for (file, due) in cases {
            let found = parse(&file).unwrap_err();
            assert!(found.contains(due), "{found} does not say {due}");
        }
    }
}
