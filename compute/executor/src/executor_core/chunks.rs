//! Chunks of the file system in this executor's store. They are held like the objects that the
//! dispatcher wants held, but the file system's node fetches them.

use eyas_dfs::SpaceError;
use eyas_node::Event;
use eyas_store::Presence;
use eyas_types::ObjectId;
use eyas_wire::executor::FromExecutor;
use tokio::sync::oneshot;

use super::{ActiveFetch, ExecutorCore};

/// A request of the file system's node for space for a chunk.
pub(super) struct ChunkReservation {
    size_bytes: u64,
    reserved: oneshot::Sender<Result<(), SpaceError>>,
}

impl ExecutorCore {
    /// Registers chunks that the store had when the session began.
    pub fn chunks_found(&mut self, chunks: Vec<(ObjectId, u64)>) {
        for (object, size_bytes) in chunks {
            self.chunks.insert(object);
            self.events.push_back(Event::FoundHeld { object, size_bytes });
        }
        self.settle();
    }

    /// Reserves space for a chunk, and answers `reserved` when there is space, or when there will
    /// be none.
    pub fn reserve_chunk(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        reserved: oneshot::Sender<Result<(), SpaceError>>,
    ) {
        self.chunks.insert(object);
        self.reservations
            .entry(object)
            .or_default()
            .push(ChunkReservation { size_bytes, reserved });
        self.events.push_back(Event::Offered { object, size_bytes });
        self.settle();
    }

    /// Chunks with reservations are all here, or none has come.
    pub fn chunks_arrived(&mut self, objects: &[ObjectId], is_here: bool) {
        let mut others = Vec::new();
        for object in objects.iter().copied() {
            let Some(ActiveFetch { size_bytes, .. }) = self.fetching.remove(&object) else {
                // The reservation was made in an earlier session, or between two sessions.
                if let (true, Presence::Ready { size_bytes, .. }) =
                    (is_here, self.runner.store.presence(object))
                {
                    self.chunks_found(vec![(object, size_bytes)]);
                }
                continue;
            };
            if is_here {
                self.tell(FromExecutor::Stored { object, size_bytes });
            }
            let waiting = self.reservations.remove(&object).unwrap_or_default();
            others.extend(waiting.into_iter().map(|waiting| (object, waiting)));
            self.events.push_back(Event::TransferEnded { object, is_here });
        }
        self.settle();
        for (object, ChunkReservation { size_bytes, reserved }) in others {
            if is_here {
                // The requester may be gone.
                let _ = reserved.send(Ok(()));
            } else {
                self.reserve_chunk(object, size_bytes, reserved);
            }
        }
    }

    /// A chunk is no longer held.
    pub fn release_chunk(&mut self, object: ObjectId) {
        self.chunks.remove(&object);
        self.events.push_back(Event::Discard { object });
        self.settle();
    }

    /// Bytes available for further chunks.
    pub fn free_bytes(&self) -> u64 {
        self.node.free_bytes()
    }

    /// There is space for a chunk: the file system's node fetches it.
    pub(super) fn expected(&mut self, object: ObjectId) {
        let waiting = self.reservations.get_mut(&object).and_then(Vec::pop);
        let ChunkReservation { size_bytes, reserved } = waiting.expect("the chunk was requested");
        self.fetching.insert(object, ActiveFetch { size_bytes, is_kept: false, abort: None });
        // Without a requester the chunk does not come.
        if reserved.send(Ok(())).is_err() {
            self.fetching.remove(&object);
            self.events.push_back(Event::TransferEnded { object, is_here: false });
        }
    }

    /// A chunk is here already, or there is no space for it.
    pub(super) fn answer_reservations(&mut self, object: ObjectId, answer: Result<(), SpaceError>) {
        for ChunkReservation { reserved, .. } in
            self.reservations.remove(&object).unwrap_or_default()
        {
            // The requester may be gone.
            let _ = reserved.send(answer.clone());
        }
    }
}
