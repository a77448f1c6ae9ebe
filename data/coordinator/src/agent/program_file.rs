//! A file that a program has sent to the agent.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use eyas_board::{PartFile, VersionOf};
use eyas_types::Extent;

/// Device and inode.
pub(crate) type FileKey = (u64, u64);

/// What the agent and the threads that pass on its parts ask of an open file.
pub(crate) trait ProgramFile: Send + Sync + 'static {
    /// Its device and number; `None` if the system does not tell them.
    fn key(&self) -> Option<FileKey>;
    /// Its present version; `None` if the system does not tell it.
    fn version(&self, of: VersionOf) -> Option<PartFile>;
    /// Whether the page cache has these bytes; `None` if the kernel does not tell it.
    fn is_cached(&self, bytes: &Range<u64>) -> Option<bool>;
    /// Its bytes; `None` if not all of them can be read.
    fn content(&self, extent: &Extent) -> Option<Vec<u8>>;
}

impl ProgramFile for File {
    fn key(&self) -> Option<FileKey> {
        self.metadata().ok().map(|found| (found.dev(), found.ino()))
    }

    fn version(&self, of: VersionOf) -> Option<PartFile> {
        PartFile::of(self, of)
    }

    fn is_cached(&self, bytes: &Range<u64>) -> Option<bool> {
        eyas_board::is_cached(self.as_fd(), bytes).ok()
    }

    fn content(&self, extent: &Extent) -> Option<Vec<u8>> {
        let mut content = vec![0; usize::try_from(extent.size_bytes).ok()?];
        self.read_exact_at(&mut content, extent.offset).ok()?;
        Some(content)
    }
}
