//! Files that appear whole: written beside their place, synced, and renamed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes a folder that only this user can enter, with the folders above it. One that was there, and
/// that others could enter, is closed to them.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    match fs::metadata(path)?.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(0o700)),
    }
}

/// Opens a file to lock it, which other users cannot do.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Writes a file that only this user can read. It is on disk when the call returns.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o600)
}

/// Writes files that belong together. All are on disk when the call returns; to sync them after the
/// last one is written takes little longer than to sync one.
pub fn write_all_shared(folder: &Path, files: &[(&str, String)]) -> io::Result<()> {
    for (name, text) in files {
        fs::write(folder.join(name), text)?;
    }
    files.iter().try_for_each(|(name, _)| File::open(folder.join(name))?.sync_all())?;
    File::open(folder)?.sync_all()
}

/// Writes a file that the nodes of the cluster can read.
pub fn write_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write(path, bytes, 0o644)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut beside = name.to_os_string();
    beside.push(".new");
    let beside = folder.join(beside);
    // A file that a crash has left there may have another mode.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        make_private_folder(path.parent().unwrap()).unwrap();
        fs::write(path.with_file_name("b.new"), "left by a crash").unwrap();
        write_private(&path, b"one").unwrap();
        write_private(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let folder = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // Folders and locks of before are closed, too.
        let (folder, lock) = (path.parent().unwrap(), path.with_file_name("lock"));
        fs::write(&lock, "").unwrap();
        for path in [folder, &lock] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        make_private_folder(folder).unwrap();
        open_lock(&lock).unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(folder), mode(&lock)), (0o700, 0o600));
    }
}
