//! The end of a task, as the journal records it.

use eyas_types::TaskResult;
use serde::{Deserialize, Serialize};

/// One task's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// When it ended.
    pub at_us: u64,
    /// When it could first run.
    pub ready_us: u64,
    /// Bytes of captured output in the result.
    pub output_bytes: u64,
    /// Its result.
    pub result: TaskResult,
}
