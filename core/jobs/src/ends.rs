//! What the end of a try means: whether the task is tried again, and what its dependents do. All
//! that parts find to follow is carried out here: tasks that end, and tasks that are queued, which
//! may end instead because they lack an input for good.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::{AssignmentEnd, ExecutorId, JobId, ObjectId, Outcome, Resources, Status, TaskId};

use crate::event::{JobsAction, SchedulerOrder};
use crate::health::is_quick;
use crate::job::{FreedTasks, Phase, output_bytes};
use crate::jobs::Jobs;
use crate::lineage::{InputCheck, MissingInputVerdict};
use crate::losses::{end_by_interruptions, end_by_losses, may_have_run, note_restarts};
use crate::queueing::ReadyTasks;
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

/// Tasks that were refused and are queued again before other events are looked at.
const QUEUED_AT_ONCE: u32 = 10_000;

/// What follows when a try of a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterTry {
    /// Its executor was ended with it, and another one runs it.
    Interrupted,
    /// It waits for an input that exists only in the cluster.
    Starved,
    /// The executor cannot take it, and another one may.
    Refused,
    /// It is tried again, which uses up a retry.
    Retried,
    /// The task has ended.
    Ends,
}

/// A task, and how often it had been assigned before the try that has ended.
type Try = (TaskId, u32);

impl Jobs {
    // ---- a try ends

    /// The executor has done with a task, which goes back to waiting.
    fn put_back(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        (ended, ran_us): (AssignmentEnd, Option<u64>),
        step: &mut JobsStep,
    ) {
        if self.table.get_mut(task.job).is_some_and(|job| job.unassigned(task.index)) {
            step.order(finished(executor, task));
            self.queue(task, step);
        } else {
            step.order(SchedulerOrder::Done { executor, task, ended, ran_us });
        }
    }

    /// Whether a task that was assigned is to be cancelled.
    fn is_cancelling(&self, task: TaskId) -> bool {
        self.table.get(task.job).is_some_and(|job| job.cancelling.contains(&task.index))
    }

    pub(crate) fn task_returned(
        &mut self,
        executor: ExecutorId,
        (task, attempt): Try,
        step: &mut JobsStep,
    ) {
        if !self.has(executor, task) {
            return;
        }
        if self.is_cancelling(task) {
            step.order(finished(executor, task));
            self.end(TaskEnding { attempt, ..TaskEnding::cancelled(task) }, step);
        } else {
            self.put_back(executor, task, (AssignmentEnd::Returned, None), step);
        }
    }

    /// What follows when a try of an assigned task ends so.
    fn after(&self, task: TaskId, status: &Status) -> AfterTry {
        let Some(job) = self.table.get(task.job) else { return AfterTry::Ends };
        if job.cancelling.contains(&task.index) {
            return AfterTry::Ends;
        }
        let has_retries = || {
            let failures = job.tasks[task.index as usize].failures;
            u32::from(failures) < job.template_at(task.index).retries
        };
        match status {
            Status::Cancelled => AfterTry::Interrupted,
            Status::Failed(Failure { kind: FailureKind::Lost, .. }) => AfterTry::Starved,
            Status::Failed(Failure { kind: FailureKind::Node | FailureKind::NodeFull, .. }) => {
                AfterTry::Refused
            }
            status if status.is_retryable() && has_retries() => AfterTry::Retried,
            _ => AfterTry::Ends,
        }
    }

    /// Whether the task ends, and is not tried again, if this executor's try ends so.
    pub fn is_last_try(&self, executor: ExecutorId, task: TaskId, status: &Status) -> bool {
        self.has(executor, task) && self.after(task, status) == AfterTry::Ends
    }

