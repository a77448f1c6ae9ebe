//! The catalog: which executor holds which object, and which waiting tasks want it (the paper's
//! `I_map`).
//!
//! Loosely coherent: it is what executors last reported. An object is remembered while a task names
//! it or an executor holds it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::ObjectId;

use super::keys::{ExecutorKey, ObjectKey};
use super::waiting_list::WaitingList;
use crate::hash::PartedMap;

#[derive(Default)]
pub(crate) struct Catalog {
    keys: PartedMap<ObjectId, ObjectKey>,
    objects: Vec<CatalogObject>,
    /// Sizes by the index of the object. Apart from the objects, so that all sizes fit a
    /// processor's cache: shares are computed for tasks that are met once, and whose objects are
    /// not read otherwise.
    sizes_bytes: Vec<u64>,
    free: Vec<ObjectKey>,
    /// Number of times that a replica was added or removed.
    replica_changes: u64,
    /// Objects that are derived copies. Apart from the objects, of which few are.
    copies: BTreeMap<ObjectKey, KnownCopy>,
}

/// A derived copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct KnownCopy {
    /// The object that it is made of, if tasks were named that read the copy.
    pub of: Option<ObjectId>,
    /// The copy in which executors give each other this one, which is a folder.
    pub packed: Option<ObjectId>,
    /// Seconds in which an executor has made it.
    pub made_s: Option<f64>,
}

pub(crate) struct CatalogObject {
    pub id: ObjectId,
    /// Executors with a replica, in no particular order.
    pub holders: Vec<ExecutorKey>,
    pub waiting: WaitingList,
    /// The number of known tasks and pushes that name the object.
    references: u32,
}

impl Catalog {
    /// The object's key, for a task or push that names the object until it is
    /// [released](Self::release).
    pub fn refer(&mut self, id: ObjectId, size_bytes: u64) -> ObjectKey {
        let key = self.key_for_replica(id, size_bytes);
        self.get_mut(key).references += 1;
        key
    }

    /// The key for a replica report. The object may be one that no task has named yet.
    pub(super) fn key_for_replica(&mut self, id: ObjectId, size_bytes: u64) -> ObjectKey {
        let Catalog { keys, objects, sizes_bytes, free, .. } = self;
        let key = *keys.part_mut(&id).entry(id).or_insert_with(|| {
            let object = CatalogObject {
                id,
                holders: Vec::new(),
                waiting: WaitingList::default(),
                references: 0,
            };
            match free.pop() {
                Some(key) => {
                    objects[key.index()] = object;
                    key
                }
                None => {
                    objects.push(object);
                    sizes_bytes.push(0);
                    ObjectKey::at(objects.len() - 1)
                }
            }
        });
        sizes_bytes[key.index()] = size_bytes;
        key
    }

    /// Names a derived copy that tasks read, and for a folder the copy in which it is given.
    /// Returns its size if it is known; else `size_bytes` stands for the size.
    pub fn name_copy(
        &mut self,
        copy: ObjectId,
        (of, packed): (ObjectId, Option<ObjectId>),
        size_bytes: u64,
    ) -> u64 {
        let known = self.find(copy).map(|key| self.size_bytes(key));
        let size_bytes = known.unwrap_or(size_bytes);
        let key = self.key_for_replica(copy, size_bytes);
        let known = self.copies.entry(key).or_default();
        (known.of, known.packed) = (Some(of), packed);
        size_bytes
    }

    /// An executor has made a derived copy.
    pub(super) fn copy_made(&mut self, copy: ObjectId, seconds: f64) {
        if let Some(key) = self.find(copy) {
            self.copies.entry(key).or_default().made_s = Some(seconds);
        }
    }

    /// What is known of an object, if it is a derived copy.
    pub fn copy(&self, key: ObjectKey) -> Option<KnownCopy> {
        self.copies.get(&key).copied()
    }

    /// Whether some inputs are derived copies.
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// A task or push that named the object is forgotten. Whether the object is, too.
    pub fn release(&mut self, key: ObjectKey) -> bool {
        self.get_mut(key).references -= 1;
        self.forget_if_unused(key)
    }

    pub(super) fn forget_if_unused(&mut self, key: ObjectKey) -> bool {
        let Catalog { keys, objects, copies, .. } = self;
        let object = &mut objects[key.index()];
        let is_unused = object.references == 0 && object.holders.is_empty();
        if is_unused {
            object.waiting.clear();
            keys.part_mut(&object.id).remove(&object.id);
            copies.remove(&key);
            self.free.push(key);
        }
        is_unused
    }

    pub fn find(&self, id: ObjectId) -> Option<ObjectKey> {
        self.keys.part(&id).get(&id).copied()
    }

    pub(super) fn get_mut(&mut self, key: ObjectKey) -> &mut CatalogObject {
        &mut self.objects[key.index()]
    }

    pub fn size_bytes(&self, key: ObjectKey) -> u64 {
        self.sizes_bytes[key.index()]
    }

    /// The weight of an object in a task's share. An empty file counts as one byte, so that the
    /// share of a task whose inputs are all empty is defined.
    pub fn weight(&self, key: ObjectKey) -> u64 {
        self.size_bytes(key).max(1)
    }

    /// A replica is added or removed. Returns the object.
    pub(super) fn change_holders(&mut self, key: ObjectKey) -> &mut CatalogObject {
        self.replica_changes += 1;
        self.get_mut(key)
    }

    /// Number of times that a replica was added or removed. While the number is the same, so are
    /// the holders of all objects.
    pub fn replica_changes(&self) -> u64 {
        self.replica_changes
    }

    /// The number of known objects.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

impl core::ops::Index<ObjectKey> for Catalog {
    type Output = CatalogObject;

    fn index(&self, key: ObjectKey) -> &CatalogObject {
        &self.objects[key.index()]
    }
}
