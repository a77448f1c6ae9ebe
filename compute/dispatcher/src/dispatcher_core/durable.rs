//! Durability: what the core writes to the journal, reads from it, and shows once it is on disk.

use std::path::Path;
use std::sync::Arc;

use eyas_jobs::{self as jobs, Entry, Job, JobSummary, JournalRecord, NewJob, Replay};
use eyas_types::{JobId, OutputSpec, units};
use tokio::sync::{oneshot, watch};

use super::DispatcherCore;
use crate::durable_replies::JobProgress;
use crate::journal::{JournalError, tell_difference};
use crate::log::{RecordNumber, StoredJob};
use crate::service::answer::{Answer, ServiceError};

/// What the core does once a record is on disk.
pub(super) enum OnceDurable {
    /// The job was accepted.
    Accept(JobId),
    /// The log has this entry of the job.
    Written(JobId, u64),
}

impl DispatcherCore {
    /// Reads the jobs of the journal. Jobs that had not ended continue.
    pub fn recover(&mut self) -> Result<(), JournalError> {
        for (id, summary) in self.log.jobs()? {
            if let Some(summary) = summary {
                self.replies.offer(id, self.progress_of_archived(&summary));
                self.tell_jobs(jobs::Event::RecoveredSummary { summary: Box::new(summary) });
                continue;
            }
            let replay = self.log.replay(id)?;
            self.tell_jobs(jobs::Event::Recovered { replay: Box::new(replay) });
            let Some(job) = self.jobs.get(id) else { continue };
            if !job.has_ended() {
                tracing::info!(
                    job = %id, ended = job.counts().ended(), of = job.counts().total(),
                    "goes on"
                );
            }
            let standing = self.standing(job);
            self.replies.offer(id, standing);
        }
        self.finish_pushes();
        Ok(())
    }

    /// Accepts a job, which the log may have `stored` already; it is queued once it is on disk.
    pub(crate) fn submit(&mut self, new: NewJob, stored: Option<StoredJob>) -> Answer<JobId> {
        let spec = new.spec();
        if self.stopping_us.is_some() {
            return Err(ServiceError::Stopping);
        }
        // Streams are held until the client has them, also by executors that keep nothing else.
        let is_kept = |output: &OutputSpec| output.replicas > 0 && !output.is_stream();
        let keeps = spec.templates.iter().flat_map(|template| &template.outputs).any(is_kept);
        let pushes = !spec.pushed().is_empty();
        if (keeps || pushes) && !self.caching {
            let otherwise =
                if keeps { "write outputs to persistent storage" } else { "do not push inputs" };
            return Err(ServiceError::NothingIsKept { policy: self.policy.clone(), otherwise });
        }
        if let Some(object) = new.kept_objects().find(|object| !self.jobs.lends(object.id())) {
            return Err(ServiceError::NotKept(object.source.clone()));
        }
        if let Some(stored) = stored {
            stored.keep();
        }
        let job = self.jobs.next_job();
        self.tell_jobs(jobs::Event::Submitted { job: Box::new(new) });
        Ok(job)
    }

