//! Jobs that are attached to connections of clients: their results go to the clients, and not to the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eyas_jobs::{self as jobs, JobSpec, JobSummary, Phase};
use eyas_types::{JobId, units};
use eyas_wire::client::TaskResult;
use eyas_wire::view::JobView;
use tokio::sync::{mpsc, oneshot};

use super::DispatcherCore;

/// Maximum size of the results that a client has not read yet.
const MAX_UNREAD_BYTES: u64 = 1 << 30;

/// What the client of an attached job is sent.
pub(crate) enum ToAttached {
    Results(Vec<TaskResult>),
    /// What the client has added last is wrong.
    Refused(String),
    /// The job has ended.
    Over(Box<JobView>),
}

impl ToAttached {
    /// Memory that it takes, about.
    pub fn size_bytes(&self) -> u64 {
        let size =
            |result: &TaskResult| size_of::<TaskResult>() + result.outcome.stdout.len() + result.outcome.stderr.len();
        match self {
            ToAttached::Results(results) => results.iter().map(size).sum::<usize>() as u64,
            ToAttached::Refused(_) | ToAttached::Over(_) => 0,
        }
    }
}

/// Takes what the client of an attached job is to be sent.
pub(crate) struct DeliveryQueue {
    queue: mpsc::UnboundedSender<ToAttached>,
    unread_bytes: Arc<AtomicU64>,
}

/// What the client of an attached job is to be sent.
pub(crate) struct Deliveries {
    queue: mpsc::UnboundedReceiver<ToAttached>,
    unread_bytes: Arc<AtomicU64>,
}

/// A queue of deliveries, and its end.
pub(crate) fn deliveries() -> (DeliveryQueue, Deliveries) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let unread_bytes = Arc::new(AtomicU64::new(0));
    (DeliveryQueue { queue: sender, unread_bytes: unread_bytes.clone() }, Deliveries { queue: receiver, unread_bytes })
}

impl Deliveries {
    /// Waits for deliveries, and returns up to `limit` of them: none if there will be no more.
    pub async fn next(&mut self, limit: usize) -> Vec<ToAttached> {
        let mut deliveries = Vec::new();
        self.queue.recv_many(&mut deliveries, limit).await;
        deliveries
    }

    /// The client has read deliveries of this size.
    pub fn were_read(&self, size_bytes: u64) {
        self.unread_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
    }
}

/// The attached jobs that have not ended, with the connections of those whose clients are there.
#[derive(Default)]
pub(crate) struct AttachedClients {
    clients: BTreeMap<JobId, Option<DeliveryQueue>>,
}

impl AttachedClients {
    pub fn are_there(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Sends something to the client of a job, if it is there. Returns the size of what the client has not read.
    fn send(&self, job: JobId, delivery: ToAttached) -> u64 {
        let Some(Some(client)) = self.clients.get(&job) else { return 0 };
        let size_bytes = delivery.size_bytes();
        // Before the delivery can be read.
        let unread_bytes = client.unread_bytes.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes;
        // The client may have gone away.
        let _ = client.queue.send(delivery);
        unread_bytes
    }
}

impl DispatcherCore {
    pub(super) fn attach(
        &mut self,
        name: String,
        deliveries: DeliveryQueue,
        reply: oneshot::Sender<Result<JobId, String>>,
    ) {
        if self.stopping_us.is_some() {
            let _ = reply.send(Err("the cluster is stopping".into()));
            return;
        }
        let job = self.jobs.next_job();
        let spec = JobSpec { name, is_attached: true, ..JobSpec::default() };
        self.tell_jobs(jobs::Event::Attached { spec: Box::new(spec) });
        self.attached.clients.insert(job, Some(deliveries));
        if let Some(job) = self.jobs.get(job) {
            let standing = self.standing(job);
            self.replies.offer(job.id, standing);
        }
        if reply.send(Ok(job)).is_err() {
            self.detach(job);
        }
    }

    /// Cancels the tasks of an attached job whose client is gone.
    pub(super) fn detach(&mut self, job: JobId) {
        let Some(client) = self.attached.clients.get_mut(&job) else { return };
        *client = None;
        let tasks = 0..self.jobs.get(job).map_or(0, |job| job.tasks.len() as u32);
        self.tell_jobs(jobs::Event::Cancel { job, tasks });
        self.tell_jobs(jobs::Event::Closed { job });
    }

    /// Cancels the tasks of an attached job that no executor has.
    pub(super) fn cancel_waiting(&mut self, job: JobId) {
        let phases = self.jobs.get(job).map(|job| job.tasks.iter().map(|task| task.phase).collect::<Vec<_>>());
        let waits = |phase: Phase| matches!(phase, Phase::Waiting | Phase::Blocked);
        let mut first = 0;
        for part in phases.unwrap_or_default().chunk_by(|one, other| waits(*one) == waits(*other)) {
            let end = first + part.len() as u32;
            if waits(part[0]) {
                self.tell_jobs(jobs::Event::Cancel { job, tasks: first..end });
            }
            first = end;
        }
    }

    /// Sends results to a client. The job of one that does not read them ends.
    pub(super) fn deliver(&mut self, job: JobId, results: Vec<TaskResult>) {
        let unread_bytes = self.attached.send(job, ToAttached::Results(results));
        if unread_bytes > MAX_UNREAD_BYTES {
            let why = format!(
                "the client of job {job} has not read its results, which have more than {}: it was stopped or is too \
                 slow; keep large results in files",
                units::format_bytes(MAX_UNREAD_BYTES)
            );
            tracing::warn!("{why}");
            self.attached.send(job, ToAttached::Refused(why));
            self.detach(job);
        }
    }

    pub(super) fn refuse_extension(&self, job: JobId, why: &jobs::SpecError) {
        self.attached.send(job, ToAttached::Refused(why.to_string()));
    }

    pub(super) fn detached(&mut self, summary: &JobSummary) {
        let progress = self.progress_of_archived(summary);
        self.attached.send(summary.job, ToAttached::Over(Box::new(progress.view.clone())));
        self.attached.clients.remove(&summary.job);
        self.replies.show_last(summary.job, progress);
    }
}
