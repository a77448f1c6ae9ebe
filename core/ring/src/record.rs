//! What is stored under a name, and in which order.

use eyas_types::dfs::{FileId, FileName, FileRecord};
use serde::{Deserialize, Serialize};

/// A time in which a leader wrote: one of its starts, in one view. A partition's rounds are ordered, since it has one
/// leader in a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Round {
    /// Number of the view.
    pub view: u64,
    /// How often the leader had started.
    pub boot: u64,
}

/// When an entry was written. Of two entries of a name the one with the higher version is valid. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordVersion {
    /// In which round.
    pub round: Round,
    /// Which write of that round, from 1.
    pub sequence: u64,
}

/// What is under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameEntry {
    /// A file.
    File(FileRecord),
    /// No file any more. Kept until nobody has what was here before.
    Removed {
        /// Which file was, or was to be, here.
        id: FileId,
        /// Whether it was removed; else it has another name.
        is_gone: bool,
    },
    /// A file that is to be moved here: it is, once it is not there any more. See `rename.rs`.
    Arriving {
        /// From where.
        from: FileName,
        /// The version that it must still have there.
        version: RecordVersion,
        /// Which.
        id: FileId,
    },
    /// A file that was moved away, of which the new name's leader may not yet know.
    Departed {
        /// Where to.
        to: FileName,
        /// Version of the [`Arriving`](Entry::Arriving) entry there, for which it was.
        token: RecordVersion,
        /// What is known of it.
        record: FileRecord,
    },
}

impl NameEntry {
    /// The file that this name has.
    pub fn file(&self) -> Option<&FileRecord> {
        match self {
            NameEntry::File(record) => Some(record),
            _ => None,
        }
    }
}

/// An entry, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// When.
    pub version: RecordVersion,
    /// What.
    pub entry: NameEntry,
}

/// What a decider reads of its node's disk. A read shows every [`Save`](crate::Save) of earlier calls of
/// [`handle`](crate::Node::handle), durable or not.
pub trait Records {
    /// What is stored under a name, which falls into that partition.
    fn get(&self, partition: u16, name: &FileName) -> Option<Stored>;

    /// The first name of a partition that is not before `from`, byte by byte, and what is stored under it.
    fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)>;
}
