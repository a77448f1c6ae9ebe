//! A job that lives as long as its handle. Its results go to the holder of the handle, and not to
//! the journal.

use eyas_jobs::{self as jobs, Extension};
use eyas_types::{JobId, ObjectSpec, TaskItem, TaskTemplate};
use tokio::sync::mpsc::error::TrySendError;

use super::answer::Answer;
use super::deliveries::{Deliveries, JobDelivery};
use super::handle::DispatcherHandle;
use crate::answers::changes;
use crate::dispatcher_core::CoreCall;
use crate::expressions::compile;

/// A job that is attached to its holder. It is cancelled when this is dropped.
pub struct AttachedJob {
    job: JobId,
    dispatcher: DispatcherHandle,
    deliveries: Deliveries,
}

impl AttachedJob {
    pub(super) fn new(job: JobId, dispatcher: DispatcherHandle, deliveries: Deliveries) -> Self {
        AttachedJob { job, dispatcher, deliveries }
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.job
    }

    /// Adds templates of tasks.
    ///
    /// # Errors
    /// If an expression in one is wrong, or the dispatcher ends.
    pub async fn add_templates(&self, templates: Vec<TaskTemplate>) -> Answer<()> {
        let mut extension = Extension::default();
        extension.templates = templates;
        extension.compile(&compile)?;
        self.extend(extension).await
    }

    /// Adds objects, which tasks name by their places in the list of all objects.
    ///
    /// # Errors
    /// `Stopping`. A wrong object ends the job; the last delivery says what is wrong.
    pub async fn add_objects(&self, objects: Vec<ObjectSpec>) -> Answer<()> {
        let mut extension = Extension::default();
        extension.objects = objects;
        self.extend(extension).await
    }

    /// Adds tasks.
    ///
    /// # Errors
    /// `Stopping`. A wrong task ends the job; the last delivery says what is wrong.
    pub async fn add_tasks(&self, items: Vec<TaskItem>) -> Answer<()> {
        let mut extension = Extension::default();
        extension.items = items;
        self.extend(extension).await
    }

    async fn extend(&self, extension: Extension) -> Answer<()> {
        let (job, extension) = (self.job, Box::new(extension));
        self.dispatcher
            .call(move |core| core.tell_jobs(jobs::Event::Extended { job, extension }))
            .await
    }

    /// Lets executors forget outputs of these tasks: neither the holder nor a task that it adds
    /// reads them.
    ///
    /// # Errors
    /// `Stopping`.
    pub async fn release(&self, tasks: Vec<u32>) -> Answer<()> {
        let job = self.job;
        self.dispatcher.call(move |core| core.tell_jobs(jobs::Event::Unneeded { job, tasks })).await
    }

    /// Cancels a task, or all tasks that have not ended.
    ///
    /// # Errors
    /// `Stopping`.
    pub async fn cancel(&self, task: Option<u32>) -> Answer<()> {
        let job = self.job;
        // There is nothing to cancel if the job has no such task.
        self.dispatcher
            .call(move |core| drop(core.change(job, |job| changes::cancel(job, task))))
            .await
    }

    /// Cancels the tasks that no executor has.
    ///
    /// # Errors
    /// `Stopping`.
    pub async fn cancel_waiting(&self) -> Answer<()> {
        let job = self.job;
        // A job that has ended has no such tasks.
        self.dispatcher.call(move |core| drop(core.cancel_waiting(job))).await
    }

    /// Declares that no more tasks come. The job ends when all its tasks have ended.
    ///
    /// # Errors
    /// `Stopping`.
    pub async fn close(&self) -> Answer<()> {
        let job = self.job;
        self.dispatcher.call(move |core| core.tell_jobs(jobs::Event::Closed { job })).await
    }

    /// The next delivery; the one before has been read. `None` if there will be no more. Cancelling
    /// this future loses nothing.
    pub async fn next(&mut self) -> Option<JobDelivery> {
        self.deliveries.next().await
    }

    /// Returns when there was time to read the last delivery, after results behind it were dropped.
    pub async fn patience_ends(&self) {
        self.deliveries.patience_ends().await;
    }
}

impl Drop for AttachedJob {
    fn drop(&mut self) {
        let (job, calls) = (self.job, self.dispatcher.calls.clone());
        let detach: CoreCall = Box::new(move |core| core.detach(job));
        // Without room in the channel, another task waits for it. Without a core there is no job
        // either.
        if let Err(TrySendError::Full(detach)) = calls.try_send(detach)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { drop(calls.send(detach).await) });
        }
    }
}
