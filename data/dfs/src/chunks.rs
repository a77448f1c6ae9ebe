//! The chunks of a node: pushed by a client or fetched from another node, checked against their
//! checksums, and pinned in the object store.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_files::protocol::{ChunkPresence, ChunkSpec};
use eyas_ring::RecordVersion;
use eyas_store::{
    Checksum, DamagedUsage, Incoming, ObjectStore, OpenObject, StoreError, StoreErrorKind,
};
use eyas_transfer::{ExpectedObject, PeerError, PeerLimits, PeerServer, Peers};
use eyas_types::dfs::FileName;
use eyas_types::{FileMode, ObjectId};
use thiserror::Error;
use tokio::task::block_in_place;
use tokio::time::timeout;

use crate::database::{Database, DatabaseError, OwnChunk};
use crate::memory::LockedChunks;
use crate::space::{ChunkSpace, SpaceError};

mod derived;
mod durable;
mod small;

use durable::DurableChunks;
pub(crate) use small::failure;

/// Time for a client to push a chunk after the node has agreed to store it.
const BRING_DEADLINE: Duration = Duration::from_secs(120);

/// Limits of fetches for replication. A node that replicates receives from many nodes at a time,
/// and each of them sends to many. With little data on its way from each, the kernel shares the
/// links fairly, and no transfer waits behind the queued data of another.
const REPLICATING_BUFFER_BYTES: usize = 192 << 10;

/// Number of transfers from each of them.
const REPLICATING_TRANSFERS: usize = 3;

/// A chunk was not stored on this node.
#[derive(Debug, Error)]
pub(crate) enum ChunkError {
    #[error(transparent)]
    Space(#[from] SpaceError),
    #[error("{0}; chunks of clients that have gone are about to be deleted")]
    SpaceSoon(SpaceError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("this node does not have it")]
    NotHere,
    #[error("no node that has it can be reached")]
    NoSource,
    #[error("peer {0} has other content for it")]
    OtherContent(SocketAddr),
    #[error("the object has other content than it was said to have")]
    OtherObject,
    #[error("the client sent other content than it had announced")]
    OtherPush,
    #[error("the client did not send it within {} seconds", BRING_DEADLINE.as_secs())]
    NotPushed,
}

impl ChunkError {
    /// Whether a chunk that was expected here is not.
    pub fn is_not_here(&self) -> bool {
        match self {
            ChunkError::NotHere => true,
            ChunkError::Store(error) => error.kind == StoreErrorKind::NotHere,
            _ => false,
        }
    }
}

/// The chunks of one node.
pub(crate) struct NodeChunks {
    database: Arc<Database>,
    store: ObjectStore,
    peers: Peers,
    /// Connections for replication.
    replicating: Peers,
    server: Arc<PeerServer>,
    room: Arc<dyn ChunkSpace>,
    own: Mutex<HashMap<ObjectId, OwnedChunk>>,
    /// Chunks of clients whose connections have ended, and when.
    left: Mutex<HashMap<ObjectId, Instant>>,
    durable: DurableChunks,
    /// Those that stay in memory.
    locked: LockedChunks,
    /// Versions of files whose chunks are being forced to the disk for their leaders.
    securing: Mutex<BTreeSet<(FileName, RecordVersion)>>,
}

/// Maximum number of chunks of clients that have gone. Further ones are deleted after a day.
const MAX_LEFT: usize = 1 << 17;

struct OwnedChunk {
    chunk: OwnChunk,
    /// The time when the leader of its file last asked for it.
    last_audited: Instant,
    /// Whether a file has it, as far as this is known. One that was there when the node started
    /// counts as such.
    is_of_file: bool,
}

impl OwnedChunk {
    fn audited_now(chunk: OwnChunk) -> Self {
        OwnedChunk { chunk, last_audited: Instant::now(), is_of_file: true }
    }

    /// A chunk that has just come. `before` is what is known of it if it was here.
    fn stored(chunk: OwnChunk, before: Option<&OwnedChunk>) -> Self {
        let is_of_file = before.is_some_and(|before| before.is_of_file);
        OwnedChunk { is_of_file, ..OwnedChunk::audited_now(chunk) }
    }
}

/// Space reserved for a chunk. It is released unless the chunk arrives.
pub(crate) struct Reservation<'a> {
    chunks: &'a NodeChunks,
    wanted: ChunkSpec,
    /// Whether the outcome is still open.
    is_open: bool,
}

