//! What can be wrong with a tokenizer or with the text it is given.

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure};

/// What can be wrong with a tokenizer or with the text it is given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The tokenizer names a file and none was handed over.
    #[error("the tokenizer file {0} is missing")]
    FileMissing(Digest),
    /// The bytes are not those of the tokenizer.
    #[error("the tokenizer file should be {expected}, but its bytes are {found}")]
    FileWrong {
        /// Digest in the candidate.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
    /// The library cannot read the file.
    #[error("the tokenizer file {digest} cannot be read: {reason}")]
    FileUnreadable {
        /// Its digest.
        digest: Digest,
        /// What the library says.
        reason: String,
    },
    /// The file asks for random merges, so the same text would give other tokens each time.
    #[error("the tokenizer file {0} drops merges at random (model.dropout); no run on it could be repeated")]
    Random(Digest),
    /// The file maps no text to any token.
    #[error("the tokenizer file {0} has no tokens")]
    Empty(Digest),
    /// Text that is not UTF-8.
    #[error("the byte at offset {offset} (line {line}) is not UTF-8")]
    NotUtf8 {
        /// Offset of the first wrong byte.
        offset: u64,
        /// Its line, from 1.
        line: u64,
    },
    /// The library cannot encode a text.
    #[error("the tokenizer cannot encode this text: {0}")]
    NotEncodable(String),
    /// The library cannot decode tokens.
    #[error("the tokenizer cannot decode these tokens: {0}")]
    NotDecodable(String),
    /// A token that the model has no row for.
    #[error("token {token} at offset {offset} (line {line}) is outside of the model's vocabulary of {vocabulary}")]
    OutOfVocabulary {
        /// The token.
        token: u32,
        /// Offset of its first byte.
        offset: u64,
        /// Its line, from 1.
        line: u64,
        /// Distinct tokens of the model.
        vocabulary: u64,
    },
    /// A separator that the model has no row for.
    #[error("the separator {separator} is outside of the model's vocabulary of {vocabulary}")]
    Separator {
        /// The separator.
        separator: u64,
        /// Distinct tokens of the model.
        vocabulary: u64,
    },
    /// Bytes of any kind reach a tokenizer that reads text only.
    #[error("a dataset of format `bytes` can be read by the byte tokenizer only")]
    NeedsText,
    /// One of the above, in a file of the dataset.
    #[error("{path}: {fault}")]
    InMember {
        /// Path of the file.
        path: String,
        /// What is wrong.
        fault: Box<Self>,
    },
}

impl Failure for TextError {
    fn exit(&self) -> Exit {
        Exit::Refused
    }

    fn word(&self) -> &'static str {
        match self {
            Self::FileMissing(_) => "tokenizer.missing",
            Self::FileWrong { .. } => "tokenizer.mismatch",
            Self::FileUnreadable { .. } | Self::Empty(_) => "tokenizer.unreadable",
            Self::Random(_) => "tokenizer.random",
            Self::NotUtf8 { .. } => "text.not-utf8",
            Self::NotEncodable(_) | Self::NotDecodable(_) => "text.not-encodable",
            Self::OutOfVocabulary { .. } | Self::Separator { .. } => "text.out-of-vocabulary",
            Self::NeedsText => "text.format",
            Self::InMember { fault, .. } => fault.word(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NotUtf8 { .. } => vec!["admit the file as format `bytes` to train on bytes of any kind".into()],
            Self::OutOfVocabulary { .. } => vec!["raise model.vocabulary, or use the tokenizer it was made for".into()],
            Self::Random(_) => vec!["set model.dropout to null in the tokenizer file".into()],
            Self::InMember { fault, .. } => fault.hints(),
            _ => Vec::new(),
        }
    }
}
