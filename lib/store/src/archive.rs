//! Bundle archives: a tar of regular files inside one zstd frame.
//!
//! The tar is in the one form that [`Writer`] makes: POSIX ustar headers, a pax header only where a path or size does
//! not fit, mode 0644, no owner, no times, two zero blocks at the end. So its bytes, and with them its digest, depend on
//! the members and their order alone. The digest of an archive is that of the tar: zstd frames of equal content differ
//! between versions and levels of zstd (N-09).
//!
//! [`read`] takes exactly that form and nothing else. Every tar reader in common use accepts some archive that means
//! something else to another one, or that plants links, devices or set-uid bits; here the headers are compared with the
//! ones that [`Writer`] would have made for the same path and size, so there is nothing left to disagree about.

mod error;
mod form;
mod names;
mod reader;
mod tape;
mod writer;

pub use error::{ArchiveError, Rule};
pub use reader::{Limits, read};
pub use writer::{Writer, write};
