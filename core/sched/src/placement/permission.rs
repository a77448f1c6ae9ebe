//! What the policy lets an executor take at this moment. Reads only.

use super::homes::Homes;
use super::policies::{Fallback, PlacementRules};
use super::search;
use crate::state::{ExecutorKey, LocalShare, PlacementLevel, SchedulerState, TaskKey};

pub(super) struct Permission<'a> {
    pub state: &'a SchedulerState,
    pub policy: &'a dyn PlacementRules,
    pub homes: &'a Homes,
}

impl Permission<'_> {
    pub fn fallback(&self) -> Fallback {
        self.policy.fallback(self.state.executors.utilisation())
    }

    /// What parked executors may take. Where nothing runs, there is no holder to wait for.
    pub fn fallback_of_parked(&self) -> Fallback {
        let nothing_runs = self.state.executors.utilisation().busy_milli == 0;
        if nothing_runs { Fallback::AnyTask } else { self.fallback() }
    }

    /// Whether the executor, which holds an input of the task or none, need not leave it to another executor.
    pub fn lets(&self, executor: ExecutorKey, task: TaskKey, fallback: Fallback) -> bool {
        (fallback == Fallback::OnlyBestHolder && self.is_holderless(task)) || self.lets_holder(executor, task, fallback)
    }

    /// The same for an executor that holds an input of the task.
    pub fn lets_holder(&self, executor: ExecutorKey, task: TaskKey, fallback: Fallback) -> bool {
        match fallback {
            Fallback::AnyTask => true,
            Fallback::OnlyBestHolder => !search::is_outdone(self.state, task, executor),
            Fallback::Soonest => self.homes.is_soonest(self.state, task, executor),
        }
    }

    /// Whether waiting for a holder is pointless: no executor that could take the task holds an input or, where tasks
    /// have homes, is receiving one; or an executor has refused the task.
    pub fn is_holderless(&self, task: TaskKey) -> bool {
        let SchedulerState { queue, catalog, transfers, .. } = self.state;
        let could_take = |executor: ExecutorKey| self.state.may_ever_take(executor, task);
        let has_taker = |input: &_| {
            catalog[*input].holders.iter().any(|executor| could_take(*executor))
                || (self.policy.has_homes() && transfers.receivers(*input).any(could_take))
        };
        queue[task].was_refused || !self.state.inputs(task).iter().any(has_taker)
    }

    /// Of the parked executors, the one that holds the most of the task, if the policy lets it take that; otherwise the
    /// task's home.
    pub fn parked_taker(&self, task: TaskKey, level: PlacementLevel) -> Option<ExecutorKey> {
        let best = search::best_parked_holder(self.state, task, level);
        let best =
            best.filter(|(executor, share)| *share == LocalShare::FULL || self.lets(*executor, task, self.fallback()));
        let is_parked = |home: &ExecutorKey| self.state.executors.is_parked(*home, level);
        let may_take = |home: &ExecutorKey| self.state.may_take(*home, task, level);
        let home = || self.homes.of(task).filter(is_parked).filter(may_take);
        best.map(|(executor, _)| executor).or_else(home)
    }
}
