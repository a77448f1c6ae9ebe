//! What an executor still has to search: the objects it holds for which tasks wait, and the partial
//! hits it has met.

use alloc::collections::VecDeque;

use super::keys::ObjectKey;
use super::partial_hits::PartialHits;
use crate::tight_deque;

/// How far an executor has searched the waiting list of an object that it holds.
#[derive(Clone, Copy, Default)]
pub(crate) struct SearchProgress {
    /// Waiting tasks up to this turn were searched.
    pub(super) cursor: u32,
    /// The generation of the waiting list that `cursor` belongs to; 0 for none.
    pub(super) generation: u16,
    /// The object is on the executor's agenda. If not, the executor is among the object's
    /// unalerted holders.
    pub(super) is_alerted: bool,
}

/// One executor's agenda.
#[derive(Default)]
pub(crate) struct SearchAgenda {
    next: VecDeque<ObjectKey>,
    /// Objects with long waiting lists. A task that is held entirely is in the lists of all its
    /// inputs, and is found sooner in a short list.
    deferred: VecDeque<ObjectKey>,
    pub(super) partial: PartialHits,
}

impl SearchAgenda {
    pub(super) fn push(&mut self, object: ObjectKey) {
        tight_deque::push_back(&mut self.next, object);
    }

    /// The object to search first, and whether it was deferred.
    pub(super) fn first(&self) -> Option<(ObjectKey, bool)> {
        let next = self.next.front().map(|object| (*object, false));
        next.or_else(|| self.deferred.front().map(|object| (*object, true)))
    }

    /// The objects to search next, of those that were not deferred.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = ObjectKey> {
        self.next.iter().copied()
    }

    /// Removes the first object.
    pub(super) fn pop(&mut self) {
        if self.next.pop_front().is_none() {
            self.deferred.pop_front();
        }
    }

    /// Moves the first object behind all others.
    pub(super) fn defer(&mut self) {
        self.deferred.extend(self.next.pop_front());
    }

    /// Whether there is nothing left to search.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty() && self.deferred.is_empty()
    }

    /// Whether searches met more partial hits than are remembered.
    #[cfg(test)]
    pub fn has_forgotten(&self) -> bool {
        self.partial.has_forgotten()
    }

    #[cfg(test)]
    pub fn contains(&self, object: ObjectKey) -> bool {
        self.next.contains(&object) || self.deferred.contains(&object)
    }
}
