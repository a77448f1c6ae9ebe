//! Which of the objects that an executor holds it is to search for tasks that wait for them, and in which order.

use alloc::collections::VecDeque;

use crate::catalog::ObjectKey;
use crate::growth;

/// Objects to search, the first first. Those that very many tasks want come last: a task that is held entirely is in the lists of all
/// its inputs, and is found in a short one sooner.
#[derive(Default)]
pub(crate) struct ToSearch {
    next: VecDeque<ObjectKey>,
    last: VecDeque<ObjectKey>,
}

impl ToSearch {
    pub fn push(&mut self, object: ObjectKey) {
        growth::push_back(&mut self.next, object);
    }

    /// The one to search first, and whether it was put off.
    pub fn first(&self) -> Option<(ObjectKey, bool)> {
        let next = self.next.front().map(|object| (*object, false));
        next.or_else(|| self.last.front().map(|object| (*object, true)))
    }

    /// Those to search next of the ones that were not put off.
    pub fn upcoming(&self) -> impl Iterator<Item = ObjectKey> {
        self.next.iter().copied()
    }

    pub fn pop(&mut self) {
        if self.next.pop_front().is_none() {
            self.last.pop_front();
        }
    }

    /// Others are searched before the first.
    pub fn put_off(&mut self) {
        self.last.extend(self.next.pop_front());
    }

    pub fn is_empty(&self) -> bool {
        self.next.is_empty() && self.last.is_empty()
    }

    #[cfg(test)]
    pub fn contains(&self, object: &ObjectKey) -> bool {
        self.next.contains(object) || self.last.contains(object)
    }
}
