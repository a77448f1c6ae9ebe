//! What an executor leaves running when it is killed together with its guardian: its tasks, beside their second try. The
//! kernel kills the process that a task was started as (`spawn.rs`); the rest is found here, by the executor's control group,
//! else by the mark in its environment, and is ended by a guardian, a later executor in the same folder, or one on the same
//! host that the dispatcher tells.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::cgroup;
use crate::incarnation::Incarnation;
use crate::strays::{has_ended, has_variables, processes};
use crate::work::MARKER;

/// Processes may start others while they are killed; they are looked for until none is left, up to this number of times,
/// with a pause between.
const SWEEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// A process that is killed closes its connections first, and has ended within this time; else it lives.
const DYING: Duration = Duration::from_secs(2);

/// Kills every process that an executor, which has ended, has left; whether nothing of it is left.
pub(crate) fn end(executor: &str) -> bool {
    let marks = [format!("{MARKER}={executor}")];
    let mut groups: BTreeSet<PathBuf> = cgroup::beside(executor).into_iter().collect();
    for _ in 0..SWEEPS {
        groups.iter().for_each(|group| cgroup::kill(group));
        let mut is_clear = true;
        for process in processes().filter(|process| *process != getpid()) {
            // Held first, so that what is killed is what was looked at: numbers are used again.
            let Ok(held) = pidfd_open(process, PidfdFlags::empty()) else { continue };
            let is_of = cgroup::groups_of(process, executor);
            if (is_of.is_empty() && !has_variables(process, &marks)) || has_ended(process) {
                continue;
            }
            groups.extend(is_of);
            // One that we may not kill is another user's.
            is_clear &= pidfd_send_signal(&held, Signal::KILL).is_err();
        }
        if is_clear {
            groups.iter().for_each(|group| cgroup::remove(group));
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Ends what an executor of this host has left, if it is gone. One that lives, though its dispatcher lost it, ends its tasks
/// itself.
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
        tracing::warn!(executor, "some processes that a lost executor has left cannot be killed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_what_has_the_mark_is_killed_and_what_lives_is_left_alone() {
        let own = Incarnation::own().unwrap().to_string();
        let name = format!("leftovers-test-{}", std::process::id());
        let start = |mark: &str| Command::new("sleep").arg("1000").env(MARKER, mark).spawn().unwrap();
        let (mut left, mut other, mut ours) = (start(&name), start("another"), start(&own));
        assert!(end(&name));
        assert!(!left.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "another executor's task was killed");
        // Of an executor that lives, and of something that is none.
        end_if_gone(&own);
        end_if_gone("another");
        for child in [&mut other, &mut ours] {
            assert!(child.try_wait().unwrap().is_none(), "its executor is not known to be gone");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