/// A chunk that a client will push.
pub(crate) struct ExpectedChunk<'a> {
    place: Reservation<'a>,
    expected: ExpectedObject,
}

impl NodeChunks {
    pub fn open(
        database: Arc<Database>,
        store: ObjectStore,
        peers: Peers,
        server: Arc<PeerServer>,
        room: Arc<dyn ChunkSpace>,
    ) -> Result<Self, DatabaseError> {
        let own = database
            .chunks()?
            .into_iter()
            .map(|(object, chunk)| (object, OwnedChunk::audited_now(chunk)));
        let own: HashMap<_, _> = own.collect();
        store.mark_irreplaceable(own.keys().copied());
        let own = Mutex::new(own);
        let replicating = peers.with_limits(PeerLimits {
            max_transfers_per_peer: REPLICATING_TRANSFERS,
            receive_buffer_bytes: REPLICATING_BUFFER_BYTES,
            ..PeerLimits::default()
        });
        let durable = DurableChunks::start(database.clone(), store.clone())?;
        let locked = LockedChunks::new(store.dir(), 0);
        let left = Mutex::default();
        let securing = Mutex::default();
        Ok(NodeChunks {
            database,
            store,
            peers,
            replicating,
            server,
            room,
            own,
            left,
            durable,
            locked,
            securing,
        })
    }

