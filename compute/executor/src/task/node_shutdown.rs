//! Whether a task ended by its node's shutdown. A batch system that takes a node back signals the
//! executor and its tasks at the same time, and so does a kernel that has run out of memory. Such a
//! task did not fail: it runs again on another node, and no retry is used up.
//!
//! The task's end may be seen before the executor's own signal. So an end that may be a shutdown is
//! not reported at once: the executor waits up to [`SIGNAL_SPREAD`] for its own order to stop.

use std::time::{Duration, Instant};

use eyas_types::Status;
use eyas_types::outcome::{Failure, FailureKind};
use rustix::process::Signal;

/// Signals with one cause reach the processes of a node within this time of each other.
pub(crate) const SIGNAL_SPREAD: Duration = Duration::from_secs(1);

/// Signals by which batch systems, terminals and the kernel end all processes of a node or job.
const ENDING: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::KILL, Signal::TERM, Signal::XCPU];

/// A shell whose child was killed by signal N exits with this number plus N.
const SHELL_BASE: i32 = 128;

/// Whether this end of a task may be its node's shutdown: the executor's own order to stop decides.
pub(crate) fn may_be_node_shutdown(status: &Status) -> bool {
    let ends = |number: i32| ENDING.iter().any(|signal| signal.as_raw() == number);
    match status {
        Status::Signalled(signal) => ends(*signal),
        Status::Exited(code) => ends(*code - SHELL_BASE),
        _ => false,
    }
}

/// Whether a task that ended at `ended` was ended by its node's shutdown, of which the executor was
/// `told`. An end without a signal counts if it came right after the order: a program may catch the
/// signal and exit with any code.
pub(crate) fn was_node_shutdown(status: &Status, ended: Instant, told: Instant) -> bool {
    let came_right_after = || told <= ended && ended - told <= SIGNAL_SPREAD;
    match status {
        _ if may_be_node_shutdown(status) => true,
        Status::Exited(code) => *code != 0 && came_right_after(),
        Status::Signalled(_) => came_right_after(),
        Status::Failed(Failure { kind, .. }) => *kind == FailureKind::Output && came_right_after(),
        Status::Succeeded | Status::TimedOut | Status::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_by_shutdown_are_told_from_failures_of_the_task() {
        let told = Instant::now();
        let (soon, late) = (told + SIGNAL_SPREAD / 2, told + SIGNAL_SPREAD * 2);
        let failed = |kind| Status::Failed(Failure { kind, reason: String::new() });
        // Status; whether it may be a shutdown; whether it was one soon after the order; and long
        // after.
        let table = [
            (Status::Signalled(15), true, true, true),
            (Status::Signalled(9), true, true, true),
            (Status::Signalled(24), true, true, true),
            (Status::Exited(143), true, true, true),
            (Status::Exited(130), true, true, true),
            (Status::Signalled(11), false, true, false),
            (Status::Exited(1), false, true, false),
            (Status::Exited(0), false, false, false),
            (Status::Exited(128), false, true, false),
            (failed(FailureKind::Output), false, true, false),
            (failed(FailureKind::Start), false, false, false),
            (Status::Succeeded, false, false, false),
            (Status::TimedOut, false, false, false),
            (Status::Cancelled, false, false, false),
        ];
        for (status, may_be, soon_after, long_after) in table {
            assert_eq!(may_be_node_shutdown(&status), may_be, "{status:?}");
            assert_eq!(was_node_shutdown(&status, soon, told), soon_after, "{status:?}");
            assert_eq!(was_node_shutdown(&status, late, told), long_after, "{status:?}");
        }
        // Before the order, only a signal counts.
        assert!(was_node_shutdown(&Status::Signalled(15), told, soon));
        assert!(!was_node_shutdown(&Status::Exited(1), told, soon));
    }
}
