//! Kept outputs of other jobs that a job was submitted with: the tasks that read each, and the
//! tasks that are blocked because no executor has one of them just now.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::{ObjectId, ObjectSpec};

use crate::spec::JobSpec;

/// A kept output of another job.
#[derive(Debug)]
struct BorrowedObject {
    /// Index in the job's objects.
    object_index: u32,
    /// The tasks that read it, each once.
    readers: Vec<u32>,
}

/// The kept outputs of other jobs that tasks read.
#[derive(Debug, Default)]
pub(crate) struct BorrowedObjects {
    /// Whether kept outputs of other jobs are among the job's objects.
    are_named: bool,
    objects: BTreeMap<ObjectId, BorrowedObject>,
    /// For each blocked task: those of them that it reads and no executor has.
    lacking: BTreeMap<u32, BTreeSet<ObjectId>>,
}

impl BorrowedObjects {
    /// Finds the tasks that read kept outputs of other jobs, beginning with the task `first`. The
    /// objects from `first_object` on are new; `ids` has the ids of all.
    pub fn find(&mut self, spec: &JobSpec, ids: &[ObjectId], first: u32, first_object: usize) {
        self.are_named |= spec.objects[first_object..].iter().any(ObjectSpec::is_kept);
        if !self.are_named {
            return;
        }
        for index in first..spec.items.len() as u32 {
            let item = spec.items.get(index);
            for input in spec.inputs_of(&item) {
                let Some(object_index) = input.from.object() else { continue };
                if !spec.objects[object_index as usize].is_kept() {
                    continue;
                }
                let new = || BorrowedObject { object_index, readers: Vec::new() };
                let entry = self.objects.entry(ids[object_index as usize]).or_insert_with(new);
                if entry.readers.last() != Some(&index) {
                    entry.readers.push(index);
                }
            }
        }
    }

    /// Whether kept outputs of other jobs are among the job's objects.
    pub fn are_named(&self) -> bool {
        self.are_named
    }

    /// Whether no task reads one.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Their ids.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    /// Whether tasks read this one.
    pub fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// Its index among the job's objects.
    pub fn index_of(&self, object: ObjectId) -> Option<u32> {
        self.objects.get(&object).map(|borrowed| borrowed.object_index)
    }

    /// The tasks that read it.
    pub fn readers(&self, object: ObjectId) -> &[u32] {
        self.objects.get(&object).map_or(&[], |borrowed| &borrowed.readers)
    }

    /// No executor has these, which a task reads.
    pub fn lack(&mut self, index: u32, objects: impl IntoIterator<Item = ObjectId>) {
        self.lacking.entry(index).or_default().extend(objects);
    }

    /// Those that a task reads and no executor has.
    pub fn lacks(&self, index: u32) -> impl Iterator<Item = ObjectId> {
        self.lacking.get(&index).into_iter().flatten().copied()
    }

    /// Whether a task is blocked because no executor has the object.
    pub fn is_lacking(&self, index: u32, object: ObjectId) -> bool {
        self.lacking.get(&index).is_some_and(|lacking| lacking.contains(&object))
    }

    /// An executor has the object. Whether the task that lacked it lacks no other.
    pub fn found(&mut self, index: u32, object: ObjectId) -> bool {
        let Some(lacking) = self.lacking.get_mut(&index) else { return false };
        lacking.remove(&object);
        let is_last = lacking.is_empty();
        if is_last {
            self.lacking.remove(&index);
        }
        is_last
    }

    /// A task is no longer blocked.
    pub fn stop_lacking(&mut self, index: u32) {
        self.lacking.remove(&index);
    }
}
