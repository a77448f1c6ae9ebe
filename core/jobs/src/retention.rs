//! How much is remembered. In the journal, snapshots replace the entries that they cover, and the
//! oldest ended jobs are forgotten. Memory: ended jobs leave it, and are read from the journal when
//! a client asks for them.
//!
//! For each job that is remembered, the journal has the job as it was submitted, the last result of
//! each task, one snapshot, and at most [`MAX_UNCOVERED`] and as many entries and earlier results
//! as the job has tasks. Watched jobs keep earlier results until they are no longer watched.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::{JobId, Outcome};

use crate::config::Config;
use crate::job::{Job, cut_output, output_bytes};
use crate::job_table::JobTable;
use crate::lineage::Lineage;

/// A job that runs is written as a snapshot once a snapshot would replace this many entries and
/// earlier results, and as many as the job has tasks: so snapshots cost less than what they replace
/// did. For example a job with 10,000 tasks is written once 11,024 of them would be replaced.
pub const MAX_UNCOVERED: u64 = 1024;

/// Which jobs stay in memory and in the journal, and how much captured output.
#[derive(Debug)]
pub(crate) struct Retention {
    /// See [`Config::max_output_bytes`].
    max_output_bytes: u64,
    /// See [`Config::max_ended_jobs`].
    max_ended_jobs: usize,
    /// See [`Config::max_ended_in_memory`].
    max_ended_in_memory: usize,
    /// See [`Config::max_ended_bytes_in_memory`].
    max_ended_bytes_in_memory: u64,
    /// Bytes of captured output that the journal keeps.
    output_bytes: u64,
    /// Jobs that clients watch: those are not forgotten.
    watched: BTreeSet<JobId>,
}

impl Retention {
    pub fn new(config: &Config) -> Self {
        Retention {
            max_output_bytes: config.max_output_bytes,
            max_ended_jobs: config.max_ended_jobs,
            max_ended_in_memory: config.max_ended_in_memory,
            max_ended_bytes_in_memory: config.max_ended_bytes_in_memory,
            output_bytes: 0,
            watched: BTreeSet::new(),
        }
    }

    // ---- jobs that clients watch

    pub fn watched(&self) -> &BTreeSet<JobId> {
        &self.watched
    }

    /// A client begins to watch a job.
    pub fn watch(&mut self, job: JobId) {
        self.watched.insert(job);
    }

    /// Clients watch these jobs, and no others.
    pub fn set_watched(&mut self, jobs: BTreeSet<JobId>) {
        self.watched = jobs;
    }

    // ---- captured output

    /// Bytes of captured output that the journal keeps.
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// How much captured output the journal may keep, bytes.
    pub fn max_output_bytes(&self) -> u64 {
        self.max_output_bytes
    }

    /// Whether the journal has room for this much more output, bytes.
    pub fn has_room(&self, output_bytes: u64) -> bool {
        self.output_bytes + output_bytes <= self.max_output_bytes
    }

    /// Keeps a task's output in the journal, as far as there is room. Returns whether the output
    /// had to be cut.
    pub fn keep_output(&mut self, outcome: &mut Outcome) -> bool {
        let bytes = output_bytes(outcome);
        let room = self.max_output_bytes.saturating_sub(self.output_bytes);
        if bytes > room {
            cut_output(outcome, room);
        }
        self.output_bytes += output_bytes(outcome);
        bytes > room
    }

    /// A job was found in the journal, with this much output.
    pub fn recovered(&mut self, output_bytes: u64) {
        self.output_bytes += output_bytes;
    }

    // ---- snapshots

    /// Jobs of which a snapshot is due.
    pub fn due_snapshots(jobs: &JobTable) -> Vec<JobId> {
        let is_due = |job: &&Job| {
            let is_long = job.recorded.uncovered >= MAX_UNCOVERED + job.tasks.len() as u64;
            lacks_snapshot(job) && (is_long || job.has_ended() && job.recorded.pending.is_empty())
        };
        jobs.all().filter(is_due).map(|job| job.id).collect()
    }

    /// Whether a snapshot of an ended job is due.
    pub fn owes_snapshots(jobs: &JobTable) -> bool {
        jobs.all().any(|job| lacks_snapshot(job) && job.has_ended())
    }

    // ---- ended jobs

    /// Ended jobs that leave memory, while there are too many, or they are too large. What
    /// executors hold for a job stays with them: such a job does not leave, nor does one whose
    /// outputs other jobs still read.
    pub fn to_archive(&self, jobs: &JobTable, lineage: &Lineage) -> Vec<JobId> {
        let may_leave = |job: &&Job| {
            may_go(job, lineage) && job.recorded.has_snapshot() && !job.keeps_objects()
        };
        let ended: Vec<_> =
            jobs.all().filter(may_leave).map(|job| (job.id, job.memory_bytes())).collect();
        let (mut count, mut bytes) =
            (ended.len(), ended.iter().map(|(_, bytes)| bytes).sum::<u64>());
        let leaves = |(_, job_bytes): &(JobId, u64)| {
            let are_too_many =
                count > self.max_ended_in_memory || bytes > self.max_ended_bytes_in_memory;
            (count, bytes) = (count - 1, bytes - job_bytes);
            are_too_many
        };
        ended.into_iter().take_while(leaves).map(|(id, _)| id).collect()
    }

    /// The oldest ended jobs that are to be forgotten: there are too many, or too little room for
    /// this many bytes of output. One whose results are still being sent to a client stays, and so
    /// does one whose kept outputs other jobs still read. For example, of 203 ended jobs, the
    /// oldest three are forgotten by default.
    pub fn to_forget(&self, output_bytes: u64, jobs: &JobTable, lineage: &Lineage) -> Vec<JobId> {
        if jobs.len() <= self.max_ended_jobs && self.has_room(output_bytes) {
            return Vec::new();
        }
        let in_memory = jobs.all().filter(|job| may_go(job, lineage));
        let in_memory = in_memory.map(|job| (job.id, job.recorded.output_bytes));
        let others = jobs.archived().map(|summary| (summary.job, summary.output_bytes));
        let mut ended: Vec<_> =
            in_memory.chain(others).filter(|(id, _)| !self.watched.contains(id)).collect();
        ended.sort_unstable();
        let (count, mut bytes) = (ended.len(), self.output_bytes + output_bytes);
        let goes = |(place, (_, job_bytes)): &(usize, (JobId, u64))| {
            let are_too_many = count - place > self.max_ended_jobs;
            let goes = are_too_many || bytes > self.max_output_bytes && *job_bytes > 0;
            bytes -= if goes { *job_bytes } else { 0 };
            goes
        };
        ended.into_iter().enumerate().filter(goes).map(|(_, (id, _))| id).collect()
    }

    /// A job with this much output is forgotten.
    pub fn forget(&mut self, job: JobId, output_bytes: u64) {
        self.watched.remove(&job);
        self.output_bytes -= output_bytes;
    }
}

/// Whether an ended job may leave memory, or be forgotten.
fn may_go(job: &Job, lineage: &Lineage) -> bool {
    job.has_ended()
        && !job.spec.is_attached
        && job.recorded.pending.is_empty()
        && !lineage.is_lender(job)
}

/// Whether the journal has no snapshot of the job as it is.
fn lacks_snapshot(job: &Job) -> bool {
    job.was_accepted && !job.spec.is_attached && !job.recorded.has_snapshot()
}
