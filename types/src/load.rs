//! How an executor stands: decided on its node, told to the dispatcher, shown to people.

use serde::{Deserialize, Serialize};

/// Counts of the tasks in an executor's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorLoad {
    /// Tasks that run.
    pub computing: u32,
    /// Data-intensive tasks whose inputs are not all there.
    pub staging: u32,
    /// Tasks that are suspended.
    pub suspended: u32,
    /// Processors of tasks that are being staged, thousandths, which others may have meanwhile.
    pub lent_milli: u64,
    /// A task that reads fewer bytes is not data-intensive there.
    pub light_bytes: u64,
}
