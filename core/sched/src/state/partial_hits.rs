//! Partial hits: waiting tasks of which an executor holds a part, as its searches met them.
//!
//! Among tasks of the same share the older goes first, with one exception: the tasks that lack a
//! certain object are set back by up to a window, by a different amount for each object and
//! executor. Otherwise, where tasks come row by row, every executor would fetch the same row, and
//! have few tasks for each object it holds. With the set-back, executors fetch different rows. No
//! task is overtaken by one that came more than a window later.

use alloc::collections::VecDeque;
use core::hash::BuildHasher;

use super::keys::{ExecutorKey, ObjectKey, Ticket};
use super::shares::LocalShare;
use crate::hash::FixedHash;

/// Tasks that are remembered. Beyond it, the one with the smallest share is forgotten.
const MAX_PARTIAL: usize = if cfg!(test) { 4 } else { 256 };

/// The best hit first. A sorted list instead of a tree, because most hits are of the newest tasks:
/// their place is at the end, where an insertion is cheap, or nowhere once the list is full.
#[derive(Default)]
pub(crate) struct PartialHits {
    hits: VecDeque<PartialHit>,
    has_forgotten: bool,
}

/// A waiting task, and how good it is for the executor.
pub(crate) struct PartialHit {
    pub share: LocalShare,
    /// The task's turn, set back for this executor.
    order: u32,
    pub ticket: Ticket,
}

impl PartialHit {
    /// A hit for an executor that holds `share` of the task and lacks the object `missing`. For
    /// example a hit of turn 10,000 that is set back by 700 goes after one of the same share and
    /// turn 10,600 that is not.
    pub fn new(
        share: LocalShare,
        ticket: Ticket,
        executor: ExecutorKey,
        missing: ObjectKey,
        window: u32,
    ) -> Self {
        let set_back = FixedHash.hash_one((executor, missing)) as u32 % window;
        PartialHit { share, order: ticket.turn.wrapping_add(set_back), ticket }
    }

    /// Lower is better: a larger share first, then an older task.
    fn rank(&self) -> (core::cmp::Reverse<LocalShare>, u32, u32) {
        (core::cmp::Reverse(self.share), self.order, self.ticket.turn)
    }
}

impl PartialHits {
    /// Whether hits were forgotten because too many were met.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// A task was passed that would have been forgotten at once.
    pub fn note_forgotten(&mut self) {
        self.has_forgotten = true;
    }

    /// The executor searches again from the beginning.
    pub(super) fn restart(&mut self) {
        self.has_forgotten = false;
    }

    /// Whether a task with this share and turn would be forgotten at once, regardless of the object
    /// that it lacks.
    pub fn is_outdone_at_best(&self, share: LocalShare, turn: u32) -> bool {
        let worst = self.hits.back().filter(|_| self.hits.len() == MAX_PARTIAL);
        worst.is_some_and(|worst| {
            (core::cmp::Reverse(share), turn) > (core::cmp::Reverse(worst.share), worst.order)
        })
    }

    /// Whether the hit would be forgotten at once, because the list is full of better ones.
    pub fn is_outdone(&self, hit: &PartialHit) -> bool {
        self.hits.len() == MAX_PARTIAL && self.is_worse_than_all(hit)
    }

    fn is_worse_than_all(&self, hit: &PartialHit) -> bool {
        self.hits.back().is_none_or(|worst| hit.rank() > worst.rank())
    }

    pub fn remember(&mut self, hit: PartialHit) {
        let is_full = self.hits.len() == MAX_PARTIAL;
        if self.is_worse_than_all(&hit) {
            if is_full {
                self.has_forgotten = true;
            } else {
                self.hits.push_back(hit);
            }
        } else if let Err(index) = self.hits.binary_search_by_key(&hit.rank(), PartialHit::rank) {
            if is_full {
                self.hits.pop_back();
                self.has_forgotten = true;
            }
            self.hits.insert(index, hit);
        }
    }

    /// Takes the waiting task of which the executor was last seen to hold the largest share; of
    /// equals the oldest.
    pub fn pop(&mut self) -> Option<PartialHit> {
        self.hits.pop_front()
    }
}
