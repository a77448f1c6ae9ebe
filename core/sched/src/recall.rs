//! Asking tasks back: idle slots take what is lined up behind others elsewhere.
//!
//! A task that has started in the meantime is not given back; nothing is answered then, and it ends where it is. So
//! what an executor is likely to have started, as it has a slot for it, is no longer expected.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::decide::PARKED_LOOKS;
use crate::event::Effect;
use crate::executors::{ExecutorKey, Level};
use crate::placement::Otherwise;
use crate::queue::{State, TaskKey};
use crate::scheduler::Scheduler;
use crate::search;

/// Lined-up tasks of which is asked after one event who would take them, for some to ask back.
const RECALL_LOOKS: usize = 16;
/// So often a task is asked back: who would have taken it may not any more when it is back, and others line it up again.
const MAX_RETURNS: u8 = 4;

impl Scheduler {
    /// Asks for as many tasks as there are idle slots for, the newest of an executor first: it starts them last.
    pub(crate) fn recall(&mut self, effects: &mut Vec<Effect>) {
        let utilisation = self.executors.utilisation();
        let idle_milli = utilisation.total_milli - utilisation.busy_milli;
        let mut idle_milli = idle_milli.saturating_sub(self.executors.coming_back_milli());
        if idle_milli == 0 || self.executors.parked(Level::Slot).len() == 0 {
            return;
        }
        let mut looks = RECALL_LOOKS;
        let overbooked: Vec<_> = all_round(self.executors.overbooked(), self.recall_from).take(RECALL_LOOKS).collect();
        for by in overbooked {
            if looks == 0 || idle_milli == 0 {
                break;
            }
            self.recall_from = by;
            let mut over_milli = self.executors[by].over_milli();
            for place in (0..self.executors[by].in_flight.len()).rev() {
                let task = self.executors[by].in_flight[place].task;
                let need_milli = u64::from(self.queue.resources(self.queue[task].class).cpus_milli).max(1);
                if looks == 0 || over_milli < need_milli || idle_milli < need_milli {
                    break;
                }
                let is_recalled = matches!(self.queue[task].state, State::Assigned { recalled: true, .. });
                // To pass one over is no look: it costs little, and no more are passed over than are lined up here.
                if is_recalled || self.queue[task].returns >= MAX_RETURNS {
                    over_milli -= need_milli;
                    continue;
                }
                looks -= 1;
                if self.idle_taker(task).is_some() {
                    over_milli -= need_milli;
                    idle_milli -= need_milli;
                    self.ask_back(task, effects);
                }
            }
        }
    }

    /// Asks an executor for all of its tasks that it has not started.
    pub(crate) fn ask_all_back(&mut self, by: ExecutorKey, effects: &mut Vec<Effect>) {
        let tasks: Vec<_> = self.executors[by].in_flight.iter().map(|given| given.task).collect();
        for task in tasks {
            if matches!(self.queue[task].state, State::Assigned { recalled: false, .. }) {
                self.ask_back(task, effects);
            }
        }
    }

    fn ask_back(&mut self, task: TaskKey, effects: &mut Vec<Effect>) {
        let by = self.expect_back(task, true);
        effects.push(Effect::Recall { executor: self.executors[by].id, task: self.queue[task].id });
    }

    /// Sets whether an assigned task is expected back; returns from whom.
    fn expect_back(&mut self, task: TaskKey, is_expected: bool) -> ExecutorKey {
        let entry = &mut self.queue[task];
        let State::Assigned { executor, recalled, .. } = &mut entry.state else {
            panic!("task {} asked back but is {:?}", entry.id, entry.state);
        };
        assert_ne!(core::mem::replace(recalled, is_expected), is_expected, "task {} asked back twice", entry.id);
        let (by, class) = (*executor, entry.class);
        self.executors.expect_back(by, self.queue.resources(class), is_expected);
        by
    }

    /// A task of the executor has ended, so it starts the oldest of those that were lined up.
    pub(crate) fn expect_no_more(&mut self, by: ExecutorKey) {
        if self.executors[by].recalled_milli == 0 {
            return;
        }
        let mut free_milli = u64::from(self.executors[by].capacity.cpus_milli);
        let oldest: Vec<_> = self.executors[by].in_flight.iter().map(|given| given.task).collect();
        for task in oldest {
            let need_milli = u64::from(self.queue.resources(self.queue[task].class).cpus_milli);
            if free_milli < need_milli {
                break;
            }
            free_milli -= need_milli;
            if matches!(self.queue[task].state, State::Assigned { recalled: true, .. }) {
                self.expect_back(task, false);
            }
        }
    }

    /// A task is back: the idle executor for which it was asked back takes it, if it still would. It might not find it
    /// itself where tasks stand in lines, of which it looks at the longest.
    pub(crate) fn offer_returned(&mut self, task: TaskKey, effects: &mut Vec<Effect>) {
        if self.policy.lines_up()
            && let Some(by) = self.idle_taker(task)
        {
            self.assign(by, task, effects);
            self.executors.make_ready(by, Level::Slot);
        }
    }

    /// An idle executor that would take the task if it waited. If none would, it would only come back to where it is
    /// lined up.
    fn idle_taker(&mut self, task: TaskKey) -> Option<ExecutorKey> {
        if self.is_choosy(self.queue[task].class) {
            return self.best_match(task, Level::Slot, &mut 0);
        }
        if self.policy.is_data_aware()
            && let Some(by) = self.parked_taker(task, Level::Slot)
        {
            return Some(by);
        }
        let looks = match self.otherwise() {
            Otherwise::AnyTask => PARKED_LOOKS,
            // Those that hold nothing of it differ little.
            Otherwise::Soonest => 1,
            Otherwise::OnlyBestHolder if self.is_cold(task) => PARKED_LOOKS,
            Otherwise::OnlyBestHolder => 0,
        };
        let (class, mut first) = (self.queue[task].class, 0);
        for _ in 0..looks {
            let Some((parking, by)) = self.parked_with_room(class, Level::Slot, first) else { break };
            let lets = self.otherwise() != Otherwise::Soonest || self.is_soonest(task, by);
            if lets && !search::has_refused(&self.queue, by, task) {
                return Some(by);
            }
            first = parking + 1;
        }
        None
    }
}

/// All of them, the one after `last` first.
pub(crate) fn all_round(keys: &BTreeSet<ExecutorKey>, last: ExecutorKey) -> impl Iterator<Item = ExecutorKey> {
    let after = keys.range((Bound::Excluded(last), Bound::Unbounded));
    after.chain(keys.range(..=last)).copied()
}
