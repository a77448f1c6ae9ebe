//! What follows from a write that a quorum has.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};

use crate::event::Refusal;
use crate::record::RecordVersion;

/// What happens when a write is acknowledged.
pub(crate) enum AfterWrite {
    /// The client, if there is one, is told that the operation is done. Replicas of chunks that the
    /// file no longer has are deleted.
    Done { request: Option<u64>, dropped: BTreeMap<NodeId, Vec<ObjectId>> },
    /// The client is told that the operation was refused.
    Refuse { request: Option<u64>, refusal: Refusal },
    /// The leader of the old name is asked for the file.
    Move { request: u64 },
    /// The leader of the new name is told that the file has departed.
    Moved,
    /// The leader of the old name is told that the file has arrived. Replicas of chunks of the file
    /// that it has replaced are deleted.
    Arrived {
        from: FileName,
        token: RecordVersion,
        request: Option<u64>,
        dropped: BTreeMap<NodeId, Vec<ObjectId>>,
    },
}
