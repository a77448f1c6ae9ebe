//! I/O-aware: a chunk is assigned to the replica whose node is the least busy and has the fewest
//! chunks (elastic-blocks §2.6, listing 3).
//!
//! The paper gave this policy up, because measurements from before a job were soon out of date.
//! Here the chunks of a node are cut into leases of decreasing size, and a worker without chunks
//! takes the next lease of the node with the lowest score at that time.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::scheduler::{AssignedChunks, AssignmentInput, BlockScheduler, by_mark};
use crate::measures::MeasuredLoad;
use crate::sizes::{Sizer, Sizes};

/// The I/O-aware scheduler: the weights of measurements. The rest, `1 - alpha - beta`, is the
/// weight of the chunks that a node already has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoAware {
    /// Weight of the disk's use, from 0 to 1.
    pub alpha: f64,
    /// Weight of the load, from 0 to 1 - `alpha`.
    pub beta: f64,
}

impl IoAware {
    /// Equal weights.
    pub const DEFAULT: IoAware = IoAware { alpha: 1.0 / 3.0, beta: 1.0 / 3.0 };

    /// The score of a node that was assigned the fraction `usage` of the file's chunks; 1 is best.
    /// With weights of 1/2 for the disk and 1/4 for the load, a node with half of the chunks, a
    /// disk in use half of the time and a load of 1/4 has the score 0.5625.
    fn score(&self, usage: f64, node: &MeasuredLoad) -> f64 {
        let delta = 1.0 - self.alpha - self.beta;
        1.0 - (delta * usage + self.alpha * node.disk + self.beta * node.load)
    }
}

impl BlockScheduler for IoAware {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        let all = input.chunks.len() as f64;
        let score =
            |node, _, assigned| self.score(f64::from(assigned) / all, &input.loads[node as usize]);
        let mut shares = Vec::new();
        for (node, (slots, chunks)) in by_mark(input, input.free, score) {
            let mut sizer = Sizer::new(Sizes::Factoring);
            let mut rest = &chunks[..];
            while !rest.is_empty() {
                let size = sizer.next(rest.len() as u32, slots, Some((1, 1)));
                let (first, later) = rest.split_at((size as usize).min(rest.len()));
                shares.push(AssignedChunks { wave: 0, node, chunks: first.to_vec() });
                rest = later;
            }
        }
        shares
    }

    fn need(&self, part: f64, node: &MeasuredLoad) -> f64 {
        1.0 - self.score(part, node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::dfs::NodeId;

    use crate::chunks::{ChunkTable, NodeTable};

    /// Number of 90 chunks with replicas on nodes 1 and 2 that are assigned to node 1 with this
    /// load.
    fn assigned(busy: f64) -> usize {
        let mut chunks = ChunkTable::default();
        (0..90).for_each(|_| chunks.push(1, [1, 2].into_iter()));
        let free: Vec<u32> = (0..90).collect();
        let mut loads = [MeasuredLoad::default(); 3];
        loads[1] = MeasuredLoad::new(busy, busy);
        let input = AssignmentInput {
            chunks: &chunks,
            free: &free,
            slots: &[(1, None), (2, None)],
            loads: &loads,
        };
        let shares = IoAware::DEFAULT.shares(&input);
        assert!(shares.windows(2).all(
            |pair| pair[0].node < pair[1].node || pair[0].chunks.len() >= pair[1].chunks.len()
        ));
        assert_eq!(shares.iter().map(|share| share.chunks.len()).sum::<usize>(), 90);
        shares.iter().filter(|share| share.node == 1).map(|share| share.chunks.len()).sum()
    }

    #[test]
    fn a_busy_node_is_assigned_less() {
        assert_eq!(assigned(0.0), 45);
        // Twice 0.25 makes up for half of the chunks.
        assert!((22..=23).contains(&assigned(0.25)), "{}", assigned(0.25));
        assert_eq!(assigned(0.9), 0);
    }

    #[test]
    fn a_node_that_has_not_reported_counts_as_the_mean_of_the_others() {
        let mut nodes = NodeTable::new();
        let [first, second, silent] = [1, 2, 3].map(|node| nodes.index_of(NodeId(node)));
        assert_eq!(nodes.loads()[silent as usize], MeasuredLoad::default(), "none has reported");
        nodes.set_load(first, MeasuredLoad::new(0.2, 0.0));
        nodes.set_load(second, MeasuredLoad::new(0.4, 1.0));
        let (silent, expected) = (nodes.loads()[silent as usize], MeasuredLoad::new(0.3, 0.5));
        assert!((silent.disk - expected.disk).abs() < 1e-9 && silent.load == expected.load);
        nodes.set_load(first, MeasuredLoad::new(7.0, f64::NAN));
        assert_eq!(
            nodes.loads()[first as usize],
            MeasuredLoad::new(1.0, 0.0),
            "only fractions count"
        );
    }

    #[test]
    fn scores_are_those_of_listing_3() {
        let busy = MeasuredLoad::new(0.5, 0.25);
        let scheduler = IoAware { alpha: 0.5, beta: 0.25 };
        assert_eq!(scheduler.score(0.5, &busy), 1.0 - (0.25 * 0.5 + 0.5 * 0.5 + 0.25 * 0.25));
        assert_eq!(scheduler.score(0.0, &MeasuredLoad::default()), 1.0);
        assert_eq!(scheduler.need(0.5, &busy), 0.4375);
    }
}
