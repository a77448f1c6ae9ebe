//! What must survive a crash, and what it means when it is read again.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::course::Sample;
use eyas_types::{JobId, ObjectSpec, TaskResult};
use serde::{Deserialize, Serialize};

use crate::job::{Job, JobSnapshot, JobSummary};
use crate::job_end::JobEnd;
use crate::spec::JobSpec;

/// What is to be written to the journal.
#[derive(Clone, Debug)]
pub enum JournalRecord {
    /// A job as it was submitted.
    Job {
        /// The id of the job.
        job: JobId,
        /// The job.
        spec: Arc<JobSpec>,
    },
    /// Some of the job's objects have other versions.
    Objects {
        /// The id of the job.
        job: JobId,
        /// Places of the objects, and the versions that replace them.
        current: Vec<(u32, ObjectSpec)>,
    },
    /// What happened to a job.
    Entry {
        /// The job.
        job: JobId,
        /// The entry's place among the job's entries, from 0.
        number: u64,
        /// The entry.
        entry: Arc<Entry>,
    },
    /// A job's durable state. It replaces the job's entries before [`JobSnapshot::entries`] other
    /// than results, and the snapshot before it.
    Snapshot {
        /// The job.
        job: JobId,
        /// The state.
        snapshot: Arc<JobSnapshot>,
        /// What is remembered of the job when it is not in memory, if it has ended.
        summary: Option<Box<JobSummary>>,
        /// Results of tasks that have a later result are removed.
        drops_results: bool,
    },
    /// A job is forgotten, with all its entries.
    Forget {
        /// The job.
        job: JobId,
    },
}

/// What happened to a job. Times are microseconds of the job's own time, which begins with its
/// submission and stands still between its end and a retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Entry {
    /// Tasks ended.
    Results {
        /// Their ends, in order.
        ends: Vec<JobEnd>,
        /// Intervals of the job's course that were closed since the last entry with such.
        samples: Vec<Sample>,
    },
    /// Intervals of the job's course that were closed while no task ended.
    Samples(Vec<Sample>),
    /// Failed or cancelled tasks were queued again.
    Retried {
        /// Their indices.
        tasks: Vec<u32>,
        /// How long the job's time has stood still in all.
        paused_us: u64,
    },
    /// Tasks that had succeeded were queued again, because what they left in the cluster was lost.
    Recomputed {
        /// Their indices.
        tasks: Vec<u32>,
        /// How long the job's time has stood still in all.
        paused_us: u64,
    },
    /// What its tasks left in the cluster need not be kept any longer.
    Released,
    /// Tasks that executors had were told to end; each is cancelled unless it has another result
    /// afterwards.
    Cancelled(Vec<u32>),
    /// Tasks are to start again, or have failed, because the executors that had them are gone.
    Restarted {
        /// Their indices.
        tasks: Vec<u32>,
        /// Whether the executors were lost, and not ended in good order.
        is_loss: bool,
    },
}

impl Entry {
    /// The ends it has.
    pub fn ends(&self) -> &[JobEnd] {
        match self {
            Entry::Results { ends, .. } => ends,
            _ => &[],
        }
    }

    /// How many entries and earlier results a snapshot after it replaces because of it.
    pub(crate) fn uncovered(&self) -> u64 {
        match self {
            Entry::Results { .. } => 0,
            Entry::Retried { tasks, .. } | Entry::Recomputed { tasks, .. } => {
                1 + tasks.len() as u64
            }
            Entry::Samples(_) | Entry::Released | Entry::Cancelled(_) | Entry::Restarted { .. } => {
                1
            }
        }
    }

    /// The results it has, taken out of it.
    pub fn into_results(self) -> Vec<TaskResult> {
        match self {
            Entry::Results { ends, .. } => ends.into_iter().map(|end| end.result).collect(),
            _ => Vec::new(),
        }
    }
}

/// A job that is read from the journal: its spec, then its entries in their order.
#[derive(Debug)]
pub struct Replay {
    pub(crate) job: Job,
    /// Tasks that can never run, whose end may not have been written.
    pub(crate) hopeless: Vec<u32>,
}

impl Replay {
    /// Begins with the job as it was submitted; `spec` was checked.
    pub fn new(job: JobId, spec: JobSpec) -> Self {
        Replay { job: Job::new(job, spec), hopeless: Vec::new() }
    }

    /// Begins with a snapshot of the job; `spec` was checked. `None` if the snapshot is not one of
    /// this job.
    pub fn from_snapshot(job: JobId, spec: JobSpec, snapshot: JobSnapshot) -> Option<Self> {
        Some(Replay { job: Job::from_snapshot(job, spec, snapshot)?, hopeless: Vec::new() })
    }

    /// The number of the next entry.
    pub fn next_entry(&self) -> u64 {
        self.job.recorded.entries
    }

    /// The job as far as it was read.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The job as far as it was read.
    pub fn into_job(self) -> Job {
        self.job
    }

    /// Applies the next entry.
    pub fn apply(&mut self, entry: Entry) {
        let job = &mut self.job;
        job.recorded.uncovered += entry.uncovered();
        match entry {
            Entry::Results { ends, samples } => {
                for end in &ends {
                    self.hopeless.extend(job.book(end).hopeless);
                }
                job.course.recovered(&samples);
            }
            Entry::Samples(samples) => job.course.recovered(&samples),
            Entry::Retried { tasks, paused_us } => {
                // Only a job that has ended is retried: all its hopeless tasks have ended.
                self.hopeless.clear();
                job.retry_these(&tasks, paused_us);
            }
            Entry::Recomputed { tasks, paused_us } => job.recompute(&tasks, paused_us),
            Entry::Released => drop(job.release()),
            Entry::Cancelled(tasks) => job.cancelling.extend(tasks),
            Entry::Restarted { tasks, is_loss } => {
                tasks.iter().for_each(|index| job.tasks.count_restart(*index, is_loss))
            }
        }
        job.recorded.entries += 1;
    }
}
