//! Chunks of which no good replica is known: their leader searches all members for one, again and again.
//!
//! A record goes on naming the nodes that had such a chunk last. It is not fetched from them: that would fail each time, and
//! keep takers from what they can have. A good copy comes back with a node that was away and has its folder, when a disk
//! reads again what it did not, or when a person restores it; whoever has one says so with [`Event::Good`].
//!
//! All of this is in memory: the next leader is told again of replicas that are bad, by the next audit.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::event::Effect;
use crate::node::{RingNode, Step};
use crate::record::{NameEntry, Stored};

/// A leader searches for this many chunks at a time; further ones when it has found some, or their files are removed.
pub const MAX_LOST: usize = 1024;

/// This many times as long as it waits for a member that is silent, a leader waits between two searches.
const SEARCH_PATIENCE: u64 = 4;

#[derive(Default)]
pub(crate) struct LostChunks {
    chunks: BTreeMap<FileName, BTreeMap<ObjectId, LastReplicas>>,
    count: usize,
    /// Some were not searched for yet.
    has_new: bool,
    searched_us: u64,
}

/// Of a chunk's replicas.
struct LastReplicas {
    /// Those that its record names.
    named: Vec<NodeId>,
    /// Whether they were said to be bad; else they are no members.
    are_bad: bool,
}

impl LostChunks {
    /// No replica of the chunk is known to be good.
    pub fn add(&mut self, name: &FileName, chunk: &Chunk, are_bad: bool) {
        let is_known = self.chunks.get(name).and_then(|chunks| chunks.get(&chunk.object));
        if is_known.is_some_and(|last| last.named == chunk.replicas && last.are_bad == are_bad)
            || is_known.is_none() && self.count >= MAX_LOST
        {
            return;
        }
        let last = LastReplicas { named: chunk.replicas.clone(), are_bad };
        if self.chunks.entry(name.clone()).or_default().insert(chunk.object, last).is_none() {
            self.count += 1;
        }
        self.has_new = true;
    }

    /// Whether all replicas that a record names of a chunk are bad.
    pub fn are_bad(&self, name: &FileName, chunk: &Chunk) -> bool {
        self.last(name, chunk).is_some_and(|last| last.are_bad)
    }

    fn last(&self, name: &FileName, chunk: &Chunk) -> Option<&LastReplicas> {
        let last = self.chunks.get(name)?.get(&chunk.object)?;
        Some(last).filter(|last| last.named == chunk.replicas)
    }

    /// A good replica of a chunk is known, or none is wanted. Tells what its replicas were.
    fn remove(&mut self, name: &FileName, object: ObjectId) -> Option<LastReplicas> {
        let chunks = self.chunks.get_mut(name)?;
        let last = chunks.remove(&object)?;
        if chunks.is_empty() {
            self.chunks.remove(name);
        }
        self.count -= 1;
        Some(last)
    }

    /// A view has begun: who was no member may be one, and may have what is searched for.
    pub fn enter_view(&mut self) {
        self.has_new = true;
        self.retain(|_, _, last| last.are_bad);
    }

    fn retain(&mut self, keep: impl Fn(&FileName, ObjectId, &LastReplicas) -> bool) {
        self.chunks.retain(|name, chunks| {
            chunks.retain(|object, last| keep(name, *object, last));
            !chunks.is_empty()
        });
        self.count = self.chunks.values().map(BTreeMap::len).sum();
    }

    pub fn validate(&self) {
        assert_eq!(self.count, self.chunks.values().map(BTreeMap::len).sum::<usize>());
        assert!(self.count <= MAX_LOST && self.chunks.values().all(|chunks| !chunks.is_empty()));
    }
}

impl RingNode {
    /// Has all members searched for the chunks that are lost, if it is time to.
    pub(crate) fn search(&mut self, step: &mut Step) {
        let wait_us = if self.lost.has_new { self.config.resend_us } else { SEARCH_PATIENCE * self.config.patience_us };
        if self.lost.count == 0 || step.now_us < self.lost.searched_us + wait_us {
            return;
        }
        (self.lost.searched_us, self.lost.has_new) = (step.now_us, false);
        let mut still = BTreeMap::new();
        for name in self.lost.chunks.keys() {
            // What is being written is looked at the next time.
            let (is_led, stored) = (self.leads(name), self.served(name, step));
            match stored {
                Some(Some(Stored { entry: NameEntry::File(record), .. })) => {
                    let lost = record.chunks.iter().filter(|chunk| self.lost.last(name, chunk).is_some());
                    still.insert(name.clone(), lost.map(|chunk| chunk.object).collect::<BTreeSet<_>>());
                }
                Some(_) => {}
                None if is_led => drop(still.insert(name.clone(), self.lost.chunks[name].keys().copied().collect())),
                None => {}
            }
        }
        self.lost.retain(|name, object, _| still.get(name).is_some_and(|objects| objects.contains(&object)));
        for (name, objects) in still.into_iter().filter(|(_, objects)| !objects.is_empty()) {
            step.records.effects.push(Effect::Search { name, objects: objects.into_iter().collect() });
        }
    }

    /// A node has good replicas of chunks that were searched for.
    pub(crate) fn good_replicas(&mut self, name: &FileName, objects: &[ObjectId], node: NodeId, step: &mut Step) {
        let is_member = self.current.as_ref().is_some_and(|current| current.view.members.contains(&node));
        let Some(Some(Stored { entry: NameEntry::File(mut record), .. })) = self.served(name, step) else { return };
        if !is_member {
            return;
        }
        let mut has_changed = false;
        for chunk in record.chunks.iter_mut().filter(|chunk| objects.contains(&chunk.object)) {
            if self.lost.last(name, chunk).is_none() {
                continue;
            }
            let last = self.lost.remove(name, chunk.object).expect("looked at above");
            if last.are_bad {
                chunk.replicas.clear();
            }
            if !chunk.replicas.contains(&node) {
                chunk.replicas.push(node);
            }
            has_changed |= chunk.replicas != last.named;
        }
        self.rescan_name(name, step);
        if has_changed {
            self.put_record(name, record, step);
        }
    }

    fn leads(&self, name: &FileName) -> bool {
        self.current.as_ref().is_some_and(|current| self.serves(current.ring.partition(name)))
    }
}
