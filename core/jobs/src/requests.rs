//! How jobs come, change and go: requests of clients, jobs from the journal, and tasks that run
//! again to make kept outputs again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, ObjectId, ObjectSpec, TaskId};

use crate::event::{JobsAction, SchedulerOrder};
use crate::job::{FreedTasks, Job, JobSummary, NewJob, Phase};
use crate::jobs::Jobs;
use crate::log::{Entry, JournalRecord, Replay};
use crate::queueing::{ReadyTasks, name_job};
use crate::records::forget_ended;
use crate::retention::Retention;
use crate::spec::{Extension, JobSpec};
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

impl Jobs {
    // ---- jobs come

    pub(crate) fn submitted(&mut self, new: NewJob, step: &mut JobsStep) {
        let id = self.table.take_id();
        let job = new.submit(id, step.now_us / 1000);
        step.write(JournalRecord::Job { job: id, spec: job.spec.clone() });
        self.table.insert(job);
        self.borrow(id, step);
    }

    /// Begins a job: queues its tasks, or has its inputs pushed before.
    pub(crate) fn begin(&mut self, id: JobId, step: &mut JobsStep) {
        let Some(job) = self.table.get_mut(id) else { return };
        job.was_accepted = true;
        if !job.has_ended() {
            self.queue.begin_broadcast(job, step);
        }
        if !job.is_pushed_first() {
            self.queue.begin(id);
        }
    }

    /// The inputs that are pushed ahead of a job's tasks have arrived.
    pub(crate) fn pushed(&mut self, id: JobId) {
        if let Some(job) = self.table.get_mut(id) {
            self.queue.pushed(job);
        }
    }

    /// Has executors hold what a job reads of other jobs.
    fn borrow(&mut self, id: JobId, step: &mut JobsStep) {
        let is_early = self.executors.are_none();
        self.lineage.borrow(id, is_early, &self.table, step);
    }

    /// A job from the journal goes on where it was.
    pub(crate) fn recovered(&mut self, replay: Replay, step: &mut JobsStep) {
        let Replay { mut job, hopeless } = replay;
        let id = job.id;
        // One that was archived comes back into memory, because a client changes it.
        let was_archived = self.table.unarchive(id).is_some();
        if !was_archived {
            self.retention.recovered(job.recorded.output_bytes);
        }
        job.was_accepted = true;
        let cancelled = mem::take(&mut job.cancelling);
        let goes_on = !job.has_ended();
        job.course.resume(job.time_us(step.now_us));
        if !goes_on {
            job.next_to_queue = job.tasks.len() as u32;
        }
        let kept: BTreeSet<u32> = job.kept.keys().map(|(index, _)| index).collect();
        let (reuses, count) = (job.spec.reuse, job.tasks.len() as u32);
        self.table.insert(job);
        if goes_on {
            self.borrow(id, step);
            self.begin(id, step);
        }
        for index in kept {
            self.take_up_kept(TaskId { job: id, index }, None, &[], step);
        }
        if reuses && !was_archived {
            (0..count).for_each(|index| self.reuse.note(TaskId { job: id, index }, &self.table));
        }
        self.end_what_cannot_go_on(id, &cancelled, &hopeless, step);
        // It may have been about to stop.
        step.note_failing(id);
    }

    /// Ends tasks of a job that was read from the journal: tasks whose cancellation was under way,
    /// and tasks whose producers failed before their own end was written.
    fn end_what_cannot_go_on(
        &mut self,
        id: JobId,
        cancelled: &BTreeSet<u32>,
        hopeless: &[u32],
        step: &mut JobsStep,
    ) {
        for index in cancelled {
            self.end(TaskEnding::cancelled(TaskId { job: id, index: *index }), step);
        }
        for index in hopeless {
            let task = TaskId { job: id, index: *index };
            if self.table.phase(task) == Some(Phase::Blocked) {
                let reason = "it needs the output of a task that did not succeed";
                self.end(TaskEnding::failed(task, FailureKind::Dependency, reason), step);
            }
        }
    }

    /// An ended job was found in the journal. It is not read as long as it is not needed.
    pub(crate) fn recovered_summary(&mut self, summary: JobSummary) {
        self.retention.recovered(summary.output_bytes);
        self.table.add_archived(summary);
    }

    // ---- jobs that are attached to the connection of a client
    //
    // The client adds tasks while the job runs, and is sent each result at once. Nothing is written
    // to the journal: the job ends with the connection.

    /// Begins an attached job, without tasks.
    pub(crate) fn attached(&mut self, mut spec: JobSpec, step: &mut JobsStep) {
        spec.submitted_unix_ms = step.now_us / 1000;
        let mut job = Job::new(self.table.take_id(), spec);
        job.was_accepted = true;
        name_job(&job, step);
        self.table.insert(job);
    }

