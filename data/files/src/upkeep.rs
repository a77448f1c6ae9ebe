//! Verification of a file's replicas, and restoring lost chunks from a copy of the file.

mod balance;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use eyas_store::Checksum;
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, NodeId};
use tokio::time::timeout;

use crate::calls::ANSWER_DEADLINE;
use crate::error::FilesError;
use crate::file::File;
use crate::names::Names;
use crate::outgoing::OutgoingChunk;
use crate::protocol::{ChunkPresence, RequestBody, ResponseBody};
use crate::publish::Publisher;
use crate::replicas::Replicas;
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::routes::Routes;

/// Maximum number of chunks in one question to a node.
const CHECK_TOGETHER: usize = 1024;

/// Time for a node to read each chunk that it was asked about.
const CHECK_DEADLINE: Duration = Duration::from_secs(2);

/// The state of a file's replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Replicas that are missing or damaged, of chunks that have another good replica: index of
    /// the chunk, and node. They were reported to the leader, which has them replaced.
    pub bad: Vec<(usize, NodeId)>,
    /// Replicas on nodes that do not answer.
    pub silent: Vec<(usize, NodeId)>,
    /// Chunks without a good replica on any member.
    pub lost: Vec<LostChunk>,
}

/// A chunk without a good replica on any node that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostChunk {
    /// Index of the chunk in the file.
    pub index: usize,
    /// Range of its bytes in the file.
    pub range: Range<u64>,
    /// Nodes that keep a damaged copy.
    pub damaged_on: Vec<NodeId>,
    /// Nodes that should have the chunk and do not answer. They may have a good replica.
    pub silent: Vec<NodeId>,
}

impl VerifyReport {
    /// Whether all replicas are good.
    pub fn is_good(&self) -> bool {
        self.bad.is_empty() && self.silent.is_empty() && self.lost.is_empty()
    }
}

/// Finds, restores and moves replicas of files.
pub(crate) struct Upkeep {
    pub routes: Arc<Routes>,
    pub names: Arc<Names>,
    pub replicas: Arc<Replicas>,
    publisher: Arc<Publisher>,
}

impl Upkeep {
    pub fn new(names: Arc<Names>, replicas: Arc<Replicas>, publisher: Arc<Publisher>) -> Self {
        Upkeep { routes: replicas.routes.clone(), names, replicas, publisher }
    }

