//! How much a server is given to do at once and in a second.

use serde::{Deserialize, Serialize};

/// What is granted of a second at once, at most, after a pause: so long as timers are late.
const BURST_US: u64 = 10_000;

/// How much a server is given to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Grants at a time. 1 for what has one arm, many for an object store, whose latency parallelises. 0 is taken for 1.
    /// None: as many as show to be good.
    pub concurrency: Option<u32>,
    /// Bytes in a second, if that is limited.
    pub bytes_per_s: Option<u64>,
    /// Requests in a second, if that is limited.
    pub requests_per_s: Option<u64>,
}

/// What of it is used: when it would be even, if nothing more were granted.
#[derive(Debug, Default)]
pub(crate) struct Used {
    bytes_us: u64,
    requests_us: u64,
}

impl Used {
    /// From when on there is something left.
    pub fn free_us(&self) -> u64 {
        self.bytes_us.max(self.requests_us)
    }

    /// So much is granted.
    pub fn spend(&mut self, budget: &Budget, now_us: u64, bytes: u64, requests: u64) {
        let spend = |even_us: &mut u64, amount: u64, per_s: Option<u64>| {
            if let Some(per_s) = per_s {
                *even_us = (*even_us).max(now_us.saturating_sub(BURST_US)).saturating_add(duration_us(amount, per_s));
            }
        };
        spend(&mut self.bytes_us, bytes, budget.bytes_per_s);
        spend(&mut self.requests_us, requests, budget.requests_per_s);
    }
}

/// How long so much takes at so much in a second, microseconds.
pub(crate) fn duration_us(amount: u64, per_s: u64) -> u64 {
    let us = u128::from(amount) * 1_000_000 / u128::from(per_s.max(1));
    u64::try_from(us).unwrap_or(u64::MAX)
}
