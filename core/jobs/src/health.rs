//! Executors that fail tasks which others complete. Such a node fails each task within moments, so
//! that it is idle again and draws the next one: HTCondor calls it a black hole. It is set aside,
//! and tried again after longer and longer times.
//!
//! A failure alone says nothing of the node: the task may be wrong. What counts is a row of quick
//! failures, with no success in between, of tasks that other executors then completed.
//!
//! Tasks that an executor had before it was taken back say nothing of it, whether they end before
//! or after that. For example, while it fails one task after the other, a task that runs for an
//! hour goes on and succeeds.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::{ExecutorId, Outcome, Status, TaskId};

/// A failure counts as quick if the task was at the executor for less than this, microseconds.
const QUICK_US: u64 = 10_000_000;
/// An executor is set aside when other executors have completed this many tasks that failed quickly
/// on it in a row.
const MAX_QUICK_FAILURES: usize = 5;
/// Quick failures of one executor that are remembered; of more, the oldest is forgotten.
const MAX_REMEMBERED: usize = 256;
/// Time for which an executor is first set aside, microseconds; each further time is twice as long.
const FIRST_PAUSE_US: u64 = 60_000_000;
/// Longest time for which an executor is set aside, microseconds. So the times are 1, 2, 4, 8, 16,
/// 30 and 30 minutes.
const LONGEST_PAUSE_US: u64 = 30 * 60_000_000;

/// Whether a task was at its executor for moments only, so that its end may be the node's doing.
pub(crate) fn is_quick(outcome: &Outcome) -> bool {
    outcome.waited_us + outcome.ran_us < QUICK_US
}

/// Executors that failed tasks or are set aside; nothing is kept of others.
#[derive(Debug, Default)]
pub(crate) struct Health {
    suspects: BTreeMap<ExecutorId, Suspect>,
}

/// How an executor does.
#[derive(Debug, Default)]
struct Suspect {
    /// Tasks that failed quickly on it since its last success, and that no other executor has
    /// completed so far.
    failed: VecDeque<TaskId>,
    /// Number of further tasks that failed quickly on it since then and that another executor has
    /// completed.
    completed_elsewhere: usize,
    /// How often it was set aside since its last success.
    times: u32,
    set_aside_until: Option<u64>,
    /// When it was taken back last.
    taken_back_us: u64,
}

impl Suspect {
    /// Whether a task whose end is reported now came to the executor after it was taken back.
    fn is_judged_by(&self, outcome: &Outcome, now_us: u64) -> bool {
        let came_us = now_us.saturating_sub(outcome.waited_us.saturating_add(outcome.ran_us));
        self.set_aside_until.is_none() && came_us >= self.taken_back_us
    }

    fn failed_quickly(&mut self, task: TaskId) {
        self.failed.retain(|other| *other != task);
        if self.failed.len() == MAX_REMEMBERED {
            self.failed.pop_front();
        }
        self.failed.push_back(task);
    }

    /// Another executor has completed a task. Whether this one is set aside for it.
    fn completed_elsewhere(&mut self, task: TaskId, now_us: u64) -> bool {
        let before = self.failed.len();
        self.failed.retain(|other| *other != task);
        self.completed_elsewhere += before - self.failed.len();
        if self.completed_elsewhere < MAX_QUICK_FAILURES || self.set_aside_until.is_some() {
            return false;
        }
        let pause_us = FIRST_PAUSE_US.saturating_mul(1 << self.times.min(10)).min(LONGEST_PAUSE_US);
        *self = Suspect {
            times: self.times + 1,
            set_aside_until: Some(now_us + pause_us),
            ..Suspect::default()
        };
        true
    }
}

impl Health {
    /// Until when an executor is given no tasks, if it is set aside.
    pub fn set_aside_until(&self, executor: ExecutorId) -> Option<u64> {
        self.suspects.get(&executor)?.set_aside_until
    }

    /// Takes note of how a task went on an executor; which executors are to be set aside for it.
    pub fn ended(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        outcome: &Outcome,
        now_us: u64,
    ) -> Vec<ExecutorId> {
        let is_judged = self
            .suspects
            .get(&executor)
            .is_none_or(|suspect| suspect.is_judged_by(outcome, now_us));
        if outcome.status != Status::Succeeded {
            if is_judged && outcome.status.is_retryable() && is_quick(outcome) {
                self.suspects.entry(executor).or_default().failed_quickly(task);
            }
            return Vec::new();
        }
        if is_judged {
            self.suspects.remove(&executor);
        }
        let others = self.suspects.iter_mut().filter(|(other, _)| **other != executor);
        let set_aside = others.filter_map(|(other, suspect)| {
            suspect.completed_elsewhere(task, now_us).then_some(*other)
        });
        set_aside.collect()
    }

    /// Executors that were set aside long enough.
    pub fn due(&mut self, now_us: u64) -> Vec<ExecutorId> {
        let due = self.suspects.iter_mut().filter_map(|(executor, suspect)| {
            suspect.set_aside_until.take_if(|until| *until <= now_us)?;
            suspect.taken_back_us = now_us;
            Some(*executor)
        });
        due.collect()
    }

