//! A task's way: into the scheduler's queue, to an executor, and to its end or back.

use std::time::Instant;

use eyas_sched::{Ended, Event, Hint};
use eyas_types::outcome::{Failure, FailureKind};
use eyas_types::{ExecutorId, JobId, ObjectId, Outcome, PlaceId, Status, TaskId};
use eyas_wire::executor::{AssignedInput, Assignment, ToExecutor};

use super::{Brain, jobs};
use crate::job::{Phase, Released};

/// Tasks of a new job that are queued before other messages are looked at again.
const QUEUED_AT_ONCE: u32 = 10_000;

impl Brain {
    /// Queues more of the jobs that are not queued entirely, a part at a time.
    pub(super) fn queue_more(&mut self) {
        let Some(id) = self.queueing.first().copied() else { return };
        let Some(job) = self.jobs.get_mut(&id) else {
            self.queueing.remove(0);
            return;
        };
        let first = job.next_to_queue;
        let last = (job.tasks.len() as u32).min(first + QUEUED_AT_ONCE);
        job.next_to_queue = last;
        if last == job.tasks.len() as u32 {
            self.queueing.remove(0);
        }
        if first == 0 {
            self.name_job(id);
        }
        for index in first..last {
            if self.jobs[&id].tasks[index as usize].phase == Phase::Waiting {
                self.queue(id, index);
            }
        }
    }

