//! Entries: what is stored under a name, and how versions of entries are ordered.

use eyas_types::dfs::{FileId, FileName, FileRecord};
use serde::{Deserialize, Serialize};

/// A period in which one leader writes: one start of the leader in one view. The rounds of a
/// partition are ordered, since a partition has one leader in a view.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Round {
    /// Number of the view.
    pub view: u64,
    /// Number of times that the leader had started.
    pub boot: u64,
}

/// The version of an entry. Of two entries of one name, the one with the higher version is valid. A
/// version is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordVersion {
    /// The round in which the entry was written.
    pub round: Round,
    /// Number of the write in that round, from 1.
    pub sequence: u64,
}

/// The entry of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameEntry {
    /// A file.
    File(FileRecord),
    /// No file. The entry is kept until no node has an older entry of this name.
    Removed {
        /// The file that was here, or was expected here.
        id: FileId,
        /// Whether the file was removed. Otherwise it has another name.
        is_gone: bool,
    },
    /// A file that is being moved to this name; it arrives when it has left its old name. See
    /// `rename.rs`.
    Arriving {
        /// The old name.
        from: FileName,
        /// The version that the file must have there.
        version: RecordVersion,
        /// The file.
        id: FileId,
        /// The record that has had this name until then. If no file arrives, it gets the name
        /// back.
        over: Option<FileRecord>,
    },
    /// A file that was moved to another name, whose leader may not know it yet.
    Departed {
        /// The new name.
        to: FileName,
        /// Version of the [`Arriving`](NameEntry::Arriving) entry under the new name.
        token: RecordVersion,
        /// The record of the file.
        record: FileRecord,
    },
}

impl NameEntry {
    /// The record, if the entry is a file.
    pub fn file(&self) -> Option<&FileRecord> {
        match self {
            NameEntry::File(record) => Some(record),
            _ => None,
        }
    }

    /// The record whose chunks the entry needs: of the file, of one that has left and may not have
    /// arrived, or of one that gets its name back if another does not arrive.
    pub fn record(&self) -> Option<&FileRecord> {
        match self {
            NameEntry::File(record)
            | NameEntry::Departed { record, .. }
            | NameEntry::Arriving { over: Some(record), .. } => Some(record),
            NameEntry::Removed { .. } | NameEntry::Arriving { over: None, .. } => None,
        }
    }
}

/// An entry with its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The version.
    pub version: RecordVersion,
    /// The entry.
    pub entry: NameEntry,
}

/// Digest of all entries of a partition, independent of their order. Equal if the same names have
/// the same versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(pub(crate) u128);

/// Read access to the records that the node has saved. A read shows every [`Save`](crate::Save) of
/// earlier calls of [`handle`](crate::RingNode::handle), whether it is durable or not, and nothing
/// else.
pub trait Records {
    /// The entry of a name in its partition.
    fn get(&self, partition: u16, name: &FileName) -> Option<Stored>;

    /// The first entry of a partition whose name is not before `from`, compared byte by byte.
    fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)>;
}
