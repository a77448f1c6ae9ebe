//! The ring: maps a name to its leader and the replicas of its record, and a chunk to nodes.
//!
//! Consistent hashing with [`POINTS`] points for each node (elastic-blocks §2.4). Names are hashed
//! to partitions, and each partition has one position on the ring. So when nodes join or leave,
//! whole partitions move. The hash functions are fixed for ever: with others, records would be
//! looked up on the wrong nodes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};

use crate::view::View;

/// Points of a node on the ring. On average over 50 rings of 8 nodes, the most loaded node leads
/// 1.21 times its share of 1024 partitions with 64 points, and 1.16 times with 256 points, which
/// take four times as long to compute: see the test.
pub const POINTS: u64 = 64;

/// The ring of a view.
#[derive(Clone, Debug)]
pub struct Ring {
    points: Vec<(u64, NodeId)>,
    members: usize,
    /// The replicas of each partition, the leader first.
    replicas: Vec<Vec<NodeId>>,
}

impl Ring {
    /// The ring of `view`.
    pub fn new(view: &View) -> Self {
        Ring::of(view, &view.members, &mut BTreeMap::new())
    }

    /// The ring that `view` would have with other members. `known` caches the points of nodes.
    pub(crate) fn of(
        view: &View,
        members: &BTreeSet<NodeId>,
        known: &mut BTreeMap<NodeId, Vec<u64>>,
    ) -> Self {
        let mut points = Vec::new();
        for node in members {
            let of_node = known.entry(*node).or_insert_with(|| points_of(*node));
            points.extend(of_node.iter().map(|point| (*point, *node)));
        }
        points.sort_unstable();
        let mut ring = Ring { points, members: members.len(), replicas: Vec::new() };
        let keepers = view.replicas_of(ring.members);
        ring.replicas = (0..view.partitions)
            .map(|partition| {
                ring.successors(hash(b"partition", &[&partition.to_le_bytes()]))
                    .take(keepers)
                    .collect()
            })
            .collect();
        ring
    }

    /// The partition of a name: a hash in the middle of the range, 2^63, is in partition 512 of
    /// 1024.
    pub fn partition(&self, name: &FileName) -> u16 {
        let place = hash(b"name", &[name.as_str().as_bytes()]);
        ((u128::from(place) * self.replicas.len() as u128) >> 64) as u16
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.replicas.len() as u16
    }

    /// The nodes that keep the records of a partition, the leader first: with replication 3, the 5
    /// members that follow its position.
    pub fn replicas(&self, partition: u16) -> &[NodeId] {
        &self.replicas[usize::from(partition)]
    }

    /// The leader of a name.
    pub fn leader(&self, name: &FileName) -> NodeId {
        self.replicas(self.partition(name))[0]
    }

    /// All members, in the order in which they follow the position of `object`.
    pub fn from(&self, object: ObjectId) -> impl Iterator<Item = NodeId> + '_ {
        self.successors(hash(b"object", &[&object.0]))
    }

    /// All members, each once, in the order in which they follow this position. With the points 10
    /// of node a, 20 of b, 30 of a and 40 of c, position 15 is followed by b, a, c, and position 45
    /// by a, b, c.
    fn successors(&self, place: u64) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.points.partition_point(|(point, _)| *point < place);
        let (before, after) = self.points.split_at(first);
        let mut seen = Vec::new();
        let is_new = move |node: &NodeId| {
            let is_new = !seen.contains(node);
            if is_new {
                seen.push(*node);
            }
            is_new
        };
        after.iter().chain(before).map(|(_, node)| *node).filter(is_new).take(self.members)
    }
}

fn points_of(node: NodeId) -> Vec<u64> {
    (0..POINTS)
        .map(|point| hash(b"point", &[&node.0.to_le_bytes(), &point.to_le_bytes()]))
        .collect()
}

/// A position on the ring: the first 64 bits of the BLAKE3 hash of a kind and its parts.
fn hash(of: &[u8], parts: &[&[u8]]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(of);
    for part in parts {
        hasher.update(part);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::FileSystemId;

    use super::*;

    const SYSTEM: FileSystemId = FileSystemId(1);

    fn ring(nodes: impl Iterator<Item = u64>) -> Ring {
        let view = View::founded_by(SYSTEM, NodeId(0), crate::view::DEFAULT_PARTITIONS, 3);
        Ring::new(&View {
            members: nodes.map(|node| NodeId(node.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect(),
            ..view
        })
    }

    #[test]
    fn places_are_fixed_for_ever() {
        let ring = ring(0..8);
        let name = |text: &str| ring.partition(&text.parse().unwrap());
        assert_eq!([name("/a"), name("/a/b"), name("/data/sky.csv")], [870, 699, 660]);
        let first = ring.replicas(0).iter().map(|node| node.0 >> 48).collect::<Vec<_>>();
        assert_eq!(first, [46412, 30941, 15470, 5909, 55974]);
    }

    #[test]
    fn shares_are_nearly_even() {
        let mut worst = 0.0;
        for seed in 0..50 {
            let ring = ring(8 * seed..8 * seed + 8);
            let mut led = BTreeMap::<NodeId, u32>::new();
            for partition in 0..ring.partitions() {
                let replicas = ring.replicas(partition);
                *led.entry(replicas[0]).or_default() += 1;
                assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 5, "each once");
            }
            worst += f64::from(*led.values().max().unwrap()) / (1024.0 / 8.0) / 50.0;
        }
        assert!((1.0..1.22).contains(&worst), "the largest share is {worst} of the mean one");
    }

    #[test]
    fn little_moves_when_a_node_comes() {
        let (before, after) = (ring(0..8), ring(0..9));
        let new = NodeId(8_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let moved =
            (0..before.partitions()).filter(|of| before.replicas(*of)[0] != after.replicas(*of)[0]);
        let moved: Vec<u16> = moved.collect();
        assert!(moved.iter().all(|of| after.replicas(*of)[0] == new), "only to the new node");
        assert!((60..180).contains(&moved.len()), "{} of 1024 moved", moved.len());
    }
}
