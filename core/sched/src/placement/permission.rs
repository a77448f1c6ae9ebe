//! What the policy lets an executor take at this moment. Reads only.

use alloc::boxed::Box;

use super::homes::Homes;
use super::policies::{Fallback, PlacementRules, ReplicaUse, WaitsFor};
use super::search;
use crate::event::Config;
use crate::state::{ExecutorKey, LocalShare, PlacementLevel, SchedulerState, TaskKey, Ticket};

/// The policy in use, with what it asks to be kept.
pub(super) struct ActivePolicy {
    rules: Box<dyn PlacementRules>,
    /// Whether tasks go where their inputs are.
    pub places_by_data: bool,
    /// The share of a task above which an executor counts as a holder of it.
    min_cache_hit: LocalShare,
    /// Homes of waiting tasks, if the rules have tasks wait for them.
    pub homes: Option<Homes>,
}

impl ActivePolicy {
    pub fn new(rules: Box<dyn PlacementRules>, config: &Config) -> Self {
        ActivePolicy {
            places_by_data: rules.replica_use() == ReplicaUse::Placement,
            min_cache_hit: LocalShare::of_fraction(config.min_cache_hit),
            homes: (rules.waits_for() == WaitsFor::Home).then(Homes::default),
            rules,
        }
    }

    /// What it permits in this state.
    pub fn permission<'a>(&'a self, state: &'a SchedulerState) -> Permission<'a> {
        Permission { state, policy: self }
    }

    /// Whether some holders of a task may hold too little of it to count.
    pub fn has_min_cache_hit(&self) -> bool {
        !self.min_cache_hit.is_none()
    }

    /// Gives a waiting task a home, where tasks have one. Whether it has one now.
    pub fn give_home(&mut self, state: &SchedulerState, ticket: Ticket) -> bool {
        self.homes
            .as_mut()
            .is_some_and(|homes| homes.of(ticket.task).is_none() && homes.give_home(state, ticket))
    }

    /// The task's home, if it has one.
    pub fn home_of(&self, task: TaskKey) -> Option<ExecutorKey> {
        self.homes.as_ref().and_then(|homes| homes.of(task))
    }
}

pub(super) struct Permission<'a> {
    pub state: &'a SchedulerState,
    policy: &'a ActivePolicy,
}

impl Permission<'_> {
    pub fn fallback(&self) -> Fallback {
        self.policy.rules.fallback(self.state.executors.utilisation())
    }

    /// What parked executors may take. Where nothing runs, there is no holder to wait for.
    pub fn fallback_of_parked(&self) -> Fallback {
        let nothing_runs = self.state.executors.utilisation().busy_milli == 0;
        if nothing_runs { Fallback::AnyTask } else { self.fallback() }
    }

    /// The share of the task's inputs that the executor holds, where tasks go to their inputs;
    /// otherwise any executor is as good as one that holds all of them.
    pub fn share_held(&self, task: TaskKey, executor: ExecutorKey) -> LocalShare {
        if self.policy.places_by_data {
            self.state.share_held(task, executor)
        } else {
            LocalShare::FULL
        }
    }

    /// Whether the executor, which holds an input of the task or none, need not leave it to another
    /// executor.
    pub fn may_take(&self, executor: ExecutorKey, task: TaskKey, fallback: Fallback) -> bool {
        (fallback == Fallback::OnlyBestHolder && self.is_holderless(task))
            || self.holder_may_take(executor, task, fallback)
    }

    /// The same for an executor that holds an input of the task.
    pub fn holder_may_take(
        &self,
        executor: ExecutorKey,
        task: TaskKey,
        fallback: Fallback,
    ) -> bool {
        match fallback {
            Fallback::AnyTask => true,
            Fallback::OnlyBestHolder => {
                self.is_holder(executor, task) && !search::is_outdone(self.state, task, executor)
            }
            Fallback::Soonest => self.is_soonest(executor, task),
        }
    }

    /// Whether the task would be done no later on the executor than at its home.
    pub fn is_soonest(&self, executor: ExecutorKey, task: TaskKey) -> bool {
        self.policy.homes.as_ref().is_none_or(|homes| homes.is_soonest(self.state, task, executor))
    }

    /// Whether an executor that holds an input of the task holds enough of it.
    pub fn is_holder(&self, executor: ExecutorKey, task: TaskKey) -> bool {
        !self.policy.has_min_cache_hit()
            || self.state.share_held(task, executor) > self.policy.min_cache_hit
    }

    /// Whether waiting for a holder is pointless: no executor that could take the task holds an
    /// input or, where tasks have homes, is receiving one; or an executor has refused the task.
    pub fn is_holderless(&self, task: TaskKey) -> bool {
        let SchedulerState { queue, catalog, transfers, .. } = self.state;
        let could_take = |executor: ExecutorKey| self.state.may_ever_take(executor, task);
        let has_taker = |input: &_| {
            let is_holder =
                |executor: &ExecutorKey| could_take(*executor) && self.is_holder(*executor, task);
            catalog[*input].holders.iter().any(is_holder)
                || (self.policy.homes.is_some() && transfers.receivers(*input).any(could_take))
        };
        queue[task].was_refused || !self.state.inputs(task).iter().any(has_taker)
    }

    /// Of the parked executors, the one that holds the most of the task, if it may take that;
    /// otherwise the task's home. None where tasks go anywhere.
    pub fn parked_taker(&self, task: TaskKey, level: PlacementLevel) -> Option<ExecutorKey> {
        if !self.policy.places_by_data {
            return None;
        }
        let best = search::best_parked_holder(self.state, task, level);
        let best = best.filter(|(executor, share)| {
            *share == LocalShare::FULL || self.may_take(*executor, task, self.fallback())
        });
        let is_parked = |home: &ExecutorKey| self.state.executors.is_parked(*home, level);
        let may_take = |home: &ExecutorKey| self.state.may_take(*home, task, level);
        let home = || self.policy.home_of(task).filter(is_parked).filter(may_take);
        best.map(|(executor, _)| executor).or_else(home)
    }
}
