//! Chunks that belong to no file yet. All that stores chunks before a file has them keeps them
//! here. So they stay while the work goes on, whatever happens to the connections over which they
//! came, and are deleted wherever the work ends before a file has them: by an error, a refusal, or
//! a caller that no longer waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, NodeId};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::names::{Condition, Names};
use crate::protocol::{ChunkPresence, RequestBody, ResponseBody};
use crate::replicas::Replicas;

/// An operation gives chunks to a file only if their nodes had them within this time before it. The
/// nodes keep what a client has left for twice as long (`LEFT_PATIENCE`, `data/dfs/src/audit.rs`).
const MAX_UNRENEWED: Duration =
    if cfg!(debug_assertions) { Duration::from_millis(500) } else { Duration::from_secs(10) };

/// Pause between two renewals of chunks that wait for their file.
const RENEW_EVERY: Duration =
    if cfg!(debug_assertions) { Duration::from_millis(250) } else { Duration::from_secs(5) };

/// Maximum number of chunks that a node is told about together.
const TOLD_TOGETHER: usize = 1 << 15;

/// Chunks that a client has stored, or may have stored, for a version that no file has yet. The
/// client renews them again and again, so that the nodes keep them. When this is dropped, the nodes
/// delete them, unless an operation has given them to a file or may have done so.
pub(crate) struct UnclaimedChunks {
    replicas: Arc<Replicas>,
    stored: Arc<Mutex<Vec<StoredChunk>>>,
    /// A file has the chunks, or an operation may have given them to one.
    may_be_given: bool,
    /// When the nodes certainly had all chunks: no chunk was stored earlier, or all were renewed.
    certain: Option<Instant>,
    /// Renews the chunks.
    renewals: Option<AbortHandle>,
    /// Whether the answer of an operation was lost: a file may have the chunks.
    pub is_unsure: bool,
}

#[derive(Clone, Copy)]
struct StoredChunk {
    object: ObjectId,
    /// The node of a further replica of a chunk that a file has; `None` if the whole chunk is new.
    only_on: Option<NodeId>,
}

impl UnclaimedChunks {
    /// No chunks yet.
    pub fn new(replicas: &Arc<Replicas>) -> Self {
        UnclaimedChunks {
            replicas: replicas.clone(),
            stored: Arc::default(),
            may_be_given: false,
            certain: None,
            renewals: None,
            is_unsure: false,
        }
    }

    /// A chunk is about to be stored. No other file or client may have its object.
    pub fn add(&mut self, object: ObjectId) {
        self.push(StoredChunk { object, only_on: None });
    }

    /// A further replica of a chunk that a file has is about to be stored on a node.
    pub fn add_replica(&mut self, object: ObjectId, node: NodeId) {
        self.push(StoredChunk { object, only_on: Some(node) });
    }

    fn push(&mut self, chunk: StoredChunk) {
        lock(&self.stored).push(chunk);
        self.certain.get_or_insert_with(Instant::now);
        self.renew_again_and_again();
    }

    /// The chunks of a part of the same version.
    pub fn join(&mut self, mut part: UnclaimedChunks) {
        lock(&self.stored).append(&mut lock(&part.stored));
        self.certain = self.certain.into_iter().chain(part.certain.take()).min();
        self.renew_again_and_again();
    }

    fn renew_again_and_again(&mut self) {
        if self.renewals.is_some() {
            return;
        }
        let (replicas, stored) = (self.replicas.clone(), self.stored.clone());
        let renewals = self.replicas.runtime.spawn(async move {
            loop {
                sleep(RENEW_EVERY).await;
                let now = lock(&stored).clone();
                replicas.tell_all(&now, |objects| RequestBody::Renew { objects }).await;
            }
        });
        self.renewals = Some(renewals.abort_handle());
    }

    /// Carries out an operation that gives the chunks to a file. They stay from then on, unless the
    /// leader refuses it.
    ///
    /// # Errors
    /// `Lost` if a chunk was deleted, as no connection of this client to its nodes has existed for
    /// some time.
    pub async fn give(
        &mut self,
        names: &Names,
        operation: FileOperation,
    ) -> Result<FileAnswer, FilesError> {
        let chunks = self.chunks_of(&operation);
        // If the caller stops waiting, the operation may be done.
        let may_be_given = std::mem::replace(&mut self.may_be_given, true);
        let kept = ChunksAreKept { replicas: &self.replicas, chunks, since: &mut self.certain };
        let answer = names.operate_if(operation, kept, &mut self.is_unsure).await;
        if answer.is_err() && !self.is_unsure {
            self.may_be_given = may_be_given;
        }
        answer
    }

    /// The chunks of the operation's record that wait for it.
    fn chunks_of(&self, operation: &FileOperation) -> Vec<Chunk> {
        let (FileOperation::Create { record, .. } | FileOperation::Replace { record, .. }) =
            operation
        else {
            return Vec::new();
        };
        let stored: BTreeSet<ObjectId> =
            lock(&self.stored).iter().map(|stored| stored.object).collect();
        record.chunks.iter().filter(|chunk| stored.contains(&chunk.object)).cloned().collect()
    }

