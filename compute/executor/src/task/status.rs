//! The statuses of tasks that have ended.

use eyas_types::Status;
use eyas_types::outcome::{Failure, FailureKind};

use crate::process::ProcessEnd;

/// The status of a task that eyas itself could not run to its end.
pub(crate) fn failed(kind: FailureKind, reason: impl Into<String>) -> Status {
    Status::Failed(Failure { kind, reason: reason.into() })
}

pub(super) fn status_of(end: ProcessEnd) -> Status {
    match end {
        ProcessEnd::Exited(0) => Status::Succeeded,
        ProcessEnd::Exited(code) => Status::Exited(code),
        ProcessEnd::Signalled(signal) => Status::Signalled(signal),
        ProcessEnd::TimedOut => Status::TimedOut,
        ProcessEnd::Cancelled => Status::Cancelled,
        ProcessEnd::OverMemory(excess) => failed(FailureKind::Memory, excess.reason()),
    }
}
