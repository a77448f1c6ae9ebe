//! How soon a task would be done where: what `cost` placement compares, and people are told.

use serde::{Deserialize, Serialize};

/// How soon a task would be done on an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Until a slot is free for it, microseconds.
    pub wait_us: u64,
    /// To bring the inputs that the executor lacks, microseconds.
    pub transfer_us: u64,
    /// To compute it, microseconds; 0 before a task of its job has ended.
    pub compute_us: u64,
}

impl Estimate {
    /// Until it is done, microseconds.
    pub fn finish_us(&self) -> u64 {
        self.wait_us.max(self.transfer_us).saturating_add(self.compute_us)
    }
}
