//! Statistics of a server, for people and metrics.

use alloc::collections::BTreeMap;

use eyas_types::Extent;
use serde::{Deserialize, Serialize};

use crate::event::ClassId;
use crate::ordering::run::Stream;

/// Statistics of a server since it was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// Waiting requests, without those of the run that is being granted.
    pub queued: u64,
    /// Outstanding grants.
    pub outstanding: u64,
    /// Permitted large grants at a time.
    pub concurrency: u64,
    /// Permitted small grants at a time.
    pub small_concurrency: u64,
    /// Predicted bandwidth of large grants.
    pub bandwidth_bytes_per_s: f64,
    /// Requests received.
    pub requests: u64,
    /// Requests granted.
    pub granted: u64,
    /// Grants: turns of one client each.
    pub grants: u64,
    /// Runs granted.
    pub runs: u64,
    /// Bytes granted.
    pub granted_bytes: u64,
    /// Bytes of the longest run.
    pub longest_run_bytes: u64,
    /// Requests that were let go unordered because too many waited.
    pub uncoordinated: u64,
    /// Grants that exceeded their lease.
    pub revoked: u64,
    /// Times that an idle server was held for a request that would continue a chain.
    pub holds: u64,
    /// How sequential the requests arrived.
    pub arrived: Sequentiality,
    /// How sequential the requests were granted.
    pub ordered: Sequentiality,
    /// Waiting times by class.
    pub waits: BTreeMap<ClassId, Waits>,
}

/// Contiguity of a sequence of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sequentiality {
    /// Bytes of all requests.
    pub bytes: u64,
    /// Bytes of requests that began where the previous request ended, in the same stream.
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

    /// Contiguous bytes divided by all bytes, from 0 to 1. For example 1/3 for 0..10, 10..20 and
    /// 50..60.
    pub fn contiguous_fraction(&self) -> f64 {
        self.contiguous_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// Waiting times of granted requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of the requests.
    pub bytes: u64,
    /// Sum of the waiting times.
    pub sum_us: u64,
    /// Longest waiting time.
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
