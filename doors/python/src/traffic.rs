//! What one attached job sends and receives.
//!
//! All that gathers while something is sent goes out together. A call that is alone is sent by the
//! thread that adds it, and results are received by the thread that waits for them: another thread
//! on the way would cost more than the work.

use std::collections::HashMap;
use std::mem::{replace, take};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use eyas_client::types::outcome::TaskResult;
use eyas_client::types::{ObjectSpec, TaskItem, TaskTemplate};
use eyas_client::{AttachedEvent, AttachedReceiver, AttachedSender, ClientError, NearFile};
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use crate::results::{EndedCall, TaskKind};

/// Additions and cancellations that wait to be sent.
#[derive(Default)]
pub(crate) struct SendQueue {
    pub templates: Vec<TaskTemplate>,
    pub objects: Vec<ObjectSpec>,
    pub items: Vec<TaskItem>,
    pub cancelled: Vec<u32>,
    /// Tasks whose outputs are not needed any more.
    pub unneeded: Vec<u32>,
    /// How many templates and tasks the job has so far.
    pub template_count: u16,
    pub task_count: u32,
    /// What the tasks of templates are, unless they are calls without a limit on their time.
    pub kinds: HashMap<u16, TaskKind>,
    /// Tasks that no executor has are to be cancelled.
    pub cancels_waiting: bool,
    pub is_closed: bool,
}

/// Results that wait for Python.
#[derive(Default)]
pub(crate) struct ResultQueue {
    pub results: Vec<EndedCall>,
    /// What tasks are that have not ended, unless they are calls without a limit on their time.
    pub kinds: HashMap<u32, TaskKind>,
    /// Number of results so far.
    pub result_count: u32,
    /// Large results of calls in stores on this machine: the folder of the store, and the object.
    near: HashMap<u32, (PathBuf, ObjectSpec)>,
    /// Why no more can come; an empty text if the job has ended as it was asked to.
    pub end: Option<String>,
    /// Whether the next wait is over at once.
    pub is_woken: bool,
}

struct Sending {
    sender: AttachedSender,
    has_closed: bool,
}

/// The queues of a job, and the sending half of its connection.
pub(crate) struct JobTraffic {
    unsent: Mutex<SendQueue>,
    /// Something is to be sent.
    is_unsent: Notify,
    sending: AsyncMutex<Sending>,
    received: Mutex<ResultQueue>,
    /// Something was received.
    is_received: Notify,
    /// The folder with the folders of all executors, if they are on this machine.
    nodes: Option<PathBuf>,
}

impl JobTraffic {
    /// The traffic over a connection. `nodes` is the folder with the folders of all executors, if
    /// they are on this machine.
    pub fn new(sender: AttachedSender, nodes: Option<PathBuf>) -> Self {
        JobTraffic {
            unsent: Mutex::default(),
            is_unsent: Notify::new(),
            sending: AsyncMutex::new(Sending { sender, has_closed: false }),
            received: Mutex::default(),
            is_received: Notify::new(),
            nodes,
        }
    }

    /// What waits to be sent. Call [`JobTraffic::unsent_changed`] or [`JobTraffic::send_now`]
    /// afterwards, unless something was waiting before.
    pub fn unsent(&self) -> MutexGuard<'_, SendQueue> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread that sends look for something to send.
    pub fn unsent_changed(&self) {
        self.is_unsent.notify_one();
    }

