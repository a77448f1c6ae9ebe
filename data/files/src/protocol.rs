//! The messages between clients and nodes of the file system, in frames of `eyas_session`.

use std::net::SocketAddr;
use std::time::Duration;

use eyas_blocks::{
    BlockPolicy, Effect as BlockEffect, Event as BlockEvent, TaskAnswer, TaskClaim, WorkerId,
};
use eyas_ring::{FileAnswer, FileOperation, Refusal, View};
use eyas_types::ObjectId;
use eyas_types::access::Behalf;
use eyas_types::dfs::{FileId, FileName, FileSystemId, Format, NodeId};
use serde::{Deserialize, Serialize};

use crate::runs::spec::{BlockRunId, RunSpec, RunStatus};
pub use crate::store_folder::StoreFolder;

/// A node that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Id of the node.
    pub node: NodeId,
    /// Address for sessions.
    pub address: SocketAddr,
    /// Address for transfers of chunks.
    pub transfer: SocketAddr,
    /// Free bytes for chunks.
    pub free_bytes: u64,
}

/// The file system as a node sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DfsMembership {
    /// The file system that the node belongs to, or waits to join.
    pub system: FileSystemId,
    /// The current view; `None` before the node has joined.
    pub view: Option<View>,
    /// Whether all partitions have a quorum in the view, so that earlier views are no longer
    /// needed.
    pub is_settled: bool,
    /// The nodes that are alive.
    pub alive: Vec<Member>,
}

impl DfsMembership {
    /// Members that are not alive.
    pub fn missing(&self) -> Vec<NodeId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let is_there = |node: &NodeId| self.alive.iter().any(|member| member.node == *node);
        members.copied().filter(|node| !is_there(node)).collect()
    }

    /// Whether a node is a member of the view.
    pub fn has_joined(&self, node: NodeId) -> bool {
        self.view.as_ref().is_some_and(|view| view.members.contains(&node))
    }
}

/// The door through which a client uses files. The audit log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilesOrigin {
    /// A command such as `eyas dfs`.
    Dfs,
    /// Inputs and outputs of tasks.
    Task,
    /// `eyas map`.
    Map,
    /// A mount.
    Mount,
}

/// A change that a leader has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeEntry {
    /// When it was acknowledged, microseconds since 1970, by the clock of the node.
    pub time_us: u64,
    /// The key or the job whose session has asked for it.
    pub holder: String,
    /// The user for whom the holder of the key has asked.
    pub principal: Option<String>,
    /// The door through which the change came. Each client states its door itself.
    pub door: FilesOrigin,
    /// `create`, `folder`, `link`, `write`, `attributes`, `remove`, `rename`; or `left out`, for
    /// changes that were not logged.
    pub operation: String,
    /// The name of the file.
    pub name: Option<FileName>,
    /// The new name, after a rename.
    pub to: Option<FileName>,
    /// Size of the file after it was created or written; or the number of changes that were left
    /// out.
    pub size: Option<u64>,
}

/// A request of a client. Answers contain its number, and come in any order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRequest {
    /// Its number in the connection.
    pub number: u64,
    /// The door through which the client uses files.
    pub door: FilesOrigin,
    /// The user for whom a gateway asks, and to which folder that limits the request.
    pub behalf: Option<Behalf>,
    /// What is asked.
    pub what: RequestBody,
}

