//! What a node does as a replica of a partition that another leads.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, NodeId};

use crate::disk::Digest;
use crate::event::{Effect, Save};
use crate::message::{Body, Page};
use crate::node::{Node, Turn};
use crate::record::{Round, Stored};

/// A partition that is being brought up to date.
pub(crate) struct Receiving {
    round: Round,
    /// All up to this name is as its leader has it.
    after: String,
}

impl Node {
    /// A leader wants to know what was acknowledged. What is here counts if it was brought up to date in a view since the
    /// last that was settled; else nothing that counts was acknowledged here.
    pub(crate) fn collect(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: String,
        digest: Option<Digest>,
        turn: &mut Turn,
    ) {
        let Some(place) = self.place.as_ref().filter(|_| self.leases.is_free(turn.now_us)) else { return };
        let base = place.view.base;
        let counts = self.rounds.get(&partition).is_some_and(|round| round.view >= base);
        let has_more_than = |digest| after.is_empty() && digest == turn.disk.digest(partition, base);
        let page = if counts && !digest.is_some_and(has_more_than) {
            turn.disk.page(partition, &after, base)
        } else {
            Page::default()
        };
        self.send(from, Body::Collected { partition, round, after, page }, turn);
    }

    /// A leader is ready to bring this replica up to date.
    pub(crate) fn offered(&mut self, from: NodeId, partition: u16, round: Round, turn: &mut Turn) {
        let own = self.rounds.get(&partition).copied().unwrap_or_default();
        if round == own {
            return self.send(from, Body::Filled { partition, round }, turn);
        }
        let is_newer = self.receiving.get(&partition).is_none_or(|receiving| receiving.round < round);
        if round > own && is_newer {
            self.receiving.insert(partition, Receiving { round, after: String::new() });
        }
        self.want(from, partition, round, turn);
    }

    /// Asks for what comes next.
    fn want(&self, from: NodeId, partition: u16, round: Round, turn: &mut Turn) {
        let (Some(place), Some(receiving)) = (&self.place, self.receiving.get(&partition)) else { return };
        if receiving.round == round {
            let after = receiving.after.clone();
            let digest = after.is_empty().then(|| turn.disk.digest(partition, place.view.base));
            self.send(from, Body::Want { partition, round, after, digest }, turn);
        }
    }

    /// Takes over exactly what its leader has in a part of a partition.
    pub(crate) fn fill(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: &str,
        page: Page,
        turn: &mut Turn,
    ) {
        let is_next = |receiving: &&mut Receiving| receiving.round == round && receiving.after == after;
        let Some(receiving) = self.receiving.get_mut(&partition).filter(is_next) else { return };
        let last = page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
        let entries: BTreeMap<FileName, Stored> = page.entries.into_iter().collect();
        let mut name = after.to_owned();
        let mut erased = Vec::new();
        while let Some((next, _)) = turn.disk.next(partition, &name) {
            name = next.as_str().to_owned();
            if last.as_ref().is_some_and(|last| name > *last) {
                break;
            }
            if !entries.contains_key(&next) {
                erased.push(next);
            }
        }
        erased.iter().for_each(|name| turn.disk.erase(partition, name));
        for (name, stored) in entries {
            if turn.disk.get(partition, &name).is_none_or(|own| own.version != stored.version) {
                turn.disk.save(partition, &name, stored);
            }
        }
        match last {
            Some(last) => {
                receiving.after = last;
                self.want(from, partition, round, turn);
            }
            None => self.is_filled(from, partition, round, turn),
        }
    }

    /// What is here is what its leader has.
    pub(crate) fn same(&mut self, from: NodeId, partition: u16, round: Round, turn: &mut Turn) {
        let receiving = self.receiving.get(&partition);
        if receiving.is_some_and(|receiving| receiving.round == round && receiving.after.is_empty()) {
            self.is_filled(from, partition, round, turn);
        }
    }

    fn is_filled(&mut self, from: NodeId, partition: u16, round: Round, turn: &mut Turn) {
        self.receiving.remove(&partition);
        self.rounds.insert(partition, round);
        turn.disk.effects.push(Effect::Save(Save::Round { partition, round }));
        self.send(from, Body::Filled { partition, round }, turn);
    }

    /// Writes what its leader says, if it is up to date: what is not must not be counted on.
    pub(crate) fn write(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        name: FileName,
        stored: Stored,
        turn: &mut Turn,
    ) {
        if self.rounds.get(&partition) != Some(&round) || self.receiving.contains_key(&partition) {
            return;
        }
        let version = stored.version;
        if turn.disk.get(partition, &name).is_none_or(|own| own.version < version) {
            turn.disk.save(partition, &name, stored);
        }
        self.send(from, Body::Written { name, version }, turn);
    }
}
