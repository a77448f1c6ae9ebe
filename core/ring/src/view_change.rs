//! The work of a leader before it serves a partition in a new view: collect, then synchronize.
//!
//! *Collect*: in each member set in which entries may have been acknowledged (the view's sources), the leader asks a
//! read quorum of the partition's former replicas for their entries, and keeps the highest version of each name. By
//! then these nodes are in the new view and refuse leaders of older views. *Synchronize*: the leader brings the
//! replicas of the new view to exactly its own state. When a write quorum is synchronized, itself included, it serves;
//! the others follow.
//!
//! A leader that led and served the partition in all sources has every acknowledged entry. It continues to serve at
//! once, and synchronizes in the meantime, since the next view collects from the replicas of this one. A leader that
//! restarts in its view does the same, but serves only after a quorum is synchronized, because it does not know which
//! of its entries were acknowledged.
//!
//! Entries that the other side has are not sent: equal digests end both phases.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::{Effect, Save};
use crate::message::{MessageBody, Page};
use crate::node::{CurrentView, RingNode, Step};
use crate::record::{Digest, Round};
use crate::view::{View, majority};

/// Maximum number of partitions that a leader collects or synchronizes at the same time.
pub const MAX_PARTITIONS_SYNCING: usize = 32;

/// The state of a partition that this node leads.
pub(crate) struct LedPartition {
    phase: Phase,
    /// Whether this node served the partition already when the view began.
    continues: bool,
    /// Replicas that are synchronized in this round. Only their acknowledgements count.
    pub synchronized: BTreeSet<NodeId>,
    /// Number of the last write in this round.
    pub sequence: u64,
    /// The time when other nodes were last asked.
    asked_us: u64,
}

enum Phase {
    /// Waits until fewer partitions are in progress.
    Waiting,
    /// For each node that was asked: the name after which it has to continue; `None` when all its entries have come.
    Collecting(BTreeMap<NodeId, Option<String>>),
    /// All acknowledged entries are here; replicas are being synchronized.
    Synchronizing,
}

impl LedPartition {
    fn new(phase: Phase, continues: bool) -> Self {
        LedPartition { phase, continues, synchronized: BTreeSet::new(), sequence: 0, asked_us: 0 }
    }
}

impl RingNode {
    /// Whether all partitions that this node leads have a write quorum in this view.
    pub(crate) fn has_settled(&self) -> bool {
        let Some(current) = &self.current else { return false };
        self.leading.iter().all(|(partition, leading)| leading.synchronized.len() >= current.write_quorum(*partition))
    }

    /// Whether this node leads a partition and has exactly its acknowledged entries.
    pub(crate) fn serves(&self, partition: u16) -> bool {
        let Some(current) = &self.current else { return false };
        let serves =
            |leading: &LedPartition| leading.continues || leading.synchronized.len() >= current.write_quorum(partition);
        self.leading.get(&partition).is_some_and(serves)
    }

    /// Whether no other node can serve a partition now; see `lease.rs`.
    pub(crate) fn is_leased(&self, partition: u16, now_us: u64) -> bool {
        let Some(current) = &self.current else { return false };
        let replicas = current.ring.replicas(partition).iter();
        let waiting = replicas.filter(|node| self.leases.is_granted(**node, now_us)).count();
        let is_with_most = 1 + self.leases.granted(now_us) >= majority(current.view.members.len());
        is_with_most && 1 + waiting >= current.write_quorum(partition)
    }

    /// Whether this node answers requests for a partition now. No other node does at the same time.
    pub fn answers(&self, partition: u16, now_us: u64) -> bool {
        self.serves(partition) && self.is_leased(partition, now_us)
    }

    /// A node that starts leads the same partitions as before in its view.
    pub(crate) fn lead_again(&mut self, effects: &mut Vec<Effect>) {
        let Some(current) = &self.current else { return };
        let (me, round) = (self.config.node, self.round());
        for partition in (0..current.ring.partitions()).filter(|partition| current.ring.replicas(*partition)[0] == me) {
            let own = self.rounds.get(&partition).filter(|own| own.view == round.view);
            let phase = if own.is_some() { Phase::Synchronizing } else { Phase::Waiting };
            let mut leading = LedPartition::new(phase, false);
            if own.is_some() {
                leading.synchronized.insert(me);
                self.rounds.insert(partition, round);
                effects.push(Effect::Save(Save::Round { partition, round }));
            }
            self.leading.insert(partition, leading);
        }
    }

