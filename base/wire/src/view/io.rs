//! Views of coordinated I/O.

use serde::{Deserialize, Serialize};

/// The state of the I/O coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoView {
    /// Number of connected agents.
    pub agents: u64,
    /// Storages with requests.
    pub storages: Vec<StorageView>,
}

/// One storage, since the first request to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageView {
    /// The storage's name: the source of its mount.
    pub name: String,
    /// How its requests are ordered; nothing if the coordinator is of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderView>,
    /// Waiting requests.
    pub queued: u64,
    /// Outstanding grants.
    pub outstanding: u64,
    /// Concurrent large grants.
    pub concurrency: u64,
    /// Concurrent small grants.
    pub small_concurrency: u64,
    /// Estimated bandwidth, bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Agents whose programs are not coordinated on this storage, because order gains nothing
    /// there.
    pub left_alone: u64,
    /// Requests received.
    pub requests: u64,
    /// Grants given.
    pub grants: u64,
    /// Bytes granted.
    pub granted_bytes: u64,
    /// Average size of a run of contiguous requests that were granted together, bytes.
    pub mean_run_bytes: f64,
    /// Size of the largest such run, bytes.
    pub longest_run_bytes: u64,
    /// Requests that were let through uncoordinated, because too many waited.
    pub uncoordinated: u64,
    /// Grants that were revoked, because they took too long.
    pub revoked: u64,
    /// Fraction of bytes that continued where the previous request ended, in the order of arrival:
    /// 0 to 1.
    pub sequential_as_asked: f64,
    /// The same fraction in the order of grants.
    pub sequential_as_granted: f64,
    /// Waiting times by class.
    pub waits: Vec<WaitView>,
}

/// How the requests to a storage are ordered: the policy and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderView {
    /// The policy's name.
    pub policy: String,
    /// Waiting time after which a run goes before all that have waited less, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_us: Option<u64>,
    /// A run at a smaller offset of the same file goes first if it is larger by at most this,
    /// percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub junction_percent: Option<u32>,
    /// Quantum of a request in its first round, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum_bytes: Option<u64>,
    /// Growth of the quantum with each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<u32>,
    /// Largest run, bytes.
    pub max_run_bytes: u64,
    /// Time for which an idle storage is held for a request that would continue a file,
    /// microseconds.
    pub window_us: u64,
    /// Time between the predicted end of a grant and the next grant, microseconds; nothing if
    /// grants are not predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predict_us: Option<u64>,
}

/// Waiting times of a class's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    /// The class's name; `default` for requests without a class of their own.
    pub class: String,
    /// Requests.
    pub requests: u64,
    /// Size of these requests together.
    pub bytes: u64,
    /// Average waiting time, microseconds.
    pub mean_us: f64,
    /// Longest waiting time, microseconds.
    pub max_us: u64,
}
