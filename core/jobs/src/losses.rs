//! An executor is gone, or is ended: for which of its tasks that counts, and how a task fails for
//! which it has counted too often.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, Outcome, Resources, TaskId, units};

use crate::job::Job;
use crate::job_table::JobTable;
use crate::log::Entry;
use crate::queueing::ReadyQueue;
use crate::step::JobsStep;

/// A task fails after this many executors were lost while it may have run on them.
pub const MAX_LOSSES: u16 = 5;
/// A task fails after this many executors were ended in good order while it ran on them.
pub const MAX_INTERRUPTIONS: u8 = 8;

/// How a task ends whose executor was lost, if it has lost too many. `name` is that executor's.
pub(crate) fn end_by_losses(losses: u16, name: &str) -> Option<Outcome> {
    let reason = format!("{MAX_LOSSES} executors were lost while they had it, the last was {name}");
    (losses >= MAX_LOSSES).then(|| Outcome::failed(FailureKind::Node, reason))
}

/// How a task ends whose executor was ended while the task ran, if that has happened too often.
/// `name` is that executor's.
pub(crate) fn end_by_interruptions(
    interrupted: u8,
    name: &str,
    ran_us: Option<u64>,
) -> Option<Outcome> {
    if interrupted < MAX_INTERRUPTIONS {
        return None;
    }
    let reason = format!(
        "it was started {MAX_INTERRUPTIONS} times, and its node was ended each time, the last \
         time {name} after {} of the task: a node of a pool ends at its --time-limit, so give \
         the pool a longer one, or make the task shorter",
        units::format_duration_us(ran_us.unwrap_or_default())
    );
    Some(Outcome::failed(FailureKind::Node, reason))
}

/// Counts the starts of tasks that were in vain, so that they are bounded also if the dispatcher
/// starts again.
pub(crate) fn note_restarts(
    tasks: &BTreeSet<TaskId>,
    is_loss: bool,
    (jobs, queue): (&mut JobTable, &mut ReadyQueue),
    step: &mut JobsStep,
) {
    let in_order: Vec<TaskId> = tasks.iter().copied().collect();
    for of_job in in_order.chunk_by(|one, other| one.job == other.job) {
        let id: JobId = of_job[0].job;
        let Some(job) = jobs.get_mut(id) else { continue };
        let tasks: Vec<u32> = of_job.iter().map(|task| task.index).collect();
        tasks.iter().for_each(|index| job.tasks.count_restart(*index, is_loss));
        if !job.spec.is_attached {
            // Results that have gathered have their places in the journal already.
            jobs.flush(queue, step);
            jobs.write_entry(id, Entry::Restarted { tasks, is_loss }, step);
        }
    }
}

/// Which of an executor's tasks may have run. In the order of priority, then of assignment, these
/// are the tasks that fit together into the resources that it `had`; suspended tasks take no
/// processors. The other tasks were still waiting there, and did not cause the loss. For example,
/// of tasks that need 2, 3 and 1 of 4 processors, the first and the third.
pub(crate) fn may_have_run(
    jobs: &JobTable,
    tasks: &[TaskId],
    had: Resources,
    suspended: &BTreeSet<TaskId>,
) -> BTreeSet<TaskId> {
    let of = |task: &TaskId| Some((jobs.get(task.job)?, *task));
    let mut in_order: Vec<(&Job, TaskId)> = tasks.iter().filter_map(of).collect();
    in_order.sort_by_key(|(job, task)| {
        (Reverse(job.template_at(task.index).priority), job.assigned_at(task.index))
    });
    let mut free = had;
    let of_suspended = in_order.iter().filter(|(_, task)| suspended.contains(task));
    let lent_milli: u64 = of_suspended
        .map(|(job, task)| u64::from(job.template_at(task.index).resources.cpus_milli))
        .sum();
    free.cpus_milli = u32::try_from(u64::from(free.cpus_milli) + lent_milli).unwrap_or(u32::MAX);
    let fits = |(job, task): &(&Job, TaskId)| {
        let need = &job.template_at(task.index).resources;
        let fits = free.covers(need);
        if fits {
            free.take(need);
        }
        fits
    };
    in_order.into_iter().filter(fits).map(|(_, task)| task).collect()
}
