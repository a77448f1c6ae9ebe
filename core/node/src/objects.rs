//! The objects of a node: those in its store, and those on their way to it.

use alloc::vec::Vec;

use eyas_types::{ObjectId, Origin, TaskId};

use crate::copies;
use crate::event::Effect;
use crate::fetches::{ObjectFetch, ObjectFetches};
use crate::space::{Space, StoreAmount};
use crate::tasks::StagedInput;

pub(crate) struct NodeObjects {
    pub space: Space,
    pub fetches: ObjectFetches,
}

impl NodeObjects {
    /// Brings an input of a task into the store, for which room was reserved. An input that was
    /// known is pinned already. Returns whether the input is missing.
    pub fn bring(&mut self, task: TaskId, input: &mut StagedInput) -> bool {
        let StagedInput { object, size_bytes, .. } = *input;
        if self.space.is_here(object) {
            self.space.used(object);
            input.origin = Some(Origin::Local);
            return false;
        }
        if !self.fetches.join(object, task) {
            self.space.expect(object, size_bytes);
            self.space.pin(object);
            self.fetches.add(object, size_bytes, alloc::vec![task]);
        }
        true
    }

    /// A task no longer needs its inputs, which are pinned.
    pub fn leave(&mut self, task: TaskId, inputs: &[StagedInput], effects: &mut Vec<Effect>) {
        for StagedInput { object, .. } in inputs {
            let object = *object;
            self.space.unpin(object);
            match self.fetches.leave(object, task) {
                Some(is_waived) if is_waived && !self.space.is_held(object) => {
                    self.give_up(object, effects);
                }
                Some(_) => {}
                None => self.drop_unless_cached(object, effects),
            }
        }
    }

    /// Forgets an object whose fetch has not begun.
    pub fn give_up(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        self.fetches.cancel(object);
        self.space.remove(object);
        effects.push(Effect::GivenUp { object });
    }

    /// Gives up those inputs of a task that was never staged that are not here and not fetched.
    pub fn give_up_unknown(&self, inputs: &[StagedInput], effects: &mut Vec<Effect>) {
        let unknown = inputs.iter().filter(|input| !self.space.is_known(input.object));
        effects.extend(unknown.map(|input| Effect::GivenUp { object: input.object }));
    }

    /// A task reads something that was made of its input, and is pinned for the task. The one of
    /// both that is restored at less cost counts as used earlier, and leaves before the other.
    /// Returns whether this ends a fetch of the object for another task.
    pub fn derived(
        &mut self,
        (source, object): (ObjectId, ObjectId),
        (size_bytes, took_us): (u64, Option<u64>),
    ) -> bool {
        let is_expected = self.space.is_known(object) && !self.space.is_here(object);
        match self.space.is_known(object) {
            true => self.space.pin(object),
            false => self.space.derived(object, size_bytes),
        }
        let rate_bytes_per_s = self.fetches.rate_bytes_per_s();
        if let Some(took_us) = took_us {
            let is_costly = copies::source_leaves_first(size_bytes, took_us, rate_bytes_per_s);
            self.space.set_costly(object, is_costly);
        }
        let mut in_order = [object, source];
        if self.space.is_costly(object) {
            in_order.reverse();
        }
        for used in in_order {
            if self.space.is_here(used) {
                self.space.used(used);
            }
        }
        is_expected && self.fetches.produced(object)
    }

    /// A task no longer needs what was made of its inputs.
    pub fn leave_derived(&mut self, derived: &[ObjectId], effects: &mut Vec<Effect>) {
        for object in derived {
            self.space.unpin(*object);
            self.drop_unless_cached(*object, effects);
        }
    }

    /// Evicts idle objects while what tasks read exceeds the limits.
    pub fn shrink(&mut self, effects: &mut Vec<Effect>) {
        let mut evicted = Vec::new();
        self.space.shrink(&mut evicted);
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
    }

    /// A fetched object is in the store.
    pub fn arrived(
        &mut self,
        object: ObjectId,
        from: Origin,
        took_us: u64,
        effects: &mut Vec<Effect>,
    ) -> ObjectFetch {
        let fetch = self.fetches.ended(object);
        self.space.arrived(object);
        if self.space.is_held(object) {
            effects.push(Effect::Held { object });
        }
        if from != Origin::Local {
            self.fetches.learn_rate(fetch.size_bytes, took_us);
        }
        fetch
    }

    /// The store had this object when it was opened.
    pub fn found(&mut self, object: ObjectId, size_bytes: u64, effects: &mut Vec<Effect>) {
        if !self.space.is_known(object) && !self.space.found(object, size_bytes) {
            effects.push(Effect::Evict { object });
        }
    }

    /// An object that these tasks need was lost. It takes the room that it had before, so no room
    /// is made.
    pub fn bring_back(&mut self, object: ObjectId, size_bytes: u64, tasks: Vec<TaskId>) {
        self.space.expect(object, size_bytes);
        tasks.iter().for_each(|_| self.space.pin(object));
        self.fetches.add(object, size_bytes, tasks);
    }

    /// Subtracts the space for fetches that wait for their turn. The shell has subtracted that for
    /// fetches under way. With 10 GB free and 3 fetches of 1 GB that wait, 7 GB are free.
    pub fn set_free(&mut self, bytes: u64, inodes: u64) {
        let waiting = self.fetches.waiting();
        let (bytes, objects) =
            (bytes.saturating_sub(waiting.bytes), inodes.saturating_sub(waiting.objects));
        self.space.set_free(StoreAmount { bytes, objects });
    }

    /// Evicts an object that is idle, without caching or if nothing will need it again.
    pub fn drop_unless_cached(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.space.drop_unless_cached(object) {
            effects.push(Effect::Evict { object });
        }
    }
}
