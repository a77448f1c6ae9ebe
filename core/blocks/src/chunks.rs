//! What is known of a job's chunks and of the nodes they are on, in few bytes a chunk.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::measures::{NodeLoad, ReadRate};

/// The place of a node in [`Nodes`].
pub(crate) type NodeIndex = u32;

/// Where chunks are that have no replica anywhere.
pub(crate) const NO_NODE: NodeIndex = 0;

/// Sizes and replicas of all chunks.
#[derive(Default)]
pub(crate) struct ChunkTable {
    sizes_bytes: Vec<u64>,
    /// Where in `replicas` those of each chunk end.
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

    /// At least one.
    pub fn replicas(&self, chunk: u32) -> &[NodeIndex] {
        let begin = if chunk == 0 { 0 } else { self.ends[chunk as usize - 1] };
        &self.replicas[begin as usize..self.ends[chunk as usize] as usize]
    }
}

/// All nodes that were mentioned.
pub(crate) struct NodeTable {
    places: BTreeMap<NodeId, NodeIndex>,
    /// By place.
    pub measures: Vec<NodeLoad>,
    /// By place: how fast workers there last read.
    pub rates: Vec<ReadRate>,
}

impl NodeTable {
    pub fn new() -> Self {
        // The first is `NOWHERE`.
        NodeTable { places: BTreeMap::new(), measures: alloc::vec![NodeLoad::default()], rates: alloc::vec![None] }
    }

    pub fn place(&mut self, node: NodeId) -> NodeIndex {
        *self.places.entry(node).or_insert_with(|| {
            self.measures.push(NodeLoad::default());
            self.rates.push(None);
            self.measures.len() as NodeIndex - 1
        })
    }
}
