//! Turns for a program that knows of the coordinator, as eyas's executors do: what they fetch from shared storage stands in
//! the same queues as what unmodified programs read.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use eyas_ioq::{ClassId, RequestId};
use eyas_session::Access;
use eyas_types::{Extent, Operation, StorageFileId, StorageLocation};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::link::{self, Heard};
use crate::order::Order;

/// Who has waited for so long goes ahead, whatever the coordinator says.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// A session with the coordinator. Without one that answers, all turns come at once.
#[derive(Clone)]
pub struct Client(Arc<Mutex<Asked>>);

struct Asked {
    order: Order,
    class: ClassId,
    waiting: HashMap<RequestId, oneshot::Sender<()>>,
}

/// Leave to read, until it is dropped.
pub struct Turn {
    client: Client,
    request: RequestId,
    bytes: u64,
}

impl Client {
    /// Reaches for the coordinator with that access, as long as the process lives. Requests are of that class.
    ///
    /// # Errors
    /// If there is no thread to be had for it.
    pub fn start(access: Access, class: ClassId) -> io::Result<Client> {
        let client = Client(Arc::new(Mutex::new(Asked { order: Order::there(), class, waiting: HashMap::new() })));
        let told = Arc::downgrade(&client.0);
        link::keep(access, move |heard| {
            let Some(asked) = told.upgrade() else { return false };
            let mut asked = Client::lock(&asked);
            match heard {
                Heard::Linked(say) => asked.order.link(say),
                Heard::Said(messages) => messages.into_iter().for_each(|message| asked.order.hear(message)),
            }
            asked.settle();
            true
        })?;
        Ok(client)
    }

    /// Waits for the turn to read these bytes of a file.
    pub async fn turn(&self, place: StorageLocation, file: StorageFileId, extent: Extent) -> Turn {
        let (go, went) = oneshot::channel();
        let request = {
            let mut asked = Client::lock(&self.0);
            let class = asked.class;
            let request = asked.order.ask(place, file, class, Operation::Read, extent);
            asked.waiting.insert(request, go);
            asked.settle();
            request
        };
        // From here on its end is told, whatever becomes of who waits for it.
        let turn = Turn { client: self.clone(), request, bytes: extent.size_bytes };
        if timeout(MOST_WAIT, went).await.is_err() {
            tracing::info!("no turn in a minute; it is read unordered");
        }
        turn
    }

    fn lock(asked: &Mutex<Asked>) -> MutexGuard<'_, Asked> {
        asked.lock().expect("nothing in here breaks off")
    }
}

impl Asked {
    /// Lets go whose turn it is.
    fn settle(&mut self) {
        for (request, _) in self.order.verdicts() {
            // Who does not wait any more says in its own drop that it is done.
            let _ = self.waiting.remove(&request).map(|go| go.send(()));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut asked = Client::lock(&self.client.0);
        asked.waiting.remove(&self.request);
        asked.order.done(self.request, self.bytes);
        asked.settle();
    }
}
