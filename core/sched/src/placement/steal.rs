//! Work stealing: idle slots take tasks that wait behind the slots of other executors.
//!
//! The other executor is asked to return the task. A task that has started in the meantime is not
//! returned; the executor does not answer then, and the task ends where it is. So a task for which
//! its executor has a slot by now is no longer expected back.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use super::constrained;
use super::permission::ActivePolicy;
use super::policies::Fallback;
use crate::event::{Effect, PlacementCommand};
use crate::state::{ExecutorKey, PlacementLevel, PlacementState, SchedulerState, TaskKey};

/// Tasks for which an idle taker is looked for after one event.
const STEAL_LOOKS: usize = 16;
/// Parked executors that have room and are asked for a task.
const IDLE_LOOKS: usize = 64;

pub(super) struct Stealing {
    /// The last executor from which tasks were recalled.
    last: ExecutorKey,
}

impl Default for Stealing {
    fn default() -> Self {
        Stealing { last: ExecutorKey::FIRST }
    }
}

impl Stealing {
    /// Recalls as many tasks as there are idle slots for; of each executor the newest first,
    /// because it starts them last. For example, of 7 tasks with a processor each on an executor
    /// with 4, two idle slots recall the two newest, and five idle slots the three that wait.
    pub fn steal(
        &mut self,
        state: &mut SchedulerState,
        policy: &ActivePolicy,
        effects: &mut Vec<Effect>,
    ) {
        let utilisation = state.executors.utilisation();
        let idle_milli = utilisation.total_milli - utilisation.busy_milli;
        let mut idle_milli = idle_milli.saturating_sub(state.executors.returning_milli());
        if idle_milli == 0 || state.executors.parked(PlacementLevel::Slot).len() == 0 {
            return;
        }
        let mut looks = STEAL_LOOKS;
        let overbooked: Vec<_> =
            round_robin(state.executors.overbooked(), self.last).take(STEAL_LOOKS).collect();
        for executor in overbooked {
            if looks == 0 || idle_milli == 0 {
                break;
            }
            self.last = executor;
            let (mut rest, capacity) = {
                let executor = &state.executors[executor];
                (executor.usage().clone(), executor.capacity.clone())
            };
            for index in (0..state.executors[executor].in_flight.len()).rev() {
                let task = state.executors[executor].in_flight[index].task;
                let need_milli = u64::from(state.resources_of(task).cpus_milli).max(1);
                if looks == 0 || idle_milli < need_milli || !rest.exceeds(&capacity) {
                    break;
                }
                // Others wait here for a resource that it does not need.
                if !rest.exceeds_with(state.resources_of(task), &capacity) {
                    continue;
                }
                // Skipped tasks do not count against the limit of looks: a skip costs little.
                if !state.may_return(task) {
                    rest.subtract(state.resources_of(task));
                    continue;
                }
                looks -= 1;
                if idle_taker(state, policy, task).is_some() {
                    rest.subtract(state.resources_of(task));
                    idle_milli -= need_milli;
                    recall(state, task, effects);
                }
            }
        }
    }
}

/// Recalls all tasks of an executor that it has not started.
pub(super) fn recall_all(
    state: &mut SchedulerState,
    executor: ExecutorKey,
    effects: &mut Vec<Effect>,
) {
    let tasks: Vec<_> =
        state.executors[executor].in_flight.iter().map(|given| given.task).collect();
    for task in tasks {
        if matches!(state.queue[task].state, PlacementState::Assigned { recalled: false, .. }) {
            recall(state, task, effects);
        }
    }
}

fn recall(state: &mut SchedulerState, task: TaskKey, effects: &mut Vec<Effect>) {
    let executor = state.expect_back(task, true);
    effects.push(Effect::Command(PlacementCommand::Recall {
        executor: state.executors[executor].id,
        task: state.queue[task].id,
    }));
}

/// A task of the executor has ended, so it starts the oldest of the tasks behind its slots: those
/// are no longer expected back.
pub(super) fn expect_started(state: &mut SchedulerState, executor: ExecutorKey) {
    if state.executors[executor].recalled_milli == 0 {
        return;
    }
    let mut free_milli = u64::from(state.executors[executor].capacity.cpus_milli);
    let oldest: Vec<_> =
        state.executors[executor].in_flight.iter().map(|given| given.task).collect();
    for task in oldest {
        let need_milli = u64::from(state.resources_of(task).cpus_milli);
        if free_milli < need_milli {
            break;
        }
        free_milli -= need_milli;
        if state.is_recalled(task) {
            state.expect_back(task, false);
        }
    }
}

/// An idle executor that would take the task if it waited. If there is none, a recalled task would
/// only go back to where it was.
pub(super) fn idle_taker(
    state: &mut SchedulerState,
    policy: &ActivePolicy,
    task: TaskKey,
) -> Option<ExecutorKey> {
    let level = PlacementLevel::Slot;
    let permission = policy.permission(state);
    let class = state.queue[task].class;
    if state.is_constrained(class) {
        return constrained::best_match(&permission, task, level, &mut 0);
    }
    if let Some(executor) = permission.parked_taker(task, level) {
        return Some(executor);
    }
    let fallback = permission.fallback();
    let looks = match fallback {
        Fallback::AnyTask => IDLE_LOOKS,
        // Executors that hold nothing of it differ little.
        Fallback::Soonest => 1,
        Fallback::OnlyBestHolder if permission.is_holderless(task) => IDLE_LOOKS,
        Fallback::OnlyBestHolder => 0,
    };
    let mut first = 0;
    for _ in 0..looks {
        let (parking, executor) = state.parked_with_room(class, level, first)?;
        let may_take =
            fallback != Fallback::Soonest || policy.permission(state).is_soonest(executor, task);
        if may_take && !state.queue.has_refused(executor, task) {
            return Some(executor);
        }
        first = parking + 1;
    }
    None
}

/// All executors, the one after `last` first.
pub(super) fn round_robin(
    executors: &BTreeSet<ExecutorKey>,
    last: ExecutorKey,
) -> impl Iterator<Item = ExecutorKey> {
    let after = executors.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(executors.range(..=last)).copied()
}
