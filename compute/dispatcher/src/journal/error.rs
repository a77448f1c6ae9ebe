//! Errors of the journal.

use std::io;

use eyas_types::JobId;
use thiserror::Error;

use super::mark::MarkError;

/// Why the journal cannot be used.
#[derive(Debug, Error)]
#[error("the journal {path}: {problem}")]
pub struct JournalError {
    pub(super) path: String,
    pub(super) problem: JournalProblem,
}

/// Reasons why a journal cannot be used.
#[derive(Debug, Error)]
pub(crate) enum JournalProblem {
    #[error("{0}")]
    Database(Box<redb::Error>),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Mark(#[from] MarkError),
    #[error(
        "it has format {found}, and this eyas reads format {own}: use the eyas that has written \
         it, or remove the journal and the file journal.mark beside it, with all jobs in it"
    )]
    Format { found: u64, own: u64 },
    #[error("{what} cannot be decoded: {source}")]
    Undecodable { what: String, source: postcard::Error },
    #[error("job {0} is damaged")]
    DamagedJob(JobId),
    #[error(
        "captured output of job {job} in {path} is {wrong}: restore the file from a copy; to \
         start without that output, remove the file journal.mark beside the journal"
    )]
    DamagedOutput { job: JobId, path: String, wrong: &'static str },
    #[error("cannot be written: {0}; is the disk full?")]
    Unwritten(Box<JournalProblem>),
    #[error("job {0} is not the same when it is read again")]
    Differs(JobId),
}

macro_rules! database_errors {
    ($($error:ident)*) => {$(
        impl From<redb::$error> for JournalProblem {
            fn from(error: redb::$error) -> Self {
                JournalProblem::Database(Box::new(error.into()))
            }
        }
    )*};
}
database_errors! {
    DatabaseError TransactionError TableError StorageError CommitError CompactionError
}
