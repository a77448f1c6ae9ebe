//! Partial hits: waiting tasks of which an executor holds a part, as it met them in its searches.
//!
//! Of equal shares the older goes first, but for this: each object that an executor lacks sets the tasks that need it back
//! by up to a window, another for each executor. Where a sweep comes row by row all would bring the same row else, each for
//! the few tasks that go with what it holds. So they bring different ones, and those that one has brought it has more
//! tasks for. No task is overtaken by such as came more than a window after it.

use alloc::collections::VecDeque;
use core::hash::BuildHasher;

use crate::catalog::ObjectKey;
use crate::executors::ExecutorKey;
use crate::hash::Fixed;
use crate::queue::Ticket;

/// Tasks that are remembered; those with the smallest share are forgotten first.
const MAX_PARTIAL: usize = if cfg!(test) { 4 } else { 256 };

/// The best first. Sorted rather than a tree, at both ends of which an entry is cheap: most of what is met is the newest
/// that waits, and has its place last or, when it is full, none.
#[derive(Default)]
pub(crate) struct PartialHits {
    hits: VecDeque<Hit>,
    /// There were more than could be remembered.
    pub has_forgotten: bool,
}

/// A waiting task, and how good it is for the executor.
pub(crate) struct Hit {
    /// What the executor holds of it (of 65,535).
    pub share: u16,
    /// Its turn for this executor.
    order: u32,
    pub ticket: Ticket,
}

impl Hit {
    /// For an executor that holds `share` of it, and lacks `missing`.
    pub fn new(share: u16, ticket: Ticket, by: ExecutorKey, missing: ObjectKey, window: u32) -> Self {
        let set_back = Fixed.hash_one((by, missing)) as u32 % window;
        Hit { share, order: ticket.turn.wrapping_add(set_back), ticket }
    }

    /// The larger the share, and the older, the better, that is the smaller.
    fn rank(&self) -> (u16, u32, u32) {
        (!self.share, self.order, self.ticket.turn)
    }
}

impl PartialHits {
    /// Whether a task of that share and turn would be forgotten at once, whatever it lacks.
    pub fn is_outdone_at_best(&self, share: u16, turn: u32) -> bool {
        let worst = self.hits.back().filter(|_| self.hits.len() == MAX_PARTIAL);
        worst.is_some_and(|worst| (!share, turn) > (!worst.share, worst.order))
    }

    /// Whether so many better ones are remembered that this one would be forgotten at once.
    pub fn is_outdone(&self, hit: &Hit) -> bool {
        self.hits.len() == MAX_PARTIAL && self.is_worse_than_all(hit)
    }

    fn is_worse_than_all(&self, hit: &Hit) -> bool {
        self.hits.back().is_none_or(|worst| hit.rank() > worst.rank())
    }

    pub fn remember(&mut self, hit: Hit) {
        let is_full = self.hits.len() == MAX_PARTIAL;
        if self.is_worse_than_all(&hit) {
            if is_full {
                self.has_forgotten = true;
            } else {
                self.hits.push_back(hit);
            }
        } else if let Err(place) = self.hits.binary_search_by_key(&hit.rank(), Hit::rank) {
            if is_full {
                self.hits.pop_back();
                self.has_forgotten = true;
            }
            self.hits.insert(place, hit);
        }
    }

    /// The waiting task of which the executor was last seen to hold the largest share; of equals, the first.
    pub fn pop(&mut self) -> Option<Hit> {
        self.hits.pop_front()
    }
}
