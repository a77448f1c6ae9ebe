//! The jobs that are remembered: those in memory, and what is known of ended ones that are not.

use alloc::collections::BTreeMap;

use eyas_types::{JobId, TaskId};

use crate::job::{Job, JobSummary, Phase, TaskState};

/// All jobs, by their ids: the oldest first.
#[derive(Debug)]
pub(crate) struct JobTable {
    jobs: BTreeMap<JobId, Job>,
    /// Ended jobs that are not in memory.
    archived: BTreeMap<JobId, JobSummary>,
    next_id: u32,
}

impl JobTable {
    pub fn new() -> Self {
        JobTable { jobs: BTreeMap::new(), archived: BTreeMap::new(), next_id: 1 }
    }

    /// The id that the next new job gets.
    pub fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// The id of a new job.
    pub fn take_id(&mut self) -> JobId {
        let id = self.next_id();
        self.next_id += 1;
        id
    }

    /// Later jobs get later ids.
    fn note_id(&mut self, job: JobId) {
        self.next_id = self.next_id.max(job.0 + 1);
    }

    // ---- jobs in memory

    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id)
    }

    /// A job that is attached to the connection of a client.
    pub fn attached_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.jobs.get_mut(&id).filter(|job| job.spec.is_attached)
    }

    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.jobs.values_mut()
    }

    /// Adds a new job, or one that was read from the journal.
    pub fn insert(&mut self, job: Job) {
        self.note_id(job.id);
        self.jobs.insert(job.id, job);
    }

    /// The state of a task of a job in memory.
    pub fn task(&self, task: TaskId) -> Option<&TaskState> {
        self.jobs.get(&task.job)?.tasks.get(task.index as usize)
    }

    /// The phase of a task of a job in memory.
    pub fn phase(&self, task: TaskId) -> Option<Phase> {
        self.task(task).map(|state| state.phase)
    }

    /// Whether the job is in memory, and all its tasks have ended.
    pub fn has_ended(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(Job::has_ended)
    }

    // ---- ended jobs that are not in memory

    pub fn archived(&self) -> impl Iterator<Item = &JobSummary> {
        self.archived.values()
    }

    pub fn summary(&self, id: JobId) -> Option<&JobSummary> {
        self.archived.get(&id)
    }

    pub fn is_archived(&self, id: JobId) -> bool {
        self.archived.contains_key(&id)
    }

    /// An ended job leaves memory. Returns what it was.
    pub fn archive(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.archived.insert(id, job.summary());
        Some(job)
    }

    /// An ended job was found in the journal, and is not in memory.
    pub fn add_archived(&mut self, summary: JobSummary) {
        self.note_id(summary.job);
        self.archived.insert(summary.job, summary);
    }

    /// A job comes back into memory, or is forgotten. Returns what it was, if it was archived.
    pub fn unarchive(&mut self, id: JobId) -> Option<JobSummary> {
        self.archived.remove(&id)
    }

    // ---- all of them

    /// The number of jobs that are remembered.
    pub fn len(&self) -> usize {
        self.jobs.len() + self.archived.len()
    }

    /// Forgets a job that is in memory. Returns what it was.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        self.jobs.remove(&id)
    }
}