    /// Adds tasks to an attached job, and queues those that may run.
    pub(crate) fn extended(&mut self, id: JobId, extension: Extension, step: &mut JobsStep) {
        let Some(job) = self.table.get_mut(id).filter(|job| job.is_open) else { return };
        match job.extend(extension) {
            Ok(FreedTasks { ready, hopeless, .. }) => {
                self.borrow(id, step);
                for index in hopeless {
                    let reason =
                        "it needs an output of a task that did not succeed or did not write it";
                    let task = TaskId { job: id, index };
                    self.end(TaskEnding::failed(task, FailureKind::Dependency, reason), step);
                }
                for index in ready {
                    self.queue(TaskId { job: id, index }, step);
                }
            }
            Err(why) => step.act(JobsAction::NotExtended { job: id, why }),
        }
    }

    /// No more tasks are added to a job.
    pub(crate) fn closed(&mut self, id: JobId, step: &mut JobsStep) {
        if let Some(job) = self.table.get_mut(id).filter(|job| job.is_open) {
            job.close(step.now_us);
        }
    }

    /// Sends the gathered results of attached jobs to their clients, and forgets those that are
    /// over.
    pub(crate) fn deliver(&mut self, step: &mut JobsStep) {
        for id in self.table.due_to_deliver() {
            self.table.deliver(id, step);
            if self.table.has_ended(id) {
                self.detach(id, step);
            }
        }
    }

    /// Forgets an attached job that has ended, and releases what executors hold for it.
    fn detach(&mut self, id: JobId, step: &mut JobsStep) {
        self.lineage.end_borrowing(id, &self.table, step);
        let Some(job) = self.table.remove(id) else { return };
        step.act(JobsAction::Detached { summary: Box::new(job.summary()) });
        forget_ended(id, step);
        self.retention.forget(id, 0);
        self.lineage.let_go_of_all(&job, &self.table, step);
    }

    // ---- jobs are changed

    /// Cancels those of a job's tasks that have not ended.
    pub(crate) fn cancel(&mut self, id: JobId, tasks: Range<u32>, step: &mut JobsStep) {
        let mut told = Vec::new();
        for index in tasks {
            let Some(job) = self.table.get_mut(id) else { break };
            let task = job.task_id(index);
            match job.tasks.phase(index) {
                Phase::Assigned => {
                    if job.cancelling.insert(index) {
                        told.push(index);
                        step.order(SchedulerOrder::Cancel { task });
                    }
                }
                Phase::Waiting | Phase::Blocked => {
                    self.withdraw(task, step);
                    self.end(TaskEnding::cancelled(task), step);
                }
                Phase::Succeeded | Phase::Failed | Phase::Cancelled => {}
            }
        }
        if let Some(job) = self.table.get_mut(id).filter(|job| job.is_ending()) {
            self.queue.end_broadcast(job, step);
        }
        if !told.is_empty() {
            // Results that have gathered have their places in the journal already.
            self.table.flush(&mut self.queue, step);
            self.table.write_entry(id, Entry::Cancelled(told), step);
        }
    }

    /// Runs failed and cancelled tasks of a job again, with present versions of some objects.
    pub(crate) fn retry(
        &mut self,
        id: JobId,
        current: Vec<(u32, ObjectSpec)>,
        step: &mut JobsStep,
    ) {
        let tasks = self.table.get(id).map(Job::failed_tasks).unwrap_or_default();
        if tasks.is_empty() {
            return;
        }
        // Results before this entry are of earlier tries.
        self.table.flush(&mut self.queue, step);
        let Some(job) = self.table.get_mut(id) else { return };
        if !current.is_empty() {
            job.take_current(current.clone());
            step.write(JournalRecord::Objects { job: id, current });
        }
        let paused_us = job.paused_until(step.now_us);
        let ready = job.retry_these(&tasks, paused_us);
        let may_be_pushed = job.may_be_pushed();
        self.go_on(id, Entry::Retried { tasks, paused_us }, step);
        if may_be_pushed && let Some(job) = self.table.get_mut(id) {
            self.queue.begin_broadcast(job, step);
        }
        self.queue_ready(&ReadyTasks { job: id, tasks: ready }, step);
    }

    /// Runs tasks again because no executor has their output.
    fn recompute(&mut self, id: JobId, tasks: Vec<u32>, step: &mut JobsStep) {
        // Results before this entry are of earlier times.
        self.table.flush(&mut self.queue, step);
        let readers = self.table.get(id).map(|job| job.waiting_readers(&tasks)).unwrap_or_default();
        for index in readers {
            self.withdraw(TaskId { job: id, index }, step);
        }
        let Some(job) = self.table.get_mut(id) else { return };
        let paused_us = job.paused_until(step.now_us);
        job.recompute(&tasks, paused_us);
        self.go_on(id, Entry::Recomputed { tasks: tasks.clone(), paused_us }, step);
        for index in &tasks {
            let task = TaskId { job: id, index: *index };
            self.lineage.hold_inputs_again(task, &self.table, step);
        }
        // One that reads from another of them waits for it.
        let waits = |index: &u32| {
            self.table.phase(TaskId { job: id, index: *index }) == Some(Phase::Waiting)
        };
        let ready = tasks.into_iter().filter(waits).collect();
        self.queue_ready(&ReadyTasks { job: id, tasks: ready }, step);
    }

