//! Folders of the executor that no other user can read or write.

use std::path::Path;

use eyas_session::private::{PrivateError, PrivateFolder};

/// Makes a folder that only its owner can enter. An existing folder must belong to this user and must not be writable
/// by others: another user may have made it under a name that could be guessed. Folders above may be shared, as on
/// a node's disk.
pub(crate) fn make_private(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(folder).map(drop)
}

/// Makes a folder inside a private one, and sets its mode so that only this user can enter.
pub(crate) fn make_inner_private(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(folder)?.close()
}
