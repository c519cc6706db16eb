//! The members of a split, one after the other, as one row of tokens.

use xt_core::manifest::dataset::Format;

use crate::fault::TextError;
use crate::text::{Text, line_of, utf8};

/// Turns the members of a split into one row of tokens, with a separator between every two members.
#[derive(Debug)]
pub struct Corpus<'a> {
    text: &'a Text,
    format: Format,
    separator: Option<u32>,
    vocabulary: u64,
    members: u64,
    tokens: u64,
}

impl<'a> Corpus<'a> {
    /// A row without members so far; `vocabulary` is that of the model.
    pub fn new(text: &'a Text, format: Format, separator: Option<u64>, vocabulary: u64) -> Result<Self, TextError> {
        if format == Format::Bytes && !text.takes_any_bytes() {
            return Err(TextError::NeedsText);
        }
        let outside = |separator| TextError::Separator { separator, vocabulary };
        let fits = |separator: u64| u32::try_from(separator).ok().filter(|_| separator < vocabulary);
        let separator = separator.map(|token| fits(token).ok_or(outside(token))).transpose()?;
        Ok(Self { text, format, separator, vocabulary, members: 0, tokens: 0 })
    }

    /// Takes the next member in and returns what it adds to the row: the separator, unless it is the first member, and
    /// its tokens. An empty member adds the separator alone.
    pub fn add(&mut self, path: &str, bytes: &[u8]) -> Result<Vec<u32>, TextError> {
        let in_member = |fault| TextError::InMember { path: path.to_string(), fault: Box::new(fault) };
        let mut added: Vec<u32> = self.separator.filter(|_| self.members > 0).into_iter().collect();
        added.extend(self.member(bytes).map_err(in_member)?);
        self.members += 1;
        self.tokens += added.len() as u64;
        Ok(added)
    }

    /// Tokens so far, separators included.
    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    fn member(&self, bytes: &[u8]) -> Result<Vec<u32>, TextError> {
        if self.format == Format::Text {
            utf8(bytes)?;
        }
        let tokens = self.text.encode(bytes)?;
        let Some(index) = tokens.iter().position(|token| u64::from(*token) >= self.vocabulary) else {
            return Ok(tokens);
        };
        let offset = self.text.offsets(bytes)?.get(index).copied().unwrap_or_default();
        Err(TextError::OutOfVocabulary {
            token: tokens[index],
            offset,
            line: line_of(bytes, usize::try_from(offset).unwrap_or(usize::MAX)),
            vocabulary: self.vocabulary,
        })
    }
}