    pub(crate) fn task_ended(
        &mut self,
        executor: ExecutorId,
        (task, attempt): Try,
        outcome: Outcome,
        step: &mut JobsStep,
    ) {
        if !self.has(executor, task) {
            return;
        }
        match self.after(task, &outcome.status) {
            // No user cancelled it: its executor has stopped or was killed with it, and another
            // will run it.
            AfterTry::Interrupted => {
                return self.interrupted(executor, (task, attempt), outcome.ran_us, step);
            }
            AfterTry::Starved => return self.starved(executor, (task, attempt), outcome, step),
            AfterTry::Refused | AfterTry::Retried | AfterTry::Ends => {}
        }
        if !self.is_cancelling(task) {
            self.executors.judge(executor, task, &outcome, step);
        }
        let ended = match (self.after(task, &outcome.status), &outcome.status) {
            (AfterTry::Refused, Status::Failed(Failure { kind, reason })) => {
                self.queue.refused(task, reason, *kind == FailureKind::NodeFull);
                AssignmentEnd::Refused
            }
            (AfterTry::Retried, _) => {
                if let Some(job) = self.table.get_mut(task.job) {
                    job.tasks.get_mut(task.index).failures += 1;
                }
                if is_quick(&outcome) { AssignmentEnd::Elsewhere } else { AssignmentEnd::Again }
            }
            _ => AssignmentEnd::Finished,
        };
        // What never started says nothing of how long such tasks run.
        let has_run = outcome.status == Status::Succeeded || outcome.ran_us > 0;
        let ran_us = has_run.then_some(outcome.ran_us);
        if ended == AssignmentEnd::Finished {
            let name = self.executors.name_of(executor);
            // The scheduler hears of it first, so that a dependent finds the slot free.
            step.order(SchedulerOrder::Done { executor, task, ended, ran_us });
            let end = TaskEnding { task, attempt, executor: name, outcome };
            self.end_on(Some(executor), end, step);
        } else {
            self.put_back(executor, task, (ended, ran_us), step);
        }
    }

    /// A task could not get an input that exists only in the cluster, and waits again.
    fn starved(
        &mut self,
        executor: ExecutorId,
        (task, attempt): Try,
        outcome: Outcome,
        step: &mut JobsStep,
    ) {
        step.order(finished(executor, task));
        match self.lineage.starved(task, &mut self.table, step) {
            MissingInputVerdict::Waits => {}
            MissingInputVerdict::Never(end) => self.end(*end, step),
            MissingInputVerdict::GivesUp => {
                let executor = self.executors.name_of(executor);
                self.end(TaskEnding { task, attempt, executor, outcome }, step);
            }
        }
    }

    /// A task has ended because its executor was ended. It starts again where it has more time than
    /// it has run.
    fn interrupted(
        &mut self,
        executor: ExecutorId,
        (task, attempt): Try,
        ran_us: u64,
        step: &mut JobsStep,
    ) {
        // Its end leaves room there, which is not to be filled.
        step.order(SchedulerOrder::Drain { executor });
        let ran_us = Some(ran_us).filter(|ran_us| *ran_us > 0);
        if ran_us.is_some() {
            // What had not begun was not interrupted.
            let tasks = BTreeSet::from([task]);
            note_restarts(&tasks, false, (&mut self.table, &mut self.queue), step);
        }
        let interrupted = self.table.task(task).map_or(0, |state| state.interrupted);
        let name = self.executors.name_of(executor);
        match end_by_interruptions(interrupted, &name, ran_us) {
            None => self.put_back(executor, task, (AssignmentEnd::Interrupted, ran_us), step),
            Some(outcome) => {
                step.order(finished(executor, task));
                self.end(TaskEnding { task, attempt, executor: name, outcome }, step);
            }
        }
    }

    /// An executor is gone. If it was lost, with the resources `lost_with`, one of its tasks may be
    /// the cause, unless it was suspended.
    pub(crate) fn executor_gone(
        &mut self,
        executor: ExecutorId,
        tasks: &[TaskId],
        (lost_with, suspended): (Option<Resources>, &BTreeSet<TaskId>),
        step: &mut JobsStep,
    ) {
        let name = self.executors.gone(executor);
        self.reuse.lost(executor);
        self.send_checks(step);
        if !tasks.is_empty() {
            // Ends below leave room on it, which is not to be filled.
            step.order(SchedulerOrder::Drain { executor });
        }
        let suspects = lost_with.map(|had| may_have_run(&self.table, tasks, had, suspended));
        let suspects = suspects.unwrap_or_default();
        note_restarts(&suspects, true, (&mut self.table, &mut self.queue), step);
        for task in tasks {
            let Some(job) = self.table.get_mut(task.job) else { continue };
            let outcome = if job.cancelling.contains(&task.index) {
                Outcome::of(Status::Cancelled)
            } else if let Some(outcome) =
                end_by_losses(job.tasks[task.index as usize].losses, &name)
            {
                outcome
            } else {
                if job.unassigned(task.index) {
                    step.order(SchedulerOrder::Drop { task: *task });
                    self.queue(*task, step);
                }
                continue;
            };
            step.order(SchedulerOrder::Drop { task: *task });
            let executor = name.clone();
            self.end(TaskEnding { executor, ..TaskEnding::unassigned(*task, outcome) }, step);
        }
        step.order(SchedulerOrder::Left { executor });
    }

