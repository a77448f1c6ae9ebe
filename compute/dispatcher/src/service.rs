//! What a dispatcher does for its clients, in the words of jobs and clusters. A door, such as the
//! wire session of `client_session`, turns requests into calls of a [`Service`] and answers into
//! messages, and decides nothing.
//!
//! An answer about a job is given when everything that it follows from is on disk, so that `kill
//! -9` makes none of them untrue.

mod attached_job;
mod caller;
pub(crate) mod deliveries;
mod watch;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use eyas_jobs::{JobSpec, SpecError};
use eyas_pools::{PoolsAnswer, PoolsError};
use eyas_types::access::{KeyId, KeyRole};
use eyas_types::course::MAX_USER_BYTES;
use eyas_types::{JobId, Name, ObjectId, ObjectSpec, TaskId, TaskResult};
use eyas_wire::client::{EventPosition, InputsPart, KeptPart, PushRequest, TracePart};
use eyas_wire::pool::PoolsRequest;
use eyas_wire::trust::SecretText;
use eyas_wire::view::{
    ExecutorView, Explanation, FailureView, JobReport, JobView, KeyView, ObjectView, PushView,
    TaskView,
};
use thiserror::Error;
use tokio::sync::watch as changing;

pub use self::attached_job::AttachedJob;
pub use self::caller::Caller;
pub(crate) use self::caller::{CoreCall, DispatcherHandle};
pub use self::deliveries::JobDelivery;
pub use self::watch::{JobWatch, JobWatchEvent, NumberedResults, WatchedResults};
use crate::dispatcher_core::push::PushError;
pub use crate::events::EventStream;
use crate::executors::NoSuchExecutor;
use crate::expressions::compile;
use crate::journal::JournalError;
use crate::keys::KeysError;
use crate::rights::NotAllowed;

/// What a service answers.
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
    #[error("there is no job {0}: `eyas job list` shows the jobs that there are")]
    NoSuchJob(JobId),
    /// The job has no tasks.
    #[error("job {0} has no tasks")]
    NoTasks(JobId),
    /// The job has no such task.
    #[error(
        "there is no task {task}: job {} has tasks {} to {last}",
        task.job,
        TaskId { index: 0, ..*task }
    )]
    NoSuchTask {
        /// The task.
        task: TaskId,
        /// The last task that there is.
        last: TaskId,
    },
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
    /// The objects of a retry are not those of the job.
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

/// A job that was checked and can be submitted.
pub struct CheckedJob(pub(crate) Box<JobSpec>);

impl CheckedJob {
    /// Checks a job. This takes a while for millions of tasks, and belongs on a thread that may
    /// block.
    ///
    /// # Errors
    /// If the job is wrong.
    pub fn check(mut spec: Box<JobSpec>) -> Result<Self, SpecError> {
        spec.validate(&compile)?;
        Ok(CheckedJob(spec))
    }
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

/// The operations of a dispatcher, for one caller.
///
/// Every call fails with `NotAllowed` if the caller's key or token does not permit it, and with
/// `Stopping` once the dispatcher ends. Calls about a job fail with `NoSuchJob`, those about a task
/// with `NoSuchTask`.
pub trait Service: Send + Sync {
    // ---- jobs

    /// Whether the caller may submit jobs, for doors that gather a job in parts.
    ///
    /// # Errors
    /// `NotAllowed` if not.
    fn may_submit(&self) -> Answer<()>;

    /// Accepts a job. It is on disk then, and will run.
    ///
    /// # Errors
    /// If the job needs what the cluster does not do, or reads what is no longer kept.
    fn submit(&self, job: CheckedJob) -> impl Future<Output = Answer<JobId>> + Send;

    /// Begins a job of a user, without tasks, that lives as long as its handle. It is in no
    /// journal.
    ///
    /// # Errors
    /// `LongUserName`.
    fn attach(
        &self,
        name: String,
        user: String,
    ) -> impl Future<Output = Answer<AttachedJob>> + Send;

    /// All jobs, the oldest first.
    ///
    /// # Errors
    /// The errors of every call.
    fn jobs(&self) -> impl Future<Output = Answer<Vec<JobView>>> + Send;

    /// One job.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn job(&self, job: JobId) -> impl Future<Output = Answer<JobView>> + Send;

    /// Some tasks of a job.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn tasks(
        &self,
        job: JobId,
        query: TaskQuery,
    ) -> impl Future<Output = Answer<Vec<TaskView>>> + Send;