/// The content of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum RequestBody {
    /// The nodes of the file system. Answered by [`ResponseBody::Membership`].
    Membership,
    /// An operation on a file that the node leads. Answered by [`ResponseBody::Operated`].
    Operate(FileOperation),
    /// Store a chunk: fetch it from a peer that has it or is receiving it, or let the client push
    /// it. Answered by [`ResponseBody::Ready`] when its space is reserved and the client may push
    /// it, and by [`ResponseBody::Stored`] when it is stored. With `is_durable`, the node begins at
    /// once to write it to the disk, as a [`Sync`](RequestBody::Sync) will follow.
    Store {
        object: ObjectId,
        size_bytes: u64,
        checksum: u64,
        from: Option<SocketAddr>,
        is_durable: bool,
    },
    /// Report of missing or damaged replicas of a file that the node leads. Not answered.
    Bad { name: FileName, objects: Vec<ObjectId>, node: NodeId },
    /// What the node has of these chunks, after reading them if `thoroughly` is set. Answered by
    /// [`ResponseBody::Has`].
    Check { objects: Vec<ObjectId>, thoroughly: bool },
    /// The chunks and free space of the node. Answered by [`ResponseBody::Usage`].
    Usage,
    /// A request about a run that the node leads. Answered by [`ResponseBody::Run`].
    Run { run: BlockRunId, request: RunRequest },
    /// An event of a run's worker. Not answered; its consequences are sent to the worker's
    /// attendance.
    Tell { run: BlockRunId, event: BlockEvent },
    /// Operations on files that the node leads. Answered by [`ResponseBody::OperatedAll`] when all
    /// of them are done.
    OperateAll(Vec<FileOperation>),
    /// Store small chunks, whose content is in the request. Answered by [`ResponseBody::StoredAll`]
    /// when all of them are stored, and on the disk if `is_durable` is set.
    StoreAll { chunks: Vec<SmallChunk>, is_durable: bool },
    /// Force chunks to the disk. Answered by [`ResponseBody::Synced`].
    Sync { objects: Vec<ObjectId> },
    /// Read the audit log of the node, from a position or the beginning on. Answered by
    /// [`ResponseBody::Changes`] or [`ResponseBody::NoChanges`].
    Changes { folder: String, since_us: u64, from: Option<LogPosition> },
    /// Read small chunks. Answered by [`ResponseBody::Contents`].
    Contents { objects: Vec<ObjectId> },
    /// Make chunks of those of the file `from` in the node's store, with the same content. With
    /// `is_for_file`, the chunks are for a file that is about to appear; otherwise they stay for a
    /// day, also if the connection ends. Answered by [`ResponseBody::Derived`].
    Derive { from: FileName, derived: Vec<(ObjectId, ChunkSpec)>, is_for_file: bool },
    /// Cut chunks off an object in the node's store. Answered by [`ResponseBody::Cut`] or
    /// [`ResponseBody::NotCut`].
    Cut(CutRequest),
    /// The folder of the node's store, which clients on its machine read. Answered by
    /// [`ResponseBody::StoreFolder`].
    StoreFolder,
    /// Store a chunk whose content the client has handed over in the node's store with this number.
    /// Answered by [`ResponseBody::Stored`]. `is_durable` is as in [`Store`](RequestBody::Store).
    Take { number: u128, object: ObjectId, size_bytes: u64, checksum: u64, is_durable: bool },
    /// Delete those of these chunks that came over this connection and that no leader has asked
    /// for: their file will not appear. Answered by [`ResponseBody::Discarded`].
    Discard { objects: Vec<ObjectId> },
    /// Whether the client may write a file, before it stores the content. Answered by
    /// [`ResponseBody::MayWrite`], or refused.
    MayWrite { name: FileName },
    /// The client still needs these chunks for a file that has not appeared: they stay, although
    /// the connection over which they came may have ended. Answered by [`ResponseBody::Has`].
    Renew { objects: Vec<ObjectId> },
    /// The loads of all nodes, as far as the node knows them. Answered by [`ResponseBody::Loads`].
    Loads,
    /// Open an account of memory, or keep it and its chunks for another [`MEMORY_TERM`]. Answered
    /// by [`ResponseBody::Memory`].
    OpenMemory(MemoryAccount),
    /// Keep these chunks of the node in memory, if the account with this number is open, and the
    /// account and the node have room. Answered by [`ResponseBody::MemoryTold`].
    KeepInMemory { account: u128, objects: Vec<ObjectId> },
    /// Release the memory of the account with this number. Answered by
    /// [`ResponseBody::MemoryTold`].
    ReleaseMemory { account: u128 },
}

