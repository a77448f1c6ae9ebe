//! Processes that an executor leaves running when it is killed together with its guardian: they
//! would run beside the next try of the same tasks. The kernel kills the process that each task was
//! started as (`process/spawn.rs`). The others are found here by the executor's control group, or
//! else by the variable in their environment. They are killed by a guardian, by a later executor in
//! the same folder, or by an executor on the same host that the dispatcher tells.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::process::procfs::{
    can_have_environment, contains_all, environment, has_ended, is_whole, processes,
};
use crate::task::EXECUTOR_VARIABLE;

pub(crate) mod cgroup;
pub(crate) mod copies;
pub mod guardian;
pub(crate) mod incarnation;

use incarnation::Incarnation;

/// Processes may start others while they are killed. The search is repeated until none is left, up
/// to this number of times, with [`PAUSE`] between two searches.
const SWEEPS: usize = 100;
/// Searches that look again at a process that may just be executing another program: it has no
/// environment for a moment, by which it would be found.
const UNCLEAR_SWEEPS: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);
/// A killed process closes its connections first, and has ended within this time. A process that
/// has not lives on.
const DYING: Duration = Duration::from_secs(2);

/// Kills every process that an ended executor has left. Whether none is left.
pub(crate) fn end(executor: &str) -> bool {
    let marks = [format!("{EXECUTOR_VARIABLE}={executor}")];
    let mut groups: BTreeSet<PathBuf> = cgroup::beside(executor).into_iter().collect();
    let mut is_clear = false;
    for sweep in 0..SWEEPS {
        groups.iter().for_each(|group| cgroup::kill(group));
        is_clear = true;
        for process in processes().filter(|process| *process != getpid()) {
            // The descriptor comes first, so that the signal goes to the process that was examined:
            // numbers are reused.
            let Ok(held) = pidfd_open(process, PidfdFlags::empty()) else { continue };
            let is_of = cgroup::groups_of(process, executor);
            let environment = environment(process);
            if (is_of.is_empty() && !contains_all(&environment, &marks)) || has_ended(process) {
                is_clear &= sweep >= UNCLEAR_SWEEPS
                    || is_whole(&environment)
                    || !can_have_environment(process, 0);
                continue;
            }
            groups.extend(is_of);
            // A process that cannot be killed belongs to another user.
            is_clear &= pidfd_send_signal(&held, Signal::KILL).is_err();
        }
        // A thread that is ending may still be in a group.
        if is_clear && groups.iter().all(|group| cgroup::remove(group)) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    is_clear
}

/// Kills what an executor of this host has left, if the executor is gone. An executor that lives,
/// though its dispatcher has lost it, kills its tasks itself.
pub(crate) fn end_if_gone(executor: &str) {
    let Ok(incarnation) = executor.parse::<Incarnation>() else { return };
    let deadline = Instant::now() + DYING;
    while !incarnation.is_gone() {
        if incarnation.local().is_none() || Instant::now() > deadline {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    if !end(executor) {
        tracing::warn!(executor, "cannot kill some processes that a lost executor has left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::procfs::has_variables;
    use rustix::process::Pid;
    use std::process::Command;

    #[test]
    fn only_marked_processes_of_executors_that_are_gone_are_killed() {
        let own = Incarnation::own().unwrap().to_string();
        let name = format!("leftovers-test-{}", std::process::id());
        let start = |mark: &str| {
            Command::new("sleep").arg("1000").env(EXECUTOR_VARIABLE, mark).spawn().unwrap()
        };
        let (mut left, mut other, mut ours) = (start(&name), start("another"), start(&own));
        // A process's environment cannot be read right after it was started.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !has_variables(Pid::from_child(&left), &[format!("{EXECUTOR_VARIABLE}={name}")]) {
            assert!(Instant::now() < deadline, "its environment cannot be read");
            std::thread::yield_now();
        }
        assert!(end(&name));
        assert!(!left.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "another executor's task was killed");
        // An executor that lives, and a name that is not an executor's.
        end_if_gone(&own);
        end_if_gone("another");
        for child in [&mut other, &mut ours] {
            assert!(
                child.try_wait().unwrap().is_none(),
                "a process was killed whose executor is not known to be gone"
            );
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
