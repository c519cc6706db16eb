//! One tokenizer: text in, token numbers out, and back.

use tokenizers::ModelWrapper;
use xt_core::digest::Digest;
use xt_core::manifest::candidate::Tokenizer;

use crate::fault::TextError;

/// One tokenizer, ready for use.
#[derive(Debug)]
pub struct Text(Kind);

#[derive(Debug)]
enum Kind {
    Bytes,
    HuggingFace { library: Box<tokenizers::Tokenizer>, vocabulary: u64 },
}

impl Text {
    /// The tokenizer of a candidate. `file` holds the bytes of `tokenizer.json`, which are held against the digest.
    ///
    /// Truncation and padding that the file asks for are left out: they would lose text or add tokens.
    pub fn load(tokenizer: &Tokenizer, file: Option<&[u8]>) -> Result<Self, TextError> {
        let Some(digest) = tokenizer.digest() else { return Ok(Self(Kind::Bytes)) };
        let bytes = file.ok_or(TextError::FileMissing(digest))?;
        let found = Digest::of(bytes);
        if found != digest {
            return Err(TextError::FileWrong { expected: digest, found });
        }
        let unreadable = |error: tokenizers::Error| TextError::FileUnreadable { digest, reason: one_line(&error) };
        let mut library = tokenizers::Tokenizer::from_bytes(bytes).map_err(unreadable)?;
        if matches!(library.get_model(), ModelWrapper::BPE(model) if model.dropout.is_some_and(|dropout| dropout > 0.0))
        {
            return Err(TextError::Random(digest));
        }
        library.with_truncation(None).map_err(unreadable)?;
        library.with_padding(None);
        let largest = library.get_vocab(true).into_values().max().ok_or(TextError::Empty(digest))?;
        Ok(Self(Kind::HuggingFace { library: Box::new(library), vocabulary: u64::from(largest) + 1 }))
    }

    /// Numbers that tokens can have: the largest plus one.
    pub const fn vocabulary(&self) -> u64 {
        match &self.0 {
            Kind::Bytes => 256,
            Kind::HuggingFace { vocabulary, .. } => *vocabulary,
        }
    }

    /// The number of the token with this text, if there is one; bytes have no names.
    pub fn token(&self, text: &str) -> Option<u64> {
        match &self.0 {
            Kind::Bytes => None,
            Kind::HuggingFace { library, .. } => library.token_to_id(text).map(u64::from),
        }
    }

    /// Whether any bytes can be encoded, not only UTF-8.
    pub const fn takes_any_bytes(&self) -> bool {
        matches!(self.0, Kind::Bytes)
    }

    /// The tokens of `bytes`; no special tokens are added at the ends.
    pub fn encode(&self, bytes: &[u8]) -> Result<Vec<u32>, TextError> {
        match &self.0 {
            Kind::Bytes => Ok(bytes.iter().copied().map(u32::from).collect()),
            Kind::HuggingFace { library, .. } => {
                let encoding = library.encode_fast(utf8(bytes)?, false);
                Ok(encoding.map_err(|error| TextError::NotEncodable(one_line(&error)))?.get_ids().to_vec())
            }
        }
    }

    /// How many tokens [`Self::encode`] gives.
    pub fn count(&self, bytes: &[u8]) -> Result<u64, TextError> {
        match &self.0 {
            Kind::Bytes => Ok(bytes.len() as u64),
            Kind::HuggingFace { .. } => Ok(self.encode(bytes)?.len() as u64),
        }
    }

    /// The text of `tokens`, special tokens included. Bytes that are no UTF-8, and byte tokens above 255 such as a
    /// separator, become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TextError> {
        match &self.0 {
            Kind::Bytes => {
                let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap_or(0xff)).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Kind::HuggingFace { library, .. } => {
                library.decode(tokens, false).map_err(|error| TextError::NotDecodable(one_line(&error)))
            }
        }
    }

    /// Byte offset in `bytes` where each token begins; slower than [`Self::encode`], for messages.
    pub(crate) fn offsets(&self, bytes: &[u8]) -> Result<Vec<u64>, TextError> {
        match &self.0 {
            Kind::Bytes => Ok((0..bytes.len() as u64).collect()),
            Kind::HuggingFace { library, .. } => {
                let encoding = library.encode(utf8(bytes)?, false);
                let encoding = encoding.map_err(|error| TextError::NotEncodable(one_line(&error)))?;
                Ok(encoding.get_offsets().iter().map(|(start, _)| *start as u64).collect())
            }
        }
    }
}

/// `bytes` as text, or where it stops being text.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, TextError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        TextError::NotUtf8 { offset: offset as u64, line: line_of(bytes, offset) }
    })
}

/// Line (from 1, ended by `\n` alone) of the byte at `offset`.
pub(crate) fn line_of(bytes: &[u8], offset: usize) -> u64 {
    bytes[..offset.min(bytes.len())].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>() + 1
}

fn one_line(error: &tokenizers::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}
