//! The one form of a header (POSIX.1-2001 ustar and pax).

use tar::{EntryType, Header};
use xt_core::relpath::RelativePath;

use super::error::Rule;

/// Everything in a tar is padded to this.
pub const BLOCK: usize = 512;
/// The largest size that the 11 octal digits of a ustar header hold.
const MAX_OCTAL: u64 = 0o777_7777_7777;
/// An extended header holds a path of at most 4096 bytes and a size.
pub const MAX_EXTENSION: u64 = 8192;
/// Name of an extended header, as Python's tarfile has it.
const EXTENSION_NAME: &[u8] = b"././@PaxHeader";

/// All header bytes of a member: an extended header where the path or size needs one, and the ustar header.
pub fn head(path: &RelativePath, bytes: u64) -> Vec<u8> {
    let mut header = plain(EntryType::Regular, if bytes > MAX_OCTAL { 0 } else { bytes });
    let fits = header.set_path(path.as_str()).is_ok();
    if !fits {
        name(&mut header, cut(path.as_str(), 100).as_bytes());
    }
    header.set_cksum();
    let mut records = Vec::new();
    if !fits {
        records.extend(record("path", path.as_str()));
    }
    if bytes > MAX_OCTAL {
        records.extend(record("size", &bytes.to_string()));
    }
    let mut out = Vec::new();
    if !records.is_empty() {
        let mut extension = plain(EntryType::XHeader, records.len() as u64);
        name(&mut extension, EXTENSION_NAME);
        extension.set_cksum();
        out.extend_from_slice(extension.as_bytes());
        out.extend_from_slice(&records);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.extend_from_slice(header.as_bytes());
    out
}

fn plain(kind: EntryType, bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    header
}

fn name(header: &mut Header, bytes: &[u8]) {
    let old = header.as_old_mut();
    old.name = [0; 100];
    old.name[..bytes.len()].copy_from_slice(bytes);
    if let Some(ustar) = header.as_ustar_mut() {
        ustar.prefix = [0; 155];
    }
}

/// The longest beginning of at most `length` bytes that is whole characters.
fn cut(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// A pax record: its own length in decimal, a space, key, `=`, value and a line feed.
fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n").into_bytes()
}

/// What an extended header says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// The path.
    pub path: Option<Vec<u8>>,
    /// The size.
    pub bytes: Option<u64>,
}

/// Reads the records of an extended header.
pub fn extension(mut records: &[u8]) -> Result<Extension, Rule> {
    let mut read = Extension::default();
    while !records.is_empty() {
        let (key, value, rest) = split_record(records).ok_or(Rule::ExtensionForm)?;
        records = rest;
        match key {
            b"path" if read.path.is_none() => read.path = Some(value.to_vec()),
            b"size" if read.bytes.is_none() => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                read.bytes = Some(number.ok_or(Rule::ExtensionForm)?);
            }
            b"path" | b"size" => return Err(Rule::ExtensionForm),
            key if key.starts_with(b"GNU.sparse.") => return Err(Rule::Sparse),
            key => return Err(Rule::ExtensionKey(String::from_utf8_lossy(cut_bytes(key)).into_owned())),
        }
    }
    Ok(read)
}

fn cut_bytes(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(100)]
}

fn split_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(6).position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(&records[..space]).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let (record, rest) = records.split_at_checked(digits.parse().ok()?)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

/// Which field of a header is not as it should be.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<&'static str> {
    // Offsets of the ustar header block, the last of a head.
    const FIELDS: [(usize, &str); 16] = [
        (100, "the name"),
        (108, "the mode, which is 0644"),
        (116, "the owner, which is 0"),
        (124, "the group, which is 0"),
        (136, "the size"),
        (148, "the time, which is 0"),
        (156, "the checksum"),
        (157, "the kind"),
        (257, "the link name, which is empty"),
        (265, "the magic, which is ustar 00"),
        (297, "the owner's name, which is empty"),
        (329, "the group's name, which is empty"),
        (337, "the device number, which is empty"),
        (345, "the device number, which is empty"),
        (500, "the prefix of the name"),
        (512, "the last 12 bytes, which are zero"),
    ];
    if found == expected {
        return None;
    }
    if found.len() != expected.len() {
        return Some("the extended header, which is there only when a path or size does not fit");
    }
    let last = found.len() - BLOCK;
    // The checksum follows from the other fields, so it is to blame only when they are right.
    let differs = |at: &usize| found[*at] != expected[*at];
    let sum = last + 148..last + 156;
    let at = (0..found.len()).filter(|at| !sum.contains(at)).find(differs).unwrap_or(sum.start);
    if at < last {
        return Some("the extended header");
    }
    FIELDS.iter().find(|(end, _)| at - last < *end).map(|(_, field)| *field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    #[test]
    fn only_what_does_not_fit_gets_an_extended_header() {
        assert_eq!(head(&path("a/b"), 5).len(), BLOCK);
        assert_eq!(head(&path(&format!("{}/{}", "d".repeat(150), "f".repeat(100))), 5).len(), BLOCK);
        assert_eq!(head(&path(&"f".repeat(101)), 5).len(), 3 * BLOCK);
        assert_eq!(head(&path("a"), MAX_OCTAL).len(), BLOCK);
        assert_eq!(head(&path("a"), MAX_OCTAL + 1).len(), 3 * BLOCK);
    }

    #[test]
    fn records_count_their_own_length() {
        for length in [1, 2, 85, 86, 87, 88, 985, 986, 987, 4000] {
            let text = "x".repeat(length);
            let bytes = record("path", &text);
            assert!(bytes.starts_with(format!("{} ", bytes.len()).as_bytes()), "{length}");
            assert_eq!(extension(&bytes).unwrap().path.as_deref(), Some(text.as_bytes()));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for bad in ["9 path=ab", "99 path=a\n", "x path=a\n", " path=a\n", "11 path=a\n", "3 \n", "+9 path=a\n"] {
            assert_eq!(extension(bad.as_bytes()), Err(Rule::ExtensionForm), "{bad:?}");
        }
        assert_eq!(extension(b"9 path=a\n9 path=b\n"), Err(Rule::ExtensionForm));
        assert_eq!(extension(b"9 path=a\n").unwrap().path.as_deref(), Some(&b"a"[..]), "control");
        assert_eq!(extension(b"13 mtime=0.5\n"), Err(Rule::ExtensionKey("mtime".to_owned())));
    }
}