    /// Checks the replicas of a file, and has the nodes read them if `thoroughly` is set. If none
    /// of a chunk's nodes has it, all other nodes are asked. Missing and damaged replicas are
    /// reported to the leader.
    pub async fn verify(&self, file: &File, thoroughly: bool) -> Result<VerifyReport, FilesError> {
        let mut by_node = BTreeMap::<NodeId, Vec<usize>>::new();
        for (index, chunk) in file.record.chunks.iter().enumerate() {
            chunk.replicas.iter().for_each(|node| by_node.entry(*node).or_default().push(index));
        }
        let holes = file.record.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_hole());
        let mut found = ReplicaFindings {
            whole: holes.map(|(index, _)| index).collect(),
            ..ReplicaFindings::default()
        };
        for (node, indices) in by_node {
            let denied = self.look_for(file, node, &indices, thoroughly, &mut found).await;
            if !denied.is_empty() {
                let objects =
                    denied.iter().map(|index| file.record.chunks[*index].object).collect();
                self.names.tell_bad(&file.name, objects, node).await;
            }
        }
        let is_missed = |index: &usize| !found.whole.contains(index);
        let missed: Vec<usize> = (0..file.record.chunks.len()).filter(is_missed).collect();
        let mut elsewhere = ReplicaFindings::default();
        if !missed.is_empty() {
            for node in self.routes.known().members.keys() {
                // The nodes of the chunk have been asked before.
                let is_other = |index: &usize| !file.record.chunks[*index].replicas.contains(node);
                let indices: Vec<usize> = missed.iter().copied().filter(is_other).collect();
                self.look_for(file, *node, &indices, thoroughly, &mut elsewhere).await;
            }
        }
        let (mut lost, mut end) = (Vec::new(), 0);
        for (index, chunk) in file.record.chunks.iter().enumerate() {
            let range = end..end + chunk.size_bytes;
            end = range.end;
            if missed.contains(&index) && !elsewhere.whole.contains(&index) {
                let of = |pairs: &BTreeSet<(usize, NodeId)>| {
                    pairs
                        .iter()
                        .filter(|(of, _)| *of == index)
                        .map(|(_, node)| *node)
                        .collect::<Vec<_>>()
                };
                let damaged_on = [of(&found.damaged), of(&elsewhere.damaged)].concat();
                lost.push(LostChunk { index, range, damaged_on, silent: of(&found.silent) });
            }
        }
        let is_lost = |index: usize| lost.iter().any(|lost| lost.index == index);
        let but_lost = |pairs: BTreeSet<(usize, NodeId)>| {
            pairs.into_iter().filter(|(index, _)| !is_lost(*index)).collect::<Vec<_>>()
        };
        Ok(VerifyReport { bad: but_lost(found.denied), silent: but_lost(found.silent), lost })
    }

    /// Restores the lost chunks of a file from a `copy` of it. Returns their number.
    pub async fn restore(
        &self,
        name: &FileName,
        mut copy: impl Read + Seek,
    ) -> Result<usize, FilesError> {
        let file = self.names.stat(name).await?;
        let lost = self.verify(&file, true).await?.lost;
        let mut record = file.record.clone();
        for LostChunk { index, range, .. } in &lost {
            if Checksum::of(&part_of(&mut copy, range.clone())?).0 != record.chunks[*index].checksum
            {
                let (first, last) = (range.start, range.end.saturating_sub(1));
                let why = format!(
                    "bytes {first} to {last} of the copy differ from {name}: nothing was changed"
                );
                return Err(FilesError::invalid(why));
            }
        }
        if lost.is_empty() {
            return Ok(0);
        }
        // The objects are those that were lost, so that nodes forget damaged copies of them. If the
        // file is another one by now, they stay for a day: another client may have restored them.
        for LostChunk { index, range, .. } in &lost {
            let chunk = OutgoingChunk::of(record.id, part_of(&mut copy, range.clone())?, true);
            record.chunks[*index] = self.replicas.store(chunk, record.replication).await?;
        }
        let restored: Vec<_> = lost.iter().map(|lost| &record.chunks[lost.index]).collect();
        self.replicas.sync_chunks(record.replication, &restored).await?;
        self.publisher.replace(file, record, UnclaimedChunks::new(&self.replicas)).await?;
        Ok(lost.len())
    }

    /// Asks a node for chunks of a file. Returns those that it does not have.
    async fn look_for(
        &self,
        file: &File,
        node: NodeId,
        indices: &[usize],
        thoroughly: bool,
        found: &mut ReplicaFindings,
    ) -> Vec<usize> {
        let mut denied = Vec::new();
        for indices in indices.chunks(CHECK_TOGETHER) {
            let objects = indices.iter().map(|index| file.record.chunks[*index].object).collect();
            let Some(held) = self.held(node, objects, thoroughly).await else {
                found.silent.extend(indices.iter().map(|index| (*index, node)));
                continue;
            };
            for (index, held) in indices.iter().copied().zip(held) {
                if held == ChunkPresence::Whole {
                    found.whole.insert(index);
                    continue;
                }
                denied.push(index);
                found.denied.insert((index, node));
                if held == ChunkPresence::Damaged {
                    found.damaged.insert((index, node));
                }
            }
        }
        denied
    }

    /// What a node has of these chunks; `None` if it does not answer.
    async fn held(
        &self,
        node: NodeId,
        objects: Vec<ObjectId>,
        thoroughly: bool,
    ) -> Option<Vec<ChunkPresence>> {
        let (member, count) = (self.routes.known().members.get(&node).copied()?, objects.len());
        let patience = ANSWER_DEADLINE + CHECK_DEADLINE * count as u32;
        let held = async {
            let mut replies = self
                .routes
                .calls
                .ask(member.address, RequestBody::Check { objects, thoroughly })
                .await?;
            replies.next().await
        };
        match timeout(patience, held).await {
            Ok(Ok(ResponseBody::Has(held))) if held.len() == count => Some(held),
            _ => None,
        }
    }
}

/// The answers of nodes about a file's chunks, by index.
#[derive(Default)]
struct ReplicaFindings {
    whole: BTreeSet<usize>,
    denied: BTreeSet<(usize, NodeId)>,
    damaged: BTreeSet<(usize, NodeId)>,
    silent: BTreeSet<(usize, NodeId)>,
}

/// Reads a range of a copy; fewer bytes if the copy is shorter.
fn part_of(copy: &mut (impl Read + Seek), range: Range<u64>) -> Result<Vec<u8>, FilesError> {
    let failed = |error: std::io::Error| FilesError::local("cannot read the copy", &error);
    copy.seek(SeekFrom::Start(range.start)).map_err(failed)?;
    let mut part = Vec::new();
    copy.take(range.end - range.start).read_to_end(&mut part).map_err(failed)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn parts_of_a_copy_are_as_long_as_it_is() {
        let mut copy = Cursor::new(b"0123456789".to_vec());
        for (range, expected) in [(2..5, "234"), (0..10, "0123456789"), (8..12, "89"), (20..22, "")]
        {
            assert_eq!(part_of(&mut copy, range).unwrap(), expected.as_bytes());
        }
    }
}
