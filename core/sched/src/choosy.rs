//! Choosy tasks: those for which it depends on the moment who may take them, or who is the best to. Their class has a
//! rank, or requires something of the moment; or an executor accepts by such; or some node's disk has too little room
//! for the largest of them.
//!
//! They are found by looking: at a few tasks of each choosy class, and for each at everybody who is free. What that
//! costs is bounded by [`TASK_LOOKS`] and [`EXECUTOR_LOOKS`], and where nobody is choosy it is one comparison. All
//! other tasks go the ways of [`search`] and never meet an expression.
//!
//! Looks begin at the oldest tasks in one event, and at others in the next, so that those which suit nobody hide no
//! task that suits somebody for ever.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::catalog::Catalog;
use crate::event::Effect;
use crate::executors::{ExecutorKey, Executors, Level};
use crate::matchmaking::Meeting;
use crate::placement::Otherwise;
use crate::queue::{Class, Queue, TaskKey};
use crate::scheduler::Scheduler;
use crate::search::{self, FULL};

/// Tasks of a class that are looked at in one decision: so many of the oldest, and as many from elsewhere.
const TASK_LOOKS: usize = 32;
/// Executors that are looked at after one event, before the last task that is looked at; for that task, all that are
/// free.
const EXECUTOR_LOOKS: usize = 128;

/// Whether it depends on the moment who may take tasks of the class, or who is the best to.
pub(crate) fn is_choosy(queue: &Queue, executors: &Executors, class: Class) -> bool {
    let need = queue.need(class);
    need.is_choosy || executors.is_anyone_choosy() || need.most_bytes > executors.least_free_disk_bytes()
}

/// Whether there may be a class that is choosy.
fn is_any_choosy(queue: &Queue, executors: &Executors) -> bool {
    queue.has_choosy() || executors.is_anyone_choosy() || queue.most_bytes() > executors.least_free_disk_bytes()
}

/// Whether the task and the executor, which is large enough for its class, suit each other at this moment.
pub(crate) fn suits(queue: &Queue, catalog: &Catalog, executors: &Executors, by: ExecutorKey, task: TaskKey) -> bool {
    !is_choosy(queue, executors, queue[task].class) || Meeting::of_task(queue, catalog, executors, by, task).suits_now()
}

impl Scheduler {
    pub(crate) fn is_any_choosy(&self) -> bool {
        is_any_choosy(&self.queue, &self.executors)
    }

    pub(crate) fn is_choosy(&self, class: Class) -> bool {
        is_choosy(&self.queue, &self.executors, class)
    }

    pub(crate) fn suits(&self, by: ExecutorKey, task: TaskKey) -> bool {
        suits(&self.queue, &self.catalog, &self.executors, by, task)
    }

    /// Gives choosy tasks to the best of those who are free.
    pub(crate) fn offer_choosy(&mut self, level: Level, effects: &mut Vec<Effect>) {
        let mut looks = EXECUTOR_LOOKS;
        while self.is_any_choosy()
            && let Some((by, task)) = self.choosy_pair(level, &mut looks)
        {
            self.assign(by, task, effects);
            self.executors.make_ready(by, level);
            self.serve_ready(level, effects);
        }
    }

    fn choosy_pair(&mut self, level: Level, looks: &mut usize) -> Option<(ExecutorKey, TaskKey)> {
        if self.queue.waiting() == 0 || self.executors.parked(level).len() == 0 {
            return None;
        }
        let newcomers = self.newcomers.iter().filter(|ticket| self.queue.is_waiting(**ticket));
        let mut tasks: Vec<_> = newcomers.map(|ticket| ticket.task).collect();
        tasks.retain(|task| self.is_choosy(self.queue[*task].class));
        let mut classes: Vec<_> = self.queue.waiting_classes().filter(|class| self.is_choosy(*class)).collect();
        let oldest_first = self.events.is_multiple_of(2);
        // Nor does a class hide another of its priority.
        let first = self.events as usize % classes.len().max(1);
        classes.rotate_left(first);
        classes.sort_by_key(|class| Reverse(self.queue.priority(*class)));
        classes.retain(|class| self.parked_with_room(*class, level, 0).is_some());
        tasks.retain(|task| classes.contains(&self.queue[*task].class));
        tasks.extend(classes.into_iter().flat_map(|class| self.some_of(class, oldest_first)));
        for task in tasks {
            if *looks == 0 {
                break;
            }
            if let Some(by) = self.best_match(task, level, looks) {
                return Some((by, task));
            }
        }
        None
    }

    /// Of those parked who suit the task and whom the policy lets take it, the one with the highest rank; of equals the
    /// one that holds the most of it, and of those the one parked longest.
    pub(crate) fn best_match(&self, task: TaskKey, level: Level, looks: &mut usize) -> Option<ExecutorKey> {
        let Scheduler { queue, catalog, executors, .. } = self;
        let otherwise = self.otherwise_parked();
        let mut best: Option<(f64, u16, ExecutorKey)> = None;
        for by in executors.parked(level) {
            *looks = looks.saturating_sub(1);
            if !search::may_take(queue, catalog, executors, by, task, level) {
                continue;
            }
            let share = if self.policy.is_data_aware() {
                search::share_held(queue, catalog, executors, task, by)
            } else {
                FULL
            };
            let takes = share == FULL || self.policy_lets(by, task, otherwise);
            let rank = Meeting::of_task(queue, catalog, executors, by, task).rank();
            if takes && best.is_none_or(|(highest, most, _)| (rank, share) > (highest, most)) {
                best = Some((rank, share, by));
            }
        }
        best.map(|(_, _, by)| by)
    }

    /// A task of a choosy class that the executor may take, an old one if it can be.
    pub(crate) fn choosy_for(
        &self,
        by: ExecutorKey,
        level: Level,
        otherwise: Otherwise,
        class: Class,
    ) -> Option<TaskKey> {
        let Scheduler { queue, catalog, executors, .. } = self;
        self.some_of(class, true).into_iter().find(|task| {
            search::may_take(queue, catalog, executors, by, *task, level) && self.policy_lets(by, *task, otherwise)
        })
    }

    /// The oldest waiting tasks of a class, and others.
    fn some_of(&self, class: Class, oldest_first: bool) -> Vec<TaskKey> {
        let mut oldest: Vec<_> = self.queue.waiting_in(class).take(TASK_LOOKS).collect();
        let mut others = self.queue.waiting_from(class, self.events, TASK_LOOKS);
        others.retain(|task| !oldest.contains(task));
        if oldest_first {
            oldest.append(&mut others);
            oldest
        } else {
            others.append(&mut oldest);
            others
        }
    }
}
