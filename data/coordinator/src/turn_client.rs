//! Turns for a process that asks the coordinator itself, as eyas's executors do. What they fetch
//! from shared storage, and the outputs that they write there, wait in the same queues as the reads
//! and writes of unmodified programs.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use eyas_ioq::{ClassId, RequestId};
use eyas_session::Access;
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::coordinator_link::{self, LinkEvent};
use crate::node::ThisNode;
use crate::request_tracker::{Decision, RequestTracker, StorageRequest};

/// Longest wait; then the read or write proceeds, whatever the coordinator says.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A session with the coordinator. Without one that answers, all turns come at once.
#[derive(Clone)]
pub struct TurnClient(Arc<Mutex<TurnRequests>>);

struct TurnRequests {
    tracker: RequestTracker<ThisNode>,
    class: ClassId,
    /// Each is told whether it proceeds in a turn.
    waiting: HashMap<RequestId, oneshot::Sender<bool>>,
}

/// Permission to read or write, until it is dropped.
pub struct GrantedTurn {
    client: TurnClient,
    request: RequestId,
    bytes: u64,
}

impl TurnClient {
    /// Connects to the coordinator with this access file, in the background. Requests belong to
    /// `class`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(access: Access, class: ClassId) -> io::Result<TurnClient> {
        let client = TurnClient(Arc::new(Mutex::new(TurnRequests {
            tracker: RequestTracker::remote(ThisNode),
            class,
            waiting: HashMap::new(),
        })));
        let told = Arc::downgrade(&client.0);
        coordinator_link::keep(access, move |heard| {
            let Some(asked) = told.upgrade() else { return false };
            let mut asked = TurnClient::lock(&asked);
            match heard {
                LinkEvent::Changed(link) => asked.tracker.link(link),
                LinkEvent::Received(messages) => {
                    messages.into_iter().for_each(|message| asked.tracker.receive(message))
                }
            }
            asked.settle();
            true
        })?;
        Ok(client)
    }

    /// Waits for the turn to read or write these bytes of a file. `None`: they proceed unordered.
    pub async fn turn(
        &self,
        place: StorageLocation,
        file: StorageFileId,
        operation: Operation,
        extent: Extent,
    ) -> Option<GrantedTurn> {
        let (go, went) = oneshot::channel();
        let request = {
            let mut asked = TurnClient::lock(&self.0);
            let class = asked.class;
            let request = asked.tracker.ask(StorageRequest {
                location: place,
                file,
                class,
                operation,
                extent,
                layout: None,
            });
            asked.waiting.insert(request, go);
            asked.settle();
            request
        };
        // From here on the end is reported, even if the caller stops waiting.
        let mut turn = GrantedTurn { client: self.clone(), request, bytes: 0 };
        match timeout(MAX_WAIT, went).await {
            Ok(Ok(true)) => {
                turn.bytes = extent.size_bytes;
                return Some(turn);
            }
            Ok(_) => {}
            Err(_) => {
                tracing::info!("no turn was granted within a minute; proceeding unordered");
            }
        }
        None
    }

    fn lock(asked: &Mutex<TurnRequests>) -> MutexGuard<'_, TurnRequests> {
        asked.lock().expect("no thread panics while it holds this lock")
    }
}

impl TurnRequests {
    /// Wakes the requests whose turn has come.
    fn settle(&mut self) {
        for (request, decision) in self.tracker.take_decisions() {
            let is_turn = decision == Decision::Proceed;
            // If the caller no longer waits, its `GrantedTurn` reports the end.
            let _ = self.waiting.remove(&request).map(|go| go.send(is_turn));
        }
    }
}

impl Drop for GrantedTurn {
    fn drop(&mut self) {
        let mut asked = TurnClient::lock(&self.client.0);
        asked.waiting.remove(&self.request);
        asked.tracker.done(self.request, self.bytes);
        asked.settle();
    }
}
