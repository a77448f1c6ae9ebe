//! Folders of the executor that no other user can read or write.

use std::io::ErrorKind;
use std::path::Path;

use eyas_session::private::{PrivateError, PrivateFolder};
use eyas_session::trusted;

/// Makes a folder that only its owner can enter. An existing folder must belong to this user and
/// must not be writable by others, and no other user may be able to replace it or a folder above
/// it: the executor runs programs that lie in it.
pub(crate) fn make_private(folder: &Path) -> Result<(), PrivateError> {
    PrivateFolder::claim(&trusted::folder(folder, 0o700)?).map(drop)
}

/// How often a folder is made again whose parent was removed meanwhile.
const MAX_REMOVALS: usize = 10;

/// Makes a folder inside a private one, and sets its mode so that only this user can enter.
/// Guardians of executors that have just ended may remove the parent meanwhile, as it is empty.
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

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_could_replace_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let shared = outer.path().join("shared");
        fs::create_dir(&shared).unwrap();
        for (mode, is_made) in [(0o755, true), (0o1777, true), (0o777, false), (0o2775, false)] {
            fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
            let made = make_private(&shared.join(format!("{mode:o}/cache")));
            assert_eq!(made.is_ok(), is_made, "{mode:o}: {made:?}");
            assert_eq!(shared.join(format!("{mode:o}")).exists(), is_made);
            if let Err(why) = made {
                assert!(why.to_string().contains("chmod +t"), "{why}");
            }
        }
    }
}
