//! Objects that this node holds: kept outputs of its own tasks, replicas that the dispatcher wants
//! here, and objects that another process sends. A held object stays in the store until it is
//! released.

use alloc::format;
use alloc::vec::Vec;

use eyas_types::{ObjectId, TaskId, units};

use crate::event::Effect;
use crate::objects::NodeObjects;
use crate::space::StoreAmount;

impl NodeObjects {
    /// Holds an object, and fetches it if the store does not have it.
    pub fn hold(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.book(object, size_bytes, effects) {
            self.fetches.add(object, size_bytes, Vec::new());
        }
    }

    /// Holds an object that another process sends.
    pub fn expect(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if self.book(object, size_bytes, effects) {
            self.fetches.expect(object, size_bytes);
            effects.push(Effect::Expected { object });
        }
    }

    pub fn found_held(&mut self, object: ObjectId, size_bytes: u64) {
        if !self.space.is_known(object) {
            self.space.enter_held(object, size_bytes);
        }
        self.space.hold(object);
    }

    /// Makes room for an object, and holds it. Returns true if the object must be fetched: it was
    /// not known, and there is room.
    fn book(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) -> bool {
        if self.space.is_known(object) {
            self.space.hold(object);
            if self.space.is_here(object) {
                effects.push(Effect::Held { object });
            }
            return false;
        }
        let mut evicted = Vec::new();
        let has_room =
            self.space.make_room(StoreAmount { bytes: size_bytes, objects: 1 }, &mut evicted);
        if !has_room {
            let reason = format!(
                "its store has no room for another {}: tasks need the rest, or it is held \
                 (--cache, --keep-free)",
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
    pub fn release(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if !self.space.is_held(object) {
            return;
        }
        self.space.release(object);
        match self.fetches.is_waived(object) {
            Some(true) => {
                self.give_up(object, effects);
            }
            Some(false) => {}
            None => self.drop_unless_cached(object, effects),
        }
    }

    /// Stops holding an object that nothing will need again: it leaves as soon as no task needs it.
    pub fn discard(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        self.space.unwant(object);
        if self.space.is_held(object) {
            self.release(object, effects);
        } else {
            self.drop_unless_cached(object, effects);
        }
    }

    /// Holds an output that a task has put into the store, if there is room for it. Returns whether
    /// this ends a fetch of the object.
    pub fn produced(
        &mut self,
        task: TaskId,
        object: ObjectId,
        size_bytes: u64,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.space.is_known(object) {
            self.space.hold(object);
            return self.fetches.produced(object);
        }
        let mut evicted = Vec::new();
        let has_room = self.space.produced(object, size_bytes, &mut evicted);
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
        if !has_room {
            let reason = format!(
                "its store has no room to keep an output of {}: give executors a larger store \
                 (--cache)",
                units::format_bytes(size_bytes)
            );
            effects.push(Effect::CannotKeep { task, object, reason });
        }
        false
    }

    /// Reports the loss of an object that was held.
    pub fn lost_hold(&mut self, object: ObjectId, reason: &str, effects: &mut Vec<Effect>) {
        if self.space.is_held(object) {
            effects.push(Effect::NotHeld { object, reason: reason.into() });
        }
    }
}
