//! The thread that makes chunks durable: their content and the record that they belong to this node.
//!
//! Requests that arrive while the thread waits for the disk share the next sync, so that a thousand small chunks cost
//! about as much as one.

use std::sync::{Arc, mpsc};

use eyas_store::ObjectStore;
use eyas_types::ObjectId;
use tokio::sync::oneshot;

use crate::chunks::ChunkError;
use crate::database::{Database, OwnChunk};

/// Maximum number of requests that wait for the thread. Further ones wait until there is space.
const MAX_WAITING: usize = 1024;

/// Maximum number of requests that share a sync.
const MAX_TOGETHER: usize = 256;

/// Chunks of this node that have to be durable.
struct Request {
    chunks: Vec<(ObjectId, OwnChunk)>,
    done: oneshot::Sender<Result<(), Arc<ChunkError>>>,
}

/// The requests to the thread. The thread ends when this is dropped.
pub(super) struct DurableChunks(mpsc::SyncSender<Request>);

impl DurableChunks {
    pub fn start(database: Arc<Database>, store: ObjectStore) -> Self {
        let (sender, requests) = mpsc::sync_channel(MAX_WAITING);
        std::thread::Builder::new()
            .name("dfs-durable".into())
            .spawn(move || run(&database, &store, &requests))
            .expect("a thread can be started");
        DurableChunks(sender)
    }

    /// Returns when the chunks, which are in the store, are on the disk and recorded as this node's own.
    pub async fn sync(&self, chunks: Vec<(ObjectId, OwnChunk)>) -> Result<(), Arc<ChunkError>> {
        let (done, result) = oneshot::channel();
        let request = Request { chunks, done };
        let sent = tokio::task::block_in_place(|| self.0.send(request));
        sent.expect("the thread runs as long as there is a sender");
        result.await.expect("the thread answers each request")
    }
}

fn run(database: &Database, store: &ObjectStore, requests: &mpsc::Receiver<Request>) {
    while let Ok(first) = requests.recv() {
        let more = std::iter::from_fn(|| requests.try_recv().ok()).take(MAX_TOGETHER - 1);
        let together: Vec<Request> = std::iter::once(first).chain(more).collect();
        let chunks: Vec<_> = together.iter().flat_map(|request| request.chunks.iter().copied()).collect();
        let objects: Vec<ObjectId> = chunks.iter().map(|(object, _)| *object).collect();
        let synced = store.sync(&objects).map_err(ChunkError::from);
        let done = synced.and_then(|()| database.own_durably(&chunks).map_err(ChunkError::from)).map_err(Arc::new);
        for request in together {
            // The requester may be gone.
            let _ = request.done.send(done.clone());
        }
    }
}