    /// Why these tasks failed; without tasks, the first of the job that failed.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn failures(
        &self,
        job: JobId,
        tasks: Vec<u32>,
    ) -> impl Future<Output = Answer<Vec<FailureView>>> + Send;

    /// The last try of a task, with its captured output, if it has ended.
    ///
    /// # Errors
    /// If the result cannot be read.
    fn result(&self, task: TaskId) -> impl Future<Output = Answer<Option<TaskResult>>> + Send;

    /// Why a task is where it is.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn explain(&self, task: TaskId) -> impl Future<Output = Answer<Explanation>> + Send;

    /// A report's data.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn report(&self, job: JobId) -> impl Future<Output = Answer<JobReport>> + Send;

    /// Times and reads of tasks that succeeded, a part from task `from` on.
    ///
    /// # Errors
    /// If results cannot be read.
    fn trace(&self, job: JobId, from: u32) -> impl Future<Output = Answer<TracePart>> + Send;

    /// Objects that failed and cancelled tasks of an ended job read, a part from task `from` on.
    ///
    /// # Errors
    /// `StillRunning`.
    fn inputs(&self, job: JobId, from: u32) -> impl Future<Output = Answer<InputsPart>> + Send;

    /// Outputs that tasks of a job keep in the cluster, or the first of them. Lost ones are
    /// computed again. Holders of `doubted` objects, which could not be fetched, are told to verify
    /// them.
    ///
    /// # Errors
    /// `WasReleased`.
    fn kept(
        &self,
        job: JobId,
        tasks: Range<u32>,
        doubted: Vec<ObjectId>,
    ) -> impl Future<Output = Answer<KeptPart>> + Send;

    /// Progress and results of a job until its end. Results are numbered; the first `from` of them
    /// are left out.
    ///
    /// # Errors
    /// The errors of every call.
    fn watch(
        &self,
        job: JobId,
        results: WatchedResults,
        from: u64,
    ) -> impl Future<Output = Answer<JobWatch>> + Send;

    /// Cancels a task, or all tasks that have not ended. Returns how many that were.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn cancel(&self, job: JobId, task: Option<u32>) -> impl Future<Output = Answer<u64>> + Send;

    /// Runs failed and cancelled tasks again, with the present versions of `current` objects, by
    /// their places in the job. Returns how many tasks.
    ///
    /// # Errors
    /// `StillRunning`, `OtherObjects` or `WasReleased`.
    fn retry(
        &self,
        job: JobId,
        current: Vec<(u32, ObjectSpec)>,
    ) -> impl Future<Output = Answer<u64>> + Send;

    /// Releases the outputs that an ended job keeps. Returns how many.
    ///
    /// # Errors
    /// `StillReads`.
    fn release(&self, job: JobId) -> impl Future<Output = Answer<u64>> + Send;

    /// Forgets an ended job. Returns the number of its tasks.
    ///
    /// # Errors
    /// `StillRunning`.
    fn forget(&self, job: JobId) -> impl Future<Output = Answer<u64>> + Send;

    // ---- the cluster

    /// The executors.
    ///
    /// # Errors
    /// The errors of every call.
    fn executors(&self) -> impl Future<Output = Answer<Vec<ExecutorView>>> + Send;

    /// Addresses to which a relay may connect.
    ///
    /// # Errors
    /// The errors of every call.
    fn addresses(&self) -> impl Future<Output = Answer<Vec<SocketAddr>>> + Send;

    /// Objects that executors hold: one, or those of a source.
    ///
    /// # Errors
    /// The errors of every call.
    fn catalog(
        &self,
        object: Option<ObjectId>,
        source: Name,
    ) -> impl Future<Output = Answer<Vec<ObjectView>>> + Send;

    /// Has executors fetch objects ahead of demand. The push goes on while its state is received,
    /// or to its end if the request does not wait.
    ///
    /// # Errors
    /// `Push`.
    fn push(
        &self,
        request: PushRequest,
    ) -> impl Future<Output = Answer<changing::Receiver<PushView>>> + Send;

    /// Nodes of the file system.
    ///
    /// # Errors
    /// If the journal cannot be read.
    fn files_nodes(&self) -> impl Future<Output = Answer<FilesNodes>> + Send;

    /// Forgets the cluster's file system: the next node that joins brings its own, or founds a new
    /// one.
    ///
    /// # Errors
    /// `FilesNodesConnected`.
    fn forget_files(&self) -> impl Future<Output = Answer<()>> + Send;

    /// Stops an executor, by its name or id.
    ///
    /// # Errors
    /// `NoSuchExecutor`.
    fn stop_executor(&self, executor: String) -> impl Future<Output = Answer<()>> + Send;

    /// Stops the executors, then the dispatcher.
    ///
    /// # Errors
    /// The errors of every call.
    fn stop(&self) -> impl Future<Output = Answer<StoppingCluster>> + Send;

    /// What happens in the cluster, after a position; without one, all events that are remembered.
    ///
    /// # Errors
    /// `NotAllowed`.
    fn events(&self, after: Option<EventPosition>) -> Answer<EventStream>;

    // ---- keys and pools

    /// The cluster's keys, without their secrets.
    ///
    /// # Errors
    /// The errors of every call.
    fn keys(&self) -> impl Future<Output = Answer<Vec<KeyView>>> + Send;

    /// An access file with the current key of a role.
    ///
    /// # Errors
    /// `Keys`.
    fn issue_access(&self, role: KeyRole) -> impl Future<Output = Answer<SecretText>> + Send;

    /// Replaces the current key of a role, or of all. The old ones are accepted for the time of
    /// `grace`.
    ///
    /// # Errors
    /// `Keys`.
    fn rotate_keys(
        &self,
        role: Option<KeyRole>,
        grace: Duration,
    ) -> impl Future<Output = Answer<Vec<KeyView>>> + Send;

    /// Revokes a key at once.
    ///
    /// # Errors
    /// `Keys`.
    fn revoke_key(&self, key: KeyId) -> impl Future<Output = Answer<Vec<KeyView>>> + Send;

    /// Lists or changes pools of nodes.
    ///
    /// # Errors
    /// `Pools`.
    fn pools(&self, request: PoolsRequest) -> impl Future<Output = Answer<PoolsAnswer>> + Send;
}
