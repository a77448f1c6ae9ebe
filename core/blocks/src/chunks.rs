//! Tables of a job's chunks and of the nodes of their replicas, with a few bytes for each chunk.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::measures::{MeasuredLoad, ReadRate};

/// Index of a node in [`NodeTable`].
pub(crate) type NodeIndex = u32;

/// The node of chunks that have no replica.
pub(crate) const NO_NODE: NodeIndex = 0;

/// Sizes and replicas of all chunks.
#[derive(Default)]
pub(crate) struct ChunkTable {
    sizes_bytes: Vec<u64>,
    /// For each chunk, the end of its range in `replicas`.
    ends: Vec<u32>,
    replicas: Vec<NodeIndex>,
}

impl ChunkTable {
    pub fn push(&mut self, size_bytes: u64, replicas: impl Iterator<Item = NodeIndex>) {
        let before = self.replicas.len();
        self.replicas.extend(replicas);
        if self.replicas.len() == before {
            self.replicas.push(NO_NODE);
        }
        self.sizes_bytes.push(size_bytes);
        self.ends.push(self.replicas.len() as u32);
    }

    pub fn len(&self) -> usize {
        self.sizes_bytes.len()
    }

    pub fn size_bytes(&self, chunk: u32) -> u64 {
        self.sizes_bytes[chunk as usize]
    }

    /// The nodes of a chunk's replicas; at least one.
    pub fn replicas(&self, chunk: u32) -> &[NodeIndex] {
        let begin = if chunk == 0 { 0 } else { self.ends[chunk as usize - 1] };
        &self.replicas[begin as usize..self.ends[chunk as usize] as usize]
    }
}

/// All nodes of replicas and workers.
pub(crate) struct NodeTable {
    indices: BTreeMap<NodeId, NodeIndex>,
    /// By node index: the load, if the node has reported it.
    loads: Vec<Option<MeasuredLoad>>,
    /// By node index: the rate at which workers there last read.
    pub rates: Vec<ReadRate>,
}

impl NodeTable {
    pub fn new() -> Self {
        // Index 0 is `NO_NODE`.
        NodeTable { indices: BTreeMap::new(), loads: alloc::vec![None], rates: alloc::vec![None] }
    }

    pub fn index_of(&mut self, node: NodeId) -> NodeIndex {
        *self.indices.entry(node).or_insert_with(|| {
            self.loads.push(None);
            self.rates.push(None);
            self.loads.len() as NodeIndex - 1
        })
    }

    /// A node has reported its load.
    pub fn set_load(&mut self, node: NodeIndex, load: MeasuredLoad) {
        self.loads[node as usize] = Some(load);
    }

    /// The load of each node, by node index. A node that has not reported is unknown, and not idle:
    /// it counts as loaded as the mean of the others.
    pub fn loads(&self) -> Vec<MeasuredLoad> {
        let mean = MeasuredLoad::mean(self.loads.iter().copied().flatten());
        self.loads.iter().map(|load| load.unwrap_or(mean)).collect()
    }
}
