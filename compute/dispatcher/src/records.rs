//! The records of jobs: what is appended to the log and waits to be on disk, and archived jobs that
//! are read from it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use eyas_jobs::{Entry, Job, JobSummary, Jobs, JournalRecord, Replay};
use eyas_types::JobId;
use eyas_types::dfs::FileSystemId;
use eyas_wire::executor::FilesNode;

use crate::journal::{JournalError, tell_difference};
use crate::log::{Log, RecordNumber};

/// What follows once a record is on disk.
enum OnceDurable {
    /// The job was accepted.
    Accept(JobId),
    /// The log has this entry of the job.
    Written(JobId, u64),
}

/// The log, as the owner of the dispatcher's state writes and reads it.
pub(crate) struct JobRecords {
    log: Arc<dyn Log>,
    /// What follows once records are on disk, in their order.
    once_durable: VecDeque<(RecordNumber, OnceDurable)>,
    /// Entries that were appended and that are not on disk yet.
    unwritten: BTreeMap<(JobId, u64), Arc<Entry>>,
    /// Whether results are being written.
    are_being_written: bool,
    /// The archived job that was read last, to answer further requests about it.
    loaded: Option<Replay>,
}

impl JobRecords {
    pub fn new(log: Arc<dyn Log>) -> Self {
        JobRecords {
            log,
            once_durable: VecDeque::new(),
            unwritten: BTreeMap::new(),
            are_being_written: false,
            loaded: None,
        }
    }

    pub fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Appends a record to the log.
    pub fn append(&mut self, record: JournalRecord) -> RecordNumber {
        let consequence = match &record {
            JournalRecord::Job { job, .. } => Some(OnceDurable::Accept(*job)),
            JournalRecord::Entry { job, number, entry } => {
                self.unwritten.insert((*job, *number), entry.clone());
                self.are_being_written = true;
                Some(OnceDurable::Written(*job, *number))
            }
            JournalRecord::Forget { job } => {
                self.loaded.take_if(|loaded| loaded.job().id == *job);
                None
            }
            JournalRecord::Objects { .. } | JournalRecord::Snapshot { .. } => None,
        };
        let number = self.log.append(record);
        self.once_durable.extend(consequence.map(|consequence| (number, consequence)));
        number
    }

    /// All records up to this number are on disk. Returns a job that is accepted by that; the next
    /// call returns the next one.
    pub fn next_accepted(&mut self, durable: RecordNumber) -> Option<JobId> {
        while let Some((_, consequence)) =
            self.once_durable.pop_front_if(|(record, _)| *record <= durable)
        {
            match consequence {
                OnceDurable::Accept(job) => return Some(job),
                OnceDurable::Written(job, entry) => {
                    self.are_being_written = false;
                    self.unwritten.remove(&(job, entry));
                }
            }
        }
        None
    }

    /// Whether results are being written.
    pub fn are_being_written(&self) -> bool {
        self.are_being_written
    }

    /// An entry that is not on disk yet.
    pub fn unwritten_entry(&self, job: JobId, number: u64) -> Option<&Arc<Entry>> {
        self.unwritten.get(&(job, number))
    }

    /// The file system to which an executor's node belongs. The first node founds it, or says which
    /// one it is.
    pub fn file_system_of(&self, node: &FilesNode) -> Option<FileSystemId> {
        let system = node.system.unwrap_or(FileSystemId::founded_by(node.node));
        let system = self.log.file_system(system);
        system
            .inspect_err(|why| {
                tracing::error!("cannot tell which the cluster's file system is: {why}");
            })
            .ok()
    }

    // ---- archived jobs that are read

    /// A job that is in memory, or was loaded for this call.
    pub fn job<'a>(&'a self, id: JobId, jobs: &'a Jobs) -> Option<&'a Job> {
        jobs.get(id).or_else(|| self.loaded(id))
    }

    /// Whether a job is archived, and must be read to answer requests about it.
    pub fn must_be_read(&self, job: JobId, jobs: &Jobs) -> bool {
        jobs.is_archived(job) && self.loaded(job).is_none()
    }

    /// An archived job that was read.
    fn loaded(&self, id: JobId) -> Option<&Job> {
        self.loaded.as_ref().map(Replay::job).filter(|job| job.id == id)
    }

    /// Takes an archived job that was read, unless the job has changed meanwhile. The job that was
    /// read last is kept.
    pub fn take_read(&mut self, replay: Replay, jobs: &Jobs) {
        let is_present = |summary: &&JobSummary| summary.entries == replay.next_entry();
        if jobs.summary(replay.job().id).filter(is_present).is_some() {
            self.loaded = Some(replay);
        }
    }

    /// Reads an archived job at once.
    pub fn load_archived(&mut self, job: JobId, jobs: &Jobs) -> Result<(), JournalError> {
        if self.must_be_read(job, jobs) {
            self.loaded = Some(self.read_job(job)?);
        }
        Ok(())
    }

    /// Gives away an archived job that was read.
    pub fn give_loaded(&mut self, job: JobId) -> Option<Replay> {
        self.loaded.take_if(|loaded| loaded.job().id == job)
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

    // ---- in tests

    /// Compares every job in memory with the journal, and writes differences to a file.
    pub fn compare_with(&self, jobs: &Jobs, told_in: &Path) -> Result<(), JournalError> {
        let tell = |job, what| {
            if let Err(e) = tell_difference(told_in, job, what) {
                tracing::error!("{}: {e}", told_in.display());
            }
        };
        for job in jobs.all().filter(|job| !job.spec.is_attached) {
            let read = self.log.replay(job.id)?;
            if !read.job().snapshot().agrees_with(&job.snapshot()) {
                tell(job.id, "it is another in memory than in the journal");
            }
        }
        for summary in jobs.archived() {
            let read = self.log.replay(summary.job)?;
            if read.job().summary() != *summary {
                tell(summary.job, "its summary is not what the journal has");
            }
        }
        Ok(())
    }
}
