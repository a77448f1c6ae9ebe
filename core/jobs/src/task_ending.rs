//! How a task ends for good. Parts that find that a task ends return this;
//! [`Jobs::end`](crate::Jobs) carries it out.

use alloc::string::String;

use eyas_types::outcome::FailureKind;
use eyas_types::{Outcome, Status, TaskId};

/// The end of a task.
#[derive(Debug)]
pub(crate) struct TaskEnding {
    pub task: TaskId,
    /// How often it had been assigned before.
    pub attempt: u32,
    /// The name of the executor that had it; empty if none had.
    pub executor: String,
    pub outcome: Outcome,
}

impl TaskEnding {
    /// The end of a task that no executor has.
    pub fn unassigned(task: TaskId, outcome: Outcome) -> Self {
        TaskEnding { task, attempt: 0, executor: String::new(), outcome }
    }

    pub fn cancelled(task: TaskId) -> Self {
        TaskEnding::unassigned(task, Outcome::of(Status::Cancelled))
    }

    /// The task can never run.
    pub fn failed(task: TaskId, kind: FailureKind, reason: impl Into<String>) -> Self {
        TaskEnding::unassigned(task, Outcome::failed(kind, reason))
    }
}
