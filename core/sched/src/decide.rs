//! What executors are given: each that can take work looks for some, then what is left is offered to those who found
//! none before.
//!
//! Nobody is passed over for ever: a resource class of which no task had its turn while a whole window of others left
//! the queue is overdue. Its oldest task goes before what executors hold, and where it is too large for what is free,
//! an executor takes nothing until it has room for it.

use alloc::vec::Vec;

use crate::catalog::Catalog;
use crate::estimate::Estimator;
use crate::event::Effect;
use crate::executors::{ExecutorKey, Executors, Level};
use crate::lines::Lines;
use crate::placement::Otherwise;
use crate::queue::{Class, Queue, TaskKey};
use crate::scheduler::Scheduler;
use crate::search::{self, FULL, Look};

/// Tasks looked at, of one class and from the oldest on, for one that the executor has not refused. Who has refused
/// more than so many gets none until others have taken them.
pub(crate) const HEAD_LOOKS: usize = 1024;
/// Parked executors that have room, and find nothing to take all the same, after one event.
pub(crate) const PARKED_LOOKS: usize = 64;
/// `W` of a small cluster, and entries looked at in one decision in any.
const LEAST_WINDOW: u64 = 2_500;
/// By how many turns a partial hit is set back at most: turns wrap around, and where they do the order is lost once.
const MAX_SET_BACK: u64 = 1 << 30;

impl Scheduler {
    /// Lets every executor that can take work look for some, those with a free slot first.
    pub(crate) fn place(&mut self, effects: &mut Vec<Effect>) {
        loop {
            // A free slot goes before lining a task up, even where its inputs are.
            for level in [Level::Slot, Level::Ahead] {
                self.serve_ready(level, effects);
                self.offer_choosy(level, effects);
                self.offer_newcomers(level, effects);
                self.offer_to_parked(level, effects);
            }
            // Who made way for a task that another has lined up goes on.
            if !self.executors.is_anyone_ready(Level::Slot) {
                break;
            }
        }
        self.newcomers.clear();
        self.recall(effects);
    }

    pub(crate) fn serve_ready(&mut self, level: Level, effects: &mut Vec<Effect>) {
        while let Some(by) = self.executors.next_ready(level) {
            if self.queue.waiting() == 0 {
                if self.executors[by].has_any_room() || self.queue.has_priorities() {
                    self.executors.park(by);
                }
            } else {
                self.serve(by, level, effects);
            }
        }
    }

    /// Figure 5: gives an executor tasks until it has no room, or nothing that it may take.
    fn serve(&mut self, by: ExecutorKey, level: Level, effects: &mut Vec<Effect>) {
        loop {
            let is_held_back = self.make_way(by, level);
            let has_room = !is_held_back && self.queue.waiting_classes().any(|class| self.has_room(by, class, level));
            match (has_room, level) {
                (false, Level::Slot) => return self.executors.make_ready(by, Level::Ahead),
                // Too little is free for what waits now, or it does not match; other tasks may come, also such of higher
                // priority.
                (false, Level::Ahead)
                    if !is_held_back && (self.executors[by].has_any_room() || self.queue.has_priorities()) =>
                {
                    return self.executors.park(by);
                }
                (false, Level::Ahead) => return,
                (true, _) => {}
            }
            match self.choose(by, level, self.otherwise()) {
                Some(task) => self.assign(by, task, effects),
                // The window ended the search: it goes on where it stopped.
                None if self.searches(self.otherwise()) && !self.executors[by].to_search.is_empty() => {}
                None => return self.executors.park(by),
            }
        }
    }

    /// If an overdue task is too large for what is free on the executor, it takes nothing until that has changed,
    /// unless another does so for tasks of that class. Whether it makes way.
    fn make_way(&mut self, by: ExecutorKey, level: Level) -> bool {
        if self.queue.only_class().is_some() {
            return false;
        }
        let overdue: Vec<_> = self.queue.overdue_classes(self.window()).collect();
        for class in overdue {
            let need = self.queue.need(class);
            let can_make_way = self.executors[by].is_large_enough(need) && !self.has_room(by, class, level);
            let Some(oldest) = self.queue.waiting_in(class).next().filter(|_| can_make_way) else { continue };
            let other = self.queue.way_made_by(class).filter(|other| *other != by);
            let is_others = other
                .is_some_and(|other| !search::has_refused(&self.queue, other, oldest) && self.suits(other, oldest));
            if is_others || search::has_refused(&self.queue, by, oldest) || !self.suits(by, oldest) {
                continue;
            }
            self.queue.set_way_made_by(class, by);
            if let Some(other) = other {
                self.executors.make_ready(other, Level::Slot);
            }
            return true;
        }
        false
    }

    /// Figure 4: a task that came to wait goes to the parked executor that holds the most of it. Asking all parked
    /// holders to look for themselves would wake as many as there are, for one task.
    fn offer_newcomers(&mut self, level: Level, effects: &mut Vec<Effect>) {
        for place in 0..self.newcomers.len() {
            let ticket = self.newcomers[place];
            if self.queue.is_waiting(ticket)
                && self.policy.is_data_aware()
                && !self.is_choosy(self.queue[ticket.task].class)
                && let Some(by) = self.parked_taker(ticket.task, level)
            {
                self.assign(by, ticket.task, effects);
                self.executors.make_ready(by, level);
                self.serve_ready(level, effects);
            }
        }
    }

