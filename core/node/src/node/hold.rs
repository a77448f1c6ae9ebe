//! Objects that this node holds: kept outputs of its own tasks, replicas that the dispatcher wants here, and objects
//! that another process sends. A held object stays in the store until it is released.

use alloc::format;
use alloc::vec::Vec;

use eyas_types::{ObjectId, Origin, TaskId, units};

use super::{Fetch, Node};
use crate::event::{Effect, FetchFailure};
use crate::space::StoreAmount;

impl Node {
    /// Whether at least one object is held, in the store or being fetched.
    pub fn holds_any(&self) -> bool {
        self.space.holds_any()
    }

    /// Holds an object, and fetches it if the store does not have it.
    pub(super) fn hold(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.book(object, size_bytes, effects) {
            self.fetches.insert(object, Fetch::new(Vec::new(), size_bytes));
            self.to_fetch.push_back(object);
        }
    }

    /// Holds an object that another process sends. The transfer does not wait for its turn among the fetches: a sender
    /// that sends to several nodes at once would wait for the slowest of them.
    pub(super) fn expect(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.book(object, size_bytes, effects) {
            self.fetches.insert(object, Fetch { under_way: true, ..Fetch::new(Vec::new(), size_bytes) });
            self.given.insert(object);
            effects.push(Effect::Expected { object });
        }
    }

    pub(super) fn given(&mut self, object: ObjectId, is_here: bool, effects: &mut Vec<Effect>) {
        if !self.given.remove(&object) {
            return;
        }
        if let Some(fetch) = self.fetches.get_mut(&object)
            && !is_here
            && !fetch.is_here
            && !fetch.tasks.is_empty()
        {
            // Tasks need it too, so this node fetches it for them.
            fetch.under_way = false;
            self.to_fetch.push_back(object);
            self.lost_hold(object, "the other process did not send it", effects);
            self.space.release(object);
            return;
        }
        // From here on, the same as for a fetch under way.
        self.under_way += 1;
        if is_here {
            self.fetched(object, Origin::Peer, 0, effects);
        } else {
            self.fetch_failed(object, &FetchFailure::Unavailable, effects);
        }
    }

    pub(super) fn found_held(&mut self, object: ObjectId, size_bytes: u64) {
        if !self.space.is_known(object) {
            self.space.enter_held(object, size_bytes);
        }
        self.space.hold(object);
    }

    /// Makes room for an object, and holds it. Returns true if the object must be fetched: it was not known, and there
    /// is room.
    fn book(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) -> bool {
        self.unwanted.remove(&object);
        if self.space.is_known(object) {
            self.space.hold(object);
            if self.space.is_here(object) {
                effects.push(Effect::Held { object });
            }
            return false;
        }
        let mut evicted = Vec::new();
        let has_room = self.space.make_room(StoreAmount { bytes: size_bytes, objects: 1 }, &mut evicted);
        if !has_room {
            let reason = format!(
                "its store has no room for another {}: tasks need the rest, or it is held (--cache, --keep-free)",
                units::format_bytes(size_bytes)
            );
            effects.push(Effect::NotHeld { object, reason });
            return false;
        }
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
        self.space.expect(object, size_bytes);
        self.space.hold(object);
        true
    }

    /// Stops holding an object: it may be evicted from now on.
    pub(super) fn release(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if !self.space.is_held(object) {
            return;
        }
        self.space.release(object);
        match self.fetches.get(&object) {
            Some(fetch) if fetch.tasks.is_empty() && !fetch.under_way => {
                self.fetches.remove(&object);
                self.space.remove(object);
            }
            Some(_) => {}
            None => self.drop_unless_cached(object, effects),
        }
    }

    /// Holds an output that a task has put into the store, if there is room for it.
    pub(super) fn produced(&mut self, task: TaskId, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.space.is_known(object) {
            self.space.hold(object);
            match self.fetches.get_mut(&object) {
                // The object stays in the store, even if the fetch fails.
                Some(fetch) if fetch.under_way => fetch.is_here = true,
                Some(_) => {
                    self.under_way += 1;
                    self.fetched(object, Origin::Local, 0, effects);
                }
                None => {}
            }
            return;
        }
        let mut evicted = Vec::new();
        let has_room = self.space.produced(object, size_bytes, &mut evicted);
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
        if !has_room {
            let reason = format!(
                "its store has no room to keep an output of {}: give executors a larger store (--cache)",
                units::format_bytes(size_bytes)
            );
            effects.push(Effect::CannotKeep { task, object, reason });
        }
    }

    /// Reports the loss of an object that was held.
    pub(super) fn lost_hold(&mut self, object: ObjectId, reason: &str, effects: &mut Vec<Effect>) {
        if self.space.is_held(object) {
            effects.push(Effect::NotHeld { object, reason: reason.into() });
        }
    }
}
