//! Placement: what each executor is given. Each executor that can take work looks for some; what is
//! left is offered to executors that found none before.
//!
//! No task is passed over for ever. A class of which no task had its turn while a whole window of
//! others left the queue is overdue. Its oldest task goes before tasks whose inputs executors hold;
//! where it is too large for what is free, an executor takes nothing until it has room for it.

mod backfill;
mod choice;
mod constrained;
mod holderless;
mod homes;
mod parts;
mod permission;
mod policies;
mod search;
mod steal;

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{Estimate, PlacementPolicy};

use crate::estimate::Estimator;
use crate::event::{Config, Effect, HolderPatience, PlacementCommand};
use crate::replication::Replication;
use crate::state::{
    ClassKey, ExecutorKey, ObjectKey, PlacementLevel, SchedulerState, TaskKey, Ticket,
};
use backfill::Backfilling;
use holderless::HolderlessTasks;
pub(crate) use parts::ChosenParts;
use permission::ActivePolicy;
pub(crate) use policies::{Fallback, PlacementRules, ReplicaUse, WaitsFor, of as rules};
use steal::Stealing;

/// Parked executors that have room, and find nothing to take all the same, after one event.
const PARKED_LOOKS: usize = 64;
/// Tasks that are checked again, at most, because of replicas that one event took.
const WAKE_LOOKS: usize = 2_500;

/// Whether executors keep the inputs of tasks under the policy.
pub fn caches(policy: PlacementPolicy) -> bool {
    rules(policy, 0.0).replica_use() >= ReplicaUse::Hints
}

/// What placement decides by, and remembers from one event to the next.
pub(crate) struct Placement {
    policy: ActivePolicy,
    window: Option<u64>,
    patience: HolderPatience,
    hits_first: bool,
    spread: bool,
    /// Kept where tasks may wait for holders or homes.
    holderless: Option<HolderlessTasks>,
    backfilling: Backfilling,
    stealing: Stealing,
    /// Tasks that came to wait in this event, or whose holders went.
    newcomers: Vec<Ticket>,
}

/// Where assignments go: to executors as effects, with hints that replication plans.
pub(crate) struct AssignmentSink<'a> {
    pub replication: &'a Replication,
    pub effects: &'a mut Vec<Effect>,
}

impl Placement {
    pub fn new(rules: Box<dyn PlacementRules>, config: &Config) -> Self {
        Placement {
            holderless: (rules.waits_for() != WaitsFor::Nothing).then(HolderlessTasks::default),
            policy: ActivePolicy::new(rules, config),
            window: config.window,
            patience: config.patience,
            hits_first: config.hits_first,
            spread: config.spread,
            backfilling: Backfilling::default(),
            stealing: Stealing::default(),
            newcomers: Vec::new(),
        }
    }

    // ---- what has happened

    /// A task has come to wait.
    pub fn enqueued(&mut self, state: &mut SchedulerState, ticket: Ticket, front: bool) {
        if self.policy.places_by_data || state.is_any_constrained() {
            self.newcomers.push(ticket);
        }
        if let Some(holderless) = &mut self.holderless {
            let is_holderless = match &mut self.policy.homes {
                Some(homes) => !homes.give_home(state, ticket),
                None => self.policy.permission(state).is_holderless(ticket.task),
            };
            if is_holderless {
                holderless.list(&mut state.queue, ticket, front);
            }
        }
    }

    /// Takes a task out of the queue.
    pub fn dequeue(&mut self, state: &mut SchedulerState, task: TaskKey) {
        state.dequeue(task);
        if let Some(homes) = &mut self.policy.homes {
            homes.leave(&state.queue, task);
        }
    }

    /// An executor takes no more tasks: those whose home it was are given another one when they are
    /// looked at.
    pub fn dissolve_home(&mut self, state: &mut SchedulerState, executor: ExecutorKey) {
        let Some(homes) = &mut self.policy.homes else { return };
        let homeless = homes.dissolve(&state.queue, executor);
        if let Some(holderless) = &mut self.holderless {
            homeless
                .into_iter()
                .for_each(|ticket| holderless.list(&mut state.queue, ticket, false));
        }
    }

    /// Recalls all tasks of an executor that it has not started.
    pub fn recall_all(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        effects: &mut Vec<Effect>,
    ) {
        steal::recall_all(state, executor, effects);
    }

    /// A task of the executor has ended.
    pub fn ended_on(&mut self, state: &mut SchedulerState, executor: ExecutorKey) {
        steal::expect_started(state, executor);
    }

