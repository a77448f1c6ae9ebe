//! The executor's node of the file system, whose chunks share the store, and the account of its room, with what tasks read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use eyas_dfs::{DfsNode, NodeError, Room, Site, Waiting};
use eyas_session::Access;
use eyas_store::ObjectStore;
use eyas_transfer::{PeerServer, Peers};
use eyas_types::ObjectId;
use eyas_wire::executor::{FilesNode, FilesPlace};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, oneshot};

use crate::brain::Desk;

/// An executor's node: announced with its first registration, started when it has been welcomed, and there until the
/// executor ends, whatever becomes of its sessions.
pub(crate) struct Files {
    announced: FilesNode,
    site: Mutex<Option<Site>>,
    room: Arc<StoreRoom>,
    node: OnceCell<DfsNode>,
}

impl Files {
    /// A node at `site`, with chunks in `store`, of which so much is to stay free.
    pub fn new(site: Site, store: ObjectStore, keep_free_bytes: u64) -> Self {
        let announced = FilesNode { node: site.node(), address: site.address(), system: site.file_system() };
        let room = Arc::new(StoreRoom { desk: Mutex::new(Weak::new()), store, keep_free_bytes });
        Files { announced, site: Mutex::new(Some(site)), room, node: OnceCell::new() }
    }

    /// Which, and where.
    pub fn announced(&self) -> FilesNode {
        let joined = self.node.get().and_then(DfsNode::file_system);
        FilesNode { system: joined.or(self.announced.system), ..self.announced }
    }

    /// The chunks that the store has.
    pub fn chunks(&self) -> Result<Vec<(ObjectId, u64)>, NodeError> {
        let mut chunks = match (self.node.get(), &*self.site()) {
            (Some(node), _) => node.chunks(),
            (None, Some(site)) => site.chunks()?,
            (None, None) => Vec::new(),
        };
        chunks.retain(|(chunk, _)| self.room.store.contains(*chunk));
        Ok(chunks)
    }

    fn site(&self) -> MutexGuard<'_, Option<Site>> {
        // It is only ever taken.
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has begun, whose brain accounts for the store from now on.
    pub fn account_to(&self, desk: &Arc<Desk>) {
        *self.room.desk() = Arc::downgrade(desk);
    }

    /// It has been said where the node belongs: there it is started, if it was not.
    pub async fn welcomed(
        &self,
        place: FilesPlace,
        access: &Access,
        (peers, server): (&Peers, &Arc<PeerServer>),
        movers: &Handle,
    ) -> Result<(), NodeError> {
        let start = || async {
            let site = self.site().take().expect("it is started once");
            let (place, access, room) = (place.clone(), access.clone(), self.room.clone());
            let parts = (self.room.store.clone(), peers.clone(), server.clone());
            // Bytes are moved where the executor moves them.
            let start = async move { DfsNode::start(site, &place, access, parts, room).await };
            movers.spawn(start).await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
        };
        let node = self.node.get_or_try_init(start).await?;
        match node.may_be_of(place.system) {
            Ok(()) => node.greet(&place.nodes),
            // What it is of may live; others are told nothing of it.
            Err(error) => tracing::error!("{error}"),
        }
        Ok(())
    }
}

/// The account of the store's room: the brain's, while there is a session; between two of them the disk's.
struct StoreRoom {
    desk: Mutex<Weak<Desk>>,
    store: ObjectStore,
    keep_free_bytes: u64,
}

impl StoreRoom {
    fn desk(&self) -> MutexGuard<'_, Weak<Desk>> {
        // It is only ever replaced as a whole.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_desk<T>(&self, work: impl FnOnce(&Arc<Desk>) -> T) -> Option<T> {
        let desk = self.desk().upgrade()?;
        Some(work(&desk))
    }

    fn disk_bytes(&self) -> u64 {
        self.store.free_space().map_or(0, |free| free.bytes.saturating_sub(self.keep_free_bytes))
    }
}

impl Room for StoreRoom {
    fn reserve(&self, chunk: ObjectId, size_bytes: u64) -> Waiting<Result<(), String>> {
        let (reserved, answer) = oneshot::channel();
        if self.with_desk(|desk| desk.brain().pin(chunk, size_bytes, reserved)).is_some() {
            return Box::pin(async {
                answer.await.unwrap_or_else(|_| Err("its executor has just lost its dispatcher; try again".into()))
            });
        }
        let has_room = self.disk_bytes() >= size_bytes;
        Box::pin(async move { has_room.then_some(()).ok_or_else(|| "its disk is full".to_owned()) })
    }

    fn arrived(&self, chunk: ObjectId, is_here: bool) {
        self.with_desk(|desk| desk.brain().pinned(chunk, is_here));
    }

    fn release(&self, chunk: ObjectId) {
        if self.with_desk(|desk| desk.brain().unpin(chunk)).is_none()
            && let Err(error) = self.store.remove(chunk)
        {
            tracing::warn!(%chunk, %error, "a chunk that nobody needs stays");
        }
    }

    fn free_bytes(&self) -> u64 {
        self.with_desk(|desk| desk.brain().free_bytes()).unwrap_or_else(|| self.disk_bytes())
    }
}
