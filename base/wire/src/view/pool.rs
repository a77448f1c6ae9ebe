//! Views of pools of nodes.

use serde::{Deserialize, Serialize};

/// A pool of nodes that are requested from a batch system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolView {
    /// Name of the pool.
    pub pool: String,
    /// Name of the batch system.
    pub system: String,
    /// `active`, `paused`, `capped` or `closing`.
    pub state: String,
    /// Why the pool requests no nodes.
    pub why: Option<String>,
    /// Nodes that have joined and are given tasks.
    pub nodes: u32,
    /// Nodes that have joined, are given no more tasks, and leave soon.
    pub draining: u32,
    /// Nodes that were requested and have not joined.
    pub requested: u32,
    /// Why wanted nodes have not joined: the oldest request that waits, and what the batch system
    /// says of it; or a withdrawn request that has their places until it has ended.
    pub waits: Option<String>,
    /// Nodes that the work is worth.
    pub wanted: u32,
    /// Tasks that fit the nodes of the pool and wait, in the queue or behind the slots of a node.
    pub waiting: u64,
    /// Number of nodes that the pool has even without tasks.
    pub min_nodes: u32,
    /// Most nodes of the pool.
    pub max_nodes: u32,
    /// Nodes that were ever requested.
    pub nodes_requested: u64,
    /// Nodes that ever joined.
    pub nodes_granted: u64,
    /// Nodes that ever were given back.
    pub nodes_given_back: u64,
    /// Requests that ever failed.
    pub failures: u64,
    /// Node time used, seconds.
    pub node_seconds: f64,
    /// Cost of a node for an hour.
    pub price: f64,
    /// Cost of the node time used.
    pub cost: f64,
    /// Hosts on which no node is requested for a while, because requests have failed there.
    pub excluded: Vec<ExcludedHostView>,
    /// Folder of the pool: scripts and logs of its requests.
    pub folder: String,
    /// The nodes that have joined; empty in a list of all pools.
    pub node_list: Vec<PoolNodeView>,
    /// Nodes that left last, and why, the latest last; empty in a list of all pools.
    pub departed: Vec<DepartedNodeView>,
    /// Requests that have not ended, and some that ended last; empty in a list of all pools.
    pub requests: Vec<NodeRequestView>,
    /// What happened last, newest last: why nodes were requested, left or failed; empty in a list
    /// of all pools.
    pub events: Vec<PoolEventView>,
}

/// A request for nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRequestView {
    /// Number of the request in its pool.
    pub request: u64,
    /// The batch system's id of the request, once it has one.
    pub job: Option<String>,
    /// Number of nodes.
    pub nodes: u32,
    /// Nodes of the request that ever joined.
    pub joined: u32,
    /// `submitting`, `pending`, `running` or `ended`.
    pub state: String,
    /// What the batch system says of it, such as the reason for which it is pending, or how it
    /// ended.
    pub says: Option<String>,
    /// The host on which it runs or ran, if the batch system says it and it is one host.
    pub host: Option<String>,
    /// When the request was made, milliseconds since 1970.
    pub requested_unix_ms: u64,
    /// Whether it ended without a node that joined.
    pub has_failed: bool,
}

/// A node of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolNodeView {
    /// Name of its executor.
    pub node: String,
    /// Name of its host.
    pub host: String,
    /// Number of the request for which it was granted.
    pub request: u64,
    /// `busy`, `idle`, `draining` (it is given no more tasks) or `leaving` (it was told to stop).
    pub state: String,
    /// Why it stays, or why it leaves.
    pub why: String,
    /// When its time limit ends, milliseconds since 1970.
    pub until_unix_ms: u64,
}

/// A node that has left a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DepartedNodeView {
    /// Name of its executor.
    pub node: String,
    /// Number of the request for which it was granted.
    pub request: u64,
    /// When it left, milliseconds since 1970.
    pub unix_ms: u64,
    /// Why it left.
    pub why: String,
}

/// A host on which requests of a pool have failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExcludedHostView {
    /// Name of the host.
    pub host: String,
    /// Why the last request failed there.
    pub why: String,
    /// Time until which no node is requested there, milliseconds since 1970.
    pub until_unix_ms: u64,
}

/// Something that happened in a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolEventView {
    /// When it happened, milliseconds since 1970.
    pub unix_ms: u64,
    /// What happened.
    pub text: String,
}