    /// Sets the maximum size of the chunks that stay in memory, bytes; without it, none does.
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        let locked = LockedChunks::new(self.store.dir(), memory_bytes);
        NodeChunks { locked, ..self }
    }

    /// The folder of the store.
    pub fn store_folder(&self) -> &Path {
        self.store.dir()
    }

    /// Keeps chunks in memory, if they are here and the account is open. Blocks.
    pub fn keep_in_memory(&self, number: u128, objects: &[ObjectId]) {
        for object in objects.iter().copied() {
            let here = self.own().get(&object).map(|own| own.chunk);
            if let Some(OwnChunk { size_bytes, checksum }) = here {
                self.locked.keep(number, ChunkSpec { object, size_bytes, checksum });
            }
            // It may have been deleted meanwhile.
            if !self.own().contains_key(&object) {
                self.locked.forget(&[object]);
            }
        }
    }

    /// The chunks that stay in memory.
    pub fn locked(&self) -> &LockedChunks {
        &self.locked
    }

    /// All chunks of this node.
    pub fn all(&self) -> Vec<(ObjectId, OwnChunk)> {
        self.own().iter().map(|(object, own)| (*object, own.chunk)).collect()
    }

    /// Number of chunks and their bytes.
    pub fn count(&self) -> (u64, u64) {
        let own = self.own();
        (own.len() as u64, own.values().map(|own| own.chunk.size_bytes).sum())
    }

    /// Number of damaged copies and their bytes.
    pub fn damaged(&self) -> (u64, u64) {
        let DamagedUsage { copies, bytes } = self.store.damaged();
        (copies, bytes)
    }

    /// State of a chunk on this node. If `thoroughly` is set, reads the chunk, and blocks
    /// meanwhile.
    ///
    /// # Errors
    /// If the disk fails to read.
    pub fn held(&self, object: ObjectId, thoroughly: bool) -> Result<ChunkPresence, StoreError> {
        Ok(if self.has(object, thoroughly)? {
            ChunkPresence::Whole
        } else if self.store.has_damaged(object) {
            ChunkPresence::Damaged
        } else {
            ChunkPresence::Nothing
        })
    }

    fn has(&self, object: ObjectId, thoroughly: bool) -> Result<bool, StoreError> {
        if thoroughly && self.is_own(object) {
            return self.store.verify_again(object);
        }
        Ok(self.is_own(object))
    }

    /// Whether a chunk belongs to this node.
    pub fn is_own(&self, object: ObjectId) -> bool {
        self.own().contains_key(&object) && self.store.contains(object)
    }

    /// A leader has asked for these chunks. Returns those that are not here. A chunk that is in the
    /// store, but was not recorded as this node's own, is recorded again.
    pub async fn audited(&self, objects: &[ObjectId]) -> Vec<ObjectId> {
        let mut missing: Vec<ObjectId> =
            objects.iter().filter(|object| !self.mark_audited(**object)).copied().collect();
        let mut adopted = Vec::new();
        for object in missing.iter().filter(|object| self.store.contains(**object)) {
            match self.adopt(*object).await {
                Ok(()) => adopted.push(*object),
                Err(why) => {
                    tracing::warn!(
                        %object,
                        "a chunk that is not recorded cannot be used, and is fetched again: {why}"
                    )
                }
            }
        }
        missing.retain(|object| !adopted.contains(object));
        // The space of chunks that the store itself has found damaged is released.
        let gone: Vec<_> =
            missing.iter().filter(|object| !self.store.contains(**object)).copied().collect();
        self.forget(&gone);
        missing
    }

    /// A leader knows no good replica of these chunks. Returns those that are here and undamaged,
    /// and records them as this node's own. A damaged copy counts if it can be read after all.
    pub async fn search(&self, objects: &[ObjectId]) -> Vec<ObjectId> {
        let mut found = Vec::new();
        for object in objects.iter().copied() {
            let look = || {
                Ok::<_, StoreError>(self.store.verify_again(object)? || self.store.restore(object)?)
            };
            let adopted = match block_in_place(look).map_err(ChunkError::from) {
                Ok(true) => self.adopt(object).await,
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            match adopted {
                Ok(()) => found.push(object),
                Err(why) => {
                    tracing::warn!(
                        %object,
                        "a lost chunk was found here, but cannot be used: {why}"
                    )
                }
            }
        }
        found
    }

    /// A leader has asked for a chunk. Returns whether it is here.
    pub(super) fn mark_audited(&self, object: ObjectId) -> bool {
        let mut own = self.own();
        let own = own.get_mut(&object).filter(|_| self.store.contains(object));
        own.map(|own| (own.last_audited, own.is_of_file) = (Instant::now(), true)).is_some()
    }

    /// A client still needs a chunk for a file that has not appeared.
    pub(super) fn renew(&self, object: ObjectId) {
        if let Some(own) = self.own().get_mut(&object) {
            own.last_audited = Instant::now();
        }
    }

    /// The connection of the client that has stored these chunks has ended. Those of files need no
    /// attention.
    pub fn left(&self, objects: impl IntoIterator<Item = ObjectId>) {
        let is_of_file =
            |object: &ObjectId| self.own().get(object).is_some_and(|own| own.is_of_file);
        let (mut left, now) = (self.left_chunks(), Instant::now());
        for object in objects.into_iter().filter(|object| !is_of_file(object)) {
            if left.len() < MAX_LEFT {
                left.insert(object, now);
            }
        }
    }

    /// The chunks that clients have left before `moment`, and when. Those that are gone, or that a
    /// file has, are forgotten. Others may still be arriving.
    pub fn left_before(&self, moment: Instant) -> Vec<(ObjectId, Instant)> {
        let (mut left, own) = (self.left_chunks(), self.own());
        let may_arrive = |since: &Instant| since.elapsed() < BRING_DEADLINE * 2;
        left.retain(|object, since| {
            own.get(object).map_or(may_arrive(since), |own| !own.is_of_file)
        });
        let here =
            left.iter().filter(|(object, since)| **since < moment && own.contains_key(*object));
        here.map(|(object, since)| (*object, *since)).collect()
    }

    /// Bytes of the chunks that clients have left and that may belong to no file.
    pub fn left_bytes(&self) -> u64 {
        let (left, own) = (self.left_chunks(), self.own());
        let free = left.keys().filter_map(|object| own.get(object)).filter(|own| !own.is_of_file);
        free.map(|own| own.chunk.size_bytes).sum()
    }

    fn left_chunks(&self) -> MutexGuard<'_, HashMap<ObjectId, Instant>> {
        // No update of the map can panic half-way.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client still needs these chunks for a file that has not appeared: they stay, although the
    /// connection over which they came may have ended. Returns, for each, whether it is here.
    pub fn renew_all(&self, objects: &[ObjectId]) -> Vec<bool> {
        let (mut left, mut own, now) = (self.left_chunks(), self.own(), Instant::now());
        let mut renew = |object: &ObjectId| {
            let is_here = self.store.contains(*object);
            let Some(own) = own.get_mut(object).filter(|_| is_here) else { return false };
            own.last_audited = now;
            // Those that still arrive are renewed when they are here.
            left.remove(object);
            true
        };
        objects.iter().map(&mut renew).collect()
    }

    /// Deletes those of these chunks that no leader has asked for: the file that they were for will
    /// not appear. Those that still arrive are deleted later, as if their client had gone.
    pub fn discard(&self, objects: &[ObjectId]) {
        let (mut free, mut arriving) = (Vec::new(), Vec::new());
        {
            let mut own = self.own();
            for object in objects.iter().copied() {
                match own.get(&object).map(|own| own.is_of_file) {
                    Some(true) => continue,
                    Some(false) => free.push(object),
                    None => arriving.push(object),
                }
                own.remove(&object);
            }
        }
        self.delete(&free);
        self.left(arriving);
    }

    /// Deletes those of these chunks that no client has renewed and no leader has asked for since
    /// they were left. Returns their number.
    pub fn drop_left(&self, chunks: &[(ObjectId, Instant)]) -> usize {
        let mut free = Vec::new();
        {
            let (mut left, mut own) = (self.left_chunks(), self.own());
            for (object, since) in chunks {
                let is_free = own.get(object).is_some_and(|own| !own.is_of_file);
                if is_free && left.get(object) == Some(since) {
                    left.remove(object);
                    own.remove(object);
                    free.push(*object);
                }
            }
        }
        self.delete(&free);
        free.len()
    }

    /// Verifies a chunk in the store and records it as this node's own.
    async fn adopt(&self, object: ObjectId) -> Result<(), ChunkError> {
        let found = block_in_place(|| self.store.open_object(object))?;
        let wanted = ChunkSpec { object, size_bytes: found.size_bytes, checksum: found.checksum.0 };
        match self.prepare(wanted).await? {
            // It was removed meanwhile.
            Some(place) => place.finish(Err(ChunkError::NotHere)),
            None => Ok(()),
        }
    }

    /// The chunks that no leader has asked for since `moment`.
    pub fn not_audited_since(&self, moment: Instant) -> Vec<ObjectId> {
        self.own()
            .iter()
            .filter(|(_, own)| own.last_audited < moment)
            .map(|(object, _)| *object)
            .collect()
    }

    /// Reserves space for a chunk; `None` if it is here already, also as a cached object.
    pub async fn prepare(&self, wanted: ChunkSpec) -> Result<Option<Reservation<'_>>, ChunkError> {
        if self.is_own(wanted.object) {
            self.take(wanted);
            return Ok(None);
        }
        self.room.reserve(wanted.object, wanted.size_bytes).await.map_err(|error| match error {
            SpaceError::NoSpace(_) if self.left_bytes() > 0 => ChunkError::SpaceSoon(error),
            error => error.into(),
        })?;
        let place = Reservation { chunks: self, wanted, is_open: true };
        if self.is_own(wanted.object) {
            // Another request has brought it in the meantime.
            self.take(wanted);
            return place.finish(Ok(())).map(|()| None);
        }
        if self.store.contains(wanted.object) && block_in_place(|| self.has_copy(wanted)) {
            // A task has read it here, so it is cached.
            self.take(wanted);
            return place.finish(Ok(())).map(|()| None);
        }
        Ok(Some(place))
    }

    /// Stores a chunk that a client has handed over in the store with this number.
    pub async fn take_over(&self, number: u128, wanted: ChunkSpec) -> Result<(), ChunkError> {
        let ChunkSpec { object, size_bytes, checksum } = wanted;
        // If it is here already, the client removes its file.
        let Some(place) = self.prepare(wanted).await? else { return Ok(()) };
        let taken = block_in_place(|| {
            self.store.take_handed_over(number, object, size_bytes, Checksum(checksum))
        });
        place.finish(match taken {
            Ok(true) => {
                self.take(wanted);
                Ok(())
            }
            Ok(false) => Err(ChunkError::OtherPush),
            Err(error) => Err(error.into()),
        })
    }

    /// Whether the store has a good copy of a chunk, perhaps as a cached object. Blocks.
    fn has_copy(&self, wanted: ChunkSpec) -> bool {
        let is_it = |found: OpenObject| {
            (found.size_bytes, found.checksum.0) == (wanted.size_bytes, wanted.checksum)
        };
        self.store.open_object(wanted.object).is_ok_and(is_it)
    }

    /// Deletes chunks that no file has any longer, and their damaged copies.
    pub fn drop(&self, objects: &[ObjectId]) {
        self.forget(objects);
        objects.iter().for_each(|object| self.store.forget_damaged(*object));
    }

    /// Deletes chunks that have just stopped to belong to this node, and their damaged copies.
    fn delete(&self, disowned: &[ObjectId]) {
        self.release(disowned);
        disowned.iter().for_each(|object| self.store.forget_damaged(*object));
    }

    /// Deletes damaged copies that no leader has searched for since `moment`.
    pub fn drop_damaged_before(&self, moment: Instant) {
        self.store.forget_damaged_before(moment);
    }

    /// These chunks no longer belong to this node.
    fn forget(&self, objects: &[ObjectId]) {
        let own: Vec<_> = {
            let mut own = self.own();
            objects.iter().filter(|object| own.remove(object).is_some()).copied().collect()
        };
        self.release(&own);
    }

    /// Releases the records and the space of chunks that have just stopped to belong to this node.
    fn release(&self, disowned: &[ObjectId]) {
        if disowned.is_empty() {
            return;
        }
        self.database.disown(disowned);
        self.locked.forget(disowned);
        for object in disowned.iter().copied() {
            self.store.mark_replaceable(object);
            self.room.release(object);
        }
    }

    /// Reads a chunk, if it is here. A damaged chunk no longer belongs to this node. Returns
    /// whether it was damaged. Blocks.
    pub fn scrub(&self, object: ObjectId) -> bool {
        if !self.is_own(object) {
            return false;
        }
        match self.has(object, true) {
            Ok(true) => false,
            Ok(false) => {
                self.forget(&[object]);
                true
            }
            Err(error) => {
                tracing::warn!(
                    %object, %error,
                    "cannot read a chunk now; it is checked again later"
                );
                false
            }
        }
    }

    /// Records a chunk in the store as this node's own.
    fn take(&self, wanted: ChunkSpec) {
        let chunk = OwnChunk { size_bytes: wanted.size_bytes, checksum: wanted.checksum };
        self.database.own(&[(wanted.object, chunk)]);
        self.store.mark_irreplaceable([wanted.object]);
        let mut own = self.own();
        let stored = OwnedChunk::stored(chunk, own.get(&wanted.object));
        own.insert(wanted.object, stored);
    }

    fn own(&self) -> MutexGuard<'_, HashMap<ObjectId, OwnedChunk>> {
        // No update of the map can panic half-way.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Reservation<'a> {
    /// Expects a client to push the chunk.
    pub fn expect_push(self) -> Result<ExpectedChunk<'a>, ChunkError> {
        let expected = self.chunks.server.expect(self.begin()?);
        Ok(ExpectedChunk { place: self, expected })
    }

    /// Fetches the chunk from the first of these nodes that has it. `is_expected` says that it may
    /// still be on its way to them, from a client.
    pub async fn fetch(self, from: &[SocketAddr], is_expected: bool) -> Result<(), ChunkError> {
        let (chunks, wanted) = (self.chunks, self.wanted);
        let peers = if is_expected { &chunks.peers } else { &chunks.replicating };
        let (mut into, mut result) = (None, Err(ChunkError::NoSource));
        for addr in from {
            let next = match into.take() {
                Some(into) => into,
                None => match self.begin() {
                    Ok(into) => into,
                    Err(error) => {
                        result = Err(error.into());
                        break;
                    }
                },
            };
            result = match peers.fetch(*addr, next, is_expected, false).await {
                Ok(checksum) if checksum.0 == wanted.checksum => {
                    chunks.take(wanted);
                    Ok(())
                }
                Ok(_) => Err(ChunkError::OtherContent(*addr)),
                Err(broken) => {
                    into = broken.rest;
                    Err(broken.error.into())
                }
            };
            if result.is_ok() {
                break;
            }
        }
        self.finish(result)
    }

    fn begin(&self) -> Result<Incoming, StoreError> {
        self.chunks.store.begin(self.wanted.object, self.wanted.size_bytes, FileMode::READABLE)
    }

    /// The chunk is stored. The caller reports it to the owner of the store.
    fn stored(mut self) -> ObjectId {
        self.is_open = false;
        self.wanted.object
    }

    fn finish(mut self, result: Result<(), ChunkError>) -> Result<(), ChunkError> {
        if result.is_err() {
            // The content that arrived is not the content that was wanted.
            let _ = self.chunks.store.remove(self.wanted.object);
        }
        self.is_open = false;
        self.chunks.room.arrived(self.wanted.object, result.is_ok());
        result
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.chunks.room.arrived(self.wanted.object, false);
        }
    }
}

impl ExpectedChunk<'_> {
    /// Waits until the chunk is stored.
    pub async fn stored(self) -> Result<(), ChunkError> {
        let ExpectedChunk { place, expected } = self;
        let checksum = timeout(BRING_DEADLINE, expected.stored()).await.ok().flatten();
        let result = match checksum {
            Some(checksum) if checksum.0 == place.wanted.checksum => {
                place.chunks.take(place.wanted);
                Ok(())
            }
            Some(_) => Err(ChunkError::OtherPush),
            None => Err(ChunkError::NotPushed),
        };
        place.finish(result)
    }
}
