//! Claiming a folder: what an executor keeps there is read and written by nobody else.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Makes a folder that only its owner can enter. One that is there, perhaps put there by somebody else under a name that
/// could be guessed, must be a folder of our own that others cannot write to.
pub(crate) fn claim(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let found = fs::symlink_metadata(folder)?;
    let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned()));
    if !found.is_dir() {
        return wrong("it is not a folder");
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return wrong("it belongs to another user");
    }
    if found.mode() & 0o022 != 0 {
        return wrong("others can write to it: chmod go-w, or use another folder");
    }
    Ok(())
}

/// The same for a folder inside one that was claimed, which is ours alone to enter from now on.
pub(crate) fn claim_inner(folder: &Path) -> io::Result<()> {
    claim(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_is_private_and_a_foreign_one_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("deep/er");
        claim(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        claim(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(claim(&folder).unwrap_err().to_string().contains("chmod"));
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(claim(&link).unwrap_err().to_string().contains("not a folder"));
    }
}
