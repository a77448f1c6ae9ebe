//! What a leader has repaired: which replicas are made, which are to be, and who makes the next.
//!
//! That is decided late: a node is asked for a few chunks ahead, and for another when it has one. Leaders do not know of each
//! other's wants, nor what else links carry; so who is slower gets less to do, and all have done at about the same time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::record::RecordVersion;

/// A leader has so many replicas in hand that are made, or are to be.
pub const MAX_REPAIRS: usize = 256;

/// What this node has repaired as a leader.
#[derive(Default)]
pub(crate) struct Repairs {
    pub files: BTreeMap<FileName, Repair>,
    /// Nodes that could not fetch, and until when they are not asked.
    pub avoided: BTreeMap<NodeId, u64>,
    /// The next to be looked at.
    pub cursor: (u16, String),
    /// Names were passed over that something is being done to.
    pub has_passed: bool,
    /// All was looked at; again from then on.
    pub rest_until_us: u64,
}

/// Of a file.
pub(crate) struct Repair {
    /// Of its record.
    pub version: RecordVersion,
    /// Chunks that further nodes are to fetch.
    pub under_replicated: BTreeMap<ObjectId, UnderReplicated>,
    /// Chunks that are being fetched, and who fetches them; their replicas are who has them, and who is to give them is first.
    pub awaited: BTreeMap<(ObjectId, NodeId), Chunk>,
    /// What is not written yet.
    pub fetched: BTreeSet<(ObjectId, NodeId)>,
    /// When they were asked.
    pub asked_us: u64,
    /// When it is given up to wait.
    pub until_us: u64,
}

pub(crate) struct UnderReplicated {
    /// Its replicas are who has it.
    pub chunk: Chunk,
    /// How many are to fetch it.
    pub count: usize,
    /// Who may.
    pub candidates: Vec<NodeId>,
}

/// What nodes have to do for this leader.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Loads(BTreeMap<NodeId, Load>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    fetches: usize,
    receives_bytes: u64,
    sends_bytes: u64,
}

/// Who is to fetch a chunk of a file, and from whom.
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

    /// Whether a node fetches a chunk, or just did.
    pub fn is_fetching(&self, object: ObjectId, node: NodeId) -> bool {
        self.awaited.contains_key(&(object, node)) || self.fetched.contains(&(object, node))
    }

    /// How many have a chunk that its record does not tell of, or will.
    pub fn expected(&self, object: ObjectId) -> usize {
        let all = (object, NodeId(u64::MIN))..=(object, NodeId(u64::MAX));
        let under_replicated = self.under_replicated.get(&object).map_or(0, |under_replicated| under_replicated.count);
        under_replicated + self.awaited.range(all.clone()).count() + self.fetched.range(all).count()
    }

    pub fn in_progress(&self) -> usize {
        self.awaited.len()
            + self.under_replicated.values().map(|under_replicated| under_replicated.count).sum::<usize>()
    }
}

impl Repairs {
    /// A view has begun: what was enough may be so no more, and who is no member is not waited for.
    pub fn enter_view(&mut self, members: &BTreeSet<NodeId>) {
        (self.cursor, self.has_passed, self.rest_until_us) = Default::default();
        for repair in self.files.values_mut() {
            repair.under_replicated.clear();
            repair.awaited.retain(|(_, node), _| members.contains(node));
        }
        self.files.retain(|_, repair| repair.in_progress() > 0 || !repair.fetched.is_empty());
    }

    /// How many replicas are made, or are to be.
    pub fn in_progress(&self) -> usize {
        self.files.values().map(Repair::in_progress).sum()
    }

