//! Backfilling: while the inputs of a node's data-intensive tasks are staged, tasks that read
//! little use their processors. Such a task overtakes tasks that could not run yet anyway. When the
//! staged tasks are ready, the node starts them first.

use alloc::vec::Vec;

use super::steal::round_robin;
use crate::state::{ClassNeed, ExecutorKey, Executors, SchedulerState, TaskKey};

/// Waiting tasks of a class that are checked for one that reads little, from where the last search
/// ended.
const BACKFILL_LOOKS: usize = 1024;
/// Executors that lend processors and are checked after one event, from where the last check ended.
const LENDING_LOOKS: usize = 64;

pub(super) struct Backfilling {
    /// Tasks that read fewer bytes are light, for all executors that lend processors.
    light_bytes: u64,
    /// Tasks that were searched before and passed over read at least this many bytes.
    searched_bytes: u64,
    /// The last lending executor that was checked.
    last: ExecutorKey,
}

impl Default for Backfilling {
    fn default() -> Self {
        Backfilling { light_bytes: u64::MAX, searched_bytes: 0, last: ExecutorKey::FIRST }
    }
}

impl Backfilling {
    /// An executor lends processors of tasks that it stages, to tasks that read fewer than
    /// `light_bytes`.
    pub fn lend(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        lent_milli: u64,
        light_bytes: u64,
    ) {
        state.executors.lend(executor, lent_milli);
        self.light_bytes = if state.executors.lending().is_empty() {
            u64::MAX
        } else {
            self.light_bytes.min(light_bytes)
        };
    }

    /// The executors that may be given light tasks after this event; none if there is no light
    /// task.
    pub fn lenders(&mut self, state: &mut SchedulerState) -> Vec<ExecutorKey> {
        if state.queue.waiting() == 0 || state.executors.lending().is_empty() {
            return Vec::new();
        }
        if self.light_bytes > self.searched_bytes {
            state.queue.restart_search_for_light();
        }
        self.searched_bytes = self.light_bytes;
        // Nearly always there is no light task, and many executors may lend.
        if self.light_task(state, |_, _| true).is_none() {
            return Vec::new();
        }
        round_robin(state.executors.lending(), self.last).take(LENDING_LOOKS).collect()
    }

    /// A light task for an executor that lends processors.
    pub fn task_for(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
    ) -> Option<TaskKey> {
        self.last = executor;
        self.light_task(state, |executors, need| executors[executor].has_room_to_backfill(need))
    }

    /// The first light task with such a need, as far as the search goes.
    fn light_task(
        &self,
        state: &mut SchedulerState,
        may_take: impl Fn(&Executors, &ClassNeed) -> bool,
    ) -> Option<TaskKey> {
        // Which executors may take a constrained task is not known when the task is passed over.
        let mut roomy: Vec<_> =
            state.queue.waiting_classes().filter(|class| !state.is_constrained(*class)).collect();
        roomy.retain(|class| may_take(&state.executors, state.queue.need(*class)));
        let SchedulerState { queue, catalog, .. } = state;
        roomy.into_iter().find_map(|class| {
            queue.first_light(class, BACKFILL_LOOKS, |task| {
                let reads: u64 = task.inputs.placed(catalog).map(|input| input.bytes).sum();
                reads < self.light_bytes && !task.was_refused
            })
        })
    }
}
