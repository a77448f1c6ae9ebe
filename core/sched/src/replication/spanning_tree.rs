//! A spanning tree by rounds: the best case of active storage (data-diffusion §5.3), to which the
//! paper compares data diffusion.
//!
//! One node reads persistent storage once. Then there are rounds. In each round, every node that
//! has everything gives all of it to one node that has nothing yet. The number of nodes that have
//! everything doubles, so `ceil(log2(n + 1))` rounds serve `n` nodes beside the first; for example
//! 3 rounds serve 7. Objects are whole when they are passed on, and no round begins before the last
//! has ended. Nodes that leave, or cannot take everything, are left out, and the rounds go on among
//! the others.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::ExecutorId;

pub(crate) struct SpanningTree {
    /// Executors that have everything.
    complete: Vec<ExecutorId>,
    pending: VecDeque<ExecutorId>,
    /// Executors that receive in this round, with the giver; `None` is persistent storage.
    receiving: BTreeMap<ExecutorId, Option<ExecutorId>>,
}

impl SpanningTree {
    /// A tree over executors that have everything, and executors that do not.
    pub fn new(complete: Vec<ExecutorId>, pending: Vec<ExecutorId>) -> Self {
        SpanningTree { complete, pending: pending.into(), receiving: BTreeMap::new() }
    }

    pub fn is_complete(&self, executor: ExecutorId) -> bool {
        self.complete.contains(&executor)
    }

    /// The executors that receive everything in the next round; none while a round goes on, or when
    /// all is done.
    pub fn next_round(&mut self) -> Vec<ExecutorId> {
        if !self.receiving.is_empty() {
            return Vec::new();
        }
        let givers = if self.complete.is_empty() {
            Vec::from([None])
        } else {
            self.complete.iter().copied().map(Some).collect()
        };
        let count = givers.len().min(self.pending.len());
        let receivers: Vec<_> = self.pending.drain(..count).collect();
        self.receiving.extend(receivers.iter().copied().zip(givers));
        receivers
    }

    /// The executor that gives to one that receives in this round.
    pub fn giver_of(&self, executor: ExecutorId) -> Option<ExecutorId> {
        self.receiving.get(&executor).copied().flatten()
    }

    /// An executor that receives has everything.
    pub fn received(&mut self, executor: ExecutorId) {
        if self.receiving.remove(&executor).is_some() {
            self.complete.push(executor);
        }
    }

    /// An executor has left, or cannot have everything.
    pub fn left(&mut self, executor: ExecutorId) {
        self.receiving.remove(&executor);
        self.complete.retain(|other| *other != executor);
        self.pending.retain(|other| *other != executor);
    }
}
