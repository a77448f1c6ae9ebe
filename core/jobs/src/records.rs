//! How the course of jobs leaves the decider: entries, results and samples for the journal, and
//! results of attached jobs for their clients.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use eyas_types::JobId;
use eyas_types::course::Sample;

use crate::event::{JobsAction, SchedulerOrder};
use crate::executors::PresentExecutors;
use crate::job::Job;
use crate::job_table::JobTable;
use crate::log::{Entry, JournalRecord};
use crate::queueing::ReadyQueue;
use crate::step::JobsStep;

impl JobTable {
    /// Gives an entry about a job to the journal.
    pub fn write_entry(&mut self, id: JobId, entry: Entry, step: &mut JobsStep) {
        if let Some(job) = self.get_mut(id) {
            write_entry(job, entry, step);
        }
    }

    /// Gives the gathered results to the journal. Jobs that have ended are no longer pushed for.
    pub fn flush(&mut self, queue: &mut ReadyQueue, step: &mut JobsStep) {
        let has_results =
            |job: &&mut Job| !job.recorded.pending.is_empty() && !job.spec.is_attached;
        for job in self.all_mut().filter(has_results) {
            let mut samples = job.course.take_unwritten();
            for ends in job.recorded.pending.take() {
                write_entry(job, Entry::Results { ends, samples: mem::take(&mut samples) }, step);
            }
            if job.has_ended() {
                queue.end_broadcast(job, step);
                forget_ended(job.id, step);
            }
            step.show(job.id);
        }
    }

    /// Attached jobs with results for their clients, and those that are over.
    pub fn due_to_deliver(&self) -> Vec<JobId> {
        let is_due = |job: &&Job| {
            job.spec.is_attached && (!job.recorded.pending.is_empty() || job.has_ended())
        };
        self.all().filter(is_due).map(|job| job.id).collect()
    }

    /// Sends the gathered results of an attached job to its client.
    pub fn deliver(&mut self, id: JobId, step: &mut JobsStep) {
        let Some(job) = self.get_mut(id) else { return };
        for ends in job.recorded.pending.take() {
            let results = ends.into_iter().map(|end| end.result).collect();
            step.act(JobsAction::Deliver { job: id, results });
        }
    }

    /// Closes an interval of each job's course.
    pub fn sample(
        &mut self,
        executors: &PresentExecutors,
        watched: &BTreeSet<JobId>,
        step: &mut JobsStep,
    ) {
        for job in self.all_mut().filter(|job| !job.has_ended()) {
            let (at_us, counts) = (job.time_us(step.now_us), job.counts());
            let (waiting, assigned) = (counts.waiting, counts.assigned);
            let state = Sample { at_us, waiting, assigned, ..executors.sample() };
            job.course.tick(false, state);
            // What gathers is written soon, and shown then.
            if watched.contains(&job.id) && job.recorded.pending.is_empty() {
                step.show(job.id);
            }
        }
        for job in self.all_mut().filter(|job| job.course.has_old_samples()) {
            write_samples(job, step);
        }
    }

    /// Closes a job's course with its last task, so that a short one has a sample too.
    pub fn close_course(&mut self, id: JobId, executors: &PresentExecutors, now_us: u64) {
        if let Some(job) = self.get_mut(id).filter(|job| job.has_ended()) {
            let at_us = job.time_us(now_us);
            job.course.tick(true, Sample { at_us, ..executors.sample() });
        }
    }

    /// Writes a snapshot of a job. `is_watched` if clients read results of the job, and count them.
    pub fn write_snapshot(
        &mut self,
        id: JobId,
        is_watched: bool,
        queue: &mut ReadyQueue,
        step: &mut JobsStep,
    ) {
        // A snapshot covers all results and all closed samples.
        self.flush(queue, step);
        let Some(job) = self.get_mut(id) else { return };
        if job.course.has_unwritten() {
            write_samples(job, step);
        }
        let last_results = job.counts().ended();
        let drops_results =
            !is_watched && job.recorded.results > job.recorded.dropped_results + last_results;
        if drops_results {
            job.recorded.dropped_results = job.recorded.results - last_results;
        }
        job.recorded.cover();
        let summary = job.has_ended().then(|| Box::new(job.summary()));
        let snapshot = Arc::new(job.snapshot());
        step.write(JournalRecord::Snapshot { job: id, snapshot, summary, drops_results });
    }
}

/// Scheduler and executors may forget a job that has ended.
pub(crate) fn forget_ended(job: JobId, step: &mut JobsStep) {
    step.order(SchedulerOrder::ForgetJob { job });
    step.act(JobsAction::Forget { job });
}

fn write_entry(job: &mut Job, entry: Entry, step: &mut JobsStep) {
    if job.spec.is_attached {
        return;
    }
    job.recorded.uncovered += entry.uncovered();
    let number = job.recorded.next_entry();
    step.write(JournalRecord::Entry { job: job.id, number, entry: Arc::new(entry) });
}

/// Gives the samples of a job to the journal if no results are about to take them along.
fn write_samples(job: &mut Job, step: &mut JobsStep) {
    if job.recorded.pending.is_empty() {
        let samples = job.course.take_unwritten();
        write_entry(job, Entry::Samples(samples), step);
    }
}
