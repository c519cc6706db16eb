//! What someone hands in: an archive or documents, told apart by the first bytes.

use std::io::{self, Cursor, Read};

use xt_core::canonical;

/// First bytes of a zstd frame, and of the frames that zstd skips (RFC 8878, 3.1.1 and 3.1.2): a document starts with
/// neither.
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];

/// What someone hands in.
pub enum Given<'a> {
    /// An archive, from its first byte.
    Archive(Box<dyn Read + 'a>),
    /// Documents.
    Text(Vec<u8>),
}

impl<'a> Given<'a> {
    /// Looks at the first bytes of `input`. Documents are read to their end, or to one byte more than they may have.
    pub fn look(mut input: impl Read + 'a) -> io::Result<Self> {
        let mut head = Vec::with_capacity(4);
        input.by_ref().take(4).read_to_end(&mut head)?;
        let is_archive = head == FRAME || (head.len() == 4 && head[0] >> 4 == 5 && head[1..] == SKIPPABLE);
        let mut whole = Cursor::new(head).chain(input);
        if is_archive {
            return Ok(Self::Archive(Box::new(whole)));
        }
        let mut text = Vec::new();
        whole.by_ref().take(canonical::MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
        Ok(Self::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(bytes: &[u8]) -> Option<Vec<u8>> {
        match Given::look(bytes).unwrap() {
            Given::Archive(mut whole) => {
                let mut all = Vec::new();
                whole.read_to_end(&mut all).unwrap();
                Some(all)
            }
            Given::Text(text) => {
                assert_eq!(text, bytes);
                None
            }
        }
    }

    #[test]
    fn archives_are_told_from_documents_and_nothing_is_lost() {
        for bytes in [&b"\x28\xb5\x2f\xfdrest"[..], b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18rest"] {
            assert_eq!(archive(bytes).as_deref(), Some(bytes));
        }
        for bytes in [&b""[..], b"{}", b"{\"schema\":1}", b"\x28\xb5\x2f", b"P*M", b"\x40\x2a\x4d\x18rest"] {
            assert_eq!(archive(bytes), None);
        }
    }
}
