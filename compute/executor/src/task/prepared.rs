//! Folders that commands make of inputs, once on each node: unpacked archives, indexes of
//! databases. Tasks get a symbolic link to the folder, which nobody may write. The store's decider
//! counts a folder like an object, and may evict it before the input.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_types::ObjectId;

use super::disk_full;
use super::makings::{Making, Makings};

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
    pub(super) fn get(&self, object: ObjectId) -> Option<PreparedFolder> {
        self.folders().get(&object).cloned()
    }

    /// Begins to make a folder, as [`Makings::begin`] does.
    pub(super) fn begin(
        &self,
        object: ObjectId,
        is_wanted: impl Fn() -> bool,
    ) -> Option<Making<'_>> {
        self.makings.begin(object, is_wanted)
    }

    /// Adds a folder, which nobody may write from now on.
    pub(super) fn add(&self, object: ObjectId, path: PathBuf) -> io::Result<PreparedFolder> {
        protect(&path)?;
        let size_bytes = disk_full::written_bytes(&path);
        let folder = PreparedFolder { path, size_bytes };
        self.folders().insert(object, folder.clone());
        Ok(folder)
    }

    /// Forgets a folder. Returns its path, for the caller to remove.
    pub fn evict(&self, object: ObjectId) -> Option<PathBuf> {
        self.folders().remove(&object).map(|folder| folder.path)
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<ObjectId, PreparedFolder>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the right to write from all files and folders in a folder, and from itself.
fn protect(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            protect(&entry.path())?;
        } else if kind.is_file() {
            forbid_writing(&entry.path())?;
        }
    }
    forbid_writing(folder)
}

fn forbid_writing(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    fs::set_permissions(path, Permissions::from_mode(mode & !0o222))
}
