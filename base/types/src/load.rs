//! Load of an executor. Its node reports the load to the dispatcher, and clients show it.

use serde::{Deserialize, Serialize};

/// Load of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorLoad {
    /// Number of tasks that run.
    pub computing: u32,
    /// Number of data-intensive tasks that wait for inputs.
    pub staging: u32,
    /// Number of suspended tasks.
    pub suspended: u32,
    /// Processors of data-intensive tasks that wait for inputs, thousandths. Other tasks may use
    /// them meanwhile.
    pub lent_milli: u64,
    /// On this executor, a task that reads fewer bytes than this is not data-intensive.
    pub light_bytes: u64,
}
