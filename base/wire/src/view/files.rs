//! Views of the file system.

use eyas_types::dfs::{FileName, Format};
use eyas_types::{Name, ObjectId};
use serde::{Deserialize, Serialize};

/// A file, folder or symbolic link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileView {
    /// Name of the file.
    pub name: FileName,
    /// `file`, `folder` or `link`.
    pub kind: String,
    /// Target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The file's id, 32 hexadecimal digits, which a new name does not change.
    pub id: String,
    /// Size of the file; of a link, the length of its target.
    pub size_bytes: u64,
    /// When it was written or last appended to, microseconds since 1970.
    pub modified_us: u64,
    /// Permissions: four octal digits.
    pub mode: String,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// Its named attributes, if it was looked up and not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<AttributeView>>,
    /// How the file is stored, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<FileShape>,
}

/// A named attribute of a file, folder or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeView {
    /// Its name; in a mount with `user.` before it.
    pub name: String,
    /// Its value.
    pub value: Name,
}

/// The quota and the use of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaView {
    /// The folder.
    pub folder: FileName,
    /// Maximum size of all files below it, if there is a limit.
    pub bytes: Option<u64>,
    /// Size of all files below it.
    pub used_bytes: u64,
    /// Maximum number of files, folders and links below it, if there is a limit.
    pub files: Option<u64>,
    /// Number of files, folders and links below it.
    pub used_files: u64,
}

/// A change of a file that a node has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// When it was acknowledged, microseconds since 1970.
    pub time_us: u64,
    /// The key or the job that has asked for it.
    pub holder: String,
    /// The user for whom a gateway has asked with that key.
    pub principal: Option<String>,
    /// `dfs`, `task`, `map` or `mount`, as the client states it.
    pub door: String,
    /// `create`, `folder`, `link`, `write`, `attributes`, `remove`, `rename`; or `left out`, for
    /// changes that were not logged since a node had too many.
    pub operation: String,
    /// The name of the file.
    pub name: Option<FileName>,
    /// The new name, after a rename.
    pub to: Option<FileName>,
    /// Size of the file after it was created or written; or the number of changes that were left
    /// out.
    pub size: Option<u64>,
}

/// How a file is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileShape {
    /// Format of the records.
    pub format: Format,
    /// Wanted size of the chunks.
    pub chunk_bytes: u64,
    /// Wanted replicas of each chunk.
    pub replication: u8,
    /// The chunks in order.
    pub chunks: Vec<ChunkView>,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkView {
    /// The chunk's object in the nodes' stores.
    pub object: ObjectId,
    /// Position in the file.
    pub offset: u64,
    /// Size of the chunk.
    pub size_bytes: u64,
    /// CRC-64/NVME of its content: 16 hexadecimal digits.
    pub checksum: String,
    /// Replicas of the chunk. None if the chunk is zeros, which no node stores.
    pub replicas: Vec<ReplicaView>,
}

/// A replica of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaView {
    /// The node: 16 hexadecimal digits.
    pub node: String,
    /// The node's address, if it lives.
    pub address: Option<String>,
}

/// A node of the file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilesNodeView {
    /// The node's id, 16 hexadecimal digits.
    pub node: String,
    /// The node's address; `None` if it is missing.
    pub address: Option<String>,
    /// Whether it is a member of the current view.
    pub is_member: bool,
    /// Number of chunks on the node, if it answers.
    pub chunks: Option<u64>,
    /// Size of these chunks together.
    pub bytes: Option<u64>,
    /// Bytes available for further chunks; `None` if the node is missing.
    pub free_bytes: Option<u64>,
    /// Damaged copies of chunks that the node keeps in addition, if it answers.
    pub damaged: Option<u64>,
    /// Size of these copies together.
    pub damaged_bytes: Option<u64>,
    /// Part of the time for which the disk of the node's store is busy, if the node has measured
    /// it: from 0 to 1.
    pub disk_load: Option<f64>,
    /// Part of the node's processors that is busy, if the node has measured it: from 0 to 1.
    pub processor_load: Option<f64>,
}

/// The files in a folder, and the nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilesUsageView {
    /// Files in the folder.
    pub files: u64,
    /// Size of these files together.
    pub bytes: u64,
    /// Whether a quorum of the current members has the record of every file, if no folder was
    /// given. Before, files may become unavailable when a single node is lost.
    pub is_settled: Option<bool>,
    /// All nodes, if no folder was given.
    pub nodes: Vec<FilesNodeView>,
}

/// A job over the blocks of files, which has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapView {
    /// Chunks that were read.
    pub chunks: u32,
    /// Blocks of chunks, each read by one program.
    pub blocks: u64,
    /// Chunks that moved from one worker to another before they were begun.
    pub stolen: u32,
    /// Blocks that a second worker processed in addition.
    pub speculated: u32,
    /// Bytes written.
    pub bytes: u64,
    /// Files written, unless the output went to standard output.
    pub files: Option<Vec<FileName>>,
    /// Duration, microseconds.
    pub elapsed_us: u64,
}

/// The result of an attempt to continue without lost nodes: one of the lists is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryView {
    /// Members after the recovery, 16 hexadecimal digits each.
    pub members: Vec<String>,
    /// Missing nodes that the request did not name.
    pub missing: Vec<String>,
}

/// Replicas that are missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifiedView {
    /// Files that were verified.
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
    /// The file.
    pub name: FileName,
    /// Index of the chunk, from 0.
    pub chunk: u64,
    /// Position in the file.
    pub offset: u64,
    /// Size of the chunk.
    pub size_bytes: u64,
    /// Nodes that keep a damaged copy, 16 hexadecimal digits each.
    pub damaged_on: Vec<String>,
    /// Nodes that should have a replica and do not answer, 16 hexadecimal digits each.
    pub silent: Vec<String>,
}

/// A replica that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadReplicaView {
    /// The file.
    pub name: FileName,
    /// Index of the chunk, from 0.
    pub chunk: u64,
    /// The node, 16 hexadecimal digits.
    pub node: String,
}
