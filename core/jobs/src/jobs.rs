//! The decider of jobs: its parts, and which of them handles each event.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, JobId, ObjectId, ObjectSpec, Outcome, PlaceId, TaskId};

use crate::config::Config;
use crate::event::{Effect, Event, JobsAction};
use crate::executors::PresentExecutors;
use crate::job::{Job, JobSummary, Phase, SAMPLE_EVERY_US};
use crate::job_table::JobTable;
use crate::lineage::Lineage;
use crate::queueing::ReadyQueue;
use crate::retention::Retention;
use crate::reuse::{Reuse, ReuseVerdict};
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

/// See the [crate's](crate) documentation.
#[derive(Debug)]
pub struct Jobs {
    pub(crate) table: JobTable,
    pub(crate) executors: PresentExecutors,
    pub(crate) queue: ReadyQueue,
    pub(crate) lineage: Lineage,
    pub(crate) reuse: Reuse,
    pub(crate) retention: Retention,
    is_stopping: bool,
    /// When the last [`Event::Tick`] was told.
    ticked_us: u64,
    /// Microseconds since 1970, as the last event was told.
    now_us: u64,
}

impl Jobs {
    /// No jobs and no executors. Executors of an earlier dispatcher may come back from `now_us` on.
    pub fn new(config: Config, now_us: u64) -> Self {
        Jobs {
            table: JobTable::new(),
            executors: PresentExecutors::default(),
            queue: ReadyQueue::new(&config),
            lineage: Lineage::new(now_us),
            reuse: Reuse::default(),
            retention: Retention::new(&config),
            is_stopping: false,
            ticked_us: now_us,
            now_us,
        }
    }

