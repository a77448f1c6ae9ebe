//! What survives the dispatcher, and how it is read again. The `journal` is the log on a disk.

use std::collections::BTreeMap;
use std::ops::Range;

use eyas_jobs::{Entry, JobSpec, JobSummary, JournalRecord, Replay, StoredNumber};
use eyas_types::dfs::FileSystemId;
use eyas_types::{JobId, Name, NamedFile};
use eyas_wire::client::OutputFile;

use crate::journal::error::JournalError;
use crate::journal::output::OutputRange;

/// Number of a record, counted from 1 in the order in which records were appended by this process.
pub(crate) type RecordNumber = u64;

/// What becomes of names of files: `None` if a name is forgotten.
pub(crate) type NameUpdates = BTreeMap<Name, Option<NamedFile>>;

/// Which captured output comes with results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputDetail {
    /// All.
    Whole,
    /// All, for a watch, which reads each entry once and soon after it was appended.
    New,
    /// Without large output, which is kept apart.
    Short,
    /// Without large output, but with its places.
    Places,
}

/// A job that is durable, and is removed unless it is submitted.
pub(crate) struct StoredJob {
    number: StoredNumber,
    /// Removes it.
    unless_submitted: Option<Box<dyn FnOnce() + Send>>,
}

impl StoredJob {
    pub fn new(number: StoredNumber, unless_submitted: impl FnOnce() + Send + 'static) -> Self {
        StoredJob { number, unless_submitted: Some(Box::new(unless_submitted)) }
    }

    /// By which the job's record names it.
    pub fn number(&self) -> StoredNumber {
        self.number
    }

    /// The job is submitted: it stays.
    pub fn keep(mut self) {
        self.unless_submitted = None;
    }
}

impl Drop for StoredJob {
    fn drop(&mut self) {
        if let Some(remove) = self.unless_submitted.take() {
            remove();
        }
    }
}

/// A log of the records that the decider of jobs writes. Whoever opens it is told up to which
/// number records are durable; what is durable can be read by any thread.
pub(crate) trait Log: Send + Sync {
    /// Appends a record, and returns its number. Only the owner of the dispatcher's state appends.
    /// If a record cannot be written, the function that was given when the log was opened is told,
    /// and no later record becomes durable.
    fn append(&self, record: JournalRecord) -> RecordNumber;

    /// Writes a large job before it is submitted, so that its record is short, and other records
    /// need not wait for it. The job is durable when this returns, and goes again unless it is
    /// [kept](StoredJob::keep). This blocks. `None` if a record or a job could not be written.
    fn store(&self, spec: &JobSpec) -> Option<StoredJob>;

    /// All jobs, oldest first; with those that need not be replayed, their summaries.
    fn jobs(&self) -> Result<Vec<(JobId, Option<JobSummary>)>, JournalError>;

    /// A job as its durable records leave it.
    fn replay(&self, job: JobId) -> Result<Replay, JournalError>;

    /// Durable results of a job, by the numbers of its entries, and the places of output that is
    /// kept apart.
    fn results(
        &self,
        job: JobId,
        entries: Range<u64>,
        captured: OutputDetail,
    ) -> Result<Vec<(Entry, Vec<OutputRange>)>, JournalError>;

    /// The file with large captured output of a job.
    fn output_file(&self, job: JobId) -> Result<OutputFile, JournalError>;

    /// Id of the cluster's file system: the first candidate that was passed. It is durable when
    /// this returns.
    fn file_system(&self, candidate: FileSystemId) -> Result<FileSystemId, JournalError>;

    /// Whether the cluster has a file system.
    fn has_file_system(&self) -> Result<bool, JournalError>;

    /// Forgets it. This is durable when it returns.
    fn forget_file_system(&self) -> Result<(), JournalError>;

    /// The names of files, in their order.
    fn names(&self) -> Result<Vec<(Name, NamedFile)>, JournalError>;

    /// Changes names of files, all of them or none. This is durable when it returns, and blocks.
    fn change_names(&self, updates: &NameUpdates) -> Result<(), JournalError>;
}