    /// A recalled task is back: the idle executor for which it was recalled takes it, if it still
    /// would. It might not find the task itself where tasks have homes, of which it compares a few.
    pub fn offer_returned(
        &mut self,
        state: &mut SchedulerState,
        task: TaskKey,
        sink: &mut AssignmentSink,
    ) {
        if self.policy.homes.is_some()
            && let Some(executor) = steal::idle_taker(state, &self.policy, task)
        {
            self.assign(state, executor, task, sink);
            state.executors.make_ready(executor, PlacementLevel::Slot);
        }
    }

    /// An executor is done with a task, and objects that it was fetching may not come. Other tasks
    /// may have their home there because of those.
    pub fn fetches_ended(&mut self, state: &mut SchedulerState, task: TaskKey) {
        if self.policy.homes.is_none() {
            return;
        }
        for index in 0..state.inputs(task).len() {
            let input = state.inputs(task)[index];
            self.fetch_ended(state, input);
        }
    }

    /// The same for one of the objects.
    pub fn fetch_ended(&mut self, state: &mut SchedulerState, object: ObjectKey) {
        if self.policy.homes.is_some() && state.catalog[object].holders.is_empty() {
            self.replica_gone(state, object);
        }
    }

    /// A replica of the object is gone: of the tasks that want it, some may be holderless now, and
    /// others may have another best holder, which idles.
    pub fn replica_gone(&mut self, state: &mut SchedulerState, key: ObjectKey) {
        let object = &state.catalog[key];
        let Some(holderless) = &mut self.holderless else { return };
        if object.waiting.wanted() == 0 {
            return;
        }
        let has_taker = |class: ClassKey| {
            let need = state.queue.need(class);
            let mut holders = object.holders.iter().map(|holder| &state.executors[*holder]);
            holders.any(|holder| holder.takes_tasks() && holder.is_large_enough(need))
        };
        // Nearly always there is another holder that is large enough for any class.
        let may_be_holderless =
            self.policy.has_min_cache_hit() || !state.queue.waiting_classes().all(has_taker);
        let wakes = state.executors.parked(PlacementLevel::Lookahead).len() > 0;
        let entries = match (may_be_holderless, wakes) {
            (true, _) => object.waiting.len(),
            (false, true) => WAKE_LOOKS,
            (false, false) => 0,
        };
        let tickets =
            object.waiting.tickets().take(entries).filter(|ticket| state.queue.is_waiting(*ticket));
        for ticket in tickets.collect::<Vec<_>>() {
            if may_be_holderless && self.policy.permission(state).is_holderless(ticket.task) {
                holderless.list(&mut state.queue, ticket, false);
            } else if wakes && self.newcomers.len() < WAKE_LOOKS {
                self.newcomers.push(ticket);
            }
        }
    }

    /// An executor lends processors of tasks that it stages, to tasks that read fewer than
    /// `light_bytes`.
    pub fn lend(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        lent_milli: u64,
        light_bytes: u64,
    ) {
        self.backfilling.lend(state, executor, lent_milli, light_bytes);
    }

    // ---- what is asked

    /// Where the task would be done the soonest: its home or its executor, and how soon after all
    /// other tasks there.
    pub fn estimate_at_home(
        &self,
        state: &SchedulerState,
        task: TaskKey,
    ) -> Option<(ExecutorKey, Estimate)> {
        self.policy.homes.as_ref()?.estimate(state, task)
    }

    pub fn fallback(&self, state: &SchedulerState) -> Fallback {
        self.policy.permission(state).fallback()
    }

    #[cfg(test)]
    pub fn places_by_data(&self) -> bool {
        self.policy.places_by_data
    }

    #[cfg(test)]
    pub fn is_holderless(&self, state: &SchedulerState, task: TaskKey) -> bool {
        self.policy.permission(state).is_holderless(task)
    }

    #[cfg(test)]
    pub fn is_holder(&self, state: &SchedulerState, task: TaskKey, executor: ExecutorKey) -> bool {
        !state.share_held(task, executor).is_none()
            && self.policy.permission(state).is_holder(executor, task)
    }

    #[cfg(test)]
    pub fn is_outdone(&self, state: &SchedulerState, task: TaskKey, executor: ExecutorKey) -> bool {
        search::is_outdone(state, task, executor)
    }

    #[cfg(test)]
    pub fn validate(&self, state: &SchedulerState) {
        if let Some(homes) = &self.policy.homes {
            homes.validate(&state.queue);
        }
    }

    // ---- decisions

