//! Which tasks may run, and when they are queued. The tasks of a new job are queued in parts; a
//! blocked task is queued when its inputs exist.

use eyas_types::{JobId, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::job::Phase;
use crate::jobs::Jobs;

/// Tasks that were refused and are queued again before other events are looked at.
const QUEUED_AT_ONCE: u32 = 10_000;

impl Jobs {
    /// Queues tasks that are no longer blocked, then up to `tasks` more tasks of the oldest job
    /// that is not queued entirely. Tasks that need not run, or that wait for others, count as
    /// well. It queues fewer tasks if they have many inputs.
    pub(crate) fn queue_more(&mut self, tasks: u32) {
        let mut room = self.queue_set_aside();
        let Some(id) = self.next_to_queue().filter(|_| room > 0) else { return };
        let Some((first, count)) =
            self.jobs.get(&id).map(|job| (job.next_to_queue, job.tasks.len() as u32))
        else {
            self.queueing.retain(|queueing| *queueing != id);
            return;
        };
        if first == 0 {
            self.name_job(id);
        }
        let (mut next, last) = (first, count.min(first.saturating_add(tasks)));
        while next < last && room > 0 && !self.has_many_inputs(id) {
            let task = TaskId { job: id, index: next };
            next += 1;
            if let Some(job) = self.jobs.get_mut(&id) {
                job.next_to_queue = next;
            }
            if self.phase(task) == Some(Phase::Waiting) {
                room = room.saturating_sub(self.queue_counted(task));
            }
        }
        if next == count {
            self.queueing.retain(|queueing| *queueing != id);
        }
    }

    /// The oldest job of which tasks can be queued now.
    pub(crate) fn next_to_queue(&self) -> Option<JobId> {
        self.queueing.iter().copied().find(|id| !self.has_many_inputs(*id))
    }

    /// Whether tasks of the job that wait have so many inputs that no more are queued for now.
    fn has_many_inputs(&self, id: JobId) -> bool {
        self.jobs
            .get(&id)
            .is_some_and(|job| job.tasks.waiting_inputs() >= self.config.waiting_inputs)
    }

    /// Queues tasks that are no longer blocked, as long as there is room for their inputs. Returns
    /// the room that is left.
    fn queue_set_aside(&mut self) -> u64 {
        let mut room = self.config.inputs_at_once;
        while room > 0
            && let Some(task) = self.set_aside.pop_first()
        {
            if self.phase(task) == Some(Phase::Waiting) {
                room = room.saturating_sub(self.queue_counted(task));
            }
        }
        room
    }

    /// Queues a task. Returns the number of its inputs, and one more for the task.
    fn queue_counted(&mut self, task: TaskId) -> u64 {
        self.queue(task);
        match self.effects.last() {
            Some(Effect::Order(SchedulerOrder::Queue { task: queued, inputs, .. }))
                if *queued == task =>
            {
                1 + inputs.len() as u64
            }
            _ => 1,
        }
    }

    /// Tells the scheduler the name of a job, before its tasks are queued.
    pub(crate) fn name_job(&mut self, id: JobId) {
        if self.jobs.get(&id).is_some_and(|job| !job.has_ended()) {
            self.effects.push(Effect::Order(SchedulerOrder::Name { job: id }));
        }
    }

    /// Puts a waiting task into the queue, unless it lacks an input or need not run.
    pub(crate) fn queue(&mut self, task: TaskId) {
        if !self.lacks_input(task) && !self.reuses(task) {
            self.queue_now(task);
        }
    }

    pub(crate) fn queue_now(&mut self, task: TaskId) {
        self.set_aside.remove(&task);
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        let (inputs, need) = job.needs_of(task.index);
        job.queued(self.now_us, task.index, &inputs);
        self.effects.push(Effect::Order(SchedulerOrder::Queue { task, inputs, need }));
    }

    /// Queues tasks again that all executors had refused, after their wait.
    pub(crate) fn queue_refused(&mut self) {
        for _ in 0..QUEUED_AT_ONCE {
            let Some(task) = self.refusals.next_due(self.now_us) else { break };
            if self.lacks_input(task) {
                self.refusals.forget(task);
            } else if let Some(job) = self.jobs.get_mut(&task.job) {
                let (inputs, need) = job.needs_of(task.index);
                self.effects.push(Effect::Order(SchedulerOrder::Queue { task, inputs, need }));
            }
        }
    }

    /// Queues tasks that are no longer blocked, unless the first pass over the job has not reached
    /// them yet. Those with too many inputs for one event are set aside.
    pub(crate) fn queue_released(&mut self, id: JobId, ready: &[u32]) {
        let first_pass_from = self.jobs[&id].next_to_queue;
        let released = ready.iter().filter(|index| **index < first_pass_from);
        self.set_aside.extend(released.map(|index| TaskId { job: id, index: *index }));
        self.queue_set_aside();
    }

    /// The inputs that are pushed ahead of a job's tasks have arrived.
    pub(crate) fn pushed(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_pushed_first()) {
            job.was_pushed = true;
            self.queueing.push(id);
        }
    }

    /// Ends the pushes of a job that has ended, or whose last tasks are being cancelled.
    pub(crate) fn end_broadcast(&mut self, id: JobId) {
        // Its tasks are queued, so that they can be retried.
        self.pushed(id);
        self.effects.push(Effect::Action(JobsAction::EndBroadcast { job: id }));
    }
}