    /// Applies one event, told at `now_us` (microseconds since 1970, never less than before), and
    /// adds to `effects` what is to be done about it, in order.
    ///
    /// # Panics
    /// If the event contradicts earlier ones.
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        self.now_us = self.now_us.max(now_us);
        let step = &mut JobsStep::new(self.now_us, effects);
        self.apply(event, step);
        self.pass_time(step);
        self.halt_hopeless(step);
        step.withdraw_first();
    }

    fn apply(&mut self, event: Event, step: &mut JobsStep) {
        match event {
            Event::Submitted { job } => self.submitted(*job, step),
            Event::Attached { spec } => self.attached(*spec, step),
            Event::Extended { job, extension } => self.extended(job, *extension, step),
            Event::Unneeded { job, tasks } => {
                self.lineage.unneeded(job, &tasks, &mut self.table, step)
            }
            Event::Closed { job } => self.closed(job, step),
            Event::Deliver => self.deliver(step),
            Event::Accepted { job } => self.begin(job, step),
            Event::Recovered { replay } => self.recovered(*replay, step),
            Event::RecoveredSummary { summary } => self.recovered_summary(*summary),
            Event::Pushed { job } => self.pushed(job),
            Event::QueueMore { tasks } => self.queue_more(tasks, step),
            Event::ExecutorJoined { executor, name } => self.executors.joined(executor, name),
            Event::ExecutorGone { executor, tasks, lost_with, suspended } => {
                self.executor_gone(executor, &tasks, (lost_with, &suspended), step);
            }
            Event::ExecutorLeaves { executor } => self.executors.let_leave(executor, step),
            Event::Moving { executor, objects } => self.executors.moving(executor, objects, step),
            Event::Assigned { task, executor } => {
                let job =
                    self.table.get_mut(task.job).expect("only tasks of known jobs are queued");
                job.assigned(step.now_us, task.index, executor);
            }
            Event::Unplaceable { task } => self.unplaceable(task, step),
            Event::TaskEnded { executor, task, attempt, outcome } => {
                self.task_ended(executor, (task, attempt), *outcome, step);
            }
            Event::TaskReturned { executor, task, attempt } => {
                self.task_returned(executor, (task, attempt), step)
            }
            Event::ObjectLost { object } => self.lineage.object_lost(object),
            Event::ObjectFound { object } => self.object_found(object, step),
            Event::Located { moving, nowhere } => self.located(&moving, &nowhere, step),
            Event::ObjectWanted { object } => self.lineage.want(object, step.now_us),
            Event::EarlierResult { task, earlier, outcome } => {
                self.earlier_result(task, earlier, outcome, step)
            }
            Event::Claim { executor, task, places } => self.claim(executor, task, places, step),
            Event::Checked { executor, task, is_unchanged } => {
                self.checked(executor, task, is_unchanged, step)
            }
            Event::Cancel { job, tasks } => self.cancel(job, tasks, step),
            Event::Retry { job, current } => self.retry(job, current, step),
            Event::Release { job } => self.release(job, step),
            Event::Forget { job } => self.forget(job, step),
            Event::Watched { job } => self.retention.watch(job),
            Event::Tick { capacity_milli, busy_milli, watched } => {
                self.executors.note_processors(capacity_milli, busy_milli);
                self.retention.set_watched(watched);
                self.ticked_us = step.now_us;
                self.table.sample(&self.executors, self.retention.watched(), step);
                self.retain(step);
            }
            Event::Flush => self.table.flush(&mut self.queue, step),
            Event::Stopping => self.is_stopping = true,
        }
    }

    /// Does everything that is due, after each event.
    fn pass_time(&mut self, step: &mut JobsStep) {
        self.queue_refused(step);
        self.executors.take_back(step);
        // Executors of a cluster that stops leave with what they hold, and come back with it.
        if !self.is_stopping {
            self.look_after_kept(step);
        }
    }

    /// The next deadline, microseconds since 1970. Any event at or after the deadline handles it.
    pub fn next_timeout(&self) -> Option<u64> {
        let of_objects = [self.lineage.next_timeout(), self.executors.next_to_leave()];
        let of_objects = of_objects.into_iter().flatten().filter(|_| !self.is_stopping);
        let others = [self.queue.next_timeout(), self.executors.next_taken_back()];
        others.into_iter().flatten().chain(of_objects).min()
    }

    /// When the next [`Event::Tick`] is due, microseconds since 1970: there is none while no job
    /// runs, unless a snapshot is owed.
    pub fn next_tick(&self) -> Option<u64> {
        let is_due =
            Retention::owes_snapshots(&self.table) || self.all().any(|job| !job.has_ended());
        is_due.then_some(self.ticked_us + SAMPLE_EVERY_US)
    }

    /// A task's outputs are about to appear at these places.
    fn claim(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        places: Vec<PlaceId>,
        step: &mut JobsStep,
    ) {
        if self.has(executor, task)
            && let Some(job) = self.table.get_mut(task.job)
        {
            let by_other = job.claim(task.index, places).err();
            step.act(JobsAction::Claimed { executor, task, by_other });
        }
    }

    // ---- results of earlier tasks

    /// Ends a task with an earlier result, has an executor look whether that is still there, or
    /// queues the task.
    fn earlier_result(
        &mut self,
        task: TaskId,
        earlier: TaskId,
        outcome: Option<Box<Outcome>>,
        step: &mut JobsStep,
    ) {
        if !self.reuse.has_read(task, earlier) {
            return;
        }
        let has_executors = !self.executors.are_none();
        let known = (&self.table, &self.lineage);
        match Reuse::weigh((task, earlier), outcome, has_executors, known) {
            ReuseVerdict::Not => _ = self.queue.enqueue(task, &mut self.table, step),
            ReuseVerdict::Whole(end) => self.end(end, step),
            ReuseVerdict::IfThere(outcome) => {
                self.reuse.line_up(task, outcome);
                self.send_checks(step);
            }
        }
    }

    /// Has executors look whether what was written is still there.
    pub(crate) fn send_checks(&mut self, step: &mut JobsStep) {
        for task in self.reuse.send_checks(&self.executors, step) {
            self.queue.enqueue(task, &mut self.table, step);
        }
    }

    /// An executor has looked for what was written.
    fn checked(
        &mut self,
        executor: ExecutorId,
        task: TaskId,
        is_unchanged: bool,
        step: &mut JobsStep,
    ) {
        if let Some(outcome) = self.reuse.checked(task, executor) {
            if is_unchanged {
                self.end(TaskEnding::unassigned(task, outcome), step);
            } else {
                self.queue.enqueue(task, &mut self.table, step);
            }
        }
        self.send_checks(step);
    }

    // ---- what there is

    /// The id that the next submitted job gets.
    pub fn next_job(&self) -> JobId {
        self.table.next_id()
    }

    /// All jobs that are in memory, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.table.all()
    }

    /// Ended jobs that are not in memory, the oldest first.
    pub fn archived(&self) -> impl Iterator<Item = &JobSummary> {
        self.table.archived()
    }

    /// What is remembered of a job that is not in memory.
    pub fn summary(&self, job: JobId) -> Option<&JobSummary> {
        self.table.summary(job)
    }

    /// Whether a job is remembered, but not in memory.
    pub fn is_archived(&self, job: JobId) -> bool {
        self.table.is_archived(job)
    }

    /// A job that is in memory.
    pub fn get(&self, job: JobId) -> Option<&Job> {
        self.table.get(job)
    }

    /// Whether the task is assigned to this executor.
    pub fn has(&self, executor: ExecutorId, task: TaskId) -> bool {
        self.table
            .task(task)
            .is_some_and(|state| state.phase == Phase::Assigned && state.executor == Some(executor))
    }

    /// Whether tasks of new jobs, or tasks that one end has released, can be queued now.
    pub fn has_more_to_queue(&self) -> bool {
        self.queue.has_more(&self.table)
    }

    /// Whether an entry of results is full, so that waiting would not make it larger.
    pub fn has_full_entry(&self) -> bool {
        self.all().any(|job| job.recorded.pending.has_full_entry())
    }

    /// Bytes of captured output that the journal keeps.
    pub fn output_bytes(&self) -> u64 {
        self.retention.output_bytes()
    }

    /// How much captured output the journal may keep, bytes.
    pub fn max_output_bytes(&self) -> u64 {
        self.retention.max_output_bytes()
    }

    /// Why a task waits to be offered to executors again, if it does.
    pub fn why_refused(&self, task: TaskId) -> Option<&str> {
        self.queue.why_refused(task)
    }

    /// Until when an executor is given no tasks, if it is set aside, microseconds since 1970.
    pub fn set_aside_until(&self, executor: ExecutorId) -> Option<u64> {
        self.executors.set_aside_until(executor)
    }

    /// Executors that leave once what only they hold is elsewhere.
    pub fn leaving(&self) -> impl Iterator<Item = ExecutorId> {
        self.executors.leaving()
    }

    /// A kept object's spec.
    pub fn kept_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        self.lineage.kept_spec(object, &self.table)
    }

    /// All kept objects.
    pub fn kept_objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        self.lineage.kept_objects(&self.table)
    }

    /// Whether other jobs may read the object: a job keeps it for its user.
    pub fn lends(&self, object: ObjectId) -> bool {
        self.lineage.lends(object, &self.table)
    }

    /// Whether executors may still be coming back, as the dispatcher has just started.
    pub fn awaits_executors(&self, now_us: u64) -> bool {
        self.lineage.awaits_executors(now_us)
    }

    /// Whether an executor that was there before a restart may come back with the object.
    pub fn may_come_back(&self, object: ObjectId) -> bool {
        self.lineage.is_unseen(object)
    }
}