    /// Lets every executor that can take work look for some, those with a free slot first.
    pub fn run(&mut self, state: &mut SchedulerState, sink: &mut AssignmentSink) {
        loop {
            // A free slot goes before a task in advance, even where that task's inputs are.
            for level in [PlacementLevel::Slot, PlacementLevel::Lookahead] {
                self.serve_ready(state, level, sink);
                self.offer_constrained(state, level, sink);
                self.offer_newcomers(state, level, sink);
                self.offer_to_parked(state, level, sink);
            }
            // An executor that was reserved for a task goes on when another executor has taken it.
            if !state.executors.is_any_ready(PlacementLevel::Slot) {
                break;
            }
        }
        self.newcomers.clear();
        self.stealing.steal(state, &self.policy, sink.effects);
        for executor in self.backfilling.lenders(state) {
            while let Some(task) = self.backfilling.task_for(state, executor) {
                self.assign(state, executor, task, sink);
            }
        }
    }

    fn assign(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        task: TaskKey,
        sink: &mut AssignmentSink,
    ) {
        self.dequeue(state, task);
        let estimate = (self.policy.homes.is_some() && !state.inputs(task).is_empty())
            .then(|| Estimator::new(state).behind_assigned(task, executor));
        let attempt = state.assign(executor, task, estimate);
        let in_parts = state.queue[task].inputs.sample().is_some();
        let hints = match in_parts {
            true => {
                sink.replication.plan_sample(state, executor, task);
                Box::default()
            }
            false => sink.replication.hints(state, executor, task),
        };
        let (executor, task) = (state.executors[executor].id, state.queue[task].id);
        sink.effects.push(Effect::Command(PlacementCommand::Assign {
            executor,
            task,
            attempt,
            hints,
            in_parts,
        }));
    }

    /// Assigns a task to an executor that was parked, which then looks for more. If it was the only
    /// task that waited, there is nothing to find, and the executor may stay parked where it is.
    fn assign_parked(
        &mut self,
        state: &mut SchedulerState,
        (executor, task): (ExecutorKey, TaskKey),
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        self.assign(state, executor, task, sink);
        let is_last = state.queue.waiting() == 0 && state.inputs(task).is_empty();
        if is_last && level == PlacementLevel::Lookahead && state.executors.continues_turn(executor)
        {
            return;
        }
        state.executors.make_ready(executor, level);
        self.serve_ready(state, level, sink);
    }

    fn serve_ready(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        while let Some(executor) = state.executors.next_ready(level) {
            if state.queue.waiting() > 0 {
                self.serve(state, executor, level, sink);
            } else if state.executors[executor].has_any_room() || state.queue.has_priorities() {
                state.executors.park(executor);
            }
        }
    }

    /// Figure 5: gives an executor tasks until it has no room, or finds nothing that it may take.
    fn serve(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        loop {
            let is_reserved = self.reserve(state, executor, level);
            let has_room = !is_reserved
                && state
                    .queue
                    .waiting_classes()
                    .any(|class| state.has_room(executor, class, level));
            if !has_room {
                if level == PlacementLevel::Slot {
                    state.executors.make_ready(executor, PlacementLevel::Lookahead);
                } else if !is_reserved
                    && (state.executors[executor].has_any_room() || state.queue.has_priorities())
                {
                    // Too little is free for the tasks that wait now, or they do not match. Other
                    // tasks may come, also of higher priority.
                    state.executors.park(executor);
                }
                return;
            }
            let fallback = self.fallback(state);
            match self.choose(state, executor, level, fallback) {
                Some(task) => self.assign(state, executor, task, sink),
                // The window ended the search: it goes on where it stopped.
                None if self.searches(fallback) && !state.executors[executor].agenda.is_empty() => {
                }
                None => return state.executors.park(executor),
            }
        }
    }

    /// If an overdue task is too large for what is free on the executor, the executor takes nothing
    /// until that has changed, unless another one is reserved for tasks of that class. Whether the
    /// executor is reserved. For example an executor with 4 processors runs two tasks with 2 each,
    /// and an overdue task needs 4: the executor is given no other task until both have ended.
    fn reserve(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
    ) -> bool {
        if state.queue.only_class().is_some() {
            return false;
        }
        let overdue: Vec<_> = state.queue.overdue_classes(self.window(state)).collect();
        for class in overdue {
            let could_make_room = state.executors[executor]
                .is_large_enough(state.queue.need(class))
                && !state.has_room(executor, class, level);
            let Some(oldest) = state.queue.waiting_in(class).next().filter(|_| could_make_room)
            else {
                continue;
            };
            let may_have = |executor| {
                !state.queue.has_refused(executor, oldest) && state.suits(executor, oldest)
            };
            let other = state.queue.reserved_executor(class).filter(|other| *other != executor);
            if other.is_some_and(may_have) || !may_have(executor) {
                continue;
            }
            state.queue.reserve(class, executor);
            if let Some(other) = other {
                state.executors.make_ready(other, PlacementLevel::Slot);
            }
            return true;
        }
        false
    }