    /// Tells the scheduler a job's name, before tasks of it are queued.
    pub(super) fn name_job(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id).filter(|job| !job.has_ended()) {
            self.tell(Event::JobNamed { job: id, name: job.spec.name.as_str().into() });
        }
    }

    /// Puts a waiting task into the queue.
    pub(super) fn queue(&mut self, id: JobId, index: u32) {
        if !self.lacks_input(id, index) && !self.reuses(id, index) {
            self.queue_now(id, index);
        }
    }

    pub(super) fn queue_now(&mut self, id: JobId, index: u32) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (inputs, need) = jobs::needs(job, index);
        job.queued(index, inputs.iter().map(|(_, size)| size).sum());
        self.tell(Event::TaskReady { task: TaskId { job: id, index }, inputs, need });
    }

    /// Puts tasks that all had refused into the queue again, once they have waited long enough.
    pub(super) fn queue_refused(&mut self) {
        for _ in 0..QUEUED_AT_ONCE {
            let Some(task) = self.refusals.next_due(Instant::now()) else { break };
            if self.lacks_input(task.job, task.index) {
                self.refusals.forget(task);
            } else if let Some(job) = self.jobs.get(&task.job) {
                let (inputs, need) = jobs::needs(job, task.index);
                self.tell(Event::TaskReady { task, inputs, need });
            }
        }
    }

    /// Queues tasks that were set free, unless their turn in the job's first queueing is still to come.
    pub(super) fn queue_released(&mut self, id: JobId, ready: &[u32]) {
        for index in ready {
            if *index < self.jobs[&id].next_to_queue {
                self.queue(id, *index);
            }
        }
    }

    pub(super) fn assign(&mut self, executor: ExecutorId, task: TaskId, attempt: u32, hints: &[Hint]) {
        let job = self.jobs.get_mut(&task.job).expect("the scheduler knows tasks of known jobs only");
        job.assigned(task.index, executor);
        let item = job.spec.items.get(task.index);
        // Hints name places in the list of ids, which is sorted and has each object once.
        let ids = if hints.is_empty() { Vec::new() } else { job.input_ids(&item) };
        let holders_of = |object: ObjectId| {
            let hint = hints.iter().find(|hint| ids[usize::from(hint.input)].0 == object);
            self.executors.where_to_ask(hint.map_or(&[], |hint| &hint.holders))
        };
        let inputs = job.inputs(&item).map(|(input, object)| {
            let object = object.expect("only a task with all its inputs is set free").clone();
            let holders = if hints.is_empty() { Vec::new() } else { holders_of(object.id()) };
            AssignedInput { object, name: input.name.clone(), holders }
        });
        let inputs = inputs.collect();
        let template = item.template;
        let assignment = Assignment { task, attempt, template, values: item.values, inputs };
        let spec = &job.spec.templates[usize::from(template)];
        let Some(entry) = self.executors.get_mut(executor) else { return };
        if entry.lacks_template(task.job, template) {
            let spec = Box::new(spec.clone());
            self.executors.send(executor, ToExecutor::Template { job: task.job, template, spec });
        }
        self.executors.send(executor, ToExecutor::Assign(assignment));
    }

    /// Whether this executor has the task, by our books.
    pub(super) fn has(&self, executor: ExecutorId, task: TaskId) -> bool {
        let state = self.jobs.get(&task.job).and_then(|job| job.tasks.get(task.index as usize));
        state.is_some_and(|state| state.phase == Phase::Assigned && state.executor == Some(executor))
    }

    /// A task's outputs are about to appear at these places. If it is not this executor's any more, they are not: its
    /// executor has been told so, and awaits no answer.
    pub(super) fn claim(&mut self, executor: ExecutorId, task: TaskId, places: Vec<PlaceId>) {
        if self.has(executor, task)
            && let Some(job) = self.jobs.get_mut(&task.job)
        {
            let by_other = job.places.claim(task.index, places).err();
            self.executors.send(executor, ToExecutor::Claimed { task, by_other });
        }
    }

    pub(super) fn task_returned(&mut self, executor: ExecutorId, task: TaskId, attempt: u32) {
        if !self.has(executor, task) {
            return;
        }
        let job = self.jobs.get_mut(&task.job).expect("has a task");
        if job.cancelling.contains(&task.index) {
            self.tell(Event::TaskEnded { executor, task, ended: Ended::Finished, ran_us: None });
            self.end(task, attempt, String::new(), Outcome::of(Status::Cancelled));
        } else {
            job.unassigned(task.index);
            self.tell(Event::TaskEnded { executor, task, ended: Ended::Returned, ran_us: None });
        }
    }

    pub(super) fn task_ended(&mut self, executor: ExecutorId, task: TaskId, attempt: u32, mut outcome: Outcome) {
        if !self.has(executor, task) {
            return;
        }
        outcome.estimate = self.scheduler.estimate_of(task);
        if let Some(entry) = self.executors.get_mut(executor) {
            entry.ended += 1;
            entry.suspended.remove(&task);
            entry.reads += outcome.reads;
        }
        let job = self.jobs.get_mut(&task.job).expect("has a task");
        if outcome.status == Status::Cancelled && !job.cancelling.contains(&task.index) {
            // Nobody here cancelled it: its executor has stopped, and another will run it.
            job.unassigned(task.index);
            return self.tell(Event::TaskEnded { executor, task, ended: Ended::Again, ran_us: None });
        }
        let cancelled = job.cancelling.contains(&task.index);
        let is_lost = |status: &Status| matches!(status, Status::Failed(Failure { kind: FailureKind::Lost, .. }));
        if is_lost(&outcome.status) && !cancelled {
            return self.starved(executor, task, attempt, outcome);
        }
        let retries = job.spec.templates[usize::from(job.spec.items.get(task.index).template)].retries;
        let state = &mut job.tasks[task.index as usize];
        let ended = match &outcome.status {
            _ if cancelled => Ended::Finished,
            Status::Failed(Failure { kind: kind @ (FailureKind::Node | FailureKind::NodeFull), reason }) => {
                self.refusals.refused(task, reason, *kind == FailureKind::NodeFull);
                Ended::Refused
            }
            status if status.is_retryable() && u32::from(state.failures) < retries => {
                state.failures += 1;
                Ended::Again
            }
            _ => Ended::Finished,
        };
        // What never started says nothing of how long such tasks run.
        let has_run = outcome.status == Status::Succeeded || outcome.ran_us > 0;
        let ran_us = has_run.then_some(outcome.ran_us);
        if ended == Ended::Finished {
            let name = self.executors.name(executor);
            // The scheduler first, so that a dependent finds the slot free.
            self.tell(Event::TaskEnded { executor, task, ended, ran_us });
            self.end_on(Some(executor), task, attempt, name, outcome);
        } else {
            job.unassigned(task.index);
            self.tell(Event::TaskEnded { executor, task, ended, ran_us });
        }
    }

    /// A task has ended for good, which may set others free, or leave them without what they wait for.
    pub(super) fn end(&mut self, task: TaskId, attempt: u32, executor: String, outcome: Outcome) {
        self.end_on(None, task, attempt, executor, outcome);
    }

    /// The same, on an executor that is there.
    pub(super) fn end_on(
        &mut self,
        on: Option<ExecutorId>,
        task: TaskId,
        attempt: u32,
        executor: String,
        outcome: Outcome,
    ) {
        let mut ends = vec![(task.index, attempt, executor, outcome)];
        while let Some((index, attempt, executor, mut outcome)) = ends.pop() {
            let ended = self.jobs.get(&task.job).map(|job| job.tasks[index as usize].phase.has_ended());
            if ended.unwrap_or(true) {
                continue;
            }
            let lacked_room = self.keep_output(&mut outcome);
            let Some(job) = self.jobs.get_mut(&task.job) else { return };
            job.lacked_output_room |= lacked_room;
            let cancelled = outcome.status == Status::Cancelled;
            self.refusals.forget(job.task_id(index));
            let before: Vec<_> = job.kept_by(index).map(|(object, _)| object).collect();
            let Released { ready, hopeless } = job.ended(index, attempt, executor, outcome);
            self.take_up_kept(TaskId { index, ..task }, on, &before);
            self.let_go_of_read(TaskId { index, ..task });
            self.note_reusable(TaskId { index, ..task });
            let Some(job) = self.jobs.get(&task.job) else { return };
            for dependent in hopeless {
                let outcome = if cancelled {
                    Outcome::of(Status::Cancelled)
                } else {
                    let producer = job.task_id(index);
                    let reason =
                        format!("it needs an output of task {producer}, which did not succeed or did not write it");
                    Outcome::failed(FailureKind::Dependency, reason)
                };
                ends.push((dependent, 0, String::new(), outcome));
            }
            self.queue_released(task.job, &ready);
        }
        self.close_course(task.job);
    }

    /// Ends a job's course with its last task, so that a short one has a sample too.
    pub(super) fn close_course(&mut self, id: JobId) {
        let (now, executors) = (self.scheduler.utilisation(), self.executors.len() as u64);
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.has_ended()) {
            let elapsed_us = job.elapsed_us();
            job.course.tick(elapsed_us, true, 0, 0, executors, now);
        }
    }
}
