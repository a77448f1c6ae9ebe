//! Temporary folders that do not stay when their process is killed: the next process that makes one
//! removes them.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Dev, Mode, OFlags};
use rustix::process::getuid;
use rustix::system::uname;
use tempfile::TempDir;

/// A temporary folder, which is removed with its content when it is dropped. As long as its process
/// lives, the folder is locked. A process that is killed leaves a folder without a lock, which
/// [`ScratchFolder::make`] removes.
#[derive(Debug)]
pub struct ScratchFolder {
    folder: TempDir,
    /// Holds the lock.
    _lock: File,
}

impl ScratchFolder {
    /// Makes a folder in `above` whose name begins with `eyas-` and `purpose`. Removes the folders
    /// of this purpose that processes of this user and host have left there.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn make(above: &Path, purpose: &str) -> io::Result<Self> {
        // A lock may be unknown to the other hosts that see `above`.
        let host = uname().nodename().to_string_lossy().replace('/', "-");
        let prefix = format!("eyas-{purpose}-{host}-");
        remove_abandoned(above, &prefix);
        loop {
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(above)?;
            let lock = File::open(folder.path())?;
            // A file system without locks is not one on which other processes look for abandoned
            // folders.
            let is_taken = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
            // Another process may have taken it for an abandoned folder before it was locked.
            if !is_taken && is_at(&lock, folder.path()) {
                return Ok(ScratchFolder { folder, _lock: lock });
            }
        }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of this user that no process has locked. Errors are ignored: the next process
/// tries again.
fn remove_abandoned(above: &Path, prefix: &str) {
    let names = fs::read_dir(above).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let has_prefix = |name: &OsString| name.as_bytes().starts_with(prefix.as_bytes());
    for path in names.filter(has_prefix).map(|name| above.join(name)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::open(&path, flags, Mode::empty()).map(File::from) else {
            continue;
        };
        let is_own = rustix::fs::fstat(&folder).is_ok_and(|stat| stat.st_uid == getuid().as_raw());
        if is_own && folder.try_lock().is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether an open folder is still the one at a path.
fn is_at(folder: &File, path: &Path) -> bool {
    let id = |stat: rustix::fs::Stat| -> (Dev, u64) { (stat.st_dev, stat.st_ino) };
    let (opened, there) = (rustix::fs::fstat(folder).map(id), rustix::fs::lstat(path).map(id));
    opened.is_ok() && opened == there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_processes_are_removed_and_used_ones_stay() {
        let above = tempfile::tempdir().unwrap();
        let used = ScratchFolder::make(above.path(), "results").unwrap();
        let abandoned = ScratchFolder::make(above.path(), "results").unwrap();
        let left = abandoned.path().to_owned();
        fs::write(left.join("file"), "x").unwrap();
        // A process that is killed removes nothing, and its locks end.
        let ScratchFolder { folder, _lock: lock } = abandoned;
        let _ = folder.keep();
        drop(lock);
        let (foreign, other) = (above.path().join("other-1"), above.path().join("eyas-other"));
        [&foreign, &other].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let new = ScratchFolder::make(above.path(), "results").unwrap();
        assert!(!left.exists() && used.path().exists() && new.path().exists());
        assert!(foreign.exists() && other.exists());
        let paths = [used.path().to_owned(), new.path().to_owned()];
        drop((used, new));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
