//! What the end of a try means: whether the task is tried again, and what its dependents do.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::{Ended, ExecutorId, Outcome, PlaceId, Status, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::health::is_quick;
use crate::job::{FreedTasks, Job, Phase};
use crate::jobs::Jobs;

impl Jobs {
    /// Whether the task is assigned to this executor.
    pub fn has(&self, executor: ExecutorId, task: TaskId) -> bool {
        let state = self.jobs.get(&task.job).and_then(|job| job.tasks.get(task.index as usize));
        state
            .is_some_and(|state| state.phase == Phase::Assigned && state.executor == Some(executor))
    }

    /// Whether a task that was assigned is to be cancelled.
    fn is_cancelling(&self, task: TaskId) -> bool {
        self.jobs.get(&task.job).is_some_and(|job| job.cancelling.contains(&task.index))
    }

    /// The executor has done with a task, which goes back to waiting.
    pub(crate) fn put_back(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        ended: Ended,
        ran_us: Option<u64>,
    ) {
        if let Some(job) = self.jobs.get_mut(&task.job) {
            job.unassigned(task.index);
        }
        self.effects.push(Effect::Order(SchedulerOrder::Done { executor, task, ended, ran_us }));
    }

    /// A task's outputs are about to appear at these places.
    pub(crate) fn claim(&mut self, executor: ExecutorId, task: TaskId, places: Vec<PlaceId>) {
        if self.has(executor, task)
            && let Some(job) = self.jobs.get_mut(&task.job)
        {
            let by_other = job.claim(task.index, places).err();
            self.effects.push(Effect::Action(JobsAction::Claimed { executor, task, by_other }));
        }
    }

    pub(crate) fn task_returned(&mut self, executor: ExecutorId, task: TaskId, attempt: u32) {
        if !self.has(executor, task) {
            return;
        }
        if self.is_cancelling(task) {
            self.effects.push(Effect::Order(SchedulerOrder::Done {
                executor,
                task,
                ended: Ended::Finished,
                ran_us: None,
            }));
            self.end(task, attempt, String::new(), Outcome::of(Status::Cancelled));
        } else {
            self.put_back(executor, task, Ended::Returned, None);
        }
    }

    pub(crate) fn task_ended(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        attempt: u32,
        outcome: Outcome,
    ) {
        if !self.has(executor, task) {
            return;
        }
        let is_cancelling = self.is_cancelling(task);
        if outcome.status == Status::Cancelled && !is_cancelling {
            // No user cancelled it: its executor has stopped or was killed with it, and another
            // will run it.
            return self.interrupted(executor, task, attempt, outcome.ran_us);
        }
        let is_lost =
            matches!(&outcome.status, Status::Failed(Failure { kind: FailureKind::Lost, .. }));
        if is_lost && !is_cancelling {
            return self.starved(executor, task, attempt, outcome);
        }
        if !is_cancelling {
            let set_aside = self.health.ended(executor, task, &outcome, self.now_us);
            for executor in set_aside {
                self.effects.push(Effect::Order(SchedulerOrder::SetAside { executor }));
                self.effects.push(Effect::Action(JobsAction::SetAside { executor }));
            }
        }
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let retries = job.template_at(task.index).retries;
        let state = job.tasks.get_mut(task.index);
        let ended = match &outcome.status {
            _ if is_cancelling => Ended::Finished,
            Status::Failed(Failure {
                kind: kind @ (FailureKind::Node | FailureKind::NodeFull),
                reason,
            }) => {
                self.refusals.refused(task, reason, *kind == FailureKind::NodeFull);
                Ended::Refused
            }
            status if status.is_retryable() && u32::from(state.failures) < retries => {
                state.failures += 1;
                if is_quick(&outcome) { Ended::Elsewhere } else { Ended::Again }
            }
            _ => Ended::Finished,
        };
        // What never started says nothing of how long such tasks run.
        let has_run = outcome.status == Status::Succeeded || outcome.ran_us > 0;
        let ran_us = has_run.then_some(outcome.ran_us);
        if ended == Ended::Finished {
            let name = self.name_of(executor);
            // The scheduler hears of it first, so that a dependent finds the slot free.
            self.effects.push(Effect::Order(SchedulerOrder::Done {
                executor,
                task,
                ended,
                ran_us,
            }));
            self.end_on(Some(executor), task, attempt, name, outcome);
        } else {
            self.put_back(executor, task, ended, ran_us);
        }
    }

    /// Every executor that is large enough for the task has refused it.
    pub(crate) fn unplaceable(&mut self, task: TaskId) {
        if let Err(why) = self.refusals.by_all(task, self.now_us) {
            self.end(
                task,
                0,
                String::new(),
                Outcome::failed(FailureKind::Unplaceable, why.to_string()),
            );
        }
    }

    /// A task has ended for good, which may set others free, or leave them without what they wait
    /// for.
    pub(crate) fn end(&mut self, task: TaskId, attempt: u32, executor: String, outcome: Outcome) {
        self.end_on(None, task, attempt, executor, outcome);
    }

    /// The same, on an executor that is there.
    fn end_on(
        &mut self,
        on: Option<ExecutorId>,
        task: TaskId,
        attempt: u32,
        executor: String,
        outcome: Outcome,
    ) {
        let mut ends = vec![(task.index, attempt, executor, outcome)];
        while let Some((index, attempt, executor, mut outcome)) = ends.pop() {
            let task = TaskId { index, ..task };
            if self.phase(task).is_none_or(Phase::has_ended) {
                continue;
            }
            let lacked_room = self.keep_output(task.job, &mut outcome);
            let now_us = self.now_us;
            let Some(job) = self.jobs.get_mut(&task.job) else { return };
            job.recorded.lacked_output_room |= lacked_room;
            let cancelled = outcome.status == Status::Cancelled;
            self.refusals.forget(task);
            let before: Vec<_> = job.kept_by(index).map(|(object, _)| object).collect();
            let FreedTasks { ready, hopeless, replaced } =
                job.ended(now_us, index, attempt, executor, outcome);
            if !replaced.is_empty() {
                self.effects.push(Effect::Action(JobsAction::Replaced { task, before: replaced }));
            }
            self.take_up_kept(task, on, &before);
            self.let_go_of_read(task);
            self.note_reusable(task);
            for dependent in hopeless {
                let outcome = if cancelled {
                    Outcome::of(Status::Cancelled)
                } else {
                    let reason = format!(
                        "it needs an output of task {task}, which did not succeed or did not \
                         write it"
                    );
                    Outcome::failed(FailureKind::Dependency, reason)
                };
                ends.push((dependent, 0, String::new(), outcome));
            }
            self.queue_released(task.job, &ready);
            if let Some(job) = self.jobs.get_mut(&task.job) {
                job.drop_item(index);
            }
        }
        self.close_course(task.job);
        if self.jobs.get(&task.job).is_some_and(Job::has_ended) {
            self.give_back(task.job);
        }
    }
}
