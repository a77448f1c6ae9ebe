//! Kept objects: which tasks wrote each, which jobs borrow it, and whether an executor holds it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::{JobId, ObjectId, TaskId};

/// All kept objects.
#[derive(Debug, Default)]
pub(super) struct LineageObjects {
    objects: BTreeMap<ObjectId, KeptObject>,
}

#[derive(Debug, Default)]
struct KeptObject {
    /// The tasks whose output it is. Tasks that ran again and wrote the same, or took it over,
    /// share it.
    writers: Vec<TaskId>,
    /// Jobs that have not ended and read it, although another job made it.
    borrowers: BTreeSet<JobId>,
    /// An executor that stays holds it, as far as was told.
    is_held: bool,
}

impl LineageObjects {
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> {
        self.objects.keys().copied()
    }

    pub fn are_none(&self) -> bool {
        self.objects.is_empty()
    }

    /// The tasks whose output the object is.
    pub fn writers(&self, object: ObjectId) -> &[TaskId] {
        self.objects.get(&object).map_or(&[], |kept| &kept.writers)
    }

    /// The object is the output of this task, too; `is_stored` if an executor has just stored it.
    /// Returns whether an executor holds it.
    pub fn wrote(&mut self, object: ObjectId, task: TaskId, is_stored: bool) -> bool {
        let kept = self.objects.entry(object).or_default();
        if !kept.writers.contains(&task) {
            kept.writers.push(task);
        }
        kept.is_held |= is_stored;
        kept.is_held
    }

    /// The object is no longer an output of this task. Returns whether it is known, and whether it
    /// is the output of no task and no executor holds it.
    pub fn let_go(&mut self, object: ObjectId, task: TaskId) -> Option<bool> {
        let kept = self.objects.get_mut(&object)?;
        kept.writers.retain(|other| *other != task);
        Some(kept.writers.is_empty() && !kept.is_held)
    }

    /// Whether an executor that stays holds the kept object.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|kept| kept.is_held)
    }

    /// An executor holds the object, or none does any longer. Returns whether the object is kept.
    pub fn note_held(&mut self, object: ObjectId, is_held: bool) -> bool {
        let kept = self.objects.get_mut(&object);
        kept.map(|kept| kept.is_held = is_held).is_some()
    }

    /// Executors are told to hold the object, as if one did.
    pub fn hold(&mut self, object: ObjectId) {
        self.objects.entry(object).or_default().is_held = true;
    }

    /// Whether jobs that have not ended, and did not make the object, read it.
    pub fn is_borrowed(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|kept| !kept.borrowers.is_empty())
    }

    /// Those jobs.
    pub fn borrowers(&self, object: ObjectId) -> impl Iterator<Item = JobId> {
        self.objects.get(&object).into_iter().flat_map(|kept| kept.borrowers.iter().copied())
    }

    /// A job reads the object until it ends.
    pub fn borrow(&mut self, object: ObjectId, job: JobId) {
        self.objects.entry(object).or_default().borrowers.insert(job);
    }

    /// A job has read the object for good. Returns whether it had borrowed it.
    pub fn end_borrowing(&mut self, object: ObjectId, job: JobId) -> bool {
        self.objects.get_mut(&object).is_some_and(|kept| kept.borrowers.remove(&job))
    }

    /// Forgets an object that is the output of no task, and that no job reads. Returns whether it
    /// was one.
    pub fn forget_unless_used(&mut self, object: ObjectId) -> bool {
        let is_unused = |kept: &KeptObject| kept.writers.is_empty() && kept.borrowers.is_empty();
        let forgets = self.objects.get(&object).is_some_and(is_unused);
        if forgets {
            self.objects.remove(&object);
        }
        forgets
    }
}
