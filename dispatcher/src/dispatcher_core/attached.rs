//! Jobs that are attached to connections of clients: their results go to the clients, and not to the journal.

use std::collections::BTreeMap;

use eyas_jobs::{self as jobs, JobSpec, JobSummary, Phase};
use eyas_types::JobId;
use eyas_wire::client::TaskResult;
use eyas_wire::view::JobView;
use tokio::sync::{mpsc, oneshot};

use super::DispatcherCore;

/// What the client of an attached job is sent.
pub(crate) enum ToAttached {
    Results(Vec<TaskResult>),
    /// What the client has added last is wrong.
    Refused(String),
    /// The job has ended.
    Over(Box<JobView>),
}

/// The attached jobs that have not ended, with the connections of those whose clients are there.
#[derive(Default)]
pub(crate) struct AttachedClients {
    clients: BTreeMap<JobId, Option<mpsc::UnboundedSender<ToAttached>>>,
}

impl AttachedClients {
    pub fn are_there(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Sends something to the client of a job, if it is there.
    fn send(&self, job: JobId, delivery: ToAttached) {
        if let Some(Some(client)) = self.clients.get(&job) {
            // The client may have gone away.
            let _ = client.send(delivery);
        }
    }
}

impl DispatcherCore {
    pub(super) fn attach(
        &mut self,
        name: String,
        deliveries: mpsc::UnboundedSender<ToAttached>,
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

    pub(super) fn deliver(&self, job: JobId, results: Vec<TaskResult>) {
        self.attached.send(job, ToAttached::Results(results));
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
