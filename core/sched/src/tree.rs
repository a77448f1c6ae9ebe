//! A spanning tree by rounds: the best case of active storage (data-diffusion §5.2), to which the paper compares data
//! diffusion.
//!
//! One node reads persistent storage, once. Then there are rounds, in each of which every node that has everything gives
//! all of it to one that has nothing yet: those that have it double, and `ceil(log2(n + 1))` rounds serve `n` nodes beside
//! the first. Objects go whole: nobody passes on what it is still receiving, and no round begins before the last has
//! ended. Nodes that leave, or cannot take everything, are left out, and the rounds go on among those that are left.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::ExecutorId;

pub(crate) struct Tree {
    /// Those that have everything.
    has: Vec<ExecutorId>,
    lacks: VecDeque<ExecutorId>,
    /// Those that receive in this round, and from whom; from persistent storage where there is nobody.
    receiving: BTreeMap<ExecutorId, Option<ExecutorId>>,
}

impl Tree {
    /// A tree over those that have everything, and those that do not.
    pub fn new(has: Vec<ExecutorId>, lacks: Vec<ExecutorId>) -> Self {
        Tree { has, lacks: lacks.into(), receiving: BTreeMap::new() }
    }

    /// Whether an executor has everything.
    pub fn has(&self, executor: ExecutorId) -> bool {
        self.has.contains(&executor)
    }

    /// Who is to receive everything in the next round; nobody while there is one, or when all is done.
    pub fn next_round(&mut self) -> Vec<ExecutorId> {
        if !self.receiving.is_empty() {
            return Vec::new();
        }
        let gives = match self.has.is_empty() {
            true => Vec::from([None]),
            false => self.has.iter().copied().map(Some).collect(),
        };
        let count = gives.len().min(self.lacks.len());
        let receives: Vec<_> = self.lacks.drain(..count).collect();
        self.receiving.extend(receives.iter().copied().zip(gives));
        receives
    }

    /// Who gives to an executor that receives in this round.
    pub fn giver_of(&self, executor: ExecutorId) -> Option<ExecutorId> {
        self.receiving.get(&executor).copied().flatten()
    }

    /// An executor that receives has everything.
    pub fn received(&mut self, executor: ExecutorId) {
        if self.receiving.remove(&executor).is_some() {
            self.has.push(executor);
        }
    }

    /// An executor has left, or cannot have everything.
    pub fn left(&mut self, executor: ExecutorId) {
        self.receiving.remove(&executor);
        self.has.retain(|other| *other != executor);
        self.lacks.retain(|other| *other != executor);
    }
}
