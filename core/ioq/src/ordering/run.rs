//! Requests that wait, and runs of contiguous ones.

use eyas_types::{Extent, Operation, StorageFileId};

use crate::event::{Call, ClientId, RequestId};

/// Largest number of bytes by which a request is ordered. It keeps sums of bytes times microseconds
/// within 128 bits. For example 1,024 requests of that size that arrived at 2^64 us sum up to
/// 2^122.
pub(crate) const MAX_WEIGHT_BYTES: u64 = 1 << 48;

/// Sort key of a waiting request: requests of one stream follow each other by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub stream: Stream,
    pub offset: u64,
    pub request: RequestId,
}

/// A file and the operation on it. A run never spans two streams.
pub(crate) type Stream = (StorageFileId, Operation);

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedRequest {
    pub client: ClientId,
    pub extent: Extent,
    pub call: Option<Call>,
    pub arrived_us: u64,
    /// Round of the policy when the request arrived (multilevel feedback only).
    pub round: u64,
}

impl QueuedRequest {
    /// Bytes by which the request is ordered. They stand for the paper's execution time, `size /
    /// bandwidth` (§4.1): the bandwidth of a server is the same for all of its requests.
    pub fn weight_bytes(&self) -> u64 {
        self.extent.size_bytes.clamp(1, MAX_WEIGHT_BYTES)
    }
}

/// Tie-break between equal runs: the oldest first, then the smallest offset.
pub(crate) type Seniority = (u64 /* arrived_us */, u64 /* offset */, RequestId);

/// Total size of some requests, and the sum of each size times its arrival time. These two numbers
/// are enough to know the virtual size of the requests at any later time (`policies/aging.rs`). For
/// example four requests of 5 bytes that arrived at 0 and one that arrived at 15 have 25 and 75.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgedBytes {
    pub bytes: u64,
    pub bytes_times_arrival_us: u128,
}

impl AgedBytes {
    fn add(&mut self, bytes: u64, arrived_us: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_times_arrival_us += u128::from(bytes) * u128::from(arrived_us);
    }
}

/// Requests from the head of a chain on that can be granted together: the paper's aggregated
/// request (§4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestRun {
    pub head: QueueKey,
    pub last: QueueKey,
    pub requests: usize,
    /// Size of the requests.
    pub size: AgedBytes,
    /// Size of the calls that the requests are parts of, on all servers. Each call counts once.
    pub demand: AgedBytes,
    /// Arrival of the oldest request.
    pub oldest_us: u64,
    pub oldest_round: u64,
    /// Client and number of the call that the last request is a part of.
    call: Option<(ClientId, u64)>,
}

impl RequestRun {
    pub fn new(head: QueueKey, queued: &QueuedRequest) -> Self {
        let mut run = RequestRun {
            head,
            last: head,
            requests: 0,
            size: AgedBytes::default(),
            demand: AgedBytes::default(),
            oldest_us: u64::MAX,
            oldest_round: u64::MAX,
            call: None,
        };
        run.push(head, queued);
        run
    }

    pub fn push(&mut self, key: QueueKey, queued: &QueuedRequest) {
        let weight_bytes = queued.weight_bytes();
        self.last = key;
        self.requests += 1;
        self.size.add(weight_bytes, queued.arrived_us);
        let call = queued.call.map(|call| (queued.client, call.number));
        if call.is_none() || call != self.call {
            let demand =
                queued.call.map_or(weight_bytes, |call| call.size_bytes.clamp(1, MAX_WEIGHT_BYTES));
            self.demand.add(demand, queued.arrived_us);
            self.call = call;
        }
        self.oldest_us = self.oldest_us.min(queued.arrived_us);
        self.oldest_round = self.oldest_round.min(queued.round);
    }

    pub fn seniority(&self) -> Seniority {
        (self.oldest_us, self.head.offset, self.head.request)
    }
}
