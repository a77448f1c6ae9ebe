//! Claiming a folder: what an executor keeps there is read and written by no other user.

use std::path::Path;

use eyas_session::private::{PrivateError, PrivateFolder};

/// Makes a folder that only its owner can enter. One that is there, perhaps put there by another user under a name that
/// could be guessed, must be a folder of our own that others cannot write to. Folders above it may be shared: a node's
/// disk often is.
pub(crate) fn claim(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(folder).map(drop)
}

/// The same for a folder inside one that was claimed, which is ours alone to enter from now on.
pub(crate) fn claim_inner(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(folder)?.close()
}
