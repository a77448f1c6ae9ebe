//! The part of a node as a replica of partitions that other nodes lead.
//!
//! A replica goes from round to round of a partition's leaders, and never back, except that it may
//! forget the partition: [`PartitionReplicas::enter_round`] and [`PartitionReplicas::clear`] are
//! its only moves.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, NodeId};

use crate::event::{Effect, Save};
use crate::membership::RingMembership;
use crate::message::{MessageBody, Page};
use crate::record::{Digest, Round, Stored};
use crate::step::Step;

/// A partition in a round of its leader, and the node at the other end of a message about it.
#[derive(Clone, Copy)]
pub(crate) struct PartitionPeer {
    pub node: NodeId,
    pub partition: u16,
    pub round: Round,
}

/// A partition that is being synchronized from its leader.
#[derive(Debug)]
struct CatchUp {
    round: Round,
    /// All entries up to this name are synchronized.
    after: String,
}

/// The partitions of which this node has entries.
pub(crate) struct PartitionReplicas {
    /// The round in which each partition was last synchronized. A partition without an entry never
    /// was.
    rounds: BTreeMap<u16, Round>,
    /// Partitions that are being synchronized from their leader.
    catching_up: BTreeMap<u16, CatchUp>,
}

impl PartitionReplicas {
    pub fn new(rounds: BTreeMap<u16, Round>) -> Self {
        PartitionReplicas { rounds, catching_up: BTreeMap::new() }
    }

    pub fn rounds(&self) -> &BTreeMap<u16, Round> {
        &self.rounds
    }

    pub fn round(&self, partition: u16) -> Option<Round> {
        self.rounds.get(&partition).copied()
    }

    pub fn is_catching_up(&self, partition: u16) -> bool {
        self.catching_up.contains_key(&partition)
    }

    /// Whether the entries of a partition count in a view with this base: the partition was
    /// synchronized here in a view since then. With base 7, a partition that was last synchronized
    /// in view 6 counts no longer.
    pub fn count(&self, partition: u16, base: u64) -> bool {
        self.rounds.get(&partition).is_some_and(|round| round.view >= base)
    }

    /// A view has begun: its leaders synchronize this node anew.
    pub fn enter_view(&mut self) {
        self.catching_up.clear();
    }

    /// The entries of a partition are now those of its leader in this round.
    ///
    /// # Panics
    /// If the partition was synchronized in this round or a later one.
    pub fn enter_round(&mut self, partition: u16, round: Round, effects: &mut Vec<Effect>) {
        let before = self.rounds.insert(partition, round);
        let is_later = before.is_none_or(|before| before < round);
        let catching_up = self.catching_up.remove(&partition);
        assert!(
            is_later,
            "partition {partition} cannot go from {before:?} to {round:?}: {catching_up:?}"
        );
        effects.push(Effect::Save(Save::Round { partition, round }));
    }

    /// Drops the partitions of which this node is neither a replica nor a replica in a source.
    pub fn forget_partitions(&mut self, here: &RingMembership, step: &mut Step) {
        let Some(current) = &here.current else { return };
        let me = here.config.node;
        let is_kept = |partition: &u16| {
            current
                .sources
                .iter()
                .chain([&current.ring])
                .any(|ring| ring.replicas(*partition).contains(&me))
        };
        let forgotten: Vec<u16> =
            self.rounds.keys().copied().filter(|partition| !is_kept(partition)).collect();
        forgotten.into_iter().for_each(|partition| self.clear(partition, step));
    }

    /// Drops all entries of a partition.
    pub fn clear(&mut self, partition: u16, step: &mut Step) {
        self.rounds.remove(&partition);
        step.push(Effect::Save(Save::Round { partition, round: Round::default() }));
        step.records.clear(partition);
    }

    /// A leader asks for the acknowledged entries. The entries of this node count if the partition
    /// was synchronized here in a view since the last settled one. Otherwise this node has
    /// acknowledged nothing that counts.
    pub fn collect(
        &self,
        here: &RingMembership,
        leader: PartitionPeer,
        after: String,
        digest: Option<Digest>,
        step: &mut Step,
    ) {
        let Some(current) = here.current.as_ref().filter(|_| here.leases.is_free(step.now_us))
        else {
            return;
        };
        let PartitionPeer { node, partition, round } = leader;
        let base = current.view.base;
        let has_more_than =
            |digest| after.is_empty() && digest == step.records.digest(partition, base);
        let page = if self.count(partition, base) && !digest.is_some_and(has_more_than) {
            step.records.page(partition, &after, base)
        } else {
            Page::default()
        };
        here.send(node, MessageBody::Collected { partition, round, after, page }, step);
    }

