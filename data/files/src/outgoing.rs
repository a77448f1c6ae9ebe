//! A chunk on its way to nodes.

use std::sync::Arc;
use std::time::Duration;

use eyas_store::Checksum;
use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileId};

use crate::error::FilesError;
use crate::protocol::Member;

/// Time for a node to store a chunk, or a group of small ones, after it has begun.
pub(crate) const STORE_DEADLINE: Duration = Duration::from_secs(130);

/// A chunk that is being stored on nodes.
#[derive(Clone)]
pub(crate) struct OutgoingChunk {
    pub object: ObjectId,
    pub size_bytes: u64,
    pub checksum: u64,
    pub is_durable: bool,
    /// Empty if a node has the chunk already.
    pub content: Arc<Vec<u8>>,
}

impl OutgoingChunk {
    /// A new chunk with this content, of a file with this id.
    pub fn of(id: FileId, content: Vec<u8>, is_durable: bool) -> Self {
        let (size_bytes, checksum) = (content.len() as u64, Checksum::of(&content).0);
        let object = Chunk::object_of(id, size_bytes, checksum);
        OutgoingChunk { object, size_bytes, checksum, is_durable, content: Arc::new(content) }
    }
}

/// A node has not answered in time.
pub(crate) fn silent(member: &Member) -> FilesError {
    FilesError::unreachable(format!("node {} does not answer", member.node))
}
