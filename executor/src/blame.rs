//! Who ended a task: itself, or the end of its node. A batch system that takes a node back signals the executor and its
//! tasks at once, and so does a kernel that has run out of memory for all of them. Such a task did not fail: it runs again on
//! another node and uses up no retry.
//!
//! The task's death may be seen before the executor's own signal. So a death that may be the node's is not reported at
//! once; whether the executor was told to end too is waited for, up to [`SIGNAL_SPREAD`].

use std::time::{Duration, Instant};

use eyas_types::Status;
use eyas_types::outcome::{Failure, FailureKind};
use rustix::process::Signal;

/// Signals to processes of one node come within this time of each other if they have one cause.
pub(crate) const SIGNAL_SPREAD: Duration = Duration::from_secs(1);

/// What batch systems, terminals and the kernel end all processes of a node or job with.
const ENDING: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::KILL, Signal::TERM, Signal::XCPU];

/// A shell whose child was killed by signal N exits with this and N.
const SHELL_BASE: i32 = 128;

/// Whether the executor's own end decides what this end of a task was.
pub(crate) fn may_be_the_nodes(status: &Status) -> bool {
    let ends = |number: i32| ENDING.iter().any(|signal| signal.as_raw() == number);
    match status {
        Status::Signalled(signal) => ends(*signal),
        Status::Exited(code) => ends(*code - SHELL_BASE),
        _ => false,
    }
}

/// Whether a task that has ended at `ended` was ended by its node's end, of which its executor was `told`. Of other ends
/// than by a signal, those that came right after it: a program may catch the signal and exit as it likes.
pub(crate) fn was_the_nodes(status: &Status, ended: Instant, told: Instant) -> bool {
    let came_right_after = || told <= ended && ended - told <= SIGNAL_SPREAD;
    match status {
        _ if may_be_the_nodes(status) => true,
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
    fn ends_by_a_nodes_end_are_told_from_the_tasks_own() {
        let told = Instant::now();
        let (soon, late) = (told + SIGNAL_SPREAD / 2, told + SIGNAL_SPREAD * 2);
        let failed = |kind| Status::Failed(Failure { kind, reason: String::new() });
        // Status; whether it is waited for; whether it was the node's soon after the order, and long after.
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
        for (status, waits, is_soon, is_late) in table {
            let said =
                (may_be_the_nodes(&status), was_the_nodes(&status, soon, told), was_the_nodes(&status, late, told));
            assert_eq!(said, (waits, is_soon, is_late), "{status:?}");
        }
        // Before the order, only a signal tells.
        assert!(was_the_nodes(&Status::Signalled(15), told, soon) && !was_the_nodes(&Status::Exited(1), told, soon));
    }
}