    /// When the next executor was set aside long enough.
    pub fn next_timeout(&self) -> Option<u64> {
        self.suspects.values().filter_map(|suspect| suspect.set_aside_until).min()
    }

    /// The executor is gone.
    pub fn forget(&mut self, executor: ExecutorId) {
        self.suspects.remove(&executor);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use eyas_types::JobId;

    use super::*;

    const A: ExecutorId = ExecutorId(0);
    const B: ExecutorId = ExecutorId(1);

    fn task(index: u32) -> TaskId {
        TaskId { job: JobId(1), index }
    }

    fn ended(
        health: &mut Health,
        executor: ExecutorId,
        index: u32,
        status: Status,
        now_us: u64,
    ) -> Vec<ExecutorId> {
        health.ended(executor, task(index), &Outcome::of(status), now_us)
    }

    /// Tasks fail on A and are completed by B; how many it took until A was set aside.
    fn fail_until_set_aside(health: &mut Health, first: u32, now_us: u64) -> u32 {
        for index in first..first + 100 {
            assert_eq!(ended(health, A, index, Status::Exited(1), now_us), []);
            if ended(health, B, index, Status::Succeeded, now_us) == [A] {
                return index - first + 1;
            }
        }
        panic!("it is never set aside");
    }

    #[test]
    fn a_black_hole_is_set_aside_for_longer_and_longer() {
        let (mut health, mut now_us) = (Health::default(), 7);
        for minutes in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(fail_until_set_aside(&mut health, 0, now_us), 5);
            let until_us = now_us + minutes * 60_000_000;
            assert_eq!(
                (health.set_aside_until(A), health.next_timeout()),
                (Some(until_us), Some(until_us))
            );
            assert_eq!(health.due(until_us - 1), []);
            assert_eq!(health.due(until_us), [A]);
            now_us = until_us;
        }
        ended(&mut health, A, 0, Status::Succeeded, now_us);
        fail_until_set_aside(&mut health, 0, now_us);
        assert_eq!(
            health.set_aside_until(A),
            Some(now_us + 60_000_000),
            "a success makes up for all before"
        );
    }

    #[test]
    fn slow_failures_and_failures_everywhere_or_between_successes_do_not_count() {
        let mut health = Health::default();
        for index in 0..100 {
            for executor in [A, B] {
                assert_eq!(ended(&mut health, executor, index, Status::Exited(1), 0), []);
            }
        }
        let mut health = Health::default();
        for index in 0..100 {
            let slow = Outcome { ran_us: QUICK_US, ..Outcome::of(Status::Exited(1)) };
            assert_eq!(health.ended(A, task(index), &slow, 0), []);
            assert_eq!(ended(&mut health, B, index, Status::Succeeded, 0), []);
        }
        for index in 0..100 {
            ended(&mut health, A, index, Status::Exited(1), 0);
            assert_eq!(ended(&mut health, B, index, Status::Succeeded, 0), []);
            if index % 4 == 3 {
                ended(&mut health, A, 1000, Status::Succeeded, 0);
            }
        }
    }

    #[test]
    fn tasks_that_an_executor_had_before_it_was_taken_back_say_nothing_of_it() {
        const MINUTE_US: u64 = 60_000_000;
        let mut health = Health::default();
        fail_until_set_aside(&mut health, 0, 0);
        // Others had come when it was set aside: some fail at once and are completed elsewhere, one
        // succeeds.
        for index in 50..60 {
            ended(&mut health, A, index, Status::Exited(1), 1);
            assert_eq!(ended(&mut health, B, index, Status::Succeeded, 1), []);
        }
        ended(&mut health, A, 60, Status::Succeeded, 2);
        assert_eq!(health.due(MINUTE_US), vec![A]);
        // One more succeeds a second after it was taken back.
        let long =
            Outcome { waited_us: 500_000, ran_us: 2 * MINUTE_US, ..Outcome::of(Status::Succeeded) };
        health.ended(A, task(61), &long, MINUTE_US + 1_000_000);
        let now_us = 2 * MINUTE_US;
        assert_eq!(fail_until_set_aside(&mut health, 100, now_us), 5, "it begins anew");
        assert_eq!(health.set_aside_until(A), Some(now_us + 2 * MINUTE_US), "for the second time");
        // A task that it got afterwards shows that it is well.
        let now_us = now_us + 2 * MINUTE_US;
        assert_eq!(health.due(now_us), vec![A]);
        let new = Outcome { ran_us: 1_000_000, ..Outcome::of(Status::Succeeded) };
        health.ended(A, task(62), &new, now_us + 1_000_000);
        assert_eq!(fail_until_set_aside(&mut health, 200, now_us + 2_000_000), 5);
        assert_eq!(health.set_aside_until(A), Some(now_us + 2_000_000 + MINUTE_US));
        health.forget(A);
        assert_eq!(health.next_timeout(), None);
    }
}
