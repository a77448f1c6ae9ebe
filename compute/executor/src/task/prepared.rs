//! Folders that commands make of inputs, once on each node: unpacked archives, indexes of
//! databases. Tasks get a symbolic link to the folder, which is read-only. The store's decider
//! counts a folder like an object, and may evict it before the input.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_types::ObjectId;
use thiserror::Error;

use super::disk_full;
use super::makings::{Making, Makings};
use super::sandbox;

/// The folders of a node.
#[derive(Default)]
pub(crate) struct PreparedFolders {
    folders: Mutex<HashMap<ObjectId, PreparedFolder>>,
    makings: Makings,
}

/// A folder that a command has made.
#[derive(Clone)]
pub(super) struct PreparedFolder {
    pub path: PathBuf,
    pub size_bytes: u64,
}

impl PreparedFolders {
    /// A folder that was made. One that another program has removed is forgotten.
    pub(super) fn get(&self, object: ObjectId) -> Option<PreparedFolder> {
        let mut folders = self.folders();
        let folder = folders.get(&object)?.clone();
        if is_folder(&folder.path) {
            return Some(folder);
        }
        folders.remove(&object);
        None
    }

    /// Begins to make a folder, as [`Makings::begin`] does.
    pub(super) fn begin(
        &self,
        object: ObjectId,
        is_wanted: impl Fn() -> bool,
    ) -> Option<Making<'_>> {
        self.makings.begin(object, is_wanted)
    }

    /// Adds a folder, which is read-only from now on.
    pub(super) fn add(&self, object: ObjectId, path: PathBuf) -> Result<PreparedFolder, WalkError> {
        let size_bytes = protect(&path, &mut HashSet::new())?;
        let folder = PreparedFolder { path, size_bytes };
        self.folders().insert(object, folder.clone());
        Ok(folder)
    }

    /// All folders, with their sizes.
    pub fn sizes(&self) -> Vec<(ObjectId, u64)> {
        let folders = self.folders();
        folders.iter().map(|(object, folder)| (*object, folder.size_bytes)).collect()
    }

    /// Forgets a folder. Returns its path, for the caller to remove.
    pub fn evict(&self, object: ObjectId) -> Option<PathBuf> {
        self.folders().remove(&object).map(|folder| folder.path)
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<ObjectId, PreparedFolder>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file or folder of a folder that was made, and why it cannot be used.
#[derive(Debug, Error)]
#[error("{}: {error}", path.display())]
pub(super) struct WalkError {
    path: PathBuf,
    pub error: io::Error,
}

/// Whether there is a folder at a path, and no link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// A folder that is removed when dropped.
pub(super) struct FolderInMaking(pub PathBuf);

impl FolderInMaking {
    /// Leaves the folder where it is.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for FolderInMaking {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = sandbox::remove(&self.0) {
            tracing::warn!(folder = %self.0.display(), "cannot remove a folder: {error}");
        }
    }
}

/// Lets the owner of a folder use it, whatever the command has made of its mode.
pub(super) fn open_up(folder: &Path) -> Result<(), WalkError> {
    change_mode(folder, |mode| mode | 0o700)
}

/// Takes the right to write from all files and folders in a folder, and from itself. Returns the
/// bytes of the files on the disk; a file with several names counts once.
fn protect(folder: &Path, seen: &mut HashSet<(u64, u64)>) -> Result<u64, WalkError> {
    open_up(folder)?;
    let failed = |error| WalkError { path: folder.to_owned(), error };
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let found = entry.metadata().map_err(failed)?;
        if found.is_dir() {
            bytes += protect(&entry.path(), seen)?;
        } else if found.is_file() {
            change_mode(&entry.path(), |mode| mode & !0o222)?;
            if seen.insert((found.dev(), found.ino())) {
                bytes += found.blocks() * disk_full::BLOCK_BYTES;
            }
        }
    }
    change_mode(folder, |mode| mode & !0o222)?;
    Ok(bytes)
}

fn change_mode(path: &Path, change: impl Fn(u32) -> u32) -> Result<(), WalkError> {
    let changed = fs::metadata(path).and_then(|found| {
        let mode = found.permissions().mode();
        fs::set_permissions(path, Permissions::from_mode(change(mode)))
    });
    changed.map_err(|error| WalkError { path: path.to_owned(), error })
}
