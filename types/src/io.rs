//! What programs ask of shared storage, in the words that its coordinator and their agents share.

use serde::{Deserialize, Serialize};

/// Names a file of shared storage: a digest of what all nodes know it by. Two files of one name would be put in order as if
/// they were one, which is of no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u64);

/// What is done with bytes of a file.
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
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub size_bytes: u64,
}

impl Extent {
    /// Where they end: the offset of the first byte after them.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size_bytes)
    }
}
