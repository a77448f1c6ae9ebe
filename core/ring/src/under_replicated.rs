//! The repairs that a leader has in progress: which replicas are missing, which are being made, and
//! which node fetches next.
//!
//! Fetches are assigned late: a node is asked for a few chunks ahead, and for another one when it
//! has fetched one. Leaders know neither each other's demands nor the other load of the links. With
//! late assignment, a slow node gets less work, and all nodes finish at about the same time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::record::RecordVersion;

/// Maximum number of replicas that a leader has in progress or plans to make.
pub const MAX_REPAIRS: usize = 256;

/// The repairs of a leader.
#[derive(Default)]
pub(crate) struct Repairs {
    pub files: BTreeMap<FileName, Repair>,
    /// Nodes that could not fetch, with the time until which they are not asked again.
    pub avoided: BTreeMap<NodeId, u64>,
}

/// The repair of a file.
pub(crate) struct Repair {
    /// The version of the file's record.
    pub version: RecordVersion,
    /// Chunks with too few replicas, for which fetches are not assigned yet.
    pub under_replicated: BTreeMap<ObjectId, UnderReplicated>,
    /// Fetches in progress: chunk and target node. The replicas of the chunk are the nodes that
    /// have it, the source first.
    pub awaited: BTreeMap<(ObjectId, NodeId), Chunk>,
    /// New replicas that are not in the record yet.
    pub fetched: BTreeSet<(ObjectId, NodeId)>,
    /// The time when the nodes were asked.
    pub asked_us: u64,
    /// The time when the fetches are given up.
    pub until_us: u64,
}

pub(crate) struct UnderReplicated {
    /// The chunk; its replicas are the nodes that have it.
    pub chunk: Chunk,
    /// Number of replicas to make.
    pub count: usize,
    /// Nodes that may fetch the chunk.
    pub candidates: Vec<NodeId>,
}

/// The fetches that nodes have to do for this leader.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Loads(BTreeMap<NodeId, Load>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    fetches: usize,
    receives_bytes: u64,
    sends_bytes: u64,
}

/// A fetch: the chunk, the node that fetches it, and the node it is fetched from.
pub(crate) struct PlannedFetch {
    pub name: FileName,
    pub object: ObjectId,
    pub target: NodeId,
    pub source: NodeId,
}

impl Repair {
    pub fn new(version: RecordVersion, asked_us: u64, until_us: u64) -> Self {
        let (under_replicated, awaited, fetched) = Default::default();
        Repair { version, under_replicated, awaited, fetched, asked_us, until_us }
    }

    /// Whether a node is fetching a chunk, or has just fetched it.
    pub fn is_fetching(&self, object: ObjectId, node: NodeId) -> bool {
        self.awaited.contains_key(&(object, node)) || self.fetched.contains(&(object, node))
    }

    /// Number of replicas of a chunk that are planned, in progress, or made and not in the record
    /// yet.
    pub fn expected(&self, object: ObjectId) -> usize {
        let all = (object, NodeId(u64::MIN))..=(object, NodeId(u64::MAX));
        let under_replicated =
            self.under_replicated.get(&object).map_or(0, |under_replicated| under_replicated.count);
        under_replicated + self.awaited.range(all.clone()).count() + self.fetched.range(all).count()
    }

    pub fn in_progress(&self) -> usize {
        self.awaited.len()
            + self
                .under_replicated
                .values()
                .map(|under_replicated| under_replicated.count)
                .sum::<usize>()
    }
}

impl Repairs {
    /// A view has begun. Chunks are checked again against the new members, and fetches of nodes
    /// that are not members are dropped.
    pub fn enter_view(&mut self, members: &BTreeSet<NodeId>) {
        for repair in self.files.values_mut() {
            repair.under_replicated.clear();
            repair.awaited.retain(|(_, node), _| members.contains(node));
        }
        self.files.retain(|_, repair| repair.in_progress() > 0 || !repair.fetched.is_empty());
    }