    /// Has a call answered once all records so far are on disk.
    pub(crate) fn answer_durably<T: Send + 'static>(
        &mut self,
        answer: T,
        reply: oneshot::Sender<T>,
    ) {
        self.replies.answer(answer, reply);
    }

    /// The state of a job as it changes; what it counts is on disk.
    pub(crate) fn watch(&mut self, job: JobId) -> Answer<watch::Receiver<JobProgress>> {
        self.write_results();
        self.show(job);
        self.tell_jobs(jobs::Event::Watched { job });
        self.replies.watch(job).ok_or(ServiceError::NoSuchJob(job))
    }

    /// Appends a record to the log.
    pub(super) fn write(&mut self, record: JournalRecord) {
        let consequence = match &record {
            JournalRecord::Job { job, .. } => Some(OnceDurable::Accept(*job)),
            JournalRecord::Entry { job, number, entry } => {
                self.unwritten.insert((*job, *number), entry.clone());
                self.writing = true;
                Some(OnceDurable::Written(*job, *number))
            }
            JournalRecord::Forget { job } => {
                self.replies.forget(*job);
                self.loaded.take_if(|loaded| loaded.job().id == *job);
                None
            }
            JournalRecord::Objects { .. } | JournalRecord::Snapshot { .. } => None,
        };
        // Clients that watch the job again count its results anew, once the record is on disk.
        let recounted = match &record {
            JournalRecord::Snapshot { job, summary, drops_results: true, .. } => {
                Some((*job, summary.clone()))
            }
            _ => None,
        };
        let number = self.log.append(record);
        self.replies.appended(number);
        self.once_durable.extend(consequence.map(|consequence| (number, consequence)));
        match recounted {
            Some((job, Some(summary))) => {
                self.replies.show(job, self.progress_of_archived(&summary))
            }
            Some((job, None)) => self.show(job),
            None => {}
        }
    }

    /// An entry that is not on disk yet.
    pub(crate) fn unwritten_entry(&self, job: JobId, number: u64) -> Option<&Arc<Entry>> {
        self.unwritten.get(&(job, number))
    }

    /// All records up to this number are on disk.
    pub(super) fn durable(&mut self, number: RecordNumber) {
        while let Some((_, consequence)) =
            self.once_durable.pop_front_if(|(record, _)| *record <= number)
        {
            match consequence {
                OnceDurable::Accept(id) => {
                    if let Some(job) = self.jobs.get(id) {
                        let standing = self.standing(job);
                        let tasks = units::format_count(job.tasks.len() as u64, "task");
                        self.replies.offer(id, standing);
                        self.add_job_event(
                            id,
                            "job-submitted",
                            &format!("was submitted with {tasks}"),
                        );
                        self.tell_jobs(jobs::Event::Accepted { job: id });
                        self.finish_pushes();
                    }
                }
                OnceDurable::Written(id, entry) => {
                    self.writing = false;
                    self.unwritten.remove(&(id, entry));
                }
            }
        }
        self.replies.durable(number);
    }

    /// Writes the results that have gathered.
    pub(crate) fn write_results(&mut self) {
        self.tell_jobs(jobs::Event::Flush);
    }

    /// Shows a job to its watchers. All its results were given to the journal.
    pub(super) fn show(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(id) {
            let standing = self.standing(job);
            self.replies.show(id, standing);
        }
    }

    /// The state of an archived job.
    pub(super) fn progress_of_archived(&self, summary: &JobSummary) -> JobProgress {
        JobProgress {
            view: self.views().of_archived_job(summary),
            entries: summary.entries,
            dropped_results: summary.dropped_results,
            is_over: true,
        }
    }

    /// Replays a job, with entries that are not on disk yet.
    fn read_job(&self, job: JobId) -> Result<Replay, JournalError> {
        let mut replay = self.log.replay(job)?;
        for ((_, number), entry) in self.unwritten.range((job, 0)..=(job, u64::MAX)) {
            if *number == replay.next_entry() {
                replay.apply((**entry).clone());
            }
        }
        Ok(replay)
    }

    /// Whether a job is archived, and must be read to answer requests about it.
    pub(crate) fn must_be_read(&self, job: JobId) -> bool {
        self.jobs.is_archived(job) && self.loaded(job).is_none()
    }

    /// An archived job that was read.
    pub(crate) fn loaded(&self, id: JobId) -> Option<&Job> {
        self.loaded.as_ref().map(Replay::job).filter(|job| job.id == id)
    }

    /// Takes an archived job that was read, unless the job has changed meanwhile. The job that was
    /// read last is kept.
    pub(crate) fn take_read(&mut self, replay: Replay) {
        let is_present = |summary: &&JobSummary| summary.entries == replay.next_entry();
        if self.jobs.summary(replay.job().id).filter(is_present).is_some() {
            self.loaded = Some(replay);
        }
    }

    /// Reads an archived job at once.
    pub(super) fn load_archived(&mut self, job: JobId) -> Result<(), JournalError> {
        if self.must_be_read(job) {
            self.loaded = Some(self.read_job(job)?);
        }
        Ok(())
    }

    /// Takes an archived job that was read back into memory, so that it can continue.
    pub(crate) fn recall(&mut self, job: JobId) {
        if self.jobs.is_archived(job)
            && let Some(replay) = self.loaded.take_if(|loaded| loaded.job().id == job)
        {
            self.tell_jobs(jobs::Event::Recovered { replay: Box::new(replay) });
        }
    }

    /// Compares every job in memory with the journal, and writes differences to a file.
    pub(super) fn compare_with_journal(&self, told_in: &Path) -> Result<(), JournalError> {
        let tell = |job, what| {
            if let Err(e) = tell_difference(told_in, job, what) {
                tracing::error!("{}: {e}", told_in.display());
            }
        };
        for job in self.jobs.all().filter(|job| !job.spec.is_attached) {
            let read = self.log.replay(job.id)?;
            if !read.job().snapshot().agrees_with(&job.snapshot()) {
                tell(job.id, "it is another in memory than in the journal");
            }
        }
        for summary in self.jobs.archived() {
            let read = self.log.replay(summary.job)?;
            if read.job().summary() != *summary {
                tell(summary.job, "its summary is not what the journal has");
            }
        }
        Ok(())
    }

    /// The state of a job.
    pub(super) fn standing(&self, job: &jobs::Job) -> JobProgress {
        let (entries, dropped_results) = (job.entries(), job.dropped_results());
        JobProgress {
            view: self.views().of_job(job),
            entries,
            dropped_results,
            is_over: job.has_ended(),
        }
    }
}
