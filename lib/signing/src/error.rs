//! How signing fails.

use xt_core::fault::{Exit, Failure};

/// Why there is no key or no signature.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The text is no key of a kind that is known here.
    #[error("{name} holds no {wanted} key: {why}")]
    Key {
        /// Where it came from.
        name: String,
        /// `private` or `public`.
        wanted: &'static str,
        /// What was found.
        why: String,
    },
    /// OpenSSF model signing takes only keys on elliptic curves.
    #[error("{name} is an Ed25519 key, and model.sig needs one on the curve P-256 (OpenSSF model signing v1.0)")]
    Curve {
        /// Where it came from.
        name: String,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// A line is no envelope.
    #[error("line {line} of {name} is no DSSE envelope: {why}")]
    Envelope {
        /// Where it came from.
        name: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

impl Failure for SigningError {
    fn exit(&self) -> Exit {
        match self {
            Self::Key { .. } | Self::Curve { .. } | Self::Envelope { .. } => Exit::Refused,
            Self::Random(_) => Exit::System,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Key { .. } => "key.form",
            Self::Curve { .. } => "key.curve",
            Self::Random(_) => "key.random",
            Self::Envelope { .. } => "signature.form",
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Key { .. } | Self::Curve { .. } => {
                vec!["`xt-freeze keygen` makes a pair; `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` too".into()]
            }
            Self::Random(_) => Vec::new(),
            Self::Envelope { .. } => vec!["one envelope a line, as `xt-freeze sign` writes them".into()],
        }
    }
}