    /// Tasks of a job run again, as the entry says.
    fn go_on(&mut self, id: JobId, entry: Entry, step: &mut JobsStep) {
        self.borrow(id, step);
        self.table.write_entry(id, entry, step);
        step.show(id);
        if let Some(job) = self.table.get(id) {
            name_job(job, step);
        }
    }

    /// Releases all outputs that an ended job keeps.
    pub(crate) fn release(&mut self, id: JobId, step: &mut JobsStep) {
        let Some(job) = self.table.get_mut(id).filter(|job| !job.kept.is_empty()) else { return };
        let kept = job.release();
        // Results before this entry are of what was kept.
        self.table.flush(&mut self.queue, step);
        self.table.write_entry(id, Entry::Released, step);
        for (index, object) in kept {
            self.lineage.let_go_of(object, TaskId { job: id, index }, &self.table, step);
        }
    }

    // ---- jobs go

    /// Writes the snapshots that are due, lets ended jobs leave memory, and forgets the oldest.
    pub(crate) fn retain(&mut self, step: &mut JobsStep) {
        for id in Retention::due_snapshots(&self.table) {
            let is_watched = self.retention.watched().contains(&id);
            self.table.write_snapshot(id, is_watched, &mut self.queue, step);
        }
        for id in self.retention.to_archive(&self.table, &self.lineage) {
            if let Some(job) = self.table.archive(id) {
                // Nothing is released that was not released before.
                self.lineage.let_go_of_all(&job, &self.table, step);
            }
        }
        self.forget_old_jobs(0, step);
    }

    /// Forgets the oldest ended jobs while there are too many, or too little room for this many
    /// bytes of output.
    pub(crate) fn forget_old_jobs(&mut self, output_bytes: u64, step: &mut JobsStep) {
        for id in self.retention.to_forget(output_bytes, &self.table, &self.lineage) {
            self.forget(id, step);
        }
    }

    /// Forgets an ended job with its results, and releases what executors hold for it.
    pub(crate) fn forget(&mut self, id: JobId, step: &mut JobsStep) {
        let is_needed = |job: &Job| !job.has_ended() || job.spec.is_attached;
        if self.table.get(id).is_some_and(is_needed) {
            return;
        }
        // The scheduler forgets a job when its last results are written.
        self.table.flush(&mut self.queue, step);
        let job = self.table.remove(id);
        let summary = self.table.unarchive(id);
        let output_bytes = match (&job, summary) {
            (Some(job), _) => job.recorded.output_bytes,
            (None, Some(summary)) => summary.output_bytes,
            (None, None) => return,
        };
        self.reuse.forget_job(id);
        self.retention.forget(id, output_bytes);
        if let Some(job) = job {
            self.lineage.let_go_of_all(&job, &self.table, step);
        }
        step.write(JournalRecord::Forget { job: id });
    }

    // ---- kept outputs

    /// An executor holds the object again.
    pub(crate) fn object_found(&mut self, object: ObjectId, step: &mut JobsStep) {
        let ready = self.lineage.object_found(object, &mut self.table);
        self.queue_all_ready(ready, step);
    }

    /// Handles objects that were lost since the last call, missing objects that are due, and
    /// objects with which no executor has come back.
    pub(crate) fn look_after_kept(&mut self, step: &mut JobsStep) {
        self.lineage.end_return(step.now_us);
        self.lineage.hold_again(step);
        for task in self.lineage.hold_back(step.now_us, &mut self.table) {
            self.withdraw(task, step);
        }
        let looked = self.lineage.look(step.now_us, &mut self.table);
        self.queue_all_ready(looked.ready, step);
        if !looked.nowhere.is_empty() {
            step.order(SchedulerOrder::Locate { objects: looked.nowhere });
        }
    }

    /// The result of a search: some objects are on their way to an executor, others are nowhere.
    pub(crate) fn located(
        &mut self,
        moving: &[ObjectId],
        nowhere: &[ObjectId],
        step: &mut JobsStep,
    ) {
        moving.iter().for_each(|object| self.lineage.moving(*object, step.now_us));
        let mut again: BTreeMap<JobId, BTreeSet<u32>> = BTreeMap::new();
        for object in nowhere {
            let has_executors = !self.executors.are_none();
            let remade = self.lineage.make_again(*object, has_executors, step.now_us, &self.table);
            for task in remade.again {
                again.entry(task.job).or_default().insert(task.index);
            }
            remade.ends.into_iter().for_each(|end| self.end(end, step));
        }
        for (job, tasks) in again {
            self.recompute(job, tasks.into_iter().collect(), step);
        }
    }
}
