//! Chunks that this node fetches because their leaders ask it to.
//!
//! A node fetches a few chunks at a time, if possible each from another source, and otherwise in
//! the order of the requests. Fetching more at a time would not be faster: each single chunk, and
//! all other messages on the same links, would take longer.

use alloc::collections::{BTreeMap, BTreeSet};

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::event::Effect;
use crate::membership::RingMembership;
use crate::message::MessageBody;
use crate::step::Step;

/// Maximum number of chunks that wait to be fetched. Further requests are refused, and the leader
/// asks another node.
pub const MAX_FETCHES: usize = 128;
/// Number of chunks that are fetched at the same time. Fetches from nodes that have left the view
/// do not count, since they may fail only after a long time.
pub const FETCHES_TOGETHER: usize = 16;

/// The chunks that this node has to fetch.
#[derive(Default)]
pub(crate) struct ChunkFetches {
    wanted: BTreeMap<ObjectId, WantedChunk>,
    /// Number of chunks that were ever requested.
    count: u64,
}

struct WantedChunk {
    chunk: Chunk,
    /// The leaders that want the chunk, with the file that it belongs to.
    by: BTreeSet<(NodeId, FileName)>,
    /// Position in the order of all requests.
    number: u64,
    /// The node that the chunk is being fetched from.
    source: Option<NodeId>,
}

impl ChunkFetches {
    /// The chunk to fetch next and the node to fetch it from: the node that the fewest chunks are
    /// being fetched from. If 1 chunk is being fetched from node a and 3 from b, a chunk that only
    /// b has waits behind one that a has.
    fn next(&self, members: &BTreeSet<NodeId>) -> Option<(ObjectId, NodeId)> {
        let mut gives = BTreeMap::<NodeId, usize>::new();
        let givers = self.wanted.values().filter_map(|wanted| wanted.source);
        givers
            .filter(|source| members.contains(source))
            .for_each(|source| *gives.entry(source).or_default() += 1);
        if gives.values().sum::<usize>() >= FETCHES_TOGETHER {
            return None;
        }
        let cost =
            |node: &NodeId| (!members.contains(node), gives.get(node).copied().unwrap_or_default());
        let waiting = self.wanted.iter().filter(|(_, wanted)| wanted.source.is_none());
        let choices = waiting.filter_map(|(object, wanted)| {
            let source = wanted.chunk.replicas.iter().min_by_key(|node| cost(node))?;
            Some(((cost(source), wanted.number), *object, *source))
        });
        choices.min().map(|(_, object, source)| (object, source))
    }

    /// A leader asks this node to fetch a chunk.
    pub fn fetch_chunk(
        &mut self,
        here: &RingMembership,
        leader: NodeId,
        name: FileName,
        chunk: Chunk,
        step: &mut Step,
    ) {
        let object = chunk.object;
        let ChunkFetches { wanted, count } = self;
        let is_refused = wanted.len() >= MAX_FETCHES && !wanted.contains_key(&object)
            || chunk.replicas.is_empty();
        if is_refused {
            return here.send(
                leader,
                MessageBody::ChunkStatus { name, object, is_here: false },
                step,
            );
        }
        let wanted = wanted.entry(object).or_insert_with(|| {
            *count += 1;
            WantedChunk { chunk, by: BTreeSet::new(), number: *count, source: None }
        });
        wanted.by.insert((leader, name));
        self.start_fetches(here, step);
    }

    /// A chunk has been stored, or could not be fetched.
    pub fn fetched(
        &mut self,
        here: &RingMembership,
        object: ObjectId,
        is_here: bool,
        step: &mut Step,
    ) {
        let wanted_by = self.wanted.remove(&object).map(|wanted| wanted.by);
        for (leader, name) in wanted_by.into_iter().flatten() {
            here.send(leader, MessageBody::ChunkStatus { name, object, is_here }, step);
        }
        self.start_fetches(here, step);
    }

    fn start_fetches(&mut self, here: &RingMembership, step: &mut Step) {
        let Some(current) = &here.current else { return };
        while let Some((object, source)) = self.next(&current.view.members) {
            let wanted = self.wanted.get_mut(&object).expect("it waits");
            wanted.source = Some(source);
            let Chunk { size_bytes, checksum, replicas: mut from, .. } = wanted.chunk.clone();
            from.sort_by_key(|node| *node != source);
            step.push(Effect::Fetch { object, size_bytes, checksum, from });
        }
    }

    pub fn validate(&self) {
        assert!(self.wanted.len() <= MAX_FETCHES);
        assert!(
            self.wanted
                .values()
                .all(|wanted| !wanted.by.is_empty() && !wanted.chunk.replicas.is_empty())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_spread_over_the_sources_that_are_still_members() {
        let mut fetches = ChunkFetches::default();
        let members = [1, 2, 3].map(NodeId).into();
        for number in 0..60 {
            let replicas = [[1, 2], [2, 3], [3, 1]][usize::from(number) % 3].map(NodeId).to_vec();
            let chunk =
                Chunk { object: ObjectId([number; 16]), size_bytes: 1, checksum: 0, replicas };
            let wanted =
                WantedChunk { chunk, by: BTreeSet::new(), number: number.into(), source: None };
            fetches.wanted.insert(ObjectId([number; 16]), wanted);
        }
        let mut given = BTreeMap::<u64, usize>::new();
        while let Some((object, source)) = fetches.next(&members) {
            fetches.wanted.get_mut(&object).unwrap().source = Some(source);
            *given.entry(source.0).or_default() += 1;
        }
        assert_eq!(given, [(1, 6), (2, 5), (3, 5)].into());
        let without = [2, 3].map(NodeId).into();
        assert_ne!(fetches.next(&without).expect("there is room").1, NodeId(1));
    }
}
