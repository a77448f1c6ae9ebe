//! The task that an executor is given: what it holds entirely, otherwise what the policy lets it
//! take.

use alloc::vec::Vec;

use super::policies::Fallback;
use super::search::{self, TaskSearch};
use super::{Placement, constrained};
use crate::event::HolderPatience;
use crate::state::{ClassKey, ExecutorKey, PlacementLevel, SchedulerState, TaskKey};

/// Tasks of one class that are checked, from the oldest on, for one that the executor has not
/// refused. An executor that has refused all of them gets none until others have taken them.
const HEAD_LOOKS: usize = 1024;
/// The smallest window `W`, and the number of entries that are read in one decision by default.
const LEAST_WINDOW: u64 = 2_500;
/// The most turns by which a partial hit is set back: turns wrap around, and the order is lost once
/// where they do.
const MAX_SET_BACK: u64 = 1 << 30;
/// Tasks that are given a home in one search for a holderless task.
const GIVE_HOME_LOOKS: usize = 64;

impl Placement {
    /// The number of tasks that may leave the queue between two of a class. For example 2,500 with
    /// 4 executors, and 10,000 with 100.
    pub(super) fn window(&self, state: &SchedulerState) -> u64 {
        let window =
            self.window.unwrap_or_else(|| (100 * state.executors.len() as u64).max(LEAST_WINDOW));
        window.max(1)
    }

    /// Whether an executor that looks for a task searches for what it holds.
    pub(super) fn searches(&self, fallback: Fallback) -> bool {
        self.policy.places_by_data && (self.hits_first || fallback != Fallback::AnyTask)
    }

    /// The task that this executor takes, if any.
    pub(super) fn choose(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
    ) -> Option<TaskKey> {
        if let Some(task) = self.overdue_for(state, executor, level, fallback) {
            return Some(task);
        }
        if !self.policy.places_by_data {
            return self.oldest_for(state, executor, level, i32::MIN);
        }
        // A task of the highest priority that it has room for, if it may take one; otherwise any
        // that it may take.
        let mut classes = state.queue.waiting_classes().filter(|_| state.queue.has_priorities());
        let first = classes.find(|class| state.has_room(executor, *class, level));
        let floor = first.map(|class| state.queue.priority(class));
        let of_first =
            floor.and_then(|floor| self.choose_from(state, executor, level, fallback, floor));
        of_first.or_else(|| self.choose_from(state, executor, level, fallback, i32::MIN))
    }

    /// The task that this executor takes, if any is of priority `floor` or higher.
    fn choose_from(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
        floor: i32,
    ) -> Option<TaskKey> {
        if !self.searches(fallback) {
            return self.oldest_for(state, executor, level, floor);
        }
        let mut looks = self.window.unwrap_or(LEAST_WINDOW).max(1);
        let window = if self.spread { self.window(state).min(MAX_SET_BACK) as u32 } else { 1 };
        let search = TaskSearch { executor, level, floor, window };
        if let Some(task) = search::next_full_hit(state, search, &mut looks) {
            return Some(task);
        }
        let may_have = |state: &SchedulerState, task| {
            self.policy.permission(state).holder_may_take(executor, task, fallback)
        };
        search::best_partial_hit(state, search, may_have)
            .or_else(|| self.without_hit(state, executor, level, fallback, floor))
    }

    pub(super) fn without_hit(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
        floor: i32,
    ) -> Option<TaskKey> {
        match fallback {
            Fallback::AnyTask => self.oldest_for(state, executor, level, floor),
            Fallback::OnlyBestHolder => self.oldest_holderless_for(state, executor, level, floor),
            Fallback::Soonest => self
                .oldest_holderless_for(state, executor, level, floor)
                .or_else(|| self.policy.homes.as_mut()?.task_for(state, executor, level, floor)),
        }
    }

    /// The number of tasks that may leave the queue between two of a class, before any executor may
    /// take its oldest.
    pub(super) fn patience(&self, state: &SchedulerState) -> u64 {
        match self.patience {
            HolderPatience::Tasks(tasks) => tasks.max(1),
            HolderPatience::Window | HolderPatience::Unlimited => self.window(state),
        }
    }

