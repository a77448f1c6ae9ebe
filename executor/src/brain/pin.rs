//! What this executor has for the file system: chunks that are held like what the dispatcher wants held, but come by way of
//! the file system's node.

use eyas_node::Event;
use eyas_store::Presence;
use eyas_types::ObjectId;
use eyas_wire::executor::FromExecutor;
use tokio::sync::oneshot;

use super::{Brain, Fetching};

/// Whoever waits for room for a chunk.
pub(super) struct Pinning {
    size_bytes: u64,
    reserved: oneshot::Sender<Result<(), String>>,
}

impl Brain {
    /// Chunks that the store had when the session began.
    pub fn pin_found(&mut self, chunks: Vec<(ObjectId, u64)>) {
        for (object, size_bytes) in chunks {
            self.pins.insert(object);
            self.events.push_back(Event::FoundHeld { object, size_bytes });
        }
        self.settle();
    }

    /// Makes room for a chunk, and tells when there is some, or why there is none.
    pub fn pin(&mut self, object: ObjectId, size_bytes: u64, reserved: oneshot::Sender<Result<(), String>>) {
        self.pins.insert(object);
        self.pinning.entry(object).or_default().push(Pinning { size_bytes, reserved });
        self.events.push_back(Event::Expect { object, size_bytes });
        self.settle();
    }

    /// A chunk that room was made for is here, or has not come.
    pub fn pinned(&mut self, object: ObjectId, is_here: bool) {
        let Some(Fetching { size_bytes, .. }) = self.fetching.remove(&object) else {
            // Room was made for it in an earlier session, or in none.
            if let (true, Presence::Ready { size_bytes, .. }) = (is_here, self.workshop.store.presence(object)) {
                self.pin_found(vec![(object, size_bytes)]);
            }
            return;
        };
        if is_here {
            self.tell(FromExecutor::Stored { object, size_bytes });
        }
        let others = self.pinning.remove(&object).unwrap_or_default();
        self.events.push_back(Event::Given { object, is_here });
        self.settle();
        for Pinning { size_bytes, reserved } in others {
            match is_here {
                true => drop(reserved.send(Ok(()))),
                false => self.pin(object, size_bytes, reserved),
            }
        }
    }

    /// A chunk need not stay.
    pub fn unpin(&mut self, object: ObjectId) {
        self.pins.remove(&object);
        self.events.push_back(Event::Release { object });
        self.settle();
    }

    /// Bytes that there are for more.
    pub fn free_bytes(&self) -> u64 {
        self.node.free_bytes()
    }

    /// There is room for a chunk: the file system's node gets it.
    pub(super) fn expected(&mut self, object: ObjectId) {
        let waiting = self.pinning.get_mut(&object).and_then(Vec::pop);
        let Pinning { size_bytes, reserved } = waiting.expect("it was asked for");
        self.fetching.insert(object, Fetching { size_bytes, is_kept: false, mover: None });
        // If nobody waits for it any more, it does not come.
        if reserved.send(Ok(())).is_err() {
            self.fetching.remove(&object);
            self.events.push_back(Event::Given { object, is_here: false });
        }
    }

    /// A chunk is here already, or there is no room for it.
    pub(super) fn answer_pin(&mut self, object: ObjectId, answer: Result<(), String>) {
        for Pinning { reserved, .. } in self.pinning.remove(&object).unwrap_or_default() {
            // Who does not wait any more has no need of it.
            let _ = reserved.send(answer.clone());
        }
    }
}
