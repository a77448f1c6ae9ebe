//! The interface of the decider: the events that it is told, and the effects that it asks for.
//!
//! All counts of chunks refer to a worker's *block*: they count from its first chunk, in the order
//! in which chunks were granted.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;
use serde::{Deserialize, Serialize};

/// One run of a program over one block. A number is never used for another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub u64);

/// A lease of some chunks to a worker. Ids are fencing tokens: later leases always have higher ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// The progress of a worker in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseProgress {
    /// Number of chunks in the block, as far as the worker knows.
    pub chunks: u32,
    /// Number of chunks that the program has read completely.
    pub done: u32,
    /// Bytes of the next chunk that the program has read.
    pub bytes: u64,
}

/// A fact that the decider is told. Each may be delayed, repeated or lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A worker asks for chunks: it is new, or will soon have read all chunks of its block.
    RequestLease {
        /// The worker.
        worker: WorkerId,
        /// The node it runs on.
        node: NodeId,
        /// Its last lease, if any.
        lease: Option<LeaseId>,
        /// Its progress.
        progress: LeaseProgress,
    },
    /// A worker is alive, and may need more chunks confirmed.
    Renew {
        /// The worker.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// Its progress.
        progress: LeaseProgress,
    },
    /// A worker's program has succeeded, and its output is stored at a path where it appears only
    /// if it is committed.
    Commit {
        /// The worker.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// Number of chunks that it has read. The others of its block are free again.
        done: u32,
    },
    /// A worker has failed, or leaves without committing.
    Gone {
        /// The worker.
        worker: WorkerId,
    },
    /// The load of a node, as the node itself averages it; both values are fractions from 0 to 1.
    /// Only the leader's own process tells this event.
    Measured {
        /// The node.
        node: NodeId,
        /// Fraction of time in which its disk was busy.
        disk: f64,
        /// Fraction of its processors that were busy.
        load: f64,
    },
    /// The time of [`Blocks::next_timeout`](crate::Blocks::next_timeout) has come.
    Tick,
}

/// An action that the shell must carry out, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Append this record to the saved ones. It must be durable before a later
    /// [`Effect::Committed`] or [`Effect::Complete`] is carried out, but need not be before other
    /// effects.
    Save(Record),
    /// The worker's block now consists of the first `kept` of its chunks, all confirmed, and these
    /// new chunks.
    Granted {
        /// The worker.
        worker: WorkerId,
        /// The lease of `chunks`.
        lease: LeaseId,
        /// Number of chunks from earlier leases.
        kept: u32,
        /// The new chunks, by their index in the job.
        chunks: Vec<u32>,
        /// Number of chunks of the block that may be begun without asking.
        confirmed: u32,
    },
    /// The worker's lease continues.
    Renewed {
        /// The worker.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// Number of chunks in its block; chunks beyond were taken by others.
        chunks: u32,
        /// Number of chunks that may be begun without asking.
        confirmed: u32,
    },
    /// There are no more chunks for the worker. It has to read its block, all of it confirmed, and
    /// commit.
    NoMore {
        /// The worker.
        worker: WorkerId,
        /// Number of chunks in its block. If it is 0, the worker just leaves.
        chunks: u32,
    },
    /// The worker's output counts.
    Committed {
        /// The worker.
        worker: WorkerId,
        /// The lease of the commit.
        lease: LeaseId,
    },
    /// The worker's output does not count: kill the worker and delete its output.
    Discard {
        /// The worker.
        worker: WorkerId,
    },
    /// All chunks are committed.
    Complete,
}

impl Effect {
    /// The worker that must be told, if any.
    pub fn worker(&self) -> Option<WorkerId> {
        match self {
            Effect::Save(_) | Effect::Complete => None,
            Effect::Granted { worker, .. }
            | Effect::Renewed { worker, .. }
            | Effect::NoMore { worker, .. }
            | Effect::Committed { worker, .. }
            | Effect::Discard { worker } => Some(*worker),
        }
    }
}

/// A change that must survive a restart. Records are small and appended in order. If the last ones
/// are lost, some work is repeated, but no chunk counts twice: workers whose leases were lost
/// cannot commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Chunks were added to a worker's block.
    Granted {
        /// The worker.
        worker: WorkerId,
        /// The lease.
        lease: LeaseId,
        /// The chunks, by their index in the job.
        chunks: Vec<u32>,
        /// The worker whose block was copied, if this is a copy.
        copy_of: Option<WorkerId>,
    },
    /// A worker's block was reduced to its first chunks.
    Shortened {
        /// The worker.
        worker: WorkerId,
        /// Number of chunks that remain.
        chunks: u32,
    },
    /// A worker has committed its block, up to the chunk that it has read.
    Committed {
        /// The worker.
        worker: WorkerId,
        /// The lease of the commit.
        lease: LeaseId,
        /// Number of committed chunks.
        done: u32,
    },
    /// A worker has lost its block.
    Dropped {
        /// The worker.
        worker: WorkerId,
    },
}