    /// Aging: returns the oldest task of an overdue class, and marks the turn of the class as used.
    /// If patience is unlimited, the executor gets the task only if it need not leave it to
    /// another.
    pub(super) fn overdue_for(
        &self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
    ) -> Option<TaskKey> {
        let patience = self.patience(state);
        state.queue.overdue_classes(patience).next()?;
        let overdue: Vec<_> = state.queue.overdue_classes(patience).collect();
        let task = match self.patience {
            HolderPatience::Unlimited => {
                self.oldest_permitted(state, executor, level, fallback, &overdue)
            }
            _ => self.oldest_of(state, executor, level, |class| overdue.contains(&class)),
        }?;
        state.queue.note_turn(task);
        Some(task)
    }

    /// The oldest task of one of the classes, if the executor may take it and need not leave it to
    /// another.
    fn oldest_permitted(
        &self,
        state: &SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
        classes: &[ClassKey],
    ) -> Option<TaskKey> {
        let permission = self.policy.permission(state);
        let oldest = classes.iter().filter_map(|class| state.queue.waiting_in(*class).next());
        let mut takeable = oldest.filter(|task| state.may_take(executor, *task, level));
        takeable.find(|task| permission.may_take(executor, *task, fallback))
    }

    fn oldest_for(
        &self,
        state: &SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        floor: i32,
    ) -> Option<TaskKey> {
        self.oldest_of(state, executor, level, |class| state.queue.priority(class) >= floor)
    }

    /// The oldest task of such classes that the executor may take.
    fn oldest_of(
        &self,
        state: &SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        counts: impl Fn(ClassKey) -> bool,
    ) -> Option<TaskKey> {
        let classes = state.queue.waiting_classes().filter(|class| counts(*class));
        let mut roomy = classes.filter(|class| state.has_room(executor, *class, level));
        roomy.find_map(|class| {
            if state.is_constrained(class) {
                return constrained::task_for(
                    &self.policy.permission(state),
                    executor,
                    level,
                    Fallback::AnyTask,
                    class,
                );
            }
            let mut tasks = state.queue.waiting_in(class).take(HEAD_LOOKS);
            tasks.find(|task| !state.queue.has_refused(executor, *task))
        })
    }

    /// The oldest holderless task of priority `floor` or higher that the executor may take.
    fn oldest_holderless_for(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        floor: i32,
    ) -> Option<TaskKey> {
        for class in state.queue.waiting_classes() {
            if state.queue.priority(class) < floor || !state.has_room(executor, class, level) {
                continue;
            }
            if state.is_constrained(class) {
                let permission = self.policy.permission(state);
                let task = constrained::task_for(
                    &permission,
                    executor,
                    level,
                    Fallback::OnlyBestHolder,
                    class,
                );
                if task.is_some() {
                    return task;
                }
                continue;
            }
            for index in 0..HEAD_LOOKS {
                let Some(task) = self.next_holderless(state, class, index) else { break };
                if !state.queue.has_refused(executor, task) {
                    return Some(task);
                }
            }
        }
        None
    }

    /// The holderless task at that index of the class's list. Entries there of tasks that are no
    /// longer holderless are dropped. Such tasks are given a home, up to [`GIVE_HOME_LOOKS`] in one
    /// decision.
    pub(super) fn next_holderless(
        &mut self,
        state: &mut SchedulerState,
        class: ClassKey,
        index: usize,
    ) -> Option<TaskKey> {
        let mut looks = GIVE_HOME_LOOKS;
        while let Some(ticket) = self.holderless.as_ref()?.get(class, index).filter(|_| looks > 0) {
            if state.queue.is_waiting(ticket)
                && self.policy.permission(state).is_holderless(ticket.task)
            {
                return Some(ticket.task);
            }
            let waits = self.holderless.as_mut()?.drop_entry(state, class, index);
            if waits && self.policy.give_home(state, ticket) {
                let home = self.policy.home_of(ticket.task);
                if home
                    .is_some_and(|home| state.executors.is_parked(home, PlacementLevel::Lookahead))
                {
                    self.newcomers.push(ticket);
                }
                looks -= 1;
            }
        }
        None
    }
}
