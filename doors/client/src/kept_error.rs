//! Errors of kept outputs as inputs.

use eyas_store::GlobError;
use eyas_types::{JobId, Name, units};
use thiserror::Error;

use crate::client_error::ClientError;
use crate::clusters::ClusterError;

/// Why a kept output cannot be an input.
#[derive(Debug, Error)]
pub enum KeptError {
    /// The text does not begin with the number of a job.
    #[error(
        "`{0}` names no kept output: write eyas://JOB/TASK/FILE, with the number of the job or \
         `last`; a file of the cluster has three slashes, eyas:///PATH"
    )]
    Name(Name),
    /// The name has `last` in place of a number, and there is no job.
    #[error(
        "`{0}` is an output of the job that was submitted last, and the cluster has no job: submit \
         the job that makes it first"
    )]
    NoJob(Name),
    /// No cluster is named.
    #[error("`{0}` is a kept output of a cluster, and no cluster is named: add --cluster")]
    NoCluster(Name),
    /// The access file of the cluster cannot be used.
    #[error(transparent)]
    Cluster(Box<ClusterError>),
    /// The dispatcher does not answer, or refuses.
    #[error(transparent)]
    Client(Box<ClientError>),
    /// Tasks that may keep the output have not ended.
    #[error(
        "`{name}` cannot be read yet: {} of job {job} that keep outputs have not ended; wait for \
         them with `eyas job wait {job}`",
        units::format_count(*.tasks, "task")
    )]
    Unfinished {
        /// The name or pattern.
        name: Name,
        /// The job.
        job: JobId,
        /// Number of tasks that have not ended.
        tasks: u64,
    },
    /// The job keeps no such output.
    #[error(
        "no kept output is named `{0}`: only outputs with `keep = true` and without `to` have \
         such names, and only of tasks that succeeded"
    )]
    NotKept(Name),
    /// The output was lost more often than it may be computed again.
    #[error(
        "all copies of `{0}` were lost, each time it was computed: submit the job that makes it \
         again"
    )]
    Lost(Name),
    /// The text is not a pattern.
    #[error(transparent)]
    Pattern(Box<GlobError>),
}

impl From<ClientError> for KeptError {
    fn from(error: ClientError) -> Self {
        KeptError::Client(Box::new(error))
    }
}

impl From<ClusterError> for KeptError {
    fn from(error: ClusterError) -> Self {
        KeptError::Cluster(Box::new(error))
    }
}

impl From<GlobError> for KeptError {
    fn from(error: GlobError) -> Self {
        KeptError::Pattern(Box::new(error))
    }
}