    /// Enters a view that was chosen.
    pub(crate) fn enter_view(&mut self, view: View, step: &mut Step) {
        if view.number <= self.number() {
            return;
        }
        step.records.effects.push(Effect::Save(Save::View(view.clone())));
        let me = self.config.node;
        let (members, current) = (view.members.clone(), CurrentView::new(view));
        let leads = |partition: &u16| current.ring.replicas(*partition)[0] == me;
        let mut leading = BTreeMap::new();
        for partition in (0..current.ring.partitions()).filter(leads) {
            let led = current.sources.iter().all(|source| source.replicas(partition)[0] == me);
            let continues = self.number() >= current.view.base && led && self.serves(partition);
            leading.insert(partition, LedPartition::new(Phase::Waiting, continues));
        }
        (self.current, self.leading) = (Some(current), leading);
        self.leases.enter_view();
        self.paxos.enter_view(step.now_us);
        self.repairs.enter_view(&members);
        self.lost.enter_view();
        self.syncing.enter_view();
        self.uses.forget();
        self.catching_up.clear();
        self.abandon_pending(step);
        let going_on: Vec<u16> =
            self.leading.iter().filter(|(_, led)| led.continues).map(|(partition, _)| *partition).collect();
        going_on.into_iter().for_each(|partition| self.complete(partition, step));
        self.forget_partitions(step);
        self.advance_view_change(step);
    }

    /// Drops the partitions of which this node is neither a replica nor a replica in a source.
    fn forget_partitions(&mut self, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let me = self.config.node;
        let is_kept = |partition: &u16| {
            current.sources.iter().chain([&current.ring]).any(|ring| ring.replicas(*partition).contains(&me))
        };
        let forgotten: Vec<u16> = self.rounds.keys().copied().filter(|partition| !is_kept(partition)).collect();
        forgotten.into_iter().for_each(|partition| self.clear(partition, step));
    }

    fn clear(&mut self, partition: u16, step: &mut Step) {
        self.rounds.remove(&partition);
        step.records.effects.push(Effect::Save(Save::Round { partition, round: Round::default() }));
        step.records.clear(partition);
    }

    /// Starts waiting partitions, up to the limit, and repeats questions that were not answered.
    pub(crate) fn advance_view_change(&mut self, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let is_under_way = |(partition, leading): &(&u16, &LedPartition)| match leading.phase {
            Phase::Waiting => false,
            Phase::Collecting(_) => true,
            Phase::Synchronizing => leading.synchronized.len() < current.write_quorum(**partition),
        };
        // The leader itself is one of the replicas that must refuse earlier leaders.
        let is_free = current.sources.is_empty() || self.leases.is_free(step.now_us);
        let most = if is_free { MAX_PARTITIONS_SYNCING } else { 0 };
        let mut room = most.saturating_sub(self.leading.iter().filter(is_under_way).count());
        let waits = |(_, leading): &(&u16, &LedPartition)| matches!(leading.phase, Phase::Waiting);
        let waiting: Vec<u16> = self.leading.iter().filter(waits).map(|(partition, _)| *partition).collect();
        for partition in waiting {
            if room == 0 {
                break;
            }
            self.start_collecting(partition, step);
            room -= usize::from(!self.serves(partition));
        }
        let is_due = |leading: &LedPartition| step.now_us >= leading.asked_us + self.config.resend_us;
        let due: Vec<u16> =
            self.leading.iter().filter(|(_, leading)| is_due(leading)).map(|(partition, _)| *partition).collect();
        due.into_iter().for_each(|partition| self.ask(partition, step));
    }

    fn start_collecting(&mut self, partition: u16, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let me = self.config.node;
        let asked = current.sources.iter().flat_map(|source| source.replicas(partition));
        let counts = |node: &&NodeId| **node != me && !current.view.lost.contains(node);
        let asked = asked.filter(counts).map(|node| (*node, Some(String::new()))).collect();
        let counts = self.rounds.get(&partition).is_some_and(|round| round.view >= current.view.base);
        if !counts {
            self.clear(partition, step);
        }
        self.leading.get_mut(&partition).expect("this node leads the partition").phase = Phase::Collecting(asked);
        if !self.complete_if_collected(partition, step) {
            self.ask(partition, step);
        }
    }

    /// Asks other nodes for what is missing of a partition.
    fn ask(&mut self, partition: u16, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let round = self.round();
        let leading = self.leading.get_mut(&partition).expect("this node leads the partition");
        leading.asked_us = step.now_us;
        let mut asked = Vec::new();
        match &leading.phase {
            Phase::Waiting => {}
            Phase::Collecting(progress) => {
                let mut digest = None;
                for (node, after) in progress {
                    let Some(after) = after.clone() else { continue };
                    if after.is_empty() && digest.is_none() && self.rounds.contains_key(&partition) {
                        digest = Some(step.records.digest(partition, current.view.base));
                    }
                    asked.push((*node, MessageBody::Collect { partition, round, after, digest }));
                }
            }
            Phase::Synchronizing => {
                let missing =
                    current.ring.replicas(partition).iter().filter(|node| !leading.synchronized.contains(node));
                asked.extend(missing.map(|node| (*node, MessageBody::OfferSync { partition, round })));
            }
        }
        asked.into_iter().for_each(|(node, body)| self.send(node, body, step));
    }

