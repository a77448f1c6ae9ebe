//! Folders of the executor that no other user can read or write.

use std::io::ErrorKind;
use std::path::Path;

use eyas_session::private::{PrivateError, PrivateFolder};
use eyas_session::trusted;

/// Makes a folder that only its owner can enter. An existing folder must belong to this user and must not be writable
/// by others: another user may have made it under a name that could be guessed. Folders above may be shared, as on
/// a node's disk; if other users could replace one of them, the log says so.
pub(crate) fn make_private(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(folder)?;
    if let Err(why) = trusted::folder(folder, 0o700) {
        tracing::warn!("other users could replace the executor's folder {}: {why}", folder.display());
    }
    Ok(())
}

/// How often a folder is made again whose parent was removed meanwhile.
const MAX_REMOVALS: usize = 10;

/// Makes a folder inside a private one, and sets its mode so that only this user can enter. Guardians of executors that
/// have just ended may remove the parent meanwhile, as it is empty.
pub(crate) fn make_inner_private(folder: &Path) -> Result<(), PrivateError> {
    let make = || PrivateFolder::claim(folder)?.close();
    for _ in 0..MAX_REMOVALS {
        match make() {
            Err(PrivateError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            made => return made,
        }
    }
    make()
}
