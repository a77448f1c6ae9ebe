//! Objects that this node is to hold: kept outputs of its own tasks, replicas that the dispatcher wants here, and what it
//! is given. They do not leave until they are released.

use alloc::format;
use alloc::vec::Vec;

use eyas_types::{ObjectId, Origin, TaskId, units};

use super::{Fetch, Node};
use crate::event::{Effect, FetchFailure};
use crate::space::Room;

impl Node {
    /// Whether there is anything that it is to hold.
    pub fn holds_any(&self) -> bool {
        self.space.holds_any()
    }

    /// Holds an object; one that is not here is fetched.
    pub(super) fn hold(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.book(object, size_bytes, effects) {
            self.fetches.insert(object, Fetch::new(Vec::new(), size_bytes));
            self.to_fetch.push_back(object);
        }
    }

    /// Holds an object that somebody gives. It waits for no turn: who gives to several nodes at once would wait for all.
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
        // As if it had been fetched in turn.
        self.under_way += 1;
        match is_here {
            true => self.fetched(object, Origin::Peer, 0, effects),
            false => self.fetch_failed(object, &FetchFailure::Unavailable, effects),
        }
    }

    pub(super) fn found_held(&mut self, object: ObjectId, size_bytes: u64) {
        if !self.space.is_known(object) {
            self.space.enter_held(object, size_bytes);
        }
        self.space.hold(object);
    }

    /// Makes room for an object that is to be held, and holds it. False if it is known already, or there is no room.
    fn book(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) -> bool {
        if self.space.is_known(object) {
            self.space.hold(object);
            if self.space.is_here(object) {
                effects.push(Effect::Held { object });
            }
            return false;
        }
        let mut evicted = Vec::new();
        let has_room = self.space.make_room(Room { bytes: size_bytes, objects: 1 }, &mut evicted);
        if !has_room {
            let reason = format!(
                "its store has no room for {} that nothing else needs now (--cache, --keep-free)",
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

    /// Lets an object go that was held: it may be evicted from now on.
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

    /// Holds what a task has written into the store, if that has room for it.
    pub(super) fn produced(&mut self, task: TaskId, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.space.is_known(object) {
            self.space.hold(object);
            match self.fetches.get_mut(&object) {
                // Whatever becomes of the fetch, it is here.
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

    /// What was to be held is not, and cannot be had.
    pub(super) fn lost_hold(&mut self, object: ObjectId, reason: &str, effects: &mut Vec<Effect>) {
        if self.space.is_held(object) {
            effects.push(Effect::NotHeld { object, reason: reason.into() });
        }
    }
}
