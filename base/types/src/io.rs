//! What programs ask of shared storage, in the words that its coordinator and their agents share.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// A file on shared storage, the same on all nodes: a digest of its URL, or its inode number. If
/// two files get the same id, their requests are ordered as if for one file, which is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StorageFileId(pub u64);

/// A storage that several nodes share, as one node refers to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageLocation {
    /// The file system that this node has mounted as this device (`st_dev`).
    Device(u64),
    /// A bucket or a web server, by its URL without a path.
    Url(String),
}

/// An operation on bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// They are read.
    Read,
    /// They are written.
    Write,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub size_bytes: u64,
}

impl Extent {
    /// Offset of the first byte after them.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size_bytes)
    }
}
