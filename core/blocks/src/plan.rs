//! Which free chunks a worker gets: shares that were assigned in advance, or chunks that are leased
//! at run time.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::chunks::{ChunkTable, NodeIndex, NodeTable};
use crate::measures::ReadRate;
use crate::schedulers::{self, AssignmentInput, BlockPolicy, BlockScheduler};
use crate::sizes::{Sizer, Sizes};
use crate::supply::Supply;

/// The free chunks, and the rules by which workers get them.
pub(crate) struct ChunkPlan {
    scheduler: Box<dyn BlockScheduler>,
    sizer: Sizer,
    /// The expected workers: the node of each, and its rate.
    slots: Vec<(NodeIndex, ReadRate)>,
    supply: Supply,
    /// Whether chunks were assigned in advance. Before that, only the ledger knows which are free.
    is_planned: bool,
}

impl ChunkPlan {
    pub fn new(
        policy: BlockPolicy,
        slots: &[(NodeId, Option<u64>)],
        nodes: &mut NodeTable,
    ) -> Self {
        let slots: Vec<_> = slots
            .iter()
            .map(|(node, rate)| (nodes.index_of(*node), rate.map(|rate| rate.max(1))))
            .collect();
        for (node, rate) in &slots {
            nodes.rates[*node as usize] = *rate;
        }
        let sizes =
            if let BlockPolicy::Lean(lean) = policy { lean.sizes } else { Sizes::Factoring };
        let (scheduler, sizer) = (schedulers::of(policy), Sizer::new(sizes));
        ChunkPlan { scheduler, sizer, slots, supply: Supply::default(), is_planned: false }
    }

    /// Whether a worker can get a chunk.
    pub fn has_free(&self) -> bool {
        !self.supply.is_empty()
    }

    /// Assigns chunks in advance. This is done as late as the first request, so that current
    /// measurements count.
    pub fn plan(
        &mut self,
        chunks: &ChunkTable,
        nodes: &NodeTable,
        free: impl Iterator<Item = u32>,
    ) {
        if core::mem::replace(&mut self.is_planned, true) {
            return;
        }
        let free: Vec<u32> = free.collect();
        let mut is_shared = alloc::vec![false; chunks.len()];
        if !self.slots.is_empty() {
            let input =
                AssignmentInput { chunks, free: &free, slots: &self.slots, loads: &nodes.loads() };
            for share in self.scheduler.shares(&input) {
                share.chunks.iter().for_each(|chunk| is_shared[*chunk as usize] = true);
                self.supply.add_share(share);
            }
        }
        for chunk in free.into_iter().filter(|chunk| !is_shared[*chunk as usize]) {
            self.supply.add(chunks, chunk);
        }
    }

    /// Chunks are free again.
    pub fn add_freed(&mut self, chunks: &ChunkTable, freed: Vec<u32>) {
        if self.is_planned {
            freed.into_iter().for_each(|chunk| self.supply.add(chunks, chunk));
        }
    }

    /// The next chunks for a worker of this node: local ones first, then chunks of the node that
    /// has most left (elastic-blocks §2.5). `speed` is the rate of the worker and the mean rate,
    /// and `workers` the number of workers.
    pub fn next(
        &mut self,
        chunks: &ChunkTable,
        nodes: &NodeTable,
        node: NodeIndex,
        speed: Option<(u64, u64)>,
        workers: usize,
    ) -> Option<Vec<u32>> {
        if let Some(share) = self.supply.take_own_share(node) {
            return Some(share);
        }
        if self.supply.rest() > 0 {
            let workers = workers.max(self.slots.len()) as u32;
            let count = self.sizer.next(self.supply.rest(), workers, speed);
            return Some(self.supply.take(chunks, node, count));
        }
        let (all, loads) = (chunks.len() as f64, nodes.loads());
        let need =
            |node: NodeIndex, left| self.scheduler.need(left as f64 / all, &loads[node as usize]);
        self.supply.take_neediest_share(need)
    }

    /// The chunks that are free, once they were assigned in advance.
    ///
    /// # Panics
    /// If the lists of free chunks contradict each other.
    pub fn validate(&self, chunks: &ChunkTable) -> Option<BTreeSet<u32>> {
        self.is_planned.then(|| self.supply.validate(chunks))
    }
}
