//! Requests that wait, and what of a chain can be granted at once.

use eyas_types::{Extent, Operation, StorageFileId};

use crate::event::{Call, ClientId, RequestId};

/// A request of more bytes is ordered as if it had so many, so that sums of bytes times microseconds are never too large.
pub(crate) const MAX_WEIGHT_BYTES: u64 = 1 << 48;

/// Where a request stands: in the order of places, requests of one file and operation follow each other by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub stream: Stream,
    pub offset: u64,
    pub request: RequestId,
}

/// A file and what is done with it: no run has requests of two.
pub(crate) type Stream = (StorageFileId, Operation);

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub client: ClientId,
    pub extent: Extent,
    pub call: Option<Call>,
    pub arrived_us: u64,
    /// How many runs its policy had chosen when it came.
    pub round: u64,
}

impl Waiting {
    /// What orders it: the paper's service time, but for the bandwidth, which is the same for all.
    pub fn weight(&self) -> u64 {
        self.extent.size_bytes.clamp(1, MAX_WEIGHT_BYTES)
    }
}

/// By which of equals the first is found: the oldest, then the one with the smallest offset.
pub(crate) type Seniority = (u64 /* arrived_us */, u64 /* offset */, RequestId);

/// What of a chain can be granted at once, from its head on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub head: Place,
    pub last: Place,
    pub requests: usize,
    /// Sum of the requests' weights.
    pub bytes: u64,
    /// Sum of each weight times when its request came.
    pub bytes_us: u128,
    /// The same of the calls that requests are of, each counted once.
    pub demand_bytes: u64,
    pub demand_bytes_us: u128,
    /// Of its oldest request.
    pub oldest_us: u64,
    pub oldest_round: u64,
    /// The call, and whose, that the last request is of.
    call: Option<(ClientId, u64)>,
}

impl Run {
    pub fn new(head: Place, waiting: &Waiting) -> Self {
        let mut run = Run {
            head,
            last: head,
            requests: 0,
            bytes: 0,
            bytes_us: 0,
            demand_bytes: 0,
            demand_bytes_us: 0,
            oldest_us: u64::MAX,
            oldest_round: u64::MAX,
            call: None,
        };
        run.push(head, waiting);
        run
    }

    pub fn push(&mut self, place: Place, waiting: &Waiting) {
        let arrived_us = u128::from(waiting.arrived_us);
        self.last = place;
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(waiting.weight());
        self.bytes_us += u128::from(waiting.weight()) * arrived_us;
        let call = waiting.call.map(|call| (waiting.client, call.number));
        if call.is_none() || call != self.call {
            let demand = waiting.call.map_or(waiting.weight(), |call| call.size_bytes.clamp(1, MAX_WEIGHT_BYTES));
            self.demand_bytes = self.demand_bytes.saturating_add(demand);
            self.demand_bytes_us += u128::from(demand) * arrived_us;
            self.call = call;
        }
        self.oldest_us = self.oldest_us.min(waiting.arrived_us);
        self.oldest_round = self.oldest_round.min(waiting.round);
    }

    pub fn seniority(&self) -> Seniority {
        (self.oldest_us, self.head.offset, self.head.request)
    }
}
