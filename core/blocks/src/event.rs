//! What a job's blocks are told, and what they want done: the whole of their traffic with the world.
//!
//! All counts of chunks are of a worker's *block*, from its first chunk on, in the order in which
//! it was given them.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;
use serde::{Deserialize, Serialize};

/// One run of a program over one block. Its number is never used for another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub u64);

/// Some chunks lent to a worker. A fence: later leases have greater numbers, whatever fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// How far a worker has come in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseProgress {
    /// Chunks that its block has, as far as it knows.
    pub chunks: u32,
    /// Chunks that its program has read to their end.
    pub done: u32,
    /// Bytes of the next that it has read.
    pub bytes: u64,
}

/// What has happened. Any of it may come late, twice, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A worker wants chunks: it is new, or all of its block is confirmed and it will soon have read that.
    RequestLease {
        /// Which.
        worker: WorkerId,
        /// Where it runs.
        node: NodeId,
        /// Its last lease, if it has any.
        lease: Option<LeaseId>,
        /// How far it is.
        progress: LeaseProgress,
    },
    /// A worker is alive, and may need more of its block confirmed.
    Renew {
        /// Which.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// How far it is.
        progress: LeaseProgress,
    },
    /// A worker's program has ended well, and what it wrote is stored where a loser's is never looked for.
    Commit {
        /// Which.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// How many chunks it has read. The others of its block go back.
        done: u32,
    },
    /// A worker has failed, or goes without committing.
    Gone {
        /// Which.
        worker: WorkerId,
    },
    /// How busy a node is, each a share of 1.
    Measured {
        /// Which.
        node: NodeId,
        /// Time in which its disk was in use.
        disk: f64,
        /// Processors that were.
        load: f64,
    },
    /// The time that was asked for is there.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Append this to what is saved. It need not be on disk before the effects after it, [`Effect::Committed`] and
    /// [`Effect::Complete`] excepted.
    Save(Record),
    /// The worker's block now has the first `kept` of the chunks that it had, all confirmed, and these.
    Granted {
        /// Which worker.
        worker: WorkerId,
        /// The lease of `chunks`.
        lease: LeaseId,
        /// Chunks of the leases before.
        kept: u32,
        /// Which chunks of the job.
        chunks: Vec<u32>,
        /// So many of the block may be begun without asking.
        confirmed: u32,
    },
    /// The worker's lease goes on.
    Renewed {
        /// Which worker.
        worker: WorkerId,
        /// Its last lease.
        lease: LeaseId,
        /// So many chunks its block has; others took what it had beyond.
        chunks: u32,
        /// So many of them may be begun without asking.
        confirmed: u32,
    },
    /// There is no more for the worker: it is to read what it has, all of it confirmed, to end, and to commit.
    NoMore {
        /// Which worker.
        worker: WorkerId,
        /// So many chunks its block has. None: it just leaves.
        chunks: u32,
    },
    /// What the worker has done counts.
    Committed {
        /// Which worker.
        worker: WorkerId,
        /// The lease it committed with.
        lease: LeaseId,
    },
    /// What the worker has done does not count: it is to be killed, and its output thrown away.
    Discard {
        /// Which worker.
        worker: WorkerId,
    },
    /// All chunks are committed.
    Complete,
}

impl Effect {
    /// Which worker is to be told of it, if one is.
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

/// What must be known after a restart. They are small, and appended in order; a lost end costs work that runs again,
/// never a chunk that counts twice, because whoever lost their lease with it cannot commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// These were added to a worker's block.
    Granted {
        /// Which worker.
        worker: WorkerId,
        /// The lease.
        lease: LeaseId,
        /// Which chunks of the job.
        chunks: Vec<u32>,
        /// Whose block this is once more.
        copy_of: Option<WorkerId>,
    },
    /// Of a worker's block only its first chunks are left to it.
    Shortened {
        /// Which worker.
        worker: WorkerId,
        /// How many.
        chunks: u32,
    },
    /// A worker has committed its block, as far as it got.
    Committed {
        /// Which worker.
        worker: WorkerId,
        /// The lease it committed with.
        lease: LeaseId,
        /// How many of its chunks.
        done: u32,
    },
    /// A worker has lost its block.
    Dropped {
        /// Which worker.
        worker: WorkerId,
    },
}
