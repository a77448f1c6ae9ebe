//! The free chunks: shares that were assigned in advance and not leased yet, and other chunks by
//! the nodes of their replicas.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::chunks::{ChunkTable, NodeIndex};
use crate::schedulers::AssignedChunks;

/// The remaining shares of one wave, by node.
type Wave = BTreeMap<NodeIndex, VecDeque<Vec<u32>>>;

#[derive(Default)]
pub(crate) struct Supply {
    /// By node index: free chunks with a replica on the node that are in no share. A chunk is
    /// listed at each of its replicas.
    local: Vec<BTreeSet<u32>>,
    /// Number of these chunks.
    rest: u32,
    /// Contains no empty waves.
    waves: BTreeMap<u32, Wave>,
}

impl Supply {
    pub fn is_empty(&self) -> bool {
        self.rest == 0 && self.waves.is_empty()
    }

    /// Number of free chunks that are in no share.
    pub fn rest(&self) -> u32 {
        self.rest
    }

    pub fn add(&mut self, chunks: &ChunkTable, chunk: u32) {
        for node in chunks.replicas(chunk) {
            if self.local.len() <= *node as usize {
                self.local.resize_with(*node as usize + 1, BTreeSet::new);
            }
            self.local[*node as usize].insert(chunk);
        }
        self.rest += 1;
    }

    pub fn add_share(&mut self, share: AssignedChunks) {
        self.waves
            .entry(share.wave)
            .or_default()
            .entry(share.node)
            .or_default()
            .push_back(share.chunks);
    }

    /// Takes the next share of the first wave for this node.
    pub fn take_own_share(&mut self, node: NodeIndex) -> Option<Vec<u32>> {
        let mut wave = self.waves.first_entry()?;
        let shares = wave.get_mut().get_mut(&node)?;
        let share = shares.pop_front().expect("no list of shares is empty");
        if shares.is_empty() {
            wave.get_mut().remove(&node);
        }
        if wave.get().is_empty() {
            wave.remove();
        }
        Some(share)
    }

    /// Takes the next share of the first wave, of the node with the greatest need; the first one if
    /// several are equal.
    pub fn take_neediest_share(
        &mut self,
        need: impl Fn(NodeIndex, usize) -> f64,
    ) -> Option<Vec<u32>> {
        let wave = self.waves.first_key_value()?.1;
        let needs = wave
            .iter()
            .map(|(node, shares)| (need(*node, shares.iter().map(Vec::len).sum()), *node));
        let (_, node) = needs.reduce(|best, next| if best.0 < next.0 { next } else { best })?;
        self.take_own_share(node)
    }

    /// Takes up to this number of free chunks that are in no share: chunks of this node, or of the
    /// node with the most chunks if it has none.
    pub fn take(&mut self, chunks: &ChunkTable, node: NodeIndex, count: u32) -> Vec<u32> {
        let own = self.local.get(node as usize).is_some_and(|local| !local.is_empty());
        let from = if own { Some(node as usize) } else { self.fullest() };
        let Some(from) = from else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < count as usize {
            // The node itself takes its chunks from the other end.
            let next = if own { self.local[from].first() } else { self.local[from].last() };
            let Some(next) = next.copied() else { break };
            for replica in chunks.replicas(next) {
                self.local[*replica as usize].remove(&next);
            }
            taken.push(next);
        }
        self.rest -= taken.len() as u32;
        // They are read in the order of the file.
        taken.sort_unstable();
        taken
    }

    /// The node with the most chunks. Looks at all nodes; used only for nodes without chunks of
    /// their own.
    fn fullest(&self) -> Option<usize> {
        let by_count = |index: &usize| (self.local[*index].len(), core::cmp::Reverse(*index));
        (0..self.local.len()).max_by_key(by_count).filter(|index| !self.local[*index].is_empty())
    }

    /// All free chunks, each once.
    ///
    /// # Panics
    /// If a chunk is listed twice, or not at all of its replicas.
    pub fn validate(&self, chunks: &ChunkTable) -> BTreeSet<u32> {
        let mut all: BTreeSet<u32> = self.local.iter().flatten().copied().collect();
        assert_eq!(all.len(), self.rest as usize);
        for chunk in &all {
            assert!(
                chunks
                    .replicas(*chunk)
                    .iter()
                    .all(|node| self.local[*node as usize].contains(chunk)),
                "{chunk}"
            );
        }
        for shares in self.waves.values().flat_map(BTreeMap::values) {
            assert!(!shares.is_empty() && shares.iter().all(|share| !share.is_empty()));
            shares
                .iter()
                .flatten()
                .for_each(|chunk| assert!(all.insert(*chunk), "chunk {chunk} is in two shares"));
        }
        all
    }
}
