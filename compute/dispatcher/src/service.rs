//! What a dispatcher does for its clients, in the words of jobs and clusters. A door, such as the
//! wire session of `client_session`, turns requests into calls of a [`Service`] and answers into
//! messages, and decides nothing.
//!
//! An answer about a job is given when everything that it follows from is on disk, so that `kill
//! -9` makes none of them untrue.

pub(crate) mod answer;
mod attached_job;
mod caller;
pub(crate) mod deliveries;
mod handle;
mod watch;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use eyas_jobs::{JobSpec, SpecError};
use eyas_pools::PoolsAnswer;
use eyas_types::access::{KeyId, KeyRole};
use eyas_types::{JobId, Name, NameChange, ObjectId, ObjectSpec, TaskId, TaskResult};
use eyas_wire::client::{
    EventPosition, GraphPart, InputsPart, KeptPart, NamesQuery, PushRequest, TracePart,
};
use eyas_wire::pool::PoolsRequest;
use eyas_wire::printed::{Printed, PrintedPosition};
use eyas_wire::trust::SecretText;
use eyas_wire::view::{
    ExecutorView, Explanation, FailureView, JobReport, JobView, KeyView, NamedFileView, ObjectView,
    PushView, TaskView,
};
use tokio::sync::watch as changing;

pub use self::answer::{Answer, FilesNodes, ServiceError, StoppingCluster, TaskQuery};
pub use self::attached_job::AttachedJob;
pub use self::caller::Caller;
pub use self::deliveries::JobDelivery;
pub(crate) use self::handle::DispatcherHandle;
pub use self::watch::{JobWatch, JobWatchEvent, NumberedResults, WatchedResults};
pub use crate::events::EventStream;
use crate::expressions::compile;

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

    /// What a task has printed so far beyond a position, if it runs.
    ///
    /// # Errors
    /// `IsCall`, `EarlierExecutor` or `TooManyFollow`.
    fn printed(
        &self,
        task: TaskId,
        from: PrintedPosition,
    ) -> impl Future<Output = Answer<Printed>> + Send;

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

    /// Templates of a job, what their tasks read of each other, and its objects, a part from index
    /// `from` on.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn graph(&self, job: JobId, from: u32) -> impl Future<Output = Answer<GraphPart>> + Send;

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

    /// Cancels the tasks of a job that no executor has. Returns how many that were.
    ///
    /// # Errors
    /// If the job cannot be read.
    fn cancel_waiting(&self, job: JobId) -> impl Future<Output = Answer<u64>> + Send;

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

    /// Addresses to which a proxy may connect.
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

    /// Names of files, with their places.
    ///
    /// # Errors
    /// `NotAllowed`.
    fn names(&self, query: NamesQuery) -> Answer<Vec<NamedFileView>>;

    /// Whether the caller may change names of files, for doors that gather changes in parts.
    ///
    /// # Errors
    /// `NotAllowed` if not.
    fn may_change_names(&self) -> Answer<()>;

    /// Changes names of files: makes all changes or none. Returns how many. They are on disk then.
    ///
    /// # Errors
    /// `Names`.
    fn change_names(&self, changes: Vec<NameChange>) -> impl Future<Output = Answer<u64>> + Send;

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
