//! `xt.refusal/1`: every reason why an input was refused, as a document.

use alloc::string::String;
use alloc::vec::Vec;

use crate::fault::Faults;
use crate::tag;

crate::record! {
    /// Every reason why an input was refused.
    pub struct Refusal as tag::REFUSAL {
        /// The reasons, in the order in which they were found.
        faults: Vec<Reason>,
    }
}

crate::record! {
    /// One thing wrong with an input.
    pub struct Reason {
        /// JSON pointer (RFC 6901) to the field, empty for the whole document; `dataset#/…` points into another document.
        pointer: String,
        /// Stable code word, such as `field.missing`.
        code: String,
        /// A sentence that names value and expectation.
        message: String,
    }
}

impl From<&Faults> for Refusal {
    fn from(faults: &Faults) -> Self {
        let reason = |fault: &crate::fault::Fault| Reason {
            pointer: fault.pointer.clone(),
            code: String::from(fault.code),
            message: fault.message.clone(),
        };
        Self { faults: faults.0.iter().map(reason).collect() }
    }
}