/// A node releases the memory of an account that no client has renewed for this long.
pub const MEMORY_TERM: Duration = Duration::from_secs(60);

/// Memory of each node for chunks that are read again and again, as the passes of an iteration do
/// (elastic-blocks §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryAccount {
    /// Its random number.
    pub number: u128,
    /// Maximum size of the chunks on a node, bytes.
    pub limit_bytes: u64,
}

/// What an account has on a node, or on all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Number of chunks.
    pub chunks: u64,
    /// Their memory, bytes: whole pages.
    pub bytes: u64,
    /// Why chunks are not in memory for which the account has room, for a person.
    pub failure: Option<String>,
}

impl RequestBody {
    /// The minor version of the protocol that first had the request.
    pub fn since(&self) -> u16 {
        match self {
            RequestBody::Loads => 3,
            RequestBody::Run { request: RunRequest::Open(spec), .. } => match spec.policy {
                BlockPolicy::MultiwaveWith(_) => 3,
                _ => 0,
            },
            RequestBody::Run { request: RunRequest::Claim(_), .. } => 4,
            RequestBody::OpenMemory(_)
            | RequestBody::KeepInMemory { .. }
            | RequestBody::ReleaseMemory { .. } => 6,
            _ => 0,
        }
    }
}

/// A chunk that a node should store.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ChunkSpec {
    /// Its object.
    pub object: ObjectId,
    /// Size of the content.
    pub size_bytes: u64,
    /// Checksum of the content.
    pub checksum: u64,
}

/// Which chunks to cut off an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutRequest {
    /// The object, in the store of the node.
    pub object: ObjectId,
    /// The file that the chunks are for.
    pub id: FileId,
    /// The last part of the object's name, which says its format.
    pub base_name: String,
    /// The format of the records; chosen by the name and the first bytes if missing.
    pub format: Option<Format>,
    /// Target size of the chunks.
    pub chunk_bytes: u64,
    /// Where the first of the chunks begins in the object.
    pub from: u64,
}

/// Chunks that were cut off an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPart {
    /// The format of the records.
    pub format: Format,
    /// The chunks.
    pub chunks: Vec<CutChunk>,
    /// Where the next chunk begins, if there are more.
    pub next: Option<u64>,
}

/// A chunk that was cut off an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutChunk {
    /// Size of the content.
    pub size_bytes: u64,
    /// Its checksum.
    pub checksum: u64,
    /// Whether it is a hole, which the node has not stored.
    pub is_hole: bool,
}

/// Why an object cannot be cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutFailure {
    /// It does not have the format: the problem, for a person.
    Format(String),
    /// A chunk was not stored.
    NotStored(StoreFailure),
}

/// A chunk that is sent within a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallChunk {
    /// Its object.
    pub object: ObjectId,
    /// Checksum of the content.
    pub checksum: u64,
    /// The content.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
}

/// Why a chunk was not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreFailure {
    /// The node has no space: the reason, for a person.
    NoSpace(String),
    /// The node has no space now, and will soon delete chunks that clients have left: the reason,
    /// for a person.
    NoSpaceNow(String),
    /// Any other failure, for a person.
    Failed(String),
}

/// A request about a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RunRequest {
    /// Lead this run. May be repeated. Answered by [`RunReply::Opened`].
    Open(Box<RunSpec>),
    /// Return its specification. Answered by [`RunReply::Spec`].
    Spec,
    /// Send the decisions for this worker. Answered by [`RunReply::Attending`], and from then on by
    /// [`RunReply::Effect`].
    Attend(WorkerId),
    /// Return its status. Answered by [`RunReply::Status`].
    Status,
    /// Forget the run. Answered by [`RunReply::Closed`].
    Close,
    /// An attempt of a task is alive, and may ask for more of its task's list. May be repeated.
    /// Answered by [`RunReply::Task`].
    Claim(TaskClaim),
}