    /// Of those parked, the one that holds the most of the task, if the policy lets it take that; else the one where it is
    /// lined up.
    pub(crate) fn parked_taker(&self, task: TaskKey, level: Level) -> Option<ExecutorKey> {
        let Scheduler { queue, catalog, executors, lines, .. } = self;
        let best = search::best_parked_holder(queue, catalog, executors, task, level);
        let best = best.filter(|(by, share)| *share == FULL || self.policy_lets(*by, task, self.otherwise()));
        let may_take = |home: &ExecutorKey| search::may_take(queue, catalog, executors, *home, task, level);
        let home = || lines.home(task).filter(|home| executors.is_parked(*home, level)).filter(may_take);
        best.map(|(by, _)| by).or_else(home)
    }

    /// Whether the executor can take a task of the class at `level`.
    pub(crate) fn has_room(&self, by: ExecutorKey, class: Class, level: Level) -> bool {
        self.executors[by].has_room(self.queue.need(class), level)
    }

    pub(crate) fn otherwise(&self) -> Otherwise {
        self.policy.otherwise(self.executors.utilisation())
    }

    /// Whether the task need not wait for another executor.
    pub(crate) fn policy_lets(&self, by: ExecutorKey, task: TaskKey, otherwise: Otherwise) -> bool {
        (otherwise == Otherwise::OnlyBestHolder && self.is_cold(task))
            || self.estimator().lets(&self.lines, otherwise, task, by)
    }

    /// What parked executors may take. Where nothing runs, waiting for a holder is waiting for nothing.
    pub(crate) fn otherwise_parked(&self) -> Otherwise {
        let nothing_runs = self.executors.utilisation().busy_milli == 0;
        if nothing_runs { Otherwise::AnyTask } else { self.otherwise() }
    }

    /// How many tasks may leave the queue between two of a class.
    fn window(&self) -> u64 {
        let window = self.config.window.unwrap_or_else(|| (100 * self.executors.len() as u64).max(LEAST_WINDOW));
        window.max(1)
    }

    /// The task that this executor shall take, if any.
    fn choose(&mut self, by: ExecutorKey, level: Level, otherwise: Otherwise) -> Option<TaskKey> {
        if let Some(task) = self.overdue_for(by, level) {
            return Some(task);
        }
        if !self.policy.is_data_aware() {
            return self.oldest_for(by, level, i32::MIN);
        }
        // Of the highest priority that it has room for, if there is one that it may take; else whatever it may.
        let mut first = self.queue.waiting_classes().filter(|_| self.queue.has_priorities());
        let first = first.find(|class| self.has_room(by, *class, level)).map(|class| self.queue.priority(class));
        let of_first = first.and_then(|floor| self.choose_from(by, level, otherwise, floor));
        of_first.or_else(|| self.choose_from(by, level, otherwise, i32::MIN))
    }

    /// Whether who looks for a task looks for what it holds.
    fn searches(&self, otherwise: Otherwise) -> bool {
        self.policy.is_data_aware() && (self.config.hits_first || otherwise != Otherwise::AnyTask)
    }

    /// The task that this executor shall take, if any is of priority `floor` or higher.
    fn choose_from(&mut self, by: ExecutorKey, level: Level, otherwise: Otherwise, floor: i32) -> Option<TaskKey> {
        if !self.searches(otherwise) {
            return self.oldest_for(by, level, floor);
        }
        let mut looks = self.config.window.unwrap_or(LEAST_WINDOW).max(1);
        let window = if self.config.spread { self.window().min(MAX_SET_BACK) as u32 } else { 1 };
        let look = Look { by, level, floor, window };
        let Scheduler { queue, catalog, executors, .. } = self;
        if let Some(task) = search::next_full_hit(queue, catalog, executors, look, &mut looks) {
            return Some(task);
        }
        let Scheduler { queue, catalog, executors, relays, run_times, lines, .. } = self;
        let may_have = |queue: &Queue, catalog: &Catalog, executors: &Executors, task| {
            Estimator { queue, catalog, executors, relays, run_times }.lets(lines, otherwise, task, by)
        };
        search::best_partial_hit(queue, catalog, executors, look, may_have)
            .or_else(|| self.without_hit(by, level, otherwise, floor))
    }

    fn without_hit(&mut self, by: ExecutorKey, level: Level, otherwise: Otherwise, floor: i32) -> Option<TaskKey> {
        match otherwise {
            Otherwise::AnyTask => self.oldest_for(by, level, floor),
            Otherwise::OnlyBestHolder => self.oldest_cold_for(by, level, floor),
            Otherwise::Soonest => {
                self.oldest_cold_for(by, level, floor).or_else(|| self.lined_up_for(by, level, floor))
            }
        }
    }