    /// A leader is ready to synchronize this replica.
    pub fn sync_offered(&mut self, here: &RingMembership, leader: PartitionPeer, step: &mut Step) {
        let PartitionPeer { node, partition, round } = leader;
        let own = self.round(partition).unwrap_or_default();
        if round == own {
            return here.send(node, MessageBody::InSync { partition, round }, step);
        }
        let is_newer =
            self.catching_up.get(&partition).is_none_or(|catching_up| catching_up.round < round);
        if round > own && is_newer {
            self.catching_up.insert(partition, CatchUp { round, after: String::new() });
        }
        self.request_page(here, leader, step);
    }

    /// Asks the leader for the next entries.
    fn request_page(&self, here: &RingMembership, leader: PartitionPeer, step: &mut Step) {
        let PartitionPeer { node, partition, round } = leader;
        let (Some(current), Some(catching_up)) = (&here.current, self.catching_up.get(&partition))
        else {
            return;
        };
        if catching_up.round == round {
            let after = catching_up.after.clone();
            let digest =
                after.is_empty().then(|| step.records.digest(partition, current.view.base));
            here.send(node, MessageBody::RequestPage { partition, round, after, digest }, step);
        }
    }

    /// Replaces a range of entries by those of the leader.
    pub fn store_page(
        &mut self,
        here: &RingMembership,
        leader: PartitionPeer,
        after: &str,
        page: Page,
        step: &mut Step,
    ) {
        let PartitionPeer { partition, round, .. } = leader;
        let is_next =
            |catching_up: &&mut CatchUp| catching_up.round == round && catching_up.after == after;
        let Some(catching_up) = self.catching_up.get_mut(&partition).filter(is_next) else {
            return;
        };
        let last =
            page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
        let entries: BTreeMap<FileName, Stored> = page.entries.into_iter().collect();
        let mut name = after.to_owned();
        let mut erased = Vec::new();
        while let Some((next, _)) = step.records.next(partition, &name) {
            name = next.as_str().to_owned();
            if last.as_ref().is_some_and(|last| name > *last) {
                break;
            }
            if !entries.contains_key(&next) {
                erased.push(next);
            }
        }
        erased.iter().for_each(|name| step.records.erase(partition, name));
        for (name, stored) in entries {
            if step.records.get(partition, &name).is_none_or(|own| own.version != stored.version) {
                step.records.save(partition, &name, stored);
            }
        }
        match last {
            Some(last) => {
                catching_up.after = last;
                self.request_page(here, leader, step);
            }
            None => self.is_filled(here, leader, step),
        }
    }

    /// The entries of this replica equal those of the leader.
    pub fn same_content(&mut self, here: &RingMembership, leader: PartitionPeer, step: &mut Step) {
        let catching_up = self.catching_up.get(&leader.partition);
        if catching_up.is_some_and(|catching_up| {
            catching_up.round == leader.round && catching_up.after.is_empty()
        }) {
            self.is_filled(here, leader, step);
        }
    }

    fn is_filled(&mut self, here: &RingMembership, leader: PartitionPeer, step: &mut Step) {
        let PartitionPeer { node, partition, round } = leader;
        self.enter_round(partition, round, step.records.effects);
        here.send(node, MessageBody::InSync { partition, round }, step);
    }

    /// Stores an entry for the leader, if the replica is synchronized. A replica that is not must
    /// not be counted.
    pub fn write(
        &self,
        here: &RingMembership,
        leader: PartitionPeer,
        name: FileName,
        stored: Stored,
        step: &mut Step,
    ) {
        let PartitionPeer { node, partition, round } = leader;
        if self.round(partition) != Some(round) || self.is_catching_up(partition) {
            return;
        }
        let version = stored.version;
        if step.records.get(partition, &name).is_none_or(|own| own.version < version) {
            step.records.save(partition, &name, stored);
        }
        here.send(node, MessageBody::Written { name, version }, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "partition 5 cannot go from Some(Round { view: 7, boot: 2 }) to \
                               Round { view: 7, boot: 1 }")]
    fn a_replica_does_not_go_back_to_an_earlier_round() {
        let (mut replicas, mut effects) = (PartitionReplicas::new(BTreeMap::new()), Vec::new());
        for (view, boot) in [(6, 9), (7, 1), (7, 2)] {
            replicas.enter_round(5, Round { view, boot }, &mut effects);
        }
        assert_eq!((effects.len(), replicas.count(5, 7), replicas.count(5, 8)), (3, true, false));
        replicas.enter_round(5, Round { view: 7, boot: 1 }, &mut effects);
    }
}