    /// Every executor that is large enough for the task has refused it.
    pub(crate) fn unplaceable(&mut self, task: TaskId, step: &mut JobsStep) {
        if let Err(why) = self.queue.refused_by_all(task, step.now_us, &mut self.table) {
            self.end(TaskEnding::failed(task, FailureKind::Unplaceable, why.to_string()), step);
        }
    }

    // ---- a task ends

    /// A task has ended for good, which may set others free, or leave them without what they wait
    /// for.
    pub(crate) fn end(&mut self, end: TaskEnding, step: &mut JobsStep) {
        self.end_on(None, end, step);
    }

    /// The same, on an executor that is there.
    fn end_on(&mut self, on: Option<ExecutorId>, end: TaskEnding, step: &mut JobsStep) {
        let id = end.task.job;
        let mut ends = vec![end];
        while let Some(end) = ends.pop() {
            if !self.table.phase(end.task).is_none_or(Phase::has_ended) {
                ends.extend(self.end_one(on, end, step));
            }
        }
        self.table.close_course(id, &self.executors, step.now_us);
        if self.table.has_ended(id) {
            self.lineage.end_borrowing(id, &self.table, step);
        }
    }

    /// Ends one task. Returns the ends of the tasks that wait for it in vain.
    fn end_one(
        &mut self,
        on: Option<ExecutorId>,
        end: TaskEnding,
        step: &mut JobsStep,
    ) -> Vec<TaskEnding> {
        let TaskEnding { task, attempt, executor, mut outcome } = end;
        let lacked_room = self.keep_output(task.job, &mut outcome, step);
        let Some(job) = self.table.get_mut(task.job) else { return Vec::new() };
        job.recorded.lacked_output_room |= lacked_room;
        let is_cancelled = outcome.status == Status::Cancelled;
        self.queue.forget_refusals(task);
        self.reuse.give_up(task);
        let before: Vec<_> = job.kept_by(task.index).map(|(object, _)| object).collect();
        let FreedTasks { ready, hopeless, replaced } =
            job.ended(step.now_us, task.index, attempt, executor, outcome);
        if !replaced.is_empty() {
            step.act(JobsAction::Replaced { task, before: replaced });
        }
        self.take_up_kept(task, on, &before, step);
        self.lineage.let_go_of_read(task, &self.table, step);
        self.reuse.note(task, &self.table);
        self.queue_ready(&ReadyTasks { job: task.job, tasks: ready }, step);
        if let Some(job) = self.table.get_mut(task.job) {
            job.drop_item(task.index);
        }
        let in_vain = |index| {
            let dependent = TaskId { index, ..task };
            if is_cancelled {
                return TaskEnding::cancelled(dependent);
            }
            let reason = format!(
                "it needs an output of task {task}, which did not succeed or did not write it"
            );
            TaskEnding::failed(dependent, FailureKind::Dependency, reason)
        };
        hopeless.into_iter().map(in_vain).collect()
    }

    /// Makes room for a task's output in the journal. Returns whether the output had to be cut.
    fn keep_output(&mut self, job: JobId, outcome: &mut Outcome, step: &mut JobsStep) -> bool {
        if self.table.get(job).is_some_and(|job| job.spec.is_attached) {
            return false;
        }
        let bytes = output_bytes(outcome);
        if !self.retention.has_room(bytes) {
            self.forget_old_jobs(bytes, step);
        }
        self.retention.keep_output(outcome)
    }

