//! The way of all callers to the owner of the state.

use std::ops::ControlFlow;
use std::sync::Arc;

use eyas_pools::PoolsHandle;
use eyas_types::JobId;
use eyas_wire::view::FailureView;
use tokio::sync::{mpsc, oneshot};

use super::answer::{Answer, ServiceError};
use crate::dispatcher_core::{CoreCall, CoreMessage, DispatcherCore};
use crate::events::RecentEvents;
use crate::keys::Keys;
use crate::log::Log;
use crate::names::NamedFiles;

/// How often an archived job is read for one question.
const MAX_READS: usize = 10;

/// Where calls of all callers go.
#[derive(Clone)]
pub(crate) struct DispatcherHandle {
    pub calls: mpsc::Sender<CoreCall>,
    pub executors: mpsc::Sender<CoreMessage>,
    pub log: Arc<dyn Log>,
    pub keys: Arc<Keys>,
    pub pools: PoolsHandle,
    pub names: Arc<NamedFiles>,
    pub events: RecentEvents,
}

impl DispatcherHandle {
    /// Has the owner of the state carry a call out.
    pub async fn call(
        &self,
        call: impl FnOnce(&mut DispatcherCore) + Send + 'static,
    ) -> Answer<()> {
        self.calls.send(Box::new(call)).await.map_err(|_| ServiceError::Stopping)
    }

    /// What the owner of the state answers.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut DispatcherCore) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        // The caller may have gone away.
        self.call(|core| drop(reply.send(question(core)))).await?;
        answer.await.map_err(|_| ServiceError::Stopping)?
    }

    /// What it answers, once everything that this follows from is on disk.
    pub(super) async fn ask_durably<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut DispatcherCore) -> T + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.call(|core| {
            let answer = question(core);
            core.answer_durably(answer, reply);
        })
        .await?;
        answer.await.map_err(|_| ServiceError::Stopping)
    }

    /// What it answers about a job, which is read if it is not in memory, once all results that it
    /// shows are on disk.
    pub(super) async fn ask_of_job<T: Send + 'static>(
        &self,
        job: JobId,
        mut question: impl FnOnce(&mut DispatcherCore) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let mut read = None;
        // The job may change while it is read.
        for _ in 0..MAX_READS {
            let ask = move |core: &mut DispatcherCore| {
                read.into_iter().for_each(|replay| core.take_read(replay));
                if core.must_be_read(job) {
                    return ControlFlow::Continue(question);
                }
                let answer = question(core);
                core.write_results();
                ControlFlow::Break(answer)
            };
            question = match self.ask_durably(ask).await? {
                ControlFlow::Break(answer) => return answer,
                ControlFlow::Continue(question) => question,
            };
            // All of the job is on disk now. A large one takes a while to read, and nobody else
            // waits for it.
            let log = self.log.clone();
            let replay = tokio::task::spawn_blocking(move || log.replay(job)).await;
            read = Some(replay.map_err(|_| ServiceError::Unread)??);
        }
        Err(ServiceError::Unread)
    }

    /// Describes failures, for a watch that has seen their results.
    pub(super) async fn failures(&self, job: JobId, tasks: Vec<u32>) -> Answer<Vec<FailureView>> {
        self.ask_of_job(job, move |core| Ok(core.views().failures(core.views().job(job)?, &tasks)))
            .await
    }
}
