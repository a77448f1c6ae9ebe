//! When tasks are queued. The tasks of a new job are queued in parts, in a first pass over the job;
//! a blocked task is queued when its inputs exist, and one that all executors have refused after a
//! pause.
//!
//! Whether the inputs of a task are held, and whether an earlier task did the same, is found out by
//! others before [`ReadyQueue::enqueue`] puts the task into the scheduler's queue.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;
use core::ops::Bound;

use eyas_types::{JobId, TaskId};

use crate::config::Config;
use crate::event::{JobsAction, SchedulerOrder};
use crate::job::{Job, Phase};
use crate::job_table::JobTable;
use crate::refusals::{GivenUp, Refusals};
use crate::step::JobsStep;

/// Tasks of a job that are no longer blocked.
#[derive(Debug)]
pub(crate) struct ReadyTasks {
    pub job: JobId,
    pub tasks: Vec<u32>,
}

/// A part of the first pass over a job.
#[derive(Debug)]
pub(crate) struct FirstPass {
    job: JobId,
    /// The first task that is not of this part.
    end: u32,
}

/// Tasks that may run and are not in the scheduler's queue yet.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    /// See [`Config::inputs_at_once`].
    inputs_at_once: u64,
    /// See [`Config::waiting_inputs`].
    waiting_inputs: u64,
    /// Jobs with a first pass that is not at its end, in the order in which they began.
    first_passes: Vec<JobId>,
    /// Tasks that are no longer blocked and wait to be queued, because others had many inputs.
    set_aside: BTreeSet<TaskId>,
    refusals: Refusals,
}

impl ReadyQueue {
    pub fn new(config: &Config) -> Self {
        ReadyQueue {
            inputs_at_once: config.inputs_at_once,
            waiting_inputs: config.waiting_inputs,
            first_passes: Vec::new(),
            set_aside: BTreeSet::new(),
            refusals: Refusals::default(),
        }
    }

    /// The inputs of the tasks that one event queues, about, each task counting as one more.
    pub fn inputs_at_once(&self) -> u64 {
        self.inputs_at_once
    }

    /// Puts a waiting task into the scheduler's queue. Returns the number of its inputs, and one
    /// more for the task.
    pub fn enqueue(&mut self, task: TaskId, jobs: &mut JobTable, step: &mut JobsStep) -> u64 {
        self.set_aside.remove(&task);
        let Some(job) = jobs.get_mut(task.job) else { return 1 };
        let (inputs, need) = job.needs_of(task.index);
        job.queued(step.now_us, task.index, &inputs);
        let count = 1 + inputs.len() as u64;
        step.order(SchedulerOrder::Queue { task, inputs, need });
        count
    }

    /// Takes a task that waits out of the scheduler's queue.
    pub fn withdraw(&mut self, task: TaskId, step: &mut JobsStep) {
        step.withdraw(task);
        self.set_aside.remove(&task);
        self.refusals.forget(task);
    }

    /// Whether tasks of new jobs, or tasks that one end has released, can be queued now.
    pub fn has_more(&self, jobs: &JobTable) -> bool {
        self.first_set_aside(jobs).is_some() || self.next_job(jobs).is_some()
    }

    // ---- the first pass over a job

    /// A job begins: its first pass is to be done.
    pub fn begin(&mut self, id: JobId) {
        self.first_passes.push(id);
    }

    /// The inputs that are pushed ahead of a job's tasks have arrived.
    pub fn pushed(&mut self, job: &mut Job) {
        if job.is_pushed_first() {
            job.was_pushed = true;
            self.begin(job.id);
        }
    }

    /// Has the inputs pushed that every executor must have which may run the job's tasks.
    pub fn begin_broadcast(&self, job: &mut Job, step: &mut JobsStep) {
        job.has_broadcast = true;
        step.act(JobsAction::Broadcast { job: job.id });
    }

    /// Ends the pushes of a job that has ended, or whose last tasks are being cancelled, unless
    /// they were ended before.
    pub fn end_broadcast(&mut self, job: &mut Job, step: &mut JobsStep) {
        // Its tasks are queued, so that they can be retried.
        self.pushed(job);
        if mem::take(&mut job.has_broadcast) {
            step.act(JobsAction::EndBroadcast { job: job.id });
        }
    }

    /// Begins a part of the first pass over the oldest job of which tasks can be queued now: up to
    /// `tasks` tasks. Tasks that need not run, or that wait for others, count as well.
    pub fn next_pass(
        &mut self,
        tasks: u32,
        jobs: &JobTable,
        step: &mut JobsStep,
    ) -> Option<FirstPass> {
        let id = self.next_job(jobs)?;
        let Some(job) = jobs.get(id) else {
            // It was forgotten.
            self.first_passes.retain(|other| *other != id);
            return None;
        };
        if job.next_to_queue == 0 {
            name_job(job, step);
        }
        let end = (job.tasks.len() as u32).min(job.next_to_queue.saturating_add(tasks));
        Some(FirstPass { job: job.id, end })
    }