    /// Takes up what a task has left in the cluster, on `executor` if it was there just now, and
    /// lets go of what it left `before`.
    pub(crate) fn take_up_kept(
        &mut self,
        task: TaskId,
        executor: Option<ExecutorId>,
        before: &[ObjectId],
        step: &mut JobsStep,
    ) {
        let Some(job) = self.table.get(task.job) else { return };
        let now: Vec<_> =
            job.kept_by(task.index).map(|(object, left)| (object, left.replicas)).collect();
        let is_gone = |object: &&ObjectId| !now.iter().any(|(other, _)| other == *object);
        for object in before.iter().filter(is_gone) {
            self.lineage.let_go_of(*object, task, &self.table, step);
        }
        for object in now {
            let ready = self.lineage.take_up(task, object, executor, &mut self.table, step);
            self.queue_all_ready(ready, step);
        }
    }

    // ---- tasks are queued

    /// Queues tasks that are no longer blocked, then up to `tasks` more tasks of the oldest job
    /// that is not queued entirely. It queues fewer tasks if they have many inputs.
    pub(crate) fn queue_more(&mut self, tasks: u32, step: &mut JobsStep) {
        let mut room = self.queue_set_aside(step);
        if room == 0 {
            return;
        }
        let Some(pass) = self.queue.next_pass(tasks, &self.table, step) else { return };
        while room > 0
            && let Some(task) = self.queue.next_in_pass(&pass, &mut self.table)
        {
            room = room.saturating_sub(self.queue(task, step));
        }
        self.queue.end_part(&pass, &self.table);
    }

    /// Queues tasks that are no longer blocked. Those with too many inputs for one event are set
    /// aside.
    pub(crate) fn queue_ready(&mut self, ready: &ReadyTasks, step: &mut JobsStep) {
        self.queue.set_aside(ready, &self.table);
        self.queue_set_aside(step);
    }

    pub(crate) fn queue_all_ready(&mut self, ready: Vec<ReadyTasks>, step: &mut JobsStep) {
        ready.iter().for_each(|ready| self.queue_ready(ready, step));
    }

    /// Queues tasks that are no longer blocked, as long as there is room for their inputs. Returns
    /// the room that is left.
    fn queue_set_aside(&mut self, step: &mut JobsStep) -> u64 {
        let mut room = self.queue.inputs_at_once();
        while room > 0
            && let Some(task) = self.queue.next_set_aside(&self.table)
        {
            room = room.saturating_sub(self.queue(task, step));
        }
        room
    }

    /// Puts a waiting task into the queue, unless it lacks an input or need not run. Returns the
    /// number of inputs that were queued, and one more for the task.
    pub(crate) fn queue(&mut self, task: TaskId, step: &mut JobsStep) -> u64 {
        if !self.has_inputs(task, step) {
            return 1;
        }
        if let Some(earlier) = self.reuse.read_earlier(task, &self.table) {
            step.act(JobsAction::ReadResult { task, earlier });
            return 1;
        }
        self.queue.enqueue(task, &mut self.table, step)
    }

    /// Takes a task that waits out of the queue.
    pub(crate) fn withdraw(&mut self, task: TaskId, step: &mut JobsStep) {
        self.queue.withdraw(task, step);
        self.reuse.give_up(task);
    }

    /// Whether executors hold the inputs of a waiting task. If not, the task is blocked, or ends.
    fn has_inputs(&mut self, task: TaskId, step: &mut JobsStep) -> bool {
        match self.lineage.check_inputs(task, step.now_us, &mut self.table) {
            InputCheck::Held => return true,
            InputCheck::Awaited => {}
            InputCheck::Never(end) => self.end(*end, step),
        }
        false
    }

    /// Queues tasks again that all executors had refused, after their wait.
    pub(crate) fn queue_refused(&mut self, step: &mut JobsStep) {
        for _ in 0..QUEUED_AT_ONCE {
            let Some(task) = self.queue.next_refused(step.now_us) else { break };
            if self.has_inputs(task, step) {
                self.queue.offer_again(task, &mut self.table, step);
            } else {
                self.queue.forget_refusals(task);
            }
        }
    }
}

/// An executor has finished its work on a task, of which no run time is learned.
fn finished(executor: ExecutorId, task: TaskId) -> SchedulerOrder {
    SchedulerOrder::Done { executor, task, ended: AssignmentEnd::Finished, ran_us: None }
}
