//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use eyas_client::Cluster;
use eyas_client::messages::{FromClient, ToClient};
use tokio::sync::{Notify, Semaphore};

use crate::address::BasePath;
use crate::api_error::ApiError;
use crate::dispatcher::SharedDispatcher;
use crate::executor_totals::ExecutorTotals;
use crate::feed::EventFeed;
use crate::job_timelines::JobTimelines;
use crate::live::LiveView;
use crate::task_index::TaskIndexes;

/// Streams of events at the same time; a further one is refused.
const MAX_STREAMS: usize = 1024;

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
    /// Sums over executors, for the metrics.
    pub totals: ExecutorTotals,
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
            totals: ExecutorTotals::default(),
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