/// The answer to a [`RunRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum RunReply {
    /// The failure, if the run was not opened, for a person.
    Opened {
        failure: Option<String>,
    },
    Spec(Box<RunSpec>),
    Attending,
    Effect(BlockEffect),
    Status(RunStatus),
    Closed,
    /// The run does not exist.
    Unknown,
    Task(TaskAnswer),
}

/// An answer of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeResponse {
    /// The number of the request.
    pub number: u64,
    /// What is answered.
    pub reply: ResponseBody,
}

/// The content of an answer; see [`RequestBody`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ResponseBody {
    /// The node that answers, and its view of the file system.
    Membership(NodeId, DfsMembership),
    Operated(Result<FileAnswer, Refusal>),
    Ready,
    /// The failure, if the chunk was not stored.
    Stored {
        failure: Option<StoreFailure>,
    },
    /// One value for each chunk of the question.
    Has(Vec<ChunkPresence>),
    Usage(Usage),
    Run(RunReply),
    /// The key or token of the session does not permit the request: the reason, for a person.
    Refused(String),
    /// One value for each operation.
    OperatedAll(Vec<Result<FileAnswer, Refusal>>),
    /// For each chunk, the failure if it was not stored.
    StoredAll(Vec<Option<StoreFailure>>),
    /// The failure, if the chunks are not all on the disk, for a person.
    Synced {
        failure: Option<String>,
    },
    /// Entries of the audit log, and the position from which to continue.
    Changes(Vec<ChangeEntry>, Option<LogPosition>),
    /// The audit log cannot be read: the reason, for a person.
    NoChanges(String),
    /// One value for each chunk.
    Contents(Vec<SmallContent>),
    /// For each chunk, the failure if it was not made.
    Derived(Vec<Option<StoreFailure>>),
    Cut(CutPart),
    NotCut(CutFailure),
    /// `None` if the node cannot say it.
    StoreFolder(Option<StoreFolder>),
    Discarded,
    MayWrite,
    Loads(Vec<(NodeId, NodeLoad)>),
    /// What the account has on this node now.
    Memory(MemoryUse),
    MemoryTold,
}

/// The content of a small chunk as a node has it. The reader checks it against the checksum of the
/// chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmallContent {
    /// The whole content.
    Whole(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The node does not have the chunk, or it was damaged.
    Missing,
    /// The node cannot read the chunk now: the reason, for a person.
    Failed(String),
}

/// A place in the audit log of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPosition {
    /// The time when the node has opened its log.
    pub opened_us: u64,
    /// The number of bytes that were ever logged before the place, also in log files that were
    /// deleted.
    pub offset: u64,
}

/// State of a chunk on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkPresence {
    /// The whole chunk.
    Whole,
    /// A damaged copy, which is kept aside.
    Damaged,
    /// Nothing.
    Nothing,
}

/// How busy a node is: moving averages, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// The time for which the disk of its store is busy.
    pub disk_milli: u16,
    /// The part of the processors that it may use which is busy.
    pub processors_milli: u16,
}

impl NodeLoad {
    /// The load of the disk, from 0 to 1.
    pub fn disk(&self) -> f64 {
        f64::from(self.disk_milli) / 1000.0
    }

    /// The load of the processors, from 0 to 1.
    pub fn processors(&self) -> f64 {
        f64::from(self.processors_milli) / 1000.0
    }

    /// Whether it differs from another load by at least 2 %, so that others should know.
    pub fn differs_from(&self, other: NodeLoad) -> bool {
        self.disk_milli.abs_diff(other.disk_milli) >= 20
            || self.processors_milli.abs_diff(other.processors_milli) >= 20
    }
}

/// The chunks and the free space of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Number of chunks.
    pub chunks: u64,
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Free bytes for more chunks.
    pub free_bytes: u64,
    /// Number of damaged copies, which are not counted elsewhere.
    pub damaged: u64,
    /// Bytes of the damaged copies.
    pub damaged_bytes: u64,
    /// Whether all files that the node leads can be used.
    pub is_settled: bool,
}
