//! Weighted shortest job first: a run counts as smaller the longer its requests have waited
//! (io-coordination §5.1).
//!
//! The paper's formulas (2) and (3) give the virtual size of a run of n requests:
//!
//! ```text
//! Tv = sum over its requests of  Tr * (M - E) / M
//! ```
//!
//! where Tr is the execution time of a request, E its waiting time, and M a constant. The run with
//! the smallest Tv goes first. Bytes stand for Tr here, because all requests of a server have the
//! same bandwidth. The paper uses M for two numbers: a time, here `patience_us`, and the largest
//! run, here `max_run_bytes` of the configuration.
//!
//! Example, the paper's figure 3 with M = 30 and requests of 5: A1 has four requests that have
//! waited for 15 and one that has just arrived, so Tv = 4 * 5 * (30 - 15) / 30 + 5 * (30 - 0) / 30
//! = 15. A3 has four new requests, so Tv =
//! 20. A1 goes first although it has more bytes.
//!
//! Below 0 the paper's formula reverses: of two runs that have waited for longer than M the
//! *larger* one goes first, and a sequence of large runs can delay a small one forever. So Tv ends
//! at 0 here by default, and of the runs at 0 the oldest goes first. `aging.rs` finds the first
//! run.

use serde::{Deserialize, Serialize};

use super::aging::AgingOrder;

/// Parameters of weighted shortest job first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wsjf {
    /// The paper's M as a time: a run that has waited this long goes before all runs that have
    /// not.
    pub patience_us: u64,
    /// The paper's junction coefficient (§6.3.1): a run at a smaller offset of the same file goes
    /// first if its Tv is larger by at most this many percent.
    pub junction_percent: u32,
    /// Whether Tv ends at 0.
    pub is_clamped: bool,
}

impl Wsjf {
    /// Default parameters.
    pub const DEFAULT: Wsjf = Wsjf { patience_us: 500_000, junction_percent: 10, is_clamped: true };
    /// The paper's formula without an end at 0, for comparison.
    pub const PAPER: Wsjf = Wsjf { is_clamped: false, ..Wsjf::DEFAULT };

    pub(super) fn order(self) -> AgingOrder {
        AgingOrder::new(|run| run.size, self.patience_us, self.is_clamped, self.junction_percent)
    }
}
