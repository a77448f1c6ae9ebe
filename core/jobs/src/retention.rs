//! How much is remembered. In the journal, snapshots replace the entries that they cover, and the
//! oldest ended jobs are forgotten. Memory: ended jobs leave it, and are read from the journal when
//! a client asks for them.
//!
//! For each job that is remembered, the journal has the job as it was submitted, the last result of
//! each task, one snapshot, and at most [`MAX_UNCOVERED`] and as many entries and earlier results
//! as the job has tasks. Watched jobs keep earlier results until they are no longer watched.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::{JobId, TaskId};

use crate::event::{Effect, JobsAction};
use crate::job::{Job, JobSummary};
use crate::jobs::Jobs;
use crate::log::JournalRecord;

/// A job that runs is written as a snapshot once a snapshot would replace this many entries and
/// earlier results, and as many as the job has tasks: so snapshots cost less than what they replace
/// did. For example a job with 10,000 tasks is written once 11,024 of them would be replaced.
pub const MAX_UNCOVERED: u64 = 1024;

impl Jobs {
    /// Writes the snapshots that are due, lets ended jobs leave memory, and forgets the oldest.
    pub(crate) fn retain(&mut self) {
        let is_due = |job: &Job| {
            let has_changed = !job.recorded.has_snapshot();
            let is_long = job.recorded.uncovered >= MAX_UNCOVERED + job.tasks.len() as u64;
            job.was_accepted
                && !job.spec.is_attached
                && has_changed
                && (is_long || job.has_ended() && job.recorded.pending.is_empty())
        };
        for id in self.jobs.values().filter(|job| is_due(job)).map(|job| job.id).collect::<Vec<_>>()
        {
            self.write_snapshot(id);
        }
        self.let_ended_leave();
        self.forget_old_jobs(0);
    }

    /// Whether a snapshot of an ended job is due.
    pub(crate) fn owes_snapshots(&self) -> bool {
        let owes = |job: &Job| {
            job.was_accepted
                && !job.spec.is_attached
                && job.has_ended()
                && !job.recorded.has_snapshot()
        };
        self.jobs.values().any(owes)
    }

    fn write_snapshot(&mut self, id: JobId) {
        // A snapshot covers all results and all closed samples.
        self.flush();
        if self.jobs.get(&id).is_some_and(|job| job.course.has_unwritten()) {
            self.write_samples(id);
        }
        // Clients that read results count them.
        let is_watched = self.watched.contains(&id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let has_earlier_results =
            job.recorded.results > job.recorded.dropped_results + job.counts().ended();
        let drops_results = has_earlier_results && !is_watched;
        if drops_results {
            job.recorded.dropped_results = job.recorded.results - job.counts().ended();
        }
        job.recorded.cover();
        let summary = job.has_ended().then(|| Box::new(job.summary()));
        let snapshot = Arc::new(job.snapshot());
        self.effects.push(Effect::Action(JobsAction::Write(JournalRecord::Snapshot {
            job: id,
            snapshot,
            summary,
            drops_results,
        })));
    }

    /// Lets ended jobs leave memory while there are too many, or they are too large. What executors
    /// hold for a job stays with them: such a job does not leave, nor does one whose outputs other
    /// jobs still read.
    fn let_ended_leave(&mut self) {
        let may_leave = |job: &&Job| {
            job.has_ended()
                && !job.spec.is_attached
                && job.recorded.pending.is_empty()
                && job.recorded.has_snapshot()
                && !job.keeps_objects()
                && !self.is_lender(job)
        };
        let ended: Vec<_> =
            self.jobs.values().filter(may_leave).map(|job| (job.id, job.memory_bytes())).collect();
        let (mut count, mut bytes) =
            (ended.len(), ended.iter().map(|(_, bytes)| bytes).sum::<u64>());
        for (id, job_bytes) in ended {
            if count <= self.config.max_ended_in_memory
                && bytes <= self.config.max_ended_bytes_in_memory
            {
                break;
            }
            (count, bytes) = (count - 1, bytes - job_bytes);
            let Some(job) = self.jobs.remove(&id) else { continue };
            self.archived.insert(id, job.summary());
            // Nothing is released that was not released before.
            job.kept
                .keys()
                .for_each(|(index, object)| self.let_go_of(object, TaskId { job: id, index }));
        }
    }

    /// An ended job was found in the journal. It is not read as long as it is not needed.
    pub(crate) fn recovered_summary(&mut self, summary: JobSummary) {
        self.note_id(summary.job);
        self.output_bytes += summary.output_bytes;
        self.archived.insert(summary.job, summary);
    }

    /// Forgets the oldest ended jobs while there are too many, or too little room for this many
    /// bytes of output. One whose results are still being sent to a client stays, and so does one
    /// whose kept outputs other jobs still read. For example, of 203 ended jobs, the oldest three
    /// are forgotten by default.
    pub(crate) fn forget_old_jobs(&mut self, output_bytes: u64) {
        let may_go = |job: &&Job| {
            job.has_ended()
                && !job.spec.is_attached
                && job.recorded.pending.is_empty()
                && !self.is_lender(job)
        };
        let in_memory =
            self.jobs.values().filter(may_go).map(|job| (job.id, job.recorded.output_bytes));
        let others = self.archived.values().map(|summary| (summary.job, summary.output_bytes));
        let lacks_room =
            |jobs: &Jobs| jobs.output_bytes + output_bytes > jobs.config.max_output_bytes;
        let count = self.archived.len() + self.jobs.len();
        if count <= self.config.max_ended_jobs && !lacks_room(self) {
            return;
        }
        let mut ended: Vec<_> =
            in_memory.chain(others).filter(|(id, _)| !self.watched.contains(id)).collect();
        ended.sort_unstable();
        for (place, (id, bytes)) in ended.iter().enumerate() {
            let are_too_many = ended.len() - place > self.config.max_ended_jobs;
            if are_too_many || lacks_room(self) && *bytes > 0 {
                self.forget(*id);
            }
        }
    }

    /// Forgets an ended job with its results, and releases what executors hold for it.
    pub(crate) fn forget(&mut self, id: JobId) {
        if self.jobs.get(&id).is_some_and(|job| !job.has_ended() || job.spec.is_attached) {
            return;
        }
        // The scheduler forgets a job when its last results are written.
        self.flush();
        let (kept, output_bytes) = match (self.jobs.remove(&id), self.archived.remove(&id)) {
            (Some(job), _) => (job.kept.keys().collect(), job.recorded.output_bytes),
            (None, Some(summary)) => (Vec::new(), summary.output_bytes),
            (None, None) => return,
        };
        self.reuse.forget_job(id);
        self.watched.remove(&id);
        kept.into_iter()
            .for_each(|(index, object)| self.let_go_of(object, TaskId { job: id, index }));
        self.output_bytes -= output_bytes;
        self.effects.push(Effect::Action(JobsAction::Write(JournalRecord::Forget { job: id })));
    }
}
