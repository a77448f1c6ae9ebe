//! Hidden copies of outputs, which an executor that is killed while it delivers leaves at the
//! destinations. Their names contain the executor's name. The executor lists the folders with
//! copies in a file beside its sandboxes; its guardian, or a later executor in the same folder,
//! removes the copies in them.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use eyas_store::{path_of, remove_copies};

/// Name of the list, in the folder with the executor's sandboxes.
const LIST: &str = "copies";
/// Folders that are listed.
const MAX_LISTED_FOLDERS: usize = 65_536;

/// The list of folders to which this executor has copied outputs.
pub(crate) struct CopyFolders {
    list: PathBuf,
    listed: Mutex<HashSet<PathBuf>>,
}

impl CopyFolders {
    /// An empty list for an executor with these sandboxes.
    pub fn new(sandboxes: &Path) -> Self {
        CopyFolders { list: sandboxes.join(LIST), listed: Mutex::default() }
    }

    /// Lists a folder before an output is copied to it.
    pub fn add(&self, folder: &Path) -> io::Result<()> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if listed.contains(folder) || listed.len() >= MAX_LISTED_FOLDERS {
            return Ok(());
        }
        let mut list = OpenOptions::new().append(true).create(true).open(&self.list)?;
        list.write_all(&[folder.as_os_str().as_bytes(), b"\0"].concat())?;
        listed.insert(folder.to_path_buf());
        Ok(())
    }
}

/// Removes the copies that an executor with these sandboxes has left. The executor must have ended.
pub(crate) fn remove(sandboxes: &Path, executor: &str) {
    let list = fs::read(sandboxes.join(LIST)).unwrap_or_default();
    for folder in list.split(|byte| *byte == 0).filter(|folder| !folder.is_empty()) {
        let folder = path_of(folder);
        match remove_copies(folder, executor) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(
                    folder = %folder.display(),
                    "cannot remove hidden copies of outputs: {e}"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_listed_folders_are_removed() {
        let outer = tempfile::tempdir().unwrap();
        let (sandboxes, out) = (outer.path().join("sandboxes"), outer.path().join("out"));
        [&sandboxes, &out].iter().for_each(|folder| fs::create_dir(folder).unwrap());
        remove(&sandboxes, "1-2");
        let folders = CopyFolders::new(&sandboxes);
        for folder in [&out, &outer.path().join("gone"), &out] {
            folders.add(folder).unwrap();
        }
        let names = [".eyas-1-2-0123456789abcdef.tmp", ".eyas-1-3-0123456789abcdef.tmp", "result"];
        names.iter().for_each(|name| fs::write(out.join(name), "x").unwrap());
        remove(&sandboxes, "1-2");
        assert_eq!(names.map(|name| out.join(name).exists()), [false, true, true]);
        assert_eq!(
            fs::read(sandboxes.join(LIST)).unwrap().iter().filter(|byte| **byte == 0).count(),
            2
        );
    }
}