    /// Gives constrained tasks to the best of the parked executors.
    fn offer_constrained(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        let mut looks = constrained::EXECUTOR_LOOKS;
        while state.is_any_constrained()
            && let Some(pair) = self.constrained_pair(state, level, &mut looks)
        {
            self.assign_parked(state, pair, level, sink);
        }
    }

    fn constrained_pair(
        &self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        looks: &mut usize,
    ) -> Option<(ExecutorKey, TaskKey)> {
        let tasks = constrained::tasks_to_match(state, &self.newcomers, level);
        let permission = self.policy.permission(state);
        for task in tasks {
            if *looks == 0 {
                break;
            }
            if let Some(executor) = constrained::best_match(&permission, task, level, looks) {
                return Some((executor, task));
            }
        }
        None
    }

    /// Figure 4: a task that came to wait goes to the parked executor that holds the most of it. If
    /// all parked holders looked for themselves instead, one task would wake all of them.
    fn offer_newcomers(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        for index in 0..self.newcomers.len() {
            let ticket = self.newcomers[index];
            if state.queue.is_waiting(ticket)
                && !state.is_constrained(state.queue[ticket.task].class)
                && let Some(executor) =
                    self.policy.permission(state).parked_taker(ticket.task, level)
            {
                self.assign_parked(state, (executor, ticket.task), level, sink);
            }
        }
    }

    /// Executors that found nothing are offered what may be taken without a search: utilisation may
    /// have fallen, a task may have come of which no executor holds anything, or a class may have
    /// become overdue.
    fn offer_to_parked(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        sink: &mut AssignmentSink,
    ) {
        let mut looks = PARKED_LOOKS;
        while state.queue.waiting() > 0
            && state.executors.parked(level).len() > 0
            && let Some(pair) = self.parked_with_task(state, level, &mut looks)
        {
            self.assign_parked(state, pair, level, sink);
        }
    }

    /// An executor that is parked, and the task that it takes.
    fn parked_with_task(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        looks: &mut usize,
    ) -> Option<(ExecutorKey, TaskKey)> {
        let fallback = self.policy.permission(state).fallback_of_parked();
        let overdue: Vec<_> = state.queue.overdue_classes(self.patience(state)).collect();
        for class in state.queue.waiting_classes() {
            if state.is_constrained(class) {
                continue;
            }
            let may_be_taken = fallback == Fallback::AnyTask
                || overdue.contains(&class)
                || self.next_holderless(state, class, 0).is_some();
            let mut first = 0;
            while may_be_taken
                && *looks > 0
                && let Some((parking, executor)) = state.parked_with_room(class, level, first)
            {
                if let Some(task) = self.choose_parked(state, executor, level, fallback) {
                    return Some((executor, task));
                }
                first = parking + 1;
                *looks -= 1;
            }
        }
        self.parked_with_home_task(state, level, fallback)
    }

    /// The executor that is parked the longest, and a task that it takes from a home. If it takes
    /// none, another executor has its turn after the next event.
    fn parked_with_home_task(
        &mut self,
        state: &mut SchedulerState,
        level: PlacementLevel,
        fallback: Fallback,
    ) -> Option<(ExecutorKey, TaskKey)> {
        let executor =
            state.executors.parked(level).next().filter(|_| fallback == Fallback::Soonest)?;
        let task = self.policy.homes.as_mut()?.task_for(state, executor, level, i32::MIN);
        if task.is_none() {
            state.executors.park(executor);
        }
        task.map(|task| (executor, task))
    }

    /// The task that a parked executor takes. It searches for what it holds only if it may take any
    /// task: otherwise it would have been offered the task of which it holds the most.
    fn choose_parked(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        level: PlacementLevel,
        fallback: Fallback,
    ) -> Option<TaskKey> {
        if fallback != Fallback::AnyTask {
            let overdue = self.overdue_for(state, executor, level, fallback);
            return overdue
                .or_else(|| self.without_hit(state, executor, level, fallback, i32::MIN));
        }
        loop {
            let task = self.choose(state, executor, level, fallback);
            if task.is_some()
                || !self.searches(fallback)
                || state.executors[executor].agenda.is_empty()
            {
                return task;
            }
        }
    }
}
