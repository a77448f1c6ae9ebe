//! Estimates of the time until a task would end on an executor. Placement by `cost` compares them,
//! and `eyas explain` shows them.

use serde::{Deserialize, Serialize};

/// Estimated times of a task on one executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Time until a slot is free for the task, microseconds.
    pub wait_us: u64,
    /// Time to fetch the inputs that the executor does not hold, microseconds.
    pub transfer_us: u64,
    /// Time to run the task, microseconds; 0 until the first task of its job has ended.
    pub compute_us: u64,
}

impl Estimate {
    /// Time until the task would end, microseconds. Waiting and fetching happen at the same time.
    pub fn finish_us(&self) -> u64 {
        self.wait_us.max(self.transfer_us).saturating_add(self.compute_us)
    }
}