    pub(crate) fn collected(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: &str,
        page: Page,
        step: &mut Step,
    ) {
        if round != self.round() {
            return;
        }
        let Some(LedPartition { phase: Phase::Collecting(progress), .. }) = self.leading.get_mut(&partition) else {
            return;
        };
        let Some(expected) = progress.get_mut(&from).filter(|expected| expected.as_deref() == Some(after)) else {
            return;
        };
        *expected = page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
        let next = expected.clone();
        for (name, stored) in page.entries {
            if step.records.get(partition, &name).is_none_or(|own| own.version < stored.version) {
                step.records.save(partition, &name, stored);
            }
        }
        match next {
            Some(after) => self.send(from, MessageBody::Collect { partition, round, after, digest: None }, step),
            None => drop(self.complete_if_collected(partition, step)),
        }
    }

    fn complete_if_collected(&mut self, partition: u16, step: &mut Step) -> bool {
        let (Some(current), Some(leading)) = (&self.current, self.leading.get(&partition)) else { return false };
        let Phase::Collecting(progress) = &leading.phase else { return false };
        let me = self.config.node;
        let has_come = |node: &&NodeId| **node == me || progress.get(*node).is_some_and(Option::is_none);
        let is_enough = current.sources.iter().all(|source| {
            source.replicas(partition).iter().filter(has_come).count() >= current.read_quorum(source, partition)
        });
        if is_enough {
            self.complete(partition, step);
        }
        is_enough
    }

    /// All acknowledged entries of a partition are here.
    fn complete(&mut self, partition: u16, step: &mut Step) {
        let round = self.round();
        self.rounds.insert(partition, round);
        step.records.effects.push(Effect::Save(Save::Round { partition, round }));
        let leading = self.leading.get_mut(&partition).expect("this node leads the partition");
        leading.phase = Phase::Synchronizing;
        leading.synchronized.insert(self.config.node);
        self.ask(partition, step);
    }

    /// A replica asks for the entries after a name.
    pub(crate) fn page_requested(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: String,
        digest: Option<Digest>,
        step: &mut Step,
    ) {
        let Some(current) = self.current.as_ref().filter(|_| self.is_synchronizing(partition, round)) else { return };
        let base = current.view.base;
        let body = if digest.is_some_and(|digest| digest == step.records.digest(partition, base)) {
            MessageBody::SameContent { partition, round }
        } else {
            let page = step.records.page(partition, &after, base);
            MessageBody::SyncPage { partition, round, after, page }
        };
        self.send(from, body, step);
    }

    /// A replica is synchronized.
    pub(crate) fn synchronized(&mut self, from: NodeId, partition: u16, round: Round, step: &mut Step) {
        if self.is_synchronizing(partition, round) {
            let served = self.serves(partition);
            self.leading.get_mut(&partition).expect("this node leads the partition").synchronized.insert(from);
            if !served && self.serves(partition) {
                self.advance_view_change(step);
            }
        }
    }

    pub(crate) fn validate_leading(&self, current: &CurrentView) {
        let me = self.config.node;
        for partition in 0..current.ring.partitions() {
            let replicas = current.ring.replicas(partition);
            let leading = self.leading.get(&partition);
            assert_eq!(leading.is_some(), replicas[0] == me, "{me} and {partition}");
            let Some(LedPartition { phase, synchronized, .. }) = leading else { continue };
            assert!(
                synchronized.iter().all(|node| replicas.contains(node)),
                "{synchronized:?} are not of {replicas:?}"
            );
            let is_complete = matches!(phase, Phase::Synchronizing);
            assert_eq!(is_complete, synchronized.contains(&me));
            assert_eq!(is_complete, self.rounds.get(&partition) == Some(&self.round()));
            assert!(!self.catching_up.contains_key(&partition), "a leader does not synchronize from others");
        }
    }

    fn is_synchronizing(&self, partition: u16, round: Round) -> bool {
        let is_filling = |leading: &LedPartition| matches!(leading.phase, Phase::Synchronizing);
        round == self.round() && self.leading.get(&partition).is_some_and(is_filling)
    }
}
