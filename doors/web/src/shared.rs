//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use eyas_client::Cluster;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{ExecutorId, JobId};
use tokio::sync::{Notify, Semaphore};

use crate::address::BasePath;
use crate::api_error::ApiError;
use crate::dispatcher::SharedDispatcher;
use crate::feed::EventFeed;
use crate::job_timelines::JobTimelines;
use crate::live::LiveView;
use crate::rising_counters::RisingCounters;
use crate::task_index::TaskIndexes;

/// Streams of events at the same time; a further one is refused.
const MAX_STREAMS: usize = 1024;

/// Counts of an executor: of tasks that ended, and of inputs and their bytes from each source.
pub(crate) const EXECUTOR_COUNTS: usize = 9;

/// The state of the process.
pub(crate) struct Shared {
    /// The beginning of paths, as browsers see them.
    pub base: BasePath,
    pub dispatcher: SharedDispatcher,
    pub feed: EventFeed,
    pub live: LiveView,
    /// Wakes the look at the state, when a page begins to read it.
    pub wanted: Notify,
    pub indexes: TaskIndexes,
    pub timelines: JobTimelines,
    /// Permits for streams.
    pub streams: Arc<Semaphore>,
    /// What executors have done, for the metrics.
    pub executor_counters: RisingCounters<ExecutorId, EXECUTOR_COUNTS>,
    /// Failed tasks of jobs, for the metrics.
    pub failed_tasks: RisingCounters<JobId, 1>,
    /// Requests that were answered, for the metrics.
    pub requests: AtomicU64,
}

impl Shared {
    pub fn new(cluster: Cluster, base: BasePath) -> Self {
        Shared {
            base,
            dispatcher: SharedDispatcher::new(cluster),
            feed: EventFeed::new(),
            live: LiveView::new(),
            wanted: Notify::new(),
            indexes: TaskIndexes::new(),
            timelines: JobTimelines::new(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            executor_counters: RisingCounters::new(),
            failed_tasks: RisingCounters::new(),
            requests: AtomicU64::new(0),
        }
    }

    /// Asks for the state of the cluster, and tells its readers.
    ///
    /// # Errors
    /// If the dispatcher does not answer.
    pub async fn look(&self) -> Result<(), ApiError> {
        let jobs = self.dispatcher.look(FromClient::Jobs { job: None }).await?;
        let executors = self.dispatcher.look(FromClient::Executors).await?;
        let (ToClient::Jobs(jobs), ToClient::Executors(executors)) = (&*jobs, &*executors) else {
            return Err(ApiError::unexpected());
        };
        self.live.note(jobs.clone(), executors.clone());
        Ok(())
    }

    /// Number of open streams.
    pub fn open_streams(&self) -> usize {
        MAX_STREAMS - self.streams.available_permits()
    }
}
