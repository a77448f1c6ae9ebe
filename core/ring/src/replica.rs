//! The part of a node as a replica of a partition that another node leads.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, NodeId};

use crate::event::{Effect, Save};
use crate::message::{MessageBody, Page};
use crate::node::{RingNode, Step};
use crate::record::{Digest, Round, Stored};

/// A partition that is being synchronized from its leader.
pub(crate) struct CatchUp {
    round: Round,
    /// All entries up to this name are synchronized.
    after: String,
}

impl RingNode {
    /// A leader asks for the acknowledged entries. The entries of this node count if the partition was synchronized
    /// here in a view since the last settled one. Otherwise this node has acknowledged nothing that counts.
    pub(crate) fn collect(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: String,
        digest: Option<Digest>,
        step: &mut Step,
    ) {
        let Some(current) = self.current.as_ref().filter(|_| self.leases.is_free(step.now_us)) else { return };
        let base = current.view.base;
        let counts = self.rounds.get(&partition).is_some_and(|round| round.view >= base);
        let has_more_than = |digest| after.is_empty() && digest == step.records.digest(partition, base);
        let page = if counts && !digest.is_some_and(has_more_than) {
            step.records.page(partition, &after, base)
        } else {
            Page::default()
        };
        self.send(from, MessageBody::Collected { partition, round, after, page }, step);
    }

    /// A leader is ready to synchronize this replica.
    pub(crate) fn sync_offered(&mut self, from: NodeId, partition: u16, round: Round, step: &mut Step) {
        let own = self.rounds.get(&partition).copied().unwrap_or_default();
        if round == own {
            return self.send(from, MessageBody::InSync { partition, round }, step);
        }
        let is_newer = self.catching_up.get(&partition).is_none_or(|catching_up| catching_up.round < round);
        if round > own && is_newer {
            self.catching_up.insert(partition, CatchUp { round, after: String::new() });
        }
        self.request_page(from, partition, round, step);
    }

    /// Asks the leader for the next entries.
    fn request_page(&self, from: NodeId, partition: u16, round: Round, step: &mut Step) {
        let (Some(current), Some(catching_up)) = (&self.current, self.catching_up.get(&partition)) else { return };
        if catching_up.round == round {
            let after = catching_up.after.clone();
            let digest = after.is_empty().then(|| step.records.digest(partition, current.view.base));
            self.send(from, MessageBody::RequestPage { partition, round, after, digest }, step);
        }
    }

    /// Replaces a range of entries by those of the leader.
    pub(crate) fn store_page(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: &str,
        page: Page,
        step: &mut Step,
    ) {
        let is_next = |catching_up: &&mut CatchUp| catching_up.round == round && catching_up.after == after;
        let Some(catching_up) = self.catching_up.get_mut(&partition).filter(is_next) else { return };
        let last = page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
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
                self.request_page(from, partition, round, step);
            }
            None => self.is_filled(from, partition, round, step),
        }
    }

    /// The entries of this replica equal those of the leader.
    pub(crate) fn same_content(&mut self, from: NodeId, partition: u16, round: Round, step: &mut Step) {
        let catching_up = self.catching_up.get(&partition);
        if catching_up.is_some_and(|catching_up| catching_up.round == round && catching_up.after.is_empty()) {
            self.is_filled(from, partition, round, step);
        }
    }

    fn is_filled(&mut self, from: NodeId, partition: u16, round: Round, step: &mut Step) {
        self.catching_up.remove(&partition);
        self.rounds.insert(partition, round);
        step.records.effects.push(Effect::Save(Save::Round { partition, round }));
        self.send(from, MessageBody::InSync { partition, round }, step);
    }

    /// Stores an entry for the leader, if the replica is synchronized. A replica that is not must not be counted.
    pub(crate) fn write(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        name: FileName,
        stored: Stored,
        step: &mut Step,
    ) {
        if self.rounds.get(&partition) != Some(&round) || self.catching_up.contains_key(&partition) {
            return;
        }
        let version = stored.version;
        if step.records.get(partition, &name).is_none_or(|own| own.version < version) {
            step.records.save(partition, &name, stored);
        }
        self.send(from, MessageBody::Written { name, version }, step);
    }
}
