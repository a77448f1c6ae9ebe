//! Versions of files, by which the kernel's cache is judged.

use rustix::fs::Stat;

/// Version of a file's content, as far as its size and times show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    bytes: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl From<&Stat> for FileVersion {
    fn from(stat: &Stat) -> Self {
        FileVersion {
            bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}
