//! Queries and answers of a service, with its errors. The core and its parts use them, and stand
//! below the service.

use std::net::SocketAddr;

use eyas_jobs::SpecError;
use eyas_pools::PoolsError;
use eyas_types::course::MAX_USER_BYTES;
use eyas_types::{JobId, Name, TaskId};
use eyas_wire::client::NO_SUCH_JOB;
use thiserror::Error;

use crate::executors::NoSuchExecutor;
use crate::journal::JournalError;
use crate::keys::KeysError;
use crate::names::NamesError;
use crate::printed::MAX_QUESTIONS;
use crate::pushes::PushError;
use crate::rights::NotAllowed;

/// The answer of a service to a call.
pub type Answer<T> = Result<T, ServiceError>;

/// Why a service does not do what it was asked for.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The dispatcher ends.
    #[error("the cluster is stopping")]
    Stopping,
    /// The caller's key or token does not permit it.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The job is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The job keeps or pushes objects, which the policy of the cluster does not do.
    #[error(
        "policy {policy} has executors keep nothing: {otherwise}, or start the dispatcher with \
         another policy"
    )]
    NothingIsKept {
        /// The policy.
        policy: String,
        /// What the job can do instead.
        otherwise: &'static str,
    },
    /// The job could not be checked.
    #[error("the job could not be checked; see the dispatcher's log")]
    Unchecked,
    /// The name of a user is too long.
    #[error("the name of the user has more than {MAX_USER_BYTES} bytes: shorten it")]
    LongUserName,
    /// A kept output that the job reads is no longer there.
    #[error("`{0}` was released or replaced while the job was submitted: submit the job again")]
    NotKept(Name),
    /// There is no such job.
    #[error("{NO_SUCH_JOB} {0}: `eyas job list` shows the jobs that there are")]
    NoSuchJob(JobId),
    /// The job has no tasks.
    #[error("job {0} has no tasks")]
    NoTasks(JobId),
    /// The job has no such task.
    #[error(
        "there is no task {task}: job {} has {}",
        task.job,
        match last.index {
            0 => format!("one task, {last}"),
            _ => format!("tasks {} to {last}", TaskId { index: 0, ..*task }),
        }
    )]
    NoSuchTask {
        /// The task.
        task: TaskId,
        /// The last task that there is.
        last: TaskId,
    },
    /// The task is a call of a worker.
    #[error(
        "task {0} is a call of a function: what it prints goes to the program that has called it"
    )]
    IsCall(TaskId),
    /// The task's executor cannot tell what a running task prints.
    #[error(
        "executor {0} runs an earlier version of eyas, which does not send the output of a running \
         task: wait until the task has ended"
    )]
    EarlierExecutor(String),
    /// Too many clients ask for the output of running tasks.
    #[error("{MAX_QUESTIONS} clients follow tasks already: try again when one of them has ended")]
    TooManyFollow,
    /// The job has not ended.
    #[error(
        "job {0} is still running: wait for its end, or cancel it first (`eyas job cancel {0}`)"
    )]
    StillRunning(JobId),
    /// The job has not ended, and may read what would be released.
    #[error("job {0} is still running and may read what it keeps: wait for its end")]
    StillReads(JobId),
    /// What the job kept is no longer kept.
    #[error("what job {0} kept in the cluster was released: submit the job again")]
    WasReleased(JobId),
    /// A retry names objects that the job does not have.
    #[error("job {0} has other inputs than the client says: look at it again")]
    OtherObjects(JobId),
    /// The file system cannot be forgotten while it has nodes.
    #[error(
        "executors that keep files are connected: stop all of them first, with `eyas executor \
         stop NAME`"
    )]
    FilesNodesConnected,
    /// There is no such executor.
    #[error(transparent)]
    NoSuchExecutor(#[from] NoSuchExecutor),
    /// A push cannot begin.
    #[error(transparent)]
    Push(#[from] PushError),
    /// The cluster's keys cannot be read or changed.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The keys may have been changed or not.
    #[error("the keys were not changed; see the dispatcher's log")]
    KeysUnchanged,
    /// Names of files cannot be changed.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// Pools cannot do that.
    #[error(transparent)]
    Pools(#[from] PoolsError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Results cannot be read.
    #[error("the results could not be read; see the dispatcher's log")]
    Unread,
}

/// Which tasks of a job are listed.
#[derive(Clone, Copy, Debug)]
pub struct TaskQuery {
    /// First task.
    pub from: u32,
    /// Largest number of tasks; there may be fewer.
    pub limit: u32,
    /// Only failed tasks.
    pub failed: bool,
}

/// Nodes of the cluster's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesNodes {
    /// Addresses of some nodes.
    pub nodes: Vec<SocketAddr>,
    /// Whether the cluster has a file system, even if none of its nodes is connected.
    pub has_files: bool,
    /// Whether the dispatcher has just started, so that executors are still reconnecting.
    pub are_returning: bool,
}

/// A cluster that has begun to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppingCluster {
    /// Number of executors that are told to stop.
    pub executors: u64,
    /// Names of the cluster's processes, by which a client on the same machine can tell when they
    /// have ended.
    pub processes: Vec<String>,
}
