//! An executor is gone, or is ended: for which of its tasks that counts, and which tasks run again.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::outcome::FailureKind;
use eyas_types::{Ended, ExecutorId, Outcome, Resources, Status, TaskId, units};

use crate::event::{Effect, SchedulerOrder};
use crate::job::Job;
use crate::jobs::Jobs;
use crate::log::Entry;

/// A task fails after this many executors were lost while it may have run on them.
pub const MAX_LOSSES: u16 = 5;
/// A task fails after this many executors were ended in good order while it ran on them.
pub const MAX_INTERRUPTIONS: u8 = 8;

impl Jobs {
    /// An executor is gone. If it was lost, with the resources `lost_with`, one of its tasks may be
    /// the cause.
    pub(crate) fn executor_gone(
        &mut self,
        executor: ExecutorId,
        tasks: &[TaskId],
        lost_with: Option<Resources>,
        suspended: &BTreeSet<TaskId>,
    ) {
        let name = self.executors.remove(&executor).unwrap_or_default();
        self.health.forget(executor);
        self.lineage.gone(executor);
        self.reuse.lost(executor);
        self.send_checks();
        if !tasks.is_empty() {
            // Ends below leave room on it, which is not to be filled.
            self.effects.push(Effect::Order(SchedulerOrder::Drain { executor }));
        }
        let suspects =
            lost_with.map(|had| self.may_have_run(tasks, had, suspended)).unwrap_or_default();
        self.note_restarts(&suspects, true);
        for task in tasks {
            let Some(job) = self.jobs.get_mut(&task.job) else { continue };
            let state = &job.tasks[task.index as usize];
            let outcome = if job.cancelling.contains(&task.index) {
                Outcome::of(Status::Cancelled)
            } else if state.losses >= MAX_LOSSES {
                let reason = format!(
                    "{MAX_LOSSES} executors were lost while they had it, the last was {name}"
                );
                Outcome::failed(FailureKind::Node, reason)
            } else {
                job.unassigned(task.index);
                continue;
            };
            self.effects.push(Effect::Order(SchedulerOrder::Drop { task: *task }));
            self.end(*task, 0, name.clone(), outcome);
        }
        self.effects.push(Effect::Order(SchedulerOrder::Left { executor }));
    }

    /// A task has ended because its executor was ended. It starts again where it has more time than
    /// it has run.
    pub(crate) fn interrupted(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        attempt: u32,
        ran_us: u64,
    ) {
        // Its end leaves room there, which is not to be filled.
        self.effects.push(Effect::Order(SchedulerOrder::Drain { executor }));
        let ran_us = Some(ran_us).filter(|ran_us| *ran_us > 0);
        if ran_us.is_some() {
            // What had not begun was not interrupted.
            self.note_restarts(&BTreeSet::from([task]), false);
        }
        let interrupted =
            self.jobs.get(&task.job).map_or(0, |job| job.tasks[task.index as usize].interrupted);
        if interrupted < MAX_INTERRUPTIONS {
            return self.put_back(executor, task, Ended::Interrupted, ran_us);
        }
        let name = self.name_of(executor);
        let reason = format!(
            "it was started {MAX_INTERRUPTIONS} times, and its node was ended each time, the last \
             time {name} after {} of the task: a node of a pool ends at its --time-limit, so give \
             the pool a longer one, or make the task shorter",
            units::format_duration_us(ran_us.unwrap_or_default())
        );
        self.effects.push(Effect::Order(SchedulerOrder::Done {
            executor,
            task,
            ended: Ended::Finished,
            ran_us: None,
        }));
        self.end(task, attempt, name, Outcome::failed(FailureKind::Node, reason));
    }

    /// Counts the starts of tasks that were in vain, so that they are bounded also if the
    /// dispatcher starts again.
    fn note_restarts(&mut self, tasks: &BTreeSet<TaskId>, is_loss: bool) {
        for of_job in
            tasks.iter().copied().collect::<Vec<_>>().chunk_by(|one, other| one.job == other.job)
        {
            let id = of_job[0].job;
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let tasks: Vec<u32> = of_job.iter().map(|task| task.index).collect();
            tasks.iter().for_each(|index| job.tasks.count_restart(*index, is_loss));
            if !job.spec.is_attached {
                // Results that have gathered have their places in the journal already.
                self.flush();
                self.write_entry(id, Entry::Restarted { tasks, is_loss });
            }
        }
    }

    /// Which of an executor's tasks may have run. In the order of priority, then of assignment,
    /// these are the tasks that fit together into the resources that it `had`; suspended tasks take
    /// no processors. The other tasks were still waiting there, and did not cause the loss. For
    /// example, of tasks that need 2, 3 and 1 of 4 processors, the first and the third.
    fn may_have_run(
        &self,
        tasks: &[TaskId],
        had: Resources,
        suspended: &BTreeSet<TaskId>,
    ) -> BTreeSet<TaskId> {
        let of = |task: &TaskId| Some((self.jobs.get(&task.job)?, *task));
        let mut in_order: Vec<(&Job, TaskId)> = tasks.iter().filter_map(of).collect();
        in_order.sort_by_key(|(job, task)| {
            (Reverse(job.template_at(task.index).priority), job.assigned_at(task.index))
        });
        let mut free = had;
        let of_suspended = in_order.iter().filter(|(_, task)| suspended.contains(task));
        let lent_milli: u64 = of_suspended
            .map(|(job, task)| u64::from(job.template_at(task.index).resources.cpus_milli))
            .sum();
        free.cpus_milli =
            u32::try_from(u64::from(free.cpus_milli) + lent_milli).unwrap_or(u32::MAX);
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

    /// Ends tasks of a job that was read from the journal: tasks whose cancellation was under way,
    /// and tasks whose producers failed before their own end was written.
    pub(crate) fn end_what_cannot_go_on(
        &mut self,
        id: eyas_types::JobId,
        cancelled: &BTreeSet<u32>,
        hopeless: &[u32],
    ) {
        for index in cancelled {
            self.end(
                TaskId { job: id, index: *index },
                0,
                String::new(),
                Outcome::of(Status::Cancelled),
            );
        }
        for index in hopeless {
            let task = TaskId { job: id, index: *index };
            if self.phase(task) == Some(crate::job::Phase::Blocked) {
                let reason = "it needs the output of a task that did not succeed";
                self.end(task, 0, String::new(), Outcome::failed(FailureKind::Dependency, reason));
            }
        }
    }
}