    /// The results that wait for the program.
    pub fn received(&self) -> MutexGuard<'_, ResultQueue> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits, in this thread as far as the connection takes it at once, and otherwise in
    /// the threads of `runtime`.
    pub fn send_now(self: &Arc<Self>, runtime: &Handle) {
        let _inside = runtime.enter();
        let traffic = self.clone();
        let mut sending = Box::pin(async move { traffic.send_gathered().await });
        // If it is not done, it registers for what it waits for when it is polled again.
        if sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(sending);
        }
    }

    /// Sends what is added, all that has gathered at a time, until the connection ends.
    pub async fn send(self: Arc<Self>) {
        loop {
            self.is_unsent.notified().await;
            if !self.send_gathered().await {
                return;
            }
        }
    }

    /// Sends what has gathered. Returns whether more can be sent.
    async fn send_gathered(&self) -> bool {
        let mut sending = self.sending.lock().await;
        let Sending { sender, has_closed } = &mut *sending;
        let now = self.take_unsent();
        let sent = async {
            sender.add(now.templates, now.objects, now.items).await?;
            if now.cancels_waiting {
                sender.cancel_waiting().await?;
            }
            for task in now.cancelled {
                sender.cancel(task).await?;
            }
            if !now.unneeded.is_empty() {
                sender.unneeded(now.unneeded).await?;
            }
            if now.is_closed && !replace(has_closed, true) {
                sender.close().await?;
            }
            Ok::<(), ClientError>(())
        };
        let Err(why) = sent.await else { return true };
        // If the connection has ended, the receiver learns why: the dispatcher may have said it.
        if sender.is_whole() {
            self.end(why.to_string());
        }
        false
    }

    fn take_unsent(&self) -> SendQueue {
        let mut unsent = self.unsent();
        let (template_count, task_count, is_closed) =
            (unsent.template_count, unsent.task_count, unsent.is_closed);
        let kinds = take(&mut unsent.kinds);
        // Counts and notes of earlier calls stay.
        let left =
            SendQueue { template_count, task_count, is_closed, kinds, ..SendQueue::default() };
        replace(&mut *unsent, left)
    }

    /// Receives results until there are no more.
    pub async fn receive(self: Arc<Self>, mut receiver: AttachedReceiver) {
        loop {
            match receiver.next().await {
                Ok(AttachedEvent::Results(results)) => {
                    let mut received = self.received();
                    for result in results {
                        received.add(result, self.nodes.as_ref());
                    }
                    drop(received);
                    self.is_received.notify_one();
                }
                Ok(AttachedEvent::Over(_)) => return self.end(String::new()),
                Err(why) => return self.end(why.to_string()),
            }
        }
    }

    /// Waits until there are results, or an end, or the wait is ended. One thread waits at a time.
    pub async fn wait_for_results(&self) {
        while !self.received().ends_wait() {
            self.is_received.notified().await;
        }
    }

    /// Ends the present or the next wait for results.
    pub fn wake(&self) {
        self.received().is_woken = true;
        self.is_received.notify_one();
    }

    /// No more results can come, for this reason, if there was none before.
    pub fn end(&self, why: String) {
        self.received().end.get_or_insert(why);
        self.is_received.notify_one();
    }

    /// The file of a large result, if a store on this machine has it.
    pub fn near_result(&self, task: u32) -> Option<NearFile> {
        let (store, object) = self.received().near.get(&task).cloned()?;
        NearFile::open(&store, &object)
    }

    /// The outputs of a call are needed only by calls that were already added.
    pub fn unneeded(&self, task: u32) {
        self.received().near.remove(&task);
        self.unsent().unneeded.push(task);
        self.unsent_changed();
    }
}

impl ResultQueue {
    /// Whether there is something for which Python waits.
    fn ends_wait(&self) -> bool {
        !self.results.is_empty() || self.end.is_some() || self.is_woken
    }

    fn add(&mut self, result: TaskResult, nodes: Option<&PathBuf>) {
        let kind = self.kinds.remove(&result.index).unwrap_or_default();
        let large = result.outcome.outputs.iter().find(|left| left.output == 0);
        if let (Some(nodes), Some(large), false) = (nodes, large, kind.is_command) {
            let store = nodes.join(&result.executor).join("store");
            self.near.insert(result.index, (store, large.object.clone()));
        }
        self.result_count += 1;
        self.results.push(EndedCall::new(result, kind));
    }
}
