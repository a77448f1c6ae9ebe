//! The placement of the replicas of a chunk.

use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::NodeId;

use crate::ring::Ring;

/// The nodes that should store a new chunk: first the node of the writer, if it is a member,
/// because this replica needs no network; then the nodes that follow the chunk's position on the
/// ring. Fewer than `replication` nodes if no more have space. If the nodes d, a, b and c follow
/// the position and the writer is on c, the replicas of a chunk with replication 3 are on c, d and
/// a, or, if d is full, on c, a and b.
pub fn replica_targets(
    ring: &Ring,
    object: ObjectId,
    replication: u8,
    writer: Option<NodeId>,
    mut has_room: impl FnMut(NodeId) -> bool,
) -> Vec<NodeId> {
    let own = ring.from(object).filter(|node| Some(*node) == writer);
    let others = ring.from(object).filter(|node| Some(*node) != writer);
    own.chain(others).filter(|node| has_room(*node)).take(replication.into()).collect()
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::FileSystemId;

    use super::*;
    use crate::view::View;

    const SYSTEM: FileSystemId = FileSystemId(1);

    #[test]
    fn the_writers_own_node_is_first_and_full_nodes_are_skipped() {
        let view = View {
            members: (1..6).map(NodeId).collect(),
            ..View::founded_by(SYSTEM, NodeId(1), 8, 3)
        };
        let ring = Ring::new(&view);
        let object = ObjectId([7; 16]);
        let all: Vec<NodeId> = ring.from(object).collect();
        let place = |replication, writer, full: &[NodeId]| {
            replica_targets(&ring, object, replication, writer, |node| !full.contains(&node))
        };
        assert_eq!(all.len(), 5);
        assert_eq!(place(3, None, &[]), all[..3]);
        assert_eq!(place(3, Some(all[4]), &[]), [all[4], all[0], all[1]]);
        assert_eq!(place(3, Some(all[4]), &[all[4], all[0]]), all[1..4]);
        assert_eq!(
            place(3, Some(NodeId(9)), &all[..3]),
            all[3..],
            "only members get replicas, as many as there are"
        );
    }
}
