//! The thread that makes chunks durable: their content and the record that they belong to this
//! node.
//!
//! Requests that arrive while the thread waits for the disk share the next sync, so that a thousand
//! small chunks cost about as much as one. A few small chunks do not wait for their files: their
//! content goes into the database with their records. The thread syncs their files later, and puts
//! back from the database what a power failure has taken.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use eyas_files::SMALL_CHUNK_BYTES;
use eyas_store::{ObjectStore, StoreError};
use eyas_types::ObjectId;
use tokio::sync::oneshot;

use crate::chunks::ChunkError;
use crate::database::{Database, DatabaseError, OwnChunk};

/// Maximum number of requests that wait for the thread. Further ones wait until there is space.
const MAX_WAITING: usize = 1024;

/// Maximum number of requests that share a sync.
const MAX_TOGETHER: usize = 256;

/// Up to this number of small chunks go into the database. The files of more of them are synced
/// together.
const MAX_LOGGED_TOGETHER: usize = 16;

/// The files of chunks whose content is in the database are synced when the content has this size,
/// bytes.
const MAX_LOGGED_BYTES: usize = 8 << 20;

/// They are also synced when no request has come for this time.
const IDLE: Duration = Duration::from_secs(5);

/// Chunks of this node that have to be durable.
struct Request {
    chunks: Vec<(ObjectId, OwnChunk)>,
    done: oneshot::Sender<Result<(), Arc<ChunkError>>>,
}

/// The requests to the thread. The thread ends when this is dropped.
pub(super) struct DurableChunks(mpsc::SyncSender<Request>);

impl DurableChunks {
    /// Starts the thread. Chunks whose content is in the database are in the store when this
    /// returns, unless the disk fails.
    pub fn start(database: Arc<Database>, store: ObjectStore) -> Result<Self, DatabaseError> {
        let mut durable = DurableThread { database, store, logged: Vec::new(), logged_bytes: 0 };
        durable.restore()?;
        let (sender, requests) = mpsc::sync_channel(MAX_WAITING);
        std::thread::Builder::new()
            .name("dfs-durable".into())
            .spawn(move || durable.run(&requests))
            .expect("a thread can be started");
        Ok(DurableChunks(sender))
    }

    /// Returns when the chunks, which are in the store, are on the disk and recorded as this node's
    /// own.
    pub async fn sync(&self, chunks: Vec<(ObjectId, OwnChunk)>) -> Result<(), Arc<ChunkError>> {
        let (done, result) = oneshot::channel();
        let request = Request { chunks, done };
        let sent = tokio::task::block_in_place(|| self.0.send(request));
        sent.expect("the thread runs as long as there is a sender");
        result.await.expect("the thread answers each request")
    }
}

struct DurableThread {
    database: Arc<Database>,
    store: ObjectStore,
    /// Chunks whose content is in the database.
    logged: Vec<ObjectId>,
    logged_bytes: usize,
}

impl DurableThread {
    fn run(mut self, requests: &mpsc::Receiver<Request>) {
        loop {
            let next = match self.logged.is_empty() {
                true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => requests.recv_timeout(IDLE),
            };
            let first = match next {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.sync_logged();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return self.sync_logged(),
            };
            let more = std::iter::from_fn(|| requests.try_recv().ok()).take(MAX_TOGETHER - 1);
            let together: Vec<Request> = std::iter::once(first).chain(more).collect();
            self.answer(together);
            if self.logged_bytes >= MAX_LOGGED_BYTES {
                self.sync_logged();
            }
        }
    }

    /// Makes the chunks of all requests durable together. A chunk that was deleted fails its own
    /// request and no other.
    fn answer(&mut self, mut together: Vec<Request>) {
        loop {
            let chunks: Vec<_> =
                together.iter().flat_map(|request| request.chunks.iter().copied()).collect();
            let done = self.make_durable(&chunks).map_err(Arc::new);
            let is_here = |request: &Request| {
                request.chunks.iter().all(|(object, _)| self.store.contains(*object))
            };
            let (here, gone): (Vec<_>, Vec<_>) = match &done {
                Err(error) if error.is_not_here() => together.into_iter().partition(is_here),
                _ => (Vec::new(), together),
            };
            // Without a request that fails by itself, all have failed.
            let (answered, rest) = if gone.is_empty() { (here, gone) } else { (gone, here) };
            for request in answered {
                // The requester may be gone.
                let _ = request.done.send(done.clone());
            }
            if rest.is_empty() {
                return;
            }
            together = rest;
        }
    }

