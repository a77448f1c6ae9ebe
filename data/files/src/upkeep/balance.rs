//! Rebalancing: moves the chunks of a file to the nodes that would store them if the file were
//! written now, for example to nodes that have joined since.

use std::sync::Arc;

use eyas_ring::{FileOperation, replica_targets};
use eyas_types::dfs::{Chunk, NodeId};

use crate::error::FilesError;
use crate::file::File;
use crate::outgoing::OutgoingChunk;
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::upkeep::Upkeep;

impl Upkeep {
    /// Moves replicas of a file to the nodes where they now belong. Returns the number of replicas
    /// that were moved. Readers are not disturbed: the old replica is deleted only when the new one
    /// is stored.
    pub async fn rebalance(&self, file: &File) -> Result<u64, FilesError> {
        let (mut record, mut moved, mut changed) = (file.record.clone(), 0, Vec::new());
        let mut unclaimed = UnclaimedChunks::new(&self.replicas);
        for chunk in &mut record.chunks {
            let replicas = self.rebalanced(chunk, record.replication, &mut unclaimed).await;
            let new = replicas.iter().filter(|node| !chunk.replicas.contains(node)).count() as u64;
            moved += new;
            chunk.replicas = replicas;
            if new > 0 {
                changed.push(&*chunk);
            }
        }
        if moved > 0 {
            // The old replicas are on disks, and are deleted when the record names others.
            self.replicas.sync_chunks(record.replication, &changed).await?;
            let (name, version) = (file.name.clone(), file.version);
            unclaimed.give(&self.names, FileOperation::Replace { name, version, record }).await?;
        }
        Ok(moved)
    }

    /// The nodes of a chunk after rebalancing: the nodes where it belongs and that have stored it
    /// by now, filled up with its former nodes.
    async fn rebalanced(
        &self,
        chunk: &Chunk,
        replication: u8,
        unclaimed: &mut UnclaimedChunks,
    ) -> Vec<NodeId> {
        let known = self.routes.known();
        let has = |node: &NodeId| chunk.replicas.contains(node);
        let has_room = |node: NodeId| {
            let member = known.members.get(&node);
            member.is_some_and(|member| has(&node) || member.free_bytes >= chunk.size_bytes)
        };
        let wanted = replica_targets(&known.ring, chunk.object, replication, None, has_room);
        let further: Vec<_> = wanted
            .iter()
            .filter(|node| !has(node))
            .filter_map(|node| known.members.get(node))
            .collect();
        let source = chunk.replicas.iter().find_map(|node| known.members.get(node));
        let (Some(source), false) = (source, further.is_empty()) else {
            return chunk.replicas.clone();
        };
        let Chunk { object, size_bytes, checksum, .. } = *chunk;
        let moving = OutgoingChunk {
            object,
            size_bytes,
            checksum,
            is_durable: false,
            content: Arc::default(),
        };
        further.iter().for_each(|member| unclaimed.add_replica(object, member.node));
        let stored = self.replicas.chain(&moving, Some(source), &further).await;
        let stored: Vec<_> = stored
            .iter()
            .filter(|(_, stored)| stored.is_ok())
            .map(|(member, _)| member.node)
            .collect();
        let is_there = |node: &NodeId| has(node) || stored.contains(node);
        let mut rest: Vec<_> =
            chunk.replicas.iter().filter(|node| !wanted.contains(node)).collect();
        rest.sort_by_key(|node| !known.members.contains_key(node));
        wanted
            .iter()
            .filter(|node| is_there(node))
            .chain(rest)
            .take(chunk.replicas.len().max(wanted.len()))
            .copied()
            .collect()
    }
}