    /// The next waiting task of a part of a pass; `None` at its end, or if the tasks of the job
    /// that wait have so many inputs that no more are queued for now.
    pub fn next_in_pass(&self, pass: &FirstPass, jobs: &mut JobTable) -> Option<TaskId> {
        let job = jobs.get_mut(pass.job)?;
        while job.next_to_queue < pass.end && !self.has_many_inputs(job) {
            let index = job.next_to_queue;
            job.next_to_queue += 1;
            if job.tasks.phase(index) == Phase::Waiting {
                return Some(job.task_id(index));
            }
        }
        None
    }

    /// A part of a pass is over; it may be the last one.
    pub fn end_part(&mut self, pass: &FirstPass, jobs: &JobTable) {
        let is_over = |job: &Job| job.next_to_queue as usize == job.tasks.len();
        if jobs.get(pass.job).is_none_or(is_over) {
            self.first_passes.retain(|id| *id != pass.job);
        }
    }

    /// The oldest job of which tasks can be queued now.
    fn next_job(&self, jobs: &JobTable) -> Option<JobId> {
        self.first_passes.iter().copied().find(|id| !self.is_held_up(*id, jobs))
    }

    fn is_held_up(&self, id: JobId, jobs: &JobTable) -> bool {
        jobs.get(id).is_some_and(|job| self.has_many_inputs(job))
    }

    /// Whether tasks of the job that wait have so many inputs that no more are queued for now.
    fn has_many_inputs(&self, job: &Job) -> bool {
        job.tasks.waiting_inputs() >= self.waiting_inputs
    }

    // ---- tasks that are no longer blocked

    /// Sets tasks aside that are no longer blocked, unless the first pass over the job has not
    /// reached them yet.
    pub fn set_aside(&mut self, ready: &ReadyTasks, jobs: &JobTable) {
        let Some(job) = jobs.get(ready.job) else { return };
        let passed = ready.tasks.iter().filter(|index| **index < job.next_to_queue);
        self.set_aside.extend(passed.map(|index| job.task_id(*index)));
    }

    /// The next task that was set aside, can be queued now and still waits.
    pub fn next_set_aside(&mut self, jobs: &JobTable) -> Option<TaskId> {
        while let Some(task) = self.first_set_aside(jobs) {
            self.set_aside.remove(&task);
            if jobs.phase(task) == Some(Phase::Waiting) {
                return Some(task);
            }
        }
        None
    }

    /// The first task that was set aside, of the oldest job of which tasks can be queued now.
    fn first_set_aside(&self, jobs: &JobTable) -> Option<TaskId> {
        let mut first = self.set_aside.first();
        while let Some(task) = first.filter(|task| self.is_held_up(task.job, jobs)) {
            let last_of_job = TaskId { index: u32::MAX, ..*task };
            first = self.set_aside.range((Bound::Excluded(last_of_job), Bound::Unbounded)).next();
        }
        first.copied()
    }

    // ---- tasks that executors refused

    /// An executor cannot take the task.
    pub fn refused(&mut self, task: TaskId, reason: &str, for_now: bool) {
        self.refusals.refused(task, reason, for_now);
    }

    /// All executors have refused the task. It waits to be offered again, and is not in the
    /// scheduler's queue until then.
    ///
    /// # Errors
    /// Why it fails.
    pub fn refused_by_all(
        &mut self,
        task: TaskId,
        now_us: u64,
        jobs: &mut JobTable,
    ) -> Result<(), GivenUp> {
        self.refusals.by_all(task, now_us)?;
        if let Some(job) = jobs.get_mut(task.job) {
            job.tasks.leave_queue(task.index);
        }
        Ok(())
    }

    /// A refused task that is to be offered again now, if there is one.
    pub fn next_refused(&mut self, now_us: u64) -> Option<TaskId> {
        self.refusals.next_due(now_us)
    }

    /// Offers a task again that all executors had refused.
    pub fn offer_again(&mut self, task: TaskId, jobs: &mut JobTable, step: &mut JobsStep) {
        if let Some(job) = jobs.get_mut(task.job) {
            let (inputs, need) = job.needs_of(task.index);
            job.tasks.enter_queue(task.index, &inputs);
            step.order(SchedulerOrder::Queue { task, inputs, need });
        }
    }

    /// The refusals of the task no longer matter: it has ended, or is blocked.
    pub fn forget_refusals(&mut self, task: TaskId) {
        self.refusals.forget(task);
    }

    /// Why a task waits to be offered to executors again, if it does.
    pub fn why_refused(&self, task: TaskId) -> Option<&str> {
        self.refusals.why_waiting(task)
    }

    /// When the next refused task may be due.
    pub fn next_timeout(&self) -> Option<u64> {
        self.refusals.next_timeout()
    }
}

/// Tells the scheduler the name of a job, before its tasks are queued.
pub(crate) fn name_job(job: &Job, step: &mut JobsStep) {
    if !job.has_ended() {
        step.order(SchedulerOrder::Name { job: job.id });
    }
}
