//! Constrained tasks: tasks for which it depends on the moment which executors may take them, or
//! which is the best. Their class has a rank, or requires attributes of one task or of the moment;
//! or an executor accepts tasks by such attributes; or some node's disk has too little room for the
//! largest of them.
//!
//! They are matched by looking: at a few tasks of each constrained class, and for each at all
//! parked executors. The cost is bounded by [`TASK_LOOKS`] and [`EXECUTOR_LOOKS`], and it is one
//! comparison where nothing is constrained. All other tasks are found by [search](super::search),
//! and never evaluate an expression.
//!
//! Looks begin at the oldest tasks in one event, and elsewhere in the next, so that tasks which no
//! executor suits never hide a task that an executor suits.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::permission::Permission;
use super::policies::Fallback;
use crate::state::{
    ClassKey, ExecutorKey, LocalShare, Pairing, PlacementLevel, SchedulerState, TaskKey, Ticket,
};

/// Tasks of a class that are looked at in one decision: this many of the oldest, and as many from
/// elsewhere.
const TASK_LOOKS: usize = 32;
/// Executors that are looked at after one event, before the last task that is looked at; for that
/// task, all that are parked. For example, with 50 parked executors, three tasks are looked at.
pub(super) const EXECUTOR_LOOKS: usize = 128;

/// Constrained tasks to look at, in order: those that came in this event, then some of each class
/// for which a parked executor has room.
pub(super) fn tasks_to_match(
    state: &mut SchedulerState,
    newcomers: &[Ticket],
    level: PlacementLevel,
) -> Vec<TaskKey> {
    if state.queue.waiting() == 0 || state.executors.parked(level).len() == 0 {
        return Vec::new();
    }
    let newcomers = newcomers.iter().filter(|ticket| state.queue.is_waiting(**ticket));
    let mut tasks: Vec<_> = newcomers.map(|ticket| ticket.task).collect();
    tasks.retain(|task| state.is_constrained(state.queue[*task].class));
    let mut classes: Vec<_> =
        state.queue.waiting_classes().filter(|class| state.is_constrained(*class)).collect();
    let oldest_first = state.events.is_multiple_of(2);
    // Nor does a class hide another class of its priority.
    let first = state.events as usize % classes.len().max(1);
    classes.rotate_left(first);
    classes.sort_by_key(|class| Reverse(state.queue.priority(*class)));
    classes.retain(|class| state.parked_with_room(*class, level, 0).is_some());
    tasks.retain(|task| classes.contains(&state.queue[*task].class));
    tasks.extend(classes.into_iter().flat_map(|class| some_of(state, class, oldest_first)));
    tasks
}

/// Of the parked executors that suit the task and may take it by the policy, the one with the
/// highest rank; of equals the one that holds the most of it, and of those the one that is parked
/// the longest. For example one with rank 2 that holds nothing goes before one with rank 1 that
/// holds all.
pub(super) fn best_match(
    permission: &Permission,
    task: TaskKey,
    level: PlacementLevel,
    looks: &mut usize,
) -> Option<ExecutorKey> {
    let state = permission.state;
    let fallback = permission.fallback_of_parked();
    let mut best: Option<(f64, LocalShare, ExecutorKey)> = None;
    for executor in state.executors.parked(level) {
        *looks = looks.saturating_sub(1);
        if !state.may_take(executor, task, level) {
            continue;
        }
        let share = permission.share_held(task, executor);
        let takes = share.is_full() || permission.may_take(executor, task, fallback);
        let rank = Pairing::of_task(state, executor, task).rank();
        if takes && best.is_none_or(|(highest, most, _)| (rank, share) > (highest, most)) {
            best = Some((rank, share, executor));
        }
    }
    best.map(|(_, _, executor)| executor)
}

/// A task of a constrained class that the executor may take, preferably an old one.
pub(super) fn task_for(
    permission: &Permission,
    executor: ExecutorKey,
    level: PlacementLevel,
    fallback: Fallback,
    class: ClassKey,
) -> Option<TaskKey> {
    some_of(permission.state, class, true).into_iter().find(|task| {
        permission.state.may_take(executor, *task, level)
            && permission.may_take(executor, *task, fallback)
    })
}

/// The oldest waiting tasks of a class, and some from elsewhere.
fn some_of(state: &SchedulerState, class: ClassKey, oldest_first: bool) -> Vec<TaskKey> {
    let mut oldest: Vec<_> = state.queue.waiting_in(class).take(TASK_LOOKS).collect();
    let mut others = state.queue.waiting_from(class, state.events, TASK_LOOKS);
    others.retain(|task| !oldest.contains(task));
    if oldest_first {
        oldest.append(&mut others);
        oldest
    } else {
        others.append(&mut oldest);
        others
    }
}