    /// Aging: the oldest task of a class that is overdue, which has its turn with that.
    fn overdue_for(&mut self, by: ExecutorKey, level: Level) -> Option<TaskKey> {
        let window = self.window();
        self.queue.overdue_classes(window).next()?;
        let overdue: Vec<_> = self.queue.overdue_classes(window).collect();
        let task = self.oldest_of(by, level, |class| overdue.contains(&class))?;
        self.queue.have_turn(task);
        Some(task)
    }

    fn oldest_for(&self, by: ExecutorKey, level: Level, floor: i32) -> Option<TaskKey> {
        self.oldest_of(by, level, |class| self.queue.priority(class) >= floor)
    }

    /// The oldest task of such classes that the executor may take.
    fn oldest_of(&self, by: ExecutorKey, level: Level, class_counts: impl Fn(Class) -> bool) -> Option<TaskKey> {
        let classes = self.queue.waiting_classes().filter(|class| class_counts(*class));
        let mut roomy = classes.filter(|class| self.has_room(by, *class, level));
        roomy.find_map(|class| match self.is_choosy(class) {
            true => self.choosy_for(by, level, Otherwise::AnyTask, class),
            false => {
                let mut tasks = self.queue.waiting_in(class).take(HEAD_LOOKS);
                tasks.find(|task| !search::has_refused(&self.queue, by, *task))
            }
        })
    }

    /// Executors that found nothing are offered what may be taken without a search: utilisation may have fallen, a
    /// task arrived of which nobody holds anything, or one has become overdue.
    fn offer_to_parked(&mut self, level: Level, effects: &mut Vec<Effect>) {
        let mut looks = PARKED_LOOKS;
        while self.queue.waiting() > 0
            && self.executors.parked(level).len() > 0
            && let Some((by, task)) = self.parked_with_task(level, &mut looks)
        {
            self.assign(by, task, effects);
            self.executors.make_ready(by, level);
            self.serve_ready(level, effects);
        }
    }

    /// An executor that is parked, and what it takes.
    fn parked_with_task(&mut self, level: Level, looks: &mut usize) -> Option<(ExecutorKey, TaskKey)> {
        let otherwise = self.otherwise_parked();
        let overdue: Vec<_> = self.queue.overdue_classes(self.window()).collect();
        for class in self.queue.waiting_classes() {
            if self.is_choosy(class) {
                continue;
            }
            let may_be_taken =
                otherwise == Otherwise::AnyTask || overdue.contains(&class) || self.next_cold(class, 0).is_some();
            let mut first = 0;
            while may_be_taken
                && *looks > 0
                && let Some((parking, by)) = self.parked_with_room(class, level, first)
            {
                if let Some(task) = self.choose_parked(by, level, otherwise) {
                    return Some((by, task));
                }
                first = parking + 1;
                *looks -= 1;
            }
        }
        self.parked_with_line(level, otherwise)
    }

    /// The executor parked longest, and what it takes out of a line. If that is nothing, it is another's turn after the next event.
    fn parked_with_line(&mut self, level: Level, otherwise: Otherwise) -> Option<(ExecutorKey, TaskKey)> {
        let by = self.executors.parked(level).next().filter(|_| otherwise == Otherwise::Soonest)?;
        let task = self.lined_up_for(by, level, i32::MIN);
        if task.is_none() {
            self.executors.park(by);
        }
        task.map(|task| (by, task))
    }

    /// What a parked executor takes. It looks for what it holds only if it may take any, and would else not be given
    /// that of which it holds the most.
    fn choose_parked(&mut self, by: ExecutorKey, level: Level, otherwise: Otherwise) -> Option<TaskKey> {
        if otherwise != Otherwise::AnyTask {
            return self.overdue_for(by, level).or_else(|| self.without_hit(by, level, otherwise, i32::MIN));
        }
        loop {
            let task = self.choose(by, level, otherwise);
            if task.is_some() || !self.searches(otherwise) || self.executors[by].to_search.is_empty() {
                return task;
            }
        }
    }

    /// Of executors parked at that number or later, the first that has room for tasks of the class. Room does not
    /// grow while an executor is parked, so each is looked at once for each class.
    pub(crate) fn parked_with_room(&mut self, class: Class, level: Level, first: u64) -> Option<(u64, ExecutorKey)> {
        let known = *self.queue.no_room_before(class, level);
        let mut parked = self.executors.parked_from(level, first.max(known));
        let found = parked.find(|(_, by)| self.has_room(*by, class, level));
        if first <= known {
            *self.queue.no_room_before(class, level) =
                found.map_or(self.executors.next_parking(), |(parking, _)| parking);
        }
        found
    }
}

impl Estimator<'_> {
    /// Whether somebody who holds an input of the task, or none, need not leave it to another executor.
    fn lets(&self, lines: &Lines, otherwise: Otherwise, task: TaskKey, by: ExecutorKey) -> bool {
        match otherwise {
            Otherwise::AnyTask => true,
            Otherwise::OnlyBestHolder => {
                !search::someone_holds_more(self.queue, self.catalog, self.executors, task, by)
            }
            Otherwise::Soonest => self.is_soonest(lines, task, by),
        }
    }
}
