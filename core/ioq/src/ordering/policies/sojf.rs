//! Shortest outstanding job first, for files that are striped over servers (io-coordination §5.3).
//!
//! A call ends when its last part ends, so its parts should be granted at about the same time on
//! all servers. The servers need no messages for that: each orders parts by the size of their whole
//! call, which is the same number everywhere. Waiting reduces that number as under WSJF, so that
//! large calls do not starve.
//!
//! Example, the paper's figure 5 with stripes of 5 on two servers: call R1 has 15 bytes, call R2
//! has 10. On each server the part of R2 goes first. R2 ends at 5 instead of 10; R1 ends at 15 in
//! both cases.

use serde::{Deserialize, Serialize};

use super::aging::AgingOrder;

/// Parameters of shortest outstanding job first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sojf {
    /// A run that has waited this long goes before all runs that have not.
    pub patience_us: u64,
}

impl Sojf {
    /// Default parameters.
    pub const DEFAULT: Sojf = Sojf { patience_us: 500_000 };

    pub(super) fn order(self) -> AgingOrder {
        AgingOrder::new(|run| run.demand, self.patience_us, true, 0)
    }
}
