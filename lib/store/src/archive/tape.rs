//! The plain bytes of an archive: one zstd frame and nothing else.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use xt_core::digest::{Digest, Hasher};

use super::error::{ArchiveError, Rule};

/// Frames that need a larger window than 128 MiB to decode are refused (RFC 8878, 3.1.1.1.2).
const WINDOW_LOG: u32 = 27;
/// First bytes of a frame (RFC 8878, 3.1.1).
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

type Input<R> = Chain<Cursor<Vec<u8>>, BufReader<R>>;

/// The bytes of the tar, hashed as they are read.
pub struct Tape<'a, R: Read> {
    zstd: zstd::Decoder<'a, Input<R>>,
    hasher: Hasher,
}

impl<R: Read> Tape<'_, R> {
    /// Opens an archive.
    pub fn new(input: R) -> Result<Self, ArchiveError> {
        let mut input = BufReader::with_capacity(1 << 17, input);
        let magic = beginning(&mut input).map_err(system)?;
        match kind(&magic) {
            Some(Rule::SecondFrame) => {}
            Some(rule @ Rule::Skippable) => return Err(ArchiveError::refused("(beginning)", rule)),
            _ => return Err(ArchiveError::refused("(beginning)", Rule::NotZstd)),
        }
        let mut zstd = zstd::Decoder::with_buffer(Cursor::new(magic).chain(input)).map_err(system)?.single_frame();
        zstd.window_log_max(WINDOW_LOG).map_err(system)?;
        Ok(Self { zstd, hasher: Hasher::new() })
    }

    /// Fills `buffer`, or less at the end of the frame.
    pub fn fill(&mut self, buffer: &mut [u8], entry: &str) -> Result<usize, ArchiveError> {
        let mut length = 0;
        while length < buffer.len() {
            match self.zstd.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The system's errors have numbers; the others are what zstd says about the bytes.
                Err(error) if error.raw_os_error().is_some() => return Err(system(error)),
                Err(error) => return Err(ArchiveError::refused(entry, Rule::Zstd(error.to_string()))),
            }
        }
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }

    /// Reads exactly the buffer.
    pub fn exact(&mut self, buffer: &mut [u8], entry: &str) -> Result<(), ArchiveError> {
        if self.fill(buffer, entry)? == buffer.len() {
            return Ok(());
        }
        Err(ArchiveError::refused(entry, Rule::Cut))
    }

    /// Checks that the tar, the frame and the input all end here; gives the digest of the tar.
    pub fn finish(mut self) -> Result<Digest, ArchiveError> {
        const END: &str = "(end)";
        // Asking for more also makes zstd check the frame's checksum.
        if self.fill(&mut [0], END)? > 0 {
            return Err(ArchiveError::refused(END, Rule::Trailing));
        }
        let mut rest = self.zstd.finish();
        let magic = beginning(&mut rest).map_err(system)?;
        match kind(&magic) {
            None => Ok(self.hasher.finish()),
            Some(rule) => Err(ArchiveError::refused(END, rule)),
        }
    }
}

/// Up to four bytes.
fn beginning(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4);
    input.take(4).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What starts with these bytes, said as what is wrong with it behind an archive.
fn kind(bytes: &[u8]) -> Option<Rule> {
    match bytes {
        [] => None,
        [byte, 0x2A, 0x4D, 0x18] if byte & 0xF0 == 0x50 => Some(Rule::Skippable),
        _ if bytes == FRAME => Some(Rule::SecondFrame),
        _ => Some(Rule::BehindFrame),
    }
}

fn system(source: io::Error) -> ArchiveError {
    ArchiveError::System { action: "read", source }
}
