//! What became of the requests to a server, for people.

use alloc::collections::BTreeMap;

use eyas_types::Extent;
use serde::{Deserialize, Serialize};

use crate::event::ClassId;
use crate::run::Stream;

/// What became of the requests to a server, from the beginning on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Requests that wait now, beside those of the run that is being granted.
    pub queued: u64,
    /// Grants that are out now.
    pub outstanding: u64,
    /// Large grants at a time.
    pub concurrency: u64,
    /// Small grants at a time.
    pub small_concurrency: u64,
    /// What large grants are predicted to get, bytes a second.
    pub bandwidth_bytes_per_s: f64,
    /// Requests that came.
    pub requests: u64,
    /// Those of them that were granted, in so many grants, of so many runs.
    pub granted: u64,
    /// Turns of one client each.
    pub grants: u64,
    /// What was granted together.
    pub runs: u64,
    /// Bytes that were granted.
    pub granted_bytes: u64,
    /// Of the longest run.
    pub longest_run_bytes: u64,
    /// Requests that were let go out of order, since too many waited.
    pub uncoordinated: u64,
    /// Grants that were not completed in time.
    pub revoked: u64,
    /// How often an idle server was held for what would continue a chain.
    pub holds: u64,
    /// In the order in which requests came.
    pub arrived: Sequentiality,
    /// In the order in which they were granted.
    pub ordered: Sequentiality,
    /// How long requests waited, by class.
    pub waits: BTreeMap<ClassId, Waits>,
}

/// How much of what is done begins where what was done before it has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequentiality {
    /// All bytes.
    pub bytes: u64,
    /// Bytes of requests that began where the one before ended, in the same file.
    pub contiguous_bytes: u64,
    last: Option<(Stream, u64)>,
}

impl Sequentiality {
    pub(crate) fn add(&mut self, stream: Stream, extent: Extent) {
        self.bytes += extent.size_bytes;
        if self.last == Some((stream, extent.offset)) {
            self.contiguous_bytes += extent.size_bytes;
        }
        self.last = Some((stream, extent.end()));
    }

    /// The contiguous bytes' share of all, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.contiguous_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// How long requests waited until they were granted, and how much that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All of their waits, microseconds.
    pub sum_us: u64,
    /// The longest, microseconds.
    pub max_us: u64,
}

impl Waits {
    pub(crate) fn add(&mut self, wait_us: u64, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.sum_us += wait_us;
        self.max_us = self.max_us.max(wait_us);
    }
}
