//! Where the replicas of a chunk go.

use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::NodeId;

use crate::ring::Ring;

/// The nodes that are to have a new chunk: its writer's own, if it is one, so that a replica costs no network; then
/// from the chunk's place of the ring on. Fewer than `replication`, if no more have room.
pub fn place(
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
