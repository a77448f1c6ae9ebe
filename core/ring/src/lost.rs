//! Lost chunks: chunks for which no good replica is known. Their leader asks all members for a good
//! replica from time to time.
//!
//! The record continues to name the nodes that had the chunk last. The chunk is not fetched from
//! them, since each attempt would fail and keep nodes from other fetches. A good replica can come
//! back with a node that was away and still has its folder, when a disk can be read again, or when
//! a person restores the chunk. The node that has it reports it with
//! [`Event::GoodReplicas`](crate::Event::GoodReplicas).
//!
//! This state is in memory only. The next audit reports bad replicas to the next leader again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, NodeId};

use crate::event::Effect;
use crate::membership::RingMembership;
use crate::record::{NameEntry, Stored};
use crate::serve::LedNames;
use crate::step::Step;

/// Maximum number of chunks that a leader searches for. It takes up further ones when some were
/// found or their files removed.
pub const MAX_LOST: usize = 1024;

/// Interval between two searches, as a multiple of `Config::patience_us`.
const SEARCH_PATIENCE: u64 = 4;

#[derive(Default)]
pub(crate) struct LostChunks {
    chunks: BTreeMap<FileName, BTreeMap<ObjectId, LastReplicas>>,
    count: usize,
    /// Whether some chunks were not searched for yet.
    has_new: bool,
    searched_us: u64,
}

/// The replicas of a chunk that its record names.
struct LastReplicas {
    /// The nodes that the record names.
    named: Vec<NodeId>,
    /// Whether the replicas were reported as bad. Otherwise their nodes are not members of the
    /// view.
    are_bad: bool,
}

impl LostChunks {
    /// Adds a chunk for which no good replica is known.
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

    /// Whether all replicas that the record names were reported as bad.
    pub fn are_bad(&self, name: &FileName, chunk: &Chunk) -> bool {
        self.last(name, chunk).is_some_and(|last| last.are_bad)
    }

    fn last(&self, name: &FileName, chunk: &Chunk) -> Option<&LastReplicas> {
        let last = self.chunks.get(name)?.get(&chunk.object)?;
        Some(last).filter(|last| last.named == chunk.replicas)
    }

    /// Removes a chunk, because a good replica was found or none is needed. Returns its last known
    /// replicas.
    fn remove(&mut self, name: &FileName, object: ObjectId) -> Option<LastReplicas> {
        let chunks = self.chunks.get_mut(name)?;
        let last = chunks.remove(&object)?;
        if chunks.is_empty() {
            self.chunks.remove(name);
        }
        self.count -= 1;
        Some(last)
    }

    /// A view has begun. New members may have lost chunks, so all members are asked again soon.
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

    /// Asks all members for lost chunks, if the last search is long enough ago: with the default
    /// configuration 20 s, or 0.5 s if there are new ones.
    pub fn search(&mut self, here: &RingMembership, names: &LedNames, step: &mut Step) {
        let wait_us = if self.has_new {
            here.config.resend_us
        } else {
            SEARCH_PATIENCE * here.config.patience_us
        };
        if self.count == 0 || step.now_us < self.searched_us + wait_us {
            return;
        }
        (self.searched_us, self.has_new) = (step.now_us, false);
        let leads = |name: &FileName| {
            here.current
                .as_ref()
                .is_some_and(|current| names.partitions.serves(here, current.ring.partition(name)))
        };
        let mut still = BTreeMap::new();
        for (name, chunks) in &self.chunks {
            // Files that are being written are checked the next time.
            match names.served(here, name, step) {
                Some(Some(Stored { entry: NameEntry::File(record), .. })) => {
                    let lost =
                        record.chunks.iter().filter(|chunk| self.last(name, chunk).is_some());
                    still.insert(
                        name.clone(),
                        lost.map(|chunk| chunk.object).collect::<BTreeSet<_>>(),
                    );
                }
                Some(_) => {}
                None if leads(name) => {
                    drop(still.insert(name.clone(), chunks.keys().copied().collect()))
                }
                None => {}
            }
        }
        self.retain(|name, object, _| {
            still.get(name).is_some_and(|objects| objects.contains(&object))
        });
        for (name, objects) in still.into_iter().filter(|(_, objects)| !objects.is_empty()) {
            step.push(Effect::Search { name, objects: objects.into_iter().collect() });
        }
    }

    /// A node has a good replica of a chunk: the chunk, which is in the file's record, gets it if
    /// it was searched for. Returns whether its replicas have changed.
    pub fn found(&mut self, name: &FileName, chunk: &mut Chunk, node: NodeId) -> bool {
        if self.last(name, chunk).is_none() {
            return false;
        }
        let last = self.remove(name, chunk.object).expect("looked at above");
        if last.are_bad {
            chunk.replicas.clear();
        }
        if !chunk.replicas.contains(&node) {
            chunk.replicas.push(node);
        }
        chunk.replicas != last.named
    }

    pub fn validate(&self) {
        assert_eq!(self.count, self.chunks.values().map(BTreeMap::len).sum::<usize>());
        assert!(self.count <= MAX_LOST && self.chunks.values().all(|chunks| !chunks.is_empty()));
    }
}
