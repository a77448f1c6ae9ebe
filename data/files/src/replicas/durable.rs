//! Forcing the chunks of a file to the disks of their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, NodeId};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calls::Calls;
use crate::error::{FilesError, unexpected};
use crate::outgoing::silent;
use crate::protocol::{Member, RequestBody, ResponseBody, StoreFailure};
use crate::replicas::{Replicas, enough_replicas, not_stored};

/// Time for a node to force the chunks of a file to its disk.
const SYNC_DEADLINE: Duration = Duration::from_secs(120);

impl Replicas {
    /// Forces chunks to the disks of their nodes.
    pub async fn sync_chunks(&self, replication: u8, chunks: &[&Chunk]) -> Result<(), FilesError> {
        let chunks: Vec<&Chunk> = chunks.iter().copied().filter(|chunk| !chunk.is_hole()).collect();
        if chunks.is_empty() {
            return Ok(());
        }
        let mut by_node = BTreeMap::<NodeId, Vec<ObjectId>>::new();
        for chunk in &chunks {
            chunk
                .replicas
                .iter()
                .for_each(|node| by_node.entry(*node).or_default().push(chunk.object));
        }
        let (known, mut syncing) = (self.routes.known(), JoinSet::new());
        for (node, objects) in by_node {
            let (calls, member) = (self.routes.calls.clone(), known.members.get(&node).copied());
            syncing.spawn(async move {
                match member {
                    Some(member) => (node, sync_on(&calls, &member, objects).await),
                    None => (
                        node,
                        Err(FilesError::unreachable(format!("node {node} is not reachable"))),
                    ),
                }
            });
        }
        let (mut durable, mut why) = (BTreeSet::new(), None);
        while let Some(synced) = syncing.join_next().await {
            match synced.unwrap_or_else(eyas_panics::resume) {
                (node, Ok(())) => drop(durable.insert(node)),
                (_, Err(error)) => why = Some(error),
            }
        }
        let enough = enough_replicas(replication, known.size());
        let count =
            |chunk: &Chunk| chunk.replicas.iter().filter(|node| durable.contains(node)).count();
        match why.filter(|_| chunks.iter().any(|chunk| count(chunk) < enough)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Forces chunks to the disk of a node.
async fn sync_on(calls: &Calls, member: &Member, objects: Vec<ObjectId>) -> Result<(), FilesError> {
    let synced =
        async { calls.ask(member.address, RequestBody::Sync { objects }).await?.next().await };
    match timeout(SYNC_DEADLINE, synced).await.unwrap_or_else(|_| Err(silent(member)))? {
        ResponseBody::Synced { failure: None } => Ok(()),
        ResponseBody::Synced { failure: Some(why) } => {
            Err(not_stored(member, StoreFailure::Failed(why)))
        }
        _ => Err(unexpected()),
    }
}
