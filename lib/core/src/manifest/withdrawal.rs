//! `xt.withdrawal/1`: something is not to be relied on any more, and why (rows L52–L58). It is kept beside what it is about,
//! which stays as it is; whatever came from it can be told from the documents of the store.

use alloc::string::String;

use crate::digest::Digest;
use crate::instant::Instant;
use crate::tag;

crate::record! {
    /// An object that is not to be relied on any more.
    pub struct Withdrawal as tag::WITHDRAWAL {
        /// The object.
        digest: Digest,
        /// Why, in words.
        why: String,
        /// When that was said.
        at: Instant,
    }
}
