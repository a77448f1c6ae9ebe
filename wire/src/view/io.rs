//! What is shown of coordinated I/O.

use serde::{Deserialize, Serialize};

/// How requests to shared storage stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoView {
    /// Nodes whose programs ask.
    pub agents: u64,
    /// Storages that were asked for.
    pub storages: Vec<StorageView>,
}

/// One storage, since the first request to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageView {
    /// What nodes call it: the source of its mount.
    pub name: String,
    /// Requests that wait now.
    pub queued: u64,
    /// Grants that are out now.
    pub outstanding: u64,
    /// Grants at a time, of those that are large.
    pub concurrency: u64,
    /// Of those that are small.
    pub small_concurrency: u64,
    /// What it is thought to do, bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Agents that leave their programs alone with it: order gains them nothing there.
    pub left_alone: u64,
    /// Requests that came.
    pub requests: u64,
    /// Turns that were granted.
    pub grants: u64,
    /// Bytes that were granted.
    pub granted_bytes: u64,
    /// Contiguous requests that were granted as one, on the average, bytes.
    pub mean_run_bytes: f64,
    /// The most of them, bytes.
    pub longest_run_bytes: u64,
    /// Requests that were let go out of order, since too many waited.
    pub uncoordinated: u64,
    /// Turns that were taken away, since they took too long.
    pub revoked: u64,
    /// The share of bytes that went on where the request before had ended, as requests came: 0 to 1.
    pub sequential_as_asked: f64,
    /// The same, as they were granted.
    pub sequential_as_granted: f64,
    /// How long requests waited, by class.
    pub waits: Vec<WaitView>,
}

/// How long requests of a class waited for their turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    /// The class's name; `default` for those that have none that is treated apart.
    pub class: String,
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// On the average, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    pub max_us: u64,
}
