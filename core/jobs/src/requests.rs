//! Requests of clients that change jobs, and how results reach the journal and leave it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use eyas_types::{JobId, ObjectId, ObjectSpec, Outcome, Status, TaskId};

use crate::event::{Effect, JobsAction, SchedulerOrder};
use crate::job::{Job, Phase, cut_output, output_bytes};
use crate::jobs::Jobs;
use crate::log::{Entry, JournalRecord};

impl Jobs {
    /// Cancels those of a job's tasks that have not ended.
    pub(crate) fn cancel(&mut self, id: JobId, tasks: Range<u32>) {
        let mut told = Vec::new();
        for index in tasks {
            let Some(job) = self.jobs.get_mut(&id) else { break };
            let task = job.task_id(index);
            match job.tasks[index as usize].phase {
                Phase::Assigned => {
                    if job.cancelling.insert(index) {
                        told.push(index);
                        self.effects.push(Effect::Order(SchedulerOrder::Cancel { task }));
                    }
                }
                Phase::Waiting | Phase::Blocked => {
                    self.withdraw(task);
                    self.end(task, 0, String::new(), Outcome::of(Status::Cancelled));
                }
                Phase::Succeeded | Phase::Failed | Phase::Cancelled => {}
            }
        }
        if self.jobs.get(&id).is_some_and(Job::is_ending) {
            self.end_broadcast(id);
        }
        if !told.is_empty() {
            // Results that have gathered have their places in the journal already.
            self.flush();
            self.write_entry(id, Entry::Cancelled(told));
        }
    }

    /// Runs failed and cancelled tasks of a job again, with present versions of some objects.
    pub(crate) fn retry(&mut self, id: JobId, current: Vec<(u32, ObjectSpec)>) {
        let now_us = self.now_us;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let tasks = job.failed_tasks();
        if tasks.is_empty() {
            return;
        }
        // Results before this entry are of earlier tries.
        self.flush();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !current.is_empty() {
            job.take_current(current.clone());
            self.effects.push(Effect::Action(JobsAction::Write(JournalRecord::Objects {
                job: id,
                current,
            })));
        }
        let paused_us = job.paused_until(now_us);
        let ready = job.retry_these(&tasks, paused_us);
        self.borrow(id);
        self.write_entry(id, Entry::Retried { tasks, paused_us });
        self.effects.push(Effect::Action(JobsAction::Show { job: id }));
        self.name_job(id);
        if self.jobs[&id].may_be_pushed() {
            self.effects.push(Effect::Action(JobsAction::Broadcast { job: id }));
        }
        self.queue_released(id, &ready);
    }

    /// Releases all outputs that an ended job keeps.
    pub(crate) fn release(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.kept.is_empty()) else { return };
        let kept = job.release();
        // Results before this entry are of what was kept.
        self.flush();
        self.write_entry(id, Entry::Released);
        self.release_all(id, kept);
    }

    fn release_all(&mut self, id: JobId, kept: impl IntoIterator<Item = (u32, ObjectId)>) {
        for (index, object) in kept {
            self.let_go_of(object, TaskId { job: id, index });
        }
    }

    /// Gives an entry about a job to the journal.
    pub(crate) fn write_entry(&mut self, id: JobId, entry: Entry) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.spec.is_attached) else { return };
        job.recorded.uncovered += entry.uncovered();
        let number = job.recorded.next_entry();
        self.effects.push(Effect::Action(JobsAction::Write(JournalRecord::Entry {
            job: id,
            number,
            entry: Arc::new(entry),
        })));
    }

    /// Gives the gathered results to the journal.
    pub(crate) fn flush(&mut self) {
        let has_results = |job: &&Job| !job.recorded.pending.is_empty() && !job.spec.is_attached;
        for id in self.jobs.values().filter(has_results).map(|job| job.id).collect::<Vec<_>>() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let (has_ended, entries) = (job.has_ended(), job.recorded.pending.take());
            let mut samples = job.course.take_unwritten();
            for ends in entries {
                self.write_entry(
                    id,
                    Entry::Results { ends, samples: core::mem::take(&mut samples) },
                );
            }
            if has_ended {
                self.end_broadcast(id);
                self.effects.push(Effect::Order(SchedulerOrder::ForgetJob { job: id }));
                self.effects.push(Effect::Action(JobsAction::Forget { job: id }));
            }
            self.effects.push(Effect::Action(JobsAction::Show { job: id }));
        }
    }

    /// Gives the samples of a job to the journal if no results are about to take them along.
    pub(crate) fn write_samples(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.recorded.pending.is_empty() {
            let samples = job.course.take_unwritten();
            self.write_entry(id, Entry::Samples(samples));
        }
    }

    /// Makes room for a task's output in the journal. Returns whether the output had to be cut.
    pub(crate) fn keep_output(&mut self, job: JobId, outcome: &mut Outcome) -> bool {
        if self.jobs.get(&job).is_some_and(|job| job.spec.is_attached) {
            return false;
        }
        let bytes = output_bytes(outcome);
        if self.output_bytes + bytes > self.config.max_output_bytes {
            self.forget_old_jobs(bytes);
        }
        let room = self.config.max_output_bytes.saturating_sub(self.output_bytes);
        if bytes > room {
            cut_output(outcome, room);
        }
        self.output_bytes += output_bytes(outcome);
        bytes > room
    }
}
