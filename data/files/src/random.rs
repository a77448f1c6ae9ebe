//! Random numbers, and ids that are made of them.

use eyas_types::dfs::FileId;

use crate::error::FilesError;

/// A random number that is unique.
pub(crate) fn random() -> Result<u128, FilesError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| FilesError::local("cannot get a random number", &errno.into()))?;
    Ok(u128::from_le_bytes(bytes))
}

/// The id of a file that is going to be written.
///
/// # Errors
/// `Local` if the system has no random numbers.
pub fn new_file_id() -> Result<FileId, FilesError> {
    random().map(FileId)
}
