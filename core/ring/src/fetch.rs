//! What a node fetches for leaders.
//!
//! A few chunks at a time, each from another giver as far as that can be, in the order in which they were asked for where it is
//! all the same. More at a time would not come sooner; whoever wants one of them, and whatever else has to be said over
//! the same links, would wait longer.

use alloc::collections::{BTreeMap, BTreeSet};

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::event::Effect;
use crate::message::MessageBody;
use crate::node::{RingNode, Step};

/// A node has so many chunks to fetch; more are refused, and tried elsewhere.
pub const MAX_FETCHES: usize = 128;
/// So many of them it fetches at a time. Those from nodes that have left do not count: they may come to nothing late.
pub const FETCHES_TOGETHER: usize = 16;

/// What this node is to fetch.
#[derive(Default)]
pub(crate) struct ChunkFetches {
    wanted: BTreeMap<ObjectId, WantedChunk>,
    /// How many were ever wanted.
    count: u64,
}

struct WantedChunk {
    chunk: Chunk,
    /// By which leaders, for which files.
    by: BTreeSet<(NodeId, FileName)>,
    /// Which of all that were ever wanted.
    number: u64,
    /// From whom it is fetched, once it is.
    source: Option<NodeId>,
}

impl ChunkFetches {
    /// What is to be fetched next, and from whom: who gives least for now.
    fn next(&self, members: &BTreeSet<NodeId>) -> Option<(ObjectId, NodeId)> {
        let mut gives = BTreeMap::<NodeId, usize>::new();
        let givers = self.wanted.values().filter_map(|wanted| wanted.source);
        givers.filter(|source| members.contains(source)).for_each(|source| *gives.entry(source).or_default() += 1);
        if gives.values().sum::<usize>() >= FETCHES_TOGETHER {
            return None;
        }
        let cost = |node: &NodeId| (!members.contains(node), gives.get(node).copied().unwrap_or_default());
        let waiting = self.wanted.iter().filter(|(_, wanted)| wanted.source.is_none());
        let choices = waiting.filter_map(|(object, wanted)| {
            let source = wanted.chunk.replicas.iter().min_by_key(|node| cost(node))?;
            Some(((cost(source), wanted.number), *object, *source))
        });
        choices.min().map(|(_, object, source)| (object, source))
    }

    pub fn validate(&self) {
        assert!(self.wanted.len() <= MAX_FETCHES);
        assert!(self.wanted.values().all(|wanted| !wanted.by.is_empty() && !wanted.chunk.replicas.is_empty()));
    }
}

impl RingNode {
    /// A leader wants this node to have a chunk.
    pub(crate) fn fetch_chunk(&mut self, leader: NodeId, name: FileName, chunk: Chunk, step: &mut Step) {
        let object = chunk.object;
        let ChunkFetches { wanted, count } = &mut self.fetches;
        let is_refused = wanted.len() >= MAX_FETCHES && !wanted.contains_key(&object) || chunk.replicas.is_empty();
        if is_refused {
            return self.send(leader, MessageBody::ChunkStatus { name, object, is_here: false }, step);
        }
        let wanted = wanted.entry(object).or_insert_with(|| {
            *count += 1;
            WantedChunk { chunk, by: BTreeSet::new(), number: *count, source: None }
        });
        wanted.by.insert((leader, name));
        self.start_fetches(step);
    }

    /// A chunk is in the store, or not to be had.
    pub(crate) fn fetched(&mut self, object: ObjectId, is_here: bool, step: &mut Step) {
        let wanted_by = self.fetches.wanted.remove(&object).map(|wanted| wanted.by);
        for (leader, name) in wanted_by.into_iter().flatten() {
            self.send(leader, MessageBody::ChunkStatus { name, object, is_here }, step);
        }
        self.start_fetches(step);
    }

    fn start_fetches(&mut self, step: &mut Step) {
        let Some(current) = &self.current else { return };
        while let Some((object, source)) = self.fetches.next(&current.view.members) {
            let wanted = self.fetches.wanted.get_mut(&object).expect("it waits");
            wanted.source = Some(source);
            let Chunk { size_bytes, checksum, replicas: mut from, .. } = wanted.chunk.clone();
            from.sort_by_key(|node| *node != source);
            step.records.effects.push(Effect::Fetch { object, size_bytes, checksum, from });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn givers_share_what_is_fetched_and_who_has_left_does_not_count() {
        let mut fetches = ChunkFetches::default();
        let members = [1, 2, 3].map(NodeId).into();
        for number in 0..60 {
            let replicas = [[1, 2], [2, 3], [3, 1]][usize::from(number) % 3].map(NodeId).to_vec();
            let chunk = Chunk { object: ObjectId([number; 16]), size_bytes: 1, checksum: 0, replicas };
            let wanted = WantedChunk { chunk, by: BTreeSet::new(), number: number.into(), source: None };
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
