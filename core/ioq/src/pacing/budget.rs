//! Caps on bytes and requests a second: a leaky bucket for each (the generic cell rate algorithm).
//!
//! Each bucket is one time: when everything granted so far would have been sent at exactly the
//! permitted rate. A grant of 1 MB under 100 MB/s moves it 10,000 µs ahead. The next run may be
//! granted as soon as that time has come.

use crate::config::Budget;
use crate::rate::duration_us;

/// Unused rate that may be granted at once after a pause: 10 ms, by which timers may be late. For
/// example 1 MB under 100 MB/s.
const BURST_US: u64 = 10_000;

/// Use of a server's [`Budget`] so far.
#[derive(Debug, Default)]
pub(crate) struct BudgetUse {
    bytes_even_us: u64,
    requests_even_us: u64,
}

impl BudgetUse {
    /// Time from which a run may be granted.
    pub fn free_us(&self) -> u64 {
        self.bytes_even_us.max(self.requests_even_us)
    }

    /// Counts what is granted now.
    pub fn spend(&mut self, budget: &Budget, now_us: u64, bytes: u64, requests: u64) {
        let spend = |even_us: &mut u64, amount: u64, per_s: Option<u64>| {
            if let Some(per_s) = per_s {
                *even_us = (*even_us)
                    .max(now_us.saturating_sub(BURST_US))
                    .saturating_add(duration_us(amount, per_s));
            }
        };
        spend(&mut self.bytes_even_us, bytes, budget.bytes_per_s);
        spend(&mut self.requests_even_us, requests, budget.requests_per_s);
    }
}