    fn make_durable(&mut self, chunks: &[(ObjectId, OwnChunk)]) -> Result<(), ChunkError> {
        let is_small =
            |(_, chunk): &(ObjectId, OwnChunk)| chunk.size_bytes <= SMALL_CHUNK_BYTES as u64;
        if chunks.len() > MAX_LOGGED_TOGETHER || !chunks.iter().all(is_small) {
            let objects: Vec<ObjectId> = chunks.iter().map(|(object, _)| *object).collect();
            self.store.sync(&objects)?;
            return Ok(self.database.own_durably(chunks)?);
        }
        let with_content = |(object, chunk): &(ObjectId, OwnChunk)| {
            Ok((*object, *chunk, self.store.content(*object)?))
        };
        let own: Vec<_> = chunks.iter().map(with_content).collect::<Result<_, StoreError>>()?;
        self.database.own_with_contents(&own)?;
        self.logged.extend(own.iter().map(|(object, ..)| *object));
        self.logged_bytes += own.iter().map(|(.., content)| content.len()).sum::<usize>();
        Ok(())
    }

    /// Syncs the files of chunks whose content is in the database, and removes the content.
    fn sync_logged(&mut self) {
        // The content of chunks that were deleted is removed with their records.
        self.logged.retain(|object| self.store.contains(*object));
        if self.logged.is_empty() {
            self.logged_bytes = 0;
            return;
        }
        let synced = self.store.sync(&self.logged).map_err(ChunkError::from);
        match synced.and_then(|()| Ok(self.database.forget_contents(&self.logged)?)) {
            Ok(()) => {
                self.logged.clear();
                self.logged_bytes = 0;
            }
            // A chunk was deleted just now.
            Err(error) if error.is_not_here() => {}
            Err(error) => {
                tracing::warn!(
                    %error,
                    "cannot sync small chunks, whose content stays in the database"
                )
            }
        }
    }

    /// Puts chunks that a power failure has taken from the store back into it.
    fn restore(&mut self) -> Result<(), DatabaseError> {
        for (object, content) in self.database.contents()? {
            let restored = match self.store.verify(object) {
                Ok(true) => Ok(()),
                Ok(false) => self.store.put(object, &content).map(drop),
                Err(error) => Err(error),
            };
            match restored {
                Ok(()) => {
                    self.logged.push(object);
                    self.logged_bytes += content.len();
                }
                Err(error) => {
                    tracing::warn!(
                        %object, %error,
                        "cannot restore a small chunk from the database"
                    )
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_is_gone_fails_its_own_request_alone() {
        let folder = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::open(&folder.path().join("files.redb")).unwrap());
        let (store, _) = ObjectStore::open(folder.path().join("store")).unwrap();
        let [here, gone] = [1, 2].map(|number| ObjectId([number; 16]));
        let checksum = store.put(here, b"content").unwrap().0;
        let chunk = OwnChunk { size_bytes: 7, checksum };
        let (sender, requests) = mpsc::sync_channel(MAX_WAITING);
        let results = [here, gone, here].map(|object| {
            let (done, result) = oneshot::channel();
            sender.send(Request { chunks: vec![(object, chunk)], done }).unwrap();
            result
        });
        drop(sender);
        DurableThread { database: database.clone(), store, logged: Vec::new(), logged_bytes: 0 }
            .run(&requests);
        let results = results.map(|result| result.blocking_recv().unwrap().is_ok());
        assert_eq!(results, [true, false, true]);
        assert_eq!(database.chunks().unwrap(), [(here, chunk)]);
    }
}
