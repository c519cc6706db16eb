//! Whole lines out of a stream of bytes. What follows the last line feed is torn until its line feed comes.

/// No line of telemetry is longer; a longer one is a fault and not a line.
pub const MAX_LINE: usize = 1 << 20;

/// A line grew past [`MAX_LINE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {MAX_LINE} bytes")]
pub struct TooLong;

/// Cuts a stream into lines.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
    seen: usize,
}

impl Lines {
    /// Takes in bytes and gives out the lines that they complete, without their line feeds.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TooLong> {
        self.rest.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.rest[self.seen..].iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.rest.drain(..=self.seen + end).collect();
            line.pop();
            self.seen = 0;
            lines.push(line);
        }
        self.seen = self.rest.len();
        let longest = lines.iter().map(Vec::len).max().unwrap_or(0).max(self.rest.len());
        if longest > MAX_LINE { Err(TooLong) } else { Ok(lines) }
    }

    /// Bytes of the unfinished line.
    pub fn torn(&self) -> usize {
        self.rest.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_however_the_bytes_are_cut() {
        let text = b"one\n\ntwo words\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let found: Vec<_> = text.chunks(size).flat_map(|chunk| lines.push(chunk).unwrap()).collect();
            assert_eq!(found, [&b"one"[..], b"", b"two words"], "chunks of {size}");
            assert_eq!(lines.torn(), 5, "the torn tail is no line");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_memory_is_full() {
        let mut lines = Lines::default();
        assert!(lines.push(&vec![b'x'; MAX_LINE]).is_ok());
        assert_eq!(lines.push(b"x"), Err(TooLong));
    }
}
