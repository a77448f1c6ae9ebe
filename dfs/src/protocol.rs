//! What clients and nodes of the file system say to each other, and nodes among themselves, in frames of `eyas_session`.

use std::net::SocketAddr;

use eyas_blocks::Event as BlockEvent;
use eyas_ring::{FileAnswer, FileOperation, Refusal, RingMessage, View};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileSystemId, NodeId};
use serde::{Deserialize, Serialize};

use crate::runs::{BlockRunId, RunReply, RunRequest};

/// Where a node is, and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub node: NodeId,
    /// Where it takes sessions.
    pub address: SocketAddr,
    /// Where it gives and takes chunks.
    pub transfer: SocketAddr,
    /// Bytes it has for chunks.
    pub free_bytes: u64,
}

/// The file system as a node sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DfsMembership {
    /// By which files have leaders; none before the node has joined.
    pub view: Option<View>,
    /// Whether all that is led in it has a quorum in it: it can do without those before.
    pub is_settled: bool,
    /// Those who are alive.
    pub alive: Vec<Member>,
}

impl DfsMembership {
    /// Members that are not there.
    pub fn missing(&self) -> Vec<NodeId> {
        let members = self.view.iter().flat_map(|view| &view.members);
        let is_there = |node: &NodeId| self.alive.iter().any(|member| member.node == *node);
        members.copied().filter(|node| !is_there(node)).collect()
    }

    /// Whether a node is counted on.
    pub fn has_joined(&self, node: NodeId) -> bool {
        self.view.as_ref().is_some_and(|view| view.members.contains(&node))
    }
}

/// A client's request. Answers name it, and come in any order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeRequest {
    pub number: u64,
    pub what: RequestBody,
}

/// What a client wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RequestBody {
    /// Who there is. Answered by [`Reply::Membership`].
    Membership,
    /// Something of a file that the node leads. Answered by [`Reply::Operated`].
    Operate(FileOperation),
    /// A chunk to have: from a peer that has it or is about to, or else the client brings it. Answered by
    /// [`Reply::Ready`] when there is room for it and it may be brought, and by [`Reply::Stored`] when it is there.
    Store { object: ObjectId, size_bytes: u64, checksum: u64, from: Option<SocketAddr> },
    /// Replicas of a file that the node leads were found missing or damaged. Not answered.
    Bad { name: FileName, objects: Vec<ObjectId>, node: NodeId },
    /// What the node has of these: answered by [`Reply::Has`], after reading them if `thoroughly`.
    Check { objects: Vec<ObjectId>, thoroughly: bool },
    /// What the node has in all. Answered by [`Reply::Usage`].
    Usage,
    /// Something of a run that the node leads. Answered by [`Reply::Run`].
    Run { run: BlockRunId, request: RunRequest },
    /// Something has happened to a run's worker. Not answered: what comes of it, who attends the run is told.
    Tell { run: BlockRunId, event: BlockEvent },
}

/// A node's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeResponse {
    pub number: u64,
    pub reply: ResponseBody,
}

/// See [`What`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ResponseBody {
    /// And who says so.
    Membership(NodeId, DfsMembership),
    Operated(Result<FileAnswer, Refusal>),
    Ready,
    /// Or why not, for a person.
    Stored(Result<(), String>),
    /// One for each that was asked for.
    Has(Vec<ChunkPresence>),
    Usage(Usage),
    Run(RunReply),
    /// The key or token of the session is not good for that: why, for a person.
    Refused(String),
}

/// What a node has of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChunkPresence {
    /// All of it.
    Whole,
    /// A damaged copy, which is kept aside.
    Damaged,
    /// Nothing.
    Nothing,
}

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Chunks.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes it has for more.
    pub free_bytes: u64,
    /// Damaged copies that it has kept aside, which count in nothing else.
    pub damaged: u64,
    /// Their bytes.
    pub damaged_bytes: u64,
    /// Whether all files that it leads can be used.
    pub is_settled: bool,
}

/// Between nodes. Any of it may be lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToPeer {
    /// Who speaks, and of which file system: the first on each connection.
    From(NodeId, FileSystemId),
    /// The ring's own.
    Ring(RingMessage),
    /// Chunks of a file that the speaker leads, which the listener is to have.
    Audit { name: FileName, objects: Vec<ObjectId> },
    /// The speaker has asked for the chunks of all files that it leads.
    Audited,
    /// Those of an audit that the speaker does not have.
    Missing { name: FileName, objects: Vec<ObjectId> },
    /// Chunks of a file that the speaker leads, of which it knows no good replica.
    Search { name: FileName, objects: Vec<ObjectId> },
    /// Those of a search that the speaker has, undamaged.
    Found { name: FileName, objects: Vec<ObjectId> },
}
