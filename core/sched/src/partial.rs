//! Partial hits: waiting tasks of which an executor holds a part, as it met them in its searches.

use alloc::collections::VecDeque;

use crate::queue::TaskKey;

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

struct Hit {
    share: u16,
    turn: u32,
    task: TaskKey,
}

impl PartialHits {
    /// Whether so many better ones are remembered that this one would be forgotten at once.
    pub fn is_outdone(&self, share: u16, turn: u32) -> bool {
        self.hits.len() == MAX_PARTIAL && self.is_worse_than_all(share, turn)
    }

    fn is_worse_than_all(&self, share: u16, turn: u32) -> bool {
        self.hits.back().is_none_or(|worst| Hit::rank_of(share, turn) > worst.rank())
    }

    /// Remembers a waiting task of which the executor holds `share` (of 65,535).
    pub fn remember(&mut self, share: u16, turn: u32, task: TaskKey) {
        let is_full = self.hits.len() == MAX_PARTIAL;
        if self.is_worse_than_all(share, turn) {
            if is_full {
                self.has_forgotten = true;
            } else {
                self.hits.push_back(Hit { share, turn, task });
            }
        } else if let Err(place) = self.hits.binary_search_by_key(&Hit::rank_of(share, turn), Hit::rank) {
            if is_full {
                self.hits.pop_back();
                self.has_forgotten = true;
            }
            self.hits.insert(place, Hit { share, turn, task });
        }
    }

    /// The waiting task of which the executor was last seen to hold the largest share; of equals, the oldest.
    pub fn pop(&mut self) -> Option<(u16, u32, TaskKey)> {
        self.hits.pop_front().map(|Hit { share, turn, task }| (share, turn, task))
    }
}

impl Hit {
    /// The larger the share, and the older, the better, that is the smaller.
    fn rank_of(share: u16, turn: u32) -> u64 {
        u64::from(!share) << 32 | u64::from(turn)
    }

    fn rank(&self) -> u64 {
        Hit::rank_of(self.share, self.turn)
    }
}