    /// Deletes the chunks. When this returns, there is room for others.
    pub async fn discard(&mut self) {
        let stored = std::mem::take(&mut *lock(&self.stored));
        self.replicas.discard(&stored).await;
    }
}

/// The nodes keep the chunks that an operation gives to a file, at least until it is done.
struct ChunksAreKept<'a> {
    replicas: &'a Replicas,
    chunks: Vec<Chunk>,
    since: &'a mut Option<Instant>,
}

impl Condition for ChunksAreKept<'_> {
    async fn holds(&mut self) -> Result<(), FilesError> {
        let now = Instant::now();
        if self.since.is_some_and(|since| now - since > MAX_UNRENEWED) {
            self.replicas.renew(&self.chunks).await?;
            *self.since = Some(now);
        }
        Ok(())
    }
}

impl Drop for UnclaimedChunks {
    fn drop(&mut self) {
        if let Some(renewals) = &self.renewals {
            renewals.abort();
        }
        let stored = std::mem::take(&mut *lock(&self.stored));
        if !stored.is_empty() && !self.may_be_given {
            let replicas = self.replicas.clone();
            self.replicas.runtime.spawn(async move { replicas.discard(&stored).await });
        }
    }
}

impl fmt::Debug for UnclaimedChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnclaimedChunks")
            .field("stored", &lock(&self.stored).len())
            .finish_non_exhaustive()
    }
}

impl Replicas {
    /// Deletes chunks that this client has stored. Where a node does not answer, they are deleted
    /// when the client's connection to it has ended.
    async fn discard(&self, stored: &[StoredChunk]) {
        self.tell_all(stored, |objects| RequestBody::Discard { objects }).await;
    }

    /// Sends a request about chunks to all nodes that may have them: those to which this client has
    /// had a connection. A node that does not answer is left out.
    async fn tell_all(&self, stored: &[StoredChunk], request: fn(Vec<ObjectId>) -> RequestBody) {
        let mut telling = JoinSet::new();
        let calls = &self.routes.calls;
        let known = self.routes.known();
        for member in known.members.values().filter(|member| calls.knows(member.address)).copied() {
            let is_here =
                |stored: &&StoredChunk| stored.only_on.is_none_or(|node| node == member.node);
            let objects: Vec<ObjectId> =
                stored.iter().filter(is_here).map(|stored| stored.object).collect();
            let calls = calls.clone();
            telling.spawn(async move {
                for objects in objects.chunks(TOLD_TOGETHER) {
                    calls.ask_once(member.address, request(objects.to_vec())).await?;
                }
                Ok::<_, FilesError>(())
            });
        }
        while let Some(told) = telling.join_next().await {
            if let Ok(Err(error)) = told {
                tracing::debug!("a node was not told about chunks that no file has: {error}");
            }
        }
    }

    /// Has the nodes keep these chunks, which belong to no file yet.
    ///
    /// # Errors
    /// `Lost` if all nodes of a chunk answer that they do not have it, `Unreachable` if some do not
    /// answer.
    async fn renew(&self, chunks: &[Chunk]) -> Result<(), FilesError> {
        let mut by_node = BTreeMap::<NodeId, Vec<ObjectId>>::new();
        for chunk in chunks {
            chunk
                .replicas
                .iter()
                .for_each(|node| by_node.entry(*node).or_default().push(chunk.object));
        }
        let mut asking = JoinSet::new();
        for (node, objects) in by_node {
            let member = self.routes.known().members.get(&node).copied();
            let calls = self.routes.calls.clone();
            asking.spawn(async move {
                let Some(member) = member else {
                    return Err(FilesError::unreachable(format!("node {node} is not reachable")));
                };
                let mut here = Vec::with_capacity(objects.len());
                for objects in objects.chunks(TOLD_TOGETHER) {
                    let renew = RequestBody::Renew { objects: objects.to_vec() };
                    let ResponseBody::Has(held) = calls.ask_once(member.address, renew).await?
                    else {
                        return Err(unexpected());
                    };
                    let held = objects.iter().zip(held);
                    let held = held.filter(|(_, held)| *held == ChunkPresence::Whole);
                    here.extend(held.map(|(object, _)| *object));
                }
                Ok(here)
            });
        }
        let (mut here, mut silent) = (BTreeSet::new(), None);
        while let Some(asked) = asking.join_next().await {
            match asked.unwrap_or_else(eyas_panics::resume) {
                Ok(held) => here.extend(held),
                Err(error) => silent = Some(error),
            }
        }
        if chunks.iter().all(|chunk| here.contains(&chunk.object)) {
            return Ok(());
        }
        Err(silent.unwrap_or_else(|| {
            FilesError::new(
                FilesErrorKind::Lost,
                "the connections to the nodes of its chunks had ended for too long, and they have \
                 deleted what was stored: write it again",
            )
        }))
    }
}

fn lock(stored: &Mutex<Vec<StoredChunk>>) -> MutexGuard<'_, Vec<StoredChunk>> {
    // No change of the list panics half-way.
    stored.lock().unwrap_or_else(PoisonError::into_inner)
}
