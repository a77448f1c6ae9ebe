//! The executor's node of the file system. Its chunks share the store with the objects that tasks
//! read, so the core accounts for their space.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use eyas_dfs::{BoxedFuture, ChunkSpace, DfsNode, NodeError, PreparedNode, SpaceError};
use eyas_session::Access;
use eyas_store::ObjectStore;
use eyas_transfer::{PeerServer, Peers};
use eyas_types::ObjectId;
use eyas_wire::executor::{FileSystemMembership, FilesNode};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, oneshot};

use crate::executor_core::CoreHandle;

/// A node of the file system in an executor. The first registration announces it, the first welcome
/// starts it, and it runs until the executor ends, across sessions.
pub(crate) struct ExecutorFilesNode {
    announced: FilesNode,
    prepared: Mutex<Option<PreparedNode>>,
    room: Arc<StoreRoom>,
    node: OnceCell<DfsNode>,
}

impl ExecutorFilesNode {
    /// A node from `prepared` whose chunks are in `store`. `keep_free_bytes` of the store's
    /// disk stay free.
    pub fn new(prepared: PreparedNode, store: ObjectStore, keep_free_bytes: u64) -> Self {
        let announced = FilesNode {
            node: prepared.node(),
            address: prepared.address(),
            system: prepared.file_system(),
        };
        let room = Arc::new(StoreRoom { core: Mutex::new(Weak::new()), store, keep_free_bytes });
        ExecutorFilesNode {
            announced,
            prepared: Mutex::new(Some(prepared)),
            room,
            node: OnceCell::new(),
        }
    }

    /// The node's id, address and file system, as registrations announce them.
    pub fn announced(&self) -> FilesNode {
        let joined = self.node.get().and_then(DfsNode::file_system);
        FilesNode { system: joined.or(self.announced.system), ..self.announced }
    }

    /// The chunks in the store, with their sizes.
    pub fn chunks(&self) -> Result<Vec<(ObjectId, u64)>, NodeError> {
        let mut chunks = match (self.node.get(), &*self.prepared()) {
            (Some(node), _) => node.chunks(),
            (None, Some(prepared)) => prepared.chunks()?,
            (None, None) => Vec::new(),
        };
        chunks.retain(|(chunk, _)| self.room.store.contains(*chunk));
        Ok(chunks)
    }

    fn prepared(&self) -> MutexGuard<'_, Option<PreparedNode>> {
        // A panic cannot leave it half changed: the value is only taken.
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has begun; its core accounts for the store from now on.
    pub fn account_to(&self, core: &Arc<CoreHandle>) {
        *self.room.core() = Arc::downgrade(core);
    }

    /// The dispatcher has said which file system the node belongs to: starts the node unless it
    /// runs.
    pub async fn welcomed(
        &self,
        membership: FileSystemMembership,
        access: &Access,
        (peers, server): (&Peers, &Arc<PeerServer>),
        movers: &Handle,
    ) -> Result<(), NodeError> {
        let start = || async {
            let prepared = self.prepared().take().expect("it is started once");
            let (membership, access, room) =
                (membership.clone(), access.clone(), self.room.clone());
            let parts = (self.room.store.clone(), peers.clone(), server.clone());
            // On the runtime that moves bytes.
            let start =
                async move { DfsNode::start(prepared, &membership, access, parts, room).await };
            movers.spawn(start).await.unwrap_or_else(eyas_panics::resume)
        };
        let node = self.node.get_or_try_init(start).await?;
        match node.may_be_of(membership.system) {
            Ok(()) => node.greet(&membership.nodes),
            // The node may belong to another file system that still lives; these nodes are not told
            // of it.
            Err(error) => tracing::error!("{error}"),
        }
        Ok(())
    }
}

/// Accounts for the space of the store: the core does during a session, the disk's free space
/// counts between sessions.
struct StoreRoom {
    core: Mutex<Weak<CoreHandle>>,
    store: ObjectStore,
    keep_free_bytes: u64,
}

impl StoreRoom {
    fn core(&self) -> MutexGuard<'_, Weak<CoreHandle>> {
        // A panic cannot leave it half changed: the value is only replaced as a whole.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_core<T>(&self, work: impl FnOnce(&Arc<CoreHandle>) -> T) -> Option<T> {
        let core = self.core().upgrade()?;
        Some(work(&core))
    }

    fn disk_bytes(&self) -> u64 {
        self.store.free_space().map_or(0, |free| free.bytes.saturating_sub(self.keep_free_bytes))
    }
}

impl ChunkSpace for StoreRoom {
    fn reserve(&self, chunk: ObjectId, size_bytes: u64) -> BoxedFuture<Result<(), SpaceError>> {
        let (reserved, answer) = oneshot::channel();
        if self.with_core(|core| core.lock().reserve_chunk(chunk, size_bytes, reserved)).is_some() {
            return Box::pin(async { answer.await.unwrap_or(Err(SpaceError::Unavailable)) });
        }
        let has_room = self.disk_bytes() >= size_bytes;
        Box::pin(async move {
            has_room.then_some(()).ok_or_else(|| SpaceError::NoSpace("the disk is full".into()))
        })
    }

    fn arrived(&self, chunk: ObjectId, is_here: bool) {
        self.with_core(|core| core.lock().chunks_arrived(&[chunk], is_here));
    }

    fn arrived_all(&self, chunks: &[ObjectId]) {
        self.with_core(|core| core.lock().chunks_arrived(chunks, true));
    }

    fn release(&self, chunk: ObjectId) {
        if self.with_core(|core| core.lock().release_chunk(chunk)).is_none()
            && let Err(error) = self.store.remove(chunk)
        {
            tracing::warn!(%chunk, %error, "cannot remove a chunk that is no longer needed");
        }
    }

    fn free_bytes(&self) -> u64 {
        self.with_core(|core| core.lock().free_bytes()).unwrap_or_else(|| self.disk_bytes())
    }
}
