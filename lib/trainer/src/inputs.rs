//! The files that a worker may read: each is named by its digest and re-hashed before use.

use std::fs;
use std::path::Path;

use xt_core::digest::Digest;

use crate::fault::TrainError;

/// The bytes of the input `digest`, which lie in `folder` under its 64 digits.
pub fn read(folder: &Path, digest: Digest) -> Result<Vec<u8>, TrainError> {
    let bytes = fs::read(folder.join(digest.hex())).map_err(|source| TrainError::InputUnreadable { digest, source })?;
    let found = Digest::of(&bytes);
    if found == digest { Ok(bytes) } else { Err(TrainError::InputWrong { expected: digest, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_with_other_bytes_than_its_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let digest = Digest::of(b"whale");
        assert!(matches!(read(folder.path(), digest), Err(TrainError::InputUnreadable { .. })));
        fs::write(folder.path().join(digest.hex()), b"whale").unwrap();
        assert_eq!(read(folder.path(), digest).unwrap(), b"whale");
        fs::write(folder.path().join(digest.hex()), b"whalf").unwrap();
        assert!(matches!(read(folder.path(), digest), Err(TrainError::InputWrong { .. })));
    }
}
