//! What is shown of the file system.

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, Format};
use serde::{Deserialize, Serialize};

/// A file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileView {
    /// Its name.
    pub name: FileName,
    /// What it is, whatever it is called: 32 hexadecimal digits.
    pub id: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was written or last appended to, microseconds since 1970.
    pub modified_us: u64,
    /// More, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<FileShape>,
}

/// How a file is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileShape {
    /// What its records are.
    pub format: Format,
    /// Size that its chunks are to have.
    pub chunk_bytes: u64,
    /// Replicas that each chunk is to have.
    pub replication: u8,
    /// Its chunks, in their order.
    pub chunks: Vec<ChunkView>,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkView {
    /// What it is in the nodes' stores.
    pub object: ObjectId,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its size.
    pub size_bytes: u64,
    /// CRC-64/NVME of its content: 16 hexadecimal digits.
    pub checksum: String,
    /// Who is to have it.
    pub replicas: Vec<ReplicaView>,
}

/// A replica of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// The node: 16 hexadecimal digits.
    pub node: String,
    /// Where that takes sessions, if it lives.
    pub address: Option<String>,
}

/// A node of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesNodeView {
    /// Which: 16 hexadecimal digits.
    pub node: String,
    /// Where it takes sessions; nothing if it is missing.
    pub address: Option<String>,
    /// Whether the others count on it: it has joined.
    pub is_member: bool,
    /// Chunks that it has, if it answers.
    pub chunks: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
    /// Bytes that it has for more; nothing if it is missing.
    pub free_bytes: Option<u64>,
    /// Damaged copies of chunks that it has kept aside, beside those; if it answers.
    pub damaged: Option<u64>,
    /// Their bytes.
    pub damaged_bytes: Option<u64>,
}

/// What files there are in a folder, and what nodes have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesUsageView {
    /// Files in the folder.
    pub files: u64,
    /// Their sizes.
    pub bytes: u64,
    /// All nodes, if no folder was named.
    pub nodes: Vec<FilesNodeView>,
}

/// A job over the blocks of files, which has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapView {
    /// Chunks that were read.
    pub chunks: u32,
    /// Blocks that they were read in, by one program each.
    pub blocks: u64,
    /// How often a worker was given chunks that another had, and had not begun.
    pub stolen: u32,
    /// How often a block was worked through once more, by a second worker.
    pub speculated: u32,
    /// What was written, in all.
    pub bytes: u64,
    /// Where to, if not to standard output.
    pub files: Option<Vec<FileName>>,
    /// How long it took, microseconds.
    pub elapsed_us: u64,
}

/// What came of an attempt to go on without nodes that are lost: one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryView {
    /// Who the members are now: 16 hexadecimal digits each.
    pub members: Vec<String>,
    /// Who is missing, and was not named.
    pub missing: Vec<String>,
}

/// Replicas that are not where they are to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedView {
    /// Files that were looked at.
    pub files: u64,
    /// Replicas that are missing or damaged, and will be replaced.
    pub bad: Vec<BadReplicaView>,
    /// Replicas on nodes that do not answer.
    pub silent: Vec<BadReplicaView>,
    /// Chunks of which no node that answers has a good copy.
    pub lost: Vec<LostChunkView>,
}

/// A chunk that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostChunkView {
    /// Of which file.
    pub name: FileName,
    /// Which chunk, from 0.
    pub chunk: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// How long it is.
    pub size_bytes: u64,
    /// Nodes that have kept a damaged copy aside: 16 hexadecimal digits each.
    pub damaged_on: Vec<String>,
    /// Nodes that are to have it and do not answer, likewise.
    pub silent: Vec<String>,
}

/// A replica that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadReplicaView {
    /// Of which file.
    pub name: FileName,
    /// Of which chunk, from 0.
    pub chunk: u64,
    /// Where: 16 hexadecimal digits.
    pub node: String,
}
