//! Kept outputs of other jobs that the job was submitted with: the tasks that read each, and the tasks that are blocked
//! because no executor has one of them just now.

use alloc::vec::Vec;

use eyas_types::{ObjectId, ObjectSpec};

use super::{Job, Phase};

/// A kept output of another job.
#[derive(Debug)]
pub(super) struct BorrowedObject {
    /// Index in the job's objects.
    place: u32,
    /// The tasks that read it, each once.
    readers: Vec<u32>,
}

impl Job {
    /// Finds the tasks that read kept outputs of other jobs, beginning with the task `first`. The objects from
    /// `first_object` on are new.
    pub(super) fn find_borrowed(&mut self, first: u32, first_object: usize) {
        self.names_kept |= self.spec.objects[first_object..].iter().any(ObjectSpec::is_kept);
        if !self.names_kept {
            return;
        }
        let mut borrowed = core::mem::take(&mut self.borrowed);
        for index in first..self.tasks.len() as u32 {
            let item = self.spec.items.get(index);
            for input in self.template_of(&item).inputs.iter().chain(&item.inputs) {
                let Some(place) = input.from.object() else { continue };
                if !self.spec.objects[place as usize].is_kept() {
                    continue;
                }
                let object = self.object_ids[place as usize];
                let entry = borrowed.entry(object).or_insert_with(|| BorrowedObject { place, readers: Vec::new() });
                if entry.readers.last() != Some(&index) {
                    entry.readers.push(index);
                }
            }
        }
        self.borrowed = borrowed;
    }

    /// The kept outputs of other jobs that its tasks read.
    pub(crate) fn borrowed(&self) -> impl Iterator<Item = ObjectId> {
        self.borrowed.keys().copied()
    }

    /// The spec of a kept output of another job that its tasks read.
    pub(crate) fn borrowed_spec(&self, object: ObjectId) -> Option<&ObjectSpec> {
        self.borrowed.get(&object).map(|borrowed| &self.spec.objects[borrowed.place as usize])
    }

    /// The kept outputs of other jobs that this task reads, each once.
    pub(crate) fn borrowed_inputs(&self, index: u32) -> Vec<ObjectId> {
        if self.borrowed.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let inputs = self.input_ids(&item).into_iter().map(|(object, _)| object);
        inputs.filter(|object| self.borrowed.contains_key(object)).collect()
    }

    /// The tasks that read a kept output of another job, and that wait for an executor or are blocked.
    pub(crate) fn waiting_borrowers(&self, object: ObjectId) -> Vec<u32> {
        let readers = self.borrowed.get(&object).map_or(&[][..], |borrowed| &borrowed.readers);
        let waits = |index: &u32| matches!(self.tasks[*index as usize].phase, Phase::Waiting | Phase::Blocked);
        readers.iter().copied().filter(waits).collect()
    }

    /// The tasks that are blocked because no executor has the object.
    pub(crate) fn lacking(&self, object: ObjectId) -> Vec<u32> {
        let mut readers = self.waiting_borrowers(object);
        readers.retain(|index| self.lacking.get(index).is_some_and(|lacking| lacking.contains(&object)));
        readers
    }

    /// The kept outputs of other jobs that no executor has, and that a blocked task therefore waits for.
    pub fn lacks(&self, index: u32) -> impl Iterator<Item = ObjectId> {
        self.lacking.get(&index).into_iter().flatten().copied()
    }

    /// Blocks a waiting task until executors have these objects.
    pub(crate) fn lack(&mut self, index: u32, objects: impl IntoIterator<Item = ObjectId>) {
        self.lacking.entry(index).or_default().extend(objects);
        self.block(index, []);
    }

    /// An executor has the object. Returns the tasks that may run now.
    pub(crate) fn found(&mut self, object: ObjectId) -> Vec<u32> {
        let mut ready = Vec::new();
        for index in self.lacking(object) {
            let Some(lacking) = self.lacking.get_mut(&index) else { continue };
            lacking.remove(&object);
            if !lacking.is_empty() {
                continue;
            }
            self.lacking.remove(&index);
            if !self.unmet.contains_key(&index) {
                self.enter(index, Phase::Waiting);
                ready.push(index);
            }
        }
        ready
    }
}