    /// Of all that is lacking: what can be taken by who has least to take, of no more than so many chunks, and of that, what is with
    /// who has least to give.
    pub fn next_fetch(&self, loads: &Loads, ahead: usize) -> Option<PlannedFetch> {
        let load = |node: &NodeId| loads.0.get(node).copied().unwrap_or_default();
        let under_replicated = self
            .files
            .iter()
            .flat_map(|(name, repair)| repair.under_replicated.iter().map(move |of| (name, repair, of)));
        let choices =
            under_replicated.filter_map(|(name, repair, (object, UnderReplicated { chunk, candidates, .. }))| {
                let may_take = |node: &&NodeId| {
                    let is_free = load(node).fetches < ahead && !self.avoided.contains_key(node);
                    is_free && !repair.is_fetching(*object, **node)
                };
                let target = candidates.iter().filter(may_take).min_by_key(|node| load(node).receives_bytes)?;
                let source = chunk.replicas.iter().min_by_key(|node| load(node).sends_bytes)?;
                Some(((load(target).receives_bytes, load(source).sends_bytes), name, *object, *target, *source))
            });
        let (_, name, object, target, source) = choices.min_by_key(|(cost, ..)| *cost)?;
        Some(PlannedFetch { name: name.clone(), object, target, source })
    }

    /// What was chosen is awaited; the chunk, with who is to give it first.
    pub fn start_fetch(
        &mut self,
        PlannedFetch { name, object, target, source }: &PlannedFetch,
        loads: &mut Loads,
    ) -> Chunk {
        let repair = self.files.get_mut(name).expect("it was chosen there");
        let under_replicated = repair.under_replicated.get_mut(object).expect("it was chosen there");
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
            assert!(repair.in_progress() > 0 || !repair.fetched.is_empty(), "a repair waits for nothing");
            assert!(repair.under_replicated.values().all(|under_replicated| under_replicated.count > 0));
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

    /// Who is to give a chunk is its first replica.
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

    /// What a lost node had of 24 chunks in each of these many files is lacking.
    fn after_a_loss(files: usize) -> Repairs {
        let members: BTreeSet<NodeId> = (1..8).map(NodeId).collect();
        let ring = Ring::new(&View { members, ..View::founded_by(FileSystemId(1), NodeId(1), 8, 3) });
        let mut repairs = Repairs::default();
        for file in 0..files {
            let version = RecordVersion { round: Round::default(), sequence: 1 };
            let mut repair = Repair::new(version, 0, 0);
            for number in 0..24 {
                let object = ObjectId([file as u8 * 24 + number; 16]);
                let replicas = replica_targets(&ring, object, 2, None, |_| true);
                let candidates = replica_targets(&ring, object, 8, None, |node| !replicas.contains(&node));
                let chunk = Chunk { object, size_bytes: 1 + u64::from(number % 3), checksum: 0, replicas };
                repair.under_replicated.insert(object, UnderReplicated { chunk, count: 1, candidates });
            }
            repairs.files.insert(name(file), repair);
        }
        repairs
    }

    #[test]
    fn all_take_and_give_as_much_as_others() {
        let mut repairs = after_a_loss(8);
        let mut loads = Loads::default();
        while let Some(choice) = repairs.next_fetch(&loads, usize::MAX) {
            let chunk = repairs.start_fetch(&choice, &mut loads);
            assert!(chunk.replicas[0] == choice.source && !chunk.replicas.contains(&choice.target));
        }
        assert!(Loads::of(&repairs) == loads && repairs.in_progress() == 192);
        // 384 bytes in all, 55 for each of the seven.
        let is_even = |bytes: u64| (50..=60).contains(&bytes);
        assert!(loads.0.values().all(|load| is_even(load.receives_bytes) && is_even(load.sends_bytes)), "{loads:?}");
    }

    #[test]
    fn who_cannot_take_more_is_passed_over() {
        let mut repairs = after_a_loss(1);
        repairs.avoided.insert(NodeId(3), 1);
        let mut loads = Loads::default();
        while let Some(choice) = repairs.next_fetch(&loads, 2) {
            repairs.start_fetch(&choice, &mut loads);
        }
        let fetches = loads.0.into_iter().map(|(node, load)| (node.0, load.fetches));
        assert_eq!(fetches.collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 0), (4, 2), (5, 2), (6, 2), (7, 2)]);
        assert_eq!(repairs.in_progress(), 24);
    }
}
