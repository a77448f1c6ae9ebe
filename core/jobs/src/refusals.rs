//! Tasks that executors refused. A task fails after all executors have refused it. If one of them
//! refused it only for now, because its disk is full, the task waits, and all executors are asked
//! again, a bounded number of times.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use eyas_types::TaskId;
use thiserror::Error;

/// A task that was refused for now is first offered again after this time, microseconds. What other
/// tasks need is often free a moment later. Each further time is twice as long.
const FIRST_ROOM_PAUSE_US: u64 = 100_000;
/// Longest time after which such a task is offered again, microseconds.
const LONGEST_ROOM_PAUSE_US: u64 = 5_000_000;
/// A task fails after all have refused it for now this many times. Their pauses are 276 s in all:
/// 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 s, and 54 times 5 s.
const MAX_ROOM_RETRIES: u32 = 60;

/// Why a task fails after all executors have refused it.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum GivenUp {
    #[error("every executor has refused it")]
    Unknown,
    #[error("{0}")]
    Refused(String),
    #[error("{0} (no executor had room for it in {MAX_ROOM_RETRIES} tries)")]
    NoRoom(String),
}

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    tasks: BTreeMap<TaskId, TaskRefusals>,
    /// Waiting tasks by the end of their wait. Some have ended since.
    waiting: BTreeSet<(u64, TaskId)>,
}

#[derive(Debug, Default)]
struct TaskRefusals {
    /// The reason that the last executor gave, preferably one that refused the task for now.
    reason: String,
    /// Whether an executor may take the task later.
    for_now: bool,
    /// How often all have refused it.
    rounds: u32,
    waits_until: Option<u64>,
}

impl Refusals {
    /// An executor cannot take the task.
    pub fn refused(&mut self, task: TaskId, reason: &str, for_now: bool) {
        let entry = self.tasks.entry(task).or_default();
        if for_now || !entry.for_now {
            entry.reason = reason.to_owned();
        }
        entry.for_now |= for_now;
    }

    /// All executors have refused the task. It waits from `now_us` on to be offered again.
    ///
    /// # Errors
    /// Why it fails: no executor can ever take it, or it has waited long enough.
    pub fn by_all(&mut self, task: TaskId, now_us: u64) -> Result<(), GivenUp> {
        let Some(entry) = self.tasks.get_mut(&task) else { return Err(GivenUp::Unknown) };
        if !entry.for_now {
            return Err(GivenUp::Refused(entry.reason.clone()));
        }
        if entry.rounds == MAX_ROOM_RETRIES {
            return Err(GivenUp::NoRoom(entry.reason.clone()));
        }
        let until =
            now_us + (FIRST_ROOM_PAUSE_US << entry.rounds.min(16)).min(LONGEST_ROOM_PAUSE_US);
        (entry.rounds, entry.for_now, entry.waits_until) = (entry.rounds + 1, false, Some(until));
        self.waiting.insert((until, task));
        Ok(())
    }

    /// A task that has waited long enough at `now_us` and is to be offered again, if there is one.
    pub fn next_due(&mut self, now_us: u64) -> Option<TaskId> {
        while let Some((until, task)) =
            self.waiting.first().copied().filter(|(until, _)| *until <= now_us)
        {
            self.waiting.pop_first();
            if let Some(entry) =
                self.tasks.get_mut(&task).filter(|entry| entry.waits_until == Some(until))
            {
                entry.waits_until = None;
                return Some(task);
            }
        }
        None
    }

    /// When the next task may be due.
    pub fn next_timeout(&self) -> Option<u64> {
        self.waiting.first().map(|(until, _)| *until)
    }

    /// Why the task waits to be offered again, if it does.
    pub fn why_waiting(&self, task: TaskId) -> Option<&str> {
        self.tasks
            .get(&task)
            .filter(|entry| entry.waits_until.is_some())
            .map(|entry| entry.reason.as_str())
    }

    /// The task has ended.
    pub fn forget(&mut self, task: TaskId) {
        self.tasks.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use eyas_types::JobId;

    use super::*;

    const TASK: TaskId = TaskId { job: JobId(1), index: 0 };

    #[test]
    fn a_task_that_all_refuse_fails_with_the_last_reason() {
        let mut refusals = Refusals::default();
        refusals.refused(TASK, "a", false);
        refusals.refused(TASK, "b", false);
        assert_eq!(refusals.by_all(TASK, 0), Err(GivenUp::Refused("b".into())));
    }

    #[test]
    fn a_task_refused_for_now_is_offered_again_up_to_the_limit() {
        let (mut refusals, mut now) = (Refusals::default(), 0);
        for _ in 0..MAX_ROOM_RETRIES {
            refusals.refused(TASK, "its disk is full", true);
            refusals.refused(TASK, "its store is small", false);
            assert_eq!(refusals.by_all(TASK, now), Ok(()));
            assert_eq!(refusals.why_waiting(TASK), Some("its disk is full"));
            assert_eq!(refusals.next_due(now), None);
            now += LONGEST_ROOM_PAUSE_US;
            assert_eq!((refusals.next_due(now), refusals.next_due(now)), (Some(TASK), None));
            assert_eq!(refusals.why_waiting(TASK), None);
        }
        refusals.refused(TASK, "its disk is full", true);
        let why = refusals.by_all(TASK, now).unwrap_err().to_string();
        assert!(why.contains("its disk is full") && why.contains("60 tries"), "{why}");
    }

    #[test]
    fn a_task_is_first_offered_again_soon() {
        let other = TaskId { index: 1, ..TASK };
        let (mut refusals, mut now) = (Refusals::default(), 0);
        for pause_us in
            [100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000, 5_000_000, 5_000_000]
        {
            refusals.refused(TASK, "full", true);
            assert_eq!(refusals.by_all(TASK, now), Ok(()));
            assert_eq!(refusals.next_timeout(), Some(now + pause_us));
            now += pause_us;
            assert_eq!(refusals.next_due(now), Some(TASK));
        }
        // One that was refused later may be offered earlier.
        for task in [TASK, other] {
            refusals.refused(task, "full", true);
            assert_eq!(refusals.by_all(task, now), Ok(()));
        }
        let due = [now + 100_000, now + 5_000_000].map(|now| refusals.next_due(now));
        assert_eq!((due, refusals.next_timeout()), ([Some(other), Some(TASK)], None));
    }

    #[test]
    fn a_task_that_ended_while_it_waited_is_not_offered_again() {
        let (mut refusals, now) = (Refusals::default(), 0);
        refusals.refused(TASK, "full", true);
        assert_eq!(refusals.by_all(TASK, now), Ok(()));
        refusals.forget(TASK);
        // It runs anew, and is refused again.
        refusals.refused(TASK, "full", true);
        assert_eq!(refusals.next_due(now + LONGEST_ROOM_PAUSE_US), None);
    }
}
