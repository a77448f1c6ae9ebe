//! The state of a file, which changes when a program writes to it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// What differs after a program has written to a file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileState {
    pub device: u64,
    pub inode: u64,
    pub size_bytes: u64,
    pub modified_s: i64,
    pub modified_ns: i64,
}

impl FileState {
    /// `None` if the file was deleted.
    pub fn of(file: &File) -> Option<Self> {
        let found = file.metadata().ok()?;
        let (device, modified_s, modified_ns) = (found.dev(), found.mtime(), found.mtime_nsec());
        let state = FileState {
            device,
            inode: found.ino(),
            size_bytes: found.len(),
            modified_s,
            modified_ns,
        };
        (found.nlink() > 0).then_some(state)
    }
}
