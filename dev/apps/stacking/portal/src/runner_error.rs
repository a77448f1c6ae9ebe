//! Why a job fails.

use crate::job_store::StoreError;
use crate::usage::UsageError;

/// Why a job fails, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("the portal cannot read or write the files of the job: {0}")]
    Files(#[from] std::io::Error),
    #[error("{0}")]
    Job(String),
    /// A job of eyas is lost: it is submitted again.
    #[error("the cluster has lost the work of the job {0} times: submit the job again")]
    Lost(u32),
}
