//! The folder of a node's store, in which processes on the node's machine read its chunks.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The folder of a node's store, as the node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFolder {
    path: PathBuf,
    /// Identifies the running kernel.
    boot: String,
    device: u64,
    inode: u64,
}

impl StoreFolder {
    /// The folder at `path`, as this process sees it.
    ///
    /// # Errors
    /// If it cannot be looked at, or its path is not UTF-8.
    pub fn of(path: &Path) -> io::Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let found = std::fs::metadata(path)?;
        if path.to_str().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, "the path is not UTF-8"));
        }
        Ok(StoreFolder { path: path.to_owned(), boot, device: found.dev(), inode: found.ino() })
    }

    /// The path, if this process sees the same folder there.
    pub(crate) fn here(self) -> Option<PathBuf> {
        (StoreFolder::of(&self.path).ok()? == self).then_some(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_one_of_the_node_only_if_all_of_it_is_equal() {
        let folder = tempfile::tempdir().unwrap();
        let seen = StoreFolder::of(folder.path()).unwrap();
        assert_eq!(seen.clone().here().as_deref(), Some(folder.path()));
        assert_eq!(StoreFolder { inode: seen.inode + 1, ..seen.clone() }.here(), None);
        assert_eq!(StoreFolder { device: seen.device + 1, ..seen.clone() }.here(), None);
        assert_eq!(StoreFolder { boot: String::new(), ..seen.clone() }.here(), None);
        assert_eq!(StoreFolder { path: folder.path().join("other"), ..seen }.here(), None);
    }
}
