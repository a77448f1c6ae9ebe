//! A scheduler makes *shares*: chunks for one worker of a node, which are leased at once. All other
//! chunks are leased at run time, and so are, under every scheduler, the chunks of failed workers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::chunks::{ChunkTable, NO_NODE, NodeIndex};
use crate::measures::{MeasuredLoad, ReadRate};

/// A share: chunks for one worker.
#[derive(Debug, PartialEq)]
pub(crate) struct AssignedChunks {
    /// Number of the wave. The shares of a wave are given out before those of the next one.
    pub wave: u32,
    pub node: NodeIndex,
    /// At least one chunk.
    pub chunks: Vec<u32>,
}

/// Facts that are known before the first chunk is given.
pub(crate) struct AssignmentInput<'a> {
    pub chunks: &'a ChunkTable,
    /// The chunks to divide.
    pub free: &'a [u32],
    /// The expected workers: the node of each, and its rate.
    pub slots: &'a [(NodeIndex, ReadRate)],
    /// By node index: the loads of all nodes.
    pub loads: &'a [MeasuredLoad],
}

pub(crate) trait BlockScheduler: Send {
    /// The shares that are assigned in advance.
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks>;

    /// How much a node needs others to take its shares, if it has the fraction `part` of all chunks
    /// in its shares.
    fn need(&self, part: f64, _: &MeasuredLoad) -> f64 {
        part
    }
}

/// Number of slots of each node.
pub(super) fn slots_of(slots: &[(NodeIndex, ReadRate)]) -> BTreeMap<NodeIndex, u32> {
    let mut count = BTreeMap::new();
    slots.iter().for_each(|(node, _)| *count.entry(*node).or_default() += 1);
    count
}

/// Divides chunks evenly over slots; the first slots get one more if there is a remainder: 10
/// chunks on 4 slots are 3, 3, 2 and 2. Chunks go to nodes with a replica as far as possible.
pub(super) fn evenly(
    wave: u32,
    all: &ChunkTable,
    chunks: &[u32],
    slots: &[(NodeIndex, ReadRate)],
) -> Vec<AssignedChunks> {
    let [each, more] = [chunks.len() / slots.len(), chunks.len() % slots.len()];
    let sizes = (0..slots.len()).map(|slot| each + usize::from(slot < more));
    let mut left: BTreeMap<NodeIndex, usize> = BTreeMap::new();
    sizes.clone().zip(slots).for_each(|(size, (node, _))| *left.entry(*node).or_default() += size);
    let mut given: BTreeMap<NodeIndex, Vec<u32>> = BTreeMap::new();
    let mut remote = Vec::new();
    for chunk in chunks {
        let local = all
            .replicas(*chunk)
            .iter()
            .filter_map(|node| left.get(node).map(|left| (*left, *node)));
        // The first of the nodes with the most room.
        match local.max_by_key(|(left, node)| (*left, core::cmp::Reverse(*node))) {
            Some((1.., node)) => {
                *left.get_mut(&node).expect("it was found there") -= 1;
                given.entry(node).or_default().push(*chunk);
            }
            _ => remote.push(*chunk),
        }
    }
    for (node, left) in left {
        given.entry(node).or_default().extend(remote.drain(..left));
    }
    let shares = sizes.zip(slots).map(|(size, (node, _))| {
        let chunks = given
            .get_mut(node)
            .expect("each node was given what its slots need")
            .drain(..size)
            .collect();
        AssignedChunks { wave, node: *node, chunks }
    });
    shares.filter(|share| !share.chunks.is_empty()).collect()
}

/// Assigns each chunk to the replica's node with the best mark, given the chunks that the node was
/// assigned so far; the first one if several are best. Chunks without a replica on a node with
/// slots are left out.
pub(super) fn by_mark(
    input: &AssignmentInput,
    chunks: &[u32],
    mark: impl Fn(NodeIndex, u32 /* slots */, u32 /* assigned */) -> f64,
) -> BTreeMap<NodeIndex, (u32, Vec<u32>)> {
    let mut nodes: BTreeMap<NodeIndex, (u32, Vec<u32>)> = slots_of(input.slots)
        .into_iter()
        .map(|(node, slots)| (node, (slots, Vec::new())))
        .collect();
    for chunk in chunks {
        let mut best: Option<(f64, NodeIndex)> = None;
        for node in input.chunks.replicas(*chunk).iter().filter(|node| **node != NO_NODE) {
            let Some((slots, assigned)) = nodes.get(node) else { continue };
            let mark = mark(*node, *slots, assigned.len() as u32);
            if best.is_none_or(|(best, _)| best < mark) {
                best = Some((mark, *node));
            }
        }
        if let Some((_, node)) = best {
            nodes.get_mut(&node).expect("it was found there").1.push(*chunk);
        }
    }
    nodes
}