    /// Gives up what has taken too long. Returns the files of which no replica is in progress or
    /// planned any longer.
    pub fn give_up(&mut self, now_us: u64) -> Vec<FileName> {
        self.avoided.retain(|_, until_us| now_us < *until_us);
        for repair in self.files.values_mut().filter(|repair| now_us >= repair.until_us) {
            repair.under_replicated.clear();
            repair.awaited.clear();
        }
        self.files
            .iter()
            .filter(|(_, repair)| repair.in_progress() == 0)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Fetches that were not answered within `resend_us`, to be asked for again.
    pub fn unanswered(&mut self, resend_us: u64, now_us: u64) -> Vec<(NodeId, FileName, Chunk)> {
        let mut asked = Vec::new();
        for (name, repair) in &mut self.files {
            if now_us >= repair.asked_us + resend_us {
                repair.asked_us = now_us;
                let of_file = repair.awaited.iter();
                asked
                    .extend(of_file.map(|((_, node), chunk)| (*node, name.clone(), chunk.clone())));
            }
        }
        asked
    }

    /// Number of replicas that are in progress or planned.
    pub fn in_progress(&self) -> usize {
        self.files.values().map(Repair::in_progress).sum()
    }

    /// The next fetch to assign: to the candidate with the fewest bytes to receive, which must have
    /// fewer than `ahead` fetches; among those, from the source with the fewest bytes to send. If
    /// nodes 1, 2 and 3 have 3, 1 and 2 MB to receive, and node 2 has `ahead` fetches already, it
    /// is node 3.
    pub fn next_fetch(&self, loads: &Loads, ahead: usize) -> Option<PlannedFetch> {
        let load = |node: &NodeId| loads.0.get(node).copied().unwrap_or_default();
        let under_replicated = self.files.iter().flat_map(|(name, repair)| {
            repair.under_replicated.iter().map(move |of| (name, repair, of))
        });
        let choices = under_replicated.filter_map(
            |(name, repair, (object, UnderReplicated { chunk, candidates, .. }))| {
                let may_take = |node: &&NodeId| {
                    let is_free = load(node).fetches < ahead && !self.avoided.contains_key(node);
                    is_free && !repair.is_fetching(*object, **node)
                };
                let target = candidates
                    .iter()
                    .filter(may_take)
                    .min_by_key(|node| load(node).receives_bytes)?;
                let source = chunk.replicas.iter().min_by_key(|node| load(node).sends_bytes)?;
                Some((
                    (load(target).receives_bytes, load(source).sends_bytes),
                    name,
                    *object,
                    *target,
                    *source,
                ))
            },
        );
        let (_, name, object, target, source) = choices.min_by_key(|(cost, ..)| *cost)?;
        Some(PlannedFetch { name: name.clone(), object, target, source })
    }

    /// Marks a planned fetch as in progress. Returns the chunk with the source as its first
    /// replica.
    pub fn start_fetch(
        &mut self,
        PlannedFetch { name, object, target, source }: &PlannedFetch,
        loads: &mut Loads,
    ) -> Chunk {
        let repair = self.files.get_mut(name).expect("the fetch was planned from this entry");
        let under_replicated =
            repair.under_replicated.get_mut(object).expect("the fetch was planned from this entry");
        let mut chunk = under_replicated.chunk.clone();
        chunk.replicas.sort_by_key(|node| node != source);
        under_replicated.count -= 1;
        if under_replicated.count == 0 {
            repair.under_replicated.remove(object);
        }
        loads.add(*target, &chunk);
        repair.awaited.insert((*object, *target), chunk.clone());
        chunk
    }

    pub fn validate(&self) {
        assert!(self.in_progress() <= MAX_REPAIRS);
        for repair in self.files.values() {
            assert!(
                repair.in_progress() > 0 || !repair.fetched.is_empty(),
                "a repair has nothing to do"
            );
            assert!(
                repair.under_replicated.values().all(|under_replicated| under_replicated.count > 0)
            );
        }
    }
}

impl Loads {
    pub fn of(repairs: &Repairs) -> Self {
        let mut loads = Loads::default();
        let awaited = repairs.files.values().flat_map(|repair| &repair.awaited);
        awaited.for_each(|((_, target), chunk)| loads.add(*target, chunk));
        loads
    }

    /// Adds a fetch to the loads. The first replica of the chunk is the source.
    fn add(&mut self, target: NodeId, chunk: &Chunk) {
        let takes = self.0.entry(target).or_default();
        takes.fetches += 1;
        takes.receives_bytes += chunk.size_bytes;
        self.0.entry(chunk.replicas[0]).or_default().sends_bytes += chunk.size_bytes;
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::FileSystemId;

    use super::*;
    use crate::placement::replica_targets;
    use crate::record::Round;
    use crate::ring::Ring;
    use crate::view::View;

    fn name(number: usize) -> FileName {
        alloc::format!("/{number}").parse().unwrap()
    }

    /// Repairs after the loss of a node that had 24 chunks in each of `files` files.
    fn after_a_loss(files: usize) -> Repairs {
        let members: BTreeSet<NodeId> = (1..8).map(NodeId).collect();
        let ring =
            Ring::new(&View { members, ..View::founded_by(FileSystemId(1), NodeId(1), 8, 3) });
        let mut repairs = Repairs::default();
        for file in 0..files {
            let version = RecordVersion { round: Round::default(), sequence: 1 };
            let mut repair = Repair::new(version, 0, 0);
            for number in 0..24 {
                let object = ObjectId([file as u8 * 24 + number; 16]);
                let replicas = replica_targets(&ring, object, 2, None, |_| true);
                let candidates =
                    replica_targets(&ring, object, 8, None, |node| !replicas.contains(&node));
                let chunk =
                    Chunk { object, size_bytes: 1 + u64::from(number % 3), checksum: 0, replicas };
                repair
                    .under_replicated
                    .insert(object, UnderReplicated { chunk, count: 1, candidates });
            }
            repairs.files.insert(name(file), repair);
        }
        repairs
    }

    #[test]
    fn repairs_are_spread_evenly_over_all_nodes() {
        let mut repairs = after_a_loss(8);
        let mut loads = Loads::default();
        while let Some(choice) = repairs.next_fetch(&loads, usize::MAX) {
            let chunk = repairs.start_fetch(&choice, &mut loads);
            assert!(chunk.replicas[0] == choice.source && !chunk.replicas.contains(&choice.target));
        }
        assert!(Loads::of(&repairs) == loads && repairs.in_progress() == 192);
        // 384 bytes in total, 55 for each of the seven nodes.
        let is_even = |bytes: u64| (50..=60).contains(&bytes);
        assert!(
            loads.0.values().all(|load| is_even(load.receives_bytes) && is_even(load.sends_bytes)),
            "{loads:?}"
        );
    }

    #[test]
    fn a_node_that_cannot_take_more_is_passed_over() {
        let mut repairs = after_a_loss(1);
        repairs.avoided.insert(NodeId(3), 1);
        let mut loads = Loads::default();
        while let Some(choice) = repairs.next_fetch(&loads, 2) {
            repairs.start_fetch(&choice, &mut loads);
        }
        let fetches = loads.0.into_iter().map(|(node, load)| (node.0, load.fetches));
        assert_eq!(
            fetches.collect::<Vec<_>>(),
            [(1, 2), (2, 2), (3, 0), (4, 2), (5, 2), (6, 2), (7, 2)]
        );
        assert_eq!(repairs.in_progress(), 24);
    }
}
