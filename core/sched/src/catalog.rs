//! The catalog: which executor holds which object, and which waiting tasks want it (the paper's `I_map`).
//!
//! Loosely coherent: it is what executors last reported. An object is remembered while a task wants it or an
//! executor holds it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use eyas_types::ObjectId;

use crate::executors::ExecutorKey;
use crate::growth;
use crate::hash::Map;
use crate::queue::Ticket;

/// An object's place in the catalog; reused when the object is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(pub(crate) u32);

impl ObjectKey {
    pub(crate) const NONE: ObjectKey = ObjectKey(u32::MAX);
}

/// A waiting list may hold so many entries of tasks that left the queue, beyond as many as live ones.
const STALE_ENTRIES: usize = 16;

/// An entry in an object's list of tasks that wait.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub ticket: Ticket,
    /// The other input of a task that has two, else [`ObjectKey::NONE`]. Most entries that a search meets are of
    /// tasks that the executor holds half of, as it does many others: with this it need not look at the task to pass
    /// it.
    pub other: ObjectKey,
}

#[derive(Default)]
pub(crate) struct Catalog {
    keys: Map<ObjectId, ObjectKey>,
    objects: Vec<Object>,
    /// Sizes of objects; apart from them, so that those of all fit a processor's cache: shares are computed of tasks
    /// that are met once, and whose objects are not looked at otherwise.
    sizes_bytes: Vec<u64>,
    free: Vec<ObjectKey>,
}

pub(crate) struct Object {
    pub id: ObjectId,
    /// Executors with a replica, in no particular order.
    pub holders: Vec<ExecutorKey>,
    /// Tasks that wait for it, oldest first; may name tasks that have left the queue.
    pub waiting: VecDeque<Wait>,
    /// Which list `waiting` is, from 1; see [`Catalog::want`].
    pub list: u16,
    /// How many of `waiting` are in the queue.
    pub wanted: u32,
    /// Tasks that are known to the scheduler and name it.
    references: u32,
    /// Holders that have it not on their list of objects to search, and are to be told when a task comes to wait for
    /// it. Each is put here by a search, so that all telling together costs no more than searching.
    pub to_tell: Vec<ExecutorKey>,
}

impl Catalog {
    /// The object's key, for a task that is going to name it.
    pub fn refer(&mut self, id: ObjectId, size_bytes: u64) -> ObjectKey {
        let key = match self.keys.get(&id) {
            Some(key) => *key,
            None => self.insert(id),
        };
        self[key].references += 1;
        self.sizes_bytes[key.0 as usize] = size_bytes;
        key
    }

    fn insert(&mut self, id: ObjectId) -> ObjectKey {
        let object = Object {
            id,
            holders: Vec::new(),
            waiting: VecDeque::new(),
            list: 1,
            wanted: 0,
            references: 0,
            to_tell: Vec::new(),
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.objects[key.0 as usize] = object;
                key
            }
            None => {
                self.objects.push(object);
                self.sizes_bytes.push(0);
                ObjectKey(u32::try_from(self.objects.len() - 1).expect("fewer than 2^32 objects"))
            }
        };
        self.keys.insert(id, key);
        key
    }

    /// A task that named it is forgotten.
    pub fn release(&mut self, key: ObjectKey) {
        self[key].references -= 1;
        self.forget_if_unused(key);
    }

    /// The key for a replica report, which may be of an object no task has named yet.
    pub fn key_for_replica(&mut self, id: ObjectId, size_bytes: u64) -> ObjectKey {
        let key = match self.keys.get(&id) {
            Some(key) => *key,
            None => self.insert(id),
        };
        self.sizes_bytes[key.0 as usize] = size_bytes;
        key
    }

    pub fn find(&self, id: ObjectId) -> Option<ObjectKey> {
        self.keys.get(&id).copied()
    }

    pub fn forget_if_unused(&mut self, key: ObjectKey) {
        let object = &self[key];
        if object.references == 0 && object.holders.is_empty() {
            assert_eq!(object.wanted, 0, "a waiting task names an object without reference");
            let id = object.id;
            self.keys.remove(&id);
            self[key].waiting = VecDeque::new();
            self[key].to_tell = Vec::new();
            self.free.push(key);
        }
    }

    /// A task that wants the object joined the queue.
    ///
    /// When nobody wanted it, its list begins anew, so that how far somebody searched an earlier one means nothing:
    /// turns may have come round since. That is missed by one search in 65,535 of those that follow after more than
    /// 2^31 turns.
    pub fn want(&mut self, key: ObjectKey, wait: Wait) {
        let object = &mut self[key];
        if object.wanted == 0 {
            object.waiting.clear();
            object.list = object.list.wrapping_add(1).max(1);
        }
        growth::push_back(&mut object.waiting, wait);
        object.wanted += 1;
    }

    /// A task that wanted the object left the queue.
    pub fn leave(&mut self, key: ObjectKey, ticket: Ticket, is_waiting: impl Fn(Ticket) -> bool) {
        let object = &mut self[key];
        object.wanted -= 1;
        if object.waiting.front().is_some_and(|first| first.ticket == ticket) {
            object.waiting.pop_front();
        }
        if object.waiting.len() > 2 * object.wanted as usize + STALE_ENTRIES {
            self.tidy(key, is_waiting);
        }
    }

    /// Drops entries of tasks that left the queue once they are the most of the list.
    pub fn tidy(&mut self, key: ObjectKey, is_waiting: impl Fn(Ticket) -> bool) {
        let object = &mut self[key];
        while object.waiting.front().is_some_and(|first| !is_waiting(first.ticket)) {
            object.waiting.pop_front();
        }
        if object.waiting.len() > 2 * object.wanted as usize + STALE_ENTRIES {
            object.waiting.retain(|wait| is_waiting(wait.ticket));
        }
    }

    pub fn size_bytes(&self, key: ObjectKey) -> u64 {
        self.sizes_bytes[key.0 as usize]
    }

    /// What an object counts in a task's share. An empty file counts as a byte, so that a share of nothing is still a
    /// share.
    pub fn weight(&self, key: ObjectKey) -> u64 {
        self.size_bytes(key).max(1)
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

impl Object {
    /// Takes a holder off the list of those to tell.
    pub fn tell_no_more(&mut self, by: ExecutorKey) {
        let place = self.to_tell.iter().position(|other| *other == by);
        self.to_tell.swap_remove(place.expect("who is not alerted is to be told"));
    }
}

impl core::ops::Index<ObjectKey> for Catalog {
    type Output = Object;

    fn index(&self, key: ObjectKey) -> &Object {
        &self.objects[key.0 as usize]
    }
}

impl core::ops::IndexMut<ObjectKey> for Catalog {
    fn index_mut(&mut self, key: ObjectKey) -> &mut Object {
        &mut self.objects[key.0 as usize]
    }
}
